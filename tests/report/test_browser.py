"""The report in a real browser: what people see is what the database holds."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

import opdb
from opdb.studies.report import ReportPage
from opdb.tables import RATIO, SHARE, Column
from tests import published
from tests.report.test_page import HOSTILE, data_of, hostile_report

pytestmark = pytest.mark.slow

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE_MS = 120_000


@dataclass
class Seen:
    """A page in the browser, and what it said and asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, url: str) -> None:
        self.page.goto("about:blank")
        self.requests.clear()
        self.page.goto(url)
        self.page.wait_for_function("window.opdbReport")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt install chromium)")
    with sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=options, timeout=PATIENCE_MS
        )
        yield started
        started.close()


def opened(browser: Browser) -> Seen:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page.set_default_timeout(PATIENCE_MS)
    seen = Seen(page)
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    return seen


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "report.html"


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Seen]:
    seen = opened(browser)
    yield seen
    seen.page.close()


@pytest.fixture
def seen(window: Seen, made: ReportPage, file: Path) -> Seen:
    """The report, opened anew; nothing may be wrong with it when a test is over."""
    file.write_text(made.html)
    window.said.clear()
    window.open(file.as_uri())
    return window


def test_it_opens_without_an_error_or_a_request(seen: Seen, file: Path) -> None:
    assert seen.page.title() == "opdb report: NVIDIA H200"
    assert seen.said == []
    assert seen.requests == [file.as_uri()]


def test_axe_finds_nothing_wrong_in_light_or_dark(browser: Browser, file: Path) -> None:
    """In a report of two models: axe looks at each cell, and those of more models are alike."""
    file.write_text(opdb.report("resnet50", "vgg16", db=str(published.database())).html)
    seen = opened(browser)
    seen.open(file.as_uri())
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        seen.page.emulate_media(color_scheme=scheme)
        found = Axe().run(seen.page).response
        assert [(e["id"], e["nodes"][0]["html"]) for e in found["violations"]] == [], scheme
        assert "color-contrast" in {each["id"] for each in found["passes"]}
    assert seen.said == []
    seen.page.close()


def test_the_page_adds_up_what_the_database_holds(seen: Seen, made: ReportPage) -> None:
    told = seen.page.evaluate("opdbReport.data.runs.map(run => opdbReport.parts(run))")
    assert len(told) == len(made.content.runs)
    for run, parts in zip(made.content.runs, told, strict=True):
        found, of = run.answer.prediction, run.answer.prediction.total
        time_s, dynamic_j = defaultdict[str, float](float), defaultdict[str, float](float)
        for configuration, count in found.workload.occurrences().items():
            time_s[configuration.title] += count * of.call_s.get(configuration.key, 0.0)
            dynamic_j[configuration.title] += count * of.call_j.get(configuration.key, 0.0)
        for row in parts["kinds"]:
            if row["part"] in time_s:
                assert (row["time_s"] or 0) == pytest.approx(time_s[row["part"]], rel=1e-9)
                energy_j = dynamic_j[row["part"]] + of.base_power_w * time_s[row["part"]]
                assert (row["energy_j"] or 0) == pytest.approx(energy_j, rel=1e-9)
        whole_s = math.fsum(row["time_s"] or 0 for row in parts["kinds"])
        assert whole_s == pytest.approx(found.time_s, rel=1e-9)
        assert math.fsum(row["time_s"] or 0 for row in parts["configurations"]) == pytest.approx(
            whole_s
        )


def test_people_read_numbers_as_everywhere_in_opdb(seen: Seen, made: ReportPage) -> None:
    data = data_of(made.html)
    values = [value for run in data["runs"] for value in (*run["times_s"], *run["dynamic_j"])][
        :4000
    ]
    values += [run[name] for run in data["runs"] for name in ("predicted_time_s", "repeat_spread")]
    values += [0, 0.0, 1, 12345.6, 1e-12, -0.5, 0.0625, 1.0625, 1.03125, 0.9996, 99999.0, None]
    for unit in ("s", "J", SHARE, RATIO):
        column: Column[Any] = Column("x", lambda value: value, unit=unit)
        told = seen.page.evaluate(
            "([values, unit]) => values.map(value => opdbReport.text(value, unit))", [values, unit]
        )
        differ = [
            (value, text, column.cell(value))
            for value, text in zip(values, told, strict=True)
            if text != column.cell(value)
        ]
        assert differ == []


def rows_of(seen: Seen, table: str) -> list[list[str]]:
    found: list[list[str]] = seen.page.evaluate(
        "id => [...document.getElementById(id).tBodies[0].rows].filter(row => !row.hidden)"
        ".map(row => [...row.cells].map(cell => cell.textContent))",
        table,
    )
    return found


def test_a_table_is_filtered_sorted_and_saved(seen: Seen, made: ReportPage) -> None:
    whole = made.content.validation.whole
    mine = [a for a in whole if a.prediction.workload.name == "resnet50"]
    graph = [answer for answer in mine if answer.prediction.mode == "graph"]
    seen.page.get_by_label("Filter: Runs of which every call is measured").fill("resnet50 graph")
    rows = [row for row in rows_of(seen, "runs") if row[0] == "resnet50"]
    assert len(rows) == len(graph)
    heading = seen.page.locator("#runs th button", has_text=re.compile("^predicted time$"))
    heading.focus()
    seen.page.keyboard.press("Enter")
    assert heading.locator("..").get_attribute("aria-sort") == "ascending"
    with seen.page.expect_download() as download:
        seen.page.locator(".controls:has(+ .scroll #runs) button").click()
    saved = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    times = [float(row["predicted_time_s"]) for row in saved]
    assert times == sorted(times)
    found = {a.prediction.time_s for a in graph}
    assert found == {float(row["predicted_time_s"]) for row in saved if row["model"] == "resnet50"}
    heading.click()
    assert heading.locator("..").get_attribute("aria-sort") == "descending"
    assert seen.said == []


def test_every_choice_draws_its_figure_with_a_table_beside_it(seen: Seen, made: ReportPage) -> None:
    page = seen.page
    for name in ("accuracy-measure", "scaling-measure", "roofline-measure"):
        page.locator(f"#{name} input[value=energy]").check()
    page.locator("#scaling-model").select_option("resnet50")
    page.locator("#roofline-model").select_option("1")
    shown = [run for run in made.content.runs if run.name.startswith("resnet50~")]
    assert len(rows_of(seen, "scaling")) == len(shown)
    figures = page.locator("figure svg[role=img]")
    assert figures.count() == 6
    for number in range(6):
        assert "table" in str(figures.nth(number).get_attribute("aria-label")) or number == 3
    with page.expect_download() as download:
        page.locator("#roofline-chart button").click()
    svg = Path(download.value.path()).read_text()
    assert svg.startswith("<svg") and "var(" not in svg and "FLOP/J" in svg
    assert seen.said == []


def test_a_strangers_names_run_no_code(browser: Browser, tmp_path: Path) -> None:
    page = hostile_report(tmp_path).html
    seen = opened(browser)
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    seen.page.on("dialog", note)
    (tmp_path / "report.html").write_text(page)
    seen.open((tmp_path / "report.html").as_uri())
    assert (dialogs, seen.said, len(seen.requests)) == ([], [], 1)
    assert seen.page.locator("img").count() == 0
    assert HOSTILE[:9] in rows_of(seen, "runs")[0][0]
    seen.page.close()
