"""Passes of a decoder: between measured ones, steps of a generation, and sums of passes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from opdb.growth import (
    Growth,
    NotAlikeError,
    PlaceCalls,
    Sizes,
    cache_bytes,
    growing,
    sizes_of,
    stands_for,
    steps_of,
    stretches,
)
from opdb.kinds import get_kind
from opdb.memory import bytes_moved
from opdb.predict.timeline import EstimatedCosts
from opdb.records import BETWEEN, Configuration, Cost, PassMemory, Quantity, Workload, mean_of

# From the passes of a generation to the whole: one prefill, and a step for each further token.


def step_weights(knots: Sequence[int], first: int, last: int) -> list[float]:
    """Return how many steps each knot stands for, of one step at each length from first to last.

    A step between two knots counts to both, by its distance: steps are interpolated linearly. No
    step lies beyond the last knot.
    """
    if len(knots) == 1:
        return [float(last - first + 1)]
    found = [0.0] * len(knots)
    at = 0
    for length in range(first, last + 1):
        while length > knots[at + 1]:
            at += 1
        share = (length - knots[at]) / (knots[at + 1] - knots[at])
        found[at] += 1 - share
        found[at + 1] += share
    return found


# Passes between measured ones: each call's cost interpolated over a ladder of sizes.
#
# The rungs are passes of one model at several batch sizes and lengths. Between two rungs where a
# call was measured its cost is a straight line, times what its work (operations, else bytes) is
# above or below the straight line of the rungs' work. How wrong that is, is seen at rungs that are
# left out. The steps of a whole generation are such passes, too.


REACH = 4.0
"""At most how far beyond the first or last rung a ladder is followed, as a ratio."""

PRIOR, PRIOR_BEYOND = 0.05, 0.10
"""The error of what grows, between and beyond rungs, where none can be left out to see it."""

RungWeights = Mapping[int, float]
"""What each rung (its number) counts at a place on the ladder; in all 1."""


def _on_line(values: Sequence[int], at: int) -> dict[int, float] | None:
    """Return the two values that a straight line through `at` goes by, and the share of each.

    One alone where it is `at`. Beyond the ends, the last two; None where that is too far, or there
    is but one.
    """
    values = sorted(set(values))
    if at in values:
        return {at: 1.0}
    if len(values) < 2 or not values[0] / REACH <= at <= values[-1] * REACH:
        return None
    above = next((i for i, each in enumerate(values) if each > at), len(values) - 1)
    low, high = values[max(0, above - 1)], values[max(1, above)]
    share = (at - low) / (high - low)
    return {low: 1 - share, high: share}


def rung_weights(rungs: Sequence[tuple[int, int]], at: tuple[int, int]) -> RungWeights | None:
    """Return what rungs, each a batch size and a length, count at a batch size and a length.

    None where they do not reach it.
    """
    number = {rung: each for each, rung in reversed(list(enumerate(rungs)))}
    batch, length = at
    rows = {
        each: row
        for each in {rung[0] for rung in rungs}
        if (row := _on_line([rung[1] for rung in rungs if rung[0] == each], length)) is not None
    }
    batches = _on_line(list(rows), batch)
    if batches is None:
        return None
    return {
        number[each, of]: share * part
        for each, share in batches.items()
        for of, part in rows[each].items()
    }


@dataclass(frozen=True, eq=False)
class Interpolated:
    """Costs between rungs, by configuration key; `errors` are those of their sums.

    They are root mean squares of what rungs left out were off by: of times, of dynamic energies.
    """

    costs: Mapping[str, Cost]
    errors: tuple[float, float]
    refused: Mapping[str, str] = field(default_factory=dict)

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls.

        The errors of all calls go together.
        """
        time_s = sum(n * mean_of(self.costs[key].time_s) for key, n in counts.items())
        dynamic_j = sum(n * mean_of(self.costs[key].dynamic_energy_j) for key, n in counts.items())
        half_s, half_j = 2 * self.errors[0] * time_s, 2 * self.errors[1] * dynamic_j
        return half_s, None if base_w is None else math.hypot(base_w * half_s, half_j)


@dataclass(frozen=True)
class InPart:
    """Costs between rungs, and estimates of the calls that no line reaches; errors are apart."""

    between: Interpolated
    rest: EstimatedCosts

    @property
    def costs(self) -> Mapping[str, Cost]:
        return {**self.rest.costs, **self.between.costs}

    @property
    def refused(self) -> Mapping[str, str]:
        return self.rest.refused

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        on_lines = {key: n for key, n in counts.items() if key in self.between.costs}
        others = {key: n for key, n in counts.items() if key not in on_lines}
        line_s, line_j = self.between.half_widths(on_lines, base_w)
        rest_s, rest_j = self.rest.half_widths(others, base_w)
        joules = None if line_j is None or rest_j is None else math.hypot(line_j, rest_j)
        return math.hypot(line_s, rest_s), joules


class Ladder:
    """Passes that make the same calls, and the costs of these on one board (by key).

    A call that was not measured on some rungs is interpolated between the others.
    """

    def __init__(self, rungs: Sequence[Workload], costs: Mapping[str, Cost]) -> None:
        self._growth = Growth(rungs)
        self._costs = costs
        self._rungs = [_place_of(sizes) for sizes in self._growth.sizes]
        distinct = self._growth.distinct
        grows = {which for which, place in distinct.items() if len(set(place)) > 1}
        places = enumerate(self._growth.places)
        self._grown = [(number, place) for number, place in places if id(place) in grows]
        counts = Counter(id(place) for _, place in self._grown)
        self._counts = [(distinct[which], times) for which, times in counts.items()]
        self._measured = {
            which: tuple(n for n, each in enumerate(distinct[which]) if _is_known(each, costs))
            for which in counts
        }
        self._weights = cache(self._weights_of)

    def at(self, sizes: Sizes) -> tuple[Workload, Interpolated] | None:
        """Return the pass of these sizes with its interpolated costs; None where out of reach."""
        found = rung_weights(self._rungs, _place_of(sizes))
        if found is None:
            return None
        stored = zip(self._growth.workloads, self._growth.sizes, strict=True)
        workload = next((each for each, its in stored if its == sizes), None)
        workload = workload or self._growth.at(sizes)
        interpolated = self.costs_of(workload)
        assert interpolated is not None  # it reaches these sizes
        return replace(workload, memory=self._memory(found, workload)), interpolated

    def costs_of(self, workload: Workload) -> Interpolated | None:
        """Return the costs of a pass that makes the same calls; None where out of reach."""
        at = _place_of(sizes_of(workload))
        found = rung_weights(self._rungs, at)
        if found is None:
            return None
        costs: dict[str, Cost] = {}
        parts: dict[tuple[int, ...], list[Cost]] = defaultdict(list)
        for number, place in self._grown:
            each, rungs = workload.calls[number].configuration, self._measured[id(place)]
            if each.key not in costs:
                shares = self._weights(rungs, at)
                cost = None if shares is None else self._cost(place, shares, each)
                if cost is None:
                    continue
                costs[each.key] = cost
            parts[rungs].append(costs[each.key])
        return Interpolated(costs, self._errors_of(parts, at))

    def _errors_of(
        self, parts: Mapping[tuple[int, ...], Sequence[Cost]], at: tuple[int, int]
    ) -> tuple[float, float]:
        """Return the errors of a sum of calls, by the rungs (numbers) that tell of them."""
        errors = {rungs: self.errors(at, rungs) for rungs in parts}
        sums = {
            rungs: [
                math.fsum(mean_of(cost.time_s) for cost in costs),
                math.fsum(mean_of(cost.dynamic_energy_j) for cost in costs),
            ]
            for rungs, costs in parts.items()
        }
        time, energy = (
            math.fsum(errors[rungs][of] * own[of] for rungs, own in sums.items())
            / (math.fsum(own[of] for own in sums.values()) or 1.0)
            for of in (0, 1)
        )
        return time, energy

    def _weights_of(self, rungs: tuple[int, ...], at: tuple[int, int]) -> RungWeights | None:
        found = rung_weights([self._rungs[number] for number in rungs], at)
        return found and {rungs[number]: share for number, share in found.items()}

    def errors(
        self, at: tuple[int, int], among: Sequence[int] | None = None
    ) -> tuple[float, float]:
        """Return the errors at a place: of the times and of the dynamic energies of what grows.

        They are seen where a rung is left out that lies as the place does: beyond an end of its
        lengths or between two of them, and so of its batch sizes. `among` are the rungs (numbers)
        that tell of the place; all unless given.
        """
        numbers = tuple(range(len(self._rungs))) if among is None else tuple(among)
        rungs = {number: self._rungs[number] for number in numbers}
        told_by = [rungs[number] for number in self._weights(numbers, at) or ()]
        squares_s: list[float] = []
        squares_j: list[float] = []
        for axis in (0, 1):
            values = {rung[axis] for rung in told_by}
            if values <= {at[axis]}:
                continue
            beyond = not min(values) <= at[axis] <= max(values)
            prior = PRIOR_BEYOND if beyond else PRIOR
            left_out = _left_out(rungs, axis, beyond)
            seen = [self._error(*each) for each in left_out] or [(prior, prior)]
            squares_s.append(sum(error_s**2 for error_s, _ in seen) / len(seen))
            squares_j.append(sum(error_j**2 for _, error_j in seen) / len(seen))
        return math.sqrt(sum(squares_s)), math.sqrt(sum(squares_j))

    def _error(self, number: int, shares: RungWeights) -> tuple[float, float]:
        """Return by how much what grows is off at a rung that is left out: time, dynamic energy."""
        times: list[_Compared] = []
        energies: list[_Compared] = []
        for place, count in self._counts:
            if not {number, *shares} <= set(self._measured[id(place)]):
                continue
            own = self._costs[place[number].key]
            parts, curved = self._parts(place, shares, place[number])
            time_s = _line([(n, each.time_s) for n, each in parts], curved)
            energy_j = _line([(n, each.dynamic_energy_j) for n, each in parts], curved)
            if time_s is not None:
                times.append((count, time_s, own.time_s))
                energies.append((count, energy_j, own.dynamic_energy_j))
        return _off(times), _off(energies)

    def _parts(
        self, place: PlaceCalls, shares: RungWeights, at: Configuration
    ) -> tuple[list[tuple[float, Cost]], float]:
        parts = [(share, self._costs[place[number].key]) for number, share in shares.items()]
        return parts, _curved([(share, place[number]) for number, share in shares.items()], at)

    def _cost(self, place: PlaceCalls, shares: RungWeights, at: Configuration) -> Cost | None:
        """Return the cost of a call between rungs; None where one of them has none."""
        parts, curved = self._parts(place, shares, at)
        nearest = max(parts, key=lambda part: part[0])[1]
        time_s = _line([(n, each.time_s) for n, each in parts], curved)
        if time_s is None:
            return None
        ratio = time_s.mean / own if (own := mean_of(nearest.time_s)) else 1.0
        hosts = {
            form: _line([(n, each.host_time_s.get(form)) for n, each in parts]) or usual
            for form, usual in nearest.host_time_s.items()
        }
        return replace(
            nearest,
            configuration=at.key,
            visits=0,
            time_s=time_s,
            eager_time_s=_line([(n, each.eager_time_s) for n, each in parts], curved),
            power_w=None,
            energy_j=None,
            dynamic_energy_j=_line([(n, each.dynamic_energy_j) for n, each in parts], curved),
            host_time_s=hosts,
            limited=nearest.limited and nearest.limited.scaled(ratio, ratio),
            hot=nearest.hot and nearest.hot.scaled(ratio, ratio),
            reasons={},
            flags=(BETWEEN,),
        )

    def _memory(self, shares: RungWeights, workload: Workload) -> PassMemory | None:
        """Return the memory of a pass between rungs: it grows in straight lines.

        Its cache is as its calls show it, for those of rungs may have other lengths.
        """
        rungs = [(share, self._growth.workloads[n]) for n, share in shares.items()]
        if any(rung.memory is None for _, rung in rungs):
            return None
        names = PassMemory.__dataclass_fields__.keys() - {"cache_bytes"}
        found = {n: sum(share * getattr(r.memory, n) for share, r in rungs) for n in names}
        of_rungs = sum(share * cache_bytes(rung) for share, rung in rungs)
        found["weight_bytes"] += cache_bytes(workload) - of_rungs
        return PassMemory(**{name: max(0, round(size)) for name, size in found.items()})


def _place_of(sizes: Sizes) -> tuple[int, int]:
    """Return the batch size of a pass, and the length that it takes its time from.

    That of a step is the allocated one of a static cache, else the filled one; that of a prefill
    is the prompt.
    """
    if "prompt" in sizes:
        return sizes["batch"], sizes["prompt"]
    return sizes["batch"], sizes.get("length", sizes["context"])


def _left_out(
    rungs: Mapping[int, tuple[int, int]], axis: int, beyond: bool
) -> list[tuple[int, RungWeights]]:
    """Return rungs (numbers) that can be left out, with what the others count in their place."""
    found: list[tuple[int, RungWeights]] = []
    for number, rung in rungs.items():
        row = [i for i, each in rungs.items() if each[1 - axis] == rung[1 - axis]]
        others = {rungs[i][axis]: i for i in row if i != number}
        if len(others) < 2 or beyond == (min(others) < rung[axis] < max(others)):
            continue
        if (shares := _on_line(list(others), rung[axis])) is not None:
            found.append((number, {others[value]: share for value, share in shares.items()}))
    return found


_Compared = tuple[int, Quantity | None, Quantity | None]
"""How often a call is made, its quantity between rungs, and as it was measured."""


def _off(calls: Sequence[_Compared]) -> float:
    """Return by which share of the measured sum the other one is off; 0.0 where that is none."""
    measured = sum(count * mean_of(own) for count, _, own in calls)
    return (
        sum(count * mean_of(line) for count, line, _ in calls) / measured - 1 if measured else 0.0
    )


def _line(parts: Sequence[tuple[float, Quantity | None]], curved: float = 1.0) -> Quantity | None:
    """Return quantities at a place on their line, bent by a factor; None where one is unknown.

    Where the line falls too low beyond its end, the least of them, by as much as lines reach.
    """
    known = [(share, each.mean) for share, each in parts if each is not None]
    if len(known) < len(parts):
        return None
    value = curved * sum(share * mean for share, mean in known)
    value = max(value, min(mean for _, mean in known) / REACH)
    return Quantity(value, value, None, None, 0)


@cache
def _work(configuration: Configuration) -> int:
    kind = get_kind(configuration.kind)
    if not kind.launches(configuration):
        return 0
    return kind.flops(configuration) or bytes_moved(configuration)


def _curved(parts: Sequence[tuple[float, Configuration]], at: Configuration) -> float:
    straight = sum(share * _work(each) for share, each in parts)
    return _work(at) / straight if straight > 0 else 1.0


def standing(
    workloads: Sequence[Workload], costs: Mapping[str, Cost], sizes: Sizes
) -> tuple[Workload, Interpolated] | None:
    """Return the pass of these sizes that was measured as a whole, else a step that stands for it.

    Nothing of it is interpolated. None where no such pass was measured.
    """
    measured = _measured(workloads, costs)
    own = next((each for each in measured if sizes_of(each) == sizes), None)
    own = own or next((each for each in measured if stands_for(each, sizes)), None)
    return None if own is None else (own, Interpolated({}, (0.0, 0.0)))


def between(
    workloads: Sequence[Workload], costs: Mapping[str, Cost], sizes: Sizes
) -> tuple[Workload, Interpolated] | None:
    """Return a pass between those that were measured as a whole, with its interpolated costs.

    One of these sizes is returned as it was measured (`standing`). None where they do not reach it.
    """
    own = standing(workloads, costs, sizes)
    return own or in_part_between(_measured(workloads, costs), costs, sizes)


def in_part_between(
    workloads: Sequence[Workload], costs: Mapping[str, Cost], sizes: Sizes
) -> tuple[Workload, Interpolated] | None:
    """Return a pass between others, with the costs of the calls that lines reach.

    None where the passes do not reach it. Passes that make other calls, such as those that find a
    sliding window full, are ladders of their own: of these a pass lies on the one that has its
    context. A ladder with a pass of these very sizes comes first.
    """
    ladders: dict[str, dict[object, list[Workload]]] = {}
    for each in workloads:
        of_version = ladders.setdefault(each.source_version, {})
        of_version.setdefault(each.made, []).append(each)
    groups = [
        rungs
        for of_version in ladders.values()
        for rungs in of_version.values()
        if len(of_version) == 1 or _has_context(rungs, sizes)
    ]
    for rungs in sorted(groups, key=lambda rungs: all(sizes_of(e) != sizes for e in rungs)):
        try:
            found = Ladder(rungs, costs).at(sizes)
        except NotAlikeError:
            continue
        if found is not None:
            return found
    return None


def _measured(workloads: Sequence[Workload], costs: Mapping[str, Cost]) -> list[Workload]:
    return [each for each in workloads if all(_is_known(c, costs) for c in each.occurrences())]


def between_steps(generation: Workload, costs: Mapping[str, Cost]) -> Interpolated:
    """Return the costs of a whole generation's calls between steps of it that were measured.

    Each stretch of its steps is a ladder of its own. The errors are the largest of any.
    """
    found: dict[str, Cost] = {}
    errors = [(0.0, 0.0)]
    for stretch in stretches(steps_of(generation)):
        grown = growing(stretch[0], stretch[-1]) or {}
        rungs = [
            each
            for each in stretch
            if all(_is_known(each.calls[place].configuration, costs) for place in grown)
        ]
        if len(rungs) < 2:
            continue
        ladder = Ladder(rungs, costs)
        for each in (ladder.costs_of(step) for step in stretch if step not in rungs):
            if each is not None:
                found |= each.costs
                errors.append(each.errors)
    times, energies = zip(*errors, strict=True)
    return Interpolated(found, (max(times), max(energies)))


def _is_known(configuration: Configuration, costs: Mapping[str, Cost]) -> bool:
    cost = costs.get(configuration.key)
    return cost is not None and cost.time_s is not None


def _has_context(rungs: Sequence[Workload], sizes: Sizes) -> bool:
    if "context" not in sizes:
        return False
    contexts = [sizes_of(each)["context"] for each in rungs]
    return min(contexts) <= sizes["context"] <= max(contexts)
