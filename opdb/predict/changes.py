"""What moved between two predictions, or two databases: by how much, and by how many intervals.

A quantity moved where the logarithm of after / before is larger than the joint half width of both
95 % intervals, √(a² + b²). Errors that both sides share are not taken out of it: it is rather too
wide than too narrow.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opdb.compose import Schedule
from opdb.predict.figures import Amount
from opdb.records import Configuration, Cost, Quantity, positive_interval

WAITING = "waiting"


@dataclass(frozen=True)
class Change:
    """A quantity before and after; None where one is not known."""

    before: Amount | None
    after: Amount | None

    @property
    def ratio(self) -> float | None:
        """After / before; None where one is not known, or not above 0."""
        if self.before is None or self.after is None:
            return None
        if self.before.value <= 0 or self.after.value <= 0:
            return None
        return self.after.value / self.before.value

    @property
    def difference(self) -> float:
        """After - before; what is not known counts as 0."""
        return (self.after.value if self.after else 0) - (self.before.value if self.before else 0)

    @property
    def intervals(self) -> float | None:
        """The change in joint half widths; None where an interval is missing or has no width."""
        ratio, joint = self.ratio, self._joint
        if ratio == 1:
            return 0.0
        return abs(math.log(ratio)) / joint if ratio and joint else None

    @property
    def moved(self) -> bool | None:
        """Whether the change is larger than the joint interval; None where that is not known."""
        if self.ratio == 1:
            return False
        if self._joint is None:
            return None
        return self.intervals is None or self.intervals > 1

    @property
    def _joint(self) -> float | None:
        """Half the joint interval, on logarithms, of the ends that face each other."""
        below, above = self.before, self.after
        if self.ratio is None or below is None or above is None:
            return None
        if above.value < below.value:
            below, above = above, below
        if below.interval is None or above.interval is None or above.interval[0] <= 0:
            return None
        up = math.log(below.interval[1] / below.value)
        return math.hypot(up, math.log(above.value / above.interval[0]))


@dataclass(frozen=True)
class OperatorChange:
    """What calls of one configuration, or of one kind (`configuration` None), take in a pass.

    Of two databases it is one call of a configuration. `calls` are those before and after.
    """

    operator: str
    configuration: Configuration | None
    calls: tuple[int, int]
    time_s: Change
    energy_j: Change


@dataclass
class _Part:
    """The calls of one group: time (s), energy (J), and squares of their half widths."""

    operator: str
    configuration: Configuration | None
    calls: int = 0
    time_s: float = 0.0
    time_square: float = 0.0
    energy_j: float | None = 0.0
    energy_square: float = 0.0


def operator_changes(
    before: Schedule, after: Schedule, samples: tuple[int, int] = (1, 1)
) -> list[OperatorChange]:
    """Return what the operators of two passes take, the largest difference of time first.

    They are matched by configuration where both passes have the same ones, else by kind. Waiting is
    a row of its own, so that the differences add up to that of the passes; each pass is divided by
    its `samples`.
    """
    same = before.costs.keys() == after.costs.keys()
    parts = [_parts(schedule, same) for schedule in (before, after)]
    found = []
    for key in dict.fromkeys([*parts[0], *parts[1]]):
        each = [part.get(key) for part in parts]
        one = next(part for part in each if part is not None)
        times, energies = (
            Change(*(_amount(part, count, get) for part, count in zip(each, samples, strict=True)))
            for get in (_time, _energy)
        )
        calls = tuple(0 if part is None else part.calls for part in each)
        found.append(
            OperatorChange(one.operator, one.configuration, (calls[0], calls[1]), times, energies)
        )
    return _largest_first(found)


def cost_changes(
    configurations: Iterable[Configuration],
    before: Mapping[str, Cost],
    after: Mapping[str, Cost],
) -> list[OperatorChange]:
    """Return what one call of each configuration costs in two databases that both measured it."""
    found = []
    for each in configurations:
        old, new = before.get(each.key), after.get(each.key)
        if old is None or new is None or old.time_s is None or new.time_s is None:
            continue
        times = Change(_of(old.time_s), _of(new.time_s))
        energies = Change(_of(old.energy_j), _of(new.energy_j))
        found.append(OperatorChange(each.title, each, (1, 1), times, energies))
    return sorted(found, key=lambda row: abs(math.log(row.time_s.ratio or 1)), reverse=True)


def _of(quantity: Quantity | None) -> Amount | None:
    if quantity is None:
        return None
    known = quantity.low is not None and quantity.high is not None
    return Amount(quantity.mean, (quantity.low, quantity.high) if known else None)  # type: ignore[arg-type]


def _parts(schedule: Schedule, by_configuration: bool) -> dict[str, _Part]:
    """Return the groups of a pass by configuration (key) or kind, and its waiting."""
    parts: dict[str, _Part] = {}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    base_w = schedule.base_power_w
    busy_s = 0.0
    for slot in schedule.slots:
        configuration = slot.call.configuration
        name = configuration.key if by_configuration else configuration.title
        known = configuration if by_configuration else None
        part = parts.setdefault(name, _Part(configuration.title, known))
        part.calls += 1
        part.time_s += slot.device_s
        busy_s += slot.device_s
        dynamic = schedule.costs[configuration.key].dynamic_energy_j
        if base_w is None or dynamic is None or part.energy_j is None:
            part.energy_j = None
        else:
            part.energy_j += base_w * slot.device_s + dynamic.mean
        counts[name, configuration.key] += 1
    for (name, key), count in counts.items():
        cost = schedule.costs[key]
        time_half = count * (cost.time_s.half_width or 0.0)
        energy_half = count * ((cost.dynamic_energy_j and cost.dynamic_energy_j.half_width) or 0.0)
        parts[name].time_square += time_half**2
        parts[name].energy_square += ((base_w or 0.0) * time_half) ** 2 + energy_half**2
    waiting_s = schedule.end_s - schedule.start_s - busy_s
    if waiting_s > 0:
        waiting_j = None if base_w is None else base_w * waiting_s
        parts[WAITING] = _Part("waits for the host", None, 0, waiting_s, 0.0, waiting_j)
    return parts


def _time(part: _Part) -> tuple[float, float]:
    return part.time_s, math.sqrt(part.time_square)


def _energy(part: _Part) -> tuple[float, float] | None:
    return None if part.energy_j is None else (part.energy_j, math.sqrt(part.energy_square))


def _amount(
    part: _Part | None, samples: int, get: Callable[[_Part], tuple[float, float] | None]
) -> Amount | None:
    found = None if part is None else get(part)
    if found is None:
        return None
    value, half = found
    # waiting has no width of its own: it follows from everything else
    has = part is not None and part.calls and value > 0
    interval = positive_interval(value, half / value, half / value) if has else None
    return Amount(value, interval).times(1 / samples)


def _largest_first(rows: Sequence[OperatorChange]) -> list[OperatorChange]:
    return sorted(rows, key=lambda row: abs(row.time_s.difference), reverse=True)
