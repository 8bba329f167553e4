"""The composer: timeline, base and dynamic energy, coverage, interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.compose.calls import HostTimes, TimedCall, steps_of, timed_calls
from opdb.compose.clock import Scaling, clock_share, scalings
from opdb.compose.estimate import NOMINAL_RATES, Rates, reached_rates
from opdb.compose.grounds import Grounds, in_state, with_estimates
from opdb.compose.intervals import model_error, sum_half_width
from opdb.compose.timeline import Step, eager_time_s, graph_time_s
from opdb.derive.costs import HOT_ALONE
from opdb.footprint import keeps_weights_hot, weight_bytes
from opdb.kinds import get_kind
from opdb.records import (
    Configuration,
    Cost,
    Device,
    Mode,
    Workload,
)

Interval = tuple[float, float]

LIMIT_TOLERANCE = 0.02
"""How far below its limit, as calibrated or stated, a board may keep (690 of 700 W were seen)."""


HOST_BOUND_EXCESS = 0.01
"""An eager pass longer than its device time by more than this share waits for the host."""


@dataclass(frozen=True)
class Share:
    """A configuration's part of a workload, its shares of time and energy estimated or measured."""

    configuration: Configuration
    count: int
    share_time: float
    share_energy: float


@dataclass(frozen=True)
class EstimatedShare(Share):
    """A configuration's part of a workload that rests on an estimate, and the estimate."""

    cost: Cost


@dataclass(frozen=True)
class Prediction:
    """Time and energy of one pass of a workload, and how much of it measured operators explain.

    `energy_j` and its interval are None where the board has no power readings; `reasons` says why.
    Coverage weighs the measured calls by time and by energy; with the shares of what is missing
    each adds up to 1. On a device without power readings the energy is a weight alone.
    Where nothing at all was measured, time and energy are None. `host_bound` says that the device
    waits for the host.
    What was never measured is `estimated`, in `time_s` and `energy_j` and not in coverage, or
    `missing` and in neither: its shares are for weighting alone.
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
    coverage_energy: float
    missing: tuple[Share, ...]
    parts: tuple[Share, ...]
    estimated: tuple[EstimatedShare, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def call_time_s(self) -> float | None:
        """Mean time of a call: the shorter, the more the gaps between kernels count."""
        return self.time_s / len(self.workload.calls) if self.time_s else None

    @property
    def power_w(self) -> float | None:
        """Mean power over a pass."""
        return None if self.energy_j is None or not self.time_s else self.energy_j / self.time_s


def compose(workload: Workload, mode: Mode, grounds: Grounds) -> Prediction:
    """Predict one pass of a workload from the costs of its operators.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    counts = workload.occurrences()
    grounds = with_estimates(workload, in_state(workload, grounds))
    costed = {
        c: grounds.costs[c.key]
        for c in counts
        if c.key in grounds.costs and grounds.costs[c.key].time_s is not None
    }
    measured = {c: cost for c, cost in costed.items() if not cost.is_estimated}
    at_full_clock = timed_calls(workload, mode, grounds)
    clock = _at_limit(workload, mode, grounds, at_full_clock, costed)
    steps = steps_of(at_full_clock, clock.time)
    time_s = _time_s(steps, mode, grounds, workload)
    times = [(counts[c], cost.time_s) for c, cost in measured.items() if cost.time_s]
    limit = _limit_width_s(workload, mode, grounds, at_full_clock, costed, clock)
    guessed_s, guessed_j = _estimates_widths(counts, costed, grounds)
    width = math.hypot(
        sum_half_width(times), model_error(grounds.known.time) * time_s, limit, guessed_s
    )
    energy_j = _energy_j(counts, costed, grounds, clock, time_s)
    energy_interval = None
    if energy_j is not None:
        half = math.hypot(_energy_width_j(counts, measured, grounds, time_s, energy_j), guessed_j)
        energy_interval = (max(0.0, energy_j - half), energy_j + half)
    shares = _shares(counts, costed, grounds)
    dark = _without_energy(shares, costed) if energy_j is not None else []
    missing = (*(s for s in shares if s.configuration not in costed), *dark)
    estimated = tuple(
        EstimatedShare(s.configuration, s.count, s.share_time, s.share_energy, cost)
        for s in shares
        if (cost := costed.get(s.configuration)) is not None and cost.is_estimated
    )
    calls = sum(counts.values())
    unsupported = sum(workload.unsupported.values())
    found = Prediction(
        workload=workload,
        mode=mode,
        device=grounds.device,
        board=grounds.board,
        time_s=time_s,
        time_interval_s=(max(0.0, time_s - width), time_s + width),
        host_bound=mode == "eager" and time_s > graph_time_s(steps) * (1 + HOST_BOUND_EXCESS),
        energy_j=energy_j,
        energy_interval_j=energy_interval,
        coverage_calls=_ratio(sum(counts[c] for c in measured), calls + unsupported),
        coverage_time=_rest(s.share_time for s in (*missing, *estimated)),
        coverage_energy=_rest(s.share_energy for s in (*missing, *estimated)),
        missing=missing,
        parts=tuple(s for s in shares if s.configuration in measured),
        estimated=estimated,
        notes=_notes(workload, mode, grounds, clock)
        + _dark_notes(dark)
        + _estimate_notes(estimated, missing, grounds),
    )
    return found if costed or not counts else _unmeasured(found)


def _unmeasured(found: Prediction) -> Prediction:
    """Return a prediction that claims nothing: a sum of no costs is not a cost of 0."""
    note = f"nothing of this workload was measured on {found.device.slug}"
    return replace(
        found,
        time_s=None,
        time_interval_s=None,
        energy_j=None,
        energy_interval_j=None,
        notes=(note, *found.notes),
    )


def _rest(shares: Iterable[float]) -> float:
    return max(0.0, 1 - math.fsum(shares))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


@dataclass(frozen=True)
class _Clock:
    """The share of the highest clock at which a pass runs, and how its operators go with it."""

    share: float
    scalings: Mapping[str, Scaling]

    def time(self, key: str) -> float:
        return self.scalings[key].time(self.share) if self.share < 1 else 1.0

    def energy(self, key: str) -> float:
        return self.scalings[key].energy(self.share) if self.share < 1 else 1.0


def _at_limit(
    workload: Workload,
    mode: Mode,
    grounds: Grounds,
    at_full_clock: Sequence[TimedCall],
    costed: Mapping[Configuration, Cost],
) -> _Clock:
    """Find the clock at which a pass keeps to the board's power limit."""
    counts = workload.occurrences()
    found = scalings(
        {c.key: cost for c, cost in costed.items()},
        {c.key: get_kind(c.kind).bytes_moved(c) for c in costed},
    )

    def power_w(share: float) -> float:
        clock = _Clock(share, found)
        time_s = _time_s(steps_of(at_full_clock, clock.time), mode, grounds, workload)
        energy_j = _energy_j(counts, costed, grounds, clock, time_s)
        return energy_j / time_s if energy_j and time_s else 0.0

    limit_w = grounds.limit_w
    return _Clock(clock_share(power_w, limit_w) if limit_w else 1.0, found)


def _limit_width_s(
    workload: Workload,
    mode: Mode,
    grounds: Grounds,
    at_full_clock: Sequence[TimedCall],
    costed: Mapping[Configuration, Cost],
    clock: _Clock,
) -> float:
    """Return what a limit that is kept a little lower would add to the time of a pass at it."""
    limit_w = grounds.limit_w
    if clock.share == 1 or limit_w is None:
        return 0.0
    stricter = replace(grounds, kept_limit_w=limit_w * (1 - LIMIT_TOLERANCE))
    lower = _at_limit(workload, mode, stricter, at_full_clock, costed)
    times = [
        _time_s(steps_of(at_full_clock, each.time), mode, grounds, workload)
        for each in (lower, clock)
    ]
    return times[0] - times[1]


def _time_s(steps: Sequence[Step], mode: Mode, grounds: Grounds, workload: Workload) -> float:
    if mode == "graph":
        return graph_time_s(steps)
    if mode != "eager":
        raise ValueError(f"the composer knows the modes eager and graph, not {mode!r}")
    if grounds.device.type == "cpu":
        containers_s = workload.containers * (grounds.calibration.container_time_s or 0.0)
        return graph_time_s(steps) + containers_s
    return eager_time_s(steps)


def _energy_j(
    counts: Mapping[Configuration, int],
    costed: Mapping[Configuration, Cost],
    grounds: Grounds,
    clock: _Clock,
    time_s: float,
) -> float | None:
    """Return E = P_base · T + Σ D; None where the board has no power readings."""
    base_w = grounds.calibration.base_power_w
    dynamic = {
        c: cost.dynamic_energy_j for c, cost in costed.items() if cost.dynamic_energy_j is not None
    }
    if base_w is None or (costed and not dynamic):
        return None
    return base_w * time_s + sum(
        counts[c] * quantity.mean * clock.energy(c.key) for c, quantity in dynamic.items()
    )


def _energy_width_j(
    counts: Mapping[Configuration, int],
    measured: Mapping[Configuration, Cost],
    grounds: Grounds,
    time_s: float,
    energy_j: float,
) -> float:
    """Return half the 95 % interval of an energy, but for what estimates add to it."""
    dynamic = [
        (counts[c], cost.dynamic_energy_j)
        for c, cost in measured.items()
        if cost.dynamic_energy_j is not None
    ]
    low_high = grounds.calibration.base_power_interval_w
    base_width = (low_high[1] - low_high[0]) / 2 * time_s if low_high else 0.0
    return math.hypot(
        sum_half_width(dynamic), base_width, model_error(grounds.known.energy) * energy_j
    )


def _shares(
    counts: Mapping[Configuration, int], costed: Mapping[Configuration, Cost], grounds: Grounds
) -> list[Share]:
    """Return every configuration's share of device time and energy, the largest first."""
    sized = all(c in costed and costed[c].dynamic_energy_j is not None for c in counts)
    rates = NOMINAL_RATES if sized else reached_rates(counts, grounds.costs)
    base_w = grounds.calibration.base_power_w or 0.0
    times: dict[Configuration, float] = {}
    energies: dict[Configuration, float] = {}
    for configuration, count in counts.items():
        time_s, dynamic_j = _size(configuration, costed.get(configuration), rates)
        times[configuration] = count * time_s
        energies[configuration] = count * (dynamic_j + base_w * time_s)
    whole_s, whole_j = math.fsum(times.values()), math.fsum(energies.values())
    shares = [
        Share(c, counts[c], _part(times[c], whole_s), _part(energies[c], whole_j)) for c in counts
    ]
    return sorted(shares, key=lambda s: s.share_time, reverse=True)


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0


def _size(configuration: Configuration, cost: Cost | None, rates: Rates) -> tuple[float, float]:
    """Return time and dynamic energy of one call: measured, or estimated for weighting."""
    if cost is None or cost.time_s is None:
        time_s = rates.time_s(configuration)
        return time_s, time_s * rates.dynamic_w
    time_s = cost.time_s.mean
    if cost.dynamic_energy_j is None:
        return time_s, time_s * rates.dynamic_w
    return time_s, cost.dynamic_energy_j.mean


def _without_energy(shares: Sequence[Share], measured: Mapping[Configuration, Cost]) -> list[Share]:
    """Return what was timed but not metered: missing from the energy, not from the time."""
    return [
        replace(share, share_time=0.0)
        for share in shares
        if share.configuration in measured
        and measured[share.configuration].dynamic_energy_j is None
    ]


def _estimates_widths(
    counts: Mapping[Configuration, int], costed: Mapping[Configuration, Cost], grounds: Grounds
) -> tuple[float, float]:
    """Return what estimates add to half the interval of the time (seconds) and energy (joules)."""
    asked = {c.key: float(counts[c]) for c, cost in costed.items() if cost.is_estimated}
    if grounds.estimates is None or not asked:
        return 0.0, 0.0
    time_s, energy_j = grounds.estimates.half_widths(asked, grounds.calibration.base_power_w)
    return time_s, energy_j or 0.0


def _estimate_notes(
    estimated: Sequence[Share], missing: Sequence[Share], grounds: Grounds
) -> tuple[str, ...]:
    notes = []
    if estimated:
        share = math.fsum(s.share_time for s in estimated)
        notes.append(
            f"{len(estimated)} configurations ({100 * share:.1f} % of the time) were never "
            "measured: their costs are estimates"
        )
    refused = grounds.estimates.refused if grounds.estimates is not None else {}
    reasons = dict.fromkeys(
        why for s in missing if (why := refused.get(s.configuration.key)) is not None
    )
    if reasons:
        notes.append(f"not estimated: {'; '.join(reasons)}")
    return tuple(notes)


def _dark_notes(dark: Sequence[Share]) -> tuple[str, ...]:
    if not dark:
        return ()
    kinds = ", ".join(dict.fromkeys(share.configuration.kind for share in dark))
    return (f"of {len(dark)} configurations ({kinds}) only the time is measured, not the energy",)


def _host_notes(workload: Workload, host: HostTimes) -> list[str]:
    times = [(host.is_own(call), host.of(call)) for call in workload.calls]
    usual = sum(not own and time_s is not None for own, time_s in times)
    unheard = sum(time_s is None for _, time_s in times)
    notes = []
    if usual:
        notes.append(f"{usual} calls have no host time of their own: it is the usual of their kind")
    if unheard:
        notes.append(
            f"{unheard} calls have no host time, so a pass that waits for the host takes longer"
        )
    return notes


def _weight_notes(workload: Workload, grounds: Grounds) -> list[str]:
    """Say for how many configurations the weights' state in this pass was not measured."""
    hot = keeps_weights_hot(workload, grounds.resident_bytes)
    costs = {c: grounds.costs[c.key] for c in workload.occurrences() if c.key in grounds.costs}
    other = [
        c
        for c, cost in costs.items()
        if weight_bytes(c) and (cost.hot is None if hot else HOT_ALONE in cost.flags)
    ]
    if not other:
        return []
    measured, found = ("cold", "hot") if hot else ("hot", "cold")
    return [
        f"{len(other)} configurations were measured with {measured} weights alone; "
        f"this pass finds them {found}"
    ]


def _notes(workload: Workload, mode: Mode, grounds: Grounds, clock: _Clock) -> tuple[str, ...]:
    notes = [*grounds.notes, *_weight_notes(workload, grounds)]
    if clock.share < 1:
        notes.append(
            f"the power limit, kept at {grounds.limit_w:.0f} W, lowers the clock to "
            f"{100 * clock.share:.1f} % of its highest"
        )
    if mode == "eager" and grounds.device.type != "cpu":
        notes += _host_notes(workload, HostTimes(workload, grounds))
    foreign = {
        c.key
        for c in workload.occurrences()
        if c.key in grounds.costs and grounds.costs[c.key].board != grounds.board
    }
    if foreign:
        notes.append(
            f"{len(foreign)} configurations were measured on another board of the device alone; "
            "their costs are taken as they are"
        )
    if workload.unsupported:
        names = ", ".join(f"{name} ×{count}" for name, count in workload.unsupported.items())
        notes.append(f"calls that no operator describes: {names}")
    if not grounds.known.time:
        notes.append(
            "no other model was measured on this device in this mode: the interval rests "
            "on a prior of 2 % for the error of a sum"
        )
    return tuple(notes)
