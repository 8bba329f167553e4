"""Columns read at once hold what their fields read one by one do, and refuse the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Column

from opdb.errors import InputError
from opdb.records import PassMemory
from opdb.store import schema
from opdb.store.documents import MEMORY
from opdb.store.fields import WHOLE, column_parser, parser
from opdb.store.sets import FAULTS, FILES, Columns

FIELDS = ("", "0", "-0.0", "1.5", "-2", "6.209066666666666e-05", "1e400", "nan", "-inf", "x", " 1")


def one_by_one(file: str, column: str, fields: list[str]) -> list[object] | None:
    table = next(each.table for each in FILES if each.name == file)
    try:
        return list(map(parser(table.c[column]), fields))
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("file", "column"),
    [
        (each.name, column.name)
        for each in FILES
        for column in each.columns.values()
        if column_parser(column) is not None
    ],
)
def test_a_column_at_once_is_its_fields(file: str, column: str) -> None:
    table = next(each.table for each in FILES if each.name == file)
    at_once = column_parser(table.c[column])
    assert at_once is not None
    for fields in ([], *([field] for field in FIELDS), ["1.5", "", "3"], ["2", "1.5", "x"]):
        try:
            found = list(at_once(fields))
        except ValueError:
            found = None
        expected = one_by_one(file, column, fields)
        assert repr(found) == repr(expected), fields  # -0.0 is not 0.0


def test_measured_columns_are_read_at_once() -> None:
    for column in (schema.cost.c.time_s_mean, schema.visit.c.cost_s, schema.visit.c.stretch):
        assert column_parser(column) is not None
    for column in (schema.visit.c.role, schema.cost.c.host_time_s, schema.visit.c.copies):
        assert column_parser(column) is None


@pytest.mark.parametrize("quantity", schema.QUANTITIES)
@pytest.mark.parametrize("part", ["median", "mean", "low", "high"])
def test_a_derived_quantity_may_lie_below_zero(quantity: str, part: str) -> None:
    """It is a difference of two measurements, where the call is next to nothing less than noise."""
    assert one_by_one("costs.csv", f"{quantity}_{part}", ["-1e-08", "0", ""]) == [-1e-8, 0.0, None]


def test_where_outputs_went_is_one_of_two_words_or_untold() -> None:
    read = parser(schema.visit.c.outputs)
    assert [read(field) for field in ("fresh", "reused", "")] == ["fresh", "reused", None]
    for wrong in ("Reused", "none", "0"):
        with pytest.raises(ValueError, match="not one of fresh, reused"):
            read(wrong)


def test_the_field_that_a_column_fails_for_is_named() -> None:
    column: Column[float] = schema.visit.c.cost_s
    fields = Columns(Path("visits.csv"), [2, 3, 4], {"cost_s": ["1", "-1", "2"]})
    each, at_once = parser(column), column_parser(column)
    with pytest.raises(InputError, match=r"visits.csv, line 3, column cost_s: '-1': out of range"):
        fields.converted("cost_s", each, at_once)


def test_a_column_is_read_at_once_where_it_can_be() -> None:
    fields = Columns(Path("visits.csv"), [2, 3], {"cost_s": ["1", "2"]})

    def each(field: str) -> float:
        raise ValueError("was asked for each field")

    found = fields.converted("cost_s", each, lambda column: [float(field) for field in column])
    assert found.values == {"cost_s": [1.0, 2.0]} and found.lines == [2, 3]
    with pytest.raises(InputError, match=r"line 2, column cost_s: '1': was asked for each field"):
        fields.converted("cost_s", each)


def test_rows_that_are_chosen_keep_their_lines() -> None:
    fields = Columns(Path("visits.csv"), [2, 3, 5], {"cost_s": ["1", "2", "-3"]})
    kept = fields.only([True, False, True])
    assert (kept.lines, kept.values) == ([2, 5], {"cost_s": ["1", "-3"]})
    assert str(kept.error(1, "cost_s", "-3", "negative")) == (
        "visits.csv, line 5, column cost_s: '-3': negative"
    )


@pytest.mark.parametrize("length", [10, 20_000])
def test_json_of_any_length_is_an_object_or_refused(length: int) -> None:
    read = parser(schema.learned.c.document)
    numbers = [0.25] * length
    for good in (json.dumps({"a": numbers}), json.dumps({"a": [*numbers, float("nan")]})):
        assert read(good) == good
    for bad in (json.dumps(numbers), json.dumps({"a": numbers})[:-1], f'{{"a": {numbers},}}'):
        with pytest.raises(ValueError, match=r"object|delimiter|property name|trailing comma"):
            read(bad)


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("time_s_low", "-1e308"),
        ("energy_j_high", "1e308"),
        ("power_w_mean", "-1e7"),
        ("time_s_count", "0"),
        ("eager_time_s_count", "-1"),
    ],
)
def test_a_cost_that_nothing_could_have_is_refused(column: str, field: str) -> None:
    assert one_by_one("costs.csv", column, [field]) is None


def test_memory_is_read_as_it_was_written() -> None:
    assert MEMORY.encode is not None and MEMORY.decode is not None
    memory = PassMemory(1000, 10, 400, 0, 400)
    text = MEMORY.encode(memory)
    assert MEMORY.decode(text) == memory
    assert "cache_bytes" not in text  # as in sets that were published before it was recorded
    apart = PassMemory(1000, 10, 400, 0, 400, 250)
    assert MEMORY.decode(MEMORY.encode(apart)) == apart
    for wrong in (text.replace("1000", "-1"), text.replace("1000", "1000.0")):
        with pytest.raises(ValueError, match="expected a whole number of bytes"):
            parser(schema.workload.c.memory)(wrong)


def test_what_takes_longer_after_others_is_within_what_times_may_be() -> None:
    read = parser(schema.cost.c.after_others)
    assert read('{"code_s": -1e-7, "stream_s": null}') == '{"code_s": -1e-7, "stream_s": null}'
    for wrong in ('{"code_s": 1e9, "stream_s": null}', '{"code_s": 0.0, "stream_s": -1e9}', "{}"):
        with pytest.raises(ValueError, match=r"out of range|not what a call takes"):
            read(wrong)


def test_whole_numbers_are_those_that_a_database_holds() -> None:
    assert [WHOLE.parse(str(number)) for number in (2**63 - 1, -(2**63))] == [2**63 - 1, -(2**63)]
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match="too large"):
            WHOLE.parse(str(number))


HOST_TIME = {"median": 1e-5, "mean": 1e-5, "low": 9e-6, "high": 1.1e-5, "count": 40}


def test_host_times_are_read() -> None:
    whole = {"function": HOST_TIME, "module": HOST_TIME | {"low": None, "high": None}}
    for held in ({}, whole):
        text = json.dumps(held)
        assert one_by_one("costs.csv", "host_time_s", [text]) == [text]


@pytest.mark.parametrize(
    "held",
    [
        [],
        {"function": {}},
        {"function": None},
        {"function": HOST_TIME | {"count": 0}},
        {"function": HOST_TIME | {"count": "40"}},
        {"function": HOST_TIME | {"median": "x"}},
        {"function": HOST_TIME | {"low": -1e308}},
        {"function": HOST_TIME | {"mean": float("nan")}},
    ],
)
def test_host_times_that_no_command_could_read_are_refused(held: object) -> None:
    parse = parser(schema.cost.c.host_time_s)
    with pytest.raises(FAULTS):
        parse(json.dumps(held))
