"""Costs of operators composed into the time and energy of a pass. Pure: no torch, no database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from opdb.derive.costs import HOT_ALONE
from opdb.kinds import get_kind
from opdb.memory import is_kept, may_be_kept_in_part
from opdb.predict.intervals import (
    ENERGY_ERROR,
    TIME_ERROR,
    host_error,
    model_error,
    shared_half_width,
    sum_half_width,
)
from opdb.predict.sizes import shares_of, sizes_of
from opdb.predict.timeline import (
    HostTimes,
    Load,
    Pass,
    PeerRatios,
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
    CAPTURED_MODE,
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
from opdb.records.measurement import BETWEEN, OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE
from opdb.units import plural, show, show_share

# The share of each configuration in the time and the energy of a pass.


ROUNDING = 1e-12
NEARLY_ALL = 0.9999
"""Where more of the time is missing, only views and the like are left: that is no sum of a pass."""


@dataclass(frozen=True)
class Share:
    """A configuration's part of a workload, its shares of time and energy estimated or measured."""

    configuration: Configuration
    count: int
    share_time: float
    share_energy: float

    @property
    def launches(self) -> bool:
        return get_kind(self.configuration.kind).launches(self.configuration)


@dataclass(frozen=True)
class EstimatedShare(Share):
    """A configuration's part of a workload that rests on an estimate, and the estimate."""

    cost: Cost


@dataclass(frozen=True)
class Shares:
    """All parts of a pass, the largest first: measured, estimated, or without a cost.

    `dark` parts were timed but not metered: the energy lacks them, the time does not.
    """

    measured: tuple[Share, ...]
    estimated: tuple[EstimatedShare, ...]
    uncosted: tuple[Share, ...]
    dark: tuple[Share, ...]


def shares(pass_: Pass, costed: Mapping[str, Cost], inputs: PredictionInputs) -> Shares:
    every = [
        (share, costed.get(share.configuration.key))
        for share in _every_share(pass_, costed, inputs)
    ]
    return Shares(
        measured=tuple(s for s, cost in every if cost is not None and not cost.is_estimated),
        estimated=tuple(
            EstimatedShare(s.configuration, s.count, s.share_time, s.share_energy, cost)
            for s, cost in every
            if cost is not None and cost.is_estimated
        ),
        uncosted=tuple(s for s, cost in every if cost is None),
        dark=tuple(
            replace(s, share_time=0.0)
            for s, cost in every
            if cost is not None and cost.dynamic_energy_j is None
        ),
    )


def rest(missing: Iterable[float]) -> float:
    """Return 1 minus the shares; 0 where that is less than their rounding."""
    left = 1 - math.fsum(missing)
    return left if left > ROUNDING else 0.0


def _every_share(
    pass_: Pass, costed: Mapping[str, Cost], inputs: PredictionInputs
) -> Sequence[Share]:
    sizes = sizes_of(pass_.configurations.values(), costed)
    found = shares_of(pass_.counts, sizes, inputs.calibration.base_power_w or 0.0)
    assert found is not None  # a kind that this version lacks has no bytes, which a pass needs
    every = [
        Share(pass_.configurations[key], pass_.counts[key], *both) for key, both in found.items()
    ]
    return sorted(every, key=lambda s: s.share_time, reverse=True)


# Notes of a prediction: what its figures rest on, and what they leave out.


PRIOR = (
    "no other model was measured on this device in this mode: the interval rests on a prior, "
    "how far sums were from the published runs"
)

DOUBTS = {
    ROOFLINE_ALONE: "on a roofline alone, for nothing like it was measured",
    OTHER_KINDS: "on measured operators of other kinds",
    OTHER_DTYPE: "on measured operators in another dtype",
}
"""What a flagged estimate rests on, in words."""

UNEVEN = 0.05
"""A note says so where the host alone makes an interval wider than this share, either way, and
where it was mostly slower than in quiet moments by more than that."""


def notes(pass_: Pass, mode: Mode, inputs: PredictionInputs, clock_share: float) -> tuple[str, ...]:
    waits = inputs.device.type != "cpu" and not is_one_graph(mode)
    return (
        *inputs.notes,
        *_weight_notes(pass_, inputs),
        *_cache_notes(pass_, inputs),
        *_clock_notes(inputs, clock_share),
        *(_host_notes(pass_, inputs) if waits else ()),
        *_foreign_notes(pass_, inputs),
        *_unsupported_notes(pass_),
        *_sizes_notes(pass_, mode),
    )


def notes_of_host(
    ratios: Sequence[float], time_s: float, interval_s: tuple[float, float]
) -> tuple[str, ...]:
    """Note that an uneven host makes a time uncertain, and how far its interval reaches for it.

    `ratios` are predicted / measured times of other models' passes that wait for their host.
    """
    below, above = (100 * (end / time_s - 1) for end in interval_s)
    seen = "none of another model was measured on this device in this mode"
    if ratios:
        apart = math.sqrt(math.fsum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios))
        seen = (
            f"{len(ratios)} of other models took {100 * math.expm1(apart):.0f} % more or less "
            "than predicted"
        )
    return (
        "this pass waits for the host, whose speed varies: the interval of its time reaches from "
        f"{below:+.0f} to {above:+.0f} %, by a prior of 10 % for any host and by such passes "
        f"({seen})",
    )


def notes_of_start(share: float) -> tuple[str, ...]:
    """Note that a GPU may start a graph's kernels earlier, which saves this share of its time."""
    if share < UNEVEN:
        return ()
    return (
        "once another process has made or ended a CUDA context on this GPU, kernels start up to "
        f"0.35 µs earlier, and the time is up to {100 * share:.0f} % less: its interval has that",
    )


def _weight_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    hot = is_kept(pass_.touched_bytes, inputs.resident_bytes)
    costs = [inputs.costs.get(c.key) for c in pass_.weighted]
    other = [
        cost
        for cost in costs
        if cost is not None
        and not cost.is_estimated
        and (cost.hot is None if hot else HOT_ALONE in cost.flags)
    ]
    if other:
        measured, found = ("cold", "hot") if hot else ("hot", "cold")
        yield (
            f"measured only with {measured} weights, while this pass finds them {found}: "
            f"{plural(len(other), 'configuration')}"
        )


def _cache_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    if pass_.weighted and may_be_kept_in_part(pass_.touched_bytes, inputs.resident_bytes):
        yield (
            f"this pass touches {show(pass_.touched_bytes, 'B')}, little more than the L2 surely "
            "keeps: it takes less where a part of its weights stays there"
        )


def _clock_notes(inputs: PredictionInputs, share: float) -> Iterator[str]:
    if share != 1:
        yield (
            f"the power limit, kept at {inputs.limit_w:.0f} W, lowers the clock to "
            f"{100 * share:.1f} % of its highest"
        )


def _host_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    host = HostTimes(pass_, inputs)
    usual = unheard = 0
    quiet_s = median_s = 0.0
    for call, times in zip(pass_.calls, pass_.times, strict=True):
        if own := host.own(call):
            quiet_s += times * own.mean
            median_s += times * own.median
        else:
            heard = host.of(call) is not None
            usual += times * heard
            unheard += times * (not heard)
    if median_s > (1 + UNEVEN) * quiet_s:
        yield (
            "host times are those of quiet moments; when they were measured, the host took "
            f"{median_s / quiet_s:.2f} times as long at the median"
        )
    if usual:
        yield f"host time not measured, the usual of its kind taken: {plural(usual, 'call')}"
    if unheard:
        yield (
            "host time unknown, so a pass that waits for the host may take longer: "
            f"{plural(unheard, 'call')}"
        )


def _foreign_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    costs = (inputs.costs.get(key) for key in pass_.configurations)
    if foreign := sum(cost is not None and cost.board != inputs.board for cost in costs):
        yield (
            "measured only on another board of the device, costs used unchanged: "
            f"{plural(foreign, 'configuration')}"
        )


def _unsupported_notes(pass_: Pass) -> Iterator[str]:
    if unsupported := pass_.workload.unsupported:
        names = ", ".join(f"{name} ×{count}" for name, count in unsupported.items())
        yield (
            f"calls that no operator describes: {names}; their cost is not known, so time, energy "
            "and coverage leave them out"
        )


def _sizes_notes(pass_: Pass, mode: Mode) -> Iterator[str]:
    found: Counter[str] = Counter()
    for call, times in zip(pass_.calls, pass_.times, strict=True):
        if get_kind(call.configuration.kind).sized_by_values(call.configuration):
            found[call.configuration.title] += times
    if found:
        names = ", ".join(f"{name} ×{count}" for name, count in sorted(found.items()))
        yield (
            f"calls whose results are as large as values say: {names}; the sizes of what follows "
            "them are those that the harvest found, with random weights and inputs unless others "
            "were given"
        )
    if found and mode == CAPTURED_MODE:
        yield "no CUDA graph captures such calls: the model as it stands cannot run in this mode"


def _dark_notes(parts: Shares) -> Iterator[str]:
    if parts.dark:
        kinds = ", ".join(dict.fromkeys(share.configuration.title for share in parts.dark))
        configurations = plural(len(parts.dark), "configuration")
        yield f"time measured, but not the energy: {configurations} ({kinds})"


def _estimate_notes(
    parts: Shares, missing: tuple[Share, ...], inputs: PredictionInputs
) -> Iterator[str]:
    between = [s for s in parts.estimated if BETWEEN in s.cost.flags]
    others = [s for s in parts.estimated if BETWEEN not in s.cost.flags]
    for what, found in (
        ("never measured, costs estimated", others),
        ("costs interpolated between measured sizes of the same calls", between),
    ):
        if found:
            share = math.fsum(s.share_time for s in found)
            yield f"{what}: {plural(len(found), 'configuration')} ({100 * share:.1f} % of the time)"
    for flag, words in DOUBTS.items():
        if flagged := [s for s in parts.estimated if flag in s.cost.flags]:
            share = math.fsum(s.share_time for s in flagged)
            kinds = ", ".join(sorted({s.configuration.title for s in flagged}))
            yield f"{100 * share:.1f} % of the time rests {words}: {kinds}"
    refused = inputs.estimates.refused if inputs.estimates is not None else {}
    reasons = dict.fromkeys(
        why for s in missing if (why := refused.get(s.configuration.key)) is not None
    )
    if reasons:
        yield f"not estimated: {'; '.join(reasons)}"


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
    `host_ratios` are predicted / measured times of other models' passes that wait for their host,
    where the host makes the time of this one uncertain; None elsewhere.
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
    host_ratios: tuple[float, ...] | None

    @property
    def time_complete(self) -> bool:
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
    """Predict one pass of a workload from the costs of its operators."""
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
    workload = pass_.workload
    whole = sum(pass_.counts.values()) + sum(workload.unsupported.values())
    # Where no operator describes what works, nothing is covered, not all of nothing.
    known = any(s.share_time for s in parts.measured + unmeasured) or not workload.unsupported
    found = Prediction(
        workload=workload,
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
        coverage_time=known * rest(s.share_time for s in unmeasured),
        coverage_energy=None
        if energy_j is None
        else known * rest(s.share_energy for s in unmeasured),
        missing=missing,
        parts=parts.measured,
        lacking=tuple(s for s in parts.uncosted if s.launches),
        dark=parts.dark,
        estimated=parts.estimated,
        notes=(
            *notes(pass_, mode, inputs, share),
            *_dark_notes(parts),
            *_estimate_notes(parts, missing, inputs),
            *(notes_of_start(sum_.started_earlier_s / time_s) if time_s else ()),
        ),
        widths_time=widths_time,
        widths_energy=widths_energy,
        kernel_s=sum_.device_s(share) / sum_.kernels if sum_.kernels else None,
        host_ratios=inputs.host_ratios if time_s and max(host_s) >= UNEVEN * time_s else None,
    )
    lacking = math.fsum(share.share_time for share in parts.uncosted)
    is_sum = not whole or (sum_.costed and lacking < NEARLY_ALL)
    return found if is_sum else _unmeasured(found)


def time_on_host_s(pass_: Pass, mode: Mode, inputs: PredictionInputs, factor: float) -> float:
    """Return the time of a pass (seconds) whose host takes `factor` times as long in every call.

    `inputs` are as `compose_pass` takes them. The device takes as long as before, so that a pass
    which does not wait for its host does, too.
    """
    sum_ = _Sum(pass_, mode, inputs)
    return sum_.time_s(sum_.clock_share(inputs.limit_w), factor)


def with_intervals(found: Prediction, ratios: PeerRatios) -> Prediction:
    """Return a composed prediction with intervals, to which other models' errors are added.

    A sum that lacks a part has none.
    """
    time_interval_s = energy_interval_j = None
    host: tuple[str, ...] = ()
    if found.time_s is not None and found.time_complete:
        error = model_error(TIME_ERROR, found.kernel_s, ratios.time)
        time_interval_s = _interval(found.time_s, found.widths_time, error)
        if found.host_ratios is not None:
            host = notes_of_host(found.host_ratios, found.time_s, time_interval_s)
    if found.energy_j is not None and found.complete:
        error = model_error(ENERGY_ERROR, found.kernel_s, ratios.energy)
        energy_interval_j = _interval(found.energy_j, found.widths_energy, error)
    return replace(
        found,
        time_interval_s=time_interval_s,
        energy_interval_j=energy_interval_j,
        notes=found.notes + host + (() if ratios.time else (PRIOR,)),
    )


def _interval(value: float, widths: Interval, error: float) -> Interval:
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
    """Return the parts that `compose_pass` adds up for the same pass, mode and inputs."""
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
    def kernels(self) -> int:
        """The kernels of the calls that have a cost; one a call where nobody counted them."""
        counted = {k: 1 if c.kernels is None else c.kernels for k, c in self.costed.items()}
        return sum(self.pass_.counts[key] * count for key, count in counted.items())

    @property
    def started_earlier_s(self) -> float:
        """How much shorter a CUDA graph is where the GPU starts its kernels earlier (seconds)."""
        if self.inputs.device.type != "cuda" or not is_one_graph(self.mode):
            return 0.0
        return STARTED_EARLIER_S * self.kernels

    @cached_property
    def load(self) -> Load:
        times = ((c.key, c.times * c.device_s, 0.0) for c in self.timed.calls)
        dynamic = ((key, 0.0, self.pass_.counts[key] * d) for key, d in self.dynamic_j.items())
        return Load.of((self.scalings[key], t, d) for key, t, d in (*times, *dynamic))

    @cached_property
    def dynamic_j(self) -> dict[str, float]:
        energies = ((key, cost.dynamic_energy_j) for key, cost in self.costed.items())
        return {key: energy.mean for key, energy in energies if energy is not None}

    def slower_by(self, share: float) -> Callable[[str], float]:
        factors = {key: scaling.time(share) for key, scaling in self.scalings.items()}
        return factors.__getitem__

    def device_s(self, share: float) -> float:
        return self.load.time_s(share) + self.timed.transition_s

    def time_s(self, share: float, host: float = 1.0) -> float:
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
    flows) and, for the time, of a power limit kept a little lower and of kernels that start
    earlier: what these take of the energy, models' errors hold, which come later.
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
    started_s = sum_.started_earlier_s, 0.0
    return (
        _logarithms(time_s, math.hypot(own_s, limit_s, brought_s), host_s, guessed_s, started_s),
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


def schedule(pass_: Pass, mode: Mode, inputs: PredictionInputs) -> Schedule:
    """Return the schedule of the pass that `compose_pass` predicts from the same inputs."""
    parts = break_down(pass_, mode, inputs)
    timed = timed_pass(pass_, mode, inputs)
    found = [(call, n) for n, call in zip(pass_.order, timed.order, strict=True) if call]
    issued = not is_one_graph(mode) and inputs.device.type != "cpu"
    steps = [
        Step(
            parts.call_s[each.key] + each.transition_s,
            each.host_s if issued else 0.0,
            each.synchronises and issued,
        )
        for each, _ in found
    ]
    steady = steady_pass(steps)
    end_s = steady.end_s if issued else steady.end_s + parts.waiting_s
    slots = tuple(
        Slot(pass_.calls[place], span, each.transition_s)
        for (each, place), span in zip(found, steady.spans, strict=True)
    )
    costs = {
        key: _cost(inputs.costs[key], mode, time_s, parts.call_j.get(key))
        for key, time_s in parts.call_s.items()
    }
    return Schedule(slots, costs, steady.start_s, end_s, issued, parts.base_power_w)


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
    elif not found.time_complete:
        bound = f"at least {show(found.time_s, 's')}"
    else:
        bound = f"at least {show(found.energy_j, 'J')}"
    return "; ".join((bound, *_reasons(found)))


def _reasons(found: Prediction) -> list[str]:
    said, calls = [], len(found.workload.calls)
    if found.lacking:
        share = math.fsum(each.share_time for each in found.lacking)
        lacking = sum(each.count for each in found.lacking)
        said.append(
            f"{lacking} of {plural(calls, 'call')} ({_estimated(share)} of the time) "
            f"{_are(lacking)} neither measured nor estimated"
        )
    if unsupported := sum(found.workload.unsupported.values()):
        said.append(
            f"{plural(unsupported, 'further call')} {_are(unsupported)} described by no operator"
        )
    if found.energy_j is not None and (dark := sum(each.count for each in found.dark)):
        said.append(f"the energy of {dark} of {plural(calls, 'call')} is not measured")
    return said


def _estimated(share: float) -> str:
    return "less than 0.1 %" if share < 0.001 else f"an estimated {show_share(share)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
