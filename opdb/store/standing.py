"""How far a device is, in counts alone: no visit, run or call is read for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Select, func, select

from opdb.records import Role, Workload
from opdb.store import reading, rows, schema
from opdb.store.reading import Failure


@dataclass(frozen=True)
class Head:
    """A workload without its calls: how many it makes, of how many configurations."""

    workload: Workload
    calls: int
    configurations: int


@dataclass(frozen=True)
class Standing:
    """What was measured on a device, what of the workloads is pending, what failed.

    `visits` are counted by role and why they were rejected (empty: they were not), `pending`
    configurations by kind; `unmeasured_calls` and good `runs` by the workload's key. Workloads call
    `measured_called` of the `measured` configurations; the others belong to grids.
    """

    campaigns: int
    visits: Mapping[tuple[Role, str], int]
    measured: int
    measured_called: int
    pending: Mapping[str, int]
    unmeasured_calls: Mapping[str, int]
    runs: Counter[str]
    failures: list[Failure]


def heads(connection: Connection) -> list[Head]:
    """Return every workload without its calls, in the order of `reading.workloads`."""
    call = schema.call
    counts = select(
        call.c.workload_id, func.count(), func.count(call.c.configuration_id.distinct())
    ).group_by(call.c.workload_id)
    found = {number: (calls, distinct) for number, calls, distinct in connection.execute(counts)}
    return [
        Head(rows.read_workload(row), *found.get(row["id"], (0, 0)))
        for row in reading.workload_rows(connection, [])
    ]


def standing(connection: Connection, device: str) -> Standing:
    """Return how far a device (slug) is."""
    campaign = schema.campaign
    campaigns = select(func.count()).where(campaign.c.device == device)
    return Standing(
        campaigns=connection.execute(campaigns).scalar_one(),
        visits=_visits(connection, device),
        measured=_measured(connection, device),
        measured_called=_measured_called(connection, device),
        pending=_pending(connection, device),
        unmeasured_calls=_unmeasured_calls(connection, device),
        runs=_runs(connection, device),
        failures=reading.failures(connection, device),
    )


def _visits(connection: Connection, device: str) -> dict[tuple[Role, str], int]:
    """Count the visits inside models by role and why they were rejected."""
    tally = schema.tally
    query = (
        select(tally.c.role, tally.c.rejected, func.sum(tally.c.visits))
        .where(tally.c.device == device, tally.c.access == "model")
        .group_by(tally.c.role, tally.c.rejected)
    )
    return {(role, why): visits for role, why, visits in connection.execute(query)}


def _measured(connection: Connection, device: str) -> int:
    """Count the configurations that a visit measured."""
    tally = schema.tally
    measured = select(tally.c.configuration_id).distinct()
    measured = measured.where(*reading.measurements(device), tally.c.outcome == "ok")
    counted = select(func.count()).select_from(measured.subquery())
    return int(connection.execute(counted).scalar_one())


def _measured_called(connection: Connection, device: str) -> int:
    """Count the configurations that a visit measured and a workload calls."""
    called = select(schema.call.c.configuration_id).distinct().subquery()
    unmeasured = _called_without(device, outcome="ok").subquery()
    counts = select(
        select(func.count()).select_from(called).scalar_subquery()
        - select(func.count()).select_from(unmeasured).scalar_subquery()
    )
    return int(connection.execute(counts).scalar_one())


def _called_without(device: str, *, outcome: str | None) -> Select[tuple[int]]:
    """Select what workloads call and no visit has: of this outcome, or of any."""
    tally = schema.tally
    called = select(schema.call.c.configuration_id).distinct().subquery()
    seen = select(tally.c.configuration_id).where(
        *reading.measurements(device), tally.c.configuration_id == called.c.configuration_id
    )
    if outcome is not None:
        seen = seen.where(tally.c.outcome == outcome)
    return select(called.c.configuration_id).where(~seen.exists())


def _pending(connection: Connection, device: str) -> dict[str, int]:
    """Count by kind the called configurations that were neither measured nor given up."""
    configuration = schema.configuration
    pending = _called_without(device, outcome=None).subquery()
    query = (
        select(configuration.c.kind, func.count().label("configurations"))
        .join(pending, pending.c.configuration_id == configuration.c.id)
        .group_by(configuration.c.kind)
        .order_by(configuration.c.kind)
    )
    return {row.kind: row.configurations for row in connection.execute(query)}


def _unmeasured_calls(connection: Connection, device: str) -> dict[str, int]:
    """Count the calls of each workload (key) whose configuration no visit measured."""
    call, workload = schema.call, schema.workload
    unmeasured = _called_without(device, outcome="ok")
    counts = (
        select(call.c.workload_id, func.count().label("calls"))
        .where(call.c.configuration_id.in_(unmeasured))
        .group_by(call.c.workload_id)
        .subquery()
    )
    query = select(workload.c.key, counts.c.calls).join(
        counts, counts.c.workload_id == workload.c.id
    )
    return {row.key: row.calls for row in connection.execute(query)}


def _runs(connection: Connection, device: str) -> Counter[str]:
    """Count the good runs of each workload (key)."""
    run, campaign, workload = schema.model_run, schema.campaign, schema.workload
    query = (
        select(workload.c.key, func.count().label("runs"))
        .join(run, run.c.workload_id == workload.c.id)
        .join(campaign, run.c.campaign == campaign.c.id)
        .where(campaign.c.device == device, run.c.outcome == "ok")
        .group_by(workload.c.key)
    )
    return Counter({row.key: row.runs for row in connection.execute(query)})
