"""The estimator: learned from a board's costs, it estimates those of other calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opdb.errors import InputError
from opdb.estimates.features import PASSES, STATES, Features, features
from opdb.estimates.process import Matrix, Process
from opdb.estimates.roofline import Roofline
from opdb.kinds import KINDS
from opdb.records import Configuration, Cost, Form, Quantity

ESTIMATED = "estimated"
"""The flag of a cost that rests on no visit of its configuration."""

FARTHEST = 0.6
"""The largest share of a family's variance that measured points may leave unexplained: beyond it
a configuration is refused, since an estimate would be a guess."""


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
class Reach:
    """Standard deviations that hold 95 % of the errors of examples left out of learning.

    `time` and `energy` (dynamic) are of single operators, `times` and `energies` of the sums over
    what one model alone has; None where nothing was metered.
    """

    time: float
    times: float
    energy: float | None
    energies: float | None


@dataclass(frozen=True, eq=False)
class Learned:
    """The estimator of one family of kinds.

    `time` is of the logarithm of time over the roofline's, `power` of the logarithm of dynamic
    energy over time (watts), None where nothing was metered; both at points scaled by `centre` and
    `scale` from the numbers in `columns`. `levels` are by how much each kind's times lie above
    what `time` expects, which knows no kinds where no point is near. `metered` are the rows of the
    points of `time` that `power` has.
    """

    columns: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    levels: Mapping[str, float]
    dtypes: frozenset[str]
    time: Process
    power: Process | None
    metered: tuple[int, ...]
    reach: Reach

    @property
    def kinds(self) -> list[str]:
        """The kinds that it learned from, in order."""
        return sorted(self.levels)

    def scaled(self, of: Features) -> tuple[float, ...]:
        """Return a configuration's place among the points."""
        return tuple(
            (of.number(name) - centre) / scale
            for name, centre, scale in zip(self.columns, self.centre, self.scale, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Estimator:
    """An estimator of the costs of one board, learned at one time."""

    device: str
    board: str
    trained_at: str
    configurations: int
    roofline: Roofline
    families: Mapping[str, Learned]
    usual: Mapping[str, KindMedians]

    def estimate(self, configurations: Iterable[Configuration]) -> Estimates:
        """Estimate one call of each configuration; refuse those too far from all measured ones.

        Raises:
            InputError: what was learned is damaged: its numbers give no estimate.
        """
        found = Estimates(self.board)
        by_family: dict[str, list[tuple[Configuration, Features]]] = {}
        for configuration in configurations:
            if why := self._unknown(configuration):
                found.refused[configuration.key] = why
                continue
            of = features(configuration)
            if of.launches:
                by_family.setdefault(of.family, []).append((configuration, of))
            else:
                found.costs[configuration.key] = self._cost(configuration, _EXACTLY_NOTHING, None)
        for family, asked in by_family.items():
            try:
                self._of_family(self.families[family], asked, found)
            except (ArithmeticError, ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"damaged estimates of {family} operators, learned on {self.board}: {error}; "
                    "opdb learn makes them anew"
                ) from error
        return found

    def _unknown(self, configuration: Configuration) -> str | None:
        """Say why nothing is known of a configuration; None where something is."""
        if configuration.kind not in KINDS:
            return f"this version has no kind {configuration.kind!r}"
        if configuration.pass_name not in PASSES:
            return "estimates are of forward and backward passes"
        of = features(configuration)
        if not of.launches:
            return None
        learned = self.families.get(of.family)
        if learned is None:
            return f"too few {of.family} operators were measured to learn from"
        if of.kind not in learned.levels:
            return f"no {of.kind} was measured"
        if of.dtype not in learned.dtypes:
            return f"no {of.family} operator was measured in {of.dtype}"
        for name, words in STATES.items():
            if of.number(name) and name not in learned.columns:
                return f"no {of.family} operator was measured {words}"
        return None

    def _of_family(
        self, learned: Learned, asked: Sequence[tuple[Configuration, Features]], found: Estimates
    ) -> None:
        """Estimate configurations of one family, or refuse those that are too far."""
        covariance = learned.time.covariance([learned.scaled(of) for _, of in asked])
        kernel = learned.time.kernel
        unexplained = [covariance[i, i] - kernel.noise for i in range(len(asked))]
        near = [i for i, each in enumerate(unexplained) if each <= FARTHEST * kernel.variance]
        for i in set(range(len(asked))) - set(near):
            found.refused[asked[i][0].key] = f"no {asked[i][1].kind} like it was measured"
        if near:
            self._of_near(learned, [asked[i] for i in near], covariance[near][:, near], found)

    def _of_near(
        self,
        learned: Learned,
        asked: Sequence[tuple[Configuration, Features]],
        covariance: Matrix,
        found: Estimates,
    ) -> None:
        places = [learned.scaled(of) for _, of in asked]
        keys = [configuration.key for configuration, _ in asked]
        power = learned.power
        of_power = None if power is None else power.covariance(places)
        block = _Block(keys, covariance, of_power, learned.reach)
        slower = learned.time.expected(places)
        watts = None if power is None else power.expected(places)
        for row, (configuration, of) in enumerate(asked):
            time_s = self.roofline.time_s(of) * math.exp(slower[row] + learned.levels[of.kind])
            time = _quantity(time_s, block.time_width(row))
            dynamic = None
            if watts is not None:
                dynamic = _quantity(time_s * math.exp(watts[row]), block.energy_width(row))
            found.costs[configuration.key] = self._cost(configuration, time, dynamic)
        found.blocks.append(block)

    def _cost(self, configuration: Configuration, time: Quantity, dynamic: Quantity | None) -> Cost:
        usual = self.usual.get(configuration.title, KindMedians(0, 0.0))
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

    def time_width(self, row: int) -> float:
        """Return half the 95 % interval of a time's logarithm."""
        return self.reach.time * math.sqrt(self.time[row, row])

    def energy_width(self, row: int) -> float:
        """Return half the 95 % interval of a dynamic energy's logarithm."""
        assert self.power is not None and self.reach.energy is not None
        return self.reach.energy * math.sqrt(self.time[row, row] + self.power[row, row])

    def sum_time_width(self, seconds: Mapping[str, float]) -> float:
        """Return half the 95 % interval of a sum of these times (seconds, by key)."""
        weights = [seconds.get(key, 0.0) for key in self.keys]
        return self.reach.times * _deviation(weights, self.time)

    def sum_energy_width(
        self, seconds: Mapping[str, float], joules: Mapping[str, float], base_w: float
    ) -> float:
        """Return half the 95 % interval of a sum of these dynamic energies and base power.

        A longer time adds base power and, at the same power, dynamic energy.
        """
        assert self.power is not None and self.reach.energies is not None
        dynamic = [joules.get(key, 0.0) for key in self.keys]
        whole = [
            base_w * seconds.get(key, 0.0) + j for key, j in zip(self.keys, dynamic, strict=True)
        ]
        deviation = math.hypot(_deviation(whole, self.time), _deviation(dynamic, self.power))
        return self.reach.energies * deviation


@dataclass(eq=False)
class Estimates:
    """Estimated costs by configuration key, and why others were refused.

    The errors of two estimates go together as far as the configurations are alike, so a sum is
    surer than its widest part and less sure than were they independent.
    """

    board: str
    costs: dict[str, Cost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls.

        `counts` are how often each estimated configuration (key) is called; the energy is None
        where base power or the dynamic energies are unknown.
        """
        seconds = {k: n * _mean(self.costs[k].time_s) for k, n in counts.items()}
        joules = {k: n * _mean(self.costs[k].dynamic_energy_j) for k, n in counts.items()}
        time = math.hypot(*(b.sum_time_width(seconds) for b in self.blocks), 0.0)
        if base_w is None or any(b.power is None for b in self.blocks):
            return time, None
        widths = [b.sum_energy_width(seconds, joules, base_w) for b in self.blocks]
        return time, math.hypot(*widths, 0.0)


def _mean(quantity: Quantity | None) -> float:
    return quantity.mean if quantity else 0.0


def _deviation(weights: Sequence[float], covariance: Matrix) -> float:
    """Return the standard deviation of a weighted sum: √(wᵀ C w)."""
    import numpy as np

    w = np.asarray(weights)
    return math.sqrt(max(0.0, float(w @ covariance @ w)))


def _quantity(value: float, width: float) -> Quantity:
    """Return a value with its 95 % interval, half as wide in logarithms as `width`.

    Raises:
        ValueError, OverflowError: they are none that was learned.
    """
    if not (0 < value < math.inf and 0 <= width < math.inf):
        raise ValueError(f"a value of {value}, wide by {width}")
    return Quantity(value, value, value * math.exp(-width), value * math.exp(width), 0)
