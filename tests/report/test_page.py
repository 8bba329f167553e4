"""The report of all published sets: its numbers are the database's, and nothing gets out of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sqlite3
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import opdb
from opdb.commands.show import FAILED
from opdb.commands.validate import REGIMES, RUNS, groups
from opdb.studies.report import ReportPage
from opdb.studies.report.page import ACCURACY, COVERAGE, MISSING, PENDING, POINTS, missing
from opdb.studies.roofline.report import OPERATORS, Placed
from opdb.tables import Rows
from tests import published

pytestmark = pytest.mark.slow


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/gzip" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1], validate=True)))
    return data


class Cells(HTMLParser):
    """The cells of each table of a page, by the table's id: texts, and values where they differ."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self._rows: list[list[tuple[str, str | None]]] = []
        self._value: str | None = None
        self._text: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self._rows = self.tables[str(given["id"])] = []
        elif tag == "tr":
            self._rows.append([])
        elif tag == "td":
            self._text, self._value = "", given.get("data-v")

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._text is not None:
            self._rows[-1].append((self._text, self._value))
            self._text = None


def check_table(cells: Cells, name: str, of: Rows[Any]) -> None:
    """Check that a table of the page has these rows, every text and every number."""
    shown = [column for column in of.table.columns if column.title is not None]
    head, *rows = cells.tables[name]
    assert (head, len(rows)) == ([], len(of.rows))
    for row, found in zip(of.rows, rows, strict=True):
        assert [text for text, _ in found] == of.table.cells(row)
        for column, (_, value) in zip(shown, found, strict=True):
            told = column.get(row)
            if isinstance(told, float):
                assert value is not None and float(value) == told
            elif isinstance(told, list) and told and isinstance(told[0], float):
                assert value is not None and list(map(float, value.split())) == told


def test_the_tables_of_the_page_have_every_row_and_number(made: ReportPage) -> None:
    found, cells = made.content, Cells(made.html)
    whole = found.validation.whole
    assert len(whole) > 250
    check_table(cells, "runs", Rows(ACCURACY, whole))
    standing = found.standing
    tables: dict[str, Rows[Any]] = {
        "regimes": Rows(REGIMES, list(groups(whole))),
        "workloads": Rows(COVERAGE, found.workloads),
        "missing": Rows(MISSING, list(missing(found.validation.answers))),
        "pending": Rows(PENDING, list(standing.pending.items())),
        "failed": Rows(FAILED, standing.failures),
    }
    for name, rows in tables.items():
        if rows.rows:
            check_table(cells, name, rows)
    filled = {name for name, table in cells.tables.items() if len(table) > 1}
    assert filled == {"runs", *(name for name, rows in tables.items() if rows.rows)}
    for number, row in enumerate(whole):
        assert RUNS.cells(row)[:4] == [text for text, _ in cells.tables["runs"][number + 1][:4]]


def test_the_roofline_is_that_of_the_command(made: ReportPage) -> None:
    roofs = made.content.roofs
    assert roofs is not None
    document = data_of(made.html)["roofs"]
    assert document["mode"] == "graph"
    columns = POINTS.fields
    for model, row in zip(roofs.models, document["models"], strict=True):
        placed = [Placed(roofs, model, point) for point in model.points if point.works]
        assert len(placed) == len(row["points"])
        for point, values in zip(placed, row["points"], strict=True):
            told = OPERATORS.document(point)
            found = dict(zip(columns, values, strict=True))
            both = told.keys() & found.keys()
            assert {"count", "intensity", "flops_per_s", "flops_per_j"} <= both
            assert {name: found[name] for name in both} == {name: told[name] for name in both}


def test_the_policy_allows_the_pages_own_scripts_alone(made: ReportPage) -> None:
    page = made.html
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "unsafe" not in policy[1] and "http" not in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy[1]
    own = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.S)
    assert not re.search(r"""(src|href)\s*=\s*["']?\w+://""", own)
    assert not re.search(r"""\son\w+=|\sstyle=""", own)


HOSTILE = '</script><img src=x onerror=alert(1)>\u202e\u2028&"'


def hostile_report(tmp_path: Path) -> ReportPage:
    """Return a report of a database whose names of models, notes and flags are a stranger's."""
    path = published.copy_to(tmp_path / "opdb.sqlite")
    with opdb.open_store(str(path)) as store:
        renamed = {
            w.key: replace(w, name=HOSTILE).key for w in store.workloads() if w.name == "resnet50"
        }
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany(
            "UPDATE workload SET name = ?, key = ? WHERE key = ?",
            [(HOSTILE, new, old) for old, new in renamed.items()],
        )
        connection.execute(
            "DELETE FROM model_run WHERE workload_id NOT IN "
            "(SELECT id FROM workload WHERE name = ?)",
            (HOSTILE,),
        )
    connection.close()
    return opdb.report(db=str(path))


def test_names_from_a_database_stay_text(tmp_path: Path) -> None:
    page = hostile_report(tmp_path).html
    assert "<img" not in page
    assert page.count("</script>") == 4
    assert data_of(page)["runs"][0]["model"] == HOSTILE
    shown = Cells(page).tables["runs"][1][0][0]
    assert shown == HOSTILE.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028")
