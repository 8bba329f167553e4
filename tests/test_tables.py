"""One declaration of a table gives its text, Markdown, CSV, JSON and HTML."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

import pytest

from opdb.records import Quantity
from opdb.tables import SHARE, Column, Table, quantity
from opdb.units import show


@dataclass(frozen=True)
class Run:
    model: str
    time_s: float | None
    energy: Quantity | None
    inside: float | None = None
    bound: dict[str, float] | None = None


RUNS: Table[Run] = Table(
    Column("model", lambda run: run.model, title="model"),
    Column("time_s", lambda run: run.time_s, title="time", unit="s"),
    quantity("energy_j", "J", lambda run: run.energy, title="energy"),
    Column("inside", lambda run: run.inside, title="inside", unit=SHARE),
    Column("bound", lambda run: run.bound, members=("side", "least")),
    Column("input_size", lambda _: [3, 224, 224]),
    Column(title="short", text=lambda run: run.model[:3]),
)
ROWS = [
    Run("resnet50", 0.00123, Quantity(0.25, 0.25, 0.2, 0.3, 5), 0.953, {"side": 1.0, "least": 0.5}),
    Run("a|<b>\x1b", None, None),
]


def test_machines_read_every_named_column_in_base_si() -> None:
    first, second = RUNS.documents(ROWS)
    assert first == {
        "model": "resnet50",
        "time_s": 0.00123,
        "energy_j": {"value": 0.25, "low": 0.2, "high": 0.3, "unit": "J"},
        "inside": 0.953,
        "bound": {"side": 1.0, "least": 0.5},
        "input_size": [3, 224, 224],
    }
    assert second["time_s"] is None and second["energy_j"] is None
    assert list(first) == RUNS.fields


def test_csv_has_members_and_sizes_in_columns_of_plain_values() -> None:
    first, second = csv.DictReader(io.StringIO(RUNS.csv(ROWS)))
    assert first["bound_side"] == "1.0" and first["bound_least"] == "0.5"
    assert second["bound_side"] == "" and second["time_s"] == ""
    assert first["input_size"] == "3x224x224"
    assert second["model"] == "a|<b>\\x1b"
    assert float(first["time_s"]) == 0.00123
    assert [first[f"energy_j{end}"] for end in ("", "_low", "_high")] == ["0.25", "0.2", "0.3"]


def test_html_shows_what_people_read() -> None:
    shown = RUNS.html(ROWS)
    assert shown.startswith("<table><tr><th>model</th>") and "<td>1.23 ms</td>" in shown
    assert "<b>" not in shown and "a|&lt;b&gt;" in shown


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.25, 2, "250 ms"),
        (0.0012345, 4, "1.234 ms"),
        (5.28e-6, 2, "5.3 µs"),
        (989.4e12, 2, "990 TFLOP/s"),
        (4e-10, 3, "4e-10 s"),
        (0.0, 4, "0 s"),
        (None, 4, "–"),
    ],
)
def test_numbers_are_spelled_out(value: float | None, digits: int, shown: str) -> None:
    unit = "FLOP/s" if "FLOP" in shown else "s"
    assert show(value, unit, digits=digits) == shown
