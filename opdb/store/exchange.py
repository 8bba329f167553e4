"""Published sets out of the database and into it.

An import is one transaction: a set comes in whole or not at all. Keys are recomputed from what
they are keys of, every reference is followed, and no field is ever run.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import (
    Column,
    Connection,
    Select,
    Subquery,
    delete,
    func,
    insert,
    or_,
    select,
    union,
    update,
)

from opdb.errors import InputError, UnknownNameError
from opdb.garbage import gc_paused
from opdb.store import database, schema
from opdb.store.deriving import costs_of
from opdb.store.proving import STATED, check_facts, proved
from opdb.store.rows import COST, NewRow
from opdb.store.set_reading import Contents, read_set
from opdb.store.set_samples import SAMPLES, looked_up, without_samples
from opdb.store.sets import FILES, Columns, SetFile, read_file, write_file
from opdb.store.shorthand import CALLS, KERNELS, REFERRED, in_short
from opdb.store.store import Store
from opdb.store.tallies import count_new, recount
from opdb.store.writing import (
    in_parts,
    insert_columns,
    numbers,
    save_sequences,
    upsert,
    upsert_columns,
)

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
    """The rows of a set, all and new ones, that an import found, by file name without `.csv`."""

    found: Mapping[str, int]
    added: Mapping[str, int]


def export_set(store: Store, folder: Path, *, device: str, costs: bool = True) -> dict[str, int]:
    """Write a device's set into a folder; return the rows by file name without `.csv`.

    The set holds the device's campaigns with all their measurements, the costs that follow from
    these, and every workload that has a measurement, or came with a set of the device. Files are
    replaced only when all are whole; where that is interrupted, the folder is no set until it is
    written again. Without `costs` it holds none: the importer derives them anew.

    Raises:
        UnknownNameError: the database holds no such device.
        InputError: the folder holds another device's set, or cannot be written.
    """
    known = [found.slug for found in store.devices()]
    if device not in known:
        raise UnknownNameError("device", device, known, hint="(opdb show lists what is measured)")
    _check_target(folder, device)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{_ASIDE}*"):  # of an export that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=folder) as aside:
            with store.reading() as connection:
                queries = _queries(device)
                whole = {f.name: _exported(connection, f, queries[f.name]) for f in FILES}
            whole["costs.csv"] = _costs(store, device) if costs else []
            written = in_short(whole)
            samples = {}
            for file in FILES:
                if file.table.name in SAMPLES:
                    rows, packed = without_samples(file.table, written[file.name])
                    written[file.name], samples[SAMPLES[file.table.name]] = rows, packed
            for name, found in written.items():
                write_file(Path(aside, name), _header(name), found)
            for name, packed in samples.items():
                Path(aside, name).write_bytes(packed)
            # Without its first file a folder is no set: a kill between two leaves none, not a mix.
            (folder / FILES[0].name).unlink(missing_ok=True)
            for name in (*samples, *reversed(written)):
                Path(aside, name).replace(folder / name)
    except OSError as error:
        raise InputError(f"cannot write the set into {folder}: {error.strerror}") from error
    return {Path(name).stem: len(found) for name, found in whole.items()}


@gc_paused()
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
    name, seen = source or (str(folder.resolve()), database.fingerprint(folder))
    contents = proved(read_set(folder)) if contents is None else contents
    with store.writing(alone=True) as connection:
        before = _counts(connection)
        visited = _visited(connection, name)
        number = _forget_source(connection, name, seen)
        _check_known(connection, contents)
        known: Known = {}
        for file in FILES:
            _insert(connection, file, contents[file.name], number, known)
            if file.table.name in schema.REFERENCES.values():
                keys = contents[file.name].values["key"]
                known[file.table.name] = numbers(connection, file.table, keys)
        after = _counts(connection)
        visits = _numbered(contents["visits.csv"], known)
        if not visited and after["visits"] - before["visits"] == len(visits):
            count_new(connection, visits.values)
        else:
            recount(connection, visited | set(visits.values["configuration_id"]))
    found = {Path(file.name).stem: len(contents[file.name]) for file in FILES}
    added = {stem: max(0, after[stem] - before[stem]) for stem in found}
    return Imported(found, added)


def _check_known(connection: Connection, contents: Contents) -> None:
    """Check that a set does not contradict what the database has of its device and hosts.

    Raises:
        InputError: it does; the message names the field.
    """
    for column, apart in _LASTING.items():
        [(name, key)] = [(f.name, f.order[0]) for f in FILES if f.table is column.table]
        stored: dict[Any, Any] = dict(
            map(tuple, connection.execute(select(column.table.c[key], column)))
        )
        for number, row in enumerate(contents[name].rows()):
            there, here = row[column.name], stored.get(row[key])
            alike = None in (here, there) or here == there
            if not alike and not (apart and math.isclose(here or 0.0, there, rel_tol=apart)):
                why = f"the database has {here!r} of this {column.table.name}"
                raise contents[name].error(number, column.name, str(there), why)
    devices = contents["device.csv"].values["slug"]
    known = {
        name: Columns(Path(name), [], {column.name: connection.scalars(query).all()})
        for name, column in STATED.items()
        for query in [select(column).where(column.table.c.device.in_(devices))]
    }
    check_facts(contents, {}, known)


def _costs(store: Store, device: str) -> list[NewRow]:
    """Return the costs that a device's campaigns give; those stored may be of a killed bench."""
    boards = [board.uuid for board in store.boards(device)]
    found = [COST.row(cost) for board in boards for cost in costs_of(store, board, device)]
    [order] = [file.order for file in FILES if file.table is schema.cost]
    return sorted(found, key=lambda row: tuple(row[name] for name in order))


def _check_target(folder: Path, device: str) -> None:
    """Check that a folder can take a device's set.

    Raises:
        InputError: it is a file, or another device's set is in it.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the set")
    if not (folder / "device.csv").exists():
        return
    there = read_file(FILES[0], folder).values["slug"]
    if list(there) != [device]:
        raise InputError(
            f"{folder} holds the set of {', '.join(there) or 'no device'}, not of {device}; "
            "give another folder"
        )


def _queries(device: str) -> dict[str, Select[Any]]:
    """Return, for each file, the query of the rows that a device's set holds."""
    campaign, board, cost, call = schema.campaign, schema.board, schema.cost, schema.call
    campaigns = select(campaign.c.id).where(campaign.c.device == device)
    boards = select(board.c.uuid).where(board.c.device == device)
    of_campaigns = {
        table.name: table.c.campaign.in_(campaigns)
        for table in (schema.visit, schema.host_visit, schema.model_run)
    }
    measured = _measured(campaigns, boards, device)
    its_sets = select(campaign.c.source_id).where(campaign.c.device == device)
    workloads = select(schema.workload.c.id).where(
        or_(
            schema.workload.c.source_id.in_(its_sets),
            schema.workload.c.id.in_(
                select(call.c.workload_id).where(call.c.configuration_id.in_(select(measured)))
            ),
            schema.workload.c.id.in_(
                select(schema.model_run.c.workload_id).where(of_campaigns["model_run"])
            ),
        )
    )
    called = select(call.c.configuration_id).where(call.c.workload_id.in_(workloads))
    hosts = select(campaign.c.host).where(campaign.c.device == device)
    configuration = schema.configuration
    return {
        "device.csv": select(schema.device).where(schema.device.c.slug == device),
        "boards.csv": select(board).where(board.c.device == device),
        "hosts.csv": select(schema.host).where(schema.host.c.id.in_(hosts)),
        "campaigns.csv": select(campaign).where(campaign.c.device == device),
        "configurations.csv": select(configuration).where(
            or_(configuration.c.id.in_(select(measured)), configuration.c.id.in_(called))
        ),
        "workloads.csv": select(schema.workload).where(schema.workload.c.id.in_(workloads)),
        "calls.csv": select(call).where(call.c.workload_id.in_(workloads)),
        "calibrations.csv": select(schema.board_calibration).where(
            schema.board_calibration.c.device == device
        ),
        "visits.csv": select(schema.visit).where(of_campaigns["visit"]),
        "host_visits.csv": select(schema.host_visit).where(of_campaigns["host_visit"]),
        "model_runs.csv": select(schema.model_run).where(of_campaigns["model_run"]),
        "costs.csv": select(cost).where(cost.c.board.in_(boards)),
        "learned.csv": select(schema.learned).where(schema.learned.c.device == device),
        "profiles.csv": select(schema.profile).where(schema.profile.c.device == device),
    }


def _measured(campaigns: Select[Any], boards: Select[Any], device: str) -> Subquery:
    """Return the row numbers of the configurations that a device's boards have seen."""
    visit, host_visit, cost, profile = schema.visit, schema.host_visit, schema.cost, schema.profile
    return union(
        select(visit.c.configuration_id).where(visit.c.campaign.in_(campaigns)),
        select(host_visit.c.configuration_id).where(host_visit.c.campaign.in_(campaigns)),
        select(cost.c.configuration_id).where(cost.c.board.in_(boards)),
        select(profile.c.configuration_id).where(profile.c.device == device),
    ).subquery()


def _exported(connection: Connection, file: SetFile, query: Select[Any]) -> list[NewRow]:
    """Return a query's rows in order, with content keys in place of row numbers."""
    read = connection.execute(query).mappings().all()
    found = looked_up(connection, file.table, read) if file.table.name in SAMPLES else read
    names = {name: column.name for name, column in file.columns.items()}
    if file.table is schema.workload:
        names["sequence"] = "sequence"  # for `calls.csv`
    exported = [
        {name: _in_a_line(name, row[inside]) for name, inside in names.items()} for row in found
    ]
    for inside, name in schema.REFERENCES.items():
        if inside in file.table.c:
            table = schema.metadata.tables[name]
            keys = {row.id: row.key for row in connection.execute(select(table.c.id, table.c.key))}
            for row in exported:
                row[name] = keys[row[name]]
    return sorted(exported, key=lambda row: tuple(row[name] for name in file.order))


def _in_a_line(name: str, value: Any) -> Any:
    """Return a value as a file holds it: the reason of a failure may have several lines."""
    if name == "reason" and value is not None and not value.isprintable():
        return "".join(sign if sign.isprintable() else " " for sign in value)
    return value


def _header(name: str) -> Sequence[str]:
    """Return the columns of a file as this version writes it."""
    special = {"calls.csv": CALLS, "kernels.csv": KERNELS}
    return special.get(name) or tuple(next(file for file in FILES if file.name == name).columns)


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


def _insert(
    connection: Connection, file: SetFile, found: Columns, source: int, known: Known
) -> None:
    """Insert a file's rows, the references followed."""
    if not len(found):
        return
    table, identity = file.table, [column.name for column in file.table.primary_key]
    if table is schema.call:
        _insert_calls(connection, _numbered(found, known), source)
        return
    _check_references(connection, found, file)
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


def _insert_workloads(connection: Connection, found: Columns, source: int) -> None:
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


def _insert_calls(connection: Connection, found: Columns, source: int) -> None:
    """Insert the calls of the workloads that came from this source, in place of earlier ones."""
    workload, call = schema.workload, schema.call
    ours = select(workload.c.id).where(workload.c.source_id == source)
    chosen = set(connection.scalars(ours))
    found = found.only([number in chosen for number in found.values["workload_id"]])
    columns = dict(found.values)
    sequences = dict(zip(columns["workload_id"], columns.pop("sequence"), strict=True))
    connection.execute(delete(call).where(call.c.workload_id.in_(sequences)))
    insert_columns(connection, insert(call), columns)
    save_sequences(connection, sequences)


def _foreign_keys(connection: Connection, source: int) -> set[str]:
    """Return the keys of the workloads that did not come from this source."""
    workload = schema.workload
    query = select(workload.c.key).where(
        or_(workload.c.source_id.is_(None), workload.c.source_id != source)
    )
    return set(connection.scalars(query))


def _numbered(found: Columns, known: Known) -> Columns:
    """Return the same with row numbers in place of content keys."""
    values = dict(found.values)
    for inside, name in schema.REFERENCES.items():
        if name in values:
            values[inside] = list(map(known[name].__getitem__, values.pop(name)))
    return replace(found, values=values)


def _check_references(connection: Connection, found: Columns, file: SetFile) -> None:
    """Check that the devices, boards and hosts that rows name are there.

    What else rows refer to was followed when the set was read.

    Raises:
        InputError: one is not.
    """
    for constraint in file.table.foreign_key_constraints:
        names = [reference.parent.name for reference in constraint.elements]
        if not found.values.keys() >= set(names) or (len(names) == 1 and names[0] in REFERRED):
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
    """Return the rows of each table by its file's name without `.csv`."""
    counts = (
        select(func.count()).select_from(file.table).scalar_subquery().label(Path(file.name).stem)
        for file in FILES
    )
    return dict(connection.execute(select(*counts)).mappings().one())
