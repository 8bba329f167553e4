"""The measured runs of one device: the truths that predictions are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opdb.derive.launches import Launches, compare_launches
from opdb.derive.runs import RunCost, run_cost
from opdb.predict.boards import Boards
from opdb.records import (
    CAPTURED_MODE,
    COMPILED_MODES,
    ELSEWHERE,
    Device,
    Json,
    Mode,
    ModelRun,
    Workload,
)
from opdb.store import Measured, Store


class Truths:
    """Good runs of a device's boards in one setting, read from a store once and as needed.

    The setting is the usual one (empty), or names the algorithm of every convolution.
    """

    def __init__(
        self, store: Store, device: Device, boards: Boards, setting: Mapping[str, Json]
    ) -> None:
        self._store = store
        self._device = device
        self._boards = boards
        self._setting = setting
        self._measured: dict[Mode, Mapping[str, Measured]] = {}
        self._workloads: dict[str, Workload] = {}
        self._captured: dict[str, Workload | None] = {}
        self._runs: dict[tuple[str, Mode], list[ModelRun]] = {}
        self._costs: dict[tuple[str, Mode, str], RunCost | None] = {}
        self._kernels: dict[str, Mapping[str, Mapping[str, int]]] = {}

    def measured(self, mode: Mode) -> Mapping[str, Measured]:
        """Return the workloads (by key) with a usual, good run in a mode, without their calls.

        Of several boards that ran a workload it is the one that measured most of its operators, and
        among equals the one of the latest run: another's run tells how boards differ, not how a sum
        errs. In a mode that compiles they are those compiled for the device, where these are known;
        in that of a CUDA graph what they call while captured, where that is known apart.
        """
        if mode not in self._measured:
            found = self._store.measured(self._device.slug, mode)
            if mode in COMPILED_MODES:
                found = self._compiled(found)
            elif mode == CAPTURED_MODE and found:
                keys = self._store.captured_keys()
                found = [replace(each, key=keys.get(each.key, each.key)) for each in found]
            self._measured[mode] = self._of_best_boards(found)
        return self._measured[mode]

    def _of_best_boards(self, found: Sequence[Measured]) -> dict[str, Measured]:
        by_key: dict[str, list[Measured]] = {}
        for each in found:
            by_key.setdefault(each.key, []).append(each)
        several = [key for key, measured in by_key.items() if len(measured) > 1]
        counts = self._store.cost_counts_of_workloads(several)
        return {
            key: max(reversed(measured), key=lambda each: counts.get((each.key, each.board), 0))
            for key, measured in by_key.items()
        }

    def uncompiled(self, mode: Mode) -> int:
        """Count the workloads with a good run in a mode of which the compiled calls are unknown."""
        ran = {each.key for each in self._store.measured(self._device.slug, mode)}
        return len(ran) - len(self.measured(mode))

    def compiled(self, workload: Workload) -> Workload | None:
        """Return a workload as it was compiled for the device; None where that is unknown."""
        key = replace(workload, compiled_for=self._device.slug).key
        return next(iter(self._store.workloads_by_key([key])), None)

    def all_compiled(self, name: str) -> list[Workload]:
        """Return every workload of a model that was compiled for the device."""
        return self._store.workloads(name, compiled_for=self._device.slug)

    def captured(self, workload: Workload) -> Workload | None:
        """Return what a workload calls while it is captured; None where that is not known apart."""
        if workload.key not in self._captured:
            self._captured[workload.key] = self._store.captured(workload)
        return self._captured[workload.key]

    def _compiled(self, found: Sequence[Measured]) -> list[Measured]:
        """Return what was measured as it was compiled for the device, as far as that is known."""
        plain = self._store.workloads_by_key([each.key for each in found])
        keys = {w.key: replace(w, compiled_for=self._device.slug).key for w in plain}
        known = {w.key: w for w in self._store.workloads_by_key(list(keys.values()))}
        self._workloads |= known
        return [replace(each, key=key) for each in found if (key := keys[each.key]) in known]

    def workloads(self, mode: Mode) -> list[Workload]:
        """Return the workloads that were measured in a mode."""
        return self.workloads_of(list(self.measured(mode)))

    def workloads_of(self, keys: Sequence[str]) -> list[Workload]:
        """Return the workloads of these keys, in this order; each is read once."""
        unread = [key for key in keys if key not in self._workloads]
        if unread:
            self._workloads |= {w.key: w for w in self._store.workloads_by_key(unread)}
        return [self._workloads[key] for key in keys]

    def runs(self, workload: Workload, mode: Mode) -> list[ModelRun]:
        """Return a workload's runs in a mode that succeeded; raw, so read when needed.

        A run under an algorithm of which a convolution ran otherwise is none.
        """
        place = workload.model_key, mode
        if place not in self._runs:
            runs = self._store.model_runs(
                workload.model_key, device=self._device.slug, mode=mode, setting=self._setting
            )
            good = [r for r in runs if r.outcome == "ok" and not r.facts.get(ELSEWHERE)]
            self._runs[place] = good
        return self._runs[place]

    def cost(self, workload: Workload, mode: Mode, board: str) -> RunCost | None:
        """Return what a workload took on a board in a mode; None where it was not run."""
        place = workload.model_key, mode, board
        if place not in self._costs:
            runs = [r for r in self.runs(workload, mode) if self._boards.of_run(r) == board]
            self._costs[place] = run_cost(runs)
        return self._costs[place]

    def launches(self, workload: Workload, run: ModelRun) -> Launches | None:
        """Hold a run's kernels against its operators', as its board saw them, else another."""
        of_operators: dict[str, Mapping[str, int]] = {}
        for board in self._boards.last(self._boards.of_run(run)):
            of_operators |= self._kernels_of(board)
        return compare_launches(workload, run, of_operators)

    def _kernels_of(self, board: str) -> Mapping[str, Mapping[str, int]]:
        if board not in self._kernels:
            self._kernels[board] = self._store.kernels(board)
        return self._kernels[board]
