"""The composer: timeline, base and dynamic energy, coverage, interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from opdb.compose.calls import Pass, TimedPass, is_one_graph, timed_pass
from opdb.compose.clock import Load, Scaling, clock_share, scalings
from opdb.compose.inputs import PeerRatios, PredictionInputs, with_estimates, with_weights_found
from opdb.compose.intervals import (
    ENERGY_ERROR,
    TIME_ERROR,
    host_error,
    model_error,
    shared_half_width,
    sum_half_width,
)
from opdb.compose.notes import notes, notes_of_host, notes_of_parts, notes_of_ratios
from opdb.compose.shares import NEARLY_ALL, EstimatedShare, Share, rest, shares
from opdb.compose.timeline import eager_time_s
from opdb.records import Cost, Device, Mode, Workload, mean_of, positive_interval

Interval = tuple[float, float]

LIMIT_TOLERANCE = 0.02
"""How far below its limit, as calibrated or stated, a board may keep (690 of 700 W were seen)."""

MOST_SAVED = 0.99
"""The largest share that a sum can be less: a host is faster for a moment, an estimate too long."""

HOST_BOUND_EXCESS = 0.01
"""An eager pass longer than its device time by more than this share waits for the host."""


@dataclass(frozen=True)
class Prediction:
    """Time and energy of one pass of a workload, and how much of it measured operators explain.

    `energy_j` and its interval are None where the board has no power readings.
    Coverage weighs the measured calls by time and by energy; with the shares of what is missing
    each adds up to 1. On a device without power readings the energy is a weight alone.
    Where nothing that takes time has a cost, time and energy are None. `host_bound` says that the
    device waits for the host. `lacking` calls take time and have no cost, `dark` ones have a time
    and no energy: a sum that lacks a part is a lower bound and has no interval.
    Configurations that were never measured are either `estimated`, counted in `time_s` and
    `energy_j` but not in coverage, or `missing` and counted in neither: their shares only weight
    the coverage. `widths_time` and `widths_energy`
    are the logarithms by which the intervals reach below and above, but for the error of a sum that
    other models showed. `kernel_s` is the mean device time of a kernel (None: there is none).
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
    dark: tuple[Share, ...]
    estimated: tuple[EstimatedShare, ...]
    notes: tuple[str, ...]
    widths_time: Interval
    widths_energy: Interval
    kernel_s: float | None

    @property
    def time_complete(self) -> bool:
        """Whether the time is that of all calls, not a lower bound."""
        return not self.lacking and not self.workload.unsupported

    @property
    def complete(self) -> bool:
        """Whether time and energy (where any is known) are those of all calls."""
        return self.time_complete and not self.dark

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


def compose(workload: Workload, mode: Mode, inputs: PredictionInputs) -> Prediction:
    """Predict one pass of a workload from the costs of its operators.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    pass_ = Pass(workload)
    return with_intervals(
        compose_pass(pass_, mode, inputs_in_pass(pass_, inputs)), inputs.peer_ratios
    )


def inputs_in_pass(pass_: Pass, inputs: PredictionInputs) -> PredictionInputs:
    """Return inputs with costs in a pass's cache state, estimates where nothing was measured."""
    return with_estimates(pass_.configurations, with_weights_found(pass_.touched_bytes, inputs))


def compose_pass(pass_: Pass, mode: Mode, inputs: PredictionInputs) -> Prediction:
    """Predict one pass, without intervals: `with_intervals` adds them.

    `inputs` are as `inputs_in_pass` returns them.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    sum_ = _Sum(pass_, mode, inputs)
    share = sum_.clock_share(inputs.limit_w)
    time_s = sum_.time_s(share)
    energy_j = sum_.energy_j(share)
    host_s = _host_widths_s(sum_, share, time_s)
    widths_time, widths_energy = _widths(sum_, share, host_s)
    parts = shares(pass_, sum_.costed, inputs)
    parts = parts if energy_j is not None else replace(parts, dark=())
    missing = parts.uncosted + parts.dark
    unmeasured = missing + parts.estimated
    whole = sum(pass_.counts.values()) + sum(pass_.workload.unsupported.values())
    found = Prediction(
        workload=pass_.workload,
        mode=mode,
        device=inputs.device,
        board=inputs.board,
        time_s=time_s,
        time_interval_s=None,
        host_bound=not is_one_graph(mode)
        and time_s > sum_.device_s(share) * (1 + HOST_BOUND_EXCESS),
        energy_j=energy_j,
        energy_interval_j=None,
        coverage_calls=sum(s.count for s in parts.measured) / whole if whole else 1.0,
        coverage_time=rest(s.share_time for s in unmeasured),
        coverage_energy=None if energy_j is None else rest(s.share_energy for s in unmeasured),
        missing=missing,
        parts=parts.measured,
        lacking=tuple(s for s in parts.uncosted if s.launches),
        dark=parts.dark,
        estimated=parts.estimated,
        notes=(
            *notes(pass_, mode, inputs, share),
            *notes_of_host(max(host_s) / time_s if time_s else 0.0, inputs),
            *notes_of_parts(parts, missing, inputs),
        ),
        widths_time=widths_time,
        widths_energy=widths_energy,
        kernel_s=sum_.device_s(share) / sum_.kernels if sum_.kernels else None,
    )
    lacking = math.fsum(share.share_time for share in parts.uncosted)
    is_sum = not pass_.counts or (sum_.costed and lacking < NEARLY_ALL)
    return found if is_sum else _unmeasured(found)


def time_on_host_s(pass_: Pass, mode: Mode, inputs: PredictionInputs, factor: float) -> float:
    """Return the time of a pass (seconds) whose host takes `factor` times as long in every call.

    `inputs` are as `compose_pass` takes them. The device takes as long as before, so that a pass
    which does not wait for its host does, too.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    sum_ = _Sum(pass_, mode, inputs)
    return sum_.time_s(sum_.clock_share(inputs.limit_w), factor)


def with_intervals(found: Prediction, ratios: PeerRatios) -> Prediction:
    """Return a composed prediction with intervals, to which other models' errors are added.

    A sum that lacks a part has none.
    """
    time_interval_s = energy_interval_j = None
    if found.time_s is not None and found.time_complete:
        error = model_error(TIME_ERROR, found.kernel_s, ratios.time)
        time_interval_s = _interval(found.time_s, found.widths_time, error)
    if found.energy_j is not None and found.complete:
        error = model_error(ENERGY_ERROR, found.kernel_s, ratios.energy)
        energy_interval_j = _interval(found.energy_j, found.widths_energy, error)
    return replace(
        found,
        time_interval_s=time_interval_s,
        energy_interval_j=energy_interval_j,
        notes=found.notes + notes_of_ratios(ratios),
    )


def _interval(value: float, widths: Interval, error: float) -> Interval:
    """Return the 95 % interval that reaches these logarithms below and above a sum."""
    below, above = (math.hypot(width, error) for width in widths)
    return positive_interval(value, below, above)


def _unmeasured(found: Prediction) -> Prediction:
    """Return a prediction without figures: a sum of no costs is not a cost of 0."""
    slug = found.device.slug
    note = f"nothing of this workload that takes time was measured or estimated on {slug}"
    return replace(
        found,
        time_s=None,
        energy_j=None,
        coverage_energy=None,
        notes=(note, *found.notes),
    )


@dataclass(frozen=True)
class Breakdown:
    """The parts of a pass's time and energy, at the clock at which the pass runs.

    `call_s` and `call_j` hold the device time (seconds) and the dynamic energy (joules) of one call
    of each configuration (key) that has one. Besides the calls, a pass takes `transition_s`
    between its kernels and for what the L2 writes back, and `waiting_s` in which the device waits
    for the host. Base power flows all the time (None: not known).
    """

    call_s: Mapping[str, float]
    call_j: Mapping[str, float]
    transition_s: float
    waiting_s: float
    base_power_w: float | None


def break_down(pass_: Pass, mode: Mode, inputs: PredictionInputs) -> Breakdown:
    """Return the parts that `compose_pass` adds up for the same pass, mode and inputs.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    sum_ = _Sum(pass_, mode, inputs)
    share = sum_.clock_share(inputs.limit_w)
    slower, scalings = sum_.slower_by(share), sum_.scalings
    return Breakdown(
        call_s={c.key: c.device_s * slower(c.key) for c in sum_.timed.calls},
        call_j={key: j * scalings[key].energy(share) for key, j in sum_.dynamic_j.items()},
        transition_s=sum_.timed.transition_s,
        waiting_s=sum_.time_s(share) - sum_.device_s(share),
        base_power_w=inputs.calibration.base_power_w,
    )


@dataclass(frozen=True)
class _Sum:
    """The sums of a pass's costs, at any share of the highest clock."""

    pass_: Pass
    mode: Mode
    inputs: PredictionInputs

    @cached_property
    def costed(self) -> dict[str, Cost]:
        """The costs, measured or estimated, by configuration key."""
        costs = ((key, self.inputs.costs.get(key)) for key in self.pass_.counts)
        return {key: cost for key, cost in costs if cost is not None and cost.time_s is not None}

    @cached_property
    def timed(self) -> TimedPass:
        """The calls that have a cost, at full clock."""
        return timed_pass(self.pass_, self.mode, self.inputs)

    @cached_property
    def scalings(self) -> Mapping[str, Scaling]:
        """How each configuration scales with the clock."""
        return scalings(self.costed, self.pass_.bytes_moved)

    @cached_property
    def kernels(self) -> int:
        """The kernels of the calls that have a cost; one a call where nobody counted them."""
        counted = {k: 1 if c.kernels is None else c.kernels for k, c in self.costed.items()}
        return sum(self.pass_.counts[key] * count for key, count in counted.items())

    @cached_property
    def load(self) -> Load:
        """Time and energy of all calls, summed by how they scale with the clock."""
        times = ((c.key, c.times * c.device_s, 0.0) for c in self.timed.calls)
        dynamic = ((key, 0.0, self.pass_.counts[key] * d) for key, d in self.dynamic_j.items())
        return Load.of((self.scalings[key], t, d) for key, t, d in (*times, *dynamic))

    @cached_property
    def dynamic_j(self) -> dict[str, float]:
        """The dynamic energies of one call, by configuration key, at full clock."""
        energies = ((key, cost.dynamic_energy_j) for key, cost in self.costed.items())
        return {key: energy.mean for key, energy in energies if energy is not None}

    def slower_by(self, share: float) -> Callable[[str], float]:
        """Return the factor on each configuration's (key) time at a share of the clock."""
        factors = {key: scaling.time(share) for key, scaling in self.scalings.items()}
        return factors.__getitem__

    def device_s(self, share: float) -> float:
        """Return the device's time at a share of the highest clock."""
        return self.load.time_s(share) + self.timed.transition_s

    def time_s(self, share: float, host: float = 1.0) -> float:
        """Return the time of the pass at a share of the clock, its host slower by a factor."""
        device_s = self.device_s(share)
        if is_one_graph(self.mode):
            return device_s
        if self.inputs.device.type == "cpu":
            containers_s = self.inputs.calibration.container_time_s or 0.0
            return device_s + self.inputs.containers_in(self.pass_.workload) * containers_s
        if self.timed.synchronises:
            return self._played_s(share, host)
        return max(self.timed.host_s * host, device_s)

    @cached_property
    def _played_s(self) -> Callable[[float, float], float]:
        """The time of the calls in order at a clock share and a host factor; each played once."""
        return cache(
            lambda share, host: eager_time_s(self.timed.steps(self.slower_by(share), host))
        )

    def energy_j(self, share: float) -> float | None:
        """Return E = P_base · T + Σ D; None where the board has no power readings."""
        base_w = self.inputs.calibration.base_power_w
        if base_w is None or (self.costed and not self.dynamic_j):
            return None
        return base_w * self.time_s(share) + self.load.energy_j(share)

    def clock_share(self, limit_w: float | None) -> float:
        """Return the share of the highest clock at which the pass keeps to a power limit."""

        if not limit_w or self.energy_j(1.0) is None:
            return 1.0
        base_w = self.inputs.calibration.base_power_w or 0.0

        def power_w(share: float) -> float:
            time_s = self.time_s(share)
            return base_w + self.load.energy_j(share) / time_s if time_s else 0.0

        return clock_share(power_w, limit_w)


def _host_widths_s(sum_: _Sum, share: float, time_s: float) -> Interval:
    """Return how much shorter and longer an uneven host may make a pass (seconds).

    The host is faster or slower by the same factor in all calls; a pass is never shorter than its
    device time.
    """
    ratios = sum_.inputs.host_ratios
    if ratios is None or is_one_graph(sum_.mode) or sum_.inputs.device.type == "cpu":
        return 0.0, 0.0  # nor is the pass played twice more for nothing
    error = host_error(ratios)
    slower = math.exp(error)
    return time_s - sum_.time_s(share, 1 / slower), sum_.time_s(share, slower) - time_s


def _widths(sum_: _Sum, share: float, host_s: Interval) -> tuple[Interval, Interval]:
    """Return how far the 95 % intervals of time and energy reach either way, in logarithms.

    They join the widths of the operators' costs, of estimates, of factors that brought costs from
    other boards, of base power (for the energy), of the host (`host_s`, during which base power
    flows) and, for the time, of a power limit kept a little lower. Models' errors come later.
    """
    inputs = sum_.inputs
    time_s, energy_j = sum_.time_s(share), sum_.energy_j(share)
    limit_s = 0.0
    if share < 1 and inputs.limit_w is not None:
        limit_s = sum_.time_s(sum_.clock_share(inputs.limit_w * (1 - LIMIT_TOLERANCE))) - time_s
    base_w = inputs.calibration.base_power_w or 0.0
    low_high = inputs.calibration.base_power_interval_w
    base_j = (low_high[1] - low_high[0]) / 2 * time_s if low_high else 0.0
    guessed_s, guessed_j = _estimates_reach(sum_)
    brought_s, brought_j = _brought_widths(sum_)
    own_s, own_j = _own_widths(sum_)
    host_j = host_s[0] * base_w, host_s[1] * base_w
    return (
        _logarithms(time_s, math.hypot(own_s, limit_s, brought_s), host_s, guessed_s),
        _logarithms(energy_j, math.hypot(own_j, base_j, brought_j), host_j, guessed_j),
    )


def _logarithms(value: float | None, half_width: float, *reaches: Interval) -> Interval:
    """Join half an interval of a sum with what may lessen and raise it by unlike amounts."""
    if value is None or value <= 0:
        return 0.0, 0.0
    below = (math.log1p(-min(less / value, MOST_SAVED)) for less, _ in reaches)
    above = (math.log1p(more / value) for _, more in reaches)
    return math.hypot(half_width / value, *below), math.hypot(half_width / value, *above)


def _own_widths(sum_: _Sum) -> tuple[float, float]:
    """Return half the widths due to measured costs, of time (seconds) and energy (joules)."""
    counts = sum_.pass_.counts
    measured = {key: cost for key, cost in sum_.costed.items() if not cost.is_estimated}
    return (
        sum_half_width((counts[k], c.time_s) for k, c in measured.items() if c.time_s is not None),
        sum_half_width(
            (counts[k], c.dynamic_energy_j)
            for k, c in measured.items()
            if c.dynamic_energy_j is not None
        ),
    )


def _brought_widths(sum_: _Sum) -> tuple[float, float]:
    """Return half the widths due to factors between boards, of time (s) and energy (J)."""
    counts, brought = sum_.pass_.counts, sum_.inputs.brought
    ours = {key: cost for key, cost in sum_.costed.items() if key in brought}
    seconds = ((counts[k] * c.time_s.mean, brought[k].time) for k, c in ours.items() if c.time_s)
    joules = (
        (counts[k] * c.dynamic_energy_j.mean, brought[k].dynamic_energy)
        for k, c in ours.items()
        if c.dynamic_energy_j is not None
    )
    return shared_half_width(seconds), shared_half_width(joules)


def _estimates_reach(sum_: _Sum) -> tuple[Interval, Interval]:
    """Return how far estimates may lessen and raise the time (seconds) and energy (joules)."""
    counts, inputs = sum_.pass_.counts, sum_.inputs
    costs = {key: cost for key, cost in sum_.costed.items() if cost.is_estimated}
    if inputs.estimates is None or not costs:
        return (0.0, 0.0), (0.0, 0.0)
    base_w = inputs.calibration.base_power_w
    asked = {key: float(counts[key]) for key in costs}
    half_s, half_j = inputs.estimates.half_widths(asked, base_w)
    time_s = math.fsum(n * mean_of(costs[key].time_s) for key, n in asked.items())
    dynamic_j = math.fsum(n * mean_of(costs[key].dynamic_energy_j) for key, n in asked.items())
    energy_j = dynamic_j + (base_w or 0.0) * time_s
    return _either_way(time_s, half_s), _either_way(energy_j, half_j or 0.0)


def _either_way(value: float, half_width: float) -> Interval:
    """Return how far an interval reaches below and above, half of which is of a logarithm.

    What is estimated may take three times as long, but not less than no time.
    """
    ratio = math.exp(half_width / value) if value > 0 else 1.0
    return value * (1 - 1 / ratio), value * (ratio - 1)
