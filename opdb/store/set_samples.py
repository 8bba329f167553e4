"""The raw samples of a set, in files of their own that usual questions do not read.

`visits.csv` has `-` in place of the raw samples of every visit but the anchors, which tell boards
apart and are read with each prediction; `host_visits.csv` has `-` and the number of blocks in place
of the times. `samples.xz` and `host_samples.xz` have a line for each of these visits: the first
characters of its id, a space, and one JSON object of its columns, unpacked (`opdb.store.raw`
describes them). The lines of each campaign are an xz stream of their own, so a set that grows by a
campaign keeps the bytes that it had.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, RowMapping, Table, select

from opdb.errors import InputError
from opdb.files import check_input
from opdb.records import Json, canonical_json
from opdb.store import schema
from opdb.store.packing import MOST_BYTES, pack, unpack
from opdb.store.published import sets_at_hand
from opdb.store.rows import NewRow
from opdb.store.samples import APART, are_left_out, left_out
from opdb.store.sets import SET_FILE_BYTES, Columns
from opdb.store.shorthand import lengthened, short_length

SAMPLES = {"visit": "samples.xz", "host_visit": "host_samples.xz"}
"""The files that samples lie in, by table."""


def without_samples(table: Table, visits: Sequence[NewRow]) -> tuple[list[NewRow], bytes]:
    """Return the rows of a table's file and the bytes of its samples; nothing is lost in between.

    Samples that `visits` lack are in neither.
    """
    length = short_length([row["id"] for row in visits])
    lines: dict[str, list[str]] = defaultdict(list)
    left: list[NewRow] = []
    for row in visits:
        texts = {name: row[name] for name in APART[table.name] if row[name] is not None}
        if row.get("role") == "anchor" or not texts or any(map(are_left_out, texts.values())):
            left.append(row)
            continue
        samples = {name: unpack(text) for name, text in texts.items()}
        lines[row["campaign"]].append(f"{row['id'][:length]} {canonical_json(samples)}\n")
        left.append({**row, **{name: left_out(name, each) for name, each in samples.items()}})
    streams = ["".join(each) for each in lines.values()] or [""]
    return left, b"".join(map(_compressed, streams))


def with_samples(table: Table, visits: Columns) -> Columns:
    """Return the rows of a table's file with the raw samples of the file beside it, packed.

    Where there is no such file they stay as they are.

    Raises:
        InputError: the file cannot be read, or a line of it is of no visit that lacks samples.
    """
    path = visits.path.with_name(SAMPLES[table.name])
    if not path.exists():
        return visits
    places = {id_: row for row, id_ in enumerate(visits.values["id"])}
    find = lengthened("visit", places)
    columns = {name: list(visits.values[name]) for name in APART[table.name]}
    for number, (short, text) in enumerate(_lines(path), 1):
        try:
            row = places[find(short)]
            for name, samples in _samples(table, text).items():
                if columns[name][row] != left_out(name, samples):
                    raise ValueError(f"the visit lacks no {name}, or has others")
                columns[name][row] = pack(samples)
        except (ValueError, TypeError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{path}, line {number}: {short[:40]!r}: {why}") from error
    return visits.having(**columns)


def looked_up(connection: Connection, table: Table, visits: Sequence[RowMapping]) -> list[NewRow]:
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
    find = lengthened("visit", lacking)
    for folder in _folders(connection, {row["campaign"] for row in lacking.values()}):
        path = folder / SAMPLES[table.name]
        for short, text in _lines(path) if path.exists() else ():
            try:
                row = lacking[find(short)]
            except ValueError:
                continue  # of another visit
            row.update({name: pack(each) for name, each in _samples(table, text).items()})
    return rows


def visits_apart(folder: Path) -> int:
    """Return of how many visits a set has the raw samples in a file of their own.

    Raises:
        InputError: the file cannot be read.
    """
    path = folder / SAMPLES[schema.visit.name]
    return sum(1 for _ in _lines(path)) if path.exists() else 0


def _folders(connection: Connection, campaigns: set[str]) -> list[Path]:
    """Return the folders of the published sets at hand that campaigns came with."""
    campaign, source = schema.campaign, schema.source
    query = select(campaign.c.id, source.c.name).join(source, campaign.c.source_id == source.c.id)
    names = {row.name for row in connection.execute(query) if row.id in campaigns}
    sets = sets_at_hand()
    return [sets[name] for name in sorted(names & sets.keys())]


def _compressed(text: str) -> bytes:
    import lzma  # some builds of Python lack it, and no prediction needs it

    # A larger dictionary gains nothing: a campaign's lines take a few megabytes.
    return lzma.compress(text.encode(), preset=6 | lzma.PRESET_EXTREME)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a file of samples: the beginning of a visit's id, and its JSON.

    Raises:
        InputError: the file is damaged or cut off, or a line is longer than any can be.
    """
    import lzma  # as above

    try:
        check_input(path, "a file of a set", SET_FILE_BYTES)
        with lzma.open(path, "rb") as stream:
            while line := stream.readline(MOST_BYTES):
                if not line.endswith(b"\n"):
                    raise InputError(f"{path}: a line is cut off, or longer than it may be")
                short, _, text = line.decode().rstrip("\n").partition(" ")
                yield short, text
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
