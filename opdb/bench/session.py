"""The session that all measurements of a campaign share: platform, meter, clock, calibration."""

from __future__ import annotations

import gc
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import torch

from opdb.algorithms.plans import forget_plans
from opdb.bench.platform import Platform, current_settings
from opdb.bench.replay import Clock, clock_for
from opdb.compile.dynamo import Counted
from opdb.errors import CannotMeasureError
from opdb.meters import Meter
from opdb.records import Calibration, Campaign, Stretch

UNCALIBRATED = Calibration(None, None, None, None, None, None)


def now() -> str:
    """Return the present moment as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def seconds_since(moment: str) -> float:
    """Return how long ago a moment (`now`) was, in seconds; below 0 for one of the future."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


def new_id() -> str:
    """Return a fresh identifier for a campaign, a visit or a run."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Session:
    """One campaign under way."""

    platform: Platform
    meter: Meter
    campaign: Campaign
    restores: dict[str, Stretch] = field(default_factory=dict)
    """What restoring inputs cost, by the inputs' shapes: measured once a campaign."""
    graphs: dict[str, Counted] = field(default_factory=dict)
    """What dynamo captures of a workload (key), on this device: counted once a campaign."""

    @property
    def on_gpu(self) -> bool:
        """Whether the campaign measures a CUDA device."""
        return self.platform.device.type == "cuda"

    @property
    def clock(self) -> Clock:
        """The clock that times work on this campaign's device."""
        return clock_for(self.platform.device.type)

    @property
    def lag_s(self) -> float:
        """How late the meter's samples are, as calibrated."""
        return self.campaign.calibration.sample_lag_s or 0.0

    def calibrated(self, calibration: Calibration) -> Session:
        """Return the session with its calibration in place."""
        return replace(self, campaign=replace(self.campaign, calibration=calibration))

    def check_alive(self) -> None:
        """Raise CannotMeasureError when the device no longer answers.

        Raises:
            CannotMeasureError: a CUDA error has spoiled the context, or the GPU is gone.
        """
        if not self.on_gpu:
            return
        try:
            torch.zeros(1, device=self.platform.torch_device).add_(1).item()
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise CannotMeasureError(
                f"{self.platform.device.name} ({self.platform.board.uuid}) stopped answering: "
                f"{why}; what was finished is stored. Look at nvidia-smi, then start again to go on"
            ) from error


def open_session(platform: Platform, meter: Meter) -> Session:
    """Begin a campaign on this platform, not yet calibrated."""
    campaign = Campaign(
        id=new_id(),
        board=platform.board,
        device=platform.device,
        host=platform.host,
        started_at=now(),
        environment=platform.environment,
        settings=current_settings(),
        calibration=UNCALIBRATED,
    )
    return Session(platform, meter, campaign)


def release(session: Session) -> None:
    """Give a measurement's memory back before the next one, graphs' pools included."""
    gc.collect()
    if session.on_gpu:
        forget_plans()
        torch.cuda.empty_cache()
