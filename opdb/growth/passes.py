"""What of a decoder's passes grows with batch and lengths, and a pass at sizes in between.

Passes of one model at several sizes make the same calls in the same order; what differs is a size
here and there. Each size that differs is found to be a constant times a product of batch, positions
and so on, so that the calls of a pass at other sizes follow. No model is built for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import chain, combinations, combinations_with_replacement
from math import prod

from opdb.records import Configuration, Json, Workload

Sizes = Mapping[str, int]
"""The sizes of a pass, by name: batch, prompt or context, and the length of a static cache."""

Place = tuple[Configuration, ...]
"""What several passes call at one place of their common sequence, one of each."""

MOST_TERMS = 3
"""Terms of a product at most in which one is there several times."""

_AFTER = "context + 1"
"""The positions that are filled after a decoding step."""


class NotAlikeError(Exception):
    """Passes make other calls than each other, or sizes of calls follow no known rule."""


def sizes_of(workload: Workload) -> dict[str, int]:
    """Return the sizes of a prefill or a decoding step."""
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
        """Return the size at other terms.

        Raises:
            NotAlikeError: it would be no whole number.
        """
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
    """Return the rules by which values are a constant times a product of some terms."""
    found = []
    for names in of:
        products = [prod(each[name] for name in names) for each in terms]
        factors = {Fraction(v, p) for v, p in zip(values, products, strict=True)}
        if len(factors) == 1:
            found.append(Rule(factors.pop(), names))
    return found


class Growth:
    """Passes of one model that make the same calls, at several sizes.

    Raises:
        NotAlikeError: they make other calls.
    """

    def __init__(self, workloads: Sequence[Workload]) -> None:
        if len({each.made for each in workloads}) != 1:
            raise NotAlikeError("the passes make other calls")
        self.workloads = workloads
        self.sizes = [sizes_of(each) for each in workloads]
        self._terms = list(map(_terms, self.sizes))
        self._rules = cache(self._find_rules)

    @cached_property
    def places(self) -> list[Place]:
        """What the passes call at each place of the sequence; where that is the same, one object.

        Places are told apart by which objects they hold, as of one configuration there are few.
        """
        every = ([call.configuration for call in each.calls] for each in self.workloads)
        known: dict[tuple[int, ...], Place] = {}
        return [known.setdefault(tuple(map(id, p)), p) for p in zip(*every, strict=True)]

    @cached_property
    def distinct(self) -> dict[int, Place]:
        """Each place once, by the `id` of the object in `places`."""
        return {id(place): place for place in self.places}

    def grows(self) -> dict[str, set[str]]:
        """Return, of each kind whose calls differ, the sizes that their sizes are products of.

        Raises:
            NotAlikeError: a size follows no rule.
        """
        found: dict[str, set[str]] = {}
        for place in self.distinct.values():
            every = [numbers_of(each) for each in place]
            if len(set(map(len, every))) != 1:
                raise NotAlikeError(f"calls of {place[0].kind} of another form")
            for values in zip(*every, strict=True):
                if len(set(values)) > 1:
                    found.setdefault(place[0].kind, set()).update(
                        self._rules(values, tuple(range(len(place))))[0].of
                    )
        return found

    def at(self, sizes: Sizes) -> Workload:
        """Return the pass at other sizes.

        Raises:
            NotAlikeError: a size of a call follows no rule, or several that disagree there.
        """
        first = min(range(len(self.sizes)), key=lambda number: self._distance(number, sizes))
        target = _Target(self, _terms(sizes), first)
        new = {which: target.configuration(place) for which, place in self.distinct.items()}
        configurations = [new[id(place)] for place in self.places]
        model = self.workloads[first]
        generation = {**model.inputs["generation"]}
        for name, size in (("context", "context"), ("cache_length", "length")):
            if size in sizes:
                generation[name] = sizes[size]
        inputs = target.json([{**each.inputs, "generation": {}} for each in self.workloads])
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

    def size(self, values: Sequence[int], of: Sequence[int], terms: Sizes) -> int:
        """Return a size at other terms that has these values in the passes `of` (numbers).

        Raises:
            NotAlikeError: it follows no rule, or several that disagree there.
        """
        found = {rule.at(terms) for rule in self._rules(tuple(values), tuple(of))}
        if len(found) > 1:
            raise NotAlikeError("sizes follow several rules, which disagree")
        return found.pop()

    def check_varied(self, of: Sequence[int], terms: Sizes) -> None:
        """Check that passes (numbers) differ in what is another in a pass of other terms.

        Raises:
            NotAlikeError: they do not, so that what depends on it cannot be told.
        """
        for name, size in terms.items():
            known = {self._terms[number][name] for number in of}
            if len(known) == 1 and known != {size}:
                raise NotAlikeError(f"all passes have the same {name}")

    def _find_rules(self, values: tuple[int, ...], of: tuple[int, ...]) -> list[Rule]:
        if found := rules(values, [self._terms[number] for number in of]):
            return found
        raise NotAlikeError(f"sizes {', '.join(map(str, values))} follow no rule")


@dataclass(frozen=True)
class _Target:
    """A pass at other terms, made after the pass `first`."""

    growth: Growth
    terms: Sizes
    first: int

    def configuration(self, place: Place) -> Configuration:
        """Return the call at a place; passes that describe it in another form do not count."""
        if len(set(place)) == 1:
            return place[self.first]
        documents = [[dict(each.parameters), dict(each.inputs)] for each in place]
        parameters, inputs = self.json(documents)
        return replace(place[self.first], parameters=parameters, inputs=inputs)

    def json(self, documents: Sequence[Json]) -> Json:
        """Return what documents of the same form say, their sizes as they are at the terms."""
        first = documents[self.first]
        alike = [number for number, each in enumerate(documents) if _is_alike(each, first)]
        self.growth.check_varied(alike, self.terms)
        return self._joined([documents[number] for number in alike], alike, first)

    def _joined(self, values: Sequence[Json], of: Sequence[int], first: Json) -> Json:
        if all(each == first for each in values):
            return first
        if isinstance(first, dict):
            return {n: self._joined([e[n] for e in values], of, first[n]) for n in first}
        if isinstance(first, list):
            return [self._joined([e[i] for e in values], of, first[i]) for i in range(len(first))]
        return self.growth.size(values, of, self.terms)


def _terms(sizes: Sizes) -> dict[str, int]:
    """Return what sizes of calls may be products of."""
    return {**sizes, _AFTER: sizes["context"] + 1} if "context" in sizes else dict(sizes)


def numbers_of(configuration: Configuration) -> list[int]:
    """Return the whole numbers that a configuration holds, in order."""
    return _numbers([configuration.parameters, configuration.inputs])


def are_alike(one: Configuration, other: Configuration) -> bool:
    """Return whether two calls are of one kind and differ in whole numbers alone."""
    return (
        one.kind == other.kind
        and _is_alike(dict(one.parameters), dict(other.parameters))
        and _is_alike(dict(one.inputs), dict(other.inputs))
    )


def _is_number(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_alike(one: Json, other: Json) -> bool:
    """Return whether two documents differ in whole numbers alone."""
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_alike(one[n], other[n]) for n in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_alike, one, other))
    return _is_number(one) and _is_number(other)


def _numbers(value: Json) -> list[int]:
    """Return the whole numbers of a document, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [value] if _is_number(value) else []
