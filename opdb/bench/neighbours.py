"""A call among the kernels that a model runs between two of its calls.

A replay that repeats one call finds its input read many times and its small weights in the L2. In
a model another kernel has just written the input, and all that one pass touches has gone through
the L2 since the weights were last read. On an H200 the kernels of one call take 0.1 to 0.4 µs
longer for it (docs/measuring.md): nothing for a large batch, 5 % of a pass of short kernels.

So a call is timed once more with neighbours: one kernel streams through memory beyond the L2 where
weights are to be cold, one writes each of the call's inputs anew; the neighbours alone are timed
beside it, to be subtracted.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache, partial

import torch

from opdb.bench.replay import (
    L2_EXCESS,
    CudaClock,
    Rotation,
    capture,
    cuda_call,
    output_bytes,
    warm_up,
    writable,
    write_anew,
)
from opdb.records import Before, Neighbours

REPLAY_TARGET_S = 1.5e-3
MOST_CALLS = 256
REPLAYS = 8
WARM_UP_REPLAYS = 2
NEIGHBOURS_S = 4e-6
"""About what the neighbours take, to choose how many calls a replay holds."""

LEAST_SLICE_BYTES = 2**16
"""A stream of less a call changes nothing."""


class Stream:
    """Touches the next slice of a large block at every call; a whole round evicts the L2.

    `bytes_a_call` is what it reads and writes, half and half; 0 for a stream that does nothing.
    """

    def __init__(self, rotation: Rotation, l2_bytes: int, device: torch.device) -> None:
        rest = (L2_EXCESS * l2_bytes - rotation.bytes_again) / rotation.copies
        wanted = rest - rotation.bytes_a_call if rotation.cold else 0.0
        self.bytes_a_call = int(wanted) if wanted >= LEAST_SLICE_BYTES else 0
        size = self.bytes_a_call // 8
        block = torch.zeros(2 * size * rotation.copies, device=device)
        self._slices = block.view(rotation.copies, 2, size) if size else None
        self._next = 0

    def __call__(self) -> None:
        if self._slices is None:
            return
        source, target = self._slices[self._next]
        torch.neg(source, out=target)
        self._next = (self._next + 1) % len(self._slices)

    def rewind(self) -> None:
        self._next = 0


NO_ROOM = "not timed among neighbours: the memory does not hold its inputs twice"
"""The flag of a call whose time is that of the call alone for want of memory."""


def among_neighbours(rotation: Rotation, call_s: float, l2_bytes: int) -> Neighbours | None:
    """Time calls of a rotation with neighbours and these alone, in replays that take turns.

    None where the call has no neighbours: it has no input that can be written, and no weights that
    must be cold.
    """
    if not rotation.inputs or not rotation.inputs[0].is_cuda:
        return None
    stream = Stream(rotation, l2_bytes, rotation.inputs[0].device)
    kept = kept_inputs(rotation)
    if not kept and not stream.bytes_a_call:
        return None

    wanted = min(MOST_CALLS, math.ceil(REPLAY_TARGET_S / (call_s + NEIGHBOURS_S)))
    calls = rotation.copies * math.ceil(wanted / rotation.copies)
    return _timed(rotation, kept, calls, REPLAYS, stream)


def kept_inputs(rotation: Rotation) -> list[tuple[torch.Tensor, torch.Tensor]]:
    inputs = [t for t in rotation.inputs if t.is_cuda and t.is_floating_point() and writable(t)]
    changed = [t for t in rotation.mutated if all(t is not other for other in inputs)]
    rotation.restore()
    return [(tensor, tensor.detach().clone()) for tensor in (*inputs, *changed)]


def in_turn(graphs: list[torch.cuda.CUDAGraph], replays: int) -> tuple[list[float], list[float]]:
    """Return event times of replays of two graphs that take turns, so that drift hits both."""
    clock = CudaClock()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(WARM_UP_REPLAYS):
        for graph in graphs:
            graph.replay()
    marks = []
    for _ in range(replays):
        for which, graph in enumerate(graphs):
            first = clock.mark()
            graph.replay()
            marks.append((which, first, clock.mark()))
    clock.wait(marks[-1][2])
    for which, first, last in marks:
        times[which].append(clock.elapsed_s(first, last))
    return times


# What a call takes longer where other kernels have run since its own were launched last.
#
# A replay of one call launches the same kernels again and again: their code stays in the
# multiprocessors' instruction caches. In a model other kernels have run since, and in a large model
# more has gone through the L2 than it holds. On an H200 an element-wise kernel takes 0.05 µs longer
# for its code and a convolution 0.2 to 0.4 µs, and either some 0.15 µs longer after a stream,
# though its code is held and its inputs were just written (docs/measuring.md).
#
# So a short call is timed a few more times: as it is, after a kernel with more code than an
# instruction cache holds, and after a stream through more memory than the L2 holds. What these
# neighbours take is timed alone and subtracted.

LONGEST_S = 30e-6
"""Calls longer than that are not timed again: what they take longer is below a hundredth."""

CALLS = 24
REPLAYS_AFTER_OTHERS = 5

INSTRUCTIONS = 2**14
"""Of the kernel that evicts code, 16 bytes each: 256 KiB, twice what a multiprocessor of an H200
keeps; fetched in order, they leave nothing of what it held."""

THREADS = 128
"""One warp for each of a multiprocessor's four parts, which have own instruction caches."""

L2_SHARE = 1.25
"""The stream touches so much of the L2's size."""

LEAST_SPARED = 4
"""The evicting kernel's code stays in the L2 beside calls that touch this part of it at most."""


def evicting_ptx(instructions: int) -> str:
    """Return a kernel `evict` of so many multiply-adds in a row, as PTX.

    Its one parameter is the address of THREADS float32 a block.
    """
    sums = [
        f"fma.rn.f32 %f{i % 4}, %f{i % 4}, %f{i % 4}, 0f3F{i:06X};" for i in range(instructions)
    ]
    return "\n".join(
        [
            ".version 7.0",
            ".target sm_70",
            ".address_size 64",
            ".visible .entry evict(.param .u64 numbers)",
            "{",
            ".reg .f32 %f<4>; .reg .b32 %r<3>; .reg .b64 %d<3>;",
            "ld.param.u64 %d0, [numbers];",
            "mov.u32 %r0, %tid.x;",
            "mov.u32 %r1, %ctaid.x;",
            f"mad.lo.u32 %r2, %r1, {THREADS}, %r0;",
            "mul.wide.u32 %d1, %r2, 4;",
            "add.s64 %d2, %d0, %d1;",
            "ld.global.f32 %f0, [%d2];",
            *(f"mov.f32 %f{i}, %f0;" for i in (1, 2, 3)),
            *sums,
            *(f"add.f32 %f0, %f0, %f{i};" for i in (1, 2, 3)),
            "st.global.f32 [%d2], %f0;",
            "ret;",
            "}",
        ]
    )


class Evictor:
    """Runs the kernel that evicts code, one block on each multiprocessor of a device."""

    def __init__(self, device: torch.device) -> None:
        from cuda.bindings import driver

        self._launch = driver.cuLaunchKernel
        self._blocks = torch.cuda.get_device_properties(device).multi_processor_count
        self._numbers = torch.zeros(self._blocks * THREADS, device=device)
        with torch.cuda.device(device):
            module = cuda_call(driver.cuModuleLoadData(evicting_ptx(INSTRUCTIONS).encode()))
            self._kernel = cuda_call(driver.cuModuleGetFunction(module, b"evict"))

    def __call__(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        numbers = ((self._numbers.data_ptr(),), (ctypes.c_void_p,))
        cuda_call(
            self._launch(self._kernel, self._blocks, 1, 1, THREADS, 1, 1, 0, stream, numbers, 0)
        )


@cache
def evictor(device: torch.device) -> Evictor | None:
    """Return the device's evictor, made once a process; None where it cannot be made."""
    try:
        return Evictor(device)
    except (ImportError, RuntimeError):
        return None


def after_others(
    rotation: Rotation, call_s: float, touched_bytes: int, l2_bytes: int, *, cold: bool
) -> dict[Before, Neighbours]:
    """Time a call of `call_s` seconds that touches so many bytes, by what ran before it.

    None of it for a long call, one whose inputs exceed the L2 or cannot be written, one that
    touches so much that the evicting kernel's code would leave the L2, and on a device without an
    evictor. A stream comes only before a `cold` call without weights: weights would be cold too.
    """
    kept = kept_inputs(rotation)
    large = LEAST_SPARED * touched_bytes > l2_bytes
    if call_s > LONGEST_S or not kept or large or output_bytes([t for t, _ in kept]) > l2_bytes:
        return {}
    device = kept[0][0].device
    evict = evictor(device)
    if evict is None:
        return {}
    found: dict[Before, Neighbours] = {
        "itself": _timed(rotation, kept, CALLS, REPLAYS_AFTER_OTHERS),
        "code": _timed(rotation, kept, CALLS, REPLAYS_AFTER_OTHERS, evict),
    }
    if cold and not rotation.cold:
        source = torch.zeros(int(L2_SHARE * l2_bytes) // 8, device=device)
        target = torch.empty_like(source)
        stream = partial(torch.neg, source, out=target)
        found["stream"] = _timed(rotation, kept, CALLS, REPLAYS_AFTER_OTHERS, stream)
    return found


def _timed(
    rotation: Rotation,
    kept: list[tuple[torch.Tensor, torch.Tensor]],
    calls: int,
    replays: int,
    *before: Callable[[], object],
) -> Neighbours:
    """Time replays of calls after what runs `before` and writes inputs anew, and of that alone."""

    def neighbours() -> None:
        for each in before:
            each()
        for tensor, values in kept:
            write_anew(tensor, values)

    def with_call() -> None:
        neighbours()
        rotation.turn()

    def rewind() -> None:
        rotation.rewind()
        for each in before:
            if isinstance(each, Stream):
                each.rewind()

    graphs = []
    for step in (with_call, neighbours):
        rewind()
        warm_up(step, 1)
        rewind()
        graphs.append(capture(step, calls))
    times, alone = in_turn(graphs, replays)
    return Neighbours(calls, tuple(times), tuple(alone))
