"""The measured calls of a pass in order: device time, transitions between operators, host time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from opdb.compose.grounds import Grounds
from opdb.compose.timeline import Step
from opdb.kinds import get_kind
from opdb.records import Call, Cost, Form, Mode, Workload

SHORT_KERNEL_S = 5e-6
LONG_KERNEL_S = 15e-6
"""A kernel that takes so long hides the transition to it: on an H200 it cost 0.13 µs a kernel at
batch 1 and nothing at batch 32 (docs/measuring.md)."""


@dataclass(frozen=True)
class TimedCall:
    """A measured call at full clock; `transition_s` does not go with the clock."""

    key: str
    device_s: float
    transition_s: float
    host_s: float
    synchronises: bool


def steps_of(calls: Sequence[TimedCall], slower_by: Callable[[str], float]) -> list[Step]:
    """Return the calls of a pass, device times multiplied by a factor for each configuration."""
    slower = {key: slower_by(key) for key in {call.key for call in calls}}
    return [
        Step(c.device_s * slower[c.key] + c.transition_s, c.host_s, c.synchronises) for c in calls
    ]


def timed_calls(workload: Workload, mode: Mode, grounds: Grounds) -> list[TimedCall]:
    """Return the measured calls in order, each with its part of the containers' host time."""
    host = HostTimes(workload, grounds)
    containers_s = workload.containers * (grounds.calibration.container_time_s or 0.0)
    each_s = containers_s / len(workload.calls) if workload.calls else 0.0
    transition_s = grounds.calibration.transition_s or 0.0
    eager = mode == "eager"
    steps = []
    for call in workload.calls:
        cost = grounds.costs.get(call.configuration.key)
        if cost is None or cost.time_s is None:
            continue
        device = cost.eager_time_s if eager and cost.eager_time_s else cost.time_s
        steps.append(
            TimedCall(
                key=cost.configuration,
                device_s=device.mean,
                transition_s=transition_s * _transitions(cost, device.mean),
                host_s=(host.of(call) or 0.0) + each_s,
                synchronises=get_kind(call.configuration.kind).synchronises,
            )
        )
    return steps


def _transitions(cost: Cost, time_s: float) -> float:
    """Return how many transitions between operators a call pays for: one for each short kernel."""
    if not cost.kernels:
        return 0.0
    kernel_s = time_s / cost.kernels
    hidden = (kernel_s - SHORT_KERNEL_S) / (LONG_KERNEL_S - SHORT_KERNEL_S)
    return cost.kernels * min(max(1 - hidden, 0.0), 1.0)


class HostTimes:
    """Host time of a call: its own, else the median of its kind and form."""

    def __init__(self, workload: Workload, grounds: Grounds) -> None:
        self._costs = costs = grounds.costs
        seen: dict[tuple[str, Form], list[float]] = defaultdict(list)
        for configuration in workload.occurrences():
            cost = costs.get(configuration.key)
            for form, quantity in cost.host_time_s.items() if _is_measured(cost) else ():
                seen[configuration.kind, form].append(quantity.mean)
        own = {key: statistics.median(values) for key, values in seen.items()}
        self._of_kind = {**grounds.host_s, **own}

    def is_own(self, call: Call) -> bool:
        """Return whether the call's own host time was measured."""
        cost = self._costs.get(call.configuration.key)
        return _is_measured(cost) and call.form in cost.host_time_s

    def of(self, call: Call) -> float | None:
        """Return a call's host time in seconds; None where neither it nor its kind was seen."""
        if self.is_own(call):
            return self._costs[call.configuration.key].host_time_s[call.form].mean
        return self._of_kind.get((call.configuration.kind, call.form))


def _is_measured(cost: Cost | None) -> TypeGuard[Cost]:
    return cost is not None and not cost.is_estimated
