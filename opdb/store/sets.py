"""The contents of a set: the rows that a device has in a database, with keys for row numbers.

A published set is a folder with three files: `set.sqlite.xz`, a database of opdb's own tables,
`samples.xz`, the raw samples of its visits, and `manifest.json`. A set may come from a stranger:
`read_set` checks every value, key and reference before anything of it is used.
"""

from __future__ import annotations

import lzma
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, Select, Subquery, Table, or_, select, text, union

from opdb.errors import DatabaseError, InputError
from opdb.files import check_input
from opdb.garbage import gc_paused
from opdb.records import Configuration
from opdb.store import rows, schema
from opdb.store.fields import check_value
from opdb.store.published import FILE, SET_FILE_BYTES, check_manifest
from opdb.store.raw import encode_stretches
from opdb.store.rows import NewRow
from opdb.store.samples import APART
from opdb.store.set_samples import looked_up, with_samples
from opdb.store.store import Store

FAULTS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The exceptions that checking a value raises."""

TABLES: Mapping[str, tuple[Table, tuple[str, ...]]] = {
    "devices": (schema.device, ("slug",)),
    "boards": (schema.board, ("uuid",)),
    "hosts": (schema.host, ("id",)),
    "campaigns": (schema.campaign, ("started_at", "id")),
    "configurations": (schema.configuration, ("kind", "key")),
    "workloads": (schema.workload, ("name", "phase", "dtype", "batch_size", "key")),
    "calls": (schema.call, ("workload", "number")),
    "calibrations": (schema.board_calibration, ("measured_at", "id")),
    "visits": (schema.visit, ("started_at", "id")),
    "host_visits": (schema.host_visit, ("started_at", "id")),
    "model_runs": (schema.model_run, ("started_at", "id")),
    "costs": (schema.cost, ("board", "configuration", "setting", "estimator")),
    "learned": (schema.learned, ("board",)),
    "profiles": (schema.profile, ("measured_at", "id")),
}
"""The tables of a set, each after those it refers to, and the columns that order its rows."""


@dataclass(frozen=True)
class Rows:
    """Rows of a table as columns of equal length; `path` is what they were read from."""

    table: Table
    path: Path
    values: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def error(self, row: int, column: str, found: object, why: object) -> InputError:
        """Return the error of one value: table, row, column, what was found and why it fails."""
        shown = repr(found)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        names = ("id", "key", "uuid", "slug", "workload", "board")
        [name, *_] = [each for each in names if each in self.values]
        place = f"{self.path}, {self.table.name} {str(self.values[name][row])[:36]!r}"
        return InputError(f"{place}, column {column}: {shown}: {why}")

    def check(self, column: Column[Any], name: str) -> None:
        """Check the values of a column, which has this name here; each distinct value once.

        Raises:
            InputError: one may not be in it.
        """
        values = self.values[name]
        try:
            distinct = dict.fromkeys(values)
        except TypeError:  # pragma: no cover - SQLite has no values that cannot be hashed
            distinct = dict(enumerate(values))
        for value in distinct:
            try:
                check_value(column, value)
            except FAULTS as error:
                why = "nested too deeply" if isinstance(error, RecursionError) else error
                raise self.error(values.index(value), name, value, why) from error

    def having(self, **columns: Sequence[Any]) -> Rows:
        """Return the same with some columns replaced or added."""
        return replace(self, values={**self.values, **columns})

    def only(self, chosen: Sequence[bool]) -> Rows:
        """Return the rows that are chosen."""
        if all(chosen):
            return self
        return self.having(**{n: list(compress(each, chosen)) for n, each in self.values.items()})

    def rows(self) -> Iterator[NewRow]:
        """Yield each row by column name."""
        for fields in zip(*self.values.values(), strict=True):
            yield dict(zip(self.values, fields, strict=True))


Contents: TypeAlias = dict[str, Rows]
"""The rows of a set by the names of `TABLES`."""


def contents_of(store: Store, device: str | None, path: Path) -> Contents:
    """Return all that a database has of a device (slug): what was measured, and its workloads.

    Workloads are those of which something was measured, and those that came with a set of the
    device; without a device, all that there are. Raw samples stay as they are stored. `path` is
    named in messages.
    """
    contents: Contents = {}
    keys: dict[str, dict[Any, str]] = {}
    queries = {name: select(table) for name, (table, _) in TABLES.items()}
    if device is not None:
        queries = _queries(device)
    with store.reading() as connection:
        for name, (table, order) in TABLES.items():
            found = Rows(table, path, _columns(connection, table, queries[name]))
            if table is schema.configuration:  # they follow from the texts; the wheel has none
                texts = map(str, found.values["json"])
                found = found.having(key=[sha256(text.encode()).hexdigest() for text in texts])
            for inside, outside in schema.REFERENCES.items():
                if inside in table.c:
                    numbers = found.values[inside]
                    left = {n: each for n, each in found.values.items() if n != inside}
                    found = replace(found, values=left)
                    found = found.having(**{outside: list(map(keys[outside].get, numbers))})
            if table.name in schema.REFERENCES.values():
                numbers = found.values["id"]
                keys[table.name] = dict(zip(numbers, found.values["key"], strict=True))
                left = {n: each for n, each in found.values.items() if n != "id"}
                found = replace(found, values=left)
            contents[name] = _ordered(found, order)
    return contents


def _columns(connection: Connection, table: Table, query: Select[Any]) -> dict[str, Sequence[Any]]:
    """Return the rows of a query of a table as columns, without what only the database knows."""
    columns = [c for c in table.columns if c.name not in schema.INSIDE]
    read = connection.execute(query.with_only_columns(*columns)).all()
    values = zip(*read, strict=True) if read else [()] * len(columns)
    found: dict[str, Sequence[Any]] = dict(zip((c.name for c in columns), values, strict=True))
    if "reason" in found:  # of a failure: it may have several lines
        found["reason"] = list(map(_in_a_line, found["reason"]))
    return found


def _in_a_line(reason: Any) -> Any:
    if not isinstance(reason, str) or reason.isprintable():
        return reason
    return "".join(sign if sign.isprintable() else " " for sign in reason)


def _ordered(found: Rows, order: Sequence[str]) -> Rows:
    """Return rows in their order; a stranger's that cannot be compared stay as they are."""
    places = list(zip(*(found.values[name] for name in order), strict=True))
    try:
        rows_ = sorted(range(len(places)), key=places.__getitem__)
    except TypeError:
        return found
    return found.having(**{n: list(map(v.__getitem__, rows_)) for n, v in found.values.items()})


def _queries(device: str) -> dict[str, Select[Any]]:
    """Return, for each table, the query of the rows that a device's set holds."""
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
        chosen[name] = TABLES[name][0].c.device == device
    return {name: select(table).where(chosen[name]) for name, (table, _) in TABLES.items()}


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
def opened(folder: Path) -> Iterator[Store]:
    """Yield the database of a set, unpacked for as long.

    Raises:
        InputError: it is missing, damaged, or not a database of this version of opdb's.
    """
    from opdb.store.opening import open_store  # which imports published sets

    path = folder / FILE
    if not path.exists():
        raise InputError(
            f"{folder} is not a published set: {FILE} is missing; where opdb export was "
            "interrupted, run it again"
        )
    check_input(path, "a file of a set", SET_FILE_BYTES)
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside, path.stem)
        try:
            with lzma.open(path) as packed, file.open("wb") as unpacked:
                left = SET_FILE_BYTES
                while left > 0 and (some := packed.read(min(left, 1024 * 1024))):
                    left -= unpacked.write(some)
        except (lzma.LZMAError, EOFError) as error:
            raise InputError(f"{path} is damaged: {error}") from error
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        try:
            with open_store(str(file), create=False) as store:
                yield store
        except DatabaseError as error:
            raise InputError(str(error).replace(str(file), str(path))) from error


@gc_paused()
def read_set(folder: Path, *, trusted: bool = False) -> Contents:
    """Read a published set, and check it with its raw samples.

    Costs are as they stand: see `opdb.store.proving`. A trusted set was checked before, and its raw
    samples stay where they are.

    Raises:
        InputError: the folder is not a set, or a row is not what it says it is.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; give the folder of a published set")
    if not trusted and (folder / FILE).exists():
        check_manifest(folder)
    with opened(folder) as store:
        if not trusted:
            check_whole(store, folder)
        contents = contents_of(store, None, folder)
    if len(contents["devices"]) != 1:
        raise InputError(f"{folder} holds {len(contents['devices'])} devices; a set holds one")
    if not trusted:
        check(contents)
        apart = {name: contents[name] for name in ("visits", "host_visits")}
        contents |= with_samples(folder, apart)
    return contents


def check_whole(store: Store, path: Path) -> None:
    """Check that every reference of a stranger's SQLite file leads somewhere.

    Raises:
        InputError: one does not, or the file is damaged.
    """
    with store.reading() as connection:
        [found] = connection.execute(text("PRAGMA quick_check(1)")).scalars()
        if found != "ok":
            raise InputError(f"{path} is damaged: {' '.join(found.split())}")
        for table, *_, target, _ in connection.execute(text("PRAGMA foreign_key_check")):
            raise InputError(f"{path}: a row of {table} names a {target} that is not there")


def check(contents: Contents) -> None:
    """Check every value and key of a stranger's set; raw samples are left to `proved`.

    Raises:
        InputError: a row is not what it says it is.
    """
    for found in contents.values():
        for name, column in schema.outside(found.table).items():
            found.check(column, name)
    _check_configurations(contents["configurations"])
    for number, row in enumerate(contents["workloads"].rows()):
        key = rows.WORKLOAD.read(row).key
        if row["key"] != key:
            raise contents["workloads"].error(number, "key", row["key"], f"its key is {key}")
    _check_calls(contents["calls"], contents["workloads"])
    runs, none = contents["model_runs"], encode_stretches(())
    for at, ended in enumerate(zip(runs.values["outcome"], runs.values["repeats"], strict=True)):
        if ended == ("ok", none):
            raise runs.error(at, "repeats", none, "a run without a single repeat")


def _check_configurations(found: Rows) -> None:
    """Check that each text is a configuration's canonical JSON, of its kind.

    Raises:
        InputError: it is not.
    """
    for number, row in enumerate(found.rows()):
        try:
            configuration = Configuration.from_json(row["json"])
            canonical = configuration.json
        except (ValueError, TypeError, RecursionError) as error:
            raise found.error(number, "json", row["json"], error) from error
        if canonical != row["json"]:
            why = "not a configuration's canonical JSON"
            raise found.error(number, "json", row["json"], why)
        if row["kind"] != configuration.kind:
            why = f"the configuration is {configuration.kind!r}"
            raise found.error(number, "kind", row["kind"], why)


def _check_calls(calls: Rows, workloads: Rows) -> None:
    """Check that operators are called as often as the sequence of a workload's calls has them.

    Raises:
        InputError: they are not.
    """
    called: dict[str, Counter[str]] = {key: Counter() for key in workloads.values["key"]}
    for call in calls.rows():
        called[call["workload"]][str(call["number"])] += call["calls"]
    for number, (key, sequence) in enumerate(
        zip(workloads.values["key"], workloads.values["sequence"], strict=True)
    ):
        if not isinstance(sequence, str):
            raise workloads.error(number, "sequence", sequence, "not a text")
        if Counter(sequence.split(" ") if sequence else ()) != called[key]:
            raise workloads.error(number, "sequence", sequence, "not the calls of its operators")


def having_samples(store: Store, contents: Contents) -> Contents:
    """Return contents with the raw samples that the published sets at hand have of them.

    Raises:
        InputError: a file of samples cannot be read.
    """
    found = dict(contents)
    for name in ("visits", "host_visits"):
        some = list(contents[name].rows())
        with store.reading() as connection:
            whole = looked_up(connection, contents[name].table, some)
        columns = APART[contents[name].table.name]
        found[name] = contents[name].having(**{c: [row[c] for row in whole] for c in columns})
    return found
