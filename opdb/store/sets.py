"""Published sets out of the database and into it, and the databases of jobs.

A set is a folder with three files: `set.sqlite.xz`, a database of opdb's own tables, `samples.xz`,
the raw samples of its visits, and `manifest.json`. Rows are copied into a database of their own,
which is completed and checked there, and is packed, or taken into another database in one
transaction. A set may come from a stranger: `opened` checks every value, key and reference before
anything of it is used.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from hashlib import sha256
from itertools import chain, takewhile
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
from sqlalchemy import (
    text as sql,
)

from opdb.derive.costs import ESTIMATOR
from opdb.errors import DatabaseError, InputError, shown
from opdb.files import check_input, make_folder, write_file
from opdb.records import Configuration, Json, canonical_json
from opdb.store import rows, schema
from opdb.store.costs import alike, costs_of
from opdb.store.database import DAMAGE
from opdb.store.fields import (
    APART,
    LEFT_OUT,
    MOST_BYTES,
    STRETCHES,
    are_left_out,
    check_value,
    field_of,
    left_out,
    pack,
    unpack,
)
from opdb.store.opening import (
    FILE,
    MANIFEST,
    SAMPLES,
    SET_FILE_BYTES,
    check_manifest,
    device_of,
    fingerprint,
    is_packaged,
    open_store,
    sets_at_hand,
    write_manifest,
)
from opdb.store.rows import NewRow, insert_into, upsert
from opdb.store.store import Store
from opdb.tables import csv_text

TABLES: Mapping[str, Table] = {
    "devices": schema.device,
    "boards": schema.board,
    "hosts": schema.host,
    "campaigns": schema.campaign,
    "configurations": schema.configuration,
    "workloads": schema.workload,
    "calls": schema.call,
    "calibrations": schema.board_calibration,
    "visits": schema.visit,
    "host_visits": schema.host_visit,
    "model_runs": schema.model_run,
    "costs": schema.cost,
    "learned": schema.learned,
    "profiles": schema.profile,
}
"""The tables of a set, each after those it refers to."""


RAW = {
    schema.metadata.tables[name]: [schema.metadata.tables[name].c[each] for each in columns]
    for name, columns in APART.items()
}

SAMPLED = set(chain(*APART.values()))


# raw samples of a set
#
# A set's database has `-` in place of the raw samples of every visit but the anchors, which tell
# boards apart and are read with each prediction; host visits have `-` and the number of blocks in
# place of the times. `samples.xz` has a line for each of these visits: its id, a space, and one
# JSON object of its columns, unpacked (`opdb.store.fields` describes them).


def take_samples(connection: Connection) -> list[str]:
    """Take the raw samples out of the rows of a set's visits; return them as lines of a file."""
    lines = []
    for name, columns in APART.items():
        table = schema.metadata.tables[name]
        query = select(table).order_by(table.c.started_at, table.c.id)
        for row in connection.execute(query).mappings().all():
            texts = {each: row[each] for each in columns if row[each] is not None}
            if row.get("role") == "anchor" or not texts or any(map(are_left_out, texts.values())):
                continue
            samples = {each: unpack(text) for each, text in texts.items()}
            lines.append(f"{row['id']} {canonical_json(samples)}\n")
            left = {each: left_out(each, some) for each, some in samples.items()}
            connection.execute(update(table).where(table.c.id == row["id"]).values(left))
    return lines


def put_samples(connection: Connection, folder: Path) -> None:
    """Put the raw samples of a set's file into the rows of the visits that lack them, packed."""
    lacking = {
        table: [dict(row) for row in connection.execute(select(table).where(or_(*left))).mappings()]
        for table, columns in RAW.items()
        for left in [[column.startswith(LEFT_OUT) for column in columns]]
    }
    _fill(chain(*lacking.values()), folder)
    for table, found in lacking.items():
        for row in found:
            values = {column.name: row[column.name] for column in RAW[table]}
            if not any(map(are_left_out, values.values())):
                connection.execute(update(table).where(table.c.id == row["id"]).values(values))


def looked_up(
    connection: Connection, table: Table, visits: Sequence[Mapping[Any, Any]]
) -> list[NewRow]:
    """Return rows of a table with the raw samples that the sets have which they came with.

    A database that is built of the published sets leaves them where they are.
    """
    found = [dict(row) for row in visits]
    lacking = [row for row in found if any(are_left_out(row[name]) for name in APART[table.name])]
    for folder in folders_of(connection, {row["campaign"] for row in lacking}):
        _fill(lacking, folder)  # ends where the last of them is found
    return found


def _fill(visits: Iterable[NewRow], folder: Path) -> None:
    """Put the raw samples of a set's file into those of the rows that lack them, packed."""
    lacking = {row["id"]: row for row in visits if any(map(are_left_out, map(row.get, SAMPLED)))}
    for id_, line in takewhile(lambda _: lacking, _lines(folder / SAMPLES)):
        row = lacking.pop(id_, None)
        if row is None:
            continue
        try:
            samples = json.loads(line)
            row.update({name: pack(samples[name]) for name in SAMPLED & samples.keys()})
        except DAMAGE as error:
            raise InputError(f"{folder / SAMPLES}: {id_[:40]!r}: {_why(error)}") from error


def folders_of(connection: Connection, campaigns: set[str] | None = None) -> list[Path]:
    """Return the folders of the sets that campaigns (ids; all) came with."""
    campaign, source = schema.campaign, schema.source
    query = select(campaign.c.id, source.c.name).join(source, campaign.c.source_id == source.c.id)
    names = {n for id_, n in connection.execute(query) if campaigns is None or id_ in campaigns}
    sets = sets_at_hand()
    return [sets.get(name, Path(name)) for name in sorted(names)]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a file of samples: a visit's id, and its JSON."""
    if not path.exists():
        return
    try:
        check_input(path, "a file of a set", SET_FILE_BYTES)
        with lzma.open(path, "rb") as stream:
            while line := stream.readline(MOST_BYTES):
                if not line.endswith(b"\n"):
                    raise InputError(f"{path}: a line is cut off, or longer than it may be")
                id_, _, text = line.decode().rstrip("\n").partition(" ")
                yield id_, text
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def export_set(
    store: Store, folder: Path, *, device: str, about: Mapping[str, Json] | None = None
) -> dict[str, int]:
    """Write a device's set into a folder; return the rows by the names of `TABLES`.

    The set holds the device's campaigns with all their measurements, the costs that follow from
    these, and every workload that has a measurement, or came with a set of the device. Files are
    replaced only when all are whole; where that is interrupted, the folder is no set until it is
    written again. `about` is what the manifest says beside the device and the checksums.
    """
    [name] = [each.name for each in store.devices() if each.slug == device]
    there = device_of(folder)
    if there not in (None, device):
        raise InputError(f"{folder} holds the set of {there}, not of {device}; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".opdb-", dir=folder) as aside:
            counts = _write(store, device, Path(aside), {**(about or {}), "name": name})
            # Without its database a folder is no set: a kill between two leaves none, not a mix.
            for file in (FILE, SAMPLES):
                (folder / file).unlink(missing_ok=True)
            for file in (MANIFEST, SAMPLES, FILE):
                Path(aside, file).replace(folder / file)
    except OSError as error:
        raise InputError(f"cannot write the set into {folder}: {error.strerror}") from error
    return counts


def _write(store: Store, device: str, folder: Path, about: Mapping[str, Json]) -> dict[str, int]:
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
    (folder / FILE).write_bytes(lzma.compress(path.read_bytes(), preset=9))
    (folder / SAMPLES).write_bytes(lzma.compress("".join(lines).encode(), preset=9))
    write_manifest(folder, {**about, "device": device})
    return counts


def export_csv(store: Store, folder: Path, *, device: str) -> dict[str, int]:
    """Write a device's rows as one CSV file a table, without raw samples; return how many each has.

    Rows refer to each other by content key; a JSON column is its text.
    """
    counts = {}
    make_folder(folder)
    with store.reading() as connection:
        for name, query in _queries(device).items():
            columns = schema.outside(TABLES[name])
            for inside, outside in schema.REFERENCES.items():
                if inside in TABLES[name].c:
                    target = schema.metadata.tables[outside]
                    query = query.join(target, target.c.id == TABLES[name].c[inside])
                    columns[outside] = target.c.key
            shown = [c.label(n) for n, c in columns.items() if field_of(c).verify is None]
            query = query.with_only_columns(*shown, maintain_column_froms=True)
            found = [dict(row) for row in connection.execute(query).mappings()]
            lines = csv_text([each.name for each in shown], found)
            write_file(folder / f"{name}.csv", lines.encode())
            counts[name] = len(found)
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
        found = source.execute(
            query.with_only_columns(*columns), execution_options={"yield_per": 1000}
        )
        for part in found.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in part])


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


def merge(
    store: Store, found: Store, path: Path, source: tuple[str, str] | None = None
) -> dict[str, int]:
    """Take what `incoming` yields of a path into the database; return the new rows by table.

    What an earlier import of the same source brought in is replaced, so that a job's database that
    has grown can come again. `source` is the name and fingerprint that it is remembered by; the
    path and its fingerprint when None.
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
        after = _counts(connection)
        if attached is None:
            beside.drop_all(connection, checkfirst=False)
    return {name: max(0, after[name] - before[name]) for name in TABLES}


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
        is_newer = table.c.source_id == source
    elif table is schema.cost:
        is_newer = new.visits >= table.c.visits
    elif table is schema.learned:
        is_newer = new.trained_at >= table.c.trained_at
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=identity))
        return
    connection.execute(
        statement.on_conflict_do_update(index_elements=identity, set_=changed, where=is_newer)
    )


def _forget_source(connection: Connection, name: str, seen: str) -> int:
    """Remove the measurements an earlier import of a source brought; return its row number."""
    source = schema.source
    upsert(connection, source, [{"name": name, "fingerprint": seen}], ["name"])
    number = connection.execute(select(source.c.id).where(source.c.name == name)).scalar_one()
    connection.execute(delete(schema.campaign).where(schema.campaign.c.source_id == number))
    return int(number)


def _counts(connection: Connection) -> dict[str, int]:
    counts = [
        select(func.count()).select_from(table).scalar_subquery() for table in TABLES.values()
    ]
    return dict(zip(TABLES, connection.execute(select(*counts)).one(), strict=True))


@contextmanager
def opened(folder: Path, *, trusted: bool = False) -> Iterator[Store]:
    """Yield the database of a set, unpacked for as long.

    It is checked, has its raw samples in its rows, and the costs that follow from these. A trusted
    set was checked before, and its raw samples stay where they are.
    """
    path = folder / FILE
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; give the folder of a published set")
    if not path.exists():
        raise InputError(
            f"{folder} is not a published set: {FILE} is missing; where opdb export was "
            "interrupted, run it again"
        )
    if not trusted:
        check_manifest(folder)
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside, path.stem)
        _unpack(path, file)
        try:
            with open_store(str(file), create=False) as store:
                _write_keys(store)
                if not trusted:
                    check(store, folder)
                    with store.writing() as connection:
                        put_samples(connection, folder)
                    prove(store, folder)
                yield store
        except DatabaseError as error:
            raise InputError(f"{path}: {str(error).removeprefix(f'database {file}: ')}") from error


def _unpack(path: Path, file: Path) -> None:
    check_input(path, "a file of a set", SET_FILE_BYTES)
    try:
        with lzma.open(path) as packed, file.open("wb") as unpacked:
            left = SET_FILE_BYTES
            while left > 0 and (some := packed.read(min(left, 1024 * 1024))):
                left -= unpacked.write(some)
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _write_keys(store: Store) -> None:
    """Write the keys of configurations, which follow from their texts: the wheel has none."""
    with store.writing() as connection:
        driver: Any = connection.connection.driver_connection
        driver.create_function("sha256", 1, lambda text: sha256(str(text).encode()).hexdigest())
        connection.exec_driver_sql(
            "UPDATE configuration SET key = sha256(json) WHERE length(key) != 64"
        )


def check(store: Store, path: Path) -> None:
    """Check every value, key and reference of a stranger's database but raw samples and costs."""
    with store.reading() as connection:
        [found] = connection.execute(sql("PRAGMA quick_check(1)")).scalars()
        if found != "ok":
            raise InputError(f"{path} is damaged: {' '.join(found.split())}")
        for name, *_, target, _ in connection.execute(sql("PRAGMA foreign_key_check")):
            raise InputError(f"{path}: a row of {name} names a {target} that is not there")
        for table in TABLES.values():
            if table is not schema.cost:  # these must be what the visits give
                _check_values(connection, table, path, raw=False)
        configuration, workload, call = schema.configuration, schema.workload, schema.call
        query = select(configuration.c.json, configuration.c.kind, configuration.c.key)
        for text, kind, key in connection.execute(query):
            found = Configuration.from_json(text)
            if (found.json, found.kind, found.key) != (text, kind, key):
                what = f"not the canonical JSON of a {kind!r} of the key {key}"
                raise InputError(f"{path}, configuration, column json: {shown(text)}: {what}")
        called: dict[int, Counter[str]] = defaultdict(Counter)
        for row in connection.execute(select(call)):
            called[row.workload_id][str(row.number)] += row.calls
        for id_, text in connection.execute(select(workload.c.id, workload.c.sequence)):
            if Counter(str(text).split()) != called[id_]:
                what = f"{shown(text)}: not the calls of its operators"
                raise InputError(f"{path}, workload, column sequence: {what}")
        run = schema.model_run.c
        empty = select(run.id).where(run.outcome == "ok", run.repeats == STRETCHES.encode(()))
        for id_ in connection.scalars(empty):
            raise InputError(f"{path}, model_run {id_[:36]!r}: a run without a single repeat")
        rows.workloads(connection, ())  # which checks their keys


def _check_values(connection: Connection, table: Table, path: Path, *, raw: bool) -> None:
    """Check each value of a table's columns, of raw samples or of all others."""
    for column in schema.outside(table).values():
        if column.name in schema.REFERENCES or (field_of(column).verify is not None) is not raw:
            continue
        for value in connection.scalars(select(column).distinct()):
            try:
                check_value(column, value)
            except DAMAGE as error:
                place = f"{path}, {table.name}, column {column.name}"
                raise InputError(f"{place}: {shown(value)}: {_why(error)}") from error


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"{error} is missing or unknown" if isinstance(error, KeyError) else str(error)


# proving
#
# Only visits enter a database from outside; costs are derived from them, never taken on trust.


def prove(store: Store, path: Path) -> None:
    """Put the costs that follow from its visits into a stranger's database.

    Those that it came with must be the same but for rounding, and stay as they are: the last bit
    of a logarithm depends on the machine. Those of another estimator may differ and are replaced.
    """
    with store.reading() as connection:
        for table in (schema.visit, schema.host_visit, schema.model_run):
            _check_values(connection, table, path, raw=True)
    for board in sorted({each.uuid for each in store.boards()} | store.cost_counts().keys()):
        try:
            found = costs_of(store, board)  # the samples of one board at a time fit into memory
        except DAMAGE as error:
            raise InputError(
                f"{path}: no costs can be derived from the visits of {board}: {error}"
            ) from error
        costs = {(cost.configuration, cost.setting): cost for cost in found}
        for cost in chain.from_iterable(store.costs(board).values()):
            place = f"{path}, cost of {cost.configuration[:12]} on {board}"
            derived = costs.get((cost.configuration, cost.setting))
            if derived is None:
                raise InputError(f"{place}: it rests on no visit of the set")
            if cost.estimator != ESTIMATOR:
                continue
            right = asdict(derived)
            for name, value in asdict(cost).items():
                if not alike(value, right[name]):
                    raise InputError(
                        f"{place}, column {name}: {shown(value)}: from the visits of the set opdb "
                        f"derives {shown(right[name])}; opdb export writes the costs that its "
                        "visits give"
                    )
            costs[cost.configuration, cost.setting] = cost
        store.replace_costs(board, costs.values())
