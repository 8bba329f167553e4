"""The results of a sweep's stored runs: rows with layers' energies and predictions beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opdb.algorithms.names import Algorithm
from opdb.predict import Predictor, predictor_for
from opdb.records import Json, Workload
from opdb.runs.table import RunTable
from opdb.settings import relevant_setting
from opdb.store import Store
from opdb.sweep.rows import Predicted, Row, same_kernels
from opdb.sweep.specs import SweepPolicy, SweepSpec

KIND = "conv2d"


class SweepResults:
    """The rows of a sweep, read from the store: runs, layers' energies, predictions beside them."""

    def __init__(self, store: Store, device: str, settings: Mapping[str, Json]) -> None:
        self._store, self._device, self._settings = store, device, settings
        self._boards = {c.id: c.board.uuid for c in store.campaigns(device)}
        policy = SweepPolicy((device,))
        self._table = RunTable(policy, policy.runs(store))
        self._predictors: dict[str, Predictor] = {}
        self._workloads: dict[str, Workload] = {}

    def rows(self, cells: Sequence[SweepSpec], calls: Sequence[str]) -> list[Row]:
        """Return a row of each cell of one model that was run; `calls` as its layers are called."""
        found = []
        for size in dict.fromkeys(cell.size for cell in cells):
            runs = []
            for cell in cells:
                if cell.size == size and (run := self._run(cell)) is not None:
                    runs.append((cell, run))
            same = same_kernels([(cell.algorithm.name, run) for cell, run in runs])
            for cell, run in runs:
                row = Row(
                    cell,
                    run,
                    self._boards[run.campaign],
                    Predicted(),
                    same.get(cell.algorithm.name),
                    self._energies(cell, self._boards[run.campaign], calls),
                )
                found.append(replace(row, predicted=self._predicted(row)))
        return found

    def _run(self, cell: SweepSpec) -> Any:
        state = self._table.run(cell)
        if state is None:
            return None
        runs = self._store.model_runs(
            cell.workload, device=self._device, mode=cell.mode, setting=cell.setting
        )
        return next(run for run in runs if run.id == state.id)

    def _workload(self, cell: SweepSpec) -> Workload:
        if cell.workload not in self._workloads:
            [self._workloads[cell.workload]] = self._store.workloads_by_key([cell.workload])
        return self._workloads[cell.workload]

    def _under(self, algorithm: Algorithm) -> dict[str, Json]:
        return {**self._settings, **algorithm.setting}

    def _energies(self, cell: SweepSpec, board: str, calls: Sequence[str]) -> dict[str, float]:
        """Return the energy of each convolution layer's calls, where all are measured."""
        made = [c.configuration for c in self._workload(cell).calls if c.configuration.kind == KIND]
        if len(made) != len(calls):
            return {}
        setting = relevant_setting(KIND, self._under(cell.algorithm))
        costs = self._store.costs(board, {c.key for c in made})
        known = {
            key: cost.energy_j.mean
            for key, some in costs.items()
            for cost in some
            if cost.setting == setting and cost.energy_j is not None
        }
        found: dict[str, float] = {}
        missing = set()
        for path, configuration in zip(calls, made, strict=True):
            if configuration.key not in known:
                missing.add(path)
            else:
                found[path] = found.get(path, 0.0) + known[configuration.key]
        return {path: energy for path, energy in found.items() if path not in missing}

    def _predicted(self, row: Row) -> Predicted:
        """Return the prediction of a run from its operators, where all of them were measured.

        A partial run has none, nor has a forced convolution whose time depends on the host.
        """
        cell, run = row.cell, row.run
        waits = run.mode == "eager" and cell.algorithm.is_forced
        if row.state != "full" or waits:
            return Predicted()
        name = cell.algorithm.name
        if name not in self._predictors:
            under = self._under(cell.algorithm)
            self._predictors[name] = predictor_for(
                self._store, self._device, under, estimates=False
            )
        workload = self._workload(cell)
        prediction = self._predictors[name].answer(workload, run.mode, row.board).prediction
        if prediction.missing or prediction.estimated or prediction.workload.unsupported:
            return Predicted()
        return Predicted(prediction.time_s, prediction.energy_j)
