"""The steps of a whole generation, as its calls show them, and which of them are benched.

A generation chooses a token after each pass. The calls from one choice to the next are a step, with
all that `generate` calls around it. From step to step the same sizes grow by the same amount, until
something else begins, such as a sliding window that is full: that is a stretch. Its calls are
benched at a few of its steps (knots), between which costs are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from opdb.growth.passes import are_alike, numbers_of, sizes_of
from opdb.records import Call, Configuration, Workload, made

CHOICE = "argmax"
"""The kind of the call that chooses each sequence's next token."""

PARTS = 4
"""Into so many parts knots divide a stretch at least: to leave out those between shows errors."""

RATIO = 2.0
"""At most by how much the filled length grows from one knot, or predicted step, to the next."""

Difference: TypeAlias = dict[int, tuple[int, ...]]
"""By how much the sizes of calls grow from one step to the next, by the calls' places."""


def lengths(first: int, last: int, least: int = 2) -> list[int]:
    """Return the filled lengths that stand for all from the first to the last, both among them.

    They lie in equal ratios, each at most `RATIO` times the one before, and divide what lies
    between into `least` parts or more, where there is room for them.
    """
    if last <= first:
        return [first]
    parts = max(least, math.ceil(math.log(last / first) / math.log(RATIO)))
    inner = (round(first * (last / first) ** (i / parts)) for i in range(parts + 1))
    return sorted({first, last, *inner})


def steps_of(generation: Workload) -> list[Workload]:
    """Return the steps of a whole generation, each a pass with the positions filled before it.

    None (an empty list) where there is not one choice for each new token, or one token alone.
    """
    said = generation.inputs["generation"]
    choices = [n for n, c in enumerate(generation.calls, 1) if c.configuration.kind == CHOICE]
    if len(choices) != said["max_new_tokens"]:
        return []
    prompt = int(generation.inputs["args"][0]["shape"][1])
    return [
        as_step(generation, prompt + number, generation.calls[begin:end])
        for number, (begin, end) in enumerate(pairwise(choices))
    ]


def apart_from(
    generation: Workload, steps: Sequence[Workload]
) -> tuple[Sequence[Call], Sequence[Call]]:
    """Return the calls of a generation before its steps (`steps_of`, not empty), and after them."""
    within = sum(len(each.calls) for each in steps)
    kinds = (call.configuration.kind for call in generation.calls)
    begin = next(number for number, kind in enumerate(kinds, 1) if kind == CHOICE)
    return generation.calls[:begin], generation.calls[begin + within :]


def as_step(generation: Workload, context: int, calls: Sequence[Call]) -> Workload:
    """Return calls of a generation as one step, before which so many positions are filled."""
    cache = generation.inputs["generation"]["cache"]
    inputs = {"args": [], "generation": {"cache": cache, "context": context}}
    return replace(generation, phase="decode", inputs=inputs, calls=tuple(calls), memory=None)


def growing(before: Workload, after: Workload) -> Difference | None:
    """Return by how much sizes grow from one step to another; None where they make other calls."""
    if len(before.calls) != len(after.calls) or made(before.calls) != made(after.calls):
        return None
    known: dict[tuple[Configuration, Configuration], tuple[int, ...]] = {}
    found: Difference = {}
    for place, (one, other) in enumerate(zip(before.calls, after.calls, strict=True)):
        pair = one.configuration, other.configuration
        if pair[0] is pair[1] or pair[0] == pair[1]:
            continue
        if pair not in known:
            if not are_alike(*pair):
                return None
            numbers = zip(*map(numbers_of, pair), strict=True)
            known[pair] = tuple(b - a for a, b in numbers)
        found[place] = known[pair]
    return found


def stretches(steps: Sequence[Workload]) -> list[list[Workload]]:
    """Return consecutive steps by stretches, in each of which the same sizes grow alike."""
    found: list[list[Workload]] = [[each] for each in steps[:1]]
    by: Difference | None = None
    for before, after in pairwise(steps):
        difference = growing(before, after)
        goes_on = difference is not None and (len(found[-1]) == 1 or difference == by)
        if goes_on:
            found[-1].append(after)
        else:
            found.append([after])
        by = difference
    return found


def knots(stretch: Sequence[Workload]) -> list[Workload]:
    """Return the steps of a stretch whose calls are benched."""
    contexts = [sizes_of(each)["context"] for each in stretch]
    chosen = set(lengths(contexts[0], contexts[-1], PARTS))
    return [each for each, at in zip(stretch, contexts, strict=True) if at in chosen]


def benched_calls(workload: Workload) -> Sequence[Call]:
    """Return the calls of a workload that are benched: of a whole generation, few steps' of many.

    What is neither a prefill's nor a knot's is interpolated. Of all other workloads it is all.
    """
    steps = steps_of(workload) if workload.phase == "generate" else []
    if not steps:
        return workload.calls
    chosen = [call for each in stretches(steps) for knot in knots(each) for call in knot.calls]
    before, after = apart_from(workload, steps)
    return (*before, *chosen, *after)


def benched_configurations(workloads: Iterable[Workload]) -> dict[str, Configuration]:
    """Return every configuration that is benched of workloads, by key, in order."""
    called = (call.configuration for each in workloads for call in benched_calls(each))
    return {each.key: each for each in dict.fromkeys(called)}
