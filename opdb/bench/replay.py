"""Replays of one operator call, faithful to what the call meets inside a model.

In a model an operator's input was just written and its weights were last read one whole pass ago.
Its output goes to what the allocator has: in inference the memory of a tensor that was let go a
moment before, in training, where all are kept, memory that was not written recently. So a replay
reuses one set of inputs, rotates over enough copies of the weights to exceed the L2 cache, and
holds one output, or enough of them to exceed it.
An operator that works in place gets its input restored before every call; the restoring alone is a
replay of its own, to be subtracted. What that leaves out of a model is measured in `neighbours`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import torch

from opdb.capturing import answering, capturing_into
from opdb.meters import Meter, Reading
from opdb.models.inputs import tensors
from opdb.operators.call import BuiltCall
from opdb.records import Stretch

L2_EXCESS = 2.5
"""By how much rotated weights and fresh outputs exceed the L2, so that LRU keeps nothing."""

MAX_COPIES = 128
LEAST_COPIES = 8
"""So many copies of weights take turns where these are most of what a call touches: by where two
lay a product took 29.3 or 32.2 µs, with 8 and 64 copies 29.8 to 30.1 (docs/measuring.md)."""

SMALL_WEIGHT_BYTES = 2**18
FEW_COPIES = 32
"""Copies of weights so small that reading them takes no energy worth naming."""

PLACES = 2
"""How many outputs take turns in memory where one is held while the next is made."""

MAX_CALLS = 1000
REPLAY_TARGET_S = 4e-3
"""Wanted length of one replay: long against the launch of a graph, short against a window."""

TOO_SHORT = 0.5
"""A graph that could reach the wanted length and lasts less than this share is captured anew."""

EAGER_CALLS = 32
EAGER_TARGET_S = 10e-3
"""The most device time of an eager round's calls: long calls show their gaps in a few."""

EAGER_ROUNDS = 7
HOLD_UP = 1.5
"""How much longer than the host issues calls the device is held up."""

HIGHEST_CLOCK_HZ = 2e9
LAUNCH_QUEUE = 700
"""Kernels that can be queued without the host waiting (1,024 on current drivers)."""

WARM_UP_CALLS = 3
MEMORY_SHARE = 0.4
"""Largest share of the free device memory that copies of weights may take."""


class CudaClock:
    ahead = 3
    """Replays queued ahead of the device, so that it never waits for the issuing thread."""

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def reached(self, mark: Any) -> bool:
        return bool(mark.query())

    def elapsed_s(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) * 1e-3


class CpuClock:
    """The monotonic performance counter: on a CPU work is done when the call returns."""

    ahead = 0

    def mark(self) -> Any:
        return time.perf_counter()

    def wait(self, mark: Any) -> None: ...

    def reached(self, mark: Any) -> bool:
        """Say no: a processor issues its own work, and never waits for it."""
        return False

    def elapsed_s(self, first: Any, second: Any) -> float:
        return float(second - first)


Clock: TypeAlias = CudaClock | CpuClock


@dataclass(frozen=True)
class Replay:
    """A prepared stretch of `calls` equal calls that `issue` enqueues once.

    `how` says whether the calls run as one CUDA graph or eagerly; `flags` say what was not as
    wanted. A call in it takes about `call_s` seconds of the device.
    """

    issue: Callable[[], None]
    calls: int
    copies: int
    how: Literal["graph", "eager"]
    call_s: float
    flags: tuple[str, ...] = ()


def clock_for(device_type: str) -> Clock:
    return CudaClock() if device_type == "cuda" else CpuClock()


def output_bytes(outputs: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors(outputs))


def writable(tensor: torch.Tensor) -> bool:
    """Whether each element of a tensor has memory of its own (an expanded one has not)."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return False
        reach = max(reach, stride * size)
    return True


def write_anew(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write values into a tensor by a kernel, as an operator does.

    A plain copy of contiguous memory would be no kernel, and a graph waits otherwise for it.
    Numbers of 8 bits are written as whole ones, for torch multiplies no others.
    """
    if tensor.is_floating_point() and tensor.element_size() == 1:
        tensor, values = tensor.view(torch.uint8), values.view(torch.uint8)
    with torch.no_grad():
        if (tensor.is_floating_point() or tensor.dtype is torch.uint8) and writable(tensor):
            torch.mul(values, 1, out=tensor)
        else:
            tensor.copy_(values)


class Rotation:
    """One operator call with rotated weights and held outputs; calling it runs the next copy.

    `copies` is how many sets of weights take turns, `bytes_a_call` what each call touches for the
    first time in a round, and `bytes_again` what every call touches. With hot weights there is one
    copy. Outputs are `fresh` where they go to memory that the L2 has let go of; else one is held,
    so that the next but one takes its place, and the L2 keeps both where they fit.
    """

    def __init__(self, call: BuiltCall, *, l2_bytes: int, cold: bool, fresh: bool = False) -> None:
        self._call = call
        self.inputs = call.inputs
        self.mutated = [call.inputs[i] for i in call.mutated]
        self._pristine = [t.detach().clone() for t in self.mutated]
        first = output_bytes(call())  # and lazy set-up is done
        self.restore()
        size = 0 if self.mutated else first
        self.bytes_a_call = call.weight_bytes + (size if fresh else 0)
        activations = output_bytes(call.inputs) + PLACES * size
        self.bytes_again = 0 if fresh else activations
        self.cold = cold and bool(call.weight_bytes)
        beyond = L2_EXCESS * l2_bytes
        least = LEAST_COPIES if l2_bytes and call.weight_bytes > activations else 1
        self.copies = self._wanted_copies(beyond, least) if self.cold else 1
        self._calls: list[BuiltCall] = [
            call,
            *(call.with_fresh_weights() for _ in range(self.copies - 1)),
        ]
        held = math.ceil(beyond / size) if size and fresh else 1
        self._outputs: deque[Any] = deque(maxlen=max(1, min(held, MAX_COPIES)))
        self._next = 0

    @property
    def restores(self) -> bool:
        return bool(self.mutated)

    def _wanted_copies(self, beyond: float, least: int) -> int:
        size = self._call.weight_bytes
        most = FEW_COPIES if size < SMALL_WEIGHT_BYTES else MAX_COPIES
        exceeding = math.ceil((beyond - self.bytes_again) / self.bytes_a_call)
        copies = min(max(exceeding, least), most)
        if torch.cuda.is_available() and self._call.weights[0].is_cuda:
            free, _ = torch.cuda.mem_get_info()
            copies = min(copies, int(MEMORY_SHARE * free / size))
        return max(copies, 1)

    def restore(self) -> None:
        for tensor, pristine in zip(self.mutated, self._pristine, strict=True):
            write_anew(tensor, pristine)

    def turn(self) -> None:
        self._outputs.append(self._calls[self._next]())
        self._next = (self._next + 1) % self.copies

    def __call__(self) -> None:
        self.restore()
        self.turn()

    def rewind(self) -> None:
        self._next = 0
        self._outputs.clear()


def calls_wanted(call_s: float, copies: int) -> int:
    wanted = min(max(1, math.ceil(REPLAY_TARGET_S / max(call_s, 1e-7))), MAX_CALLS)
    return copies * math.ceil(wanted / copies)


def mean_time_s(step: Callable[[], None], clock: Clock, calls: int) -> float:
    first = clock.mark()
    for _ in range(calls):
        step()
    last = clock.mark()
    clock.wait(last)
    return clock.elapsed_s(first, last) / calls


def capture(step: Callable[[], None], calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with capturing_into(graph):
        for _ in range(calls):
            step()
    return graph


def warm_up(step: Callable[[], None], calls: int = WARM_UP_CALLS) -> None:
    """Run `step` on a side stream, as capturing asks for, so that lazy set-up is done."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(calls):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def longer(calls: int, call_s: float, copies: int) -> int | None:
    """Return how many calls a replay should hold instead of `calls` that take `call_s` each.

    None where it is long enough. Calls issued one by one take what the host takes: much longer
    than in a graph where they are short, or where the host was held up.
    """
    wanted = calls_wanted(call_s, copies)
    return wanted if calls < TOO_SHORT * wanted else None


def prepare(step: Callable[[], None], *, device_type: str, copies: int = 1) -> Replay:
    """Make a replay of `step`: a CUDA graph of many calls, or an eager loop where that fails."""
    clock = clock_for(device_type)
    if device_type != "cuda":
        step()
        call_s = mean_time_s(step, clock, 3)
        calls = calls_wanted(call_s, copies)
        return Replay(_loop(step, calls), calls, copies, "eager", call_s)
    warm_up(step)
    call_s = mean_time_s(step, clock, 5)
    calls = calls_wanted(call_s, copies)
    try:
        graph = capture(step, calls)
        call_s = mean_time_s(graph.replay, clock, 3) / calls
        again = longer(calls, call_s, copies)
        if again is not None:
            calls = again
            del graph  # the next one may need its memory
            graph = capture(step, calls)
    except RuntimeError as error:
        torch.cuda.synchronize()
        why = str(error).splitlines()[0]
        flags = (f"not captured as a graph: {why}",)
        return Replay(_loop(step, calls), calls, copies, "eager", call_s, flags)
    return Replay(graph.replay, calls, copies, "graph", call_s)


def hold_device(seconds: float) -> None:
    torch.cuda._sleep(int(seconds * HIGHEST_CLOCK_HZ))


def eager_times_s(step: Callable[[], None], kernels: int, call_s: float) -> tuple[float, ...]:
    """Return event times of one call of `step`, issued eagerly but never waiting for the host.

    A kernel that only spins holds the device up while the calls are queued behind it; when it
    ends, they run back to back. What they take beyond their time inside a CUDA graph, some `call_s`
    each, is the gaps between eagerly launched kernels.
    """
    calls = eager_calls(kernels, call_s)
    clock = CudaClock()
    host_s = min(_issue_s(step, calls) for _ in range(2))  # the first may ask for memory
    times = []
    for _ in range(EAGER_ROUNDS):
        hold_device(host_s * HOLD_UP)
        times.append(mean_time_s(step, clock, calls))
    return tuple(times)


def eager_calls(kernels: int, call_s: float) -> int:
    enough = math.ceil(EAGER_TARGET_S / max(call_s, 1e-7))
    return max(1, min(EAGER_CALLS, LAUNCH_QUEUE // max(kernels, 1), enough))


def _issue_s(step: Callable[[], None], calls: int) -> float:
    began_s = time.perf_counter()
    for _ in range(calls):
        step()
    issued_s = time.perf_counter() - began_s
    torch.cuda.synchronize()
    return issued_s


def _loop(step: Callable[[], None], calls: int) -> Callable[[], None]:
    def issue() -> None:
        for _ in range(calls):
            step()

    return issue


# One steady stretch of replays: events time it, the meter watches it.

MIN_REPLAYS = 3


@dataclass(frozen=True)
class Timing:
    """How long a stretch settles and how long its window is, in seconds.

    The window holds `least` replays, however long they take.

    `gap_s` is slept after each replay, to keep an operator that draws more than the power limit
    allows at full clock; `lag_s` is how late the meter's samples are.
    """

    settle_s: float
    window_s: float
    gap_s: float = 0.0
    lag_s: float = 0.0
    least: int = MIN_REPLAYS


@dataclass(frozen=True)
class Observation:
    """A stretch and what the meter said beside it.

    `waited_share` of its replays were issued when the device had nothing left to do. `outrun_share`
    were done before the host, having queued some more, came to wait for them: where nearly
    all were, the device is faster than the host issues. (A replay of many launches is seldom done
    by the moment the next is issued, however long the device waited for each of them.)
    """

    stretch: Stretch
    reading: Reading
    waited_share: float = 0.0
    outrun_share: float = 0.0


def observe(
    issue: Callable[[], object], calls: int, clock: Clock, meter: Meter, timing: Timing
) -> Observation:
    """Replay until the window is full and return the raw record.

    `issue` enqueues one replay of `calls` calls.
    """
    run = _with_gaps if timing.gap_s > 0 else _back_to_back
    times, start_s, end_s, waited, outrun = run(issue, clock, timing)
    reading = meter.window(start_s, end_s, lag_s=timing.lag_s)
    busy = min(1.0, sum(times) / (end_s - start_s)) if timing.gap_s > 0 else 1.0
    stretch = Stretch(
        calls_per_replay=calls,
        replay_times_s=tuple(times),
        duration_s=end_s - start_s,
        busy_share=busy,
        power_samples=reading.power_samples,
        counter_edges=reading.counter_edges,
        clock_samples_hz=reading.clock_samples_hz,
        temperature_c=reading.temperature_c,
    )
    return Observation(stretch, reading, waited / len(times), outrun / len(times))


def _back_to_back(
    issue: Callable[[], object], clock: Clock, timing: Timing
) -> tuple[list[float], float, float, int, int]:
    """Keep the queue full; the window runs from one completed replay to another.

    Returns the replays' times, the window's start and end, how often the queue was found empty, and
    how often its oldest replay was found done.
    """
    began_s = time.monotonic()
    ahead = clock.ahead if timing.least > 1 else 0  # of a pass longer than the window
    queued: deque[Any] = deque()
    window: list[Any] = []
    start_s, waited, outrun = 0.0, 0, 0
    while True:
        if window and queued and clock.reached(queued[-1]):
            waited += 1
        issue()
        queued.append(clock.mark())
        if len(queued) <= ahead:
            continue
        mark = queued.popleft()
        if window and clock.reached(mark):
            outrun += 1
        clock.wait(mark)
        now_s = time.monotonic()
        if window:
            window.append(mark)
            if now_s - start_s >= timing.window_s and len(window) > timing.least:
                break
        elif now_s - began_s >= timing.settle_s:
            window.append(mark)
            start_s = now_s
    for mark in queued:
        clock.wait(mark)
    times = [clock.elapsed_s(a, b) for a, b in pairwise(window)]
    return times, start_s, now_s, waited, outrun


def _with_gaps(
    issue: Callable[[], object], clock: Clock, timing: Timing
) -> tuple[list[float], float, float, int, int]:
    """Replay, wait, sleep, repeat; only the replays themselves are timed, so none is waited for."""
    began_s = time.monotonic()
    times: list[float] = []
    start_s = 0.0
    while True:
        first = clock.mark()
        issue()
        last = clock.mark()
        clock.wait(last)
        if start_s:
            times.append(clock.elapsed_s(first, last))
        time.sleep(timing.gap_s)
        now_s = time.monotonic()
        if not start_s and now_s - began_s >= timing.settle_s:
            start_s = now_s
        elif start_s and now_s - start_s >= timing.window_s and len(times) >= timing.least:
            return times, start_s, now_s, 0, 0


# Which kernels a call launches, by name, read off a CUDA graph of one call.
#
# The profiler would do it too, but once it has run, every later launch costs the host 6 to 58 %
# more (seen on an H200 with torch 2.11), and host times are measured here as well.

_UNNAMED_NODES = ("EMPTY", "EVENT_RECORD", "WAIT_EVENT", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT")
"""Graph nodes that give the device nothing to do."""


def launched_kernels(step: Callable[[], Any], *, hidden: bool = True) -> dict[str, int] | None:
    """Capture one run of `step` and count its device work by name: kernels, copies and fills.

    The capture is hidden from `step`, which may do something else where it knows of it, unless a
    CUDA graph is what it is measured as. None where it is not known: the step cannot be captured
    (it synchronises), or this torch or its CUDA bindings cannot show a graph's nodes.
    """
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)  # torch 2.8 and later
        from cuda.bindings import driver
    except (TypeError, ImportError):
        return None
    try:
        with warnings.catch_warnings(), capturing_into(graph):
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # that is an answer too
            with answering(False) if hidden else nullcontext():
                step()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    nodes = _nodes(driver, driver.CUgraph(graph.raw_cuda_graph()))
    return dict(Counter(name for name in nodes if name))


def cuda_call(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"CUDA driver: {status}")
    return values[0] if len(values) == 1 else tuple(values)


def _nodes(driver: Any, graph: Any) -> list[str | None]:
    _, count = cuda_call(driver.cuGraphGetNodes(graph))
    nodes, _ = cuda_call(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    return [_name(driver, node) for node in nodes]


def _name(driver: Any, node: Any) -> str | None:
    kind = cuda_call(driver.cuGraphNodeGetType(node)).name.removeprefix("CU_GRAPH_NODE_TYPE_")
    if kind in _UNNAMED_NODES:
        return None
    if kind != "KERNEL":
        return str(kind.lower())
    parameters = cuda_call(driver.cuGraphKernelNodeGetParams(node))
    if int(parameters.func):
        name = cuda_call(driver.cuFuncGetName(parameters.func))
    else:
        name = cuda_call(driver.cuKernelGetName(parameters.kern))
    return str(torch._C._demangle(name.decode()))
