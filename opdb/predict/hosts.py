"""A host that was calibrated against those of boards: what it makes of their predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from opdb.derive.costs import host_quantities
from opdb.derive.host import LEAST_SHARE, HostFactor, host_factor
from opdb.derive.quiet import CallForm, Slowdown, host_slowdown_in
from opdb.predict.boards import Boards
from opdb.predict.snapshot import Snapshot
from opdb.records import HostCalibration, Workload
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import Store

MOST_WORKLOADS = 4
LEAST_CALLS, MOST_CALLS = 32, 320
MOST_DISTINCT_CALLS = 150
MOST_BATCH = 8
"""Workloads that a calibration of a host times at most; their calls, distinct calls and batch size
at most. So it takes seconds, and no single call counts for much."""


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
    def _passes(self) -> Sequence[Mapping[CallForm, int]]:
        return [_counts(each) for each in self.workloads]

    @cached_property
    def _times_s(self) -> Mapping[CallForm, float]:
        """The quiet times of the calls (seconds)."""
        return {
            (key, form): quantity.mean
            for key, forms in host_quantities(self.calibration.visits).items()
            for form, quantity in forms.items()
        }

    def _factor(self, boards: Boards, board: str) -> HostFactor | None:
        """Return how many times as long it takes as a board's host; None: that is not known."""
        called = {c for each in self.workloads for c in each.occurrences()}
        return host_factor(self._times_s, boards.host_times_s(called, board), self._passes)


def workloads_to_time(store: Store) -> list[Workload]:
    """Return the small stored workloads that hold a host against those of the most boards.

    They are of inference in float32 at small batches. Each next one is that of which the most
    boards that know none before it have host times of nearly all calls, and among these the one of
    the fewest calls.
    """
    workloads = store.workloads(dtype="float32", phase="inference")
    candidates = {
        each.key: (each, calls)
        for each in workloads
        if each.autocast is None and each.batch_size <= MOST_BATCH
        for calls in [_counts(each)]
        if LEAST_CALLS <= len(each.calls) <= MOST_CALLS and len(calls) <= MOST_DISTINCT_CALLS
    }
    knowing = _knowing(store, candidates)
    chosen: list[Workload] = []
    while len(chosen) < MOST_WORKLOADS and any(knowing.values()):
        best = max(knowing, key=lambda key: (len(knowing[key]), -len(candidates[key][0].calls)))
        chosen.append(candidates[best][0])
        knowing = {key: boards - knowing[best] for key, boards in knowing.items()}
    return chosen


def _counts(workload: Workload) -> Counter[CallForm]:
    return Counter((call.configuration.key, call.form) for call in workload.calls)


def _knowing(
    store: Store, candidates: Mapping[str, tuple[Workload, Counter[CallForm]]]
) -> dict[str, set[str]]:
    """Return, by workload (key), the boards that have host times of nearly all of its calls."""
    configurations = {c for each, _ in candidates.values() for c in each.occurrences()}
    knowing: dict[str, set[str]] = {key: set() for key in candidates}
    for device in store.devices():
        if device.type == "cpu":
            continue  # there the host is the device
        snapshot = Snapshot(store, device)
        boards = Boards(snapshot, DEFAULT_SETTINGS)
        for board in snapshot.boards:
            known = boards.host_times_s(configurations, board)
            for key, (workload, calls) in candidates.items():
                count = sum(n for call, n in calls.items() if call in known)
                if count >= LEAST_SHARE * len(workload.calls):
                    knowing[key].add(board)
    return knowing
