"""From raw visits to costs: the one versioned estimator. Pure, so any old visit can be re-read."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opdb.derive.quiet import LEAST_BLOCKS, quiet_rounds_s
from opdb.derive.statistics import (
    AGREEMENT_BOUND,
    PooledSpread,
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
    Form,
    HostVisit,
    Neighbours,
    OperatingPoint,
    Quantity,
    Stretch,
    Visit,
)

ESTIMATOR = "6"
"""Raised whenever the same visits would give other costs."""

METER_BOUND = 0.03
"""Counter, samples' mean and trapezoid further apart than this share are flagged."""

FULL_CLOCK_SHARE = 0.985
"""A visit whose mean clock is below this share of the board's best saw a lowered clock."""

AT_THE_LIMIT = "at the power limit"
"""The beginning of the flag of a visit whose clock the power limit lowered."""

NO_TIME = "the call takes no longer than the spread of what it is set off against"
NO_ENERGY = "no power: the call draws no more than what it is set off against"

HOT_ALONE = "measured with hot weights alone"

END_S = 0.025
"""Samples of a stretch's last part are left out: a load that ends is seen to end before the lag is
over, and on an H200 samples of the last 15 ms read 14 % too low at the mean."""

HELD_UP = 0.15
"""Host visits whose median is above the fastest's by more than this share found the host busy."""

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
    """Return a stretch's power samples without those that already show its end.

    All of them where that would leave too few.
    """
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
    """Say in words what makes a stretch doubtful."""
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


def _dynamic_j(stretch: Stretch, call_s: float, base_power_w: float | None) -> float | None:
    """Return one call's energy above base power: (P - P_base) · t / busy share."""
    power = stretch_power_w(stretch)
    if power is None or base_power_w is None:
        return None
    return (power - base_power_w) * call_s / stretch.busy_share


def no_time(visit: Visit, typical: Typical = three_sigma_mean) -> str | None:
    """Return in words why a good visit gives no time above 0; None where it gives one."""
    if visit.outcome != "ok" or visit.stretch is None:
        return None
    return None if _call_s(visit, visit.stretch, typical) > 0 else NO_TIME


def _call_s(visit: Visit, stretch: Stretch, typical: Typical) -> float:
    """Return the time of one call (seconds), less what restoring takes; it may be 0 or less."""
    if visit.neighbours is not None:
        return statistics.median(times_among_neighbours_s(visit.neighbours))
    restore_s = 0.0 if visit.restore is None else typical(call_times_s(visit.restore))
    return typical(call_times_s(stretch)) - restore_s


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
    if no_time(visit, typical):
        return None
    base = calibration.base_power_w
    times = call_times_s(visit.stretch)
    time_s = typical(times)
    dynamic = _dynamic_j(visit.stretch, time_s, base)
    flags = [*visit.flags, *stretch_flags(visit.stretch)]
    if visit.restore is not None:
        restore_s = typical(call_times_s(visit.restore))
        restoring = _dynamic_j(visit.restore, restore_s, base)
        time_s -= restore_s
        times = [t - restore_s for t in times]
        dynamic = None if dynamic is None or restoring is None else dynamic - restoring
        flags += stretch_flags(visit.restore)
    replay_s = time_s
    if visit.neighbours is not None:
        times = times_among_neighbours_s(visit.neighbours)
        time_s = statistics.median(times)
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
    """Return the time of one call (seconds) by each pair of replays, with neighbours and alone."""
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
    """Return the device's time of one eager call, less what restoring took of it."""
    if visit.stretch is None or not visit.stretch.eager_times_s:
        return None
    eager_s = statistics.median(visit.stretch.eager_times_s)
    if visit.restore is None:
        return eager_s
    restoring = visit.restore.eager_times_s
    return eager_s - statistics.median(restoring) if restoring else None


def quantity_of(
    values: Sequence[float],
    pooled: PooledSpread | None,
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
        for visit in _of_one_sort([v for v in visits if v.access == "model"]):
            if visit.role == "limited":
                self._keep_limited(visit)
            if visit.role != "measurement":
                continue
            calibration = self._campaigns[visit.campaign].calibration
            key = (visit.configuration, visit.setting)
            of_state = self._hot if visit.weights == "hot" else self._found
            of_state[key].append((visit, visit_cost(visit, calibration, self._typical(visit))))
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

    def _keep_limited(self, visit: Visit) -> None:
        """Keep a visit at the power limit (not one that only found the clock still low)."""
        calibration = self._campaigns[visit.campaign].calibration
        cost = visit_cost(visit, calibration, self._typical(visit))
        if cost is not None and any(flag.startswith(AT_THE_LIMIT) for flag in visit.flags):
            self._limited[visit.configuration, visit.setting].append(cost)

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

    def _with_hot_weights(self, configuration: str, setting: str) -> OperatingPoint | None:
        costs = self._full_clock([c for _, c in self._hot.get((configuration, setting), []) if c])
        return _operating_point(costs) if costs else None

    def _after_others(self, configuration: str, setting: str) -> AfterOthers | None:
        """Return what a call takes longer after others; None where that was not measured."""
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
        """Return what a call of one kernel takes longer after a stream, at the median (s).

        For one call alone it scatters as much as it is.
        """
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
        costs = _not_held_up(seen) if on_cpu else seen
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
            reasons["eager_time_s"] = _why_no_eager_time(found[-1][0])
        if costs and not energies:
            reasons["energy_j"] = _why_no_energy(flags, found[-1][0])
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
            hot=self._with_hot_weights(configuration, setting),
            after_others=self._after_others(configuration, setting),
            reasons=reasons,
            flags=tuple(flags),
        )


def _not_held_up(costs: Sequence[VisitCost]) -> list[VisitCost]:
    """Keep the visits to a CPU that other work did not hold up."""
    most_s = OUTLYING * min((c.time_s for c in costs), default=0.0)
    return [c for c in costs if c.time_s <= most_s]


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
    """Join visits in one state into a point."""
    clocks = [c.clock_hz for c in costs if c.clock_hz]
    dynamic = [c.dynamic_energy_j for c in costs if c.dynamic_energy_j is not None]
    return OperatingPoint(
        clock_hz=statistics.fmean(clocks) if clocks else None,
        time_s=statistics.fmean(c.time_s for c in costs),
        dynamic_energy_j=statistics.fmean(dynamic) if dynamic else None,
    )


def _why_no_eager_time(visit: Visit) -> str:
    if visit.stretch is None or not visit.stretch.eager_times_s:
        return "no call was timed as it is issued eagerly"
    return NO_TIME


def _why_no_energy(flags: Sequence[str], last: Visit) -> str:
    said = (f for f in (*last.flags, *flags) if f.startswith("no power"))
    return next(said, "no power was read")


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
        joined[configuration][form] = _quiet(groups, all_times) if groups else _of_visits(all_times)
    return dict(joined)


def _of_visits(all_times: Sequence[tuple[float, ...]]) -> Quantity:
    calm = _calm(all_times, statistics.median)
    times = [s for each in calm for s in each]
    width = half_width(times, None)
    mean = statistics.fmean(map(three_sigma_mean, calm))
    return Quantity.around(statistics.median(times), mean, width, len(times))


def _quiet(groups: Sequence[tuple[float, ...]], all_times: Sequence[tuple[float, ...]]) -> Quantity:
    calm = _calm(groups, statistics.fmean)
    quiet = [s for each in calm for s in each]
    width = half_width(quiet, None)
    times = [s for each in all_times if len(each) >= LEAST_BLOCKS for s in each]
    mean = statistics.fmean(map(statistics.fmean, calm))
    return Quantity.around(statistics.median(times), mean, width, len(times))


def _calm(all_times: Sequence[tuple[float, ...]], typical: Typical) -> list[tuple[float, ...]]:
    """Leave out times that are typically much longer than the shortest."""
    fastest_s = min(map(typical, all_times))
    return [times for times in all_times if typical(times) <= fastest_s * (1 + HELD_UP)]


def cost_in(costs: Sequence[Cost], setting: str) -> Cost | None:
    """Return the cost with a time in a setting, of those of one configuration; None: there is none.

    A cost by this version's estimator comes before those of any other, then the last one.
    """
    timed = [cost for cost in costs if cost.setting == setting and cost.time_s is not None]
    return max(reversed(timed), key=lambda cost: cost.estimator == ESTIMATOR, default=None)
