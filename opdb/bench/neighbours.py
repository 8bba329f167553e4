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

import math
from collections.abc import Callable

import torch

from opdb.bench.replay import (
    L2_EXCESS,
    CudaClock,
    Rotation,
    capture,
    output_bytes,
    warm_up,
    writable,
    write_anew,
)
from opdb.records import Neighbours

REPLAY_TARGET_S = 1.5e-3
MOST_CALLS = 256
REPLAYS = 8
WARM_UP_REPLAYS = 2
NEIGHBOURS_S = 4e-6
"""About what the neighbours take, to choose how many calls a replay holds."""

LEAST_SLICE_BYTES = 2**16
"""A stream of less a call changes nothing."""

SPARE_MEMORY = 1.2
"""Inputs are kept once more, to be written from: so much of their size must be free."""


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
        """Touch the next slice."""
        if self._slices is None:
            return
        source, target = self._slices[self._next]
        torch.neg(source, out=target)
        self._next = (self._next + 1) % len(self._slices)

    def rewind(self) -> None:
        """Start over with the first slice."""
        self._next = 0


NO_ROOM = "not timed among neighbours: the memory does not hold its inputs twice"
"""The flag of a call whose time is that of the call alone for want of memory."""


def has_room(rotation: Rotation) -> bool:
    """Whether the device's free memory holds the inputs of a call once more."""
    free, _ = torch.cuda.mem_get_info()
    return SPARE_MEMORY * output_bytes(rotation.inputs) <= free


def among_neighbours(rotation: Rotation, call_s: float, l2_bytes: int) -> Neighbours | None:
    """Time calls of a rotation with neighbours and these alone, in replays that take turns.

    None where the call has no neighbours: it has no input that can be written, and no weights that
    must be cold.

    Raises:
        RuntimeError: the call cannot be captured as a CUDA graph.
    """
    if not rotation.inputs or not rotation.inputs[0].is_cuda:
        return None
    stream = Stream(rotation, l2_bytes, rotation.inputs[0].device)
    kept = kept_inputs(rotation)
    if not kept and not stream.bytes_a_call:
        return None

    def neighbours() -> None:
        stream()
        for tensor, values in kept:
            write_anew(tensor, values)

    def with_call() -> None:
        neighbours()
        rotation.turn()

    wanted = min(MOST_CALLS, math.ceil(REPLAY_TARGET_S / (call_s + NEIGHBOURS_S)))
    calls = rotation.copies * math.ceil(wanted / rotation.copies)
    graphs = []
    for step in (with_call, neighbours):
        rotation.rewind()
        stream.rewind()
        graphs.append(_graph_of(step, calls, rotation.rewind, stream.rewind))
    times, alone = in_turn(graphs, REPLAYS)
    return Neighbours(calls, tuple(times), tuple(alone))


def kept_inputs(rotation: Rotation) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the inputs on a GPU that a kernel can write anew, each with its values."""
    inputs = [t for t in rotation.inputs if t.is_cuda and t.is_floating_point() and writable(t)]
    changed = [t for t in rotation.mutated if all(t is not other for other in inputs)]
    rotation.restore()
    return [(tensor, tensor.detach().clone()) for tensor in (*inputs, *changed)]


def _graph_of(
    step: Callable[[], None], calls: int, *rewinds: Callable[[], None]
) -> torch.cuda.CUDAGraph:
    warm_up(step, 1)
    for rewind in rewinds:
        rewind()
    return capture(step, calls)


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
