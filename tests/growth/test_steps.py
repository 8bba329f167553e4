"""The steps of a whole generation: how they are found, and at which of them calls are benched."""

from __future__ import annotations

from itertools import pairwise

import pytest

from opdb.growth import (
    CHOICE,
    RATIO,
    benched_calls,
    benched_configurations,
    growing,
    knots,
    lengths,
    sizes_of,
    steps_of,
    stretches,
)
from opdb.records import Call, Configuration, Workload


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 2), (5, 9), (100, 10_000), (1024, 1278)])
def test_lengths_reach_from_first_to_last_in_small_ratios(first: int, last: int) -> None:
    found = lengths(first, last)
    assert (found[0], found[-1]) == (first, last)
    assert found == sorted(set(found))
    pairs = list(pairwise(found))
    assert all(high / low <= 1.1 * RATIO or high - low == 1 for low, high in pairs)


def call(kind: str, *shape: int) -> Call:
    inputs = {"input": {"shape": list(shape), "dtype": "float32"}}
    return Call(Configuration(kind, {}, inputs), "function")


CHOSEN = call(CHOICE, 2, 8)


def generation(tokens: int, full: int = 10**6, prompt: int = 10) -> Workload:
    """A generation whose steps call a relu of what is filled, a sigmoid of what a window holds."""
    calls = [call("relu", 2, 99), CHOSEN]
    for context in range(prompt, prompt + tokens - 1):
        calls += [call("relu", 2, context), call("sigmoid", min(context, full)), CHOSEN]
    calls.append(call("relu", 2, 999))
    return Workload(
        name="made up",
        source="a test",
        source_version="1",
        inputs={
            "args": [{"shape": [2, prompt], "dtype": "int64"}],
            "kwargs": {},
            "generation": {"cache": "dynamic", "max_new_tokens": tokens},
        },
        batch_size=2,
        dtype="float32",
        memory_format="contiguous",
        phase="generate",
        calls=tuple(calls),
    )


def test_a_step_is_what_lies_between_two_choices() -> None:
    found = steps_of(generation(4))
    assert [sizes_of(each) for each in found] == [{"batch": 2, "context": c} for c in (10, 11, 12)]
    assert list(found[1].calls) == [call("relu", 2, 11), call("sigmoid", 11), CHOSEN]


def test_a_stretch_ends_where_something_else_grows() -> None:
    steps = steps_of(generation(101, full=40))
    found = [[sizes_of(each)["context"] for each in some] for some in stretches(steps)]
    assert [(each[0], each[-1]) for each in found] == [(10, 40), (41, 109)]
    assert growing(steps[0], steps[1]) == {0: (0, 1), 1: (1,)}


def test_few_of_many_steps_are_benched_and_all_of_few() -> None:
    whole = generation(256)
    [stretch] = stretches(steps_of(whole))
    at = [sizes_of(each)["context"] for each in knots(stretch)]
    assert (at[0], at[-1]) == (10, 264)
    assert 5 <= len(at) <= 8
    calls = benched_calls(whole)
    assert [calls[0], calls[-1]] == [call("relu", 2, 99), call("relu", 2, 999)]  # what is no step
    assert len(calls) == 2 + 3 * len(at) + 1
    assert benched_configurations([whole]).keys() == {c.configuration.key for c in calls}
    short = generation(3)
    assert benched_calls(short) == short.calls
    added = benched_configurations([whole, short]).keys() - benched_configurations([whole])
    assert added == {call("relu", 2, 11).configuration.key, call("sigmoid", 11).configuration.key}
