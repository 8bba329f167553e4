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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from opdb.capturing import capturing_into
from opdb.operators.call import BuiltCall, tensors_of

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


class Clock(Protocol):
    """Marks points in the device's work and measures the time between them."""

    def mark(self) -> Any:
        """Note this point of the work issued so far."""

    def wait(self, mark: Any) -> None:
        """Return once the device has reached the mark."""

    def reached(self, mark: Any) -> bool:
        """Whether the device has reached the mark, and has nothing left to do up to it."""

    def elapsed_s(self, first: Any, second: Any) -> float:
        """Return the seconds between two marks that were reached."""


class CudaClock:
    """CUDA events on the current stream."""

    def mark(self) -> torch.cuda.Event:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark: torch.cuda.Event) -> None:
        """Wait for the event."""
        mark.synchronize()

    def reached(self, mark: torch.cuda.Event) -> bool:
        """Ask for the event."""
        return bool(mark.query())

    def elapsed_s(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Return the event time in seconds."""
        return float(first.elapsed_time(second)) * 1e-3


class CpuClock:
    """The monotonic performance counter: on a CPU work is done when the call returns."""

    def mark(self) -> float:
        """Read the counter."""
        return time.perf_counter()

    def wait(self, mark: float) -> None:
        """Do nothing: the work is done."""

    def reached(self, mark: float) -> bool:
        """Say no: a processor issues its own work, and never waits for it."""
        return False

    def elapsed_s(self, first: float, second: float) -> float:
        """Return the difference."""
        return second - first


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
    """Return the clock that times work on a device type ("cuda" or "cpu")."""
    return CudaClock() if device_type == "cuda" else CpuClock()


def output_bytes(outputs: Any) -> int:
    """Return the bytes of all tensors in a call's outputs."""
    return sum(t.numel() * t.element_size() for t in tensors_of(outputs))


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
        """Whether the call changes an input, which is then restored before every call."""
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
        """Bring back the inputs that a call changes."""
        for tensor, pristine in zip(self.mutated, self._pristine, strict=True):
            write_anew(tensor, pristine)

    def turn(self) -> None:
        """Run the next copy on the inputs as they are, and hold its output."""
        self._outputs.append(self._calls[self._next]())
        self._next = (self._next + 1) % self.copies

    def __call__(self) -> None:
        """Run the next copy, changed inputs restored, and hold its output."""
        self.restore()
        self.turn()

    def rewind(self) -> None:
        """Start over with the first copy and let go of the outputs."""
        self._next = 0
        self._outputs.clear()


def calls_wanted(call_s: float, copies: int) -> int:
    """Return how many calls one replay holds: a multiple of `copies` near the wanted length."""
    wanted = min(max(1, math.ceil(REPLAY_TARGET_S / max(call_s, 1e-7))), MAX_CALLS)
    return copies * math.ceil(wanted / copies)


def mean_time_s(step: Callable[[], None], clock: Clock, calls: int) -> float:
    """Return the mean time of calls that are issued one behind the other, in seconds."""
    first = clock.mark()
    for _ in range(calls):
        step()
    last = clock.mark()
    clock.wait(last)
    return clock.elapsed_s(first, last) / calls


def capture(step: Callable[[], None], calls: int) -> torch.cuda.CUDAGraph:
    """Capture `calls` runs of `step` as one CUDA graph.

    Raises:
        RuntimeError: something in the step cannot be captured (it synchronises, for instance).
    """
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
    """Keep the current stream busy for so long, at its highest clock, by a kernel that spins."""
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
    """Return how many calls of a number of kernels and seconds make an eager round, 1 at least."""
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
