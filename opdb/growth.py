"""What of a decoder's passes grows from one size to the next. Pure: no torch, no database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import chain, combinations, combinations_with_replacement, pairwise
from math import prod
from typing import TypeAlias

from opdb.kinds.view import spec_bytes
from opdb.records import Call, Configuration, Json, Workload

# What of a decoder's passes grows with batch and lengths, and a pass at sizes in between.
#
# Passes of one model at several sizes make the same calls in the same order; what differs is a size
# here and there. Each size that differs is found to be a constant times a product of batch,
# positions and so on, so that the calls of a pass at other sizes follow. No model is built for
# that.


Sizes = Mapping[str, int]
"""The sizes of a pass, by name: batch, prompt or context, and the length of a static cache."""

PlaceCalls = tuple[Configuration, ...]
"""What several passes call at one place of their common sequence, one of each."""

MOST_TERMS = 3
"""Terms of a product at most in which one is there several times."""

_AFTER = "context + 1"
"""The positions that are filled after a decoding step."""


class NotAlikeError(Exception):
    """Passes make other calls than each other, or sizes of calls follow no known rule."""


def sizes_of(workload: Workload) -> dict[str, int]:
    generation = workload.inputs["generation"]
    found = {"batch": workload.batch_size}
    if workload.phase == "prefill":
        found["prompt"] = int(workload.inputs["args"][0]["shape"][1])
    else:
        found["context"] = int(generation["context"])
    if "cache_length" in generation:
        found["length"] = int(generation["cache_length"])
    return found


@dataclass(frozen=True)
class Rule:
    """A size that is `factor` times the product of the terms `of`, and `plus` a constant."""

    factor: Fraction
    of: tuple[str, ...]
    plus: int = 0

    def at(self, terms: Sizes) -> int:
        found = self.factor * prod(terms[name] for name in self.of) + self.plus
        if found.denominator != 1:
            raise NotAlikeError(f"a size of {float(found):g}")
        return int(found)


def rules(values: Sequence[int], terms: Sequence[Sizes]) -> list[Rule]:
    """Return the shortest rules that give one size's value in each pass from the pass's terms.

    A product, or else one of the terms and a constant (positions less those beyond a window), or a
    constant less one of the terms (what a cache still lacks), or else a product in which terms are
    there several times (each position's mask of all).
    """
    for count in range(len(terms[0]) + 1):
        if found := _products(values, terms, combinations(terms[0], count)):
            return found
    apart = {
        (sign, name): {v - sign * t[name] for v, t in zip(values, terms, strict=True)}
        for sign in (1, -1)
        for name in terms[0]
    }
    found = [
        Rule(Fraction(sign), (name,), by.pop())
        for (sign, name), by in apart.items()
        if len(by) == 1
    ]
    of = chain(*(combinations_with_replacement(terms[0], n) for n in range(2, MOST_TERMS + 1)))
    return found or _products(values, terms, of)


def _products(
    values: Sequence[int], terms: Sequence[Sizes], of: Iterable[tuple[str, ...]]
) -> list[Rule]:
    found = []
    for names in of:
        products = [prod(each[name] for name in names) for each in terms]
        factors = {Fraction(v, p) for v, p in zip(values, products, strict=True)}
        if len(factors) == 1:
            found.append(Rule(factors.pop(), names))
    return found


class Growth:
    """Passes of one model that make the same calls, at several sizes."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        if len({each.made for each in workloads}) != 1:
            raise NotAlikeError("the passes make other calls")
        self.workloads = workloads
        self.sizes = [sizes_of(each) for each in workloads]
        self._terms = list(map(_terms, self.sizes))
        self._rules = cache(self._find_rules)

    @cached_property
    def places(self) -> list[PlaceCalls]:
        """What the passes call at each place of the sequence; where that is the same, one object.

        Places are told apart by which objects they hold, as of one configuration there are few.
        """
        every = ([call.configuration for call in each.calls] for each in self.workloads)
        known: dict[tuple[int, ...], PlaceCalls] = {}
        return [known.setdefault(tuple(map(id, p)), p) for p in zip(*every, strict=True)]

    @cached_property
    def distinct(self) -> dict[int, PlaceCalls]:
        """Each place once, by the `id` of the object in `places`."""
        return {id(place): place for place in self.places}

    def at(self, sizes: Sizes) -> Workload:
        first = min(range(len(self.sizes)), key=lambda number: self._distance(number, sizes))
        terms, new = _terms(sizes), {}
        for which, place in self.distinct.items():
            new[which] = place[first]
            if len(set(place)) > 1:
                documents = [[dict(each.parameters), dict(each.inputs)] for each in place]
                parameters, inputs = self._json(documents, first, terms)
                new[which] = replace(place[first], parameters=parameters, inputs=inputs)
        configurations = [new[id(place)] for place in self.places]
        model = self.workloads[first]
        generation = {**model.inputs["generation"]}
        for name, size in (("context", "context"), ("cache_length", "length")):
            if size in sizes:
                generation[name] = sizes[size]
        given = [{**each.inputs, "generation": {}} for each in self.workloads]
        inputs = self._json(given, first, terms)
        calls = [
            call if call.configuration is found else replace(call, configuration=found)
            for call, found in zip(model.calls, configurations, strict=True)
        ]
        return replace(
            model,
            inputs={**inputs, "generation": generation},
            batch_size=sizes["batch"],
            calls=tuple(calls),
            memory=None,
        )

    def _distance(self, number: int, sizes: Sizes) -> tuple[bool, float]:
        """Return how unlike a pass is: a batch of 1 has other strides than a larger one."""
        own = self.sizes[number]
        other = (own["batch"] == 1) != (sizes["batch"] == 1)
        return other, sum(abs(own[name] - size) / size for name, size in sizes.items())

    def _json(self, documents: Sequence[Json], first: int, terms: Sizes) -> Json:
        """Return what the documents of the passes say, made after the first's, at other terms."""
        model = documents[first]
        of = [number for number, each in enumerate(documents) if _is_alike(each, model)]
        for name, size in terms.items():
            known = {self._terms[number][name] for number in of}
            if len(known) == 1 and known != {size}:
                raise NotAlikeError(f"all passes have the same {name}")

        def joined(values: Sequence[Json], like: Json) -> Json:
            if all(each == like for each in values):
                return like
            if isinstance(like, dict):
                return {name: joined([e[name] for e in values], like[name]) for name in like}
            if isinstance(like, list):
                return [joined([e[i] for e in values], like[i]) for i in range(len(like))]
            found = {rule.at(terms) for rule in self._rules(tuple(values), tuple(of))}
            if len(found) > 1:
                raise NotAlikeError("sizes follow several rules, which disagree")
            return found.pop()

        return joined([documents[number] for number in of], model)

    def _find_rules(self, values: tuple[int, ...], of: tuple[int, ...]) -> list[Rule]:
        if found := rules(values, [self._terms[number] for number in of]):
            return found
        raise NotAlikeError(f"sizes {', '.join(map(str, values))} follow no rule")


def _terms(sizes: Sizes) -> dict[str, int]:
    return {**sizes, _AFTER: sizes["context"] + 1} if "context" in sizes else dict(sizes)


def numbers_of(configuration: Configuration) -> list[int]:
    return _numbers([configuration.parameters, configuration.inputs])


def are_alike(one: Configuration, other: Configuration) -> bool:
    return (
        one.kind == other.kind
        and _is_alike(dict(one.parameters), dict(other.parameters))
        and _is_alike(dict(one.inputs), dict(other.inputs))
    )


def _is_number(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_alike(one: Json, other: Json) -> bool:
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_alike(one[n], other[n]) for n in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_alike, one, other))
    return _is_number(one) and _is_number(other)


def _numbers(value: Json) -> list[int]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [value] if _is_number(value) else []


# The cache of a decoding step: what of it is kept, and which steps cost the same.


def cached(step: Workload) -> Iterator[dict[str, Json]]:
    """Yield the specs of the keys and values that the calls of a pass find in its cache.

    A prompt longer than a sliding window replaces what a static cache keeps of it by a copy.
    """
    for call in step.calls:
        inputs = call.configuration.inputs
        kind = call.configuration.kind
        if kind == "index_copy" or kind == ("copy" if step.phase == "prefill" else "roll"):
            spec = inputs["input"]
        elif kind == "cat":
            spec = inputs["tensors"][0]
        else:
            continue
        if spec.get("role") == "weight" and len(spec["shape"]) == 4:
            yield spec


def cache_bytes(workload: Workload) -> int:
    """Return the bytes of what a pass finds and that has the batch in its shape.

    Where the harvest did not record it apart, it is the keys and values that the pass's calls find.
    """
    recorded = None if workload.memory is None else workload.memory.cache_bytes
    return sum(map(spec_bytes, cached(workload))) if recorded is None else recorded


def window_of(step: Workload) -> int | None:
    """Return the window of a decoding step whose cache keeps fewer positions than it could.

    A static cache keeps as many as the window, a dynamic one, once it is full, one fewer. None
    where there is none, or where a dynamic cache does not show it yet.
    """
    kept = min((int(spec["shape"][2]) for spec in cached(step)), default=None)
    generation = step.inputs["generation"]
    if kept is None:
        return None
    if generation["cache"] == "static":
        return kept if kept < generation["cache_length"] else None
    return kept + 1 if kept < generation["context"] else None


def stands_for(step: Workload, sizes: Sizes) -> bool:
    """Return whether a decoding step with a static cache costs what one of other sizes does.

    It does where batch and cache length are the same, because all positions are read, filled or
    not. Where a sliding window keeps fewer, both must find it full, or neither.
    """
    own = sizes_of(step)
    if own.keys() != {"batch", "context", "length"} or own.keys() != sizes.keys():
        return False
    if any(own[name] != sizes[name] for name in ("batch", "length")):
        return False
    window = window_of(step)
    return window is None or (own["context"] >= window) == (sizes["context"] >= window)


# The steps of a whole generation, as its calls show them, and which of them are benched.
#
# A generation chooses a token after each pass. The calls from one choice to the next are a step,
# with all that `generate` calls around it. From step to step the same sizes grow by the same
# amount, until something else begins, such as a sliding window that is full: that is a stretch. Its
# calls are benched at a few of its steps (knots), between which costs are interpolated.


CHOICE = "argmax"
"""The kind of the call that chooses each sequence's next token."""

PARTS = 4
"""Into so many parts knots divide a stretch at least: to leave out those between shows errors."""

RATIO = 2.0
"""At most by how much the filled length grows from one knot, or predicted step, to the next."""

SizeGrowth: TypeAlias = dict[int, tuple[int, ...]]
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


def growing(before: Workload, after: Workload) -> SizeGrowth | None:
    """Return by how much sizes grow from one step to another; None where they make other calls."""
    if before.made != after.made:
        return None
    known: dict[tuple[Configuration, Configuration], tuple[int, ...]] = {}
    found: SizeGrowth = {}
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
    by: SizeGrowth | None = None
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
    called = (call.configuration for each in workloads for call in benched_calls(each))
    return {each.key: each for each in dict.fromkeys(called)}
