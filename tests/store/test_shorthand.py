"""The calls of a workload as one text, those that are repeated told once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.records import canonical_json
from opdb.store.sets import Columns
from opdb.store.shorthand import (
    CALLS,
    MOST_CALLS,
    calls_at_length,
    facts_at_length,
    facts_in_short,
    folded,
    unfolded,
)


@pytest.mark.parametrize(
    ("sequence", "text"),
    [
        ("0", "0"),
        ("0 1 2", "0 1 2"),
        ("0 1 1", "0 1 1"),
        ("0 1 1 1 1", "0 (1)*4"),
        ("0 1 2 3 1 2 3 4", "0 (1 2 3)*2 4"),
        ("5 " + "1 2 1 3 " * 32 + "6", "5 (1 2 1 3)*32 6"),
        ("1 1 1 1 1 2 1 1 1 1 1 2", "(1 1 1 1 1 2)*2"),
    ],
)
def test_what_is_repeated_is_told_once(sequence: str, text: str) -> None:
    assert folded(sequence.split(" ")) == text
    assert unfolded(text) == sequence.split(" ")


def test_any_sequence_comes_back() -> None:
    drawn = random.Random(7)
    for _ in range(200):
        block = [str(drawn.randrange(4)) for _ in range(drawn.randrange(1, 12))]
        around = [str(drawn.randrange(9)) for _ in range(drawn.randrange(6))]
        sequence = around + block * drawn.randrange(1, 9) + around
        assert unfolded(folded(sequence)) == sequence


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "1  2", "(1 2)", "(1 2)*0", "()*2", "((1)*2)*2", "(1 2)*3 ", "(1)*2(1)*2", "x"],
)
def test_what_is_no_list_of_calls_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of calls"):
        unfolded(text)


def test_a_few_characters_do_not_make_calls_without_number() -> None:
    assert len(unfolded("(1 2)*5000000")) == MOST_CALLS
    for text in ("(1 2)*5000001", "1 (1)*9999999999999999", "(1)*5000000 (1)*5000001"):
        with pytest.raises(ValueError, match="more than 10,000,000 calls in a set"):
            unfolded(text)


def test_nor_do_many_rows(tmp_path: Path) -> None:
    rows = [["a" * 12, "b" * 12 + ":module", "(0)*4000000"]] * 3
    columns = dict(zip(CALLS, map(list, zip(*rows, strict=True)), strict=True))
    said = r"calls.csv, line 4, column calls: '\(0\)\*4000000': more than 10,000,000 calls in a set"
    with pytest.raises(InputError, match=said):
        calls_at_length(Columns(tmp_path / "calls.csv", [2, 3, 4], columns))


def test_facts_of_a_run_are_packed_where_that_is_shorter() -> None:
    few = canonical_json({"compile_time_s": 2.5})
    many = canonical_json({f"layer{i}": {"ran": "default", "why": "too wide"} for i in range(99)})
    assert facts_in_short(few) == few
    assert len(facts_in_short(many)) < len(many) / 5
    for text in (few, many):
        assert facts_at_length(facts_in_short(text)) == text
