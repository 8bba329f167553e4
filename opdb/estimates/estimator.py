"""The estimator: learned from a board's costs, it estimates those of other calls."""

from __future__ import annotations

import math
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from opdb.errors import InputError
from opdb.estimates.features import (
    HALVES,
    PASSES,
    STATES,
    Features,
    OperatorFamily,
    Roofline,
    features,
)
from opdb.kinds import KINDS
from opdb.kinds.view import item_bytes
from opdb.records import (
    OTHER_DTYPE,
    OTHER_KINDS,
    ROOFLINE_ALONE,
    Configuration,
    Cost,
    Form,
    Json,
    Quantity,
    mean_of,
)

# Gaussian processes over configurations: what lies between measured points, and how surely.
#
# What is learned is kept ready to use, as data (length scales, variances, the points and their
# weights, in float32): a question solves no more than the `NEAREST` points of each place asked.
# Formulas: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25
# to 2.27 and 4.17 (Matérn with ν = 3/2).


Matrix = Any
"""A numpy array, two-dimensional unless stated otherwise."""

NEAREST = 64
"""Learned points that the variance of a place is conditioned on: the most correlated ones."""

MOST_USED = 2048
"""Learned points that a covariance of several places is conditioned on at most, together."""


@dataclass(frozen=True)
class Covariance:
    """The covariance of two points: `variance` at distance 0, less the farther apart they are.

    `lengths` are one for each column of the points; `noise` is the variance of what no point tells
    of another (kernels that a library picks for one size and not for the next).
    """

    variance: float
    lengths: tuple[float, ...]
    noise: float

    def between(self, ones: Matrix, others: Matrix) -> Matrix:
        """Return the covariances of n points and m others, shape (n, m), the noise left out."""
        lengths = np.asarray(self.lengths)
        one, other = ones / lengths, others / lengths
        squares = (
            np.sum(one**2, axis=1)[:, None] + np.sum(other**2, axis=1)[None] - 2 * one @ other.T
        )
        apart = math.sqrt(3) * np.sqrt(np.maximum(squares, 0.0))
        return self.variance * (1 + apart) * np.exp(-apart)


@dataclass(frozen=True, eq=False)
class Process:
    """A quantity learned at `points` (shape (n, d)), expected at `mean` far from all of them.

    `weights` (n) say what each point adds at the places near it.
    """

    kernel: Covariance
    mean: float
    points: Matrix
    weights: Matrix

    @classmethod
    def through(cls, kernel: Covariance, mean: float, points: Matrix, values: Matrix) -> Process:
        """Return the process that was seen to have these n values at n points (float32)."""
        weights = np.linalg.solve(with_noise(kernel, points), values - mean)
        return cls(kernel, mean, points, np.float32(weights).astype(float))

    def prior(self, count: int, alike: Matrix) -> Matrix:
        """Far from all learned; `alike` (count, count) is 1 for two that go together, else 0."""
        return self.kernel.variance * alike + self.kernel.noise * np.eye(count)

    def at(self, asked: Matrix | Sequence[Sequence[float]]) -> tuple[Matrix, Matrix]:
        """Return what is expected at m points, and the covariance of the true values there.

        Their shapes are (m,) and (m, m). The noise is on the diagonal: the true value at a point is
        one draw. The covariance is that of the errors of kriging each point from the learned points
        most correlated with it alone, as Vecchia (1988) does; the others would reduce it little.
        """
        at = np.asarray(asked)
        between = self.kernel.between(at, self.points)
        expected = self.mean + between @ self.weights
        count = min(NEAREST, len(self.points), max(1, MOST_USED // len(at)))
        near = np.argpartition(-between, count - 1, axis=1)[:, :count]
        used, place = np.unique(near, return_inverse=True)
        place = place.reshape(near.shape)
        known = with_noise(self.kernel, self.points[used])
        told = np.take_along_axis(between, near, axis=1)
        blocks = known[place[:, :, None], place[:, None, :]]
        weights = np.zeros((len(at), len(used)))
        np.put_along_axis(weights, place, np.linalg.solve(blocks, told[..., None])[..., 0], axis=1)
        explained = weights @ between[:, used].T
        found = with_noise(self.kernel, at) - explained - explained.T + weights @ known @ weights.T
        return expected, (found + found.T) / 2


def with_noise(kernel: Covariance, points: Matrix) -> Matrix:
    return kernel.between(points, points) + kernel.noise * np.eye(len(points))


def left_out(inverse: Matrix, weights: Matrix, rows: Sequence[int]) -> tuple[Matrix, Matrix]:
    """Return by how much m rows are expected too high when left out, and their covariance.

    Both follow from the inverse (n, n) of all points' covariance and the weights (n) of their
    values; nothing is learned anew (Rasmussen and Williams, equations 5.12, for blocks). Shapes:
    (m,) and (m, m).
    """
    covariance = np.linalg.inv(inverse[np.ix_(rows, rows)])
    return -covariance @ weights[rows], covariance


# How wide the intervals of sums of estimates are, by the standard deviations of these sums.


POWER = 0.7
"""Half an interval grows with a sum's standard deviation to this power: deviations differ more than
errors do. It is what the times of most families showed, the H200s' (docs/estimates.md)."""


@dataclass(frozen=True)
class Widths:
    """How many deviations half a 95 % interval of a logarithm is wide.

    Of single estimates these are standard deviations; of sums, `unit_of` the deviation of the
    time, with which a sum's energy errs, too. `energy` is None where none was metered.
    """

    time: float
    energy: float | None


def unit_of(deviation: float) -> float:
    return math.pow(deviation, POWER)


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
class Trend:
    """What is usual of a family's calls by the time of one step, in logarithms.

    `values` are at `knots` (logarithms of seconds, in order), lines lie between them, and beyond
    the ends it stays as it is there.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, times_s: Matrix | Sequence[float]) -> Matrix:
        """Return what is usual where steps take these times (seconds); shape (n,)."""
        return np.interp([math.log(each) for each in times_s], self.knots, self.values)


@dataclass(frozen=True, eq=False)
class Learned:
    """The estimator of one family of kinds.

    `time` is of the logarithm of time over the roofline's, less the usual by the roofline's time
    (`slower`); `power` of the logarithm of dynamic energy over time (watts), less the usual by the
    time (`watts`), None where nothing was metered. Both are at points scaled by `centre` and
    `scale` from the numbers in `columns`. `levels` are by how much each kind's times lie above what
    `time` expects, which knows no kinds where no point is near. `metered` are the rows of the
    points of `time` that `power` has. `reach` holds 95 % of the errors of examples left out.
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
    reach: Widths

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
        far = self.too_far(covariance)
        kinds = [each.of.kind if out else None for each, out in zip(asked, far, strict=True)]
        noise = self.time.kernel.noise
        own = np.sqrt(np.maximum(np.diag(covariance) - noise, 0.0))
        common = _alike(kinds) * own[:, None] * own + noise * np.eye(len(asked))
        return np.maximum(covariance, common)

    def scaled(self, of: Features) -> tuple[float, ...]:
        return tuple(
            (of.number(name) - centre) / scale
            for name, centre, scale in zip(self.columns, self.centre, self.scale, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Estimator:
    """`sums` are the widths of sums of its estimates."""

    device: str
    board: str
    trained_at: str
    configurations: int
    roofline: Roofline
    families: Mapping[str, Learned]
    usual: Mapping[str, KindMedians]
    sums: Widths

    def estimate(self, configurations: Iterable[Configuration]) -> Estimates:
        """What is far from all measured, or of a kind or dtype never measured, is flagged."""
        found = Estimates(self.board, self.sums)
        near: dict[str, list[_Asked]] = {}
        alone: dict[str, list[_Asked]] = {}
        for configuration in configurations:
            if configuration.kind not in KINDS:
                unknown = f"this version has no kind {configuration.kind!r}"
                found.refused[configuration.key] = unknown
                continue
            if configuration.pass_name not in PASSES:
                found.refused[configuration.key] = "estimates are of forward and backward passes"
                continue
            of = features(configuration)
            if not of.launches:
                found.costs[configuration.key] = self._cost(configuration, _EXACTLY_NOTHING, None)
                continue
            if not self.families:
                found.refused[configuration.key] = "too few operators were measured to learn from"
                continue
            flag = self._rests_on(of)
            by = alone if flag == ROOFLINE_ALONE else near
            by.setdefault(of.family, []).append(_Asked(configuration, of, flag))
        try:
            for family, asked in near.items():
                self._of_family(self.families[family], asked, found)
            for family, asked in alone.items():
                self._by_roofline(self._stand_in(family), asked, found)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"damaged estimates of {family} operators, learned on {self.board}: {error}; "
                "python -m opdb.estimates makes them anew"
            ) from error
        return found

    def _rests_on(self, of: Features) -> str | None:
        """Return the flag of an estimate that rests on no measured operator like it."""
        learned = self.families.get(of.family)
        if learned is None or not learned.has_dtype(of):
            return ROOFLINE_ALONE
        if any(of.number(name) and name not in learned.columns for name in STATES):
            return ROOFLINE_ALONE
        if of.kind not in learned.levels:
            return OTHER_KINDS
        return OTHER_DTYPE if of.dtype not in learned.dtypes else None

    def _stand_in(self, family: OperatorFamily) -> Learned:
        """Return what was learned of a family, else of its forward passes, else the least sure."""
        found = self.families.get(family) or self.families.get(family.removesuffix(" backward"))
        return found or max(self.families.values(), key=lambda each: each.time.kernel.variance)

    def _of_family(self, learned: Learned, asked: Sequence[_Asked], found: Estimates) -> None:
        places = [learned.scaled(each.of) for each in asked]
        slower, covariance = learned.time.at(places)
        asked = [
            replace(each, flag=ROOFLINE_ALONE) if far else each
            for each, far in zip(asked, learned.too_far(covariance), strict=True)
        ]
        covariance = learned.together(asked, covariance) + learned.doubt(asked)
        watts, of_power = (None, None) if learned.power is None else learned.power.at(places)
        block = _Covariances(_keys(asked), covariance, of_power, learned.reach)
        self._add(learned, asked, (slower, watts), block, found)

    def _by_roofline(self, learned: Learned, asked: Sequence[_Asked], found: Estimates) -> None:
        kinds = [each.of.kind for each in asked]
        of_kinds = learned.time.prior(len(asked), _alike(kinds))
        covariance = of_kinds + learned.kind_variance * _alike(kinds)
        slower, power = [learned.time.mean] * len(asked), learned.power
        watts = None if power is None else [power.mean] * len(asked)
        of_power = None if power is None else power.prior(len(asked), _alike(kinds))
        block = _Covariances(_keys(asked), covariance, of_power, learned.reach)
        self._add(learned, asked, (slower, watts), block, found)

    def _add(
        self,
        learned: Learned,
        asked: Sequence[_Asked],
        expected: tuple[Sequence[float], Sequence[float] | None],
        block: _Covariances,
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
        reach = block.reach
        for row, (each, time_s) in enumerate(zip(asked, times_s, strict=True)):
            variance = block.time[row, row]
            time = _quantity(time_s, reach.time * math.sqrt(variance))
            dynamic = None
            if watts is not None and block.power is not None and reach.energy is not None:
                width = reach.energy * math.sqrt(variance + block.power[row, row])
                dynamic = _quantity(time_s * math.exp(watts[row]), width)
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
class _Covariances:
    """The covariances of one family's estimates; errors of two families are independent."""

    keys: list[str]
    time: Matrix
    power: Matrix | None
    reach: Widths

    def apart(self, shares: Sequence[float]) -> _Covariances:
        """Return the covariances where shares of the times, one of each row, are known apart."""
        rest = 1 - np.asarray(shares)
        return replace(self, time=self.time * rest[:, None] * rest)

    def moments(self, seconds: Mapping[str, float]) -> tuple[float, float]:
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
    sums: Widths
    costs: dict[str, Cost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    blocks: list[_Covariances] = field(default_factory=list)

    @property
    def doubtful(self) -> int:
        return sum(ROOFLINE_ALONE in cost.flags for cost in self.costs.values())

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls.

        `counts` are how often each estimated configuration (key) is called; the energy is None
        where base power or the dynamic energies are unknown. They are halves of the intervals of
        logarithms, times the sums.
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
                "python -m opdb.estimates makes them anew"
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
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    of = np.array([-1 if word is None else numbers[word] for word in words])
    return ((of[:, None] == of) & (of >= 0)).astype(float)


def _quantity(value: float, width: float) -> Quantity:
    """Return a value with its 95 % interval, half as wide in logarithms as `width`."""
    if not (0 < value < math.inf and 0 <= width < math.inf):
        raise ValueError(f"a value of {value}, wide by {width}")
    return Quantity(value, value, value * math.exp(-width), value * math.exp(width), 0)


# An estimator as one JSON value: numbers and names alone, so reading one runs no code.


FORMAT = 8
FLOAT32 = np.dtype("<f4")

MOST_BYTES = 64 * 1024 * 1024
"""The most numbers that are unpacked, in bytes: a short text could claim to hold gigabytes."""


_DAMAGED = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
    zlib.error,
)


def to_document(estimator: Estimator) -> Json:
    return {
        "format": FORMAT,
        "device": estimator.device,
        "board": estimator.board,
        "trained_at": estimator.trained_at,
        "configurations": estimator.configurations,
        "roofline": asdict(estimator.roofline),
        "families": {name: _family(learned) for name, learned in estimator.families.items()},
        "usual": {kind: asdict(usual) for kind, usual in estimator.usual.items()},
        "sums": asdict(estimator.sums),
    }


def from_document(document: Json) -> Estimator:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else document
        raise InputError(
            f"estimates of format {found!r:.40}; this version reads {FORMAT}: "
            "python -m opdb.estimates makes them"
        )
    try:
        sums = document["sums"]
        return Estimator(
            device=str(document["device"]),
            board=str(document["board"]),
            trained_at=str(document["trained_at"]),
            configurations=int(document["configurations"]),
            roofline=Roofline(**document["roofline"]),
            families={name: _learned(d) for name, d in document["families"].items()},
            usual={kind: _usual(d) for kind, d in document["usual"].items()},
            sums=Widths(float(sums["time"]), sums["energy"] and float(sums["energy"])),
        )
    except _DAMAGED as error:
        raise InputError(
            f"damaged estimates: {error}; python -m opdb.estimates makes them anew"
        ) from error


def _family(learned: Learned) -> Json:
    return {
        "columns": list(learned.columns),
        "centre": list(learned.centre),
        "scale": list(learned.scale),
        "levels": dict(learned.levels),
        "slower": asdict(learned.slower),
        "watts": None if learned.watts is None else asdict(learned.watts),
        "dtypes": sorted(learned.dtypes),
        "points": _packed(learned.time.points.T),  # a column after the other: these repeat
        "time": _process(learned.time),
        "power": None
        if learned.power is None
        else {**_process(learned.power), "rows": list(learned.metered)},
        "reach": asdict(learned.reach),
    }


def _process(process: Process) -> Json:
    kernel = asdict(process.kernel)
    return {"kernel": kernel, "mean": process.mean, "weights": _packed(process.weights)}


def _learned(document: Mapping[str, Json]) -> Learned:
    columns = tuple(document["columns"])
    points = np.ascontiguousarray(_unpacked(document["points"]).reshape(len(columns), -1).T)
    power = document["power"]
    metered = [] if power is None else [int(row) for row in power["rows"]]
    return Learned(
        columns=columns,
        centre=tuple(document["centre"]),
        scale=tuple(document["scale"]),
        levels={kind: float(level) for kind, level in document["levels"].items()},
        slower=_trend(document["slower"]),
        watts=None if document["watts"] is None else _trend(document["watts"]),
        dtypes=frozenset(document["dtypes"]),
        time=_process_of(document["time"], points),
        power=None if power is None else _process_of(power, points[metered]),
        metered=tuple(metered),
        reach=Widths(**document["reach"]),
    )


def _trend(document: Mapping[str, Json]) -> Trend:
    return Trend(tuple(map(float, document["knots"])), tuple(map(float, document["values"])))


def _process_of(document: Mapping[str, Json], points: Matrix) -> Process:
    kernel = document["kernel"]
    covariance = Covariance(
        float(kernel["variance"]), tuple(kernel["lengths"]), float(kernel["noise"])
    )
    return Process(covariance, float(document["mean"]), points, _unpacked(document["weights"]))


def _packed(numbers: Matrix) -> str:
    """Return numbers in float32 as base64 of zlib: what is read is there at once."""
    compressed = zlib.compress(numbers.astype(FLOAT32).tobytes(), 9)
    return b2a_base64(compressed, newline=False).decode()


def _unpacked(text: str) -> Matrix:
    found = zlib.decompressobj().decompress(a2b_base64(text, strict_mode=True), MOST_BYTES)
    return np.frombuffer(found, FLOAT32).astype(float)


def _usual(document: Mapping[str, Json]) -> KindMedians:
    hosts = {form: Quantity(**quantity) for form, quantity in document["host_s"].items()}
    return KindMedians(int(document["kernels"]), float(document["eager_s"]), hosts)
