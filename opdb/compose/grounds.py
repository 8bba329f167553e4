"""What a prediction rests on, in the state that the workload leaves its weights in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from opdb.derive.boards import Factors
from opdb.footprint import is_kept
from opdb.records import Calibration, Cost, Device, Form


@dataclass(frozen=True)
class Known:
    """What validation on other models' runs showed: predicted / measured, for time and energy."""

    time: tuple[float, ...] = ()
    energy: tuple[float, ...] = ()


class Estimated(Protocol):
    """Costs that were never measured, by configuration key, and why others were refused."""

    @property
    def costs(self) -> Mapping[str, Cost]:
        """What one call of each costs, as far as it could be estimated."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Why the others could not."""
        ...

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls."""
        ...


@dataclass(frozen=True)
class Grounds:
    """What a prediction rests on: one board's costs by configuration key, and its calibration.

    `host_s` holds the board's usual host times by `issued_as` and form, for calls without their
    own; `resident_bytes` is how much its L2 keeps from one pass to the next, `kept_limit_w` the
    power at which the board was seen to keep under its limit (None: at the limit itself). `notes`
    say what of this stands in for what the board itself has not; `estimates` are of what nobody
    measured. `host_ratios` are what the same calls took the host at one moment over another,
    `brought` the factors that brought costs (keys) here from other boards.
    """

    device: Device
    board: str
    calibration: Calibration
    costs: Mapping[str, Cost]
    host_s: Mapping[tuple[str, Form], float] = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    resident_bytes: float | None = None
    kept_limit_w: float | None = None
    notes: tuple[str, ...] = ()
    estimates: Estimated | None = None
    host_ratios: tuple[float, ...] = ()
    brought: Mapping[str, Factors] = field(default_factory=dict)

    @property
    def limit_w(self) -> float | None:
        """The mean power that no pass exceeds."""
        return self.kept_limit_w or self.device.power_limit_w


def with_estimates(keys: Iterable[str], grounds: Grounds) -> Grounds:
    """Return the grounds with estimated costs of the configurations (keys) without measured ones.

    This is the one place where estimates come in: what follows takes costs as it finds them.
    """
    if grounds.estimates is None:
        return grounds
    estimated = grounds.estimates.costs
    added = {
        key: estimated[key]
        for key in keys
        if key in estimated and not _is_timed(grounds.costs.get(key))
    }
    return replace(grounds, costs={**grounds.costs, **added})


def _is_timed(cost: Cost | None) -> bool:
    return cost is not None and cost.time_s is not None


def in_state(touched_bytes: int, grounds: Grounds) -> Grounds:
    """Return the grounds with the costs of hot weights, where a pass leaves its weights in the L2.

    What was not measured with hot weights keeps its usual cost.
    """
    if not is_kept(touched_bytes, grounds.resident_bytes):
        return grounds
    return replace(grounds, costs={key: _hot(cost) for key, cost in grounds.costs.items()})


def _hot(cost: Cost) -> Cost:
    if cost.hot is None or cost.time_s is None:
        return cost
    longer_s = cost.hot.time_s - cost.time_s.mean
    dynamic = cost.dynamic_energy_j
    if dynamic is not None and cost.hot.dynamic_energy_j is not None:
        dynamic = dynamic.moved(cost.hot.dynamic_energy_j - dynamic.mean)
    return replace(
        cost,
        time_s=cost.time_s.moved(longer_s),
        eager_time_s=None if cost.eager_time_s is None else cost.eager_time_s.moved(longer_s),
        dynamic_energy_j=dynamic,
    )
