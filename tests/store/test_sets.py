"""The files of a set: fields, lines, and what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.store.sets import LATER, read_fields
from opdb.store.shorthand import short_length


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
