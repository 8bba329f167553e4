"""Replays: rotation, held outputs, inputs restored; on the processor."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import torch

from opdb.bench.replay import (
    FEW_COPIES,
    L2_EXCESS,
    LEAST_COPIES,
    MAX_CALLS,
    MAX_COPIES,
    REPLAY_TARGET_S,
    Rotation,
    calls_wanted,
    longer,
    output_bytes,
    prepare,
)
from opdb.operators import BuiltCall, build
from opdb.records import Configuration
from tests.bench.calls import CONV, RELU, RELU_IN_PLACE, SQUARE

INPUT_BYTES, WEIGHT_BYTES, OUTPUT_BYTES = 4 * 8 * 8 * 4, 8 * 4 * 3 * 3 * 4, 8 * 8 * 8 * 4
"""Of the convolution."""


class Watched(BuiltCall):
    """A call that tells a list of each run: its weights, and its first input as it found it."""

    seen: list[tuple[int, torch.Tensor]]

    def __call__(self) -> Any:
        first = self.weights[0] if self.weights else self.inputs[0]
        self.seen.append((id(first), self.inputs[0].clone()))
        return super().__call__()

    def with_fresh_weights(self) -> BuiltCall:
        return watched(super().with_fresh_weights(), self.seen)


def watched(call: BuiltCall, seen: list[tuple[int, torch.Tensor]]) -> Watched:
    found = Watched(**vars(call))
    found.seen = seen
    return found


def rotation(
    configuration: Configuration, *, l2_bytes: int, cold: bool = True, fresh: bool = False
) -> Any:
    seen: list[tuple[int, torch.Tensor]] = []
    call = watched(build(configuration), seen)
    made = Rotation(call, l2_bytes=l2_bytes, cold=cold, fresh=fresh)
    seen.clear()
    return made, seen


@pytest.mark.parametrize(
    ("fresh", "bytes_a_call", "bytes_again", "copies"),
    [
        (True, WEIGHT_BYTES + OUTPUT_BYTES, 0, L2_EXCESS * 2),
        (False, WEIGHT_BYTES, INPUT_BYTES + 2 * OUTPUT_BYTES, 10),
    ],
    ids=["fresh", "reused"],
)
def test_weights_rotate_over_copies_that_exceed_the_cache(
    fresh: bool, bytes_a_call: int, bytes_again: int, copies: int
) -> None:
    l2_bytes = 2 * (WEIGHT_BYTES + OUTPUT_BYTES)
    turned, seen = rotation(CONV, l2_bytes=l2_bytes, fresh=fresh)
    assert (turned.bytes_a_call, turned.bytes_again) == (bytes_a_call, bytes_again)
    assert turned.copies == copies
    assert turned.copies == math.ceil((L2_EXCESS * l2_bytes - bytes_again) / bytes_a_call)
    for _ in range(2 * turned.copies + 1):
        turned()
    weights = [which for which, _ in seen]
    assert len(set(weights)) == turned.copies
    assert weights[: turned.copies] == weights[turned.copies : 2 * turned.copies]
    assert weights[-1] == weights[0]
    turned.rewind()
    turned()
    assert seen[-1][0] == weights[0]


@pytest.mark.parametrize(("features", "copies"), [(2, 1), (256, LEAST_COPIES)])
def test_weights_that_are_most_of_a_call_lie_in_many_places(features: int, copies: int) -> None:
    shapes = {"input": [32, features], "weight": [features, features]}
    tensors = {name: {"shape": shape, "dtype": "float32"} for name, shape in shapes.items()}
    tensors["weight"]["role"] = "weight"
    linear = Configuration("linear", {}, tensors)
    size = 4 * features * features
    turned, _ = rotation(linear, l2_bytes=size // 4)
    assert turned.copies == copies


def test_copies_compute_the_same_and_share_the_input() -> None:
    call = build(CONV)
    copy = call.with_fresh_weights()
    assert torch.equal(call(), copy())
    assert call.inputs[0] is copy.inputs[0]
    assert call.weights[0].data_ptr() != copy.weights[0].data_ptr()


@pytest.mark.parametrize(
    ("configuration", "l2_bytes", "cold", "copies"),
    [
        (CONV, 2**20, False, 1),
        (CONV, 0, True, 1),
        (RELU, 2**20, True, 1),
        (CONV, 2**30, True, FEW_COPIES),
        (CONV, 2000, True, 1),
    ],
    ids=["hot", "no cache", "no weights", "at most", "less than input and outputs"],
)
def test_copies(configuration: Configuration, l2_bytes: int, cold: bool, copies: int) -> None:
    turned, _ = rotation(configuration, l2_bytes=l2_bytes, cold=cold)
    assert turned.copies == copies <= MAX_COPIES


@pytest.mark.parametrize(("fresh", "held"), [(True, 5), (False, 1)], ids=["fresh", "reused"])
def test_fresh_outputs_are_held_until_they_exceed_the_cache_and_others_singly(
    fresh: bool, held: int
) -> None:
    size = output_bytes(build(RELU)())
    made: list[weakref.ref[torch.Tensor]] = []

    class Noted(BuiltCall):
        def __call__(self) -> Any:
            output = super().__call__()
            made.append(weakref.ref(output))
            return output

    turned = Rotation(Noted(**vars(build(RELU))), l2_bytes=2 * size, cold=True, fresh=fresh)
    made.clear()
    for _ in range(12):
        turned()
    gc.collect()
    assert [ref() is not None for ref in made] == [False] * (12 - held) + [True] * held
    turned.rewind()
    assert all(ref() is None for ref in made)


def test_relu_in_place_meets_negative_values_every_time() -> None:
    turned, seen = rotation(RELU_IN_PLACE, l2_bytes=2**20)
    assert turned.restores
    for _ in range(5):
        turned()
    assert all(bool((found < 0).any()) for _, found in seen)
    assert all(torch.equal(found, seen[0][1]) for _, found in seen)


def test_restoring_alone_brings_the_input_back() -> None:
    call = build(RELU_IN_PLACE)
    before = call.inputs[0].clone()
    turned = Rotation(call, l2_bytes=0, cold=True)
    turned()
    assert not torch.equal(call.inputs[0], before)
    turned.restore()
    assert torch.equal(call.inputs[0], before)


def test_one_tensor_given_twice_stays_one() -> None:
    call = build(SQUARE)
    assert len(call.inputs) == 1
    seen: list[tuple[int, int]] = []
    function = call._function

    def watching(a: torch.Tensor, b: torch.Tensor) -> Any:
        seen.append((id(a), id(b)))
        return function(a, b)

    call._function = watching
    turned = Rotation(call, l2_bytes=2**20, cold=True)
    turned()
    assert seen and all(a == b == id(call.inputs[0]) for a, b in seen)


@pytest.mark.parametrize("copies", [1, 3, 7, 128])
@pytest.mark.parametrize("call_s", [1e-9, 3e-6, 1e-3, 5.0])
def test_calls_wanted_is_a_multiple_of_the_copies(call_s: float, copies: int) -> None:
    calls = calls_wanted(call_s, copies)
    assert calls % copies == 0
    assert copies <= calls < MAX_CALLS + copies
    assert calls * call_s >= REPLAY_TARGET_S or calls >= MAX_CALLS


@pytest.mark.parametrize("copies", [1, 7])
def test_a_replay_that_came_out_short_is_made_longer(copies: int) -> None:
    """A host that is held up while it issues the calls makes each seem to take milliseconds."""
    few = calls_wanted(2e-3, copies)
    wanted = longer(few, 8e-6, copies)
    assert wanted is not None and wanted * 8e-6 >= REPLAY_TARGET_S and wanted % copies == 0
    assert longer(wanted, 8e-6, copies) is None
    assert longer(MAX_CALLS * copies, 1e-9, copies) is None


def test_an_eager_replay_runs_the_calls_it_names() -> None:
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        torch.zeros(64).add_(1)

    replay = prepare(step, device_type="cpu", copies=4)
    assert (replay.how, replay.copies, replay.calls % 4) == ("eager", 4, 0)
    before = count
    replay.issue()
    assert count - before == replay.calls
