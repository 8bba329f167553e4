"""What each column of a set may hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from sqlalchemy import Column

from opdb.records import PassMemory
from opdb.store import fields, schema
from opdb.store.database import DAMAGE
from opdb.store.fields import MEMORY, Range, check_value


def refused(column: Column[Any], value: object) -> bool:
    try:
        check_value(column, value)
    except DAMAGE:
        return True
    return False


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (schema.visit.c.cost_s, [0, 0.5, 1e8], [None, "1", b"1", True, -1.0, math.nan, math.inf]),
        (schema.visit.c.copies, [0, 7], [0.5, "7", True, -1]),
        (schema.visit.c.outputs, ["fresh", "reused", None], ["Reused", "none", "0", ""]),
        (schema.visit.c.reason, ["no memory", None], ["", "a\nb", 7]),
        (schema.workload.c.source_version, ["", "1.0"], [None, 1.0]),
        (schema.workload.c.captured, [True, False], [1, "1", None]),
        (schema.visit.c.configuration_id, ["a key"], [7, None]),
        (schema.device.c.slug, ["nvidia-h200"], ["../x", "A100", ""]),
    ],
)
def test_a_column_holds_what_it_was_declared_to(
    column: Column[Any], good: list[object], bad: list[object]
) -> None:
    assert [value for value in good if refused(column, value)] == []
    assert [value for value in bad if not refused(column, value)] == []


@pytest.mark.parametrize("quantity", schema.QUANTITIES)
@pytest.mark.parametrize("part", ["median", "mean", "low", "high"])
def test_a_derived_quantity_may_lie_below_zero(quantity: str, part: str) -> None:
    """It is a difference of two measurements, where the call is next to nothing less than noise."""
    column = schema.cost.c[f"{quantity}_{part}"]
    assert not any(refused(column, value) for value in (-1e-8, 0.0, None))


@pytest.mark.parametrize("length", [10, 20_000])
def test_json_of_any_length_is_an_object_or_refused(length: int) -> None:
    numbers = [0.25] * length
    for good in (json.dumps({"a": numbers}), json.dumps({"a": [*numbers, float("nan")]})):
        check_value(schema.learned.c.document, good)
    for bad in (json.dumps(numbers), json.dumps({"a": numbers})[:-1], f'{{"a": {numbers},}}'):
        with pytest.raises(ValueError, match=r"object|delimiter|property name|trailing comma"):
            check_value(schema.learned.c.document, bad)


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("time_s_low", -1e308),
        ("energy_j_high", 1e308),
        ("power_w_mean", -1e7),
        ("time_s_count", 0),
        ("eager_time_s_count", -1),
    ],
)
def test_a_cost_that_nothing_could_have_is_refused(column: str, field: float) -> None:
    assert refused(schema.cost.c[column], field)


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
            check_value(schema.workload.c.memory, wrong)


def test_what_takes_longer_after_others_is_within_what_times_may_be() -> None:
    column: Column[str] = schema.cost.c.after_others
    check_value(column, '{"code_s": -1e-7, "stream_s": null}')
    for wrong in ('{"code_s": 1e9, "stream_s": null}', '{"code_s": 0.0, "stream_s": -1e9}', "{}"):
        with pytest.raises(ValueError, match=r"out of range|not what a call takes"):
            check_value(column, wrong)


HOST_TIME = {"median": 1e-5, "mean": 1e-5, "low": 9e-6, "high": 1.1e-5, "count": 40}


def test_host_times_are_read() -> None:
    whole = {"function": HOST_TIME, "module": HOST_TIME | {"low": None, "high": None}}
    for held in ({}, whole):
        check_value(schema.cost.c.host_time_s, json.dumps(held))


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
    assert refused(schema.cost.c.host_time_s, json.dumps(held))


# Ranges of quantities: what they hold, ends included.


ENDS = {
    "DURATION_S": (0.0, 1e8),
    "POWER_W": (0.0, 1e6),
    "ENERGY_J": (0.0, 1e12),
    "CLOCK_HZ": (0.0, 1e12),
    "COUNT": (0.0, 1e12),
    "POSITIVE_COUNT": (1.0, 1e12),
    "DIFFERENCE_S": (-1e8, 1e8),
    "DIFFERENCE_W": (-1e6, 1e6),
    "DIFFERENCE_J": (-1e12, 1e12),
    "SHARE": (0.0, 1.01),
    "TEMPERATURE_C": (-200.0, 1000.0),
}
MOST_OF_POSITIVE = {
    "POSITIVE_S": 1e8,
    "POSITIVE_W": 1e6,
    "POSITIVE_HZ": 1e12,
    "POSITIVE_BYTES": 1e18,
    "POSITIVE_SHARE": 1.01,
}
BY_NAME = {name: value for name, value in vars(fields).items() if isinstance(value, Range)}


def out_of_range(held: Range, value: float) -> bool:
    try:
        held.check(value)
    except ValueError:
        return True
    return False


def test_a_range_holds_its_ends_and_nothing_beyond() -> None:
    for name, (low, high) in ENDS.items():
        held = BY_NAME[name]
        assert not out_of_range(held, low) and not out_of_range(held, high), name
        assert out_of_range(held, math.nextafter(low, -math.inf)), name
        assert out_of_range(held, math.nextafter(high, math.inf)), name


def test_what_is_positive_may_be_as_little_as_can_be_but_not_nothing() -> None:
    for name, high in MOST_OF_POSITIVE.items():
        held = BY_NAME[name]
        assert not out_of_range(held, 5e-324) and not out_of_range(held, high), name
        assert out_of_range(held, 0.0) and out_of_range(held, math.nextafter(high, math.inf)), name
    assert BY_NAME.keys() == ENDS.keys() | MOST_OF_POSITIVE.keys()


def test_a_range_says_what_it_allows() -> None:
    with pytest.raises(ValueError, match=r"^out of range; allowed: more than 0, 1e\+06 at most$"):
        fields.POSITIVE_W.check(0.0)
    with pytest.raises(ValueError, match=r"^out of range; allowed: -200 to 1000$"):
        fields.TEMPERATURE_C.check(math.nan)


def test_numbers_together_are_checked_by_the_least_and_the_most() -> None:
    for good in ([], [0.0], (1.01, 0.0), iter([0.5, 1.0])):
        fields.SHARE.check_all(good)
    for bad in ([0.5, 2.0], [-0.1, 0.5], iter([0.5, -1.0])):
        with pytest.raises(ValueError, match="out of range"):
            fields.SHARE.check_all(bad)
