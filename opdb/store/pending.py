"""Pending configurations: those that have fewer good visits than are wanted of them.

The tally and the calls answer all of it; only configurations that are returned are read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select

from opdb.records import Access, Configuration, Outcome, Role, Weights
from opdb.store import reading, schema
from opdb.store.connecting import Connected
from opdb.store.writing import in_parts, matching

Touched: TypeAlias = tuple[Literal["at most", "above"], float]
"""The bytes that a pass of a workload touches, as `Store.save_touched_bytes` stored them."""


@dataclass(frozen=True)
class VisitFilter:
    """Which visits: on a device (slug) or one board (UUID) of it, in a role; None is any."""

    device: str
    board: str | None = None
    role: Role = "measurement"
    access: Access = "model"
    weights: Weights | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return these as conditions on the tally."""
        return matching(schema.tally, vars(self))


@dataclass(frozen=True)
class MissingVisits:
    """Fewer visits of a sort than so many that are good, not rejected, and in these settings."""

    sort: VisitFilter
    visits: int
    settings: Collection[str]


@dataclass(frozen=True)
class ConfigurationFilter:
    """Which configurations: of these kinds, called by a workload, or those of these keys.

    What only sweeps asked for counts as no workload.

    With `called` what has one of the keys must be called too. `keys_below` leaves out the keys that
    sort at or above it, `called_in` what no workload calls that touches so many bytes. `device` (a
    slug) leaves out what models call only as they are compiled for other devices.
    """

    kinds: Collection[str] | None = None
    keys: Collection[str] | None = None
    called: bool = False
    keys_below: str | None = None
    called_in: Touched | None = None
    device: str | None = None


class Pending(Connected):
    """Counts the visits in a database, and finds the configurations that lack some."""

    def outcomes(
        self,
        sort: VisitFilter,
        configurations: Collection[str] | None = None,
        *,
        rejected: bool | None = None,
    ) -> dict[tuple[str, str], Counter[Outcome]]:
        """Count the visits of a sort by (configuration key, setting) and outcome.

        With `configurations` (keys), those of these alone; with `rejected`, those alone that were
        rejected, or were not.
        """
        conditions, why = sort.conditions(), schema.tally.c.rejected
        if rejected is not None:
            conditions.append(why != "" if rejected else why == "")
        with self.reading() as connection:
            return reading.visit_outcomes(connection, conditions, configurations)

    def lacking(self, lack: MissingVisits, among: ConfigurationFilter) -> list[Configuration]:
        """Return, of some configurations, those that lack good visits, by kind and then key."""
        tally = schema.tally
        good = case((tally.c.rejected == "", tally.c.visits), else_=0)
        of_sort = [
            *lack.sort.conditions(),
            tally.c.outcome == "ok",
            tally.c.setting.in_(sorted(lack.settings)),
        ]

        def short(some: Select[tuple[int]]) -> Select[tuple[int]]:
            chosen = some.subquery()
            return (
                select(chosen.c.id)
                .outerjoin(tally, and_(tally.c.configuration_id == chosen.c.id, *of_sort))
                .group_by(chosen.c.id)
                .having(func.sum(good) < lack.visits)
            )

        return self.configurations_among(among, short)

    def configurations_among(
        self,
        among: ConfigurationFilter,
        narrowed: Callable[[Select[tuple[int]]], Select[tuple[int]]] = lambda chosen: chosen,
    ) -> list[Configuration]:
        """Return some configurations, by kind and then key.

        `narrowed` takes the query of their row numbers to one of those that are wanted.
        """
        with self.reading() as connection:
            table = schema.configuration
            found: list[tuple[str, str, str]] = []
            for some in [None] if among.keys is None else in_parts(among.keys):
                query = select(table.c.kind, table.c.key, table.c.json)
                query = query.where(table.c.id.in_(narrowed(_chosen(among, some))))
                found += map(tuple, connection.execute(query))
            return [Configuration.from_canonical(text) for _, _, text in sorted(found)]

    def called_in(self, configurations: Collection[str], touched: Touched) -> set[str]:
        """Return those of the configurations (keys) that a workload calls which touches so much."""
        with self.reading() as connection:
            configuration, call = schema.configuration, schema.call
            called = select(call.c.configuration_id).where(
                call.c.configuration_id == configuration.c.id,
                call.c.workload_id.in_(_workloads(touched)),
            )
            found: set[str] = set()
            for some in in_parts(configurations):
                query = select(configuration.c.key).where(
                    configuration.c.key.in_(some), called.exists()
                )
                found |= set(connection.scalars(query))
            return found

    def calls_of(self, configurations: Collection[str], device: str) -> dict[str, dict[str, int]]:
        """Return how often each workload calls each of the configurations (keys), by its key.

        The workloads are those whose operators are wanted on a device (slug).
        """
        asked_for = schema.workload.c.id.not_in(not_asked_for(device))
        return self._calls(schema.configuration.c.key, configurations, asked_for)

    def calls_in(self, workloads: Collection[str]) -> dict[str, dict[str, int]]:
        """Return how often each of the workloads (keys) calls each configuration, by its key."""
        return self._calls(schema.workload.c.key, workloads)

    def _calls(
        self, column: ColumnElement[str], among: Collection[str], *conditions: ColumnElement[bool]
    ) -> dict[str, dict[str, int]]:
        """Count calls by the workload's and the configuration's key, where a column is one of some.

        The conditions are of the workloads.
        """
        workload, configuration, call = schema.workload, schema.configuration, schema.call
        found: dict[str, dict[str, int]] = defaultdict(dict)
        with self.reading() as connection:
            for some in in_parts(among):
                query = (
                    select(workload.c.key, configuration.c.key, func.sum(call.c.calls))
                    .join_from(call, configuration, call.c.configuration_id == configuration.c.id)
                    .join(workload, call.c.workload_id == workload.c.id)
                    .where(column.in_(some), *conditions)
                    .group_by(workload.c.key, configuration.c.key)
                )
                for each, key, calls in connection.execute(query):
                    found[each][key] = calls
        return dict(found)


def not_asked_for(device: str | None) -> Select[tuple[int]]:
    """Select the row numbers of the workloads whose operators nobody wants on a device (slug).

    They were compiled for another one, or only sweeps asked for them; on None: the latter.
    """
    table = schema.workload
    swept: ColumnElement[bool] = table.c.swept
    elsewhere = [] if device is None else [table.c.compiled_for != device]
    return select(table.c.id).where(or_(swept, *elsewhere))


def _workloads(touched: Touched) -> Select[tuple[int]]:
    column = schema.workload.c.touched_bytes
    bound, touched_bytes = touched
    query = select(schema.workload.c.id).where(~schema.workload.c.swept)
    return query.where(column <= touched_bytes if bound == "at most" else column > touched_bytes)


def _chosen(among: ConfigurationFilter, keys: Collection[str] | None) -> Select[tuple[int]]:
    """Select the row numbers of some configurations; `keys` are the part of them to bind."""
    configuration, call = schema.configuration, schema.call
    called = select(call.c.configuration_id.label("id")).distinct()
    called = called.where(call.c.workload_id.not_in(not_asked_for(among.device)))
    if among.called_in is not None:
        called = called.where(call.c.workload_id.in_(_workloads(among.called_in)))
    conditions: list[ColumnElement[bool]] = []
    if among.kinds is not None:
        conditions.append(configuration.c.kind.in_(sorted(among.kinds)))
    if among.keys_below is not None:
        conditions.append(configuration.c.key < among.keys_below)
    if keys is None and not conditions:
        return called
    if keys is not None:
        conditions.append(configuration.c.key.in_(sorted(keys)))
    if keys is None or among.called or among.called_in is not None:
        conditions.append(configuration.c.id.in_(called))
    return select(configuration.c.id).where(*conditions)
