"""Published sets out of the database and into it.

An import is one transaction: a set comes in whole or not at all. A set is written as it is read: by
an import into a new database.
"""

from __future__ import annotations

import csv
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, delete, func, insert, or_, select, update

from opdb.errors import InputError, UnknownNameError
from opdb.records import Json
from opdb.store import database, schema
from opdb.store.deriving import costs_of
from opdb.store.fields import field_of
from opdb.store.opening import (
    FILE,
    MANIFEST,
    SAMPLES,
    device_of,
    fingerprint,
    open_store,
    write_manifest,
)
from opdb.store.rows import COST, in_parts, insert_columns, numbers, upsert, upsert_columns
from opdb.store.sets import (
    STATED,
    TABLES,
    Contents,
    SetRows,
    check,
    check_facts,
    check_whole,
    contents_of,
    having_samples,
    packed,
    proved,
    read_set,
    without_samples,
)
from opdb.store.store import Store
from opdb.store.visits import count_new, recount

_ASIDE = ".opdb-"
"""How the folder's name begins in which a set is written before its files are put in place."""

_NEVER_LESS = {schema.cost: "visits", schema.learned: "trained_at"}
"""Tables whose stored rows give way to a set's, unless theirs is less in this column: costs that
rest on fewer visits, estimates that were learned earlier."""

_LASTING: Mapping[Column[Any], float] = {
    schema.device.c.name: 0.0,
    schema.device.c.type: 0.0,
    schema.device.c.power_limit_w: 0.0,
    schema.device.c.memory_bytes: 0.02,
    schema.device.c.l2_bytes: 0.0,
    schema.device.c.max_clock_hz: 0.0,
    schema.host.c.cpu: 0.0,
}
"""Columns in which a set and the database agree on a device or a host, and the share by which they
may differ all the same: drivers set aside more or less memory. A host's system is upgraded."""

Known: TypeAlias = dict[str, Mapping[str, int]]
"""The row number of each key of a set, by the name of the table."""


@dataclass(frozen=True)
class Imported:
    """The rows of a set, all and new ones, that an import found, by the names of `TABLES`."""

    found: Mapping[str, int]
    added: Mapping[str, int]


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
    _check_target(folder, device)
    contents = having_samples(store, contents_of(store, device, Path(store.location)))
    contents["costs"] = _costs(store, device, contents["costs"])
    try:
        write_set(folder, contents, {**(about or {}), "device": device, "name": known[device]})
    except OSError as error:
        raise InputError(f"cannot write the set into {folder}: {error.strerror}") from error
    return {name: len(found) for name, found in contents.items()}


def write_set(folder: Path, contents: Contents, about: Mapping[str, Json]) -> None:
    """Write the files of a set.

    Raises:
        OSError: they cannot be written.
    """
    contents, lines = dict(contents), []
    for name in ("visits", "host_visits"):
        contents[name], apart = without_samples(contents[name])
        lines += apart
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_ASIDE}*"):  # of an export that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=folder) as aside:
        path = Path(aside, Path(FILE).stem)
        engine = database.connect(database.as_url(str(path)), create=True, aside=True)
        try:
            with database.written_alone(engine) as connection:
                database.drop_indices(connection)
                _insert_all(connection, contents, None)
        finally:
            engine.dispose()
        Path(aside, FILE).write_bytes(packed(path.read_bytes()))
        if lines:
            Path(aside, SAMPLES).write_bytes(packed("".join(lines).encode()))
        write_manifest(Path(aside), about)
        # Without its database a folder is no set: a kill between two leaves none, not a mix.
        for name in (FILE, SAMPLES):
            (folder / name).unlink(missing_ok=True)
        for name in (MANIFEST, *([SAMPLES] if lines else ()), FILE):
            Path(aside, name).replace(folder / name)


def export_csv(store: Store, folder: Path, *, device: str) -> dict[str, int]:
    """Write a device's rows as one CSV file a table, without raw samples; return how many each has.

    Rows refer to each other by content key; a JSON column is its text.

    Raises:
        InputError: the folder cannot be written.
    """
    contents = contents_of(store, device, Path(store.location))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, found in contents.items():
            names = [n for n in found.values if n not in found.table.c or not _is_raw(found, n)]
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(names)
                writer.writerows(zip(*(found.values[each] for each in names), strict=True))
    except OSError as error:
        raise InputError(f"cannot write the tables into {folder}: {error.strerror}") from error
    return {name: len(found) for name, found in contents.items()}


def _is_raw(found: SetRows, name: str) -> bool:
    return field_of(found.table.c[name]).verify is not None


def import_set(
    store: Store,
    folder: Path,
    *,
    contents: Contents | None = None,
    source: tuple[str, str] | None = None,
) -> Imported:
    """Take a published set into the database; what is there already stays.

    What an earlier import of the same source brought in is replaced. `contents` is what was read
    of it, taken as it stands; when None the folder is read and proved. `source` is the name and
    fingerprint that the set is remembered by; the folder's path and fingerprint when None.

    Raises:
        InputError: the folder is not a set, or a row is not what it says it is.
    """
    name, seen = source or (str(folder.resolve()), fingerprint(folder))
    contents = proved(read_set(folder)) if contents is None else contents
    with store.writing(alone=True) as connection:
        before = _counts(connection)
        visited = _visited(connection, name)
        number = _forget_source(connection, name, seen)
        _check_known(connection, contents)
        visits = _insert_all(connection, contents, number)
        after = _counts(connection)
        if not visited and after["visits"] - before["visits"] == len(visits):
            count_new(connection, visits.values)
        else:
            recount(connection, visited | set(visits.values["configuration_id"]))
    found = {name: len(rows) for name, rows in contents.items()}
    return Imported(found, {name: max(0, after[name] - before[name]) for name in found})


def import_database(store: Store, path: Path) -> Imported:
    """Take all measurements of a job's database into another; each device whole or not at all.

    It goes the way of a published set, device by device. Its costs are not read, for those of a job
    that was killed are not what its visits say; they are derived anew. What an earlier import of
    the same file brought is replaced, so that one that has grown can come again.

    Raises:
        DatabaseError: it is not a database of opdb's.
        InputError: a row of it is not what it says it is, or it is this database itself.
    """
    if store.path is not None and store.path.resolve() == path.resolve():
        raise InputError(f"{path} is the database itself; name another with --db, or another job's")
    found = dict.fromkeys(TABLES, 0)
    added = dict.fromkeys(TABLES, 0)
    with open_store(str(path), create=False) as job:
        check_whole(job, path)
        stat = path.stat()
        for device in job.devices():
            contents = having_samples(job, contents_of(job, device.slug, path))
            contents["costs"] = contents["costs"].only([False] * len(contents["costs"]))
            check(contents)
            source = f"{path.resolve()} {device.slug}", f"{stat.st_size} {stat.st_mtime_ns}"
            imported = import_set(store, path, contents=proved(contents), source=source)
            for name in TABLES:
                found[name] += imported.found[name]
                added[name] += imported.added[name]
    return Imported(found, added)


def _insert_all(connection: Connection, contents: Contents, source: int | None) -> SetRows:
    """Insert the rows of a set, of a source (row number); return its visits as they are stored."""
    known: Known = {}
    for found in contents.values():
        _insert(connection, found, source, known)
        if found.table.name in schema.REFERENCES.values():
            known[found.table.name] = numbers(connection, found.table, found.values["key"])
    return _numbered(contents["visits"], known)


def _check_known(connection: Connection, contents: Contents) -> None:
    """Check that a set does not contradict what the database has of its device and hosts.

    Raises:
        InputError: it does; the message names the field.
    """
    for column, apart in _LASTING.items():
        [found] = [rows for rows in contents.values() if rows.table is column.table]
        [key] = [each.name for each in column.table.primary_key]
        stored: dict[Any, Any] = dict(
            map(tuple, connection.execute(select(column.table.c[key], column)))
        )
        for number, row in enumerate(found.rows()):
            there, here = row[column.name], stored.get(row[key])
            alike = None in (here, there) or here == there
            if not alike and not (apart and math.isclose(here or 0.0, there, rel_tol=apart)):
                why = f"the database has {here!r} of this {column.table.name}"
                raise found.error(number, column.name, there, why)
    devices = contents["devices"].values["slug"]
    known = {
        name: replace(contents[name], values={column.name: connection.scalars(query).all()})
        for name, column in STATED.items()
        for query in [select(column).where(column.table.c.device.in_(devices))]
    }
    check_facts(contents, {}, known)


def _costs(store: Store, device: str, stored: SetRows) -> SetRows:
    """Return the costs that a device's campaigns give; those stored may be of a killed bench."""
    boards = [board.uuid for board in store.boards(device)]
    found = [COST.row(cost) for board in boards for cost in costs_of(store, board, device)]
    _, order = TABLES["costs"]
    found.sort(key=lambda row: tuple(row[name] for name in order))
    return replace(stored, values={name: [row[name] for row in found] for name in stored.values})


def _check_target(folder: Path, device: str) -> None:
    """Check that a folder can take a device's set.

    Raises:
        InputError: it is a file, or another device's set is in it.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the set")
    there = device_of(folder)
    if there not in (None, device):
        raise InputError(f"{folder} holds the set of {there}, not of {device}; give another folder")


def _visited(connection: Connection, source: str) -> set[int]:
    """Return the configurations (row numbers) that campaigns of a source have visits of."""
    visit, campaign = schema.visit, schema.campaign
    query = (
        select(visit.c.configuration_id)
        .distinct()
        .join(campaign, visit.c.campaign == campaign.c.id)
        .join(schema.source, campaign.c.source_id == schema.source.c.id)
        .where(schema.source.c.name == source)
    )
    return set(connection.scalars(query))


def _forget_source(connection: Connection, name: str, seen: str) -> int:
    """Remove the measurements an earlier import of a source brought; return its row number."""
    source = schema.source
    upsert(connection, source, [{"name": name, "fingerprint": seen}], ["name"])
    number = connection.execute(select(source.c.id).where(source.c.name == name)).scalar_one()
    connection.execute(delete(schema.campaign).where(schema.campaign.c.source_id == number))
    return int(number)


def _insert(connection: Connection, found: SetRows, source: int | None, known: Known) -> None:
    """Insert a table's rows, the references followed."""
    if not len(found):
        return
    table, identity = found.table, [column.name for column in found.table.primary_key]
    if table is schema.call:
        _insert_calls(connection, _numbered(found, known), source)
        return
    _check_references(connection, found)
    found = _numbered(found, known)
    if "source_id" in table.c:
        found = found.having(source_id=[source] * len(found))
    if table is schema.workload:
        _insert_workloads(connection, found, source)
    elif table in _NEVER_LESS:
        upsert_columns(connection, table, found.values, identity, no_less=_NEVER_LESS[table])
    else:
        names = ["key"] if table is schema.configuration else identity
        upsert_columns(connection, table, found.values, names, replace=False)


def _insert_workloads(connection: Connection, found: SetRows, source: int | None) -> None:
    """Insert workloads; those that were harvested here stay, those of this source are replaced.

    A workload that was asked for here or in the set, other than by a sweep, stays asked for.
    """
    table = schema.workload
    here = set(connection.scalars(select(table.c.key).where(~table.c.swept)))
    keys, swept = found.values["key"], found.values["swept"]
    asked_for = [key for key, by_sweep in zip(keys, swept, strict=True) if not by_sweep]
    for some in in_parts(asked_for):
        connection.execute(update(table).where(table.c.key.in_(some)).values(swept=False))
    found = found.having(
        touched_bytes=[None] * len(found),
        swept=[by_sweep and key not in here for key, by_sweep in zip(keys, swept, strict=True)],
    )
    mine = _foreign_keys(connection, source)
    found = found.only([key not in mine for key in keys])
    upsert_columns(connection, table, found.values, ["key"])


def _insert_calls(connection: Connection, found: SetRows, source: int | None) -> None:
    """Insert the calls of the workloads that came from this source, in place of earlier ones."""
    workload, call = schema.workload, schema.call
    ours = select(workload.c.id).where(workload.c.source_id == source)
    chosen = set(connection.scalars(ours))
    found = found.only([number in chosen for number in found.values["workload_id"]])
    for some in in_parts(found.values["workload_id"]):
        connection.execute(delete(call).where(call.c.workload_id.in_(some)))
    insert_columns(connection, insert(call), found.values)


def _foreign_keys(connection: Connection, source: int | None) -> set[str]:
    """Return the keys of the workloads that did not come from this source."""
    workload = schema.workload
    query = select(workload.c.key).where(
        or_(workload.c.source_id.is_(None), workload.c.source_id != source)
    )
    return set(connection.scalars(query))


def _numbered(found: SetRows, known: Known) -> SetRows:
    """Return the same with row numbers in place of content keys."""
    values = dict(found.values)
    for inside, name in schema.REFERENCES.items():
        if name in values:
            values[inside] = list(map(known[name].__getitem__, values.pop(name)))
    return replace(found, values=values)


def _check_references(connection: Connection, found: SetRows) -> None:
    """Check that the devices, boards, hosts and campaigns that rows name are there.

    Raises:
        InputError: one is not.
    """
    for constraint in found.table.foreign_key_constraints:
        names = [reference.parent.name for reference in constraint.elements]
        if not found.values.keys() >= set(names):
            continue
        targets = [reference.column for reference in constraint.elements]
        known = set(map(tuple, connection.execute(select(*targets))))
        for row, named in enumerate(zip(*(found.values[name] for name in names), strict=True)):
            if named not in known:
                why = f"no such {targets[0].table.name}"
                others = list(zip(names, named, strict=True))[1:]
                why += "".join(f" of {name} {value!r}" for name, value in others)
                raise found.error(row, names[0], named[0], why)


def _counts(connection: Connection) -> dict[str, int]:
    """Return the rows of each table by its name in `TABLES`."""
    counts = (
        select(func.count()).select_from(table).scalar_subquery().label(name)
        for name, (table, _) in TABLES.items()
    )
    return dict(connection.execute(select(*counts)).mappings().one())
