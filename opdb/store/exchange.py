"""Published sets out of the database and into it.

An import is one transaction: a set comes in whole or not at all. Keys are recomputed from what
they are keys of, every reference is followed, and no field is ever run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, Subquery, delete, func, insert, or_, select, union

from opdb.errors import InputError, UnknownNameError
from opdb.records import Configuration
from opdb.store import database, rows, schema
from opdb.store.rows import NewRow
from opdb.store.sets import FILES, REFERENCES, Place, SetFile, read_file, write_file
from opdb.store.store import Store
from opdb.store.tallies import recount
from opdb.store.writing import execute_many, numbers, upsert

Placed: TypeAlias = list[tuple[Place, NewRow]]

Contents: TypeAlias = dict[str, Placed]
"""A set's rows by file name, each with the place where it stands."""


@dataclass(frozen=True)
class Imported:
    """What an import found in a set and what of it was new, rows by file name without `.csv`."""

    found: Mapping[str, int]
    added: Mapping[str, int]


def export_set(store: Store, folder: Path, *, device: str) -> dict[str, int]:
    """Write a device's set into a folder; return the rows by file name without `.csv`.

    The set holds the device's campaigns with all that they saw, the costs of its boards, and
    every workload of which something was measured. A file is replaced only when all are whole.

    Raises:
        UnknownNameError: the database holds no such device.
        InputError: the folder holds another device's set, or cannot be written.
    """
    known = [found.slug for found in store.devices()]
    if device not in known:
        raise UnknownNameError("device", device, known, hint="(opdb status lists what is measured)")
    _check_target(folder, device)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".opdb-", dir=folder) as aside:
            with store.reading() as connection:
                queries = _queries(device)
                counts = {
                    Path(file.name).stem: write_file(
                        file, Path(aside), _exported(connection, file, queries[file.name])
                    )
                    for file in FILES
                }
            for file in FILES:
                Path(aside, file.name).replace(folder / file.name)
    except OSError as error:
        raise InputError(f"cannot write the set into {folder}: {error.strerror}") from error
    return counts


def read_set(folder: Path) -> Contents:
    """Read a published set and check every field and key of it; no database is touched.

    Raises:
        InputError: the folder is not a set, or a row is not what it says it is.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; give the folder of a published set")
    contents = {file.name: read_file(file, folder) for file in FILES}
    _check_configurations(contents["configurations.csv"])
    _check_workloads(contents["workloads.csv"])
    _check_calls(contents["calls.csv"])
    return contents


def import_set(
    store: Store,
    folder: Path,
    *,
    contents: Contents | None = None,
    source: tuple[str, str] | None = None,
) -> Imported:
    """Take a published set into the database; what is there already stays.

    What an earlier import of the same source brought in is replaced. `contents` is what `read_set`
    returned, where that was called before. `source` is the name and fingerprint that the set is
    remembered by; the folder's path and fingerprint when None.

    Raises:
        InputError: the folder is not a set, or a row is not what it says it is.
    """
    name, seen = source or (str(folder.resolve()), database.fingerprint(folder))
    contents = read_set(folder) if contents is None else contents
    with store.writing(alone=True) as connection:
        before = _counts(connection)
        visited = _visited(connection, name)
        number = _forget_source(connection, name, seen)
        for file in FILES:
            _insert(connection, file, contents[file.name], number)
        recount(connection, visited | _visited(connection, name))
        after = _counts(connection)
    found = {Path(file.name).stem: len(contents[file.name]) for file in FILES}
    added = {stem: max(0, after[stem] - before[stem]) for stem in found}
    return Imported(found, added)


def _check_target(folder: Path, device: str) -> None:
    """Check that a folder can take a device's set.

    Raises:
        InputError: it is a file, or another device's set is in it.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the set")
    if not (folder / "device.csv").exists():
        return
    there = [row["slug"] for _, row in read_file(FILES[0], folder)]
    if there != [device]:
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
    measured = _measured(campaigns, boards)
    workloads = select(schema.workload.c.id).where(
        or_(
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
    }


def _measured(campaigns: Select[Any], boards: Select[Any]) -> Subquery:
    """Return the row numbers of the configurations that a device's campaigns visited."""
    visit, host_visit, cost = schema.visit, schema.host_visit, schema.cost
    return union(
        select(visit.c.configuration_id).where(visit.c.campaign.in_(campaigns)),
        select(host_visit.c.configuration_id).where(host_visit.c.campaign.in_(campaigns)),
        select(cost.c.configuration_id).where(cost.c.board.in_(boards)),
    ).subquery()


def _exported(connection: Connection, file: SetFile, query: Select[Any]) -> list[NewRow]:
    """Return a query's rows with content keys in place of row numbers."""
    columns = {name: column.name for name, column in file.columns.items()}
    found = connection.execute(query).mappings().all()
    exported = [{name: row[inside] for name, inside in columns.items()} for row in found]
    for inside, name in REFERENCES.items():
        if inside in file.table.c:
            table = schema.metadata.tables[name]
            keys = {row.id: row.key for row in connection.execute(select(table.c.id, table.c.key))}
            for row in exported:
                row[name] = keys[row[name]]
    return exported


def _check_configurations(placed: Placed) -> None:
    """Check that each configuration's text is canonical and that its key and kind are its own."""
    for place, row in placed:
        try:
            configuration = Configuration.from_json(row["json"])
            text, key = configuration.json, configuration.key
        except (ValueError, TypeError, RecursionError) as error:
            raise place.error("json", row["json"], str(error)) from error
        if text != row["json"]:
            raise place.error("json", row["json"], "not a configuration's canonical JSON")
        if row["key"] != key:
            raise place.error("key", row["key"], f"the configuration's key is {key}")
        if row["kind"] != configuration.kind:
            raise place.error("kind", row["kind"], f"the configuration is {configuration.kind!r}")


def _check_workloads(placed: Placed) -> None:
    """Check that each workload's key is its own."""
    for place, row in placed:
        key = rows.read_workload(row).key
        if row["key"] != key:
            raise place.error("key", row["key"], f"the workload's key is {key}")


def _check_calls(placed: Placed) -> None:
    """Check that each workload's calls are numbered 0, 1, 2 … without a gap."""
    following: dict[str, int] = {}
    ordered = sorted(placed, key=lambda item: (item[1]["workload"], item[1]["position"]))
    for place, row in ordered:
        expected = following.get(row["workload"], 0)
        if row["position"] != expected:
            raise place.error(
                "position", str(row["position"]), f"call {expected} of the workload is missing"
            )
        following[row["workload"]] = expected + 1


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


def _insert(connection: Connection, file: SetFile, placed: Placed, source: int) -> None:
    """Insert a file's rows, the references followed."""
    if file.table is schema.call:
        _insert_calls(connection, placed, source)
        return
    _check_references(connection, placed, file)
    new = _numbered(connection, placed)
    if "source_id" in file.table.c:
        new = [{**row, "source_id": source} for row in new]
    if file.table is schema.workload:
        # Workloads that were harvested here stay; those of an earlier import are replaced.
        mine = _foreign_keys(connection, source)
        ours = [{**row, "touched_bytes": None} for row in new if row["key"] not in mine]
        upsert(connection, file.table, ours, ["key"])
        return
    if file.table is schema.cost:
        new = _no_worse(connection, new)
        upsert(connection, file.table, new, [column.name for column in schema.cost.primary_key])
        return
    if file.table is schema.learned:
        upsert(connection, file.table, _no_older(connection, new), ["board"])
        return
    identity = "key" if file.table is schema.configuration else None
    names = [identity] if identity else [column.name for column in file.table.primary_key]
    upsert(connection, file.table, new, names, replace=False)


def _insert_calls(connection: Connection, placed: Placed, source: int) -> None:
    """Insert the calls of the workloads that came from this source, in place of earlier ones."""
    workload, call = schema.workload, schema.call
    ours = select(workload.c.id).where(workload.c.source_id == source)
    chosen = set(connection.scalars(ours))
    new = [row for row in _numbered(connection, placed) if row["workload_id"] in chosen]
    replaced = {row["workload_id"] for row in new}
    connection.execute(delete(call).where(call.c.workload_id.in_(replaced)))
    if new:
        execute_many(connection, insert(call), new)


def _foreign_keys(connection: Connection, source: int) -> set[str]:
    """Return the keys of the workloads that did not come from this source."""
    workload = schema.workload
    query = select(workload.c.key).where(
        or_(workload.c.source_id.is_(None), workload.c.source_id != source)
    )
    return set(connection.scalars(query))


def _no_worse(connection: Connection, new: list[NewRow]) -> list[NewRow]:
    """Return the costs that rest on at least as many visits as what is stored in their place."""
    identity = [column.name for column in schema.cost.primary_key]
    columns = [schema.cost.c[name] for name in identity]
    stored = {
        tuple(row[:-1]): row[-1]
        for row in connection.execute(select(*columns, schema.cost.c.visits))
    }
    return [
        row for row in new if row["visits"] >= stored.get(tuple(row[name] for name in identity), 0)
    ]


def _no_older(connection: Connection, new: list[NewRow]) -> list[NewRow]:
    """Return what was learned of boards no earlier than what is stored of them."""
    learned = schema.learned
    query = select(learned.c.board, learned.c.trained_at)
    stored = {row.board: row.trained_at for row in connection.execute(query)}
    return [row for row in new if row["trained_at"] >= stored.get(row["board"], "")]


def _numbered(connection: Connection, placed: Placed) -> list[NewRow]:
    """Put row numbers in place of content keys and return the rows.

    Raises:
        InputError: a key is not among the set's, nor in the database.
    """
    new = [row for _, row in placed]
    for inside, name in REFERENCES.items():
        if not new or name not in new[0]:
            continue
        known = numbers(connection, schema.metadata.tables[name], (row[name] for row in new))
        for place, row in placed:
            key = row.pop(name)
            if key not in known:
                raise place.error(name, key, f"no such {name} in the set")
            row[inside] = known[key]
    return new


def _check_references(connection: Connection, placed: Placed, file: SetFile) -> None:
    """Check that the campaigns, boards, devices and hosts that rows name are there.

    Raises:
        InputError: one is not.
    """
    for column in file.table.columns:
        for reference in column.foreign_keys:
            if column.name in REFERENCES or column.name == "source_id":
                continue
            known = set(connection.scalars(select(reference.column)))
            for place, row in placed:
                if row[column.name] not in known:
                    raise place.error(
                        column.name, row[column.name], f"no such {reference.column.table.name}"
                    )


def _counts(connection: Connection) -> dict[str, int]:
    """Return the rows of each table by its file's name without `.csv`."""
    return {
        Path(file.name).stem: connection.execute(
            select(func.count()).select_from(file.table)
        ).scalar_one()
        for file in FILES
    }
