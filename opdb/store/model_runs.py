"""Runs of whole models: saved, read, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, select

from opdb.records import Json, Mode, ModelRun, Outcome, Phase, canonical_json
from opdb.store import reading, rows, schema
from opdb.store.connecting import Connected
from opdb.store.documents import read_json
from opdb.store.lease import Claim
from opdb.store.writing import matching


@dataclass(frozen=True)
class Measured:
    """A workload with a good run: what shows its likeness to others, and the run's board."""

    key: str
    name: str
    dtype: str
    batch_size: int
    phase: Phase
    board: str


@dataclass(frozen=True)
class RunState:
    """The outcome of a model run, without its samples."""

    id: str
    workload: str
    mode: Mode
    setting: Mapping[str, Json]
    outcome: Outcome
    reason: str | None
    cost_s: float
    facts: Mapping[str, Json]
    campaign: str
    device: str
    board: str


class ModelRuns(Connected):
    """The runs of whole models in a database."""

    def save_model_run(self, run: ModelRun, claim: Claim | None = None) -> None:
        """Save a model run; its campaign and workload must be stored, and its claim be held.

        Raises:
            DatabaseError: they are not, or the run's id is taken.
            ClaimLostError: another worker took the claim over.
        """
        row = rows.MODEL_RUN.row(run)
        self.insert_referring(schema.model_run, row, "workload", schema.workload, claim)

    def model_runs(
        self,
        workload: str | None = None,
        *,
        device: str | None = None,
        board: str | None = None,
        mode: Mode | None = None,
        setting: Mapping[str, Json] | None = MappingProxyType({}),
    ) -> list[ModelRun]:
        """Return the runs of a workload (key) on a device or board, in a mode, oldest first.

        `setting` limits them to one setting, by default the usual one; None: all settings.
        """
        conditions = _of_runs(workload, device, board, mode, setting)
        return self.records(rows.MODEL_RUN, _runs(schema.model_run).where(*conditions))

    def run_states(
        self,
        workload: str | None = None,
        *,
        device: str | None = None,
        board: str | None = None,
        mode: Mode | None = None,
        setting: Mapping[str, Json] | None = MappingProxyType({}),
        naming: str | None = None,
    ) -> list[RunState]:
        """Return how the runs ended that `model_runs` returns, without reading their samples.

        With `naming` only those whose setting or facts have a value of this name.
        """
        conditions = _of_runs(workload, device, board, mode, setting)
        run, campaign = schema.model_run.c, schema.campaign.c
        if naming is not None:
            named = f'%"{naming}":%'
            conditions.append(run.setting.like(named) | run.facts.like(named))
        selected = run.id, run.mode, run.setting, run.outcome, run.reason, run.cost_s, run.facts
        query = _runs(*selected, run.campaign, campaign.device, campaign.board).where(*conditions)
        with self.reading() as connection:
            return [
                RunState(**{**row, **{name: read_json(row[name]) for name in ("setting", "facts")}})
                for row in connection.execute(query).mappings()
            ]

    def measured(self, device: str, mode: Mode) -> list[Measured]:
        """Return the workloads with a good run in a mode, by name and then as identified.

        One of each board that ran a workload, that of the latest run last.
        """
        run, campaign, workload = schema.model_run.c, schema.campaign.c, schema.workload.c
        selected = workload.key, workload.name, workload.dtype, workload.batch_size, workload.phase
        query = (
            _runs(*selected, campaign.board)
            .where(*_usual_on(device, mode))
            .order_by(None)
            .order_by(*reading.workload_order(), run.started_at, run.id)
        )
        found: dict[tuple[str, str], Measured] = {}
        with self.reading() as connection:
            for row in connection.execute(query):
                found.pop((row.key, row.board), None)  # the latest run tells a board's place
                found[row.key, row.board] = Measured(*row[:-1])
        return list(found.values())

    def run_seconds(self, device: str, mode: Mode) -> list[float]:
        """Return what each good model run on a device in a mode took, in seconds, oldest first."""
        return self.scalars(_runs(schema.model_run.c.cost_s).where(*_usual_on(device, mode)))


def _runs(*columns: Table | ColumnElement[Any]) -> Select[Any]:
    """Return the query for columns of model runs and the keys of their workloads, oldest first."""
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    return (
        select(*columns, workload.c.key.label("workload"))
        .join_from(run, campaign, run.c.campaign == campaign.c.id)
        .join(workload, run.c.workload_id == workload.c.id)
        .order_by(run.c.started_at, run.c.id)
    )


def _usual_on(device: str, mode: Mode) -> list[ColumnElement[bool]]:
    """Return the conditions on usual, good runs on a device (slug) in a mode."""
    on_device = schema.campaign.c.device == device
    return [on_device, schema.model_run.c.mode == mode, *reading.usual_and_good()]


def _of_runs(
    workload: str | None,
    device: str | None,
    board: str | None,
    mode: Mode | None,
    setting: Mapping[str, Json] | None,
) -> list[ColumnElement[bool]]:
    """Return the conditions on model runs; None leaves one out."""
    wanted = None if setting is None else canonical_json(dict(setting))
    return [
        *matching(schema.workload, {"key": workload}),
        *matching(schema.campaign, {"device": device, "board": board}),
        *matching(schema.model_run, {"mode": mode, "setting": wanted}),
    ]
