"""A predicted pass call by call: when the host issues each, when the device runs it, at what cost.

The device's slots, and the time in which it waits between them, add up to the predicted time; base
power over that time and the slots' dynamic energies to the predicted energy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opdb.compose.calls import Pass, is_one_graph, timed_pass
from opdb.compose.composer import break_down
from opdb.compose.inputs import PredictionInputs
from opdb.compose.timeline import Span, Step, steady_pass
from opdb.records import Call, Cost, Mode, Quantity


@dataclass(frozen=True)
class CallCost:
    """What one call of a configuration takes on the device in a pass, at the clock of the pass.

    `dynamic_energy_j` is None where the call was not metered.
    """

    time_s: Quantity
    dynamic_energy_j: Quantity | None
    is_estimated: bool


@dataclass(frozen=True)
class Slot:
    """One call of a pass: when it is issued and run.

    The time is its own and `transition_s`, by which it is longer after other calls (seconds).
    """

    call: Call
    span: Span
    transition_s: float

    @property
    def device_s(self) -> float:
        """How long the device runs it."""
        return self.span.device_end_s - self.span.device_start_s

    @property
    def runs(self) -> bool:
        """Whether it gives the device work."""
        return self.device_s > 0


@dataclass(frozen=True)
class Schedule:
    """The calls of a pass that have a cost, in order, and the costs by configuration (key).

    The device's part of the pass lasts from `start_s` to `end_s`. `issued` says whether the host
    issues the calls one by one; else they run as one graph, or on a CPU, which is its own host.
    Base power (watts; None: not known) flows all the time.
    """

    slots: tuple[Slot, ...]
    costs: Mapping[str, CallCost]
    start_s: float
    end_s: float
    issued: bool
    base_power_w: float | None


def schedule(pass_: Pass, mode: Mode, inputs: PredictionInputs) -> Schedule:
    """Return the schedule of the pass that `compose_pass` predicts from the same inputs.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    parts = break_down(pass_, mode, inputs)
    timed = timed_pass(pass_, mode, inputs)
    found = [(call, n) for n, call in zip(pass_.order, timed.order, strict=True) if call]
    issued = not is_one_graph(mode) and inputs.device.type != "cpu"
    steps = [
        Step(
            parts.call_s[each.key] + each.transition_s,
            each.host_s if issued else 0.0,
            each.synchronises and issued,
        )
        for each, _ in found
    ]
    steady = steady_pass(steps)
    end_s = steady.end_s if issued else steady.end_s + parts.waiting_s
    slots = tuple(
        Slot(pass_.calls[place], span, each.transition_s)
        for (each, place), span in zip(found, steady.spans, strict=True)
    )
    costs = {
        key: _cost(inputs.costs[key], mode, time_s, parts.call_j.get(key))
        for key, time_s in parts.call_s.items()
    }
    return Schedule(slots, costs, steady.start_s, end_s, issued, parts.base_power_w)


def _cost(cost: Cost, mode: Mode, time_s: float, dynamic_j: float | None) -> CallCost:
    """Return a cost as it counts in a mode, its intervals as wide as its values at the clock."""
    of_mode = cost.time_s if is_one_graph(mode) else cost.eager_time_s or cost.time_s
    assert of_mode is not None
    energy = cost.dynamic_energy_j
    at_clock = None if energy is None or dynamic_j is None else _scaled(energy, dynamic_j)
    return CallCost(_scaled(of_mode, time_s), at_clock, cost.is_estimated)


def _scaled(quantity: Quantity, mean: float) -> Quantity:
    """Return a quantity with another mean, all of it scaled by the same factor."""
    if not quantity.mean:
        return quantity
    factor = mean / quantity.mean
    low, high = (None if end is None else end * factor for end in (quantity.low, quantity.high))
    return Quantity(quantity.median * factor, mean, low, high, quantity.count)
