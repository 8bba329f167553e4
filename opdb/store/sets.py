"""The contents of a set: the rows that a device has in a database, with keys for row numbers.

A published set is a folder with three files: `set.sqlite.xz`, a database of opdb's own tables,
`samples.xz`, the raw samples of its visits, and `manifest.json`. A set may come from a stranger:
`read_set` checks every value, key and reference before anything of it is used.
"""

from __future__ import annotations

import json
import lzma
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy
from sqlalchemy import Column, Connection, Select, Subquery, Table, or_, select, union

from opdb.derive.calibration import ALLOWED, bounds_of
from opdb.derive.costs import ESTIMATOR, board_costs
from opdb.errors import DatabaseError, InputError
from opdb.files import check_input
from opdb.records import Campaign, Configuration, Json, canonical_json
from opdb.store import rows, schema
from opdb.store.deriving import alike
from opdb.store.fields import check_value, field_of
from opdb.store.opening import FILE, SAMPLES, SET_FILE_BYTES, check_manifest, sets_at_hand
from opdb.store.raw import APART, MOST_BYTES, are_left_out, encode_stretches, left_out, pack, unpack
from opdb.store.rows import NewRow
from opdb.store.store import Store

# raw samples of a set
#
# A set's database has `-` in place of the raw samples of every visit but the anchors, which tell
# boards apart and are read with each prediction; host visits have `-` and the number of blocks in
# place of the times. `samples.xz` has a line for each of these visits: its id, a space, and one
# JSON object of its columns, unpacked (`opdb.store.raw` describes them).


def without_samples(visits: SetRows) -> tuple[SetRows, list[str]]:
    """Return visits without their raw samples, and these as lines of a file.

    Samples that `visits` lack are in neither.
    """
    columns = {name: list(visits.values[name]) for name in APART[visits.table.name]}
    lines = []
    for number, row in enumerate(visits.rows()):
        texts = {name: row[name] for name in columns if row[name] is not None}
        if row.get("role") == "anchor" or not texts or any(map(are_left_out, texts.values())):
            continue
        samples = {name: unpack(text) for name, text in texts.items()}
        lines.append(f"{row['id']} {canonical_json(samples)}\n")
        for name, each in samples.items():
            columns[name][number] = left_out(name, each)
    return visits.having(**columns), lines


def with_samples(folder: Path, contents: Mapping[str, SetRows]) -> dict[str, SetRows]:
    """Return the rows of some tables of visits with the raw samples of a set's file, packed.

    Where there is no such file they stay as they are.

    Raises:
        InputError: the file cannot be read, or a line of it is of no visit that lacks samples.
    """
    path = folder / SAMPLES
    if not path.exists():
        return dict(contents)
    places = {
        id_: (name, row)
        for name, visits in contents.items()
        for row, id_ in enumerate(visits.values["id"])
    }
    columns = {
        name: {column: list(visits.values[column]) for column in APART[visits.table.name]}
        for name, visits in contents.items()
    }
    for number, (id_, text) in enumerate(_lines(path), 1):
        try:
            if id_ not in places:
                raise ValueError("the set has no such visit")
            name, row = places[id_]
            for column, samples in _samples(contents[name].table, text).items():
                if columns[name][column][row] != left_out(column, samples):
                    raise ValueError(f"the visit lacks no {column}, or has others")
                columns[name][column][row] = pack(samples)
        except (ValueError, TypeError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{path}, line {number}: {id_[:40]!r}: {why}") from error
    return {name: visits.having(**columns[name]) for name, visits in contents.items()}


def looked_up(
    connection: Connection, table: Table, visits: Sequence[Mapping[Any, Any]]
) -> list[NewRow]:
    """Return rows of a table with the raw samples that the published sets at hand have of them.

    The database that is built of these sets leaves them where they are.

    Raises:
        InputError: a file of samples cannot be read.
        ValueError: a line of one cannot.
    """
    rows = [dict(row) for row in visits]
    names = APART[table.name]
    lacking = {row["id"]: row for row in rows if any(map(are_left_out, map(row.get, names)))}
    if not lacking:
        return rows
    for folder in _folders(connection, {row["campaign"] for row in lacking.values()}):
        path = folder / SAMPLES
        lines = _lines(path) if path.exists() else ()
        for id_, text in takewhile(lambda _: lacking, lines):
            if row := lacking.pop(id_, None):
                row.update({name: pack(each) for name, each in _samples(table, text).items()})
    return rows


def _folders(connection: Connection, campaigns: set[str]) -> list[Path]:
    """Return the folders of the published sets at hand that campaigns came with."""
    campaign, source = schema.campaign, schema.source
    query = select(campaign.c.id, source.c.name).join(source, campaign.c.source_id == source.c.id)
    names = {row.name for row in connection.execute(query) if row.id in campaigns}
    sets = sets_at_hand()
    return [sets[name] for name in sorted(names & sets.keys())]


def packed(content: bytes) -> bytes:
    """Return bytes as xz has them, with a dictionary as large as they need."""
    size = max(4096, min(len(content), 64 * 1024 * 1024))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": size}]
    return lzma.compress(content, filters=filters)


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


def _samples(table: Table, text: str) -> dict[str, Json]:
    """Return the raw samples of a line by column.

    Raises:
        ValueError: the text holds none.
    """
    found = json.loads(text)
    if not isinstance(found, dict) or not found or not found.keys() <= set(APART[table.name]):
        raise ValueError(f"expected an object with some of {', '.join(APART[table.name])}")
    return found


# contents

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
class SetRows:
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
        for value in dict.fromkeys(values):
            try:
                check_value(column, value)
            except FAULTS as error:
                why = "nested too deeply" if isinstance(error, RecursionError) else error
                raise self.error(values.index(value), name, value, why) from error

    def having(self, **columns: Sequence[Any]) -> SetRows:
        """Return the same with some columns replaced or added."""
        return replace(self, values={**self.values, **columns})

    def only(self, chosen: Sequence[bool]) -> SetRows:
        """Return the rows that are chosen."""
        if all(chosen):
            return self
        return self.having(**{n: list(compress(each, chosen)) for n, each in self.values.items()})

    def rows(self) -> Iterator[NewRow]:
        """Yield each row by column name."""
        for fields in zip(*self.values.values(), strict=True):
            yield dict(zip(self.values, fields, strict=True))


Contents: TypeAlias = dict[str, SetRows]
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
            found = SetRows(table, path, _columns(connection, table, queries[name]))
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


def _ordered(found: SetRows, order: Sequence[str]) -> SetRows:
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


def read_set(folder: Path, *, trusted: bool = False) -> Contents:
    """Read a published set, and check it with its raw samples.

    Costs are as they stand: see `opdb.store.sets`. A trusted set was checked before, and its raw
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
        [found] = connection.execute(sqlalchemy.text("PRAGMA quick_check(1)")).scalars()
        if found != "ok":
            raise InputError(f"{path} is damaged: {' '.join(found.split())}")
        for table, *_, target, _ in connection.execute(sqlalchemy.text("PRAGMA foreign_key_check")):
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


def _check_configurations(found: SetRows) -> None:
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


def _check_calls(calls: SetRows, workloads: SetRows) -> None:
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


# proving
#
# Only visits enter a database from outside; costs are derived from them, never taken on trust.
# Facts of calibrations, whose traces no set holds, are held against the samples of visits and runs,
# and against the facts of other boards.

ESTIMATORS = tuple(str(number) for number in range(1, int(ESTIMATOR) + 1))
"""The estimators whose costs are read; the last is this version's."""

_MEASURED: Mapping[str, rows.Codec[Any]] = {
    "visits": rows.VISIT,
    "host_visits": rows.HOST_VISIT,
    "model_runs": rows.MODEL_RUN,
}
"""What has raw samples."""

STATED: Mapping[str, Column[str]] = {
    "calibrations": schema.board_calibration.c.facts,
    "campaigns": schema.campaign.c.calibration,
}
"""What states facts of boards, and the column of these."""

_OLDEST_FIRST = attrgetter("started_at", "id")

_Place: TypeAlias = tuple[str, str, str]
"""Board, configuration (key) and setting of a cost."""


def proved(contents: Contents) -> Contents:
    """Return a set with the costs that follow from its own visits.

    Those that it came with must be the same but for rounding, and stay as they are: the last bit
    of a logarithm depends on the machine. Those of an older estimator may differ and are replaced.

    Raises:
        InputError: a sample cannot be what was measured, a cost is not what the visits say, or a
            fact of a calibration contradicts what was seen of its board or of others.
    """
    campaigns: dict[str, list[Campaign]] = defaultdict(list)
    for campaign in sorted(_campaigns(contents), key=_OLDEST_FIRST):
        campaigns[campaign.board.uuid].append(campaign)
    costs = contents["costs"]
    derived: dict[_Place, NewRow] = {}
    bounds: dict[str, dict[str, tuple[float, float]]] = {}
    for board in sorted(campaigns):
        # The samples of one board at a time fit into memory.
        of_board = {campaign.id for campaign in campaigns[board]}
        visits, host_visits, runs = (
            _records(contents[name], codec, of_board) for name, codec in _MEASURED.items()
        )
        bounds[board] = bounds_of(campaigns[board][0].device, visits, runs)
        try:
            found = board_costs(campaigns[board], visits, host_visits)
        except (ArithmeticError, *FAULTS) as error:
            raise InputError(
                f"{costs.path}: no costs can be derived from the visits of {board}: {error}"
            ) from error
        derived |= {(c.board, c.configuration, c.setting): rows.COST.row(c) for c in found}
    derived |= _as_stored(costs, derived)
    check_facts(contents, bounds)
    columns = {name: [row[name] for row in derived.values()] for name in costs.values}
    return {**contents, "costs": replace(costs, values=columns)}


def _campaigns(contents: Contents) -> Iterator[Campaign]:
    devices = {row["slug"]: rows.DEVICE.read(row) for row in contents["devices"].rows()}
    hosts = {row["id"]: rows.HOST.read(row) for row in contents["hosts"].rows()}
    found = contents["campaigns"]
    for number, row in enumerate(found.rows()):
        for column, known in (("device", devices), ("host", hosts)):
            if row[column] not in known:
                where = f"no such {'board of this device' if column == 'device' else column}"
                raise found.error(number, column, row[column], where)
        yield rows.CAMPAIGN.read(row, device=devices[row["device"]], host=hosts[row["host"]])


def _records(of_all: SetRows, codec: rows.Codec[Any], campaigns: Collection[str]) -> list[Any]:
    """Return what the rows of some campaigns hold, with the raw samples, oldest first.

    Raises:
        InputError: a sample cannot be read, or cannot be what was measured.
    """
    found, records = of_all.only([c in campaigns for c in of_all.values["campaign"]]), []
    samples = {column.name: field_of(column) for column in of_all.table.columns}
    samples = {name: field for name, field in samples.items() if field.verify}
    for number, row in enumerate(found.rows()):
        decoded = {}
        for column, field in samples.items():
            text = row[column]
            row[column] = None
            try:
                decoded["times_s" if column == "times" else column] = field.checked(text)
            except FAULTS as error:
                raise found.error(number, column, text, error) from error
        records.append(replace(codec.read(row), **decoded))
    return sorted(records, key=_OLDEST_FIRST)


def _as_stored(stored: SetRows, derived: Mapping[_Place, NewRow]) -> dict[_Place, NewRow]:
    """Return the costs of a set that are those derived from its visits but for rounding.

    Raises:
        InputError: one differs, rests on no visit, or is of an estimator that is not known.
    """
    same: dict[_Place, NewRow] = {}
    for number, row in enumerate(stored.rows()):
        if row["estimator"] not in ESTIMATORS:
            known = f"this version of opdb reads {', '.join(ESTIMATORS)}; upgrade opdb"
            raise stored.error(number, "estimator", row["estimator"], known)
        place = (row["board"], row["configuration"], row["setting"])
        cost = derived.get(place)
        if cost is None:
            why = f"a cost on {row['board']} that rests on no visit of the set"
            raise stored.error(number, "configuration", row["configuration"], why)
        if row["estimator"] != ESTIMATOR:
            continue
        for name, value in row.items():
            if value != cost[name] and not alike(value, cost[name]):
                why = (
                    f"from the visits of the set opdb derives {cost[name]!r}; "
                    "opdb export writes the costs that its visits give"
                )
                raise stored.error(number, name, value, why)
        same[place] = row
    return same


def check_facts(
    contents: Contents,
    bounds: Mapping[str, Mapping[str, tuple[float, float]]],
    known: Contents | None = None,
) -> None:
    """Check facts of calibrations and campaigns against the bounds that samples set them.

    `bounds` are by board (UUID) and fact. Facts are held against those of the device's other
    boards, too, in the set and `known`. Those of a processor, whose power other work raises, are
    left alone.

    Raises:
        InputError: one is no number, or none that this leaves possible.
    """
    stated = list(_stated(contents) if "cuda" in contents["devices"].values["type"] else ())
    every: dict[str, list[float]] = defaultdict(list)
    for *_, fact, value in (*stated, *_stated(known or {})):
        every[fact] += [value] if isinstance(value, float | int) else []
    for found, column, number, fact, value in stated:
        board = found.values["board"][number]
        most, apart = next(of for ending, of in ALLOWED.items() if fact.endswith(ending))
        low, high = bounds.get(board, {}).get(fact, (0.0, most))
        if len(every[fact]) > 1:
            usual = statistics.median(every[fact])
            low, high = max(low, usual / apart), min(high, usual * apart)
        if not isinstance(value, float | int) or not low <= value <= high:
            raise found.error(
                number,
                column,
                f"{fact} {value}",
                f"what was measured on {board} and its like allows {low:.4g} to {high:.4g}",
            )


def _stated(contents: Contents) -> Iterator[tuple[SetRows, str, int, str, Any]]:
    """Yield each fact that a calibration or a campaign states: rows, column, row, name, value."""
    for found, column in [(contents[n], c.name) for n, c in STATED.items() if n in contents]:
        for number, text in enumerate(found.values[column]):
            for fact, value in json.loads(text).items():
                if value is not None and fact not in ("base_power_interval_w", "notes"):
                    yield found, column, number, fact, value
