"""What a prediction rests on, in the state that the workload leaves its weights in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opdb.footprint import keeps_weights_hot
from opdb.records import Calibration, Cost, Device, Form, Quantity, Workload


@dataclass(frozen=True)
class Known:
    """What validation on other models' runs showed: predicted / measured, for time and energy."""

    time: tuple[float, ...] = ()
    energy: tuple[float, ...] = ()


@dataclass(frozen=True)
class Grounds:
    """What a prediction rests on: one board's costs by configuration key, and its calibration.

    `host_s` holds the board's usual host time of each kind and form, for calls without their own;
    `resident_bytes` is how much its L2 keeps from one pass to the next, `kept_limit_w` the power at
    which the board was seen to keep under its limit (None: at the limit itself). `notes` say what
    of this stands in for what the board itself has not.
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

    @property
    def limit_w(self) -> float | None:
        """The mean power that no pass exceeds."""
        return self.kept_limit_w or self.device.power_limit_w


def in_state(workload: Workload, grounds: Grounds) -> Grounds:
    """Return the grounds with the costs of hot weights, where a pass leaves its weights in the L2.

    What was not measured with hot weights keeps its usual cost.
    """
    if not keeps_weights_hot(workload, grounds.resident_bytes):
        return grounds
    return replace(grounds, costs={key: _hot(cost) for key, cost in grounds.costs.items()})


def _hot(cost: Cost) -> Cost:
    if cost.hot is None or cost.time_s is None:
        return cost
    longer_s = cost.hot.time_s - cost.time_s.mean
    dynamic = cost.dynamic_energy_j
    if dynamic is not None and cost.hot.dynamic_energy_j is not None:
        dynamic = _moved(dynamic, cost.hot.dynamic_energy_j - dynamic.mean)
    return replace(
        cost,
        time_s=_moved(cost.time_s, longer_s),
        eager_time_s=None if cost.eager_time_s is None else _moved(cost.eager_time_s, longer_s),
        dynamic_energy_j=dynamic,
    )


def _moved(quantity: Quantity, by: float) -> Quantity:
    """Return a quantity with another mean and the same width."""
    return Quantity(
        quantity.median + by,
        quantity.mean + by,
        None if quantity.low is None else quantity.low + by,
        None if quantity.high is None else quantity.high + by,
        quantity.count,
    )
