"""Published sets out of the database and into it, and the databases of jobs.

All go the same way: the rows of a device are copied into a database of their own, which is
completed and checked there, and is packed, or taken into another database in one transaction.
"""

from __future__ import annotations

import csv
import lzma
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    MetaData,
    Select,
    Subquery,
    Table,
    and_,
    delete,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    true,
    union,
    update,
)

from opdb.errors import InputError, UnknownNameError
from opdb.records import Json
from opdb.store import schema
from opdb.store.deriving import costs_of
from opdb.store.fields import field_of
from opdb.store.opening import (
    FILE,
    MANIFEST,
    SAMPLES,
    device_of,
    fingerprint,
    is_packaged,
    open_store,
    write_manifest,
)
from opdb.store.rows import insert_into, upsert
from opdb.store.sets import (
    TABLES,
    check,
    folders_of,
    opened,
    prove,
    put_samples,
    take_samples,
)
from opdb.store.store import Store

_ASIDE = ".opdb-"
"""How the folder's name begins in which a set is written before its files are put in place."""

_IN_PARTS = {"yield_per": 1000}
"""How rows are read that may be many, and large."""


@dataclass(frozen=True)
class Imported:
    """The rows of a set, all and new ones, that an import found, by the names of `TABLES`."""

    found: Mapping[str, int]
    added: Mapping[str, int]


# out of the database


def export_set(
    store: Store, folder: Path, *, device: str, about: Mapping[str, Json] | None = None
) -> dict[str, int]:
    """Write a device's set into a folder; return the rows by the names of `TABLES`.

    The set holds the device's campaigns with all their measurements, the costs that follow from
    these, and every workload that has a measurement, or came with a set of the device. Files are
    replaced only when all are whole; where that is interrupted, the folder is no set until it is
    written again. `about` is what the manifest says beside the device and the checksums.

    Raises:
        UnknownNameError: the database holds no such device.
        InputError: the folder holds another device's set, or cannot be written.
    """
    known = {found.slug: found.name for found in store.devices()}
    if device not in known:
        raise UnknownNameError("device", device, known, hint="(opdb show lists what is measured)")
    there = device_of(folder)
    if there not in (None, device):
        raise InputError(f"{folder} holds the set of {there}, not of {device}; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{_ASIDE}*"):  # of an export that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=folder) as aside:
            counts = _write(store, device, Path(aside), {**(about or {}), "name": known[device]})
            # Without its database a folder is no set: a kill between two leaves none, not a mix.
            for name in (FILE, SAMPLES):
                (folder / name).unlink(missing_ok=True)
            for name in (MANIFEST, SAMPLES, FILE):
                Path(aside, name).replace(folder / name)
    except OSError as error:
        raise InputError(f"cannot write the set into {folder}: {error.strerror}") from error
    return counts


def _write(store: Store, device: str, folder: Path, about: Mapping[str, Json]) -> dict[str, int]:
    """Write the files of a device's set; return the rows of each table."""
    path = folder / Path(FILE).stem
    with _copied(store, path, device) as made:
        for board in store.boards(device):  # what is stored may be of a bench that was killed
            made.replace_costs(board.uuid, costs_of(made, board.uuid))
        with made.writing() as connection:
            counts = _counts(connection)
            lines = take_samples(connection)
            for table in schema.metadata.sorted_tables:
                for index in table.indexes:
                    index.drop(connection)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # all of it is in the file then
        connection.execute("VACUUM")
    (folder / FILE).write_bytes(_packed(path.read_bytes()))
    (folder / SAMPLES).write_bytes(_packed("".join(lines).encode()))
    write_manifest(folder, {**about, "device": device})
    return counts


def _packed(content: bytes) -> bytes:
    """Return bytes as xz has them, with a dictionary as large as they need."""
    size = max(4096, min(len(content), 64 * 1024 * 1024))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": size}]
    return lzma.compress(content, filters=filters)


def export_csv(store: Store, folder: Path, *, device: str) -> dict[str, int]:
    """Write a device's rows as one CSV file a table, without raw samples; return how many each has.

    Rows refer to each other by content key; a JSON column is its text.

    Raises:
        InputError: the folder cannot be written.
    """
    counts = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with store.reading() as connection:
            for name, query in _queries(device).items():
                table = TABLES[name]
                columns = schema.outside(table)
                for inside, outside in schema.REFERENCES.items():
                    if inside in table.c:
                        target = schema.metadata.tables[outside]
                        query = query.join(target, target.c.id == table.c[inside])
                        columns[outside] = target.c.key
                shown = [c.label(n) for n, c in columns.items() if field_of(c).verify is None]
                found = connection.execute(
                    query.with_only_columns(*shown, maintain_column_froms=True)
                )
                with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
                    writer = csv.writer(stream, lineterminator="\n")
                    writer.writerow(found.keys())
                    rows = found.all()
                    writer.writerows(rows)
                counts[name] = len(rows)
    except OSError as error:
        raise InputError(f"cannot write the tables into {folder}: {error.strerror}") from error
    return counts


def _queries(device: str | None) -> dict[str, Select[Any]]:
    """Return, for each table, the query of the rows that a device's set holds, or of all."""
    every = {name: select(table) for name, table in TABLES.items()}
    if device is None:
        return every
    campaign, board, cost, call = schema.campaign, schema.board, schema.cost, schema.call
    workload, run = schema.workload, schema.model_run
    campaigns = select(campaign.c.id).where(campaign.c.device == device)
    boards = select(board.c.uuid).where(board.c.device == device)
    measured = select(_measured(campaigns, boards, device))
    its_sets = select(campaign.c.source_id).where(campaign.c.device == device)
    calling = select(call.c.workload_id).where(call.c.configuration_id.in_(measured))
    ran = select(run.c.workload_id).where(run.c.campaign.in_(campaigns))
    workloads = select(workload.c.id).where(
        or_(workload.c.source_id.in_(its_sets), workload.c.id.in_(calling), workload.c.id.in_(ran))
    )
    called = select(call.c.configuration_id).where(call.c.workload_id.in_(workloads))
    hosts = select(campaign.c.host).where(campaign.c.device == device)
    configuration = schema.configuration.c.id
    chosen = {
        "devices": schema.device.c.slug == device,
        "hosts": schema.host.c.id.in_(hosts),
        "configurations": or_(configuration.in_(measured), configuration.in_(called)),
        "workloads": workload.c.id.in_(workloads),
        "calls": call.c.workload_id.in_(workloads),
        "visits": schema.visit.c.campaign.in_(campaigns),
        "host_visits": schema.host_visit.c.campaign.in_(campaigns),
        "model_runs": run.c.campaign.in_(campaigns),
        "costs": cost.c.board.in_(boards),
    }
    for name in ("boards", "campaigns", "calibrations", "learned", "profiles"):
        chosen[name] = TABLES[name].c.device == device
    return {name: query.where(chosen[name]) for name, query in every.items()}


def _measured(campaigns: Select[Any], boards: Select[Any], device: str) -> Subquery:
    """Return the row numbers of the configurations that a device's boards have seen."""
    visit, host_visit, cost, profile = schema.visit, schema.host_visit, schema.cost, schema.profile
    return union(
        select(visit.c.configuration_id).where(visit.c.campaign.in_(campaigns)),
        select(host_visit.c.configuration_id).where(host_visit.c.campaign.in_(campaigns)),
        select(cost.c.configuration_id).where(cost.c.board.in_(boards)),
        select(profile.c.configuration_id).where(profile.c.device == device),
    ).subquery()


@contextmanager
def _copied(store: Store, path: Path, device: str | None = None) -> Iterator[Store]:
    """Yield a new database of a device's rows, or of all, with the raw samples that are at hand."""
    with open_store(str(path)) as made:
        with store.reading() as source, made.writing() as target:
            _copy(source, target, {TABLES[n]: query for n, query in _queries(device).items()})
            for folder in folders_of(source):
                put_samples(target, folder)
        yield made


def _copy(source: Connection, target: Connection, queries: Mapping[Table, Select[Any]]) -> None:
    """Copy rows into tables as they are, without what only their own database knows."""
    for table, query in queries.items():
        columns = [each for each in query.selected_columns if each.name not in schema.INSIDE]
        found = source.execute(query.with_only_columns(*columns), execution_options=_IN_PARTS)
        for part in found.mappings().partitions():
            new = [dict(row) for row in part]
            for row in new:  # a failure's reason may have several lines
                if row.get("reason") and not row["reason"].isprintable():
                    row["reason"] = "".join(s if s.isprintable() else " " for s in row["reason"])
            target.execute(insert(table), new)


# into the database


@contextmanager
def incoming(path: Path) -> Iterator[Store]:
    """Yield what may be imported from a path, checked: a published set, or a job's database.

    Costs of a job that was killed are not what its visits say; they are derived anew.

    Raises:
        DatabaseError: it is a database, but not of opdb's.
        InputError: it is neither, or a row of it is not what it says it is.
    """
    if path.is_dir() or not (path.is_file() or path.suffix in (".sqlite", ".db")):
        with opened(path, trusted=is_packaged(path)) as found:
            yield found
        return
    with (
        tempfile.TemporaryDirectory() as aside,
        open_store(str(path), create=False) as job,
        _copied(job, Path(aside, path.name)) as copied,
    ):
        with copied.writing() as connection:
            connection.execute(delete(schema.cost))
        check(copied, path)
        prove(copied, path)
        yield copied


def import_set(
    store: Store, path: Path, *, trusted: bool = False, source: tuple[str, str] | None = None
) -> Imported:
    """Take a published set, or a job's database, into the database; what is there already stays.

    A trusted set is taken as it stands. Errors are those of `incoming` and of `merge`.
    """
    with opened(path, trusted=True) if trusted else incoming(path) as found:
        return merge(store, found, path, source)


def merge(
    store: Store, found: Store, path: Path, source: tuple[str, str] | None = None
) -> Imported:
    """Take what `incoming` yields of a path into the database, in one transaction.

    What an earlier import of the same source brought in is replaced, so that a job's database that
    has grown can come again. `source` is the name and fingerprint that it is remembered by; the
    path and its fingerprint when None.

    Raises:
        InputError: it is the database itself.
    """
    if store.path is not None and store.path.resolve() == path.resolve():
        raise InputError(f"{path} is the database itself; name another with --db, or another job's")
    name, seen = source or (str(path.resolve()), fingerprint(path))
    attached = found.path if store.path is not None else None
    with store.writing(incoming=attached) as connection:
        before = _counts(connection)
        number = _forget_source(connection, name, seen)
        beside = MetaData()
        theirs = {
            table: table.to_metadata(beside, schema="pg_temp" if attached is None else "incoming")
            for table in schema.metadata.sorted_tables
        }
        if attached is None:  # temporary tables take its place, found after those of the database
            places = "current_setting('search_path') || ', pg_temp'"
            connection.exec_driver_sql(f"SELECT set_config('search_path', {places}, true)")
            beside.create_all(connection, checkfirst=False)
            with found.reading() as reading:
                _copy(reading, connection, {theirs[t]: select(t) for t in TABLES.values()})
        for table in TABLES.values():
            _insert(connection, table, theirs, number)
        counts = _counts(connection, theirs)
        after = _counts(connection)
        if attached is None:
            beside.drop_all(connection, checkfirst=False)
    return Imported(counts, {name: max(0, after[name] - before[name]) for name in counts})


def _insert(
    connection: Connection, table: Table, theirs: Mapping[Table, Table], source: int
) -> None:
    """Insert the rows of another database's table, the references followed.

    Costs that rest on fewer visits than those there, and estimates that were learned earlier, are
    not taken.
    """
    their, workload = theirs[table], schema.workload
    known: dict[str, ColumnElement[Any]] = {
        name: column for name, column in their.c.items() if name not in schema.INSIDE
    }
    joined: FromClause = their
    for inside, outside in schema.REFERENCES.items():
        if inside in known:
            target = schema.metadata.tables[outside]
            joined = joined.join(theirs[target], theirs[target].c.id == their.c[inside])
            joined = joined.join(target, target.c.key == theirs[target].c.key)
            known[inside] = target.c.id
    identity = [column.name for column in table.primary_key]
    if "key" in known:
        identity = ["key"]
        del known["id"]
    if "source_id" in table.c:
        known["source_id"] = literal(source)
    conditions: list[ColumnElement[bool]] = [true()]
    if table is workload:
        # One that was asked for here or in the set, other than by a sweep, stays asked for.
        asked_for = select(their.c.key).where(~their.c.swept)
        wanted = update(workload).where(workload.c.key.in_(asked_for)).values(swept=False)
        connection.execute(wanted)
    elif table is schema.call:
        conditions = [workload.c.source_id == source]
        ours = select(workload.c.id).where(
            *conditions, workload.c.key.in_(select(theirs[workload].c.key))
        )
        connection.execute(delete(table).where(table.c.workload_id.in_(ours)))
    query = select(*known.values()).select_from(joined).where(*conditions)
    statement = insert_into(connection, table).from_select(list(known), query)
    new = statement.excluded
    changed = {name: new[name] for name in known if name not in identity}
    if table is workload:  # those that were harvested here, or came with another set, stay
        changed |= {"swept": and_(new.swept, table.c.swept), "touched_bytes": null()}
        stays = table.c.source_id == source
    elif table is schema.cost:
        stays = new.visits >= table.c.visits
    elif table is schema.learned:
        stays = new.trained_at >= table.c.trained_at
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=identity))
        return
    connection.execute(
        statement.on_conflict_do_update(index_elements=identity, set_=changed, where=stays)
    )


def _forget_source(connection: Connection, name: str, seen: str) -> int:
    """Remove the measurements an earlier import of a source brought; return its row number."""
    source = schema.source
    upsert(connection, source, [{"name": name, "fingerprint": seen}], ["name"])
    number = connection.execute(select(source.c.id).where(source.c.name == name)).scalar_one()
    connection.execute(delete(schema.campaign).where(schema.campaign.c.source_id == number))
    return int(number)


def _counts(connection: Connection, theirs: Mapping[Table, Table] | None = None) -> dict[str, int]:
    """Return the rows of each table by its name in `TABLES`."""
    counts = (
        select(func.count())
        .select_from((theirs or {}).get(table, table))
        .scalar_subquery()
        .label(name)
        for name, table in TABLES.items()
    )
    return dict(connection.execute(select(*counts)).mappings().one())
