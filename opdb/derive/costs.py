"""From raw visits to costs: the one versioned estimator. Pure, so any old visit can be re-read."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from opdb.derive.quiet import HELD_UP, LEAST_BLOCKS, quiet_rounds_s
from opdb.derive.statistics import (
    AGREEMENT_BOUND,
    Typical,
    disagreement,
    half_width,
    pool_spread,
    slope,
    three_sigma_mean,
    trapezoid_mean,
    typical_on,
)
from opdb.records import (
    AfterOthers,
    Before,
    Calibration,
    Campaign,
    Cost,
    Device,
    Form,
    HostVisit,
    Neighbours,
    OperatingPoint,
    Quantity,
    Role,
    Stretch,
    Visit,
    is_forced,
)

ESTIMATOR = "6"
"""Raised whenever the same visits would give other costs."""

METER_BOUND = 0.03
"""Counter, samples' mean and trapezoid further apart than this share are flagged."""

FULL_CLOCK_SHARE = 0.985
"""A clock below this share of the board's best, as a visit's mean, was held back."""

AT_THE_LIMIT = "at the power limit"

NO_TIME = "the call takes no longer than the spread of what it is set off against"
NO_EAGER_TIME = "no call was timed as it is issued eagerly"
NO_ENERGY = "no power: the call draws no more than what it is set off against"

HOT_ALONE = "measured with hot weights alone"

END_S = 0.025
"""Samples of a stretch's last part are left out: a load that ends is seen to end before the lag is
over, and on an H200 samples of the last 15 ms read 14 % too low at the mean."""

OUTLYING = 3.0
"""On a CPU, visits that took so many times as long as the fastest were held up by other work."""

MIN_SAMPLES = 3

MIN_EDGES = 4
"""Counter edges needed in a window before their slope is compared."""


@dataclass(frozen=True)
class VisitCost:
    """The result of one visit for one call; energies None where the visit has no power.

    `time_s` is among neighbours where the visit has that, `replay_time_s` in a replay of this one
    call alone.
    """

    time_s: float
    replay_time_s: float
    times_s: tuple[float, ...]
    eager_time_s: float | None
    dynamic_energy_j: float | None
    energy_j: float | None
    power_w: float | None
    clock_hz: float | None
    flags: tuple[str, ...]


def call_times_s(stretch: Stretch) -> list[float]:
    """Return the mean time of one call for each replay of a stretch, in seconds."""
    return [t / stretch.calls_per_replay for t in stretch.replay_times_s]


def steady_samples(stretch: Stretch) -> Sequence[tuple[float, float]]:
    """Leave out the samples that already show its end, unless too few were left."""
    last_s = stretch.duration_s - END_S
    steady = [(t, w) for t, w in stretch.power_samples if t <= last_s]
    return steady if len(steady) >= MIN_SAMPLES else stretch.power_samples


def stretch_power_w(stretch: Stretch) -> float | None:
    """Return the mean power of a stretch by its samples; by counter edges where there are none."""
    samples = steady_samples(stretch)
    if samples:
        return statistics.fmean(w for _, w in samples)
    return slope(stretch.counter_edges)


def stretch_flags(stretch: Stretch) -> list[str]:
    flags = []
    apart = disagreement(stretch.replay_times_s)
    if apart > AGREEMENT_BOUND:
        flags.append(f"time: median and 3σ-mean differ by {100 * apart:.1f} %")
    samples = steady_samples(stretch)
    powers = [w for _, w in samples]
    if powers:
        mean = statistics.fmean(powers)
        apart = disagreement(powers)
        if apart > AGREEMENT_BOUND:
            flags.append(f"power: median and 3σ-mean differ by {100 * apart:.1f} %")
        flags += _check("trapezoid", trapezoid_mean(samples), mean)
        if len(stretch.counter_edges) >= MIN_EDGES:
            flags += _check("counter", slope(stretch.counter_edges), mean)
    return flags


def _check(name: str, other: float | None, mean: float) -> list[str]:
    if other is None or abs(other - mean) <= METER_BOUND * mean:
        return []
    return [f"power: {name} and samples differ by {100 * (other / mean - 1):+.1f} %"]


def _dynamic_j(stretch: Stretch, typical: Typical, base_power_w: float | None) -> float | None:
    """(P - P_base) · t / busy share."""
    power = stretch_power_w(stretch)
    if power is None or base_power_w is None:
        return None
    return (power - base_power_w) * typical(call_times_s(stretch)) / stretch.busy_share


def no_time(visit: Visit, typical: Typical = three_sigma_mean) -> str | None:
    """Return in words why a good visit gives no time above 0; None where it gives one."""
    if visit.outcome != "ok" or visit.stretch is None:
        return None
    time_s, _, _ = _times_s(visit, visit.stretch, typical)
    return None if time_s > 0 else NO_TIME


def _times_s(
    visit: Visit, stretch: Stretch, typical: Typical
) -> tuple[float, float, Sequence[float]]:
    """A call's time, that in replays of it alone, single times (s): less restoring, maybe < 0."""
    restore_s = 0.0 if visit.restore is None else typical(call_times_s(visit.restore))
    times = call_times_s(stretch)
    replay_s = typical(times) - restore_s
    if visit.neighbours is None:
        return replay_s, replay_s, [t - restore_s for t in times]
    times = times_among_neighbours_s(visit.neighbours)
    return statistics.median(times), replay_s, times


def visit_cost(
    visit: Visit, calibration: Calibration, typical: Typical = three_sigma_mean
) -> VisitCost | None:
    """Derive one visit's result for one call; None for one that failed, or gives no time above 0.

    A call that launched no kernel costs the device nothing, and that is measured, not missing.
    Power comes from replays of the call alone, and dynamic energy from these; its time among
    neighbours, which is longer for what a kernel waits on caches, adds base power alone.
    """
    if visit.outcome != "ok":
        return None
    if visit.stretch is None:
        return VisitCost(0.0, 0.0, (0.0,), 0.0, 0.0, 0.0, None, None, visit.flags)
    time_s, replay_s, times = _times_s(visit, visit.stretch, typical)
    if time_s <= 0:
        return None
    base = calibration.base_power_w
    dynamic = _dynamic_j(visit.stretch, typical, base)
    flags = [*visit.flags, *stretch_flags(visit.stretch)]
    if visit.restore is not None:
        restoring = _dynamic_j(visit.restore, typical, base)
        dynamic = None if dynamic is None or restoring is None else dynamic - restoring
        flags += stretch_flags(visit.restore)
    energy = None if dynamic is None or base is None else dynamic + base * time_s
    if energy is not None and energy <= 0:
        dynamic = energy = None
        flags.append(NO_ENERGY)
    power = None if energy is None else energy / time_s
    clocks = visit.stretch.clock_samples_hz
    clock = statistics.fmean(clocks) if clocks else None
    eager = _eager_time_s(visit)
    if eager is not None:
        eager += time_s - replay_s
        eager = eager if eager > 0 else None  # no time at all: its parts are lost in their noise
    return VisitCost(
        time_s, replay_s, tuple(times), eager, dynamic, energy, power, clock, tuple(flags)
    )


def times_among_neighbours_s(seen: Neighbours) -> list[float]:
    return [
        (together - alone) / seen.calls
        for together, alone in zip(seen.times_s, seen.alone_s, strict=True)
    ]


def longer_s(visit: Visit, before: Before) -> float:
    """Return what a visit's call takes longer after something else than after itself, in s."""
    assert visit.neighbours is not None
    after = visit.neighbours.after
    others_s, itself_s = (times_among_neighbours_s(after[each]) for each in (before, "itself"))
    return statistics.median(others_s) - statistics.median(itself_s)


def _eager_time_s(visit: Visit) -> float | None:
    if visit.stretch is None or not visit.stretch.eager_times_s:
        return None
    eager_s = statistics.median(visit.stretch.eager_times_s)
    if visit.restore is None:
        return eager_s
    restoring = visit.restore.eager_times_s
    return eager_s - statistics.median(restoring) if restoring else None


def quantity_of(
    values: Sequence[float],
    pooled: float | None,
    samples: Sequence[float] | None = None,
    *,
    scale: float | None = None,
    positive: bool = True,
    join: Typical = statistics.fmean,
) -> Quantity:
    """Join visits into one quantity; `samples` are the finer values behind them, if any.

    `pooled` is relative to `scale`, in the values' unit; to their mean where None. `join` is what
    the visits come to: their mean; on a CPU, where other work may hold up a whole visit, their
    median.
    """
    fine = samples or values
    mean = join(values)
    width = half_width(values, pooled, scale)
    return Quantity.around(statistics.median(fine), mean, width, len(fine), positive=positive)


class Deriver:
    """Derives costs of one board from all its visits, pooling the spread between visits."""

    def __init__(self, campaigns: Iterable[Campaign], visits: Iterable[Visit]) -> None:
        self._campaigns = {c.id: c for c in campaigns}
        self._found: dict[tuple[str, str], list[tuple[Visit, VisitCost | None]]] = defaultdict(list)
        self._hot: dict[tuple[str, str], list[tuple[Visit, VisitCost | None]]] = defaultdict(list)
        self._limited: dict[tuple[str, str], list[VisitCost]] = defaultdict(list)
        roles = "measurement", "limited"
        for visit in _of_one_sort([v for v in visits if v.access == "model" and v.role in roles]):
            calibration = self._campaigns[visit.campaign].calibration
            key = (visit.configuration, visit.setting)
            cost = visit_cost(visit, calibration, self._typical(visit))
            if visit.role == "measurement":
                of_state = self._hot if visit.weights == "hot" else self._found
                of_state[key].append((visit, cost))
            elif cost is not None and any(flag.startswith(AT_THE_LIMIT) for flag in visit.flags):
                self._limited[key].append(cost)  # others only found the clock still low
        self._found = {**self._hot, **self._found}  # hot weights alone: better than nothing
        clocks = [c.clock_hz for f in self._found.values() for _, c in f if c and c.clock_hz]
        self._best_clock_hz = max(clocks, default=None)
        chosen = [self._full_clock([c for _, c in f if c]) for f in self._found.values()]
        self._stream_s = self._usual_stream_s()
        self.time_spread = pool_spread([c.time_s for c in costs] for costs in chosen)
        energies = [[c.energy_j for c in costs if c.energy_j is not None] for costs in chosen]
        dynamic = [
            [c.dynamic_energy_j for c in costs if c.dynamic_energy_j is not None]
            for costs in chosen
        ]
        self.energy_spread = pool_spread(energies)
        # A call whose dynamic energy is near 0 J scatters by as many joules as its energy does.
        self.dynamic_spread = pool_spread(dynamic, energies)

    def _typical(self, visit: Visit) -> Typical:
        return typical_on(self._campaigns[visit.campaign].device)

    def _at_the_limit(
        self, configuration: str, setting: str, full: Sequence[VisitCost]
    ) -> OperatingPoint | None:
        """Return the point at a lowered clock, its time set off against replays at full clock."""
        costs = [c for c in self._limited[configuration, setting] if c.clock_hz]
        if not costs or not full:
            return None
        found = _operating_point(costs)
        replay_s = statistics.fmean(c.replay_time_s for c in full)
        slower = statistics.fmean(c.replay_time_s for c in costs) / replay_s if replay_s > 0 else 1
        return replace(found, time_s=slower * statistics.fmean(c.time_s for c in full))

    def _after_others(self, configuration: str, setting: str) -> AfterOthers | None:
        seen = [
            visit
            for visit, cost in self._found[configuration, setting]
            if cost is not None and visit.neighbours is not None and visit.neighbours.after
        ]
        if not seen:
            return None
        stream_s = self._stream_s
        if stream_s is not None:
            kernels = seen[-1].kernels
            stream_s *= len(kernels) if kernels else 1
        return AfterOthers(statistics.fmean(longer_s(visit, "code") for visit in seen), stream_s)

    def _usual_stream_s(self) -> float | None:
        """At the median, in s: for one call alone it scatters as much as it is."""
        seen = [
            longer_s(visit, "stream")
            for found in self._found.values()
            for visit, cost in found
            if cost is not None and visit.neighbours is not None
            if "stream" in visit.neighbours.after and len(visit.kernels or ()) == 1
        ]
        return statistics.median(seen) if seen else None

    def _full_clock(self, costs: Sequence[VisitCost]) -> list[VisitCost]:
        """Keep the visits at full clock; all of them where none was (they are flagged)."""
        best = self._best_clock_hz
        full = [
            c for c in costs if not c.clock_hz or not best or c.clock_hz >= FULL_CLOCK_SHARE * best
        ]
        return full or list(costs)

    def costs(self, hosts: Mapping[str, Mapping[Form, Quantity]]) -> list[Cost]:
        """Return the cost of every configuration that was visited; `hosts` by configuration."""
        return [
            self._cost(configuration, setting, hosts.get(configuration, {}))
            for configuration, setting in self._found
        ]

    def _cost(self, configuration: str, setting: str, host: Mapping[Form, Quantity]) -> Cost:
        found = self._found[configuration, setting]
        seen = self._full_clock([c for _, c in found if c])
        on_cpu = self._campaigns[found[0][0].campaign].device.type == "cpu"
        most_s = OUTLYING * min((c.time_s for c in seen), default=0.0)
        costs = [c for c in seen if not on_cpu or c.time_s <= most_s]
        hot = self._full_clock([c for _, c in self._hot.get((configuration, setting), []) if c])
        board = self._campaigns[found[0][0].campaign].board.uuid
        flags = sorted({f for c in costs for f in c.flags})
        if any(v.weights == "hot" for v, _ in found):
            flags.append(HOT_ALONE)
        kernels = next((sum(v.kernels.values()) for v, _ in found if v.kernels is not None), None)
        reasons: dict[str, str] = {}
        if not costs:
            last = found[-1][0]
            why = f"{last.outcome}: {last.reason}"
            reasons["time_s"] = no_time(last, self._typical(last)) or why
        energies = [c.energy_j for c in costs if c.energy_j is not None]
        dynamic = [c.dynamic_energy_j for c in costs if c.dynamic_energy_j is not None]
        eager = [c.eager_time_s for c in costs if c.eager_time_s is not None]
        powers = [c.power_w for c in costs if c.power_w is not None]
        if costs and not eager and found[-1][0].issue == "graph":
            timed = found[-1][0].stretch is not None and found[-1][0].stretch.eager_times_s
            reasons["eager_time_s"] = NO_TIME if timed else NO_EAGER_TIME
        if costs and not energies:
            said = (f for f in (*found[-1][0].flags, *flags) if f.startswith("no power"))
            reasons["energy_j"] = next(said, "no power was read")
        clocks = [c.clock_hz for c in costs if c.clock_hz]
        joined = partial(quantity_of, join=statistics.median if on_cpu else statistics.fmean)
        return Cost(
            configuration=configuration,
            board=board,
            setting=setting,
            estimator=ESTIMATOR,
            visits=len(seen),
            kernels=kernels,
            time_s=joined(
                [c.time_s for c in costs], self.time_spread, [t for c in costs for t in c.times_s]
            )
            if costs
            else None,
            eager_time_s=joined(eager, self.time_spread) if eager else None,
            power_w=joined(powers, self.energy_spread) if powers else None,
            energy_j=joined(energies, self.energy_spread) if energies else None,
            dynamic_energy_j=joined(
                dynamic,
                self.dynamic_spread,
                scale=statistics.fmean(energies),
                positive=False,
            )
            if dynamic
            else None,
            host_time_s=dict(host),
            clock_hz=statistics.fmean(clocks) if clocks else None,
            limited=self._at_the_limit(configuration, setting, costs),
            hot=_operating_point(hot) if hot else None,
            after_others=self._after_others(configuration, setting),
            reasons=reasons,
            flags=tuple(flags),
        )


def _of_one_sort(visits: Sequence[Visit]) -> list[Visit]:
    """Leave out what wrote to fresh memory where the same call was seen to write to reused memory.

    An older opdb had all outputs of cold calls go to fresh memory.
    """
    reused = {
        (v.configuration, v.setting, v.weights)
        for v in visits
        if v.role == "measurement" and v.outcome == "ok" and v.wrote_to == "reused"
    }
    return [
        v
        for v in visits
        if v.wrote_to == "reused" or (v.configuration, v.setting, v.weights) not in reused
    ]


def _operating_point(costs: Sequence[VisitCost]) -> OperatingPoint:
    clocks = [c.clock_hz for c in costs if c.clock_hz]
    dynamic = [c.dynamic_energy_j for c in costs if c.dynamic_energy_j is not None]
    return OperatingPoint(
        clock_hz=statistics.fmean(clocks) if clocks else None,
        time_s=statistics.fmean(c.time_s for c in costs),
        dynamic_energy_j=statistics.fmean(dynamic) if dynamic else None,
    )


def host_quantities(visits: Iterable[HostVisit]) -> dict[str, dict[Form, Quantity]]:
    """Join host visits into a quantity for each configuration and form.

    Where a call was timed in rounds enough, its mean is the quiet time (`opdb.derive.quiet`), and
    its median that of all rounds. Otherwise visits are joined. Other work can only slow a host
    down, so groups and visits much slower than the fastest are left out; so are visits without a
    time above 0.
    """
    found = list(visits)
    seen: dict[tuple[str, Form], list[tuple[float, ...]]] = defaultdict(list)
    for visit in found:
        if three_sigma_mean(visit.times_s) > 0:
            seen[visit.configuration, visit.form].append(visit.times_s)
    quiet = quiet_rounds_s(found)
    joined: dict[str, dict[Form, Quantity]] = defaultdict(dict)
    for call, all_times in seen.items():
        groups = [times_s for times_s in quiet.get(call, ()) if any(times_s)]
        configuration, form = call
        if groups:
            times = [s for each in all_times if len(each) >= LEAST_BLOCKS for s in each]
            quantity = _calm(groups, statistics.fmean, statistics.fmean, times)
        else:
            quantity = _calm(all_times, statistics.median, three_sigma_mean)
        joined[configuration][form] = quantity
    return dict(joined)


def _calm(
    some: Sequence[tuple[float, ...]], typical: Typical, mean: Typical, times: Sequence[float] = ()
) -> Quantity:
    """Without what is typically much longer than the shortest; `times` give the median, if any."""
    fastest_s = min(map(typical, some))
    calm = [each for each in some if typical(each) <= fastest_s * (1 + HELD_UP)]
    counted = [s for each in calm for s in each]
    times, width = times or counted, half_width(counted, None)
    return Quantity.around(
        statistics.median(times), statistics.fmean(map(mean, calm)), width, len(times)
    )


def cost_in(costs: Sequence[Cost], setting: str) -> Cost | None:
    """Return the cost with a time in a setting, of those of one configuration; None: there is none.

    A cost by this version's estimator comes before those of any other, then the last one.
    """
    timed = [cost for cost in costs if cost.setting == setting and cost.time_s is not None]
    return max(reversed(timed), key=lambda cost: cost.estimator == ESTIMATOR, default=None)


# Reasons to reject a visit: the one list of flags for which it is made again.
#
# A rejected visit is kept with its flags; it does not count where a better one exists.


REJECTED = "rejected: "

FOREIGN_PROCESS = "another process is on the board"
MOVING_CLOCK = "the clock moved"
WAITED = "the device waited for the host"
STARTED_FASTER = "kernels were started faster"

REASONS = {
    "clock held back: hardware slowdown": "the hardware held the clock back",
    "clock held back: hardware power brake": "the hardware's power brake held the clock back",
    "clock held back: hardware thermal slowdown": "heat held the clock back",
    "clock held back: software thermal slowdown": "heat held the clock back",
    FOREIGN_PROCESS: "another process was on the board",
    "clock below its highest": "the clock was low, and not for the power limit",
    MOVING_CLOCK: "the clock moved during the visit",
    WAITED: "the host was too slow to keep the device busy",
    STARTED_FASTER: "another process made or ended a CUDA context",
    "time: median and 3σ-mean differ": "median and mean of its times are too far apart",
    "power: median and 3σ-mean differ": "median and mean of its power are too far apart",
}
"""The beginning of each flag that rejects a visit, with the reason in words.

The power limit is not among them: visits that it slows down have a role of their own, `limited`."""

ON_A_PROCESSOR = (FOREIGN_PROCESS,)
"""Times always have a tail where other work runs beside: that stays a flag."""


COUNTED: tuple[Role, ...] = ("measurement", "duplicate")
"""The roles in which a visit can be rejected."""


def rejection(flags: Iterable[str], device: Device) -> str | None:
    """Return in words why a visit with these flags is worthless; None where it is not."""
    prefixes = tuple(REASONS) if device.type == "cuda" else ON_A_PROCESSOR
    found = (REASONS[each] for flag in flags for each in prefixes if flag.startswith(each))
    return next(found, None)


# Drift of a board during a campaign, by the anchors measured about once a minute.


POWER_BOUND = 0.02
TIME_BOUND = 0.01
"""An anchor further than these shares from its median of the campaign, or from the anchor after it,
is a drift; one visit alone scatters by about half as much."""


@dataclass(frozen=True)
class AnchorDrift:
    """Value / median - 1, of the campaign's same anchor; `power` is None where none was read."""

    visit: str
    started_at: str
    time: float
    power: float | None


def anchor_drifts(campaign: Campaign, visits: Iterable[Visit]) -> list[AnchorDrift]:
    """An anchor that the campaign measured once has nothing to be held against and is left out."""
    found: dict[str, list[tuple[Visit, VisitCost]]] = defaultdict(list)
    for visit in visits:
        if visit.campaign != campaign.id or visit.role != "anchor":
            continue
        cost = visit_cost(visit, campaign.calibration)
        if cost is not None and cost.time_s > 0:
            found[visit.configuration].append((visit, cost))
    drifts = [each for same in found.values() if len(same) > 1 for each in _against_median(same)]
    return sorted(drifts, key=lambda drift: drift.started_at)


def _against_median(same: Sequence[tuple[Visit, VisitCost]]) -> list[AnchorDrift]:
    time_s = statistics.median(cost.time_s for _, cost in same)
    powers = [cost.power_w for _, cost in same if cost.power_w is not None]
    power_w = statistics.median(powers) if powers else None
    return [
        AnchorDrift(
            visit.id,
            visit.started_at,
            cost.time_s / time_s - 1,
            None if cost.power_w is None or power_w is None else cost.power_w / power_w - 1,
        )
        for visit, cost in same
    ]


def drift_flags(campaigns: Iterable[Campaign], visits: Sequence[Visit]) -> Mapping[str, str]:
    """By id of a visit. Anchors lie further than the bound from their medians, or from the next."""
    flags: dict[str, str] = {}
    of_campaign: dict[str, list[Visit]] = defaultdict(list)
    for visit in visits:
        of_campaign[visit.campaign].append(visit)
    for campaign in campaigns:
        drifts = anchor_drifts(campaign, of_campaign[campaign.id])
        if not drifts:
            continue
        for before, after in pairwise([drifts[0], *drifts, drifts[-1]]):
            said = _words(before, after)
            since = "" if before is after is drifts[0] else before.started_at
            until = None if before is after is drifts[-1] else after.started_at
            if said is None:
                continue
            for visit in of_campaign[campaign.id]:
                if since <= visit.started_at and (until is None or visit.started_at < until):
                    flags[visit.id] = said
    return flags


def _words(before: AnchorDrift, after: AnchorDrift) -> str | None:
    time = _largest(before.time, after.time)
    power = _largest(before.power or 0.0, after.power or 0.0)
    said = []
    if abs(power) > POWER_BOUND:
        said.append(f"power {100 * power:+.1f} %")
    if abs(time) > TIME_BOUND:
        said.append(f"time {100 * time:+.1f} %")
    return f"drift of the anchors around it: {', '.join(said)}" if said else None


def _largest(before: float, after: float) -> float:
    return max((before, after, after - before), key=abs)


# Visits looked over before costs are derived from them, and the costs of a board.


DIGITS = 10
"""Significant digits of the numbers of a cost: they are within what `opdb.store.costs.ROUNDING`
allows of the exact ones."""

CLOCK_BOUND = 0.03
"""A clock whose lowest twentieth lies this share below its highest moved."""


def clock_flags(stretch: Stretch, flags: Iterable[str]) -> list[str]:
    """Say that the clock moved within a stretch; at the power limit it always does."""
    clocks = sorted(stretch.clock_samples_hz)
    if not clocks or any(flag.startswith(AT_THE_LIMIT) for flag in flags):
        return []
    low, high = clocks[len(clocks) // 20], clocks[-1]
    if low >= (1 - CLOCK_BOUND) * high:
        return []
    return [f"{MOVING_CLOCK}: {low / 1e6:.0f} to {high / 1e6:.0f} MHz"]


def why_rejected(visit: Visit, device: Device) -> str | None:
    """Return why a visit is rejected, in words; None where it is not, or has another role."""
    if visit.role not in COUNTED or visit.outcome != "ok":
        return None
    flags = list(visit.flags)
    if visit.stretch is not None:
        flags += stretch_flags(visit.stretch) + clock_flags(visit.stretch, flags)
    return rejection(flags, device) or no_time(visit, typical_on(device))


def marked(visit: Visit, device: Device) -> Visit:
    why = why_rejected(visit, device)
    return visit if why is None else replace(visit, flags=(*visit.flags, REJECTED + why))


def is_rejected(visit: Visit) -> bool:
    return any(flag.startswith(REJECTED) for flag in visit.flags)


def reviewed(campaigns: Sequence[Campaign], visits: Sequence[Visit]) -> list[Visit]:
    """Return the visits that costs may rest on, flagged where the board drifted around them.

    Rejected visits are left out where a better one of the same configuration, setting, role and
    state of the caches exists.
    """
    devices = {campaign.id: campaign.device for campaign in campaigns}
    drifted = drift_flags(campaigns, visits)
    good: dict[tuple[str, ...], bool] = defaultdict(bool)
    rejected = set()
    for visit in visits:
        if visit.outcome != "ok":
            continue
        if is_rejected(visit) or why_rejected(visit, devices[visit.campaign]):
            rejected.add(visit.id)
        else:
            good[_what(visit)] = True
    return [
        replace(visit, flags=(*visit.flags, drifted[visit.id])) if visit.id in drifted else visit
        for visit in visits
        if visit.id not in rejected or not good[_what(visit)]
    ]


def _what(visit: Visit) -> tuple[str, ...]:
    return visit.configuration, visit.setting, visit.role, visit.weights, visit.access


def board_costs(
    campaigns: Sequence[Campaign], visits: Sequence[Visit], host_visits: Iterable[HostVisit]
) -> list[Cost]:
    """Derive the costs of one board from all that was seen of it.

    Convolutions that were forced to take an algorithm share no spread with the usual visits, and
    the host's times are none of theirs: they are issued in another way. Numbers are rounded to
    `DIGITS`: further ones say nothing, and are a third of what a published cost takes.
    """
    found = reviewed(campaigns, visits)
    forced = [visit for visit in found if is_forced(visit.setting)]
    usual = [visit for visit in found if not is_forced(visit.setting)]
    costs = Deriver(campaigns, usual).costs(host_quantities(host_visits))
    costs += Deriver(campaigns, forced).costs({}) if forced else []
    return [_rounded(cost) for cost in costs]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rounded(getattr(value, f.name)) for f in fields(value)})
    return value
