"""What runs beside a call; on the processor, where nothing of it can be timed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from opdb.bench.neighbours import (
    INSTRUCTIONS,
    LEAST_SLICE_BYTES,
    THREADS,
    Stream,
    evicting_ptx,
)
from opdb.bench.replay import L2_EXCESS, Rotation, write_anew
from opdb.operators import build
from opdb.records import Configuration
from tests.bench.calls import CONV

CPU = torch.device("cpu")
L2_BYTES = 2**24
LARGE_CONV = replace(
    CONV, inputs={**CONV.inputs, "input": {"shape": [1, 4, 128, 128], "dtype": "float32"}}
)
"""Its input and outputs are 3 % of what is to go through the L2."""


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "reused"])
@pytest.mark.parametrize("configuration", [CONV, LARGE_CONV], ids=["small", "large"])
def test_a_round_of_the_stream_pushes_weights_out_of_the_cache(
    configuration: Configuration, fresh: bool
) -> None:
    rotation = Rotation(build(configuration), l2_bytes=L2_BYTES, cold=True, fresh=fresh)
    stream = Stream(rotation, L2_BYTES, CPU)
    assert stream.bytes_a_call > LEAST_SLICE_BYTES
    a_round = rotation.copies * (stream.bytes_a_call + rotation.bytes_a_call)
    assert rotation.bytes_again + a_round == pytest.approx(L2_EXCESS * L2_BYTES, rel=0.01)
    for _ in range(rotation.copies + 1):
        stream()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool]
)
def test_values_are_written_anew_in_any_layout(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    for target in (torch.zeros_like(values), torch.zeros(3, 2, dtype=dtype).t()):
        write_anew(target, values)
        assert torch.equal(target, values)


# Code that is evicted before a call; on the processor, where there is none


def test_the_evicting_kernel_is_as_long_as_it_says_and_no_two_lines_are_one() -> None:
    ptx = evicting_ptx(INSTRUCTIONS)
    sums = re.findall(r"fma\.rn\.f32 (%f\d), \1, \1, 0f([0-9A-F]{8});", ptx)
    assert len(sums) == len({number for _, number in sums}) == INSTRUCTIONS
    assert {register for register, _ in sums} == {"%f0", "%f1", "%f2", "%f3"}
    assert f"mad.lo.u32 %r2, %r1, {THREADS}, %r0;" in ptx
