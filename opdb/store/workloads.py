"""Workloads with their calls, and configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection, delete, func, select, update

from opdb.records import Call, Configuration, Phase, Workload
from opdb.store import reading, rows, schema, standing
from opdb.store.connecting import Connected
from opdb.store.standing import Head
from opdb.store.writing import (
    in_parts,
    matching,
    numbers,
    replace_calls,
    save_configurations,
    upsert,
)


class Workloads(Connected):
    """The workloads and configurations of a database."""

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

        `captured` has the calls that it makes while it is captured, where they differ; those of an
        earlier harvest are dropped. `swept` workloads are asked for by a sweep: their calls are not
        pending until somebody harvests them for their own sake. `fingerprint` covers all that the
        harvest depended on, where that is known: `harvested` finds the workload by it.

        Returns the number of good runs that are compared with other calls from now on, because this
        version of its source makes other calls than the one harvested before.
        """
        table = schema.workload
        with self.writing() as connection:
            stale = _runs_of_other_calls(connection, workload)
            _save_workload(connection, workload, swept, fingerprint)
            if captured is not None:
                _save_workload(connection, captured, swept, fingerprint)
            else:
                key = replace(workload, captured=True).key
                connection.execute(delete(table).where(table.c.key == key))
        return stale

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
            found = {each.captured: each for each in reading.workloads(connection, conditions)}
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
            found = reading.workload_rows(connection, [schema.workload.c.captured.is_(True)])
            return {rows.WORKLOAD.read(row).model_key: row["key"] for row in found}

    def swept_keys(self) -> set[str]:
        """Return the keys of the workloads that only sweeps asked for."""
        return set(self.scalars(select(schema.workload.c.key).where(schema.workload.c.swept)))

    def heads(self) -> list[Head]:
        """Return every workload as its model stands, without its calls, in order."""
        with self.reading() as connection:
            return standing.heads(connection)

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
            select(table.c.key, func.sum(schema.call.c.calls).label("calls"))
            .join(schema.call, schema.call.c.configuration_id == table.c.id)
            .group_by(table.c.key)
        )
        with self.reading() as connection:
            return {row.key: row.calls for row in connection.execute(query)}

    def workloads_of_unknown_size(self) -> list[Workload]:
        """Return the workloads whose touched bytes are not stored, with their calls.

        Workloads that only sweeps asked for are left out: no bench is planned for them.
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


def _runs_of_other_calls(connection: Connection, workload: Workload) -> int:
    """Count a workload's good runs, where it called something else in another version."""
    table, run = schema.workload, schema.model_run
    query = select(table.c.id, table.c.source_version).where(table.c.key == workload.key)
    found = connection.execute(query).one_or_none()
    if found is None or found.source_version == workload.source_version:
        return 0
    before = reading.calls_of(connection, [table.c.id == found.id]).get(found.id, [])
    if _named(before) == _named(workload.calls):
        return 0
    good = select(func.count()).where(run.c.workload_id == found.id, run.c.outcome == "ok")
    return int(connection.execute(good).scalar_one())


def _named(calls: Iterable[Call]) -> list[tuple[str, str]]:
    return [(call.configuration.key, call.form) for call in calls]


def _save_workload(
    connection: Connection, workload: Workload, swept: bool, fingerprint: str | None
) -> None:
    table = schema.workload
    query = select(table.c.swept).where(table.c.key == workload.key)
    if connection.execute(query).scalar() is False:
        swept = False  # somebody wanted it before
    # From now on no published set replaces a harvest made here.
    own = {
        "source_id": None,
        "touched_bytes": None,
        "swept": swept,
        "fingerprint": fingerprint,
    }
    row = {**rows.WORKLOAD.row(workload), **own}
    known = save_configurations(connection, workload.occurrences())
    upsert(connection, schema.workload, [row], ["key"])
    number = numbers(connection, schema.workload, [workload.key])[workload.key]
    replace_calls(connection, number, workload.calls, known)
