"""Loads of known work: matrix products, copies, reads; and how fast a board does them at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch

from opdb.bench.replay import CudaClock, capture, warm_up

MATMUL_SIZE = 8192
MATMUL_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
LONG_CALL_S = 0.1
"""A product that takes longer is made on smaller matrices."""

REPEATS = 8
COPY_BYTES = 2**31
MEMORY_SHARE = 0.25

FIRST_SHARE = 1 / 16
LAST_SHARE = 2.0
GROWTH = 1.08
"""Read sizes: from and to these shares of the L2, each so much larger than the one before."""

ROWS = 2048
ROW_STEP_BYTES = ROWS * 16
"""Sizes are whole numbers of vectors for every row of the reduction that reads them."""

PASSES_S = 1.5e-3
SLOWEST_READ_BYTES_PER_S = 3e12
LAUNCH_S = 3e-6


def square_matmul(size: int, dtype: torch.dtype, device: str) -> Callable[[], None]:
    """Return a product of two square matrices of random values, into a third."""
    a = torch.randn(size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
    out = torch.empty_like(a)

    def run() -> None:
        torch.mm(a, b, out=out)

    return run


def copy_rate(device: str) -> float:
    """Return the highest rate of a device-to-device copy (bytes/s), bytes read and written."""
    free, _ = torch.cuda.mem_get_info()
    size = min(COPY_BYTES, int(MEMORY_SHARE * free))
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _shortest_s(lambda: target.copy_(source))


def matmul_rates(device: str) -> dict[str, float | None]:
    """Return the highest rate of a matrix product (FLOP/s) by dtype; a multiply-add counts 2."""
    rates = {}
    for name, dtype in MATMUL_DTYPES.items():
        with _tf32(name == "tf32"):
            rates[f"matmul_{name}_flops_per_s"] = _matmul_rate(dtype, device)
    return rates


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _matmul_rate(dtype: torch.dtype, device: str) -> float | None:
    size = MATMUL_SIZE
    try:
        while size > 1:
            work = square_matmul(size, dtype, device)
            call_s = _shortest_s(work, repeats=1)
            if call_s <= LONG_CALL_S:
                break
            size //= 2
        return 2 * size**3 / min(call_s, _shortest_s(work))
    except RuntimeError:  # a dtype that this GPU does not multiply
        return None


def _shortest_s(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the event time of the shortest of some calls, after a first one."""
    clock = CudaClock()
    work()
    marks = [clock.mark()]
    for _ in range(repeats):
        work()
        marks.append(clock.mark())
    clock.wait(marks[-1])
    return min(clock.elapsed_s(a, b) for a, b in pairwise(marks))


def read_passes_s(device: str, l2_bytes: int) -> tuple[tuple[float, float], ...]:
    """Return (bytes, seconds a pass) of reading buffers over and over, from small to twice the L2.

    Every pass is one reduction kernel, and all passes over a buffer one CUDA graph.
    """
    largest = _rounded(LAST_SHARE * l2_bytes)
    buffer = torch.randn(largest // 4, device=device)
    sums = torch.empty(ROWS, device=device)
    steps = math.ceil(math.log(LAST_SHARE / FIRST_SHARE) / math.log(GROWTH))
    sizes = {_rounded(FIRST_SHARE * l2_bytes * GROWTH**step) for step in range(steps)} | {largest}
    return tuple((float(size), _pass_s(buffer, sums, size)) for size in sorted(sizes))


def _rounded(size: float) -> int:
    return ROW_STEP_BYTES * max(1, round(size / ROW_STEP_BYTES))


def _pass_s(buffer: torch.Tensor, sums: torch.Tensor, size: int) -> float:
    rows = buffer[: size // 4].view(ROWS, -1)
    passes = math.ceil(PASSES_S / (size / SLOWEST_READ_BYTES_PER_S + LAUNCH_S))

    def read() -> None:
        torch.sum(rows, dim=1, out=sums)

    warm_up(read, 1)
    graph = capture(read, passes)
    return _shortest_s(graph.replay) / passes
