"""A published set, opened: its database, checked, with the raw samples of its visits.

A set is a folder with three files: `set.sqlite.xz`, a database of opdb's own tables, `samples.xz`,
the raw samples of its visits, and `manifest.json`. It may come from a stranger: `opened` checks
every value, key and reference before anything of it is used.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Table, or_, select, update

from opdb.derive.costs import ESTIMATOR, board_costs
from opdb.errors import DatabaseError, InputError, shown
from opdb.files import check_input
from opdb.records import Configuration, Json, canonical_json
from opdb.store import rows, schema
from opdb.store.database import DAMAGE
from opdb.store.deriving import alike
from opdb.store.fields import check_value, field_of
from opdb.store.opening import (
    FILE,
    SAMPLES,
    SET_FILE_BYTES,
    check_manifest,
    open_store,
    sets_at_hand,
)
from opdb.store.raw import (
    APART,
    LEFT_OUT,
    MOST_BYTES,
    STRETCHES,
    are_left_out,
    left_out,
    pack,
    unpack,
)
from opdb.store.rows import NewRow
from opdb.store.store import Store

# raw samples of a set
#
# A set's database has `-` in place of the raw samples of every visit but the anchors, which tell
# boards apart and are read with each prediction; host visits have `-` and the number of blocks in
# place of the times. `samples.xz` has a line for each of these visits: its id, a space, and one
# JSON object of its columns, unpacked (`opdb.store.raw` describes them).


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
    """Put the raw samples of a set's file into the rows of the visits that lack them, packed.

    Raises:
        InputError: the file cannot be read.
    """
    path = folder / SAMPLES
    if not path.exists():
        return
    lacking = {
        id_
        for name, columns in APART.items()
        for table in [schema.metadata.tables[name]]
        for id_ in connection.scalars(
            select(table.c.id).where(or_(*(table.c[each].startswith(LEFT_OUT) for each in columns)))
        )
    }
    for number, (id_, text) in enumerate(_lines(path), 1):
        if id_ not in lacking:
            continue
        try:
            samples = _samples(text)
            table = schema.host_visit if "times" in samples else schema.visit
            same = [table.c[name] == left_out(name, each) for name, each in samples.items()]
            packed = {name: pack(each) for name, each in samples.items()}
        except DAMAGE as error:
            raise InputError(f"{path}, line {number}: {id_[:40]!r}: {_why(error)}") from error
        connection.execute(update(table).where(table.c.id == id_, *same).values(packed))


def looked_up(
    connection: Connection, table: Table, visits: Sequence[Mapping[Any, Any]]
) -> list[NewRow]:
    """Return rows of a table with the raw samples that the sets have which they came with.

    A database that is built of the published sets leaves them where they are.

    Raises:
        InputError: a file of samples cannot be read.
        ValueError: a line of one cannot.
    """
    rows = [dict(row) for row in visits]
    names = APART[table.name]
    lacking = {row["id"]: row for row in rows if any(map(are_left_out, map(row.get, names)))}
    if lacking:
        campaigns = {row["campaign"] for row in lacking.values()}
        for folder in folders_of(connection, campaigns):
            for id_, text in takewhile(lambda _: lacking, _lines(folder / SAMPLES)):
                if row := lacking.pop(id_, None):
                    row.update({name: pack(each) for name, each in _samples(text).items()})
    return rows


def folders_of(connection: Connection, campaigns: set[str] | None = None) -> list[Path]:
    """Return the folders of the sets with samples that campaigns (ids; all) came with."""
    campaign, source = schema.campaign, schema.source
    query = select(campaign.c.id, source.c.name).join(source, campaign.c.source_id == source.c.id)
    names = {n for id_, n in connection.execute(query) if campaigns is None or id_ in campaigns}
    sets = sets_at_hand()
    folders = [sets.get(name, Path(name)) for name in sorted(names)]
    return [folder for folder in folders if (folder / SAMPLES).exists()]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a file of samples: a visit's id, and its JSON.

    Raises:
        InputError: the file is damaged or cut off, or a line is longer than any can be.
    """
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


def _samples(text: str) -> dict[str, Json]:
    """Return the raw samples of a line by column.

    Raises:
        ValueError: the text holds none.
    """
    found = json.loads(text)
    columns = [set(names) for names in APART.values()]
    if not isinstance(found, dict) or not found or not any(found.keys() <= c for c in columns):
        raise ValueError("expected an object with raw samples of a visit, or of a host visit")
    return found


# the tables

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


@contextmanager
def opened(folder: Path, *, trusted: bool = False) -> Iterator[Store]:
    """Yield the database of a set, unpacked for as long.

    It is checked, has its raw samples in its rows, and the costs that follow from these. A trusted
    set was checked before, and its raw samples stay where they are.

    Raises:
        InputError: the folder is not a set, or a row is not what it says it is.
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
                    if len(store.devices()) != 1:
                        raise InputError(f"{folder} does not hold one device, as a set does")
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


# checking


def check(store: Store, path: Path) -> None:
    """Check every value, key and reference of a stranger's database but raw samples and costs.

    Raises:
        InputError: a row is not what it says it is.
    """
    with store.reading() as connection:
        [found] = connection.execute(sqlalchemy.text("PRAGMA quick_check(1)")).scalars()
        if found != "ok":
            raise InputError(f"{path} is damaged: {' '.join(found.split())}")
        for name, *_, target, _ in connection.execute(sqlalchemy.text("PRAGMA foreign_key_check")):
            raise InputError(f"{path}: a row of {name} names a {target} that is not there")
        for table in TABLES.values():
            if table is not schema.cost:  # these must be what the visits give
                _check_values(connection, table, path, raw=False)
        _check_configurations(connection, path)
        _check_calls(connection, path)
        run = schema.model_run.c
        empty = select(run.id).where(run.outcome == "ok", run.repeats == STRETCHES.encode(()))
        for id_ in connection.scalars(empty):
            raise InputError(f"{path}, model_run {id_[:36]!r}: a run without a single repeat")
        rows.workloads(connection, ())  # which checks their keys


def _check_values(connection: Connection, table: Table, path: Path, *, raw: bool) -> None:
    """Check each value of a table's columns, of raw samples or of all others.

    Raises:
        InputError: one may not be in its column.
    """
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
    """Return what is wrong with a value, by the exception that reading it raised."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return f"{error} is missing or unknown" if isinstance(error, KeyError) else str(error)


def _check_configurations(connection: Connection, path: Path) -> None:
    table = schema.configuration
    for text, kind, key in connection.execute(select(table.c.json, table.c.kind, table.c.key)):
        try:
            found = Configuration.from_json(text)
            right = (found.json, found.kind, found.key) == (text, kind, key)
        except DAMAGE as error:
            raise InputError(
                f"{path}, configuration, column json: {shown(text)}: {error}"
            ) from error
        if not right:
            what = f"not the canonical JSON of a {kind!r} of the key {key}"
            raise InputError(f"{path}, configuration, column json: {shown(text)}: {what}")


def _check_calls(connection: Connection, path: Path) -> None:
    """Check that operators are called as often as the sequence of a workload's calls has them."""
    workload, call = schema.workload, schema.call
    called: dict[int, Counter[str]] = defaultdict(Counter)
    for row in connection.execute(select(call)):
        called[row.workload_id][str(row.number)] += row.calls
    for row in connection.execute(select(workload)):
        text = row.sequence
        if Counter(str(text).split(" ") if text else ()) != called[row.id]:
            place = f"{path}, workload, column sequence"
            raise InputError(f"{place}: {shown(text)}: not the calls of its operators")


# proving
#
# Only visits enter a database from outside; costs are derived from them, never taken on trust.

ESTIMATORS = tuple(str(number) for number in range(1, int(ESTIMATOR) + 1))
"""The estimators whose costs are read; the last is this version's."""


def prove(store: Store, path: Path) -> None:
    """Put the costs that follow from its visits into a stranger's database.

    Those that it came with must be the same but for rounding, and stay as they are: the last bit
    of a logarithm depends on the machine. Those of an older estimator may differ and are replaced.

    Raises:
        InputError: a sample cannot be what was measured, or a cost is not what the visits say.
    """
    with store.reading() as connection:
        for table in (schema.visit, schema.host_visit, schema.model_run):
            _check_values(connection, table, path, raw=True)
    boards = {board.uuid for board in store.boards()}
    if unknown := store.cost_counts().keys() - boards:
        raise InputError(f"{path}: costs on {min(unknown)} rest on no visit of the set")
    for board in sorted(boards):
        visits = store.visits(board)  # the samples of one board at a time fit into memory
        campaigns, host_visits = store.campaigns(board=board), store.host_visits(board)
        try:
            found = board_costs(campaigns, visits, host_visits)
        except DAMAGE as error:
            raise InputError(
                f"{path}: no costs can be derived from the visits of {board}: {error}"
            ) from error
        costs = {(cost.configuration, cost.setting): cost for cost in found}
        for cost in (each for of_key in store.costs(board).values() for each in of_key):
            place = f"{path}, cost of {cost.configuration[:12]} on {board}"
            if cost.estimator not in ESTIMATORS:
                raise InputError(
                    f"{place}, column estimator: {cost.estimator!r}: this version of opdb reads "
                    f"{', '.join(ESTIMATORS)}; upgrade opdb"
                )
            derived = costs.get((cost.configuration, cost.setting))
            if derived is None:
                raise InputError(f"{place}: it rests on no visit of the set")
            if cost.estimator == ESTIMATOR:
                right = asdict(derived)
                for name, value in asdict(cost).items():
                    if not alike(value, right[name]):
                        raise InputError(
                            f"{place}, column {name}: {shown(value)}: from the visits of the set "
                            f"opdb derives {shown(right[name])}; opdb export writes the costs that "
                            "its visits give"
                        )
                costs[cost.configuration, cost.setting] = cost
        store.replace_costs(board, costs.values())
