"""`opdb roofline` on the published set: text, JSON, CSV, figures, and what it says of bad input."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from opdb.distribution import install
from tests import published
from tests.cli.conftest import Opdb

RESNET50 = ("roofline", "resnet50", "--batch-size", 32, "--mode", "graph")


@pytest.fixture
def h200(opdb: Opdb, tmp_path: Path) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


def alter(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def test_json_has_peaks_points_and_shares(opdb: Opdb, h200: Path) -> None:
    ran = opdb(*RESNET50, "vit_b_16", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert (found["device"], found["mode"]) == ("nvidia-h200", "graph")
    assert found["peaks"]["measured"]["bytes_per_s"]["memory"] == pytest.approx(4.29e12, rel=0.01)
    assert found["peaks"]["vendor"]["bytes_per_s"]["memory"] == 4.8e12
    assert [model["model"] for model in found["models"]] == ["resnet50", "vit_b_16"]
    model = found["models"][0]
    assert model["flops"] == sum(each["flops"] * each["count"] for each in model["operators"])
    assert model["measured"]["time_s"] == pytest.approx(model["time_s"], rel=0.05)
    assert sum(part["share_time"] for part in model["bounds"]) == pytest.approx(1)
    for each in model["operators"]:
        if each["time_s"]:
            bound = each["measured_time"]
            assert bound["bound"] in ("compute", "memory")
            assert bound["reached"] == pytest.approx(bound["least"] / each["time_s"])
            gross = each["dynamic_energy_j"] + 124.19 * each["time_s"]
            assert each["energy_j"] == pytest.approx(gross, rel=1e-3)


def test_people_are_shown_bounds_and_what_is_not_known(opdb: Opdb, h200: Path) -> None:
    ran = opdb("roofline", "vit_b_16", "--mode", "graph", "--device", "nvidia-h200")
    assert ran.status == 0
    for said in (
        "vit_b_16, batch 1 float32, graph",
        "4.293 TB/s",
        "data sheet: NVIDIA H200 Tensor Core GPU data sheet",
        "held back by",
        "outside operators",
        "without FLOPs (calls: 1): 1.21 MB, 0.1 % of the time (cat)",
        "note: no cache was measured for its rate",
    ):
        assert said in ran.out, said


def test_files_are_written_whole(opdb: Opdb, h200: Path) -> None:
    pytest.importorskip("matplotlib")
    files = ("--csv", "a.csv", "--png", "a.png", "--svg", "a.svg", "--html", "a.html")
    ran = opdb(*RESNET50, *files)
    assert ran.status == 0
    assert ran.err.splitlines() == [f"written: a.{end}" for end in ("csv", "png", "svg", "html")]
    assert sorted(p.name for p in Path().iterdir()) == ["a.csv", "a.html", "a.png", "a.svg"]
    with Path("a.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert sum(int(row["count"]) for row in rows) == 175
    assert {row["measured_time_bound"] for row in rows} == {"compute", "memory", ""}
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert 50_000 < Path("a.png").stat().st_size < 1_000_000
    ids = {each.get("id") for each in ET.parse("a.svg").iter()}
    assert {"time-0-0", "energy-0-0", "time-0-model", "energy-0-model"} <= ids


def marks(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.split('id="marks">')[1].split("</script>")[0])
    return found


def test_the_page_needs_no_network_and_tells_of_every_mark(opdb: Opdb, h200: Path) -> None:
    pytest.importorskip("matplotlib")
    assert opdb(*RESNET50, "--html", "a.html", "--quiet").err == ""
    page = Path("a.html").read_text()
    assert len(page) < 500_000
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert not re.search(r"@import|url\(\s*['\"]?http", page)
    told = marks(page)
    assert len(told) > 100 and all(f'id="{name}"' in page for name in told)
    assert "tf32" not in told and "conv2d" in {each["group"] for each in told.values()}
    assert "reached" in told["time-0-0"]["measured peaks"]


def test_the_same_figure_twice_is_the_same_file(opdb: Opdb, h200: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a", "b"):
        opdb(*RESNET50, "--svg", f"{name}.svg", "--png", f"{name}.png")
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_a_models_name_cannot_break_out_of_the_page(opdb: Opdb, h200: Path) -> None:
    pytest.importorskip("matplotlib")
    alter(h200, "UPDATE workload SET name = '</script><b>&' WHERE name = 'alexnet'")
    assert opdb("roofline", "</script><b>&", "--html", "a.html").status in (0, 2)
    from opdb.commands._charts import Drawing
    from opdb.studies.roofline.figure import page

    text = page(Drawing("<svg></svg>", b"", {"a": {"": "</script><b>"}}), "</title><b>")
    assert "<b>" not in text and marks(text)["a"][""] == "</script><b>"


def test_peaks_of_ones_own_take_the_place_of_the_measured(opdb: Opdb, h200: Path) -> None:
    mine = {"source": "mine", "flops_per_s": {"float32": 5e13}, "bytes_per_s": {"memory": 4e12}}
    Path("peaks.json").write_text(json.dumps(mine))
    found = json.loads(opdb(*RESNET50, "--peaks", "peaks.json", "--json").out)
    assert found["peaks"]["measured"]["source"] == "mine"
    assert any("no peak is known for tf32" in note for note in found["notes"])
    by_unit = {each["unit"]: each for each in found["models"][0]["operators"] if each["time_s"]}
    assert by_unit["tf32"]["measured_time"] is None
    assert by_unit["float32"]["measured_time"] is not None
    names = [part["bound"] for part in found["models"][0]["bounds"]]
    assert names == ["compute", "memory", "peak not known", "outside operators"]
    assert found["models"][0]["reached_time"] is None


def test_without_measured_peaks_it_says_so_and_keeps_the_vendors(opdb: Opdb, h200: Path) -> None:
    pytest.importorskip("matplotlib")
    alter(h200, "DELETE FROM board_calibration")
    ran = opdb(*RESNET50, "--json")
    found = json.loads(ran.out)
    assert any("no board of this device has measured peaks" in n for n in found["notes"])
    first = found["models"][0]["operators"][0]
    assert first["measured_time"] is None and first["vendor_time"]["reached"] < 1
    assert opdb(*RESNET50, "--svg", "a.svg", "--csv", "a.csv").status == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet5",), "unknown model 'resnet5'; did you mean"),
        (("resnet50", "--device", "nvidia-h20"), "unknown device 'nvidia-h20'; did you mean"),
        (("resnet50", "--board", "x"), "unknown board 'x'"),
        (("resnet50", "--mode", "grph"), "unknown --mode 'grph'; did you mean 'graph'?"),
        (("resnet50", "--mode", "compile"), "mode 'compile' cannot be predicted"),
        (("resnet50", "-b", 7, "--no-harvest"), "resnet50 was not harvested for batch 7 float32"),
        (("resnet50", "--peaks", "none.json"), "none.json: no such file"),
    ],
)
def test_bad_input_is_one_message(
    opdb: Opdb, h200: Path, arguments: tuple[object, ...], said: str
) -> None:
    ran = opdb("roofline", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("opdb: ") and said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_what_was_not_measured_is_left_out_and_counted(opdb: Opdb, h200: Path) -> None:
    kind = "(SELECT id FROM configuration WHERE kind = 'relu')"
    alter(h200, f"DELETE FROM cost WHERE configuration_id IN {kind}")
    found = json.loads(opdb(*RESNET50, "--json").out)
    model = found["models"][0]
    assert sum(each["count"] for each in model["unmeasured"]) == 49
    assert {each["kind"] for each in model["unmeasured"]} == {"relu"}
    said = "not measured and left out: 49 calls of resnet50; opdb bench measures what is lacking"
    assert said in found["notes"]


def test_a_workload_without_any_cost(opdb: Opdb, database: Path) -> None:
    ran = opdb("roofline", "tiny")
    assert ran.status == 2 and "nothing of tiny (batch 2 float32) was measured" in ran.err


def test_without_matplotlib_it_says_what_to_install(
    opdb: Opdb, h200: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = opdb(*RESNET50, "--png", "a.png")
    assert ran.status == 2 and install("plots") in ran.err
    assert opdb(*RESNET50, "--csv", "a.csv").status == 0
