"""The files of a set are read as the csv module reads them."""

from __future__ import annotations

import csv
import random
from io import StringIO
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.store.sets import LATER, _csv_rows, read_fields
from opdb.store.shorthand import short_length


def outcome(text: str, *, ours: bool) -> tuple[list[tuple[int, list[str]]], bool]:
    """Return the rows with the lines that they end on, and whether an error follows them."""
    found: list[tuple[int, list[str]]] = []
    stream = StringIO(text, newline="")
    try:
        if ours:
            for row in _csv_rows(stream):
                found.append(row)  # extended by all at once, it would lack those before an error
        else:
            reader = csv.reader(stream, strict=True)
            for fields in reader:
                found.append((reader.line_num, fields))
    except csv.Error:
        return found, True
    return found, False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        "a,b\n1,2",
        'a,b\n"1\n2",3\n4,5\n',
        'a,b\n"1""2",\n\n3,4\n',
        'a,b\r\n1,2\r\n"3",4\r\n',
        'a"b,c\n1,2\n',
        'a,"b\n1,2\n',
        'a,"b"c\n',
    ],
)
def test_rows_and_their_lines(text: str) -> None:
    assert outcome(text, ours=True) == outcome(text, ours=False)


def test_any_text() -> None:
    chosen = random.Random(7)
    for _ in range(5000):
        text = "".join(chosen.choices('ab,,""\n\n\r x', k=chosen.randint(0, 14)))
        assert outcome(text, ours=True) == outcome(text, ours=False), text


def test_a_field_keeps_its_line_ends_and_a_long_one_is_told_short(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n"1\r\n2",3\n')
    found = read_fields(path, ["b", "a"])
    assert (found.values, found.lines, len(found)) == ({"a": ("1\r\n2",), "b": ("3",)}, [3], 1)
    for length, shown in ((80, "x" * 80), (81, "x" * 77 + "...")):
        said = str(found.error(0, "a", "x" * length, "too long"))
        assert said == f"{path}, line 3, column a: '{shown}': too long"


def test_a_column_that_older_sets_lack_is_empty_and_another_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    for later in LATER:
        found = read_fields(path, ["a", "b", later]).values
        assert found == {"a": ("1",), "b": ("2",), later: [""]}
    with pytest.raises(InputError, match=r"a.csv, line 1: columns a, b; expected a, b, c"):
        read_fields(path, ["a", "b", "c"])


def test_keys_are_as_short_as_tells_them_apart() -> None:
    alike = "0123456789abcdef"
    for length in (12, 13, 16):
        keys = [alike[: length - 1] + end for end in ("x1", "y2")]
        assert short_length(keys) == length
    assert short_length([]) == short_length([alike]) == 12
