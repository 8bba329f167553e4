"""Replays: rotation, held outputs, inputs restored; on the processor."""

from __future__ import annotations

import gc
import math
import time
import weakref
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from opdb.bench import replay
from opdb.bench.replay import (
    FEW_COPIES,
    L2_EXCESS,
    MAX_CALLS,
    MAX_COPIES,
    REPLAY_TARGET_S,
    CpuClock,
    CudaClock,
    Rotation,
    Timing,
    calls_wanted,
    longer,
    observe,
    output_bytes,
)
from opdb.meters import NoMeter
from opdb.operators import BuiltCall, build
from opdb.records import Configuration
from tests.bench.calls import CONV, RELU, RELU_IN_PLACE

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


@pytest.mark.parametrize("copies", [1, 7])
def test_a_replay_that_came_out_short_is_made_longer(copies: int) -> None:
    """A host that is held up while it issues the calls makes each seem to take milliseconds."""
    few = calls_wanted(2e-3, copies)
    wanted = longer(few, 8e-6, copies)
    assert wanted * 8e-6 >= REPLAY_TARGET_S and wanted % copies == 0
    assert longer(wanted, 8e-6, copies) is None
    assert longer(MAX_CALLS * copies, 1e-9, copies) is None


# Stretches on the processor: windows, gaps, and a meter beside them


REPLAY_S = 0.004


def busy() -> None:
    end = time.perf_counter() + REPLAY_S
    while time.perf_counter() < end:
        pass


class Noting(CpuClock):
    ahead = CudaClock.ahead

    def __init__(self) -> None:
        self.marks: list[float] = []

    def mark(self) -> float:
        self.marks.append(super().mark())
        return self.marks[-1]


def test_a_window_is_as_long_as_asked_and_full_of_replays() -> None:
    clock = Noting()
    began_s = time.perf_counter()
    stretch = observe(busy, 10, clock, NoMeter("none"), Timing(0.01, 0.06)).stretch
    assert 0.06 <= stretch.duration_s <= time.perf_counter() - began_s
    steps = [b - a for a, b in pairwise(clock.marks)]
    count = len(stretch.replay_times_s)
    after = steps.index(stretch.replay_times_s[0])
    assert steps[after : after + count] == list(stretch.replay_times_s), "none left out"
    assert len(steps) - after - count == clock.ahead, "the queue was full to the end"
    assert all(t >= REPLAY_S * 0.99 for t in stretch.replay_times_s)
    assert (stretch.busy_share, stretch.calls_per_replay) == (1.0, 10)


def test_gaps_lower_the_busy_share_and_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of the test's own: under load a real one says little."""
    now_s = [1_000.0]

    def pass_by(seconds: float) -> None:
        now_s[0] += seconds

    clock = SimpleNamespace(
        monotonic=lambda: now_s[0], perf_counter=lambda: now_s[0], sleep=pass_by
    )
    monkeypatch.setattr(replay, "time", clock)
    timing = Timing(0.01, 0.08, gap_s=REPLAY_S / 2)
    found = observe(lambda: pass_by(REPLAY_S), 1, CpuClock(), NoMeter("none"), timing).stretch
    assert found.replay_times_s == pytest.approx((REPLAY_S,) * 14), "14 of 6 ms are over 80 ms"
    assert found.duration_s == pytest.approx(14 * 1.5 * REPLAY_S)
    assert found.busy_share == pytest.approx(1 / 1.5)
