"""What each column of a set may hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from sqlalchemy import Column

from opdb.records import PassMemory
from opdb.store import schema
from opdb.store.database import DAMAGE
from opdb.store.fields import MEMORY, check_value


def refused(column: Column[Any], value: object) -> bool:
    try:
        check_value(column, value)
    except DAMAGE:
        return True
    return False


HOST_TIME = {"median": 1e-5, "mean": 1e-5, "low": 9e-6, "high": None, "count": 40}


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (schema.visit.c.cost_s, [0, 0.5, 1e8], [None, "1", b"1", True, -1.0, math.nan, math.inf]),
        (schema.visit.c.copies, [0, 7], [0.5, "7", True, -1]),
        (schema.visit.c.outputs, ["fresh", "reused", None], ["Reused", "none", "0", ""]),
        (schema.visit.c.reason, ["no memory", "a\nb", None], [7]),
        (schema.workload.c.source_version, ["", "1.0"], [None, 1.0]),
        (schema.workload.c.captured, [True, False], [1, "1", None]),
        (schema.device.c.slug, ["nvidia-h200"], ["../x", "A100", ""]),
        (schema.device.c.power_limit_w, [700.0, 5e-324], [0.0, 1e300]),
        (schema.learned.c.document, ['{"a":[0.25]}'], ["[0.25]", '{"a":[0.25]', '{"a":1,}']),
        (schema.cost.c.time_s_low, [-1e-8, 0.0, None], ["0", math.nan]),
        (
            schema.cost.c.after_others,
            ['{"code_s":-1e-7,"stream_s":null}'],
            ["{}", "[]", '{"code_s":"0"}', '{"code_s":NaN,"stream_s":null}'],
        ),
        (
            schema.cost.c.host_time_s,
            ["{}", json.dumps({"function": HOST_TIME})],
            [
                "[]",
                *(
                    json.dumps({"function": HOST_TIME | {name: value}})
                    for name, value in (("count", -1), ("count", "40"), ("mean", math.nan))
                ),
            ],
        ),
    ],
)
def test_a_column_holds_what_it_was_declared_to(
    column: Column[Any], good: list[object], bad: list[object]
) -> None:
    assert [value for value in good if refused(column, value)] == []
    assert [value for value in bad if not refused(column, value)] == []


def test_memory_is_read_as_it_was_written() -> None:
    memory = PassMemory(1000, 10, 400, 0, 400)
    text = MEMORY.encode(memory)
    assert MEMORY.decode(text) == memory
    assert "cache_bytes" not in text  # as in sets that were published before it was recorded
    apart = PassMemory(1000, 10, 400, 0, 400, 250)
    assert MEMORY.decode(MEMORY.encode(apart)) == apart
    for wrong in (text.replace("1000", "-1"), text.replace("1000", "1000.0")):
        assert refused(schema.workload.c.memory, wrong)
