"""Progress of a device, in counts alone: no visit, run or call is read for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, case, func, or_, select

from opdb.records import Outcome, Role, Workload
from opdb.store import reading, rows, schema
from opdb.store.forced import Forced, forced
from opdb.store.pending import not_asked_for
from opdb.store.reading import Failure
from opdb.store.writing import in_parts


@dataclass(frozen=True)
class Head:
    """A workload without its calls: how many it makes, of how many configurations.

    `swept`: only a sweep asked for it.
    """

    workload: Workload
    calls: int
    configurations: int
    swept: bool


@dataclass(frozen=True)
class Standing:
    """The counts of a device: what was measured, what of the workloads is pending, what failed.

    `visits` are counted by role and why they were rejected (empty: they were not), `pending`
    configurations by kind; `unmeasured_calls` and good `runs` by the workload's key. Workloads call
    `measured_called` of the `measured` configurations; the others belong to grids. Workloads that
    only sweeps asked for count as neither called nor pending. Convolutions that were forced to take
    an algorithm are counted in `forced` alone. `compiled` workloads are known as torch.compile
    makes them for the device.
    """

    campaigns: int
    visits: Mapping[tuple[Role, str], int]
    measured: int
    measured_called: int
    pending: Mapping[str, int]
    unmeasured_calls: Mapping[str, int]
    runs: Counter[str]
    failures: list[Failure]
    forced: list[Forced]
    profiles: int
    profiled: int
    compiled: int


def heads(connection: Connection) -> list[Head]:
    """Return every workload without its calls, in the order of `reading.workloads`."""
    call = schema.call
    counts = select(
        call.c.workload_id, func.sum(call.c.calls), func.count(call.c.configuration_id.distinct())
    ).group_by(call.c.workload_id)
    found = {number: (calls, distinct) for number, calls, distinct in connection.execute(counts)}
    return [
        Head(rows.WORKLOAD.read(row), *found.get(row["id"], (0, 0)), bool(row["swept"]))
        for row in reading.workload_rows(connection, reading.PLAIN)
    ]


def standing(connection: Connection, device: str) -> Standing:
    """Return the counts of a device (slug)."""
    campaign = schema.campaign
    campaigns = select(func.count()).where(campaign.c.device == device)
    unmeasured = _unmeasured(connection, device)
    measured, visits = _measured(connection, device)
    others, failing = _others(connection, device)
    profiles, profiled = _profiles(connection, device)
    called = select(func.count(schema.call.c.configuration_id.distinct()))
    called = called.where(_called_here(device))
    compiled = select(func.count()).where(schema.workload.c.compiled_for == device)
    return Standing(
        campaigns=connection.execute(campaigns).scalar_one(),
        visits=_visits(visits, others),
        measured=measured,
        measured_called=connection.execute(called).scalar_one() - len(unmeasured),
        pending=_pending(connection, device, unmeasured),
        unmeasured_calls=_calls_of(connection, unmeasured),
        runs=_runs(connection, device),
        failures=reading.failures(connection, device, failing),
        forced=forced(connection, device),
        profiles=profiles,
        profiled=profiled,
        compiled=connection.execute(compiled).scalar_one(),
    )


def _profiles(connection: Connection, device: str) -> tuple[int, int]:
    """Count what hardware counters saw on a device, and the configurations that it is of."""
    table = schema.profile
    query = select(func.count(), func.count(table.c.configuration_id.distinct()))
    profiles, profiled = connection.execute(query.where(table.c.device == device)).one()
    return profiles, profiled


def _measured(connection: Connection, device: str) -> tuple[int, int]:
    """Count the configurations that a visit measured, and these visits."""
    tally = schema.tally
    visits = func.sum(tally.c.visits).label("visits")
    measured = [*reading.measurements(device), tally.c.outcome == "ok"]
    each = select(visits).where(*measured).group_by(tally.c.configuration_id).subquery()
    query = select(func.count(), func.coalesce(func.sum(each.c.visits), 0)).select_from(each)
    configurations, total = connection.execute(query).one()
    return int(configurations), int(total)


def _others(
    connection: Connection, device: str
) -> tuple[Counter[tuple[Role, str, Outcome]], list[int]]:
    """Count visits that are not good measurements; return the failed configurations (row numbers).

    They are counted by role, reason of rejection and outcome: few of all visits.
    """
    tally = schema.tally
    measurement, failed = tally.c.role == "measurement", tally.c.outcome != "ok"
    failing = case((measurement & failed, tally.c.configuration_id))
    sort = (tally.c.role, tally.c.rejected, tally.c.outcome, failing)
    query = (
        select(*sort, func.sum(tally.c.visits))
        .where(tally.c.device == device, tally.c.access == "model", reading.unforced(tally))
        .where(or_(~measurement, failed, tally.c.rejected != ""))
        .group_by(*sort)
    )
    counts: Counter[tuple[Role, str, Outcome]] = Counter()
    found: list[int] = []
    for role, rejected, outcome, configuration, visits in connection.execute(query):
        counts[role, rejected, outcome] += visits
        if configuration is not None:
            found.append(configuration)
    return counts, found


def _visits(
    measured: int, others: Mapping[tuple[Role, str, Outcome], int]
) -> dict[tuple[Role, str], int]:
    """Count visits by role and why they were rejected; `measured` are all good measurements."""
    counts: Counter[tuple[Role, str]] = Counter()
    for (role, rejected, outcome), visits in others.items():
        counts[role, rejected] += visits
        if role == "measurement" and outcome == "ok":
            measured -= visits
    counts["measurement", ""] += measured
    return {sort: visits for sort, visits in counts.items() if visits}


def _unmeasured(connection: Connection, device: str) -> list[int]:
    """Return the configurations (row numbers) that workloads call and no visit measured."""
    tally = schema.tally
    called = (
        select(schema.call.c.configuration_id).where(_called_here(device)).distinct().subquery()
    )
    measured = select(tally.c.configuration_id).where(
        *reading.measurements(device),
        tally.c.outcome == "ok",
        tally.c.configuration_id == called.c.configuration_id,
    )
    query = select(called.c.configuration_id).where(~measured.exists())
    return list(connection.scalars(query))


def _called_here(device: str) -> ColumnElement[bool]:
    """Return the condition for calls whose workload is asked for on a device (slug)."""
    return schema.call.c.workload_id.not_in(not_asked_for(device))


def _pending(connection: Connection, device: str, unmeasured: list[int]) -> dict[str, int]:
    """Count by kind those of the unmeasured configurations that were not given up either."""
    configuration, tally = schema.configuration, schema.tally
    tried = select(tally.c.configuration_id).where(
        *reading.measurements(device), tally.c.configuration_id == configuration.c.id
    )
    counts: Counter[str] = Counter()
    for some in in_parts(unmeasured):
        query = select(configuration.c.kind).where(configuration.c.id.in_(some), ~tried.exists())
        counts.update(connection.scalars(query))
    return dict(sorted(counts.items()))


def _calls_of(connection: Connection, configurations: list[int]) -> dict[str, int]:
    """Count the calls of each workload (key) of these configurations (row numbers)."""
    call, workload = schema.call, schema.workload
    counts: Counter[str] = Counter()
    for some in in_parts(configurations):
        calls = (
            select(call.c.workload_id, func.sum(call.c.calls).label("calls"))
            .where(call.c.configuration_id.in_(some))
            .group_by(call.c.workload_id)
            .subquery()
        )
        query = select(workload.c.key, calls.c.calls)
        query = query.join(calls, calls.c.workload_id == workload.c.id)
        for key, number in connection.execute(query):
            counts[key] += number
    return counts


def _runs(connection: Connection, device: str) -> Counter[str]:
    """Count the usual, good runs of each workload (key)."""
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    query = (
        select(workload.c.key, func.count().label("runs"))
        .join(run, run.c.workload_id == workload.c.id)
        .join(campaign, run.c.campaign == campaign.c.id)
        .where(campaign.c.device == device, *reading.usual_and_good())
        .group_by(workload.c.key)
    )
    return Counter({row.key: row.runs for row in connection.execute(query)})
