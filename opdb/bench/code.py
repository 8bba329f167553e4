"""What a call takes longer where other kernels have run since its own were launched last.

A replay of one call launches the same kernels again and again: their code stays in the
multiprocessors' instruction caches. In a model other kernels have run since, and in a large model
more has gone through the L2 than it holds. On an H200 an element-wise kernel takes 0.05 µs longer
for its code and a convolution 0.2 to 0.4 µs, and either some 0.15 µs longer after a stream, though
its code is held and its inputs were just written (docs/measuring.md).

So a short call is timed a few more times: as it is, after a kernel with more code than an
instruction cache holds, and after a stream through more memory than the L2 holds. What these
neighbours take is timed alone and subtracted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from opdb.bench.kernels import cuda_call
from opdb.bench.neighbours import in_turn, kept_inputs
from opdb.bench.replay import Rotation, capture, output_bytes, warm_up, write_anew
from opdb.records import Before, Neighbours

LONGEST_S = 30e-6
"""Calls longer than that are not timed again: what they take longer is below a hundredth."""

CALLS = 24
REPLAYS = 5

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
    """Runs the kernel that evicts code, one block on each multiprocessor of a device.

    Raises:
        RuntimeError: the driver refused the kernel.
        ImportError: torch's CUDA bindings are not there.
    """

    def __init__(self, device: torch.device) -> None:
        from cuda.bindings import driver

        self._launch = driver.cuLaunchKernel
        self._blocks = torch.cuda.get_device_properties(device).multi_processor_count
        self._numbers = torch.zeros(self._blocks * THREADS, device=device)
        with torch.cuda.device(device):
            module = cuda_call(driver.cuModuleLoadData(evicting_ptx(INSTRUCTIONS).encode()))
            self._kernel = cuda_call(driver.cuModuleGetFunction(module, b"evict"))

    def __call__(self) -> None:
        """Launch it on the current stream."""
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

    Raises:
        RuntimeError: the call cannot be captured as a CUDA graph.
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
        "itself": _timed(rotation, kept),
        "code": _timed(rotation, kept, evict),
    }
    if cold and not rotation.cold:
        found["stream"] = _timed(rotation, kept, _stream(l2_bytes, device))
    return found


def _stream(l2_bytes: int, device: torch.device) -> Callable[[], None]:
    source = torch.zeros(int(L2_SHARE * l2_bytes) // 8, device=device)
    target = torch.empty_like(source)

    def stream() -> None:
        torch.neg(source, out=target)

    return stream


def _timed(
    rotation: Rotation,
    kept: list[tuple[torch.Tensor, torch.Tensor]],
    *before: Callable[[], None],
) -> Neighbours:
    """Time calls after these kernels and the writing of their inputs, and these alone."""

    def neighbours() -> None:
        for each in before:
            each()
        for tensor, values in kept:
            write_anew(tensor, values)

    def with_call() -> None:
        neighbours()
        rotation.turn()

    graphs = []
    for step in (with_call, neighbours):
        rotation.rewind()
        warm_up(step, 1)
        rotation.rewind()
        graphs.append(capture(step, CALLS))
    times, alone = in_turn(graphs, REPLAYS)
    return Neighbours(CALLS, tuple(times), tuple(alone))
