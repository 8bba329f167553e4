"""Queries that join rows back into records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, func, select

from opdb.errors import DatabaseError
from opdb.records import (
    ALGORITHM_SETTING,
    Call,
    Configuration,
    Form,
    Outcome,
    Quantity,
    Workload,
)
from opdb.store import rows, schema
from opdb.store.documents import HOST_TIMES
from opdb.store.rows import Row
from opdb.store.writing import in_parts, numbers

Conditions = Sequence[ColumnElement[bool]]

PLAIN: Conditions = (
    schema.workload.c.compiled_for.is_(None),
    schema.workload.c.captured.is_(False),
)
"""The conditions for workloads of models as they stand, neither compiled nor captured."""


@dataclass(frozen=True)
class Failure:
    """A configuration that was never measured in a setting, and the outcome of the attempts."""

    configuration: str
    kind: str
    setting: str
    outcome: Outcome
    reason: str | None
    attempts: int


@dataclass(frozen=True)
class Spent:
    """The times of a configuration's (key) visits on one board (UUID), in seconds."""

    configuration: str
    kind: str
    board: str
    seconds: float


@dataclass(frozen=True)
class Repeated:
    """The cost of a configuration of this kind on one board, of two visits or more."""

    kind: str
    visits: int
    time_s: Quantity | None
    energy_j: Quantity | None


@dataclass(frozen=True)
class HostSeen:
    """Host times by kind, raw: the configuration's JSON, and the times as a cost has them."""

    by_kind: Mapping[str, Sequence[tuple[str, str]]]

    def usual_s(self, kind: str) -> dict[tuple[str, Form], float]:
        """Return the median host time (seconds) of a kind's calls, by `issued_as` and form."""
        found: dict[tuple[str, Form], list[float]] = {}
        assert HOST_TIMES.decode is not None
        for text, times in self.by_kind.get(kind, ()):
            by_form: Mapping[Form, Quantity] = HOST_TIMES.decode(times)
            if by_form:
                issued_as = Configuration.from_json(text).issued_as
                for form, quantity in by_form.items():
                    found.setdefault((issued_as, form), []).append(quantity.median)
        return {key: median(values) for key, values in found.items()}


def workloads(connection: Connection, conditions: Conditions) -> list[Workload]:
    """Return the workloads that meet the conditions, with their calls.

    Raises:
        DatabaseError: a row was altered: its key is not its own.
    """
    found = workload_rows(connection, conditions)
    calls = calls_of(connection, conditions)
    read = [rows.WORKLOAD.read(row, calls=tuple(calls.get(row["id"], ()))) for row in found]
    for row, workload in zip(found, read, strict=True):
        if workload.key != row["key"]:
            raise DatabaseError(
                f"workload {row['name']!r}: its row was altered, for its key is not that of what "
                "it says; opdb harvest or opdb import brings it anew"
            )
    return read


def workload_rows(connection: Connection, conditions: Conditions) -> Sequence[Row]:
    """Return the rows of the workloads that meet the conditions, without their calls."""
    table = schema.workload
    query = select(table).where(*conditions).order_by(*workload_order())
    return connection.execute(query).mappings().all()


def workload_order() -> list[ColumnElement[Any]]:
    """Return the columns that workloads are ordered by."""
    table = schema.workload
    names = ("name", "phase", "dtype", "memory_format", "batch_size", "key")
    return [table.c[name] for name in names]


def calls_of(connection: Connection, conditions: Conditions) -> dict[int, list[Call]]:
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
    operators: dict[int, dict[str, Call]] = defaultdict(dict)
    columns = (call.c.workload_id, call.c.number, call.c.configuration_id, call.c.form)
    made = select(*columns).where(call.c.workload_id.in_(chosen))
    for of, number, configuration_id, form in connection.execute(made).all():
        which = configuration_id, form
        if which not in shared:
            shared[which] = Call(configuration=known[configuration_id], form=form)
        operators[of][str(number)] = shared[which]
    sequences = select(workload.c.id, workload.c.sequence).where(*conditions)
    return {
        number: list(map(operators[number].__getitem__, sequence.split(" ")))
        for number, sequence in connection.execute(sequences)
        if sequence
    }


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
    for row in of_configurations(connection, query, tally, configurations):
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
    bad = schema.visit.c.outcome != "ok", unforced(schema.visit)
    reasons = last_reasons(connection, device, kinds, *bad)
    found = [
        Failure(key, kinds[key], setting, *reasons[key, setting], seen.total())
        for (key, setting), seen in outcomes.items()
        if not seen["ok"]
    ]
    return sorted(found, key=lambda failure: (failure.kind, failure.configuration, failure.setting))


def last_reasons(
    connection: Connection,
    device: str,
    configurations: Collection[str],
    *conditions: ColumnElement[bool],
) -> dict[tuple[str, str], tuple[Outcome, str | None]]:
    """Return the last outcome, and its reason, of visits inside models on a device (slug).

    Of those that meet the conditions, by (configuration key, setting).
    """
    visit, campaign, configuration = schema.visit, schema.campaign, schema.configuration
    query = (
        select(configuration.c.key, visit.c.setting, visit.c.outcome, visit.c.reason)
        .add_columns(visit.c.campaign)
        .join(configuration, visit.c.configuration_id == configuration.c.id)
        .where(visit.c.role == "measurement", visit.c.access == "model", *conditions)
        .order_by(visit.c.started_at)
    )
    # Joined with its campaigns, all that was visited on the device would be gone through.
    ours = set(connection.scalars(select(campaign.c.id).where(campaign.c.device == device)))
    return {
        (row["key"], row["setting"]): (row["outcome"], row["reason"])
        for row in of_configurations(connection, query, visit, configurations)
        if row["campaign"] in ours
    }


def unforced(table: Table) -> ColumnElement[bool]:
    """Return the condition on visits or their tally that torch chose their algorithm."""
    return table.c.setting.not_like(f'%"{ALGORITHM_SETTING}":%')


def usual_and_good() -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for model runs that predictions are compared with."""
    run = schema.model_run
    return run.c.setting == schema.USUAL, run.c.outcome == "ok"


def with_key(table: Table) -> Select[Any]:
    """Select a table's columns with the configuration's key beside them."""
    configuration = schema.configuration
    key = configuration.c.key.label("configuration")
    return select(table, key).join(configuration, table.c.configuration_id == configuration.c.id)


def of_configurations(
    connection: Connection, query: Select[Any], table: Table, keys: Collection[str] | None
) -> Iterator[RowMapping]:
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
