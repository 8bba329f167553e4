"""The calls of a pass: their order, counts and bytes, and their times at full clock."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from opdb.compose.clock import BANDWIDTH_SHARE
from opdb.compose.inputs import PredictionInputs
from opdb.compose.timeline import Step
from opdb.compose.write_back import Traffic, written_back
from opdb.footprint import bytes_moved, is_kept, touched_bytes, weight_bytes
from opdb.kinds import get_kind
from opdb.records import Call, Configuration, Cost, Form, Mode, Quantity, Workload
from opdb.records.cost import BETWEEN

AS_ONE_GRAPH: Mapping[Mode, bool] = {
    "eager": False,
    "graph": True,
    "compile": False,
    "compile:reduce-overhead": True,
}
"""The modes that the composer knows, and whether each runs as one CUDA graph."""

SHORT_KERNEL_S = 5e-6
LONG_KERNEL_S = 15e-6
"""What a call takes longer among others adds whole to a kernel shorter than the first, not at all
to one longer than the second: on an H200 that was 0.13 µs a kernel at batch 1 and nothing at batch
32 (docs/measuring.md)."""


def is_one_graph(mode: Mode) -> bool:
    """Return whether a mode's kernels run as one CUDA graph, which waits for no host.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    if mode not in AS_ONE_GRAPH:
        raise ValueError(f"the composer knows the modes {', '.join(AS_ONE_GRAPH)}, not {mode!r}")
    return AS_ONE_GRAPH[mode]


class Pass:
    """One pass of a workload: distinct calls, how often and in which order, what they touch.

    Nothing in it depends on a device, so all predictions of a workload share its pass.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.calls: list[Call] = []
        """Each configuration and form once, in the order of their first calls."""
        self.times: list[int] = []
        """How often each of these is called."""
        self.order: list[int] = []
        """The whole sequence, as places in `calls`."""
        places: dict[tuple[str, Form], int] = {}
        for call in workload.calls:
            place = places.setdefault((call.configuration.key, call.form), len(places))
            if place == len(self.calls):
                self.calls.append(call)
                self.times.append(0)
            self.times[place] += 1
            self.order.append(place)
        self._written_back: dict[float, list[float]] = {}
        self.configurations = {call.configuration.key: call.configuration for call in self.calls}
        self.counts = dict.fromkeys(self.configurations, 0)
        for call, times in zip(self.calls, self.times, strict=True):
            self.counts[call.configuration.key] += times

    @cached_property
    def touched_bytes(self) -> int:
        """The bytes that the pass touches."""
        return touched_bytes(self.workload)

    @cached_property
    def bytes_moved(self) -> dict[str, int]:
        """The bytes that one call of each configuration (key) moves at least."""
        return {key: bytes_moved(c) for key, c in self.configurations.items()}

    def written_back(self, capacity: float) -> list[float]:
        """Return what each distinct call pushes out of an L2 that keeps so many bytes."""
        if capacity not in self._written_back:
            traffic = [self._traffic(call.configuration) for call in self.calls]
            self._written_back[capacity] = written_back(traffic, self.order, capacity)
        return self._written_back[capacity]

    def _traffic(self, configuration: Configuration) -> Traffic:
        weights = weight_bytes(configuration)
        output = get_kind(configuration.kind).activation_bytes(configuration)
        read = self.bytes_moved[configuration.key] - weights - output
        return Traffic(weights, max(0, read), output)

    @cached_property
    def weighted(self) -> list[Configuration]:
        """The configurations that have weights."""
        return [c for c in self.configurations.values() if weight_bytes(c)]


@dataclass(frozen=True)
class TimedCall:
    """A call with a cost, at full clock, and its number; no clock changes `transition_s`.

    That is what it takes longer in a pass than alone: after others' kernels, and while the L2
    writes back others' outputs (below 0 where others hide what it writes back alone).
    """

    key: str
    times: int
    device_s: float
    transition_s: float
    host_s: float
    synchronises: bool


@dataclass(frozen=True)
class TimedPass:
    """The calls of a pass that have a cost, and the whole sequence of calls (None: no cost)."""

    calls: Sequence[TimedCall]
    order: Sequence[TimedCall | None]

    @property
    def host_s(self) -> float:
        """The time that the host needs to issue the pass."""
        return sum(call.times * call.host_s for call in self.calls)

    @property
    def synchronises(self) -> bool:
        """Whether the host waits for the device within the pass."""
        return any(call.synchronises for call in self.calls)

    @property
    def transition_s(self) -> float:
        """The time that transitions and write-backs add to the device's."""
        return sum(call.times * call.transition_s for call in self.calls)

    def steps(self, slower_by: Callable[[str], float], host: float) -> Iterator[Step]:
        """Yield the calls in order, each configuration (key) slower by a factor, as is the host."""
        steps = {
            id(c): Step(
                c.device_s * slower_by(c.key) + c.transition_s, c.host_s * host, c.synchronises
            )
            for c in self.calls
        }
        return (steps[id(call)] for call in self.order if call is not None)


def timed_pass(pass_: Pass, mode: Mode, inputs: PredictionInputs) -> TimedPass:
    """Return the calls that have a cost, each with its part of the containers' host time."""
    one_graph = is_one_graph(mode)
    host = None if one_graph else HostTimes(pass_, inputs)
    container_s = inputs.calibration.container_time_s or 0.0
    containers_s = inputs.containers_in(pass_.workload) * container_s
    each_s = containers_s / max(len(pass_.order), 1)
    streamed = _streamed_share(pass_, inputs)
    written_back_s = _written_back_s(pass_, inputs)
    calls: list[TimedCall | None] = []
    for call, times, back_s in zip(pass_.calls, pass_.times, written_back_s, strict=True):
        cost = inputs.costs.get(call.configuration.key)
        if cost is None or cost.time_s is None:
            calls.append(None)
            continue
        device = cost.time_s if one_graph or not cost.eager_time_s else cost.eager_time_s
        waits = get_kind(call.configuration.kind).waits(call.configuration)
        heard_s = (host.of(call) or 0.0) if host is not None else 0.0
        # The host was timed until the call returned: of one that waits, the device's work is in it.
        issuing_s = max(heard_s - device.mean, 0.0) if waits else heard_s
        calls.append(
            TimedCall(
                key=cost.configuration,
                times=times,
                device_s=device.mean,
                transition_s=_between_s(call, cost, device.mean, streamed, inputs) + back_s,
                host_s=0.0 if host is None else issuing_s + each_s,
                synchronises=waits,
            )
        )
    return TimedPass([c for c in calls if c is not None], [calls[place] for place in pass_.order])


def _written_back_s(pass_: Pass, inputs: PredictionInputs) -> list[float]:
    """Return how much longer each distinct call takes because the L2 writes back others' outputs.

    In seconds, at the mean of its calls. A training step writes to fresh memory, as its operators
    do when they are measured. Where the L2 keeps the whole pass, and where it or the memory's rate
    is not known, nothing is added.
    """
    resident, rate = inputs.resident_bytes, inputs.memory_rate
    kept = is_kept(pass_.touched_bytes, resident) or pass_.workload.phase == "training"
    if kept or resident is None or rate is None:
        return [0.0] * len(pass_.calls)
    if not any(streams := [_streams(c.configuration, inputs, rate) for c in pass_.calls]):
        return [0.0] * len(pass_.calls)
    pushed_out = pass_.written_back(resident)
    return [size / rate if s else 0.0 for size, s in zip(pushed_out, streams, strict=True)]


def _streams(configuration: Configuration, inputs: PredictionInputs, rate: float) -> bool:
    """Return whether reading its weights, at about the memory's rate, takes most of a call's time.

    Other calls hide what they push out of the L2.
    """
    cost = inputs.costs.get(configuration.key)
    if cost is None or cost.time_s is None:
        return False
    return weight_bytes(configuration) > BANDWIDTH_SHARE * rate * cost.time_s.mean


def _streamed_share(pass_: Pass, inputs: PredictionInputs) -> float:
    """Return the share of what a pass touches that the L2 does not hold until the next pass."""
    l2_bytes = inputs.device.l2_bytes
    if not l2_bytes or pass_.touched_bytes <= l2_bytes:
        return 0.0
    return 1 - l2_bytes / pass_.touched_bytes


def _between_s(
    call: Call, cost: Cost, time_s: float, streamed: float, inputs: PredictionInputs
) -> float:
    """Return how much longer a call takes among others of a pass, in seconds.

    That is what it was seen to take longer after others. Where that was not measured, a transition
    for each of its different kernels, and for all where it is not known which are the same.
    """
    if not cost.kernels:
        return 0.0
    after = cost.after_others
    if after is not None:
        longer_s = after.code_s + streamed * (after.stream_s or 0.0)
    else:
        different = inputs.different_kernels.get(call.configuration.key, cost.kernels)
        longer_s = different * (inputs.calibration.transition_s or 0.0)
    kernel_s = time_s / cost.kernels
    hidden = (kernel_s - SHORT_KERNEL_S) / (LONG_KERNEL_S - SHORT_KERNEL_S)
    return longer_s * min(max(1 - hidden, 0.0), 1.0)


class HostTimes:
    """Host time of a call: its own, else the median of those issued as it is, in the same form."""

    def __init__(self, pass_: Pass, inputs: PredictionInputs) -> None:
        self._costs = costs = inputs.costs
        seen: dict[tuple[str, Form], list[float]] = defaultdict(list)
        for key, configuration in pass_.configurations.items():
            cost = costs.get(key)
            for form, quantity in cost.host_time_s.items() if _is_measured(cost) else ():
                seen[configuration.issued_as, form].append(quantity.mean)
        own = {key: statistics.median(values) for key, values in seen.items()}
        self._of_kind = {**inputs.host_s, **own}

    def own(self, call: Call) -> Quantity | None:
        """Return the call's own host time; None where it was not measured."""
        cost = self._costs.get(call.configuration.key)
        return cost.host_time_s.get(call.form) if _is_measured(cost) else None

    def of(self, call: Call) -> float | None:
        """Return a call's host time in seconds; None where neither it nor its kind was seen."""
        if own := self.own(call):
            return own.mean
        return self._of_kind.get((call.configuration.issued_as, call.form))


def _is_measured(cost: Cost | None) -> TypeGuard[Cost]:
    # On a line between measured sizes, host times are those of measured calls.
    return cost is not None and (not cost.is_estimated or BETWEEN in cost.flags)
