"""The store: records in, records out, each save a transaction of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType

from sqlalchemy import Connection, Engine, Table, delete, func, insert, select, update

from opdb.errors import DatabaseError
from opdb.records import (
    Board,
    BoardCalibration,
    Campaign,
    Configuration,
    Cost,
    Device,
    Host,
    HostVisit,
    Json,
    Mode,
    ModelRun,
    Outcome,
    Phase,
    Profile,
    Role,
    Visit,
    Workload,
    canonical_json,
)
from opdb.store import database, forced, pending, reading, rows, schema, standing
from opdb.store.lease import Claim, check_held
from opdb.store.pending import Among, Lack, Sort, Touched
from opdb.store.reading import Failure, HostSeen, Measured, RunState, Spent
from opdb.store.rows import NewRow
from opdb.store.standing import Head, Standing
from opdb.store.tallies import count_visit
from opdb.store.writing import (
    in_parts,
    matching,
    numbers,
    replace_calls,
    save_configurations,
    upsert,
)


class Store:
    """An open database. Every save is one transaction, and safe once the method has returned."""

    def __init__(self, url: str, engine: Engine) -> None:
        """Wrap an engine that `open_store` has checked."""
        self.url = url
        self._engine = engine
        self._writer: Connection | None = None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._end_interrupted()
        self._engine.dispose()

    @property
    def location(self) -> str:
        """How the database is named to people."""
        return database.shown(self.url)

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database; None for any other."""
        return database.file_of(self.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection for one consistent look.

        Raises:
            DatabaseError: the database cannot be read, or a row in it is no record.
        """
        with database.explained(self.url), self._engine.connect() as connection:
            try:
                yield connection
            except UnicodeEncodeError:  # of what is asked for, not of a row
                raise
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DatabaseError(
                    f"database {self.location}: a row is damaged: {error}"
                ) from error

    @contextmanager
    def writing(self, *, alone: bool = False) -> Iterator[Connection]:
        """Yield a connection within one transaction, undone if the block fails.

        SQLite lets one writer in at a time; PostgreSQL many, unless one asks to be alone. Blocks
        do not nest.

        Raises:
            DatabaseError: the database cannot be written.
        """
        self._end_interrupted()
        with database.explained(self.url):
            self._writer = self._engine.connect()
            with (
                self._writer.execution_options(writes="alone" if alone else True) as connection,
                connection.begin(),
            ):
                yield connection

    def _end_interrupted(self) -> None:
        """End the last write where Ctrl-C struck between its beginning and its block.

        Its traceback keeps it open, and what tidies up after it would wait for its lock.
        """
        left, self._writer = self._writer, None
        if left is not None and not left.closed:
            left.invalidate()
            left.close()

    # What runs

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
    ) -> int:
        """Save a workload, its calls and their configurations, in place of an earlier harvest.

        `captured` is what it calls while it is captured, where that is something else; that of an
        earlier harvest is forgotten. `swept` ones are asked for by a sweep: what they call is not
        pending until somebody harvests them for its own sake. `fingerprint` is of all that the
        harvest hung on, where that is known: `harvested` finds the workload by it.

        Returns how many good runs stand against other calls now, as it calls something else in this
        version of its source than in the one harvested before.
        """
        table = schema.workload
        with self.writing() as connection:
            estranged = _runs_of_other_calls(connection, workload)
            _save_workload(connection, workload, swept, fingerprint)
            if captured is not None:
                _save_workload(connection, captured, swept, fingerprint)
            else:
                key = replace(workload, captured=True).key
                connection.execute(delete(table).where(table.c.key == key))
        return estranged

    def harvested(
        self, fingerprint: str, *, compiled_for: str | None = None
    ) -> tuple[Workload, Workload | None] | None:
        """Return what a harvest of a fingerprint left: a workload, and what it calls captured.

        None where it left nothing, or not all of that stands any more. With `compiled_for` (a
        device's slug) it is the workload as it was compiled for it.
        """
        table = schema.workload
        conditions = [table.c.fingerprint == fingerprint, table.c.compiled_for == compiled_for]
        with self.reading() as connection:
            found = {each.captured: each for each in reading.workloads(connection, conditions)}
        workload, captured = found.get(False), found.get(True)
        if workload is None or self.captured(workload) != captured:
            return None
        return workload, captured

    def ask_for(self, workload: Workload) -> None:
        """Let what a workload calls be pending, though only sweeps may have asked for it."""
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
    ) -> list[Workload]:
        """Return the workloads that match, with their calls, by name and then as identified.

        They are those of models as they stand; with `compiled_for` (a device's slug), those that
        were compiled for it.
        """
        conditions = matching(
            schema.workload,
            {
                "name": name,
                "batch_size": batch_size,
                "dtype": dtype,
                "memory_format": memory_format,
                "phase": phase,
                "captured": False,
            },
        )
        # Equal to None is IS NULL in SQL.
        conditions.append(schema.workload.c.compiled_for == compiled_for)
        with self.reading() as connection:
            return reading.workloads(connection, conditions)

    def workloads_by_key(self, keys: Collection[str]) -> list[Workload]:
        """Return the workloads of these keys, with their calls; unknown keys are left out."""
        with self.reading() as connection:
            return [
                workload
                for some in in_parts(keys)
                for workload in reading.workloads(connection, [schema.workload.c.key.in_(some)])
            ]

    def captured_workloads(self) -> list[Workload]:
        """Return what models call otherwise while they are captured, in the same order."""
        with self.reading() as connection:
            return reading.workloads(connection, [schema.workload.c.captured.is_(True)])

    def captured(self, workload: Workload) -> Workload | None:
        """Return what a workload calls while it is captured; None where that is not known apart."""
        return next(iter(self.workloads_by_key([replace(workload, captured=True).key])), None)

    def captured_keys(self) -> dict[str, str]:
        """Return the keys of what models call otherwise while captured, by that of the workload."""
        with self.reading() as connection:
            return reading.captured_keys(connection)

    def swept_keys(self) -> set[str]:
        """Return the keys of the workloads that only sweeps asked for."""
        table = schema.workload
        with self.reading() as connection:
            return set(connection.scalars(select(table.c.key).where(table.c.swept)))

    def heads(self) -> list[Head]:
        """Return every workload as its model stands, without its calls, in order."""
        with self.reading() as connection:
            return standing.heads(connection)

    def workload_names(self) -> list[str]:
        """Return the names of the models that were harvested, sorted."""
        query = select(schema.workload.c.name).distinct().order_by(schema.workload.c.name)
        with self.reading() as connection:
            return list(connection.scalars(query))

    def configurations(self, kinds: Collection[str] | None = None) -> list[Configuration]:
        """Return the configurations of these kinds (all when None), by kind and then key."""
        table = schema.configuration
        query = select(table.c.json).order_by(table.c.kind, table.c.key)
        if kinds is not None:
            query = query.where(table.c.kind.in_(list(kinds)))
        with self.reading() as connection:
            return [Configuration.from_canonical(text) for text in connection.scalars(query)]

    def configuration(self, key: str) -> Configuration | None:
        """Return the configuration of a key; None if it is not stored."""
        table = schema.configuration
        with self.reading() as connection:
            text = connection.scalar(select(table.c.json).where(table.c.key == key))
            return None if text is None else Configuration.from_canonical(text)

    def usage(self) -> dict[str, int]:
        """Return how many calls of all workloads each configuration answers, by key.

        A configuration that no workload calls is left out.
        """
        table = schema.configuration
        query = (
            select(table.c.key, func.count().label("calls"))
            .join(schema.call, schema.call.c.configuration_id == table.c.id)
            .group_by(table.c.key)
        )
        with self.reading() as connection:
            return {row.key: row.calls for row in connection.execute(query)}

    # Where it ran

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
            _save_board(connection, campaign.device, campaign.board)
            upsert(connection, schema.host, [rows.host_row(campaign.host)], ["id"])
            upsert(connection, schema.campaign, [rows.campaign_row(campaign)], ["id"])

    def campaigns(self, device: str | None = None, *, board: str | None = None) -> list[Campaign]:
        """Return the campaigns on a device (slug) or board (UUID), oldest first."""
        with self.reading() as connection:
            return reading.campaigns(
                connection, matching(schema.campaign, {"device": device, "board": board})
            )

    def devices(self) -> list[Device]:
        """Return the devices that were measured, by slug."""
        query = select(schema.device).order_by(schema.device.c.slug)
        with self.reading() as connection:
            return [rows.read_device(row) for row in connection.execute(query).mappings()]

    def boards(self, device: str | None = None) -> list[Board]:
        """Return the boards of a device (slug), or all, by device and UUID."""
        table = schema.board
        query = select(table).where(*matching(table, {"device": device}))
        query = query.order_by(table.c.device, table.c.uuid)
        with self.reading() as connection:
            return [rows.read_board(row) for row in connection.execute(query).mappings()]

    def hosts(self) -> list[Host]:
        """Return the hosts that issued work, by id."""
        query = select(schema.host).order_by(schema.host.c.id)
        with self.reading() as connection:
            return [rows.read_host(row) for row in connection.execute(query).mappings()]

    def save_board(self, device: Device, board: Board) -> None:
        """Save a board and its device; `save_campaign` does so by itself."""
        with self.writing() as connection:
            _save_board(connection, device, board)

    def save_board_calibration(self, calibration: BoardCalibration) -> None:
        """Save what tests of a board found; the board must be stored.

        Raises:
            DatabaseError: it is not, or the calibration's id is taken.
        """
        with self.writing() as connection:
            row = rows.board_calibration_row(calibration)
            connection.execute(insert(schema.board_calibration), row)

    def board_calibrations(self, board: str | None = None) -> list[BoardCalibration]:
        """Return the calibrations of a board (UUID), or of all, oldest first."""
        table = schema.board_calibration
        query = select(table).where(*matching(table, {"board": board}))
        query = query.order_by(table.c.measured_at, table.c.id)
        with self.reading() as connection:
            return [rows.read_board_calibration(r) for r in connection.execute(query).mappings()]

    def save_learned(self, board: Board, trained_at: str, document: Json) -> None:
        """Save what was learned from a board's costs, in place of what was learned before.

        Raises:
            DatabaseError: the board is not stored.
        """
        row = {
            "board": board.uuid,
            "device": board.device,
            "trained_at": trained_at,
            "document": canonical_json(document),
        }
        with self.writing() as connection:
            upsert(connection, schema.learned, [row], ["board"])

    def learned(self, device: str) -> dict[str, Json]:
        """Return what was learned from the costs of a device's boards (UUID), oldest first."""
        table = schema.learned
        query = select(table).where(table.c.device == device).order_by(table.c.trained_at)
        with self.reading() as connection:
            return {row.board: rows.read_json(row.document) for row in connection.execute(query)}

    # What was seen

    def save_visit(self, visit: Visit, claim: Claim | None = None) -> None:
        """Save a visit; its campaign and configuration must be stored, and its claim be held.

        Raises:
            DatabaseError: they are not, or the visit's id is taken.
            ClaimLostError: another worker took the claim over.
        """
        with self.writing() as connection:
            if claim is not None:
                check_held(connection, claim)
            row = rows.visit_row(visit)
            known = numbers(connection, schema.configuration, [row["configuration"]])
            row = self._numbered(row, "configuration", known)
            connection.execute(insert(schema.visit), row)
            count_visit(connection, row)

    def save_host_visit(self, visit: HostVisit) -> None:
        """Save a host visit; its campaign and configuration must be stored.

        Raises:
            DatabaseError: they are not, or the visit's id is taken.
        """
        row = rows.host_visit_row(visit)
        self._insert(schema.host_visit, row, "configuration", schema.configuration)

    def save_model_run(self, run: ModelRun, claim: Claim | None = None) -> None:
        """Save a model run; its campaign and workload must be stored, and its claim be held.

        Raises:
            DatabaseError: they are not, or the run's id is taken.
            ClaimLostError: another worker took the claim over.
        """
        row = rows.model_run_row(run)
        self._insert(schema.model_run, row, "workload", schema.workload, claim)

    def visit_outcomes(
        self, device: str, *, board: str | None = None, role: Role = "measurement"
    ) -> dict[tuple[str, str], Counter[Outcome]]:
        """Count a device's visits inside models by (configuration key, setting) and outcome.

        With `board` (a UUID), those on that board alone.
        """
        return self.outcomes(Sort(device, board, role))

    def outcomes(
        self,
        sort: Sort,
        configurations: Collection[str] | None = None,
        *,
        rejected: bool | None = None,
    ) -> dict[tuple[str, str], Counter[Outcome]]:
        """Count the visits of a sort by (configuration key, setting) and outcome.

        With `configurations` (keys), those of these alone; with `rejected`, those alone that were
        rejected, or were not.
        """
        conditions = [*sort.conditions(), *pending.which_rejected(rejected)]
        with self.reading() as connection:
            return reading.visit_outcomes(connection, conditions, configurations)

    def lacking(self, lack: Lack, among: Among) -> list[Configuration]:
        """Return, of some configurations, those that lack good visits, by kind and then key."""
        with self.reading() as connection:
            return pending.lacking(connection, lack, among)

    def configurations_among(self, among: Among) -> list[Configuration]:
        """Return some configurations, by kind and then key."""
        with self.reading() as connection:
            return pending.configurations(connection, among)

    def called_in(self, configurations: Collection[str], touched: Touched) -> set[str]:
        """Return those of the configurations (keys) that a workload calls which touches so much."""
        with self.reading() as connection:
            return pending.called_in(connection, configurations, touched)

    def workloads_of_unknown_size(self) -> list[Workload]:
        """Return the workloads of which it is not stored what a pass touches, with their calls.

        Those that only sweeps asked for are none that a bench is planned for.
        """
        table = schema.workload
        with self.reading() as connection:
            return reading.workloads(connection, [table.c.touched_bytes.is_(None), ~table.c.swept])

    def save_touched_bytes(self, touched: Mapping[str, int]) -> None:
        """Save how many bytes one pass of each workload (key) touches."""
        with self.writing() as connection:
            for key, touched_bytes in touched.items():
                connection.execute(
                    update(schema.workload)
                    .where(schema.workload.c.key == key)
                    .values(touched_bytes=touched_bytes)
                )

    def standing(self, device: str) -> Standing:
        """Return how far a device (slug) is: what is measured, pending, failed."""
        with self.reading() as connection:
            return standing.standing(connection, device)

    def failures(self, device: str) -> list[Failure]:
        """Return what could not be measured on a device, by kind, with the reason given last."""
        with self.reading() as connection:
            return reading.failures(connection, device)

    def visits(
        self,
        board: str,
        configurations: Collection[str] | None = None,
        *,
        role: Role | None = None,
    ) -> list[Visit]:
        """Return a board's visits, of these configurations and role or of all, oldest first."""
        conditions = matching(schema.campaign, {"board": board})
        conditions += matching(schema.visit, {"role": role})
        with self.reading() as connection:
            return reading.visits(connection, conditions, configurations)

    def spent(self, device: str) -> list[Spent]:
        """Return what each configuration's visits took on each board of a device, without anchors.

        Those inside models count, whatever came of them; by key and board.
        """
        with self.reading() as connection:
            return reading.spent(connection, device)

    def kernels(self, board: str) -> dict[str, Mapping[str, int]]:
        """Return the kernels that one call of each configuration (key) launched on a board."""
        with self.reading() as connection:
            return reading.kernels(connection, board)

    def host_visits(
        self,
        board: str | None = None,
        configurations: Collection[str] | None = None,
        *,
        host: str | None = None,
    ) -> list[HostVisit]:
        """Return the host visits of campaigns on a board or host (all when None), oldest first."""
        conditions = matching(schema.campaign, {"board": board, "host": host})
        with self.reading() as connection:
            return reading.host_visits(connection, conditions, configurations)

    def host_seen(self, board: str) -> HostSeen:
        """Return what a board's last campaigns saw of the host's time, by kind."""
        with self.reading() as connection:
            return reading.host_seen(connection, board)

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

        Those of one setting; the usual one unless said. None: those of all.
        """
        said = None if setting is None else canonical_json(dict(setting))
        conditions = [
            *matching(schema.workload, {"key": workload}),
            *matching(schema.campaign, {"device": device, "board": board}),
            *matching(schema.model_run, {"mode": mode, "setting": said}),
        ]
        with self.reading() as connection:
            return reading.model_runs(connection, conditions)

    def measured(self, device: str, mode: Mode) -> list[Measured]:
        """Return the workloads with a good run in a mode, by name and then as identified.

        One of each board that ran a workload, that of the latest run last.
        """
        with self.reading() as connection:
            return reading.measured(connection, device, mode)

    def measured_workloads(self, device: str, mode: Mode) -> dict[str, str]:
        """Return the workloads (keys) with a good run in a mode, and the board of the latest."""
        return {each.key: each.board for each in self.measured(device, mode)}

    def run_outcomes(self, board: str, mode: Mode) -> dict[str, tuple[Outcome, str | None]]:
        """Return what came of each workload's (key) runs on a board in a mode, with the reason.

        A good run goes before one that failed, and of each sort the last counts.
        """
        with self.reading() as connection:
            return reading.run_outcomes(connection, board, mode)

    def algorithm_runs(self, device: str) -> list[RunState]:
        """Return how a device's model runs under named algorithms ended, oldest first."""
        with self.reading() as connection:
            return reading.algorithm_runs(connection, device)

    def refusals(
        self, device: str, setting: str, configurations: Collection[str]
    ) -> dict[str, str]:
        """Return why a device cannot run configurations (keys) in a setting, as far as it is known.

        Those alone that a visit found unsupported; the reason is the one given last.
        """
        with self.reading() as connection:
            return forced.refusals(connection, device, setting, configurations)

    def labelled_runs(self, device: str) -> list[RunState]:
        """Return how a device's model runs that have a label ended, oldest first."""
        with self.reading() as connection:
            return reading.labelled_runs(connection, device)

    def run_seconds(self, device: str, mode: Mode) -> list[float]:
        """Return what each good model run on a device in a mode took, in seconds, oldest first."""
        with self.reading() as connection:
            return reading.run_seconds(connection, device, mode)

    def save_profiles(self, profiles: Iterable[Profile]) -> None:
        """Save what hardware counters saw; boards and configurations must be stored.

        Raises:
            DatabaseError: one is not, or a profile's id is taken.
        """
        new = [rows.profile_row(profile) for profile in profiles]
        with self.writing() as connection:
            known = numbers(connection, schema.configuration, [row["configuration"] for row in new])
            for row in new:
                numbered = self._numbered(row, "configuration", known)
                connection.execute(insert(schema.profile), numbered)

    def profiles(self, device: str, configurations: Collection[str] | None = None) -> list[Profile]:
        """Return a device's profiles of these configurations (keys), or of all, oldest first."""
        with self.reading() as connection:
            return reading.profiles(connection, device, configurations)

    # What is derived

    def replace_costs(self, board: str, costs: Iterable[Cost]) -> None:
        """Put a board's (UUID) costs in place of those that are there, whatever derived them.

        Raises:
            DatabaseError: a cost's configuration is not stored.
        """
        new = [rows.cost_row(cost) for cost in costs]
        # Two who each delete what the other is about to write would wait for each other.
        with self.writing(alone=True) as connection:
            known = numbers(connection, schema.configuration, [row["configuration"] for row in new])
            numbered = [self._numbered(row, "configuration", known) for row in new]
            connection.execute(delete(schema.cost).where(schema.cost.c.board == board))
            upsert(connection, schema.cost, numbered, reading.COST_IDENTITY)

    def costs(
        self, board: str, configurations: Collection[str] | None = None
    ) -> dict[str, list[Cost]]:
        """Return a board's costs by configuration key, of these configurations or of all.

        A configuration that has no cost is left out.
        """
        with self.reading() as connection:
            return reading.costs(connection, board, configurations)

    def boards_of_several_sources(self) -> list[str]:
        """Return the boards (UUIDs) whose campaigns came from several sets, or one and from here.

        No set has the costs that follow from all of their visits.
        """
        with self.reading() as connection:
            return reading.boards_of_several_sources(connection)

    def cost_counts(self) -> dict[str, int]:
        """Count the costs of every board (UUID) that has any."""
        with self.reading() as connection:
            return reading.cost_counts(connection)

    def cost_counts_of_workloads(self, keys: Collection[str]) -> dict[tuple[str, str], int]:
        """Count of how many of a workload's configurations a board has costs, by key and board.

        Those of convolutions that were forced to take an algorithm do not count.
        """
        with self.reading() as connection:
            return {
                place: count
                for some in in_parts(keys)
                for place, count in reading.cost_counts_of_workloads(connection, some).items()
            }

    def _insert(
        self,
        table: Table,
        row: NewRow,
        reference: str,
        target: Table,
        claim: Claim | None = None,
    ) -> None:
        with self.writing() as connection:
            if claim is not None:
                check_held(connection, claim)
            known = numbers(connection, target, [row[reference]])
            connection.execute(insert(table), self._numbered(row, reference, known))

    def _numbered(self, row: NewRow, reference: str, known: dict[str, int]) -> NewRow:
        """Return a row with the row number of what it refers to in place of the key."""
        key = row[reference]
        if key not in known:
            raise DatabaseError(f"database {self.location}: {reference} {key} is not stored")
        rest = {name: value for name, value in row.items() if name != reference}
        return {**rest, f"{reference}_id": known[key]}


def _runs_of_other_calls(connection: Connection, workload: Workload) -> int:
    """Count a workload's good runs, where it called something else in another version."""
    table, call, run = schema.workload, schema.call, schema.model_run
    query = select(table.c.id, table.c.source_version).where(table.c.key == workload.key)
    found = connection.execute(query).one_or_none()
    if found is None or found.source_version == workload.source_version:
        return 0
    called = (
        select(schema.configuration.c.key, call.c.form)
        .join(call, call.c.configuration_id == schema.configuration.c.id)
        .where(call.c.workload_id == found.id)
        .order_by(call.c.position)
    )
    before = [tuple(row) for row in connection.execute(called)]
    if before == [(each.configuration.key, each.form) for each in workload.calls]:
        return 0
    good = select(func.count()).where(run.c.workload_id == found.id, run.c.outcome == "ok")
    return int(connection.execute(good).scalar_one())


def _save_workload(
    connection: Connection, workload: Workload, swept: bool, fingerprint: str | None
) -> None:
    table = schema.workload
    query = select(table.c.swept).where(table.c.key == workload.key)
    if connection.execute(query).scalar() is False:
        swept = False  # somebody wanted it before
    # A harvest made here is no longer a published set's to replace.
    own = {
        "source_id": None,
        "touched_bytes": None,
        "swept": swept,
        "fingerprint": fingerprint,
    }
    row = {**rows.workload_row(workload), **own}
    known = save_configurations(connection, workload.occurrences())
    upsert(connection, schema.workload, [row], ["key"])
    number = numbers(connection, schema.workload, [workload.key])[workload.key]
    replace_calls(connection, number, workload.calls, known)


def _save_board(connection: Connection, device: Device, board: Board) -> None:
    row: NewRow = {"uuid": board.uuid, "device": board.device}
    upsert(connection, schema.device, [rows.device_row(device)], ["slug"])
    upsert(connection, schema.board, [row], ["uuid", "device"])
