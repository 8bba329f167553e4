"""What runs beside a call; on the processor, where nothing of it can be timed."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from opdb.bench.neighbours import (
    ALIGNMENT_BYTES,
    INSTRUCTIONS,
    LEAST_SLICE_BYTES,
    MOST_LAYERS,
    THREADS,
    Chain,
    Stream,
    Streamed,
    access_flags,
    evicting_ptx,
    steps_of,
)
from opdb.bench.replay import L2_EXCESS, Rotation, writable, write_anew
from opdb.errors import UnsupportedError
from opdb.operators import BuiltCall, build
from opdb.records import Access, Configuration
from tests.bench.calls import ADD_IN_PLACE, CONV, IMAGE, RELU, RELU_IN_PLACE

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


@pytest.mark.parametrize(("configuration", "cold"), [(CONV, False), (RELU, True)])
def test_where_no_weights_are_to_be_cold_nothing_streams(
    configuration: Configuration, cold: bool
) -> None:
    rotation = Rotation(build(configuration), l2_bytes=L2_BYTES, cold=cold)
    assert Stream(rotation, L2_BYTES, CPU).bytes_a_call == 0


def test_what_shares_memory_with_itself_is_not_written() -> None:
    block = torch.zeros(4, 6)
    assert writable(block) and writable(block.t()) and writable(block[:, ::2])
    assert writable(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))
    assert not writable(torch.zeros(1, 6).expand(4, 6))
    assert not writable(torch.arange(6.0).unfold(0, 3, 1))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool]
)
def test_values_are_written_anew_in_any_layout(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    for target in (torch.zeros_like(values), torch.zeros(3, 2, dtype=dtype).t()):
        write_anew(target, values)
        assert torch.equal(target, values)


# Workloads other than a model's: reused, streamed, chained; on the processor


IMAGE_BYTES = 4 * 8 * 8 * 4
SAME_CONV = Configuration(
    "conv2d",
    {"padding": [1, 1]},
    {"input": IMAGE, "weight": {"shape": [4, 4, 3, 3], "dtype": "float32", "role": "weight"}},
)
EMBEDDING = Configuration(
    "embedding",
    {},
    {
        "input": {"shape": [16], "dtype": "int64", "values": {"range": [0, 50]}},
        "weight": {"shape": [50, 8], "dtype": "float32", "role": "weight"},
    },
)
ARANGE = Configuration("arange", {"start": 0, "end": 10})


def spied(configuration: Configuration) -> tuple[BuiltCall, list[list[Any]]]:
    """Build a call that tells a list of the tensors of each run: where, what, and weights."""
    call, seen = build(configuration, form="function"), list[list[Any]]()
    function = call._function

    def spy(*args: Any, **kwargs: Any) -> Any:
        found = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        kept = [(t.data_ptr(), t.clone(), t.stride()) for t in found]
        output = function(*args, **kwargs)
        seen.append([*kept, output])
        return output

    call._function = spy
    return call, seen


def steps(configuration: Configuration, access: Access, l2_bytes: int) -> tuple[Any, Any]:
    call, seen = spied(configuration)
    made = steps_of(call, access, l2_bytes=l2_bytes)
    made.rewind()
    seen.clear()
    return made, seen


def test_reused_calls_find_one_input_and_one_set_of_weights() -> None:
    made, seen = steps(CONV, "reused", 2**20)
    for _ in range(5):
        made()
    assert isinstance(made, Rotation) and made.copies == 1
    for index in (0, 1):
        assert len({each[index][0] for each in seen}) == 1


def test_streamed_calls_walk_through_an_array_beyond_the_cache_and_round_again() -> None:
    made, seen = steps(RELU, "streamed", 8 * IMAGE_BYTES)
    assert made.copies == L2_EXCESS * 8 == 20
    assert made.bytes == 20 * IMAGE_BYTES
    for _ in range(2 * made.copies):
        made()
    places = [each[0][0] for each in seen]
    steps_on = {b - a for a, b in pairwise(places)}
    assert steps_on == {IMAGE_BYTES, -19 * IMAGE_BYTES}, "linearly, then from the start"
    assert places[:20] == places[20:]
    assert len({float(each[0][1].sum()) for each in seen}) == 20, "random, each its own"
    assert not access_flags(made, 8 * IMAGE_BYTES)


def test_slices_keep_strides_alignment_and_the_values_class() -> None:
    last = {"shape": [1, 3, 5, 5], "dtype": "float32", "layout": "channels_last"}
    made, seen = steps(
        Configuration("relu", {}, {"input": {**last, "values": "rectified"}}), "streamed", 2**12
    )
    for _ in range(made.copies):
        made()
    assert {each[0][2] for each in seen} == {(75, 1, 15, 3)}
    first = seen[0][0][0]
    assert all((each[0][0] - first) % ALIGNMENT_BYTES == 0 for each in seen)
    assert all(bool((each[0][1] >= 0).all()) for each in seen)
    made, seen = steps(EMBEDDING, "streamed", 2**12)
    for _ in range(made.copies):
        made()
    assert all(0 <= int(each[0][1].min()) <= int(each[0][1].max()) < 50 for each in seen)


def test_small_inputs_that_cannot_fill_the_cache_are_flagged() -> None:
    made, _ = steps(EMBEDDING, "streamed", 2**26)
    assert access_flags(made, 2**26) == ("inputs stream through 0.256 MB, less than the L2",)


@pytest.mark.parametrize("l2_bytes", [64, 4 * IMAGE_BYTES])
def test_streamed_calls_in_place_never_meet_their_own_output(l2_bytes: int) -> None:
    call, seen = spied(ADD_IN_PLACE)
    made = Streamed(call, l2_bytes=l2_bytes)
    largest = max(float(t.abs().max()) for t in call.inputs)
    assert made.restores
    for _ in range(5 * made.copies):
        made()
    assert all(float(each[0][1].abs().max()) <= largest for each in seen)


def test_a_chain_runs_on_its_own_output_with_the_weights_of_the_next_layer() -> None:
    made, seen = steps(SAME_CONV, "chain", 2**12)
    assert isinstance(made, Chain) and made.copies == 13 and made.layers == MOST_LAYERS
    pristine = made.inputs[0].data_ptr()
    for _ in range(MOST_LAYERS + 2):
        made()
    assert seen[0][0][0] == pristine
    for before, after in pairwise(seen[:MOST_LAYERS]):
        assert torch.equal(after[0][1], before[-1])
    assert seen[MOST_LAYERS][0][0] == pristine, "begun again"
    weights = [each[1][0] for each in seen]
    assert len(set(weights[: made.copies])) == made.copies
    made.rewind()
    seen.clear()
    made()
    assert (seen[0][0][0], seen[0][1][0]) == (pristine, weights[0])


def test_a_chain_begins_again_before_values_are_infinite() -> None:
    exp = Configuration("exp", {}, {"input": {"shape": [1000], "dtype": "float32"}})
    made, seen = steps(exp, "chain", 2**20)
    assert made.layers == 2
    for _ in range(20):
        made()
    assert all(bool(torch.isfinite(each[-1]).all()) for each in seen)


def test_a_chain_of_calls_in_place_is_restored() -> None:
    for configuration in (ADD_IN_PLACE, RELU_IN_PLACE):
        made, seen = steps(configuration, "chain", 2**20)
        assert made.restores
        for _ in range(4):
            made()
        assert all(torch.equal(each[0][1], seen[0][0][1]) for each in seen)


@pytest.mark.parametrize(
    ("configuration", "why"),
    [
        (CONV, "the output's shape differs from the input's: no chain"),
        (
            Configuration("to", {"dtype": {"dtype": "bfloat16"}}, {"input": IMAGE}),
            "the output's dtype differs from the input's: no chain",
        ),
        (ARANGE, "the call has no input: no chain"),
    ],
)
def test_what_makes_no_chain_says_why(configuration: Configuration, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        steps_of(build(configuration), "chain", l2_bytes=2**20)


# Code that is evicted before a call; on the processor, where there is none


def test_the_evicting_kernel_is_as_long_as_it_says_and_no_two_lines_are_one() -> None:
    ptx = evicting_ptx(INSTRUCTIONS)
    sums = re.findall(r"fma\.rn\.f32 (%f\d), \1, \1, 0f([0-9A-F]{8});", ptx)
    assert len(sums) == len({number for _, number in sums}) == INSTRUCTIONS
    assert {register for register, _ in sums} == {"%f0", "%f1", "%f2", "%f3"}
    assert f"mad.lo.u32 %r2, %r1, {THREADS}, %r0;" in ptx
