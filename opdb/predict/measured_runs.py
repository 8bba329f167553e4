"""The measured runs of one device, which predictions are compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from opdb.derive.launches import Launches, compare_launches
from opdb.derive.runs import RunCost, run_cost
from opdb.derive.statistics import typical_on
from opdb.predict.snapshot import Snapshot
from opdb.records import (
    ALGORITHM_SETTING,
    CAPTURED_MODE,
    COMPILED_MODES,
    ELSEWHERE,
    Json,
    Mode,
    ModelRun,
    Workload,
)
from opdb.store import Measured, Store


class MeasuredRuns:
    """Good runs of a device's boards, each read from a store once and when it is first needed.

    `algorithm` is the one forced on every convolution, None where torch chose.
    """

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self._store = store
        self._slug = snapshot.device.slug
        self._snapshot = snapshot
        self._workloads: dict[str, Workload] = {}
        self.groups = cache(self._read_groups)
        self.measured = cache(self._choose_measured)
        self._captured: dict[str, Workload | None] = {}
        self._read: dict[Mode, Mapping[str, Sequence[ModelRun]]] = {}
        self._runs = cache(self._read_runs)
        self.cost = cache(self._cost_of)

    def _read_groups(self, mode: Mode) -> Sequence[Measured]:
        """Return each workload with each board that has a good run of it in a mode, torch choosing.

        In a mode that compiles, the workloads are the compiled ones, where these are known; in
        that of a CUDA graph, the captured ones, where these differ.
        """
        found = self._store.measured(self._slug, mode)
        if mode in COMPILED_MODES:
            return self._compiled(found)
        if mode == CAPTURED_MODE and found:
            keys = self._store.captured_keys()
            return [replace(each, key=keys.get(each.key, each.key)) for each in found]
        return found

    def _choose_measured(self, mode: Mode) -> Mapping[str, Measured]:
        """Return the workloads (by key) of a mode's groups, each on one board.

        Of several boards that ran a workload it is the one that measured most of its operators, and
        among equals the one of the latest run.
        """
        by_key: dict[str, list[Measured]] = {}
        for each in self.groups(mode):
            by_key.setdefault(each.key, []).append(each)
        several = [key for key, measured in by_key.items() if len(measured) > 1]
        counts = self._store.cost_counts_of_workloads(several)
        return {
            key: max(reversed(measured), key=lambda each: counts.get((each.key, each.board), 0))
            for key, measured in by_key.items()
        }

    def captured(self, workloads: Sequence[Workload]) -> list[Workload]:
        """Return what workloads call while a CUDA graph captures them; as they are where alike."""
        if unread := [each for each in workloads if each.key not in self._captured]:
            keys = {each.key: replace(each, captured=True).key for each in unread}
            read = {each.key: each for each in self._store.workloads_by_key(list(keys.values()))}
            self._captured |= {key: read.get(captured) for key, captured in keys.items()}
        return [self._captured[each.key] or each for each in workloads]

    def uncompiled(self, mode: Mode) -> int:
        """Count the good runs in a mode, one a board, of which the compiled calls are unknown."""
        return len(self._store.measured(self._slug, mode)) - len(self.groups(mode))

    def compiled(self, workload: Workload) -> Workload | None:
        """Return a workload as it was compiled for the device; None where that is unknown."""
        key = replace(workload, compiled_for=self._slug).key
        return next(iter(self._store.workloads_by_key([key])), None)

    def all_compiled(self, name: str) -> list[Workload]:
        """Return every workload of a model that was compiled for the device."""
        return self._store.workloads(name, compiled_for=self._slug)

    def _compiled(self, found: Sequence[Measured]) -> list[Measured]:
        """Return measured workloads as they were compiled for the device, where that is known."""
        plain = self._store.workloads_by_key([each.key for each in found])
        keys = {w.key: replace(w, compiled_for=self._slug).key for w in plain}
        known = {w.key: w for w in self._store.workloads_by_key(list(keys.values()))}
        self._workloads |= known
        return [replace(each, key=key) for each in found if (key := keys[each.key]) in known]

    def workloads(self, mode: Mode) -> list[Workload]:
        """Return the workloads that were measured in a mode."""
        return self.workloads_of(list(self.measured(mode)))

    def workloads_of(self, keys: Sequence[str]) -> list[Workload]:
        """Return the workloads of these keys, in this order."""
        unread = [key for key in keys if key not in self._workloads]
        if unread:
            self._workloads |= {w.key: w for w in self._store.workloads_by_key(unread)}
        return [self._workloads[key] for key in keys]

    def runs(self, workload: Workload, mode: Mode, algorithm: Json = None) -> list[ModelRun]:
        """Return a workload's runs in a mode that succeeded; raw, so read when needed.

        A run in which a convolution did not take the forced algorithm does not count.
        """
        return self._runs(workload.model_key, mode, algorithm)

    def read_runs(self, mode: Mode) -> None:
        """Read the runs of all workloads in a mode at once: many small queries are slow."""
        by_key: dict[str, list[ModelRun]] = defaultdict(list)
        for run in self._store.model_runs(device=self._slug, mode=mode):
            by_key[run.workload].append(run)
        self._read[mode] = by_key

    def _read_runs(self, key: str, mode: Mode, algorithm: Json) -> list[ModelRun]:
        if algorithm is None and mode in self._read:
            runs = self._read[mode].get(key, ())
        else:
            setting = {} if algorithm is None else {ALGORITHM_SETTING: algorithm}
            runs = self._store.model_runs(key, device=self._slug, mode=mode, setting=setting)
        return [r for r in runs if r.outcome == "ok" and not r.facts.get(ELSEWHERE)]

    def _cost_of(
        self, workload: Workload, mode: Mode, board: str, algorithm: Json = None
    ) -> RunCost | None:
        """Return the time and energy of a workload's runs on a board; None: it was not run."""
        runs = self.runs(workload, mode, algorithm)
        on_board = [run for run in runs if self._snapshot.board_of(run) == board]
        if not on_board:
            return None
        base_power_w = self._snapshot.calibration(board).base_power_w
        return run_cost(on_board, typical_on(self._snapshot.device), base_power_w)

    def launches(self, workload: Workload, run: ModelRun) -> Launches | None:
        """Compare a run's kernels with its operators', as its board saw them, else another."""
        of_operators: dict[str, Mapping[str, int]] = {}
        for board in self._snapshot.last(self._snapshot.board_of(run)):
            of_operators |= self._snapshot.kernels(board)
        return compare_launches(workload, run, of_operators)
