"""The raw samples of a set, in a file of its own that usual questions do not read.

A set's database has `-` in place of the raw samples of every visit but the anchors, which tell
boards apart and are read with each prediction; host visits have `-` and the number of blocks in
place of the times. `samples.xz` has a line for each of these visits: its id, a space, and one JSON
object of its columns, unpacked (`opdb.store.raw` describes them).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, select

from opdb.errors import InputError
from opdb.files import check_input
from opdb.records import Json, canonical_json
from opdb.store import schema
from opdb.store.packing import MOST_BYTES, pack, unpack
from opdb.store.published import SAMPLES, SET_FILE_BYTES, sets_at_hand
from opdb.store.rows import NewRow
from opdb.store.samples import APART, are_left_out, left_out

if TYPE_CHECKING:
    from opdb.store.sets import Rows


def without_samples(visits: Rows) -> tuple[Rows, list[str]]:
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


def with_samples(folder: Path, contents: Mapping[str, Rows]) -> dict[str, Rows]:
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
        for id_, text in _lines(path) if path.exists() else ():
            if row := lacking.get(id_):
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
    import lzma  # some builds of Python lack it, and a database that is there needs it not

    size = max(4096, min(len(content), 64 * 1024 * 1024))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": size}]
    return lzma.compress(content, filters=filters)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a file of samples: a visit's id, and its JSON.

    Raises:
        InputError: the file is damaged or cut off, or a line is longer than any can be.
    """
    import lzma  # some builds of Python lack it, and no prediction needs it

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
