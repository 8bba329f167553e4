"""Costs of operators composed into the time and energy of a pass. Pure: no torch, no database."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opdb.derive.boards import Factor
from opdb.derive.statistics import t95
from opdb.kinds import get_kind
from opdb.predict.sizes import shares_of, sizes_of
from opdb.predict.timeline import (
    HostTimes,
    Load,
    Pass,
    PredictionInputs,
    Scaling,
    Span,
    Step,
    TimedPass,
    clock_share,
    eager_time_s,
    is_one_graph,
    scalings,
    steady_pass,
    timed_pass,
    with_estimates,
    with_weights_found,
)
from opdb.records import (
    BETWEEN,
    CAPTURED_MODE,
    OTHER_DTYPE,
    OTHER_KINDS,
    ROOFLINE_ALONE,
    Call,
    Configuration,
    Cost,
    Device,
    Mode,
    Quantity,
    Workload,
    mean_of,
    positive_interval,
)
from opdb.units import plural, show, show_share

# The share of each configuration in the time and the energy of a pass.


ROUNDING = 1e-12
NEARLY_ALL = 0.9999
"""Where more of the time is missing, only views and the like are left: that is no sum of a pass."""


@dataclass(frozen=True)
class Share:
    configuration: Configuration
    count: int
    share_time: float
    share_energy: float
    cost: Cost | None = field(repr=False, compare=False)


def rest(missing: Iterable[float]) -> float:
    """Return 1 minus the shares; 0 where that is less than their rounding."""
    left = 1 - math.fsum(missing)
    return left if left > ROUNDING else 0.0


# The uncertainty of a sum of operators: from their own intervals, and from measured models.


@dataclass(frozen=True)
class ModelError:
    """How far sums of operators are from models: 95 % half widths, on logarithms.

    A sum errs by a share of its own (`relative`), and by a time for each of its kernels
    (`kernel_s`, seconds): what a kernel takes in a model depends on its neighbours and on what the
    L2 keeps, by a tenth of a microsecond however long the kernel is. So sums of short kernels err
    more.
    """

    relative: float
    kernel_s: float

    def half_width(self, mean_kernel_s: float | None) -> float:
        """Return the half width for a pass whose kernels take so long on average (seconds).

        None or 0: it is not known, so kernels are taken as `SHORTEST_KERNEL_S` long.
        """
        return math.hypot(self.relative, self.kernel_s / (mean_kernel_s or SHORTEST_KERNEL_S))


SHORTEST_KERNEL_S = 2e-6
"""About what the shortest kernels of a GPU take."""

TIME_ERROR = ModelError(0.0215, 103e-9)
ENERGY_ERROR = ModelError(0.0335, 232e-9)
"""Least mean interval score over the published runs (`python -m benchmarks.intervals`)."""

TAIL_DEGREES = 4.0
"""Errors of models are taken as Student's t with so many degrees of freedom: most are small, a few
are large, and a few large ones do not widen all intervals."""

PRIOR_MODELS = 4.0
"""The published runs weigh as much as so many models of the device at hand."""

SCALE_STEPS = 20
"""Steps of the iteration that weighs errors by how far they lie out; it settles in about ten."""

PRIOR_DEGREES = 4.0
PRIOR_HOST_ERROR = 0.1
"""Before any run: a host's time varies by 10 % (one standard deviation) from one moment to another,
and that belief weighs as much as four runs."""


PeerRatio = tuple[float, float | None]
"""Predicted / measured of another model's run, and the mean time of its kernels (seconds)."""


def sum_half_width(parts: Iterable[tuple[int, Quantity]]) -> float:
    """Return the half width of Σ count · quantity, the quantities' errors being independent.

    All calls of one configuration share one error, so its count multiplies the width. A quantity
    without an interval adds none.
    """
    return math.sqrt(sum((count * (each.half_width or 0.0)) ** 2 for count, each in parts))


def shared_half_width(parts: Iterable[tuple[float, Factor]]) -> float:
    """Return the half width that factors between boards add to a sum.

    `parts` are amounts and the factor that brought each: all amounts that one factor brought share
    its error, two factors err independently. So what came without a factor, from whichever boards,
    shares one error: that of the board that it came to.
    """
    amounts: dict[Factor, float] = defaultdict(float)
    for amount, factor in parts:
        amounts[factor] += amount
    return math.hypot(*(amount * factor.half_width for factor, amount in amounts.items()), 0.0)


def model_error(expected: ModelError, kernel_s: float | None, peers: Sequence[PeerRatio]) -> float:
    """Return the 95 % half width, on logarithms, of a sum whose kernels take `kernel_s` on average.

    `peers` are those of other models' runs. Each error is held against the half width expected of
    it, about no error and not about their mean, because no factor is ever fitted. Where they err
    more or less than expected, all half widths are scaled: the scale of a Student's t by maximum
    likelihood (Lange, Little & Taylor 1989, doi:10.1080/01621459.1989.10478852), shrunk towards 1
    as a variance is (Smyth 2004, doi:10.2202/1544-6115.1027), because even where all others err
    little, the next model may be the first of its sort.
    """
    unit = t95(TAIL_DEGREES)
    squares = [
        (unit * math.log(ratio) / expected.half_width(of_kernel_s)) ** 2
        for ratio, of_kernel_s in peers
        if ratio > 0
    ]
    return _scale(squares) * expected.half_width(kernel_s)


def _scale(squares: Sequence[float]) -> float:
    """Return the scale of squared errors that are 1 on the scale expected, a prior joined in."""
    variance = 1.0
    for _ in range(SCALE_STEPS):
        weighted = sum((TAIL_DEGREES + 1) / (TAIL_DEGREES + s / variance) * s for s in squares)
        variance = (PRIOR_MODELS + weighted) / (PRIOR_MODELS + len(squares))
    return math.sqrt(variance)


def host_error(ratios: Sequence[float]) -> float:
    """Return the 95 % half width, on logarithms, of a host's time from one moment to another.

    `ratios` are predicted / measured times of passes that wait for their host: it issued the calls
    at one moment and was timed at another. They are joined with the prior belief.
    """
    errors = [math.log(ratio) for ratio in ratios if ratio > 0]
    degrees = PRIOR_DEGREES + len(errors)
    variance = (PRIOR_DEGREES * PRIOR_HOST_ERROR**2 + sum(e * e for e in errors)) / degrees
    return t95(degrees) * math.sqrt(variance)


# Notes of a prediction: what its figures rest on, and what they leave out.


PRIOR = (
    "no other model was measured on this device in this mode: the interval rests on a prior, "
    "how far sums were from the published runs"
)

RESTS_ON = {
    BETWEEN: "between measured sizes of the same calls",
    ROOFLINE_ALONE: "on a roofline alone, for nothing like it was measured",
    OTHER_KINDS: "on measured operators of other kinds",
    OTHER_DTYPE: "on measured operators in another dtype",
}
"""What a flagged estimate rests on, in words."""


def _notes(sum_: PassSum, estimated: Sequence[Share], missing: Sequence[Share]) -> Iterator[str]:
    pass_, inputs = sum_.pass_, sum_.inputs
    yield from inputs.notes
    if sum_.share != 1:
        yield (
            f"the power limit, kept at {inputs.limit_w:.0f} W, lowers the clock to "
            f"{100 * sum_.share:.1f} % of its highest"
        )
    if inputs.device.type != "cpu" and not is_one_graph(sum_.mode):
        yield from _host_notes(pass_, inputs)
    if unsupported := pass_.workload.unsupported:
        yield (
            f"calls that no operator describes: {_names(unsupported)}; their cost is not known, so "
            "time, energy and coverage leave them out"
        )
    yield from _sizes_notes(pass_, sum_.mode)
    if sum_.dynamic_j and (dark := sum_.costed.keys() - sum_.dynamic_j.keys()):
        kinds = ", ".join(sorted({pass_.configurations[key].title for key in dark}))
        yield f"energy not known, for of these the time alone was measured: {kinds}"
    yield from _estimate_notes(estimated)
    refused = inputs.estimates.refused if inputs.estimates is not None else {}
    keys = (share.configuration.key for share in missing)
    if reasons := dict.fromkeys(refused[key] for key in keys if key in refused):
        yield f"not estimated: {'; '.join(reasons)}"


def _host_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    host, calls = HostTimes(pass_, inputs), zip(pass_.calls, pass_.times, strict=True)
    if unheard := sum(times for call, times in calls if host.of(call) is None):
        yield (
            "host time unknown, so a pass that waits for the host may take longer: "
            f"{plural(unheard, 'call')}"
        )


def _names(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in counts.items())


def _sizes_notes(pass_: Pass, mode: Mode) -> Iterator[str]:
    found: Counter[str] = Counter()
    for call, times in zip(pass_.calls, pass_.times, strict=True):
        if get_kind(call.configuration.kind).sized_by_values(call.configuration):
            found[call.configuration.title] += times
    if found:
        graph = "; no CUDA graph captures them" if mode == CAPTURED_MODE else ""
        yield (
            f"calls whose results are as large as values say: {_names(found)}; the sizes of what "
            "follows them are those that the harvest found, with random weights and inputs unless "
            f"others were given{graph}"
        )


def _estimate_notes(estimated: Sequence[Share]) -> Iterator[str]:
    for flag, words in RESTS_ON.items():
        if flagged := [s for s in estimated if s.cost is not None and flag in s.cost.flags]:
            time = 100 * math.fsum(share.share_time for share in flagged)
            kinds = ", ".join(sorted({share.configuration.title for share in flagged}))
            yield f"{time:.1f} % of the time rests {words}: {kinds}"


# The composer: timeline, base and dynamic energy, coverage, interval.


Interval = tuple[float, float]

LIMIT_TOLERANCE = 0.02
"""How far below its limit, as calibrated or stated, a board may keep (690 of 700 W were seen)."""

MOST_SAVED = 0.99
"""The largest share that a sum can be less: a host is faster for a moment, an estimate too long."""

STARTED_EARLIER_S = 350e-9
"""How much earlier than in the state in which costs are measured each kernel of a CUDA graph may
start: graphs of six models took 175 to 372 ns a kernel less (docs/measuring.md)."""

HOST_BOUND_EXCESS = 0.01
"""An eager pass longer than its device time by more than this share waits for the host."""


@dataclass(frozen=True)
class Prediction:
    """Time and energy of one pass of a workload, and how much of it measured operators explain.

    `energy_j` and its interval are None where the board, or some operator, has no power readings.
    Coverage weighs the measured calls by time and by energy; with the shares of what is missing
    each adds up to 1. On a device without power readings the energy is a weight alone.
    Where nothing that takes time has a cost, time and energy are None. `host_bound` says that the
    device waits for the host. `lacking` calls take time and have no cost: a sum that lacks a part
    is a lower bound and has no interval.
    Configurations that were never measured are either `estimated`, counted in `time_s` and
    `energy_j` but not in coverage, or `missing` and counted in neither: their shares only weight
    the coverage. `total` is the sum that all of it follows from.
    """

    workload: Workload
    mode: Mode
    device: Device
    board: str
    time_s: float | None
    time_interval_s: Interval | None
    host_bound: bool
    energy_j: float | None
    energy_interval_j: Interval | None
    coverage_calls: float
    coverage_time: float
    coverage_energy: float | None
    missing: tuple[Share, ...]
    parts: tuple[Share, ...]
    lacking: tuple[Share, ...]
    estimated: tuple[Share, ...]
    notes: tuple[str, ...]
    total: PassSum = field(repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """Whether time and energy (where it is known) are those of all calls."""
        return not self.lacking and not self.workload.unsupported

    @property
    def coverages(self) -> dict[str, float]:
        """The shares of time, and of energy where any is known, that are covered."""
        energy = {} if self.coverage_energy is None else {"energy": self.coverage_energy}
        return {"time": self.coverage_time, **energy}

    @property
    def power_w(self) -> float | None:
        """Mean power over a pass; None where a part is left out, which may take more or less."""
        if self.energy_j is None or not self.time_s or not self.complete:
            return None
        return self.energy_j / self.time_s


def inputs_in_pass(pass_: Pass, inputs: PredictionInputs) -> PredictionInputs:
    """Return inputs with costs in a pass's cache state, estimates where nothing was measured."""
    return with_estimates(pass_.configurations, with_weights_found(pass_.touched_bytes, inputs))


def compose_pass(pass_: Pass, mode: Mode, inputs: PredictionInputs) -> Prediction:
    """Predict one pass from the costs of its operators; a sum that lacks a part has no interval.

    `inputs` are as `inputs_in_pass` returns them; `inputs.peers` widen the intervals.
    """
    sum_ = PassSum(pass_, mode, inputs)
    shares = _shares(sum_)
    measured = tuple(s for s in shares if s.cost is not None and not s.cost.is_estimated)
    estimated = tuple(s for s in shares if s.cost is not None and s.cost.is_estimated)
    uncosted = tuple(s for s in shares if s.cost is None)
    unmeasured = uncosted + estimated
    unmetered = [s for s in measured if s.configuration.key not in sum_.dynamic_j]
    has_energy = sum_.base_power_w is not None and (sum_.dynamic_j or not sum_.costed)
    workload = pass_.workload
    whole = sum(pass_.counts.values()) + sum(workload.unsupported.values())
    # Where no operator describes what works, nothing is covered, not all of nothing.
    known = any(s.share_time for s in shares) or not workload.unsupported
    time_s: float | None = sum_.time_s
    energy_j, notes = sum_.energy_j, tuple(_notes(sum_, estimated, uncosted))
    if whole and not (sum_.costed and math.fsum(s.share_time for s in uncosted) < NEARLY_ALL):
        time_s = energy_j = None  # a sum of no costs is not a cost of 0
        slug = inputs.device.slug
        note = f"nothing of this workload that takes time was measured or estimated on {slug}"
        notes = (note, *notes)
    called = ((get_kind(s.configuration.kind), s) for s in uncosted)
    lacking = tuple(s for kind, s in called if kind.launches(s.configuration))
    peers = inputs.peers or ()
    is_whole = not lacking and not workload.unsupported
    time_interval_s = energy_interval_j = None
    if time_s is not None and is_whole:
        # A pass that waits for its host says nothing of the device's time.
        times = [(each.time, each.kernel_s) for each in peers if not each.waits]
        error = model_error(TIME_ERROR, sum_.kernel_s, times)
        time_interval_s = _interval(time_s, sum_.widths_time, error)
    if energy_j is not None and is_whole:
        energies = [(e.energy, e.kernel_s) for e in peers if e.energy is not None]
        error = model_error(ENERGY_ERROR, sum_.kernel_s, energies)
        energy_interval_j = _interval(energy_j, sum_.widths_energy, error)
    return Prediction(
        workload=workload,
        mode=mode,
        device=inputs.device,
        board=inputs.board,
        time_s=time_s,
        time_interval_s=time_interval_s,
        host_bound=sum_.host_bound,
        energy_j=energy_j,
        energy_interval_j=energy_interval_j,
        coverage_calls=sum(s.count for s in measured) / whole if whole else 1.0,
        coverage_time=known * rest(s.share_time for s in unmeasured),
        coverage_energy=known * rest(s.share_energy for s in (*unmeasured, *unmetered))
        if has_energy and time_s is not None
        else None,
        missing=uncosted,
        parts=measured,
        lacking=lacking,
        estimated=estimated,
        notes=notes if any(not peer.waits for peer in peers) else (*notes, PRIOR),
        total=sum_,
    )


def _shares(sum_: PassSum) -> list[Share]:
    """Return the shares of a pass, the largest of its time first."""
    pass_, costed = sum_.pass_, sum_.costed
    sizes = sizes_of(pass_.configurations.values(), costed)
    found = shares_of(pass_.counts, sizes, sum_.inputs.calibration.base_power_w or 0.0)
    assert found is not None  # a kind that this version lacks has no bytes, which a pass needs
    every = [
        Share(pass_.configurations[key], pass_.counts[key], *both, costed.get(key))
        for key, both in found.items()
    ]
    return sorted(every, key=lambda s: s.share_time, reverse=True)


def _interval(value: float, widths: Interval, error: float) -> Interval:
    below, above = (math.hypot(width, error) for width in widths)
    return positive_interval(value, below, above)


@dataclass(frozen=True)
class PassSum:
    """The sum of a pass's calls: at a share of the highest clock, and on a slower host.

    What names no share is at the clock at which the pass keeps to the board's power limit.
    """

    pass_: Pass
    mode: Mode
    inputs: PredictionInputs

    @cached_property
    def costed(self) -> dict[str, Cost]:
        costs = ((key, self.inputs.costs.get(key)) for key in self.pass_.counts)
        return {key: cost for key, cost in costs if cost is not None and cost.time_s is not None}

    @cached_property
    def timed(self) -> TimedPass:
        return timed_pass(self.pass_, self.mode, self.inputs)

    @cached_property
    def scalings(self) -> Mapping[str, Scaling]:
        return scalings(self.costed, self.pass_.bytes_moved)

    @cached_property
    def load(self) -> Load:
        times = ((c.key, c.times * c.device_s, 0.0) for c in self.timed.calls)
        dynamic = ((key, 0.0, self.pass_.counts[key] * d) for key, d in self.dynamic_j.items())
        return Load.of((self.scalings[key], t, d) for key, t, d in (*times, *dynamic))

    @cached_property
    def dynamic_j(self) -> dict[str, float]:
        energies = ((key, cost.dynamic_energy_j) for key, cost in self.costed.items())
        return {key: energy.mean for key, energy in energies if energy is not None}

    def device_at(self, share: float) -> float:
        return self.load.time_s(share) + self.timed.transition_s

    def time_at(self, share: float, host: float = 1.0) -> float:
        """Return the time (seconds) where the host takes `host` times as long in every call."""
        device_s = self.device_at(share)
        if is_one_graph(self.mode):
            return device_s
        if self.inputs.device.type == "cpu":
            containers_s = self.inputs.calibration.container_time_s or 0.0
            return device_s + self.inputs.containers_in(self.pass_.workload) * containers_s
        if self.timed.synchronises:
            factors = {key: scaling.time(share) for key, scaling in self.scalings.items()}
            return eager_time_s(self.timed.steps(factors.__getitem__, host))
        return max(self.timed.host_s * host, device_s)

    def energy_at(self, share: float) -> float | None:
        """Return E = P_base · T + Σ D; None where the board or a call has no power readings."""
        base_w = self.base_power_w
        if base_w is None or len(self.dynamic_j) < len(self.costed):
            return None
        return base_w * self.time_at(share) + self.load.energy_j(share)

    def share_at(self, limit_w: float | None) -> float:
        """Return the share of the highest clock at which the pass keeps to a power limit."""
        if not limit_w or self.energy_at(1.0) is None:
            return 1.0
        base_w = self.base_power_w or 0.0

        def power_w(share: float) -> float:
            time_s = self.time_at(share)
            return base_w + self.load.energy_j(share) / time_s if time_s else 0.0

        return clock_share(power_w, limit_w)

    # At the clock of the pass

    @cached_property
    def share(self) -> float:
        return self.share_at(self.inputs.limit_w)

    @cached_property
    def time_s(self) -> float:
        return self.time_at(self.share)

    @cached_property
    def energy_j(self) -> float | None:
        return self.energy_at(self.share)

    @property
    def base_power_w(self) -> float | None:
        return self.inputs.calibration.base_power_w

    @property
    def host_bound(self) -> bool:
        excess = 1 + HOST_BOUND_EXCESS
        return not is_one_graph(self.mode) and self.time_s > self.device_at(self.share) * excess

    @property
    def waiting_s(self) -> float:
        return self.time_s - self.device_at(self.share)

    @cached_property
    def call_s(self) -> dict[str, float]:
        """The device time of one call of each configuration (key) that has one."""
        calls = self.timed.calls
        return {c.key: c.device_s * self.scalings[c.key].time(self.share) for c in calls}

    @cached_property
    def call_j(self) -> dict[str, float]:
        """The dynamic energy of one call of each configuration (key) that has one."""
        dynamic_j = self.dynamic_j.items()
        return {key: j * self.scalings[key].energy(self.share) for key, j in dynamic_j}

    @cached_property
    def kernels(self) -> int:
        """The kernels of the calls that have a cost; one a call where nobody counted them."""
        counted = {k: 1 if c.kernels is None else c.kernels for k, c in self.costed.items()}
        return sum(self.pass_.counts[key] * count for key, count in counted.items())

    @property
    def kernel_s(self) -> float | None:
        """The mean device time of a kernel; None where there is none."""
        return self.device_at(self.share) / self.kernels if self.kernels else None

    # How far the 95 % intervals reach either way: their logarithms, but for the error of a sum
    # that other models show. They join the widths of the operators' costs, of estimates, of
    # factors that brought costs from other boards, of base power (for the energy), of the host
    # (during which base power flows) and, for the time, of a power limit kept a little lower and
    # of kernels that start earlier: what these take of the energy, models' errors hold.

    @cached_property
    def host_widths_s(self) -> Interval:
        """How much shorter and longer an uneven host may make the pass.

        The host is faster or slower by the same factor in all calls; a pass is never shorter than
        its device time.
        """
        peers = self.inputs.peers
        if peers is None or is_one_graph(self.mode) or self.inputs.device.type == "cpu":
            return 0.0, 0.0
        slower = math.exp(host_error([each.time for each in peers if each.waits]))
        shorter_s, longer_s = (self.time_at(self.share, by) for by in (1 / slower, slower))
        return self.time_s - shorter_s, longer_s - self.time_s

    @cached_property
    def widths_time(self) -> Interval:
        limit_s = started_s = 0.0
        if self.share < 1 and self.inputs.limit_w is not None:
            lower = self.share_at(self.inputs.limit_w * (1 - LIMIT_TOLERANCE))
            limit_s = self.time_at(lower) - self.time_s
        if self.inputs.device.type == "cuda" and is_one_graph(self.mode):
            started_s = STARTED_EARLIER_S * self.kernels
        counts, brought = self.pass_.counts, self.inputs.brought
        costs = {key: cost.time_s for key, cost in self.costed.items() if cost.time_s is not None}
        own_s = sum_half_width((counts[key], costs[key]) for key in self._measured)
        brought_s = shared_half_width(
            (counts[k] * costs[k].mean, brought[k].time) for k in costs if k in brought
        )
        half_width = math.hypot(own_s, limit_s, brought_s)
        guessed_s, _ = self._estimates_reach
        return _logarithms(self.time_s, half_width, self.host_widths_s, guessed_s, (started_s, 0.0))

    @cached_property
    def widths_energy(self) -> Interval:
        base_w = self.base_power_w or 0.0
        low_high = self.inputs.calibration.base_power_interval_w
        base_j = (low_high[1] - low_high[0]) / 2 * self.time_s if low_high else 0.0
        counts, brought = self.pass_.counts, self.inputs.brought
        energies = ((key, cost.dynamic_energy_j) for key, cost in self.costed.items())
        costs = {key: energy for key, energy in energies if energy is not None}
        own_j = sum_half_width((counts[key], costs[key]) for key in self._measured if key in costs)
        brought_j = shared_half_width(
            (counts[k] * costs[k].mean, brought[k].dynamic_energy) for k in costs if k in brought
        )
        half_width = math.hypot(own_j, base_j, brought_j)
        shorter_s, longer_s = self.host_widths_s
        _, guessed_j = self._estimates_reach
        return _logarithms(
            self.energy_j, half_width, (shorter_s * base_w, longer_s * base_w), guessed_j
        )

    @cached_property
    def _measured(self) -> list[str]:
        return [key for key, cost in self.costed.items() if not cost.is_estimated]

    @cached_property
    def _estimates_reach(self) -> tuple[Interval, Interval]:
        """How far estimates may lessen and raise the time (seconds) and energy (joules)."""
        costs = {key: cost for key, cost in self.costed.items() if cost.is_estimated}
        if self.inputs.estimates is None or not costs:
            return (0.0, 0.0), (0.0, 0.0)
        asked = {key: float(self.pass_.counts[key]) for key in costs}
        half_s, half_j = self.inputs.estimates.half_widths(asked, self.base_power_w)
        time_s = math.fsum(n * mean_of(costs[key].time_s) for key, n in asked.items())
        dynamic_j = math.fsum(n * mean_of(costs[key].dynamic_energy_j) for key, n in asked.items())
        energy_j = dynamic_j + (self.base_power_w or 0.0) * time_s
        return _either_way(time_s, half_s), _either_way(energy_j, half_j or 0.0)


def _logarithms(value: float | None, half_width: float, *reaches: Interval) -> Interval:
    """Join half an interval of a sum with what may lessen and raise it by unlike amounts."""
    if value is None or value <= 0:
        return 0.0, 0.0
    below = (math.log1p(-min(less / value, MOST_SAVED)) for less, _ in reaches)
    above = (math.log1p(more / value) for _, more in reaches)
    return math.hypot(half_width / value, *below), math.hypot(half_width / value, *above)


def _either_way(value: float, half_width: float) -> Interval:
    """Return how far an interval reaches below and above, half of which is of a logarithm.

    What is estimated may take three times as long, but not less than no time.
    """
    ratio = math.exp(half_width / value) if value > 0 else 1.0
    return value * (1 - 1 / ratio), value * (ratio - 1)


# A predicted pass call by call: when the host issues each, when the device runs it, at what cost.
#
# The device's slots, and the time in which it waits between them, add up to the predicted time;
# base power over that time and the slots' dynamic energies to the predicted energy.


@dataclass(frozen=True)
class CallCost:
    """What one call of a configuration takes on the device in a pass, at the clock of the pass.

    `dynamic_energy_j` is None where the call was not metered.
    """

    time_s: Quantity
    dynamic_energy_j: Quantity | None
    is_estimated: bool


@dataclass(frozen=True)
class Slot:
    """One call of a pass: when it is issued and run.

    The time is its own and `transition_s`, by which it is longer after other calls (seconds).
    """

    call: Call
    span: Span
    transition_s: float

    @property
    def device_s(self) -> float:
        return self.span.device_end_s - self.span.device_start_s

    @property
    def runs(self) -> bool:
        return self.device_s > 0


@dataclass(frozen=True)
class Schedule:
    """The calls of a pass that have a cost, in order, and the costs by configuration (key).

    The device's part of the pass lasts from `start_s` to `end_s`. `issued` says whether the host
    issues the calls one by one; else they run as one graph, or on a CPU, which is its own host.
    Base power (watts; None: not known) flows all the time.
    """

    slots: tuple[Slot, ...]
    costs: Mapping[str, CallCost]
    start_s: float
    end_s: float
    issued: bool
    base_power_w: float | None


def schedule(sum_: PassSum) -> Schedule:
    """Return the calls of a predicted pass (`Prediction.total`), one after the other."""
    pass_, timed, inputs = sum_.pass_, sum_.timed, sum_.inputs
    found = [(call, n) for n, call in zip(pass_.order, timed.order, strict=True) if call]
    issued = not is_one_graph(sum_.mode) and inputs.device.type != "cpu"
    steps = [
        Step(
            sum_.call_s[each.key] + each.transition_s,
            each.host_s if issued else 0.0,
            each.synchronises and issued,
        )
        for each, _ in found
    ]
    spans, start_s, end_s = steady_pass(steps)
    end_s += 0.0 if issued else sum_.waiting_s
    slots = tuple(
        Slot(pass_.calls[place], span, each.transition_s)
        for (each, place), span in zip(found, spans, strict=True)
    )
    costs = {
        key: _cost(inputs.costs[key], sum_.mode, time_s, sum_.call_j.get(key))
        for key, time_s in sum_.call_s.items()
    }
    return Schedule(slots, costs, start_s, end_s, issued, sum_.base_power_w)


def _cost(cost: Cost, mode: Mode, time_s: float, dynamic_j: float | None) -> CallCost:
    """Return a cost as it counts in a mode, its intervals as wide as its values at the clock."""
    of_mode = cost.time_s if is_one_graph(mode) else cost.eager_time_s or cost.time_s
    assert of_mode is not None
    energy = cost.dynamic_energy_j
    at_clock = None if energy is None or dynamic_j is None else _scaled(energy, dynamic_j)
    return CallCost(_scaled(of_mode, time_s), at_clock, cost.is_estimated)


def _scaled(quantity: Quantity, mean: float) -> Quantity:
    if not quantity.mean:
        return quantity
    factor = mean / quantity.mean
    low, high = (None if end is None else end * factor for end in (quantity.low, quantity.high))
    return Quantity(quantity.median * factor, mean, low, high, quantity.count)


# A sentence that says what a prediction leaves out, to be shown before its figures.


NO_CALLS = "makes no operator calls: nothing to predict"


def shortfall(found: Prediction) -> str | None:
    """Say that a prediction is a lower bound, and why; None where nothing is left out."""
    if not found.workload.calls and not found.workload.unsupported:
        return NO_CALLS
    if found.complete:
        return None
    if found.time_s is None:
        bound = "time and energy are not known"
    else:
        bound = f"at least {show(found.time_s, 's')}"
    share = show_share(math.fsum(each.share_time for each in found.lacking))
    lacks = {
        f"a cost (an estimated {share} of the time)": sum(s.count for s in found.lacking),
        "a description": sum(found.workload.unsupported.values()),
    }
    calls = sum((len(found.workload.calls), lacks["a description"]))
    without = ", ".join(f"{count} without {what}" for what, count in lacks.items() if count)
    return f"{bound}; of {plural(calls, 'call')} {without}"
