"""The composer: timeline, base and dynamic energy, coverage, interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from opdb.compose.calls import Pass, TimedPass, is_one_graph, timed_pass
from opdb.compose.clock import Load, Scaling, clock_share, scalings
from opdb.compose.grounds import Grounds, Known, in_state, with_estimates
from opdb.compose.intervals import host_error, model_error, shared_half_width, sum_half_width
from opdb.compose.notes import notes, notes_of_host, notes_of_known, notes_of_parts
from opdb.compose.shares import NEARLY_ALL, EstimatedShare, Share, rest, shares
from opdb.compose.timeline import eager_time_s
from opdb.records import Cost, Device, Mode, Workload

Interval = tuple[float, float]

LIMIT_TOLERANCE = 0.02
"""How far below its limit, as calibrated or stated, a board may keep (690 of 700 W were seen)."""


HOST_BOUND_EXCESS = 0.01
"""An eager pass longer than its device time by more than this share waits for the host."""


@dataclass(frozen=True)
class Prediction:
    """Time and energy of one pass of a workload, and how much of it measured operators explain.

    `energy_j` and its interval are None where the board has no power readings.
    Coverage weighs the measured calls by time and by energy; with the shares of what is missing
    each adds up to 1. On a device without power readings the energy is a weight alone.
    Where nothing that takes time has a cost, time and energy are None. `host_bound` says that the
    device waits for the host.
    What was never measured is `estimated`, in `time_s` and `energy_j` and not in coverage, or
    `missing` and in neither: its shares are for weighting alone. `widths_s` and `widths_j` are how
    far the intervals reach below and above, but for the error of a sum that other models showed.
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
    estimated: tuple[EstimatedShare, ...] = ()
    notes: tuple[str, ...] = ()
    widths_s: Interval = (0.0, 0.0)
    widths_j: Interval = (0.0, 0.0)

    @property
    def coverages(self) -> dict[str, float]:
        """The shares of time, and of energy where any is known, that are covered."""
        energy = {} if self.coverage_energy is None else {"energy": self.coverage_energy}
        return {"time": self.coverage_time, **energy}

    @property
    def call_time_s(self) -> float | None:
        """Mean time of a call: the shorter, the more the gaps between kernels count.

        None where the time is not known, or nothing is called.
        """
        calls = len(self.workload.calls)
        return self.time_s / calls if self.time_s and calls else None

    @property
    def power_w(self) -> float | None:
        """Mean power over a pass."""
        return None if self.energy_j is None or not self.time_s else self.energy_j / self.time_s


def compose(workload: Workload, mode: Mode, grounds: Grounds) -> Prediction:
    """Predict one pass of a workload from the costs of its operators.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    made = Pass(workload)
    return judged(composed(made, mode, found_by(made, grounds)), grounds.known)


def found_by(made: Pass, grounds: Grounds) -> Grounds:
    """Return the grounds as a pass finds them, estimates where there are no measurements."""
    return with_estimates(made.configurations, in_state(made.touched_bytes, grounds))


def composed(made: Pass, mode: Mode, grounds: Grounds) -> Prediction:
    """Predict one pass as if sums of operators never erred: `judged` widens its intervals.

    `grounds` are as `found_by` returns them.

    Raises:
        ValueError: the mode is not one the composer knows.
    """
    one_graph = is_one_graph(mode)
    sum_ = _Sum(made, mode, grounds)
    share = sum_.clock_share(grounds.limit_w)
    time_s = sum_.time_s(share)
    energy_j = sum_.energy_j(share)
    host_s = _host_widths_s(sum_, share, time_s)
    widths_s, widths_j = _widths(sum_, share, time_s, host_s)
    parts = shares(made, sum_.costed, grounds)
    parts = parts if energy_j is not None else replace(parts, dark=())
    missing = parts.uncosted + parts.dark
    whole = sum(made.counts.values()) + sum(made.workload.unsupported.values())
    found = Prediction(
        workload=made.workload,
        mode=mode,
        device=grounds.device,
        board=grounds.board,
        time_s=time_s,
        time_interval_s=_interval(time_s, widths_s),
        host_bound=not one_graph and time_s > sum_.device_s(share) * (1 + HOST_BOUND_EXCESS),
        energy_j=energy_j,
        energy_interval_j=None if energy_j is None else _interval(energy_j, widths_j),
        coverage_calls=sum(s.count for s in parts.measured) / whole if whole else 1.0,
        coverage_time=rest(s.share_time for s in (*missing, *parts.estimated)),
        coverage_energy=None
        if energy_j is None
        else rest(s.share_energy for s in (*missing, *parts.estimated)),
        missing=missing,
        parts=parts.measured,
        estimated=parts.estimated,
        notes=(
            *notes(made, mode, grounds, share),
            *notes_of_host(max(host_s) / time_s if time_s else 0.0, grounds),
            *notes_of_parts(parts, missing, grounds),
        ),
        widths_s=widths_s,
        widths_j=widths_j,
    )
    lacking = math.fsum(share.share_time for share in parts.uncosted)
    is_sum = not made.counts or (sum_.costed and lacking < NEARLY_ALL)
    return found if is_sum else _unmeasured(found)


def judged(found: Prediction, known: Known) -> Prediction:
    """Return a composed prediction with intervals that count in what other models' runs showed."""
    time_interval_s = energy_interval_j = None
    if found.time_s is not None:
        error_s = model_error(known.time) * found.time_s
        time_interval_s = _interval(found.time_s, found.widths_s, error_s)
    if found.energy_j is not None:
        error_j = model_error(known.energy) * found.energy_j
        energy_interval_j = _interval(found.energy_j, found.widths_j, error_j)
    return replace(
        found,
        time_interval_s=time_interval_s,
        energy_interval_j=energy_interval_j,
        notes=found.notes + notes_of_known(known),
    )


def _interval(value: float, widths: Interval, error: float = 0.0) -> Interval:
    below, above = (math.hypot(width, error) for width in widths)
    return max(0.0, value - below), value + above


def _unmeasured(found: Prediction) -> Prediction:
    """Return a prediction that claims nothing: a sum of no costs is not a cost of 0."""
    slug = found.device.slug
    note = f"nothing of this workload that takes time was measured or estimated on {slug}"
    return replace(
        found,
        time_s=None,
        time_interval_s=None,
        energy_j=None,
        energy_interval_j=None,
        coverage_energy=None,
        notes=(note, *found.notes),
    )


@dataclass(frozen=True)
class _Sum:
    """What the costs of a pass add up to, at any share of the highest clock."""

    made: Pass
    mode: Mode
    grounds: Grounds

    @cached_property
    def costed(self) -> dict[str, Cost]:
        """The costs, measured or estimated, by configuration key."""
        costs = ((key, self.grounds.costs.get(key)) for key in self.made.counts)
        return {key: cost for key, cost in costs if cost is not None and cost.time_s is not None}

    @cached_property
    def timed(self) -> TimedPass:
        """The calls that have a cost, at full clock."""
        return timed_pass(self.made, self.mode, self.grounds)

    @cached_property
    def scalings(self) -> Mapping[str, Scaling]:
        """How each configuration goes with the clock."""
        return scalings(self.costed, self.made.bytes_moved)

    @cached_property
    def load(self) -> Load:
        """All calls, in parts that go with the clock alike."""
        times = ((c.key, c.times * c.device_s, 0.0) for c in self.timed.calls)
        dynamic = ((key, 0.0, self.made.counts[key] * d) for key, d in self.dynamic_j.items())
        return Load.of((self.scalings[key], t, d) for key, t, d in (*times, *dynamic))

    @cached_property
    def dynamic_j(self) -> dict[str, float]:
        """The dynamic energies of one call, by configuration key, at full clock."""
        energies = ((key, cost.dynamic_energy_j) for key, cost in self.costed.items())
        return {key: energy.mean for key, energy in energies if energy is not None}

    def slower_by(self, share: float) -> Callable[[str], float]:
        """Return the factor on each configuration's (key) time at a share of the clock."""
        if share == 1:
            return lambda key: 1.0
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
        if self.grounds.device.type == "cpu":
            containers_s = self.grounds.calibration.container_time_s or 0.0
            return device_s + self.made.workload.containers * containers_s
        if self.timed.synchronises:
            return eager_time_s(self.timed.steps(self.slower_by(share), host))
        return max(self.timed.host_s * host, device_s)

    def energy_j(self, share: float) -> float | None:
        """Return E = P_base · T + Σ D; None where the board has no power readings."""
        base_w = self.grounds.calibration.base_power_w
        if base_w is None or (self.costed and not self.dynamic_j):
            return None
        return base_w * self.time_s(share) + self.load.energy_j(share)

    def clock_share(self, limit_w: float | None) -> float:
        """Return the share of the highest clock at which the pass keeps to a power limit."""

        def power_w(share: float) -> float:
            energy_j, time_s = self.energy_j(share), self.time_s(share)
            return energy_j / time_s if energy_j and time_s else 0.0

        return clock_share(power_w, limit_w) if limit_w else 1.0


def _host_widths_s(sum_: _Sum, share: float, time_s: float) -> Interval:
    """Return what an uneven host alone may take from a pass's time and add to it (seconds).

    The host is as much faster or slower in all calls at once; a pass takes as long as the device
    does, however fast the host.
    """
    error = host_error(sum_.grounds.host_ratios)
    if not error:
        return 0.0, 0.0  # nor is the pass played twice more for nothing
    slower = math.exp(error)
    return time_s - sum_.time_s(share, 1 / slower), sum_.time_s(share, slower) - time_s


def _widths(sum_: _Sum, share: float, time_s: float, host_s: Interval) -> tuple[Interval, Interval]:
    """Return how far the 95 % intervals of time (seconds) and energy (joules) reach either way.

    They join the operators' own, those of estimates, of factors that brought costs from other
    boards, of base power for the energy, the host's (`host_s`), during which base power flows, and
    for the time what a limit that is kept a little lower would add to it; not yet models' error.
    """
    counts, grounds = sum_.made.counts, sum_.grounds
    measured = {key: cost for key, cost in sum_.costed.items() if not cost.is_estimated}
    times = [(counts[key], cost.time_s) for key, cost in measured.items() if cost.time_s]
    energies = [
        (counts[key], cost.dynamic_energy_j)
        for key, cost in measured.items()
        if cost.dynamic_energy_j is not None
    ]
    limit_s = 0.0
    if share < 1 and grounds.limit_w is not None:
        limit_s = sum_.time_s(sum_.clock_share(grounds.limit_w * (1 - LIMIT_TOLERANCE))) - time_s
    base_w = grounds.calibration.base_power_w or 0.0
    low_high = grounds.calibration.base_power_interval_w
    base_j = (low_high[1] - low_high[0]) / 2 * time_s if low_high else 0.0
    guessed_s, guessed_j = _estimates_widths(sum_)
    brought_s, brought_j = _brought_widths(sum_)
    of_operators_s = math.hypot(sum_half_width(times), limit_s, guessed_s, brought_s)
    of_operators_j = math.hypot(sum_half_width(energies), base_j, guessed_j, brought_j)
    below_s, above_s = host_s
    return (
        (math.hypot(of_operators_s, below_s), math.hypot(of_operators_s, above_s)),
        (
            math.hypot(of_operators_j, below_s * base_w),
            math.hypot(of_operators_j, above_s * base_w),
        ),
    )


def _brought_widths(sum_: _Sum) -> tuple[float, float]:
    """Return what factors between boards add to half the intervals of time (s) and energy (J)."""
    counts, brought = sum_.made.counts, sum_.grounds.brought
    ours = {key: cost for key, cost in sum_.costed.items() if key in brought}
    seconds = ((counts[k] * c.time_s.mean, brought[k].time) for k, c in ours.items() if c.time_s)
    joules = (
        (counts[k] * c.dynamic_energy_j.mean, brought[k].dynamic_energy)
        for k, c in ours.items()
        if c.dynamic_energy_j is not None
    )
    return shared_half_width(seconds), shared_half_width(joules)


def _estimates_widths(sum_: _Sum) -> tuple[float, float]:
    """Return what estimates add to half the interval of the time (seconds) and energy (joules)."""
    counts, grounds = sum_.made.counts, sum_.grounds
    asked = {key: float(counts[key]) for key, cost in sum_.costed.items() if cost.is_estimated}
    if grounds.estimates is None or not asked:
        return 0.0, 0.0
    time_s, energy_j = grounds.estimates.half_widths(asked, grounds.calibration.base_power_w)
    return time_s, energy_j or 0.0
