"""Queries that join rows back into records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table, func, select

from opdb.records import (
    ALGORITHM_SETTING,
    Call,
    Campaign,
    Configuration,
    Cost,
    Form,
    HostVisit,
    Json,
    Mode,
    ModelRun,
    Outcome,
    Profile,
    Visit,
    Workload,
)
from opdb.store import rows, schema
from opdb.store.raw import decode_times
from opdb.store.rows import Row
from opdb.store.writing import in_parts, numbers

COST_IDENTITY = ("board", "configuration_id", "setting", "estimator")

ENOUGH_HOST_VISITS = 2000
CAMPAIGNS_AT_ONCE = 2
"""Host visits that tell what is usual, looked for in so many campaigns at a time."""

Conditions = Sequence[ColumnElement[bool]]

PLAIN: Conditions = (
    schema.workload.c.compiled_for.is_(None),
    schema.workload.c.captured.is_(False),
)
"""The conditions on workloads that they are those of models as they stand."""


@dataclass(frozen=True)
class Failure:
    """A configuration that was never measured in a setting, and what came of the attempts."""

    configuration: str
    kind: str
    setting: str
    outcome: Outcome
    reason: str | None
    attempts: int


@dataclass(frozen=True)
class Measured:
    """A workload with a good run: what tells how like it is to another, and the run's board."""

    key: str
    name: str
    dtype: str
    batch_size: int
    board: str


@dataclass(frozen=True)
class RunState:
    """How a model run ended, without its samples."""

    id: str
    workload: str
    mode: Mode
    setting: Mapping[str, Json]
    outcome: Outcome
    reason: str | None
    cost_s: float
    facts: Mapping[str, Json]


@dataclass(frozen=True)
class Spent:
    """What the visits of a configuration (key) took on one board (UUID), in seconds."""

    configuration: str
    kind: str
    board: str
    seconds: float


@dataclass(frozen=True)
class HostSeen:
    """Host visits by kind, raw: the configuration's JSON, the form, and the times as stored."""

    by_kind: Mapping[str, Sequence[tuple[str, Form, str]]]

    def usual_s(self, kind: str) -> dict[tuple[str, Form], float]:
        """Return the median host time (seconds) of a kind's calls, by `issued_as` and form."""
        found: dict[tuple[str, Form], list[float]] = {}
        for text, form, times in self.by_kind.get(kind, ()):
            issued_as = Configuration.from_json(text).issued_as
            found.setdefault((issued_as, form), []).append(median(decode_times(times)))
        return {key: median(values) for key, values in found.items()}


def workloads(connection: Connection, conditions: Conditions) -> list[Workload]:
    """Return the workloads that meet the conditions, with their calls."""
    found = workload_rows(connection, conditions)
    calls = _calls(connection, conditions)
    return [rows.read_workload(row, tuple(calls.get(row["id"], ()))) for row in found]


def workload_rows(connection: Connection, conditions: Conditions) -> Sequence[Row]:
    """Return the rows of the workloads that meet the conditions, without their calls."""
    table = schema.workload
    query = select(table).where(*conditions).order_by(*_workload_order())
    return connection.execute(query).mappings().all()


def captured_keys(connection: Connection) -> dict[str, str]:
    """Return the keys of what models call otherwise while captured, by that of the workload."""
    found = workload_rows(connection, [schema.workload.c.captured.is_(True)])
    return {rows.read_workload(row).model_key: row["key"] for row in found}


def _workload_order() -> list[ColumnElement[Any]]:
    table = schema.workload
    names = ("name", "phase", "dtype", "memory_format", "batch_size", "key")
    return [table.c[name] for name in names]


def _calls(connection: Connection, conditions: Conditions) -> dict[int, list[Call]]:
    """Return the calls of the workloads that meet the conditions, by the workload's row number."""
    call, workload, configuration = schema.call, schema.workload, schema.configuration
    chosen = select(workload.c.id).where(*conditions)
    query = select(configuration.c.id, configuration.c.json).where(
        configuration.c.id.in_(
            select(call.c.configuration_id).where(call.c.workload_id.in_(chosen))
        )
    )
    known = {
        number: Configuration.from_canonical(text) for number, text in connection.execute(query)
    }
    # One object a configuration and form: a thousand calls share a few dozen.
    shared: dict[tuple[int, str], Call] = {}
    calls: dict[int, list[Call]] = {}
    query_calls = (
        select(call.c.workload_id, call.c.configuration_id, call.c.form)
        .where(call.c.workload_id.in_(chosen))
        .order_by(call.c.workload_id, call.c.position)
    )
    for workload_id, number, form in connection.execute(query_calls).all():
        if (number, form) not in shared:
            shared[number, form] = Call(configuration=known[number], form=form)
        calls.setdefault(workload_id, []).append(shared[number, form])
    return calls


def campaigns(connection: Connection, conditions: Conditions) -> list[Campaign]:
    """Return the campaigns that meet the conditions, oldest first."""
    table = schema.campaign
    query = select(table).where(*conditions).order_by(table.c.started_at, table.c.id)
    devices = {
        row["slug"]: rows.read_device(row)
        for row in connection.execute(select(schema.device)).mappings()
    }
    hosts = {
        row["id"]: rows.read_host(row) for row in connection.execute(select(schema.host)).mappings()
    }
    return [
        rows.read_campaign(row, devices[row["device"]], hosts[row["host"]])
        for row in connection.execute(query).mappings()
    ]


def visit_outcomes(
    connection: Connection, conditions: Conditions, configurations: Collection[str] | None = None
) -> dict[tuple[str, str], Counter[Outcome]]:
    """Count the visits whose tallies meet the conditions by (configuration key, setting)."""
    tally, configuration = schema.tally, schema.configuration
    query = (
        select(configuration.c.key, tally.c.setting, tally.c.outcome)
        .add_columns(func.sum(tally.c.visits).label("visits"))
        .join(configuration, tally.c.configuration_id == configuration.c.id)
        .where(*conditions)
        .group_by(configuration.c.key, tally.c.setting, tally.c.outcome)
    )
    outcomes: dict[tuple[str, str], Counter[Outcome]] = {}
    for row in _of_configurations(connection, query, tally, configurations):
        found = outcomes.setdefault((row["key"], row["setting"]), Counter())
        found[row["outcome"]] += row["visits"]
    return outcomes


def measurements(device: str) -> list[ColumnElement[bool]]:
    """Return the conditions on the tally of measurements inside models on a device (slug).

    Convolutions that were forced to take an algorithm are left out.
    """
    tally = schema.tally
    of_role = [tally.c.device == device, tally.c.role == "measurement", tally.c.access == "model"]
    return [*of_role, unforced(tally)]


def failures(
    connection: Connection, device: str, failing: Collection[int] | None = None
) -> list[Failure]:
    """Return a device's configurations that have visits and no good one, by kind and key.

    `failing` are those (row numbers) that have any visit that failed, where they are known.
    """
    tally, configuration = schema.tally, schema.configuration
    failed = [*measurements(device), tally.c.outcome != "ok"]
    if failing is None:
        failing = set(connection.scalars(select(tally.c.configuration_id).where(*failed)))
    kinds: dict[str, str] = {}
    for some in in_parts(failing):
        query = select(configuration.c.key, configuration.c.kind)
        kinds |= {
            row.key: row.kind
            for row in connection.execute(query.where(configuration.c.id.in_(some)))
        }
    outcomes = visit_outcomes(connection, measurements(device), kinds)
    reasons = _last_reasons(connection, device, kinds)
    found = [
        Failure(key, kinds[key], setting, *reasons[key, setting], seen.total())
        for (key, setting), seen in outcomes.items()
        if not seen["ok"]
    ]
    return sorted(found, key=lambda failure: (failure.kind, failure.configuration, failure.setting))


def _last_reasons(
    connection: Connection, device: str, configurations: Collection[str]
) -> dict[tuple[str, str], tuple[Outcome, str | None]]:
    """Return the last outcome that was not good, and its reason, by (configuration, setting)."""
    visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
    query = (
        select(configuration.c.key, visit.c.setting, visit.c.outcome, visit.c.reason)
        .add_columns(visit.c.campaign)
        .join(configuration, visit.c.configuration_id == configuration.c.id)
        .where(visit.c.role == "measurement", visit.c.outcome != "ok", visit.c.access == "model")
        .where(unforced(visit))
        .order_by(visit.c.started_at)
    )
    # Joined with its campaigns, all that was visited on the device would be gone through.
    ours = set(connection.scalars(select(campaign.c.id).where(campaign.c.device == device)))
    return {
        (row["key"], row["setting"]): (row["outcome"], row["reason"])
        for row in _of_configurations(connection, query, visit, configurations)
        if row["campaign"] in ours
    }


def visits(
    connection: Connection, conditions: Conditions, configurations: Collection[str] | None
) -> list[Visit]:
    """Return the visits of campaigns that meet the conditions, oldest first."""
    visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
    joined = visit.join(campaign, visit.c.campaign == campaign.c.id).join(
        configuration, visit.c.configuration_id == configuration.c.id
    )
    query = _with_key(visit, joined).where(*conditions)
    read = _of_configurations(connection, query, visit, configurations)
    found = [rows.read_visit(row) for row in read]
    return sorted(found, key=lambda visit: (visit.started_at, visit.id))


def spent(connection: Connection, device: str) -> list[Spent]:
    """Return what a device's visits inside models took, anchors left out, by key and board."""
    visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
    query = (
        select(configuration.c.key, configuration.c.kind, campaign.c.board)
        .add_columns(func.sum(visit.c.cost_s))
        .join_from(visit, campaign, visit.c.campaign == campaign.c.id)
        .join(configuration, visit.c.configuration_id == configuration.c.id)
        .where(campaign.c.device == device, visit.c.role != "anchor", visit.c.access == "model")
        .where(unforced(visit))
        .group_by(configuration.c.key, configuration.c.kind, campaign.c.board)
        .order_by(configuration.c.key, campaign.c.board)
    )
    return [Spent(*row) for row in connection.execute(query)]


def kernels(connection: Connection, board: str) -> dict[str, Mapping[str, int]]:
    """Return the kernels of one call of each configuration (key), as a board saw them last."""
    visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
    query = (
        select(configuration.c.key, visit.c.kernels)
        .join(campaign, visit.c.campaign == campaign.c.id)
        .join(configuration, visit.c.configuration_id == configuration.c.id)
        .where(campaign.c.board == board, visit.c.outcome == "ok", visit.c.kernels.is_not(None))
        .where(unforced(visit))
        .order_by(visit.c.started_at, visit.c.id)
    )
    last = {row.key: row.kernels for row in connection.execute(query)}
    return {key: rows.read_json(text) for key, text in last.items()}


def host_visits(
    connection: Connection, conditions: Conditions, configurations: Collection[str] | None
) -> list[HostVisit]:
    """Return the host visits of campaigns that meet the conditions, oldest first."""
    visit, campaign, configuration = schema.host_visit, schema.campaign, schema.configuration
    joined = visit.join(campaign, visit.c.campaign == campaign.c.id).join(
        configuration, visit.c.configuration_id == configuration.c.id
    )
    query = _with_key(visit, joined).where(*conditions)
    read = _of_configurations(connection, query, visit, configurations)
    found = [rows.read_host_visit(row) for row in read]
    return sorted(found, key=lambda visit: (visit.started_at, visit.id))


def host_seen(connection: Connection, board: str) -> HostSeen:
    """Return what a board's last campaigns saw of the host's time.

    Campaigns are gone back through until there are `ENOUGH_HOST_VISITS`.
    """
    visit, campaign, configuration = schema.host_visit, schema.campaign, schema.configuration
    query = select(campaign.c.id).where(campaign.c.board == board)
    query = query.order_by(campaign.c.started_at.desc(), campaign.c.id)
    campaigns = list(connection.scalars(query))
    seen = select(configuration.c.kind, configuration.c.json, visit.c.form, visit.c.times).join(
        configuration, visit.c.configuration_id == configuration.c.id
    )
    found: dict[str, list[tuple[str, Form, str]]] = {}
    read = 0
    for first in range(0, len(campaigns), CAMPAIGNS_AT_ONCE):
        some = campaigns[first : first + CAMPAIGNS_AT_ONCE]
        for kind, *what in connection.execute(seen.where(visit.c.campaign.in_(some))).all():
            found.setdefault(kind, []).append(tuple(what))
            read += 1
        if read >= ENOUGH_HOST_VISITS:
            break
    return HostSeen(found)


def model_runs(connection: Connection, conditions: Conditions) -> list[ModelRun]:
    """Return the model runs that meet the conditions, oldest first."""
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    joined = run.join(campaign, run.c.campaign == campaign.c.id).join(
        workload, run.c.workload_id == workload.c.id
    )
    query = select(run, workload.c.key.label("workload")).select_from(joined).where(*conditions)
    query = query.order_by(run.c.started_at, run.c.id)
    return [rows.read_model_run(row) for row in connection.execute(query).mappings()]


def unforced(table: Table) -> ColumnElement[bool]:
    """Return the condition on visits or their tally that torch chose their algorithm."""
    return table.c.setting.not_like(f'%"{ALGORITHM_SETTING}":%')


def usual_and_good() -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that model runs meet which predictions are held against."""
    run = schema.model_run
    return run.c.setting == schema.USUAL, run.c.outcome == "ok"


def measured(connection: Connection, device: str, mode: Mode) -> list[Measured]:
    """Return the workloads with a usual, good run in a mode, in the order of `workloads`.

    One of each board that ran a workload, that of the latest run last.
    """
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    query = (
        select(workload.c.key, workload.c.name, workload.c.dtype, workload.c.batch_size)
        .add_columns(campaign.c.board)
        .join(run, run.c.workload_id == workload.c.id)
        .join(campaign, run.c.campaign == campaign.c.id)
        .where(campaign.c.device == device, run.c.mode == mode, *usual_and_good())
        .order_by(*_workload_order(), run.c.started_at, run.c.id)
    )
    found: dict[tuple[str, str], Measured] = {}
    for row in connection.execute(query):
        found.pop((row.key, row.board), None)  # the latest run tells a board's place
        found[row.key, row.board] = Measured(*row)
    return list(found.values())


def run_outcomes(
    connection: Connection, board: str, mode: Mode
) -> dict[str, tuple[Outcome, str | None]]:
    """Return outcome and reason of each workload's (key) last good run, else of its last run.

    Of usual runs alone.
    """
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    query = (
        select(workload.c.key, run.c.outcome, run.c.reason)
        .join_from(run, campaign, run.c.campaign == campaign.c.id)
        .join(workload, run.c.workload_id == workload.c.id)
        .where(campaign.c.board == board, run.c.mode == mode, run.c.setting == schema.USUAL)
        .order_by(run.c.outcome == "ok", run.c.started_at, run.c.id)
    )
    # Good runs come after the others, and of a workload's runs the last one stays.
    return {row.key: (row.outcome, row.reason) for row in connection.execute(query)}


def algorithm_runs(connection: Connection, device: str) -> list[RunState]:
    """Return how a device's model runs under named algorithms ended, oldest first."""
    return _run_states(connection, device, ~unforced(schema.model_run))


def labelled_runs(connection: Connection, device: str) -> list[RunState]:
    """Return how a device's model runs that have a label ended, oldest first."""
    found = _run_states(connection, device, schema.model_run.c.facts.like('%"label":"%'))
    return [state for state in found if isinstance(state.facts.get("label"), str)]


def _run_states(
    connection: Connection, device: str, condition: ColumnElement[bool]
) -> list[RunState]:
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    query = (
        select(run.c.id, workload.c.key, run.c.mode, run.c.setting)
        .add_columns(run.c.outcome, run.c.reason, run.c.cost_s, run.c.facts)
        .join_from(run, campaign, run.c.campaign == campaign.c.id)
        .join(workload, run.c.workload_id == workload.c.id)
        .where(campaign.c.device == device, condition)
        .order_by(run.c.started_at, run.c.id)
    )
    return [
        RunState(
            id=row.id,
            workload=row.key,
            mode=row.mode,
            setting=rows.read_json(row.setting),
            outcome=row.outcome,
            reason=row.reason,
            cost_s=row.cost_s,
            facts=rows.read_json(row.facts),
        )
        for row in connection.execute(query)
    ]


def run_seconds(connection: Connection, device: str, mode: Mode) -> list[float]:
    """Return what each usual, good model run on a device in a mode took, oldest first."""
    run, campaign = schema.model_run, schema.campaign
    query = (
        select(run.c.cost_s)
        .join_from(run, campaign, run.c.campaign == campaign.c.id)
        .where(campaign.c.device == device, run.c.mode == mode, *usual_and_good())
        .order_by(run.c.started_at, run.c.id)
    )
    return list(connection.scalars(query))


def boards_of_several_sources(connection: Connection) -> list[str]:
    """Return the boards (UUIDs) whose campaigns came from several sets, or from one and from here.

    No set has the costs that follow from all of their visits.
    """
    campaign = schema.campaign
    sources = func.count(func.coalesce(campaign.c.source_id, 0).distinct())
    query = select(campaign.c.board).group_by(campaign.c.board).having(sources > 1)
    return list(connection.scalars(query.order_by(campaign.c.board)))


def cost_counts(connection: Connection) -> dict[str, int]:
    """Count the costs of every board (UUID) that has any."""
    board = schema.cost.c.board
    query = select(board, func.count().label("costs")).group_by(board)
    return {row.board: row.costs for row in connection.execute(query)}


def cost_counts_of_workloads(
    connection: Connection, keys: Collection[str]
) -> dict[tuple[str, str], int]:
    """Count of how many of a workload's configurations a board has costs, by key and board.

    Those of convolutions that were forced to take an algorithm are none of what runs as usual.
    """
    workload, call, cost = schema.workload, schema.call, schema.cost
    query = (
        select(workload.c.key, cost.c.board)
        .add_columns(func.count(call.c.configuration_id.distinct()).label("costs"))
        .join(call, call.c.workload_id == workload.c.id)
        .join(cost, cost.c.configuration_id == call.c.configuration_id)
        .where(workload.c.key.in_(keys), cost.c.time_s_median.is_not(None), unforced(cost))
        .group_by(workload.c.key, cost.c.board)
    )
    return {(row.key, row.board): row.costs for row in connection.execute(query)}


def costs(
    connection: Connection, board: str, configurations: Collection[str] | None
) -> dict[str, list[Cost]]:
    """Return a board's costs by configuration key, of these configurations or of all."""
    cost, configuration = schema.cost, schema.configuration
    joined = cost.join(configuration, cost.c.configuration_id == configuration.c.id)
    query = _with_key(cost, joined).where(cost.c.board == board)
    found = list(_of_configurations(connection, query, cost, configurations))
    found.sort(key=lambda row: (row["configuration"], row["setting"], row["estimator"]))
    by_key: dict[str, list[Cost]] = {}
    for row in found:
        by_key.setdefault(row["configuration"], []).append(rows.read_cost(row))
    return by_key


def _with_key(table: FromClause, joined: FromClause) -> Select[Any]:
    """Select a table's columns with the configuration's key beside them."""
    key = schema.configuration.c.key.label("configuration")
    return select(table, key).select_from(joined)


def _of_configurations(
    connection: Connection, query: Select[Any], table: Table, keys: Collection[str] | None
) -> Iterator[Row]:
    """Yield a query's rows, of those of a table that are about these configurations, or of all.

    The keys are turned into row numbers first: joined by them, a database goes through all that
    the other conditions leave, which at times is all that a board has.
    """
    if keys is None:
        yield from connection.execute(query).mappings()
        return
    for some in in_parts(numbers(connection, schema.configuration, keys).values()):
        part = query.where(table.c.configuration_id.in_(some))
        yield from connection.execute(part).mappings().all()


def profiles(connection: Connection, device: str, keys: Collection[str] | None) -> list[Profile]:
    """Return a device's profiles of these configurations, or of all, oldest first."""
    table, configuration = schema.profile, schema.configuration
    query = (
        select(table, configuration.c.key.label("configuration"))
        .join(configuration, table.c.configuration_id == configuration.c.id)
        .where(table.c.device == device)
        .order_by(table.c.measured_at, table.c.id)
    )
    parts = [[]] if keys is None else in_parts(keys)
    found = [
        rows.read_profile(row)
        for some in parts
        for row in connection.execute(
            query if keys is None else query.where(configuration.c.key.in_(some))
        ).mappings()
    ]
    return sorted(found, key=lambda profile: (profile.measured_at, profile.id))
