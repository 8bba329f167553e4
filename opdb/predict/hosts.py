"""A host that was calibrated against those of boards: what it makes of their predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from opdb.derive.costs import host_quantities
from opdb.derive.host import HostFactor, host_factor
from opdb.derive.quiet import CallForm, Slowdown, host_slowdown_in
from opdb.predict.boards import Boards
from opdb.predict.snapshot import Snapshot
from opdb.records import Call, HostCalibration, Workload
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import Store

MOST_WORKLOADS = 3
LEAST_CALLS, MOST_CALLS = 32, 320
MOST_DISTINCT_CALLS = 150
"""Workloads that a calibration of a host times at most, their calls, and their distinct calls at
most: so it takes some seconds, and no single call counts for much."""


@dataclass(frozen=True)
class OnHost:
    """What a pass takes where a calibrated host issues it, in quiet moments.

    `factor` is how many times as long that host takes as the board's. `slowdown` is how much slower
    than quiet it was when it was calibrated, and `slowed_s` the pass at its median then; None where
    that is not known.
    """

    factor: HostFactor
    calibrated_at: str
    time_s: float
    slowdown: Slowdown | None
    slowed_s: float | None


class CalibratedHost:
    """A host as it was calibrated last, held against the hosts of boards."""

    def __init__(self, store: Store, calibration: HostCalibration) -> None:
        self.calibration = calibration
        self.workloads = store.workloads_by_key(calibration.workloads)
        self.factor = cache(self._factor)

    @cached_property
    def slowdown(self) -> Slowdown | None:
        """How much slower than in quiet moments it was when it was calibrated."""
        return host_slowdown_in(self.calibration.visits)

    @cached_property
    def _calls(self) -> Mapping[CallForm, Call]:
        return {_call_form(call): call for each in self.workloads for call in each.calls}

    @cached_property
    def _counts(self) -> Mapping[CallForm, int]:
        return Counter(_call_form(call) for each in self.workloads for call in each.calls)

    @cached_property
    def _times_s(self) -> Mapping[CallForm, float]:
        """The quiet times of the calls (seconds)."""
        return {
            (key, form): quantity.mean
            for key, forms in host_quantities(self.calibration.visits).items()
            for form, quantity in forms.items()
            if (key, form) in self._counts
        }

    def _factor(self, boards: Boards, board: str) -> HostFactor | None:
        """Return how many times as long it takes as a board's host; None where too few calls do."""
        there_s = boards.host_times_s([self._calls[call] for call in self._times_s], board)
        return host_factor(self._times_s, there_s, self._counts)


def workloads_to_time(store: Store) -> list[Workload]:
    """Return the small stored workloads whose calls have host times on the most boards.

    They are of inference in float32 at batch 1. Each next one is that of which the boards know the
    largest shares, summed over boards, of calls that those before it do not make.
    """
    candidates = [
        each
        for each in store.workloads(dtype="float32", batch_size=1, phase="inference")
        if each.autocast is None
        and LEAST_CALLS <= len(each.calls) <= MOST_CALLS
        and len(set(map(_call_form, each.calls))) <= MOST_DISTINCT_CALLS
    ]
    known = _known(store, candidates)
    chosen: list[Workload] = []
    taken: set[CallForm] = set()
    while candidates and len(chosen) < MOST_WORKLOADS:
        news = [_new(each, known, taken) for each in candidates]
        best = max(range(len(candidates)), key=news.__getitem__)
        if not news[best]:
            break
        chosen.append(candidates.pop(best))
        taken |= set(map(_call_form, chosen[-1].calls))
    return chosen


def _call_form(call: Call) -> CallForm:
    return call.configuration.key, call.form


def _known(store: Store, workloads: Sequence[Workload]) -> Counter[CallForm]:
    """Count the boards on GPUs that have a host time of each call of workloads."""
    configurations = {call.configuration for each in workloads for call in each.calls}
    known: Counter[CallForm] = Counter()
    for device in store.devices():
        if device.type == "cpu":
            continue  # there the host is the device
        snapshot = Snapshot(store, device)
        boards = Boards(snapshot, DEFAULT_SETTINGS)
        for board in snapshot.boards:
            for key, cost in boards.own(configurations, board).items():
                known.update((key, form) for form in cost.host_time_s)
    return known


def _new(workload: Workload, known: Counter[CallForm], taken: set[CallForm]) -> float:
    calls = [call for call in map(_call_form, workload.calls) if call not in taken]
    return sum(known[call] for call in calls) / len(workload.calls)
