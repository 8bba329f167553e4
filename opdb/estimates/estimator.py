"""The estimator: learned from a board's costs, it estimates those of other calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opdb.errors import InputError
from opdb.estimates.features import PASSES, STATES, Family, Features, features
from opdb.estimates.process import Matrix, Process
from opdb.estimates.roofline import HALVES, Roofline
from opdb.estimates.widths import SumWidths, unit_of
from opdb.kinds import KINDS
from opdb.kinds.view import item_bytes
from opdb.records import Configuration, Cost, Form, Quantity, mean_of
from opdb.records.cost import OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE

ESTIMATED = "estimated"
"""The flag of a cost that rests on no visit of its configuration."""

FARTHEST = 0.6
"""The largest share of a family's variance that measured points may leave unexplained: beyond it
an estimate rests on the roofline alone."""

DTYPE_DEVIATION = 0.1
"""The standard deviation of a time's logarithm that an estimate from another dtype has on top. It
is assumed: both dtypes have the same rates and bytes, but kernels of their own. With it, 99 % of
370 float16 operators lay inside intervals learned in bfloat16 (docs/estimates.md)."""

WIDEST = 100.0
"""Half an interval of a sum's logarithm that no measured operators teach."""

LEAST_KIND_DEVIATION = 0.3
"""The least standard deviation of the levels of kinds, where few of a family were measured."""


@dataclass(frozen=True)
class KindMedians:
    """Medians of a kind's calls, beside their device time.

    `kernels` per call; `eager_s`, how much longer a call takes when it is issued eagerly; `host_s`,
    host times by form, with the range that holds 95 % of the measured ones.
    """

    kernels: int
    eager_s: float
    host_s: Mapping[Form, Quantity] = field(default_factory=dict)


@dataclass(frozen=True)
class _Asked:
    """A configuration to estimate, and the flag of what its estimate rests on; None: its like."""

    configuration: Configuration
    of: Features
    flag: str | None


@dataclass(frozen=True)
class Reach:
    """Standard deviations that hold 95 % of the errors of examples left out of learning.

    They are of single operators' times and dynamic energies; None where nothing was metered.
    """

    time: float
    energy: float | None


@dataclass(frozen=True)
class Trend:
    """What is usual of a family's calls by the time of one step, in logarithms.

    `values` are at `knots` (logarithms of seconds, in order), lines lie between them, and beyond
    the ends it stays as it is there.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, times_s: Matrix | Sequence[float]) -> Matrix:
        """Return what is usual where steps take these times (seconds); shape (n,)."""
        import numpy as np

        return np.interp([math.log(each) for each in times_s], self.knots, self.values)


@dataclass(frozen=True, eq=False)
class Learned:
    """The estimator of one family of kinds.

    `time` is of the logarithm of time over the roofline's, less the usual by the roofline's time
    (`slower`); `power` of the logarithm of dynamic energy over time (watts), less the usual by the
    time (`watts`), None where nothing was metered. Both are at points scaled by `centre` and
    `scale` from the numbers in `columns`. `levels` are by how much each kind's times lie above what
    `time` expects, which knows no kinds where no point is near. `metered` are the rows of the
    points of `time` that `power` has.
    """

    columns: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    levels: Mapping[str, float]
    slower: Trend
    watts: Trend | None
    dtypes: frozenset[str]
    time: Process
    power: Process | None
    metered: tuple[int, ...]
    reach: Reach

    @property
    def kinds(self) -> list[str]:
        """The kinds that it learned from, in order."""
        return sorted(self.levels)

    @property
    def kind_variance(self) -> float:
        """The variance of the levels of kinds: how far a kind that was not measured may lie."""
        squares = [level**2 for level in self.levels.values()]
        return max(LEAST_KIND_DEVIATION**2, math.fsum(squares) / max(len(squares), 1))

    def has_dtype(self, of: Features) -> bool:
        """Return whether a dtype learned from has a configuration's rates and bytes.

        Tensor cores treat both halves alike; what mostly moves memory depends on bytes alone.
        """
        if of.dtype in HALVES:
            return not HALVES.isdisjoint(self.dtypes)
        same_bytes = {d for d in self.dtypes if item_bytes(d) == item_bytes(of.dtype)}
        return of.dtype in self.dtypes or (of.family.startswith("memory") and bool(same_bytes))

    def doubt(self, asked: Sequence[_Asked]) -> Matrix:
        """Return the covariance added for kinds and dtypes that were never measured."""
        kinds = [a.of.kind if a.of.kind not in self.levels else None for a in asked]
        dtypes = [a.of.dtype if a.of.dtype not in self.dtypes else None for a in asked]
        return self.kind_variance * _alike(kinds) + DTYPE_DEVIATION**2 * _alike(dtypes)

    def too_far(self, covariance: Matrix) -> list[bool]:
        """Return which of n places measured points say too little of; covariance (n, n)."""
        kernel = self.time.kernel
        most = FARTHEST * kernel.variance + kernel.noise
        return [bool(covariance[i, i] > most) for i in range(len(covariance))]

    def together(self, asked: Sequence[_Asked], covariance: Matrix) -> Matrix:
        """Return a covariance in which errors of one kind's calls that are too far go together.

        Where a sort of calls was never measured, all of it is off by much the same
        (docs/estimates.md).
        """
        import numpy as np

        far = self.too_far(covariance)
        kinds = [each.of.kind if out else None for each, out in zip(asked, far, strict=True)]
        noise = self.time.kernel.noise
        own = np.sqrt(np.maximum(np.diag(covariance) - noise, 0.0))
        common = _alike(kinds) * own[:, None] * own + noise * np.eye(len(asked))
        return np.maximum(covariance, common)

    def scaled(self, of: Features) -> tuple[float, ...]:
        """Return a configuration's place among the points."""
        return tuple(
            (of.number(name) - centre) / scale
            for name, centre, scale in zip(self.columns, self.centre, self.scale, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Estimator:
    """An estimator of the costs of one board, learned at one time.

    `sums` are the widths of sums of its estimates.
    """

    device: str
    board: str
    trained_at: str
    configurations: int
    roofline: Roofline
    families: Mapping[str, Learned]
    usual: Mapping[str, KindMedians]
    sums: SumWidths

    def estimate(
        self, configurations: Iterable[Configuration], *, alike_only: bool = False
    ) -> Estimates:
        """Estimate one call of each configuration.

        What lies far from everything measured, or is of a kind or dtype that was never measured,
        has a wide and flagged estimate; with `alike_only` it is refused.

        Raises:
            InputError: what was learned is damaged: its numbers give no estimate.
        """
        found = Estimates(self.board, self.sums)
        near: dict[str, list[_Asked]] = {}
        alone: dict[str, list[_Asked]] = {}
        for configuration in configurations:
            if why := self._hopeless(configuration):
                found.refused[configuration.key] = why
                continue
            of = features(configuration)
            if not of.launches:
                found.costs[configuration.key] = self._cost(configuration, _EXACTLY_NOTHING, None)
                continue
            flag, why = self._lacking(of)
            if why and (alike_only or not self.families):
                found.refused[configuration.key] = why
                continue
            by = alone if flag == ROOFLINE_ALONE else near
            by.setdefault(of.family, []).append(_Asked(configuration, of, flag))
        try:
            for family, asked in near.items():
                self._of_family(self.families[family], asked, found, alike_only)
            for family, asked in alone.items():
                self._by_roofline(self._stand_in(family), asked, found)
        except (ArithmeticError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"damaged estimates of {family} operators, learned on {self.board}: {error}; "
                "opdb learn makes them anew"
            ) from error
        return found

    def _hopeless(self, configuration: Configuration) -> str | None:
        """Say why a configuration has neither numbers nor a roofline; None where it has."""
        if configuration.kind not in KINDS:
            return f"this version has no kind {configuration.kind!r}"
        if configuration.pass_name not in PASSES:
            return "estimates are of forward and backward passes"
        return None

    def _lacking(self, of: Features) -> tuple[str | None, str | None]:
        """Return what an estimate rests on, as a flag, and why on no measured operator like it."""
        learned = self.families.get(of.family)
        if learned is None:
            return ROOFLINE_ALONE, f"too few {of.family} operators were measured to learn from"
        for name, words in STATES.items():
            if of.number(name) and name not in learned.columns:
                return ROOFLINE_ALONE, f"no {of.family} operator was measured {words}"
        of_dtype = f"no {of.family} operator was measured in {of.dtype}"
        if not learned.has_dtype(of):
            return ROOFLINE_ALONE, of_dtype
        if of.kind not in learned.levels:
            return OTHER_KINDS, f"no {of.kind} was measured"
        if of.dtype not in learned.dtypes:
            return OTHER_DTYPE, of_dtype
        return None, None

    def _stand_in(self, family: Family) -> Learned:
        """Return what was learned of a family, else of its forward passes, else the least sure."""
        found = self.families.get(family) or self.families.get(family.removesuffix(" backward"))
        return found or max(self.families.values(), key=lambda each: each.time.kernel.variance)

    def _of_family(
        self, learned: Learned, asked: Sequence[_Asked], found: Estimates, alike_only: bool
    ) -> None:
        """Estimate configurations of one family; flag those that are too far, or refuse them."""
        places = [learned.scaled(each.of) for each in asked]
        slower, covariance = learned.time.at(places)
        is_near = [not far for far in learned.too_far(covariance)]
        if alike_only:
            for each in (a for a, near in zip(asked, is_near, strict=True) if not near):
                found.refused[each.configuration.key] = f"no {each.of.kind} like it was measured"
            kept = [i for i, near in enumerate(is_near) if near]
        else:
            asked = [
                each if near else replace(each, flag=ROOFLINE_ALONE)
                for each, near in zip(asked, is_near, strict=True)
            ]
            kept = list(range(len(asked)))
        if kept:
            asked = [asked[i] for i in kept]
            covariance = learned.together(asked, covariance[kept][:, kept]) + learned.doubt(asked)
            power = learned.power
            watts, of_power = (None, None) if power is None else power.at([places[i] for i in kept])
            block = _Block(_keys(asked), covariance, of_power, learned.reach)
            self._add(learned, asked, (slower[kept], watts), block, found)

    def _by_roofline(self, learned: Learned, asked: Sequence[_Asked], found: Estimates) -> None:
        """Estimate from the roofline, a family's usual distance from it, and its whole variance."""
        kinds = [each.of.kind for each in asked]
        of_kinds = learned.time.prior(len(asked), _alike(kinds))
        covariance = of_kinds + learned.kind_variance * _alike(kinds)
        slower, power = [learned.time.mean] * len(asked), learned.power
        watts = None if power is None else [power.mean] * len(asked)
        of_power = None if power is None else power.prior(len(asked), _alike(kinds))
        block = _Block(_keys(asked), covariance, of_power, learned.reach)
        self._add(learned, asked, (slower, watts), block, found)

    def _add(
        self,
        learned: Learned,
        asked: Sequence[_Asked],
        expected: tuple[Sequence[float], Sequence[float] | None],
        block: _Block,
        found: Estimates,
    ) -> None:
        """Add estimates: `expected` are logarithms of times over the roofline, and of watts."""
        slower, watts = expected
        usual = learned.slower.at([self.roofline.time_s(each.of) / each.of.steps for each in asked])
        times_s = []
        for row, each in enumerate(asked):
            above = usual[row] + learned.levels.get(each.of.kind, 0.0)
            times_s.append(self.roofline.seconds(each.of, slower[row] + above))
        if watts is not None and learned.watts is not None:
            steps_s = [t / each.of.steps for t, each in zip(times_s, asked, strict=True)]
            watts = watts + learned.watts.at(steps_s)
        block = block.apart(
            [self.roofline.bias_s(a.of) / t for a, t in zip(asked, times_s, strict=True)]
        )
        for row, (each, time_s) in enumerate(zip(asked, times_s, strict=True)):
            time = _quantity(time_s, block.time_width(row))
            dynamic = None
            if watts is not None:
                dynamic = _quantity(time_s * math.exp(watts[row]), block.energy_width(row))
            cost = self._cost(each.configuration, time, dynamic)
            if each.flag is not None:
                cost = replace(cost, flags=(*cost.flags, each.flag))
            found.costs[each.configuration.key] = cost
        found.blocks.append(block)

    def _cost(self, configuration: Configuration, time: Quantity, dynamic: Quantity | None) -> Cost:
        usual = self.usual.get(configuration.title, KindMedians(kernels=0, eager_s=0.0))
        launches = time is not _EXACTLY_NOTHING
        eager = time.moved(usual.eager_s) if launches else time
        return Cost(
            configuration=configuration.key,
            board=self.board,
            setting="",
            estimator=ESTIMATED,
            visits=0,
            kernels=usual.kernels if launches else 0,
            time_s=time,
            eager_time_s=None if launches and eager.mean <= 0 else eager,
            power_w=None,
            energy_j=None,
            dynamic_energy_j=dynamic if launches else _EXACTLY_NOTHING,
            host_time_s=usual.host_s,
            flags=(ESTIMATED,),
        )


_EXACTLY_NOTHING = Quantity(0.0, 0.0, 0.0, 0.0, 0)


@dataclass(frozen=True, eq=False)
class _Block:
    """The covariances of one family's estimates; errors of two families are independent."""

    keys: list[str]
    time: Matrix
    power: Matrix | None
    reach: Reach

    def apart(self, shares: Sequence[float]) -> _Block:
        """Return the covariances where shares of the times, one of each row, are known apart."""
        import numpy as np

        rest = 1 - np.asarray(shares)
        return replace(self, time=self.time * rest[:, None] * rest)

    def time_width(self, row: int) -> float:
        """Return half the 95 % interval of a time's logarithm."""
        return self.reach.time * math.sqrt(self.time[row, row])

    def energy_width(self, row: int) -> float:
        """Return half the 95 % interval of a dynamic energy's logarithm."""
        assert self.power is not None and self.reach.energy is not None
        return self.reach.energy * math.sqrt(self.time[row, row] + self.power[row, row])

    def moments(self, seconds: Mapping[str, float]) -> tuple[float, float]:
        """Return the mean and the variance of a sum of log-normal times (medians, by key)."""
        import numpy as np

        medians = np.array([seconds.get(key, 0.0) for key in self.keys])
        with np.errstate(over="ignore", invalid="ignore"):  # half_widths refuses what is damaged
            means = medians * np.exp(np.diag(self.time) / 2)
            variance = float(means @ np.expm1(self.time) @ means)
        return float(means.sum()), max(variance, 0.0)


@dataclass(eq=False)
class Estimates:
    """Estimated costs by configuration key, and why others were refused.

    The errors of two estimates go together as far as the configurations are alike, so a sum is
    surer than its widest part and less sure than were they independent.
    """

    board: str
    sums: SumWidths
    costs: dict[str, Cost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)

    @property
    def doubtful(self) -> int:
        """How many rest on a roofline alone."""
        return sum(ROOFLINE_ALONE in cost.flags for cost in self.costs.values())

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls.

        `counts` are how often each estimated configuration (key) is called; the energy is None
        where base power or the dynamic energies are unknown. They are halves of the intervals of
        logarithms, times the sums.

        Raises:
            InputError: what was learned is damaged: it gives no width.
        """
        found = self.sum_of(counts, base_w)
        unit = unit_of(found.deviation)
        half_s = self._half_width(self.sums.time * unit) * found.time_s
        if found.energy_j is None or self.sums.energy is None:
            return half_s, None
        return half_s, self._half_width(self.sums.energy * unit) * found.energy_j

    def _half_width(self, logarithm: float) -> float:
        if not logarithm < WIDEST:
            raise InputError(
                f"damaged estimates, learned on {self.board}: a sum as wide as {logarithm:.3g}; "
                "opdb learn makes them anew"
            )
        return logarithm

    def sum_of(self, counts: Mapping[str, float], base_w: float | None) -> EstimatedSum:
        """Return the time and energy (base power's too) of calls (keys).

        The energy is None where base power or the dynamic energies are unknown. The deviation is
        that of the log-normal distribution with the mean and variance of the sum (Fenton 1960,
        doi:10.1109/TCOM.1960.1097606): what may take many times as long counts for more than its
        share.
        """
        seconds = {k: n * mean_of(self.costs[k].time_s) for k, n in counts.items()}
        joules = (n * mean_of(self.costs[k].dynamic_energy_j) for k, n in counts.items())
        time_s, energy_j = math.fsum(seconds.values()), None
        if base_w is not None and all(b.power is not None for b in self.blocks):
            energy_j = base_w * time_s + math.fsum(joules)
        moments = [block.moments(seconds) for block in self.blocks]
        mean_s, variance = (math.fsum(each) for each in zip((0.0, 0.0), *moments, strict=True))
        deviation = math.sqrt(math.log1p(variance / mean_s / mean_s)) if mean_s else 0.0
        return EstimatedSum(time_s, energy_j, deviation)


@dataclass(frozen=True)
class EstimatedSum:
    """A sum of estimates (seconds, joules), and the standard deviation of its time's logarithm."""

    time_s: float
    energy_j: float | None
    deviation: float


def _keys(asked: Sequence[_Asked]) -> list[str]:
    return [each.configuration.key for each in asked]


def _alike(words: Sequence[str | None]) -> Matrix:
    """Return which of n words are the same, shape (n, n): 1 or 0; None is like no other."""
    import numpy as np

    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    of = np.array([-1 if word is None else numbers[word] for word in words])
    return ((of[:, None] == of) & (of >= 0)).astype(float)


def _quantity(value: float, width: float) -> Quantity:
    """Return a value with its 95 % interval, half as wide in logarithms as `width`.

    Raises:
        ValueError, OverflowError: they are none that was learned.
    """
    if not (0 < value < math.inf and 0 <= width < math.inf):
        raise ValueError(f"a value of {value}, wide by {width}")
    return Quantity(value, value, value * math.exp(-width), value * math.exp(width), 0)
