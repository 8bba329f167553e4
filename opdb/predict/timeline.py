"""The calls of a pass: their order, counts and bytes, and how long they take on host and device."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple, Protocol, TypeGuard

from opdb.derive.boards import Factors
from opdb.kinds import get_kind
from opdb.memory import bytes_moved, is_kept, touched_bytes, weight_bytes
from opdb.records import (
    BETWEEN,
    Calibration,
    Call,
    Configuration,
    Cost,
    Device,
    Form,
    Mode,
    Quantity,
    RunRatio,
    Workload,
)

# The inputs of a prediction: costs, calibration, estimates; in the weights' cache state.


class EstimatedCosts(Protocol):
    """Costs that were never measured, by configuration key, and why others were refused."""

    @property
    def costs(self) -> Mapping[str, Cost]: ...

    @property
    def refused(self) -> Mapping[str, str]: ...

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls.

        They are halves of the intervals of logarithms, times the sums.
        """
        ...


@dataclass(frozen=True)
class PredictionInputs:
    """The inputs of a prediction: one board's costs by configuration key, and its calibration.

    `host_s` are the board's usual host times by `issued_as` and form, for calls without their own;
    `resident_bytes` is how much its L2 keeps from one pass to the next, `kept_limit_w` the power at
    which the board was seen to keep under its limit (None: at the limit itself), `memory_rate` the
    bytes that its memory reads and writes in a second (None: not known). `notes`
    say which of these were not measured on the board itself; `estimates` are costs of calls that
    nobody measured. `quiet_host` says whether host times are quiet times, beside which the time
    around a pass's calls counts. `peers` are what runs of
    other models showed of sums (None: not asked), `brought` the factors that brought costs
    (keys) from other boards. `different_kernels` counts those of a configuration (key) that
    launches several, as far as known.
    """

    device: Device
    board: str
    calibration: Calibration
    costs: Mapping[str, Cost]
    host_s: Mapping[tuple[str, Form], float] = field(default_factory=dict)
    peers: Sequence[RunRatio] | None = None
    resident_bytes: float | None = None
    kept_limit_w: float | None = None
    memory_rate: float | None = None
    notes: tuple[str, ...] = ()
    estimates: EstimatedCosts | None = None
    brought: Mapping[str, Factors] = field(default_factory=dict)
    different_kernels: Mapping[str, int] = field(default_factory=dict)
    quiet_host: bool = True

    @property
    def limit_w(self) -> float | None:
        return self.kept_limit_w or self.device.power_limit_w

    def containers_in(self, workload: Workload) -> float:
        """Return what the host does around the calls of an eager pass, as a number of containers.

        Host times in random order, as older versions took them, hold some of that time already:
        beside them the containers alone count.
        """
        timed = workload.around if self.quiet_host else None
        return workload.containers if timed is None else timed


def with_estimates(keys: Iterable[str], inputs: PredictionInputs) -> PredictionInputs:
    """Return the inputs with estimated costs of the configurations (keys) without measured ones.

    This is the one place where estimates come in: later steps do not tell costs apart.
    """
    if inputs.estimates is None:
        return inputs
    estimated = inputs.estimates.costs
    added = {
        key: estimated[key]
        for key in keys
        if key in estimated and ((cost := inputs.costs.get(key)) is None or cost.time_s is None)
    }
    return replace(inputs, costs={**inputs.costs, **added})


def with_weights_found(touched_bytes: int, inputs: PredictionInputs) -> PredictionInputs:
    """Return the inputs with the costs of hot weights, where a pass leaves its weights in the L2.

    Configurations not measured with hot weights keep their usual cost.
    """
    if not is_kept(touched_bytes, inputs.resident_bytes):
        return inputs
    return replace(inputs, costs={key: _hot(cost) for key, cost in inputs.costs.items()})


def _hot(cost: Cost) -> Cost:
    if cost.hot is None or cost.time_s is None:
        return cost
    longer_s = cost.hot.time_s - cost.time_s.mean
    dynamic, eager = cost.dynamic_energy_j, cost.eager_time_s
    if dynamic is not None and cost.hot.dynamic_energy_j is not None:
        dynamic = dynamic.moved(cost.hot.dynamic_energy_j - dynamic.mean)
    return replace(
        cost,
        time_s=cost.time_s.moved(longer_s),
        eager_time_s=None if eager is None or eager.mean + longer_s <= 0 else eager.moved(longer_s),
        dynamic_energy_j=dynamic,
    )


# How long a sequence of calls takes, issued eagerly.


class Step(NamedTuple):
    """One call: device time and host time in seconds, and whether it waits for the device."""

    device_s: float
    host_s: float
    synchronises: bool = False


def eager_time_s(steps: Iterable[Step]) -> float:
    """Return the steady time of an eager pass, from the host's queue and the device's.

    H_i = H_{i-1} + h_i and F_i = max(H_i, F_{i-1}) + g_i, where g is the device's time of an
    eager call, the gaps between kernels included; a call that synchronises sets H_i = F_i. A model
    that is called again and again settles at the increment of one pass, which without
    synchronising calls is max(Σ h, Σ g).
    """
    sequence = list(steps)
    synchronising = [place for place, step in enumerate(sequence) if step.synchronises]
    if not synchronising:
        return max(sum(s.host_s for s in sequence), sum(s.device_s for s in sequence))
    # Behind such a call neither has anything left to do: from there to there again is a pass.
    behind = synchronising[-1] + 1
    host_s = device_s = 0.0
    for step in (*sequence[behind:], *sequence[:behind]):
        host_s += step.host_s
        if step.device_s:
            device_s = max(host_s, device_s) + step.device_s
        if step.synchronises:
            host_s = max(host_s, device_s)
    return host_s


@dataclass(frozen=True)
class Span:
    """When one call is issued by the host, and when the device runs it (seconds).

    A call without device time has a device span of no length.
    """

    host_start_s: float
    host_end_s: float
    device_start_s: float
    device_end_s: float


def steady_pass(steps: Iterable[Step]) -> tuple[list[Span], float, float]:
    """Return one of many equal eager passes: a span for each call, and the pass on the device.

    The host's first call begins at 0, and no call is run before it is issued. The device's pass
    lasts from the first number returned to the second: that is `eager_time_s`, gaps in which it
    waits for the host included. A device that never waits within a pass begins as soon as it can
    run through without waiting. Otherwise the pass before keeps it busy for as long as it lags
    behind the host at the end.
    """
    sequence = list(steps)
    waits = any(step.synchronises for step in sequence)
    spans, host_s, device_s = _played(sequence, 0.0)
    time_s = host_s if waits else max(host_s, sum(step.device_s for step in sequence))
    start_s = max(device_s - time_s, 0.0)
    if start_s:
        spans, host_s, _ = _played(sequence, start_s)
    return spans, start_s, start_s + (host_s if waits else time_s)


def _played(sequence: Sequence[Step], before_s: float) -> tuple[list[Span], float, float]:
    """Play a pass; return its spans and when host and device are done with it.

    The device is busy with something else until `before_s`.
    """
    host_s, device_s = 0.0, before_s
    spans = []
    for step in sequence:
        issued_s = host_s
        host_s = host_end_s = host_s + step.host_s
        start_s = max(host_s, device_s)
        if step.device_s:
            device_s = start_s + step.device_s
        if step.synchronises:
            host_s = max(host_s, device_s)
        spans.append(Span(issued_s, host_end_s, start_s, start_s + step.device_s))
    return spans, host_s, device_s


# What the L2 writes back to memory while a call streams its weights from there.
#
# What a call writes stays in the L2 until other data take its place, and must then be written to
# memory. A call that computes, or reads what the L2 holds, hides that. One that reads its weights
# from memory as fast as it can takes longer by what the memory takes to write (docs/measuring.md).
# A call that is measured alone writes back what it leaves itself, not what others left.


PLACES = 2
"""An output takes the memory of the output before the last of its size, as in a replay."""

SMALL_SHARE = 1e-3
"""Less than this share of what the L2 keeps is not followed: 30 kB are written in 7 ns."""


@dataclass(frozen=True)
class Traffic:
    weights: int
    inputs: int
    output: int


class _Queue:
    """What lies in the L2, first in, first out: [bytes, whether they are dirty] each."""

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._held = 0.0
        self._queue: deque[list[float]] = deque()
        self._outputs: dict[int, deque[list[float]]] = defaultdict(deque)

    def read(self, size: float) -> float:
        return self._add([size, False])

    def write(self, size: int) -> float:
        """Bring in an output, in the place of an earlier one; return as `read` does."""
        outputs = self._outputs[size]
        if len(outputs) == PLACES:
            overwritten = outputs.popleft()
            self._held -= overwritten[0]
            overwritten[0] = 0.0
        added: list[float] = [size, True]
        outputs.append(added)
        return self._add(added)

    def _add(self, added: list[float]) -> float:
        self._queue.append(added)
        self._held += added[0]
        dirty = 0.0
        while self._held > self._capacity:
            first = self._queue[0]
            leaving = min(first[0], self._held - self._capacity)
            dirty += leaving if first[1] else 0.0
            first[0] -= leaving
            self._held -= leaving
            if not first[0]:
                self._queue.popleft()
        return dirty


def written_back(traffic: Sequence[Traffic], order: Sequence[int], capacity: float) -> list[float]:
    """Return how many dirty bytes more each call pushes out in a pass than alone, at the mean.

    `traffic` is that of the distinct calls, `order` the whole pass as places in it, which runs
    again and again; `capacity` is how many bytes the L2 keeps. It is below 0 where others push out
    what a call alone does.
    """
    moved = [_moved(each, capacity) for each in traffic]
    moving = [place for place in order if any(moved[place])]
    queue = _Queue(capacity)
    found: list[float] = []
    for _ in range(2):  # the first round leaves the L2 as the second finds it
        found = [0.0] * len(traffic)
        for place in moving:
            read, output = moved[place]
            if read:
                found[place] += queue.read(read)
            if output:
                found[place] += queue.write(output)
    times = Counter(order)
    return [
        size / times[place] - _alone(*moved[place], capacity) for place, size in enumerate(found)
    ]


def _moved(call: Traffic, capacity: float) -> tuple[float, int]:
    """Return the bytes that come from memory, and those of outputs; 0 for small ones.

    Weights come from memory, and of the inputs what the L2 cannot hold.
    """
    small = SMALL_SHARE * capacity
    read = call.weights + max(0.0, call.inputs - capacity)
    return (read if read > small else 0.0), (call.output if call.output > small else 0)


def _alone(read: float, output: int, capacity: float) -> float:
    """Return the bytes that each call writes back where one call runs again and again."""
    return 0.0 if PLACES * (read + output) <= capacity else output


# The calls of a pass: their order, counts and bytes, and their times at full clock.


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
    """Return whether a mode's kernels run as one CUDA graph, which waits for no host."""
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
        return touched_bytes(self.workload)

    @cached_property
    def bytes_moved(self) -> dict[str, int]:
        return {key: bytes_moved(c) for key, c in self.configurations.items()}

    def written_back(self, capacity: float) -> list[float]:
        """Return what each distinct call pushes out of an L2 that keeps so many bytes."""
        if capacity not in self._written_back:
            traffic = [self._traffic(call.configuration) for call in self.calls]
            self._written_back[capacity] = written_back(traffic, self.order, capacity)
        return self._written_back[capacity]

    def _traffic(self, configuration: Configuration) -> Traffic:
        weights = weight_bytes(configuration)
        output = _output_bytes(configuration)
        read = self.bytes_moved[configuration.key] - weights - output
        return Traffic(weights, max(0, read), output)


@cache
def _output_bytes(configuration: Configuration) -> int:
    return get_kind(configuration.kind).activation_bytes(configuration)


class TimedCall(NamedTuple):
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
        return sum(call.times * call.host_s for call in self.calls)

    @property
    def synchronises(self) -> bool:
        return any(call.synchronises for call in self.calls)

    @property
    def transition_s(self) -> float:
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


# The one clock at which a model runs that would draw more than the board's power limit.
#
# The limiter is slower than one pass, so all operators of a pass share one clock. It is found from
# the limit alone: the share r of the highest clock at which base power and the operators' dynamic
# energy together draw just what is allowed. How an operator's time and energy scale with the clock
# is known where the limit lowered the clock during one of its own visits: t ∝ r^-a and D ∝ r^b. Of
# the others, those that move their bytes nearly as fast as any are bound by memory (a = 0); the
# rest scale as the known ones do at the median.

LOWEST_SHARE = 0.3
STEPS = 20

MIN_LOWERING = 0.04
"""A visit whose clock was lowered by less shows too little of the exponents."""

BEYOND_CACHES = 2**27
"""Operators that move at least this many bytes read memory: the fastest of them shows its rate."""

BANDWIDTH_SHARE = 0.5
"""An operator that moves its bytes at less than this share of the best rate is not memory-bound."""

USUAL_TIME_EXPONENT = 0.66
USUAL_ENERGY_EXPONENT = 1.07
"""Medians of 55 operators that an H200's limit slowed down (docs/measuring.md)."""


@dataclass(frozen=True)
class Scaling:
    """How one operator scales with the clock's share r: t ∝ r^-time and D ∝ r^energy exponent."""

    time_exponent: float
    energy_exponent: float

    def time(self, share: float) -> float:
        return math.pow(share, -self.time_exponent)

    def energy(self, share: float) -> float:
        return math.pow(share, self.energy_exponent)


def scalings(
    costs: Mapping[str, Cost], bytes_moved: Mapping[str, int] | None = None
) -> dict[str, Scaling]:
    """Return each cost's scaling, exponents kept within what is possible (0 to 1, 0 to 3).

    `bytes_moved` by configuration key shows which are bound by memory; without it, all that the
    limit did not slow down count as memory-bound.
    """
    seen = {key: found for key, cost in costs.items() if (found := _seen(cost)) is not None}
    slow = _below_bandwidth(costs, bytes_moved or {})
    usual = Scaling(
        _median((s.time_exponent for s in seen.values()), USUAL_TIME_EXPONENT),
        _median((s.energy_exponent for s in seen.values()), USUAL_ENERGY_EXPONENT),
    )
    memory_bound = Scaling(0.0, usual.energy_exponent)
    return {
        key: seen.get(key, usual if cost.limited or key in slow else memory_bound)
        for key, cost in costs.items()
    }


def _below_bandwidth(costs: Mapping[str, Cost], bytes_moved: Mapping[str, int]) -> set[str]:
    """Return the costs (keys) that move their bytes at less than a share of the best rate."""
    rates = {
        key: bytes_moved[key] / cost.time_s.mean
        for key, cost in costs.items()
        if cost.time_s is not None and cost.time_s.mean > 0 and bytes_moved.get(key)
    }
    long = [rate for key, rate in rates.items() if bytes_moved[key] >= BEYOND_CACHES]
    if not long:
        return set()
    return {key for key, rate in rates.items() if rate < BANDWIDTH_SHARE * max(long)}


def _median(values: Iterable[float], usual: float) -> float:
    found = list(values)
    return statistics.median(found) if found else usual


def _seen(cost: Cost) -> Scaling | None:
    """Return the exponents between a cost's two clocks; None where it saw one clock alone."""
    limited, dynamic = cost.limited, cost.dynamic_energy_j
    if limited is None or cost.time_s is None or dynamic is None:
        return None
    clocks = (limited.clock_hz or 0.0, cost.clock_hz or 0.0)
    times = (limited.time_s, cost.time_s.mean)
    energies = (limited.dynamic_energy_j or 0.0, dynamic.mean)
    if min(*clocks, *times, *energies) <= 0:
        return None  # not known, or less than its own noise
    lowering, longer, smaller = (low / full for low, full in (clocks, times, energies))
    if lowering > 1 - MIN_LOWERING:
        return None
    slower = math.log(longer) / -math.log(lowering)
    cheaper = math.log(smaller) / math.log(lowering)
    return Scaling(min(max(slower, 0.0), 1.0), min(max(cheaper, 0.0), 3.0))


@dataclass(frozen=True)
class Load:
    """Device time and dynamic energy of a pass at full clock, summed by how they scale with it.

    `parts` holds the device time (seconds) and the dynamic energy (joules) of each.
    """

    parts: Mapping[Scaling, tuple[float, float]]

    @classmethod
    def of(cls, scaled: Iterable[tuple[Scaling, float, float]]) -> Load:
        parts: dict[Scaling, tuple[float, float]] = {}
        for scaling, time_s, energy_j in scaled:
            time_before_s, energy_before_j = parts.get(scaling, (0.0, 0.0))
            parts[scaling] = time_before_s + time_s, energy_before_j + energy_j
        return cls(parts)

    def time_s(self, share: float) -> float:
        return sum(time_s * scaling.time(share) for scaling, (time_s, _) in self.parts.items())

    def energy_j(self, share: float) -> float:
        return sum(e_j * scaling.energy(share) for scaling, (_, e_j) in self.parts.items())


def clock_share(power_w: Callable[[float], float], limit_w: float) -> float:
    """Return the largest share of the highest clock whose `power_w(share)` keeps to the limit."""
    if power_w(1.0) <= limit_w:
        return 1.0
    low, high = LOWEST_SHARE, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if power_w(middle) > limit_w:
            high = middle
        else:
            low = middle
    return low
