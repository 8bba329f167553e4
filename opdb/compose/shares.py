"""The share of each configuration in the time and the energy of a pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.compose.calls import Pass
from opdb.compose.inputs import PredictionInputs
from opdb.compose.sizes import shares_of, sizes_of
from opdb.kinds import get_kind
from opdb.records import Configuration, Cost

ROUNDING = 1e-12
NEARLY_ALL = 0.9999
"""Where more of the time is missing, only views and the like are left: that is no sum of a pass."""


@dataclass(frozen=True)
class Share:
    """A configuration's part of a workload, its shares of time and energy estimated or measured."""

    configuration: Configuration
    count: int
    share_time: float
    share_energy: float

    @property
    def launches(self) -> bool:
        """Whether its calls run on the device; a view, say, does not."""
        return get_kind(self.configuration.kind).launches(self.configuration)


@dataclass(frozen=True)
class EstimatedShare(Share):
    """A configuration's part of a workload that rests on an estimate, and the estimate."""

    cost: Cost


@dataclass(frozen=True)
class Shares:
    """All parts of a pass, the largest first: measured, estimated, or without a cost.

    `dark` parts were timed but not metered: the energy lacks them, the time does not.
    """

    measured: tuple[Share, ...]
    estimated: tuple[EstimatedShare, ...]
    uncosted: tuple[Share, ...]
    dark: tuple[Share, ...]


def shares(pass_: Pass, costed: Mapping[str, Cost], inputs: PredictionInputs) -> Shares:
    """Sort the parts of a pass into measured, estimated and others; `costed` is by key."""
    every = [
        (share, costed.get(share.configuration.key)) for share in _every(pass_, costed, inputs)
    ]
    return Shares(
        measured=tuple(s for s, cost in every if cost is not None and not cost.is_estimated),
        estimated=tuple(
            EstimatedShare(s.configuration, s.count, s.share_time, s.share_energy, cost)
            for s, cost in every
            if cost is not None and cost.is_estimated
        ),
        uncosted=tuple(s for s, cost in every if cost is None),
        dark=tuple(
            replace(s, share_time=0.0)
            for s, cost in every
            if cost is not None and cost.dynamic_energy_j is None
        ),
    )


def rest(missing: Iterable[float]) -> float:
    """Return 1 minus the shares; 0 where that is less than their rounding."""
    left = 1 - math.fsum(missing)
    return left if left > ROUNDING else 0.0


def _every(pass_: Pass, costed: Mapping[str, Cost], inputs: PredictionInputs) -> Sequence[Share]:
    """Return every configuration's share of device time and energy, the largest first."""
    sizes = sizes_of(pass_.configurations.values(), costed)
    found = shares_of(pass_.counts, sizes, inputs.calibration.base_power_w or 0.0)
    assert found is not None  # a kind that this version lacks has no bytes, which a pass needs
    every = [
        Share(pass_.configurations[key], pass_.counts[key], *both) for key, both in found.items()
    ]
    return sorted(every, key=lambda s: s.share_time, reverse=True)
