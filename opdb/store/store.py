"""The store: records in, records out, each save a transaction of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from opdb.records import (
    AfterOthers,
    Board,
    BoardCalibration,
    Campaign,
    Configuration,
    Cost,
    Device,
    Json,
    Mode,
    ModelRun,
    Outcome,
    Phase,
    Profile,
    RunRatios,
    Workload,
    canonical_json,
)
from opdb.store import rows, schema
from opdb.store.database import Claim
from opdb.store.fields import RUN_RATIOS, field_of, read_json
from opdb.store.rows import (
    among,
    matching,
    numbers,
    replace_calls,
    save_configurations,
    upsert,
)
from opdb.store.visits import Visits


@dataclass(frozen=True)
class MeasuredWorkload:
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


class Store(Visits):
    """An open database. Every save is one transaction, and safe once the method has returned."""

    def save_campaign(self, campaign: Campaign) -> None:
        """Save a campaign with its device, board and host, in place of an earlier save.

        Raises:
            ValueError: its board is of another device than the campaign's.
        """
        if campaign.board.device != campaign.device.slug:
            raise ValueError(
                f"campaign {campaign.id}: board of device {campaign.board.device!r}, "
                f"campaign on {campaign.device.slug!r}"
            )
        with self.writing() as connection:
            upsert(connection, schema.device, [rows.DEVICE.row(campaign.device)], ["slug"])
            upsert(connection, schema.board, [rows.BOARD.row(campaign.board)], ["uuid", "device"])
            upsert(connection, schema.host, [rows.HOST.row(campaign.host)], ["id"])
            upsert(connection, schema.campaign, [rows.CAMPAIGN.row(campaign)], ["id"])

    def campaigns(self, device: str | None = None, *, board: str | None = None) -> list[Campaign]:
        """Return the campaigns on a device (slug) or board (UUID), oldest first."""
        table = schema.campaign
        conditions = matching(table, {"device": device, "board": board})
        query = select(table).where(*conditions).order_by(table.c.started_at, table.c.id)
        with self.reading() as connection:
            devices = connection.execute(select(schema.device)).mappings()
            on = {row["slug"]: rows.DEVICE.read(row) for row in devices}
            hosts = connection.execute(select(schema.host)).mappings()
            by = {row["id"]: rows.HOST.read(row) for row in hosts}
            return [
                rows.CAMPAIGN.read(row, device=on[row["device"]], host=by[row["host"]])
                for row in connection.execute(query).mappings()
            ]

    def devices(self) -> list[Device]:
        """Return the devices that were measured, by slug."""
        query = select(schema.device).order_by(schema.device.c.slug)
        return self.records(rows.DEVICE, query)

    def boards(self, device: str | None = None) -> list[Board]:
        """Return the boards of a device (slug), or all, by device and UUID."""
        table = schema.board
        query = select(table).where(*matching(table, {"device": device}))
        query = query.order_by(table.c.device, table.c.uuid)
        return self.records(rows.BOARD, query)

    def save_board(self, device: Device, board: Board) -> None:
        """Save a board and its device; `save_campaign` does so by itself."""
        with self.writing() as connection:
            upsert(connection, schema.device, [rows.DEVICE.row(device)], ["slug"])
            upsert(connection, schema.board, [rows.BOARD.row(board)], ["uuid", "device"])

    def save_board_calibration(self, calibration: BoardCalibration) -> None:
        """Save what tests of a board found; the board must be stored.

        Raises:
            DatabaseError: it is not, or the calibration's id is taken.
        """
        with self.writing() as connection:
            row = rows.BOARD_CALIBRATION.row(calibration)
            connection.execute(insert(schema.board_calibration), row)

    def board_calibrations(self, board: str | None = None) -> list[BoardCalibration]:
        """Return the calibrations of a board (UUID), or of all, oldest first."""
        table = schema.board_calibration
        query = select(table).where(*matching(table, {"board": board}))
        query = query.order_by(table.c.measured_at, table.c.id)
        return self.records(rows.BOARD_CALIBRATION, query)

    def save_learned(
        self, board: Board, trained_at: str, document: Json, ratios: RunRatios | None = None
    ) -> None:
        """Save what was learned from a board's costs, in place of what was learned before.

        `ratios` are what the measured runs of the device's boards showed of sums.

        Raises:
            DatabaseError: the board is not stored.
        """
        row = {
            "board": board.uuid,
            "device": board.device,
            "trained_at": trained_at,
            "document": canonical_json(document),
            "ratios": None if ratios is None else RUN_RATIOS.encode(ratios),
        }
        with self.writing() as connection:
            upsert(connection, schema.learned, [row], ["board"])

    def learned(self, device: str) -> dict[str, Json]:
        """Return what was learned from the costs of a device's boards (UUID), oldest first."""
        table = schema.learned
        query = select(table).where(table.c.device == device).order_by(table.c.trained_at)
        with self.reading() as connection:
            return {row.board: read_json(row.document) for row in connection.execute(query)}

    def run_ratios(self, device: str) -> tuple[str, RunRatios]:
        """Return what measured runs showed of sums when that was last learned, and when that was.

        Nothing, at no time (""), where it never was.
        """
        table = schema.learned
        query = (
            select(table.c.trained_at, table.c.ratios)
            .where(table.c.device == device, table.c.ratios.is_not(None))
            .order_by(table.c.trained_at.desc(), table.c.board)
            .limit(1)
        )
        with self.reading() as connection:
            row = connection.execute(query).first()
            return ("", {}) if row is None else (row.trained_at, RUN_RATIOS.decode(row.ratios))

    def save_profiles(self, profiles: Iterable[Profile]) -> None:
        """Save what hardware counters saw; boards and configurations must be stored.

        Raises:
            DatabaseError: one is not, or a profile's id is taken.
        """
        self.insert_referring(schema.profile, list(map(rows.PROFILE.row, profiles)))

    def profiles(self, device: str, configurations: Collection[str] | None = None) -> list[Profile]:
        """Return a device's profiles of these configurations (keys), or of all, oldest first."""
        table = schema.profile
        query = rows.with_key(table).where(table.c.device == device)
        with self.reading() as connection:
            read = connection.execute(rows.about(query, table, configurations)).mappings()
            return sorted(map(rows.PROFILE.read, read), key=attrgetter("measured_at", "id"))

    def save_configurations(self, configurations: Iterable[Configuration]) -> None:
        """Save configurations that no workload brought in (anchors, single operators)."""
        with self.writing() as connection:
            save_configurations(connection, configurations)

    def save_workload(
        self,
        workload: Workload,
        captured: Workload | None = None,
        *,
        swept: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        """Save a workload, its calls and their configurations, in place of an earlier harvest.

        `captured` has the calls that it makes while it is captured, where they differ; those of an
        earlier harvest are dropped. `swept` workloads are asked for by a sweep: their calls are not
        pending until somebody harvests them for their own sake. `fingerprint` covers all that the
        harvest depended on, where that is known: `harvested` finds the workload by it.
        """
        table = schema.workload
        with self.writing() as connection:
            _save_workload(connection, workload, swept, fingerprint)
            if captured is not None:
                _save_workload(connection, captured, swept, fingerprint)
            else:
                key = replace(workload, captured=True).key
                connection.execute(delete(table).where(table.c.key == key))

    def harvested(
        self, fingerprint: str, *, compiled_for: str | None = None
    ) -> tuple[Workload, Workload | None] | None:
        """Return the earlier harvest of a fingerprint: a workload, and its calls under capture.

        None where there is none, or not all of it is stored any more. With `compiled_for` (a
        device's slug) it is the workload as it was compiled for it.
        """
        table = schema.workload
        conditions = [table.c.fingerprint == fingerprint, table.c.compiled_for == compiled_for]
        with self.reading() as connection:
            found = {each.captured: each for each in rows.workloads(connection, conditions)}
        workload, captured = found.get(False), found.get(True)
        if workload is None or self.captured(workload) != captured:
            return None
        return workload, captured

    def ask_for(self, workload: Workload) -> None:
        """Make a workload's calls pending, though only sweeps may have asked for it."""
        table = schema.workload
        keys = [workload.key, replace(workload, captured=True).key]
        with self.writing() as connection:
            connection.execute(update(table).where(table.c.key.in_(keys)).values(swept=False))

    def workloads(
        self,
        name: str | None = None,
        *,
        batch_size: int | None = None,
        dtype: str | None = None,
        memory_format: str | None = None,
        phase: Phase | None = None,
        compiled_for: str | None = None,
        captured: bool = False,
    ) -> list[Workload]:
        """Return the workloads that match, with their calls, by name and then as identified.

        They are those of models as they stand; with `compiled_for` (a device's slug), those that
        were compiled for it; if `captured`, what models call otherwise while they are captured.
        """
        conditions = matching(
            schema.workload,
            {
                "name": name,
                "batch_size": batch_size,
                "dtype": dtype,
                "memory_format": memory_format,
                "phase": phase,
                "captured": captured,
            },
        )
        # Equal to None is IS NULL in SQL.
        conditions.append(schema.workload.c.compiled_for == compiled_for)
        with self.reading() as connection:
            return rows.workloads(connection, conditions)

    def workloads_by_key(self, keys: Collection[str]) -> list[Workload]:
        """Return the workloads of these keys, with their calls; unknown keys are left out."""
        with self.reading() as connection:
            return rows.workloads(connection, [among(schema.workload.c.key, keys)])

    def captured(self, workload: Workload) -> Workload | None:
        """Return what a workload calls while it is captured; None where that is not known apart."""
        return next(iter(self.workloads_by_key([replace(workload, captured=True).key])), None)

    def captured_keys(self) -> dict[str, str]:
        """Return the keys of what models call otherwise while captured, by that of the workload."""
        with self.reading() as connection:
            found = rows.workload_rows(connection, [schema.workload.c.captured.is_(True)])
            return {rows.WORKLOAD.read(row).model_key: row["key"] for row in found}

    def swept_keys(self) -> set[str]:
        """Return the keys of the workloads that only sweeps asked for."""
        return set(self.scalars(select(schema.workload.c.key).where(schema.workload.c.swept)))

    def workload_names(self) -> list[str]:
        """Return the names of the models that were harvested, sorted."""
        name = schema.workload.c.name
        return self.scalars(select(name).distinct().order_by(name))

    def configurations(self, kinds: Collection[str] | None = None) -> list[Configuration]:
        """Return the configurations of these kinds (all when None), by kind and then key."""
        table = schema.configuration
        query = select(table.c.json).order_by(table.c.kind, table.c.key)
        if kinds is not None:
            query = query.where(table.c.kind.in_(list(kinds)))
        with self.reading() as connection:
            return [Configuration.from_canonical(text) for text in connection.scalars(query)]

    def workloads_of_unknown_size(self) -> list[Workload]:
        """Return the workloads whose touched bytes are not stored, with their calls.

        Workloads that only sweeps asked for are left out: no bench is planned for them.
        """
        table = schema.workload
        with self.reading() as connection:
            return rows.workloads(connection, [table.c.touched_bytes.is_(None), ~table.c.swept])

    def save_touched_bytes(self, touched: Mapping[str, int]) -> None:
        """Save how many bytes one pass of each workload (key) touches."""
        with self.writing() as connection:
            for key, touched_bytes in touched.items():
                connection.execute(
                    update(schema.workload)
                    .where(schema.workload.c.key == key)
                    .values(touched_bytes=touched_bytes)
                )

    def save_model_run(self, run: ModelRun, claim: Claim | None = None) -> None:
        """Save a model run; its campaign and workload must be stored, and its claim be held.

        Raises:
            DatabaseError: they are not, or the run's id is taken.
            ClaimLostError: another worker took the claim over.
        """
        self.insert_referring(schema.model_run, [rows.MODEL_RUN.row(run)], claim)

    def model_runs(
        self,
        *workloads: str,
        device: str | None = None,
        board: str | None = None,
        mode: Mode | None = None,
        setting: Mapping[str, Json] | None = MappingProxyType({}),
    ) -> list[ModelRun]:
        """Return the runs of workloads (keys; none: all) on a device or board, oldest first.

        `setting` limits them to one setting, by default the usual one; None: all settings.
        """
        conditions = _of_runs(workloads, device, board, mode, setting)
        return self.records(rows.MODEL_RUN, _runs(schema.model_run).where(*conditions))

    def run_states(
        self,
        *,
        device: str | None = None,
        board: str | None = None,
        mode: Mode | None = None,
        setting: Mapping[str, Json] | None = MappingProxyType({}),
    ) -> list[RunState]:
        """Return how the runs ended that `model_runs` returns, without reading their samples."""
        conditions = _of_runs((), device, board, mode, setting)
        run, campaign = schema.model_run.c, schema.campaign.c
        selected = run.id, run.mode, run.setting, run.outcome, run.reason, run.cost_s, run.facts
        query = _runs(*selected, run.campaign, campaign.device, campaign.board).where(*conditions)
        with self.reading() as connection:
            return [
                RunState(**{**row, **{name: read_json(row[name]) for name in ("setting", "facts")}})
                for row in connection.execute(query).mappings()
            ]

    def measured(self, device: str, mode: Mode) -> list[MeasuredWorkload]:
        """Return the workloads with a good run in a mode, by name and then as identified.

        One of each board that ran a workload, that of the latest run last.
        """
        run, campaign, workload = schema.model_run.c, schema.campaign.c, schema.workload.c
        selected = workload.key, workload.name, workload.dtype, workload.batch_size, workload.phase
        query = (
            _runs(*selected, campaign.board)
            .where(campaign.device == device, run.mode == mode, *rows.usual_and_good())
            .order_by(None)
            .order_by(*rows.workload_order(), run.started_at, run.id)
        )
        found: dict[tuple[str, str], MeasuredWorkload] = {}
        with self.reading() as connection:
            for row in connection.execute(query):
                found.pop((row.key, row.board), None)  # the latest run tells a board's place
                found[row.key, row.board] = MeasuredWorkload(*row[:-1])
        return list(found.values())

    def replace_costs(self, board: str, costs: Iterable[Cost]) -> None:
        """Put a board's (UUID) costs in place of those that are there, whatever derived them.

        Raises:
            DatabaseError: a cost's configuration is not stored.
        """
        new = [rows.COST.row(cost) for cost in costs]
        with self.writing() as connection:
            numbered = self.numbered(connection, schema.cost, new)
            connection.execute(delete(schema.cost).where(schema.cost.c.board == board))
            identity = [column.name for column in schema.cost.primary_key]
            upsert(connection, schema.cost, numbered, identity)

    def costs(
        self, board: str, configurations: Collection[str] | None = None
    ) -> dict[str, list[Cost]]:
        """Return a board's costs by configuration key, of these configurations or of all.

        A configuration that has no cost is left out.
        """
        cost = schema.cost
        query = rows.about(rows.with_key(cost), cost, configurations).where(cost.c.board == board)
        with self.reading() as connection:
            found = connection.execute(query).mappings().all()
            found = sorted(found, key=itemgetter("configuration", "setting", "estimator"))
            by_key: dict[str, list[Cost]] = {}
            for row in found:
                by_key.setdefault(row["configuration"], []).append(rows.COST.read(row))
            return by_key

    def timed_on(self, configurations: Collection[str]) -> dict[str, dict[str, set[str]]]:
        """Return the settings in which configurations (keys) have a time, by board (UUID)."""
        cost, configuration = schema.cost, schema.configuration
        query = (
            select(configuration.c.key, cost.c.board, cost.c.setting)
            .join(cost, cost.c.configuration_id == configuration.c.id)
            .where(cost.c.time_s_median.is_not(None), among(configuration.c.key, configurations))
        )
        found: dict[str, dict[str, set[str]]] = {}
        with self.reading() as connection:
            for key, board, setting in connection.execute(query).all():
                found.setdefault(key, {}).setdefault(board, set()).add(setting)
        return found

    def after_others(self, device: str, configurations: Collection[str]) -> dict[str, AfterOthers]:
        """Return what configurations (keys) take longer after others, as a board of a device saw.

        A configuration of which no board saw it is left out.
        """
        cost, board = schema.cost, schema.board
        held = field_of(cost.c.after_others)
        query = (
            select(cost.c.after_others, schema.configuration.c.key)
            .join(schema.configuration, cost.c.configuration_id == schema.configuration.c.id)
            .join(board, cost.c.board == board.c.uuid)
            .where(board.c.device == device, cost.c.after_others.is_not(None))
            .where(rows.unforced(cost))
            .order_by(cost.c.board)
        )
        with self.reading() as connection:
            found = connection.execute(rows.about(query, cost, configurations)).mappings()
            return {row["key"]: held.decode(row["after_others"]) for row in found}

    def boards_of_several_sources(self) -> list[str]:
        """Return the boards (UUIDs) whose campaigns came from several sets, or one and from here.

        No set has the costs that follow from all of their visits.
        """
        campaign = schema.campaign
        sources = func.count(func.coalesce(campaign.c.source_id, 0).distinct())
        query = select(campaign.c.board).group_by(campaign.c.board).having(sources > 1)
        return self.scalars(query.order_by(campaign.c.board))

    def cost_counts(self) -> dict[str, int]:
        """Count the costs of every board (UUID) that has any."""
        with self.reading() as connection:
            board = schema.cost.c.board
            query = select(board, func.count().label("costs")).group_by(board)
            return {row.board: row.costs for row in connection.execute(query)}

    def cost_counts_of_workloads(self, keys: Collection[str]) -> dict[tuple[str, str], int]:
        """Count of how many of a workload's configurations a board has costs, by key and board.

        Those of convolutions that were forced to take an algorithm do not count.
        """
        workload, call, cost = schema.workload, schema.call, schema.cost
        query = (
            select(workload.c.key, cost.c.board, func.count(call.c.configuration_id.distinct()))
            .join(call, call.c.workload_id == workload.c.id)
            .join(cost, cost.c.configuration_id == call.c.configuration_id)
            .where(cost.c.time_s_median.is_not(None), rows.unforced(cost))
            .where(among(workload.c.key, keys))
            .group_by(workload.c.key, cost.c.board)
        )
        with self.reading() as connection:
            return {(key, board): count for key, board, count in connection.execute(query)}


def _save_workload(
    connection: Connection, workload: Workload, swept: bool, fingerprint: str | None
) -> None:
    table = schema.workload
    query = select(table.c.swept).where(table.c.key == workload.key)
    if connection.execute(query).scalar() is False:
        swept = False  # somebody wanted it before
    # From now on no published set replaces a harvest made here.
    own = {"source_id": None, "touched_bytes": None, "swept": swept, "fingerprint": fingerprint}
    row = {**rows.WORKLOAD.row(workload), **own}
    known = save_configurations(connection, workload.occurrences())
    upsert(connection, schema.workload, [row], ["key"])
    number = numbers(connection, schema.workload, [workload.key])[workload.key]
    replace_calls(connection, number, workload.calls, known)


def _runs(*columns: Table | ColumnElement[Any]) -> Select[Any]:
    """Return the query for columns of model runs and the keys of their workloads, oldest first."""
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    return (
        select(*columns, workload.c.key.label("workload"))
        .join_from(run, campaign, run.c.campaign == campaign.c.id)
        .join(workload, run.c.workload_id == workload.c.id)
        .order_by(run.c.started_at, run.c.id)
    )


def _of_runs(
    workloads: Collection[str],
    device: str | None,
    board: str | None,
    mode: Mode | None,
    setting: Mapping[str, Json] | None,
) -> list[ColumnElement[bool]]:
    """Return the conditions on model runs; None, or no workload, leaves one out."""
    wanted = None if setting is None else canonical_json(dict(setting))
    return [
        *([schema.workload.c.key.in_(workloads)] if workloads else ()),
        *matching(schema.campaign, {"device": device, "board": board}),
        *matching(schema.model_run, {"mode": mode, "setting": wanted}),
    ]
