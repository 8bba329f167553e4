"""`opdb roofline` on the published set: text, JSON, CSV, figures, and what it says of bad input."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from opdb.errors import InputError
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.records import Configuration
from opdb.studies.roofline.points import (
    Peaks,
    Point,
    least_energy,
    least_time,
    read_peaks,
    unit_of,
    with_energy,
)
from tests.cli.conftest import Opdb

RESNET50 = ("roofline", "resnet50", "--batch-size", 32, "--mode", "graph")


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


def marks(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.split('id="marks">')[1].split("</script>")[0])
    return found


def test_files_are_written_whole_and_the_page_tells_of_every_mark(opdb: Opdb, h200: Path) -> None:
    pytest.importorskip("matplotlib")
    ends = ("csv", "png", "svg", "html")
    ran = opdb(*RESNET50, *(word for end in ends for word in (f"--{end}", f"a.{end}")))
    assert ran.status == 0
    assert ran.err.splitlines() == [f"written: a.{end}" for end in ends]
    assert sorted(p.name for p in Path().iterdir()) == ["a.csv", "a.html", "a.png", "a.svg"]
    with Path("a.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert sum(int(row["count"]) for row in rows) == 175
    assert {row["measured_time_bound"] for row in rows} == {"compute", "memory", ""}
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert 50_000 < Path("a.png").stat().st_size < 1_000_000
    ids = {each.get("id") for each in ET.parse("a.svg").iter()}
    assert {"time-0-0", "energy-0-0", "time-0-model", "energy-0-model"} <= ids
    assert opdb(*RESNET50, "--svg", "b.svg", "--png", "b.png", "--quiet").err == ""
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes(), "the same figure twice"
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()
    page = Path("a.html").read_text()
    assert len(page) < 500_000
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page), "it needs no network"
    assert not re.search(r"@import|url\(\s*['\"]?http", page)
    told = marks(page)
    assert len(told) > 100 and all(f'id="{name}"' in page for name in told)
    assert "tf32" not in told and "conv2d" in {each["group"] for each in told.values()}
    assert "reached" in told["time-0-0"]["measured peaks"]


def test_a_models_name_cannot_break_out_of_the_page() -> None:
    from opdb.studies.roofline.figure import Drawing, page

    text = page(Drawing("<svg></svg>", b"", {"a": {"": "</script><b>"}}), "</title><b>")
    assert "<b>" not in text and marks(text)["a"][""] == "</script><b>"


def test_peaks_of_ones_own_take_the_place_of_the_measured(opdb: Opdb, h200: Path) -> None:
    mine = {"source": "mine", "flops_per_s": {"float32": 5e13}, "bytes_per_s": {"memory": 4e12}}
    Path("peaks.json").write_text(json.dumps(mine))
    found = opdb.json(*RESNET50, "--peaks", "peaks.json")
    assert found["peaks"]["measured"]["source"] == "mine"
    assert any("no peak is known for tf32" in note for note in found["notes"])
    by_unit = {each["unit"]: each for each in found["models"][0]["operators"] if each["time_s"]}
    assert by_unit["tf32"]["measured_time"] is None
    assert by_unit["float32"]["measured_time"] is not None
    names = [part["bound"] for part in found["models"][0]["bounds"]]
    assert names == ["compute", "memory", "peak not known", "outside operators"]
    assert found["models"][0]["reached_time"] is None


PEAKS = Peaks(
    "a test", {"float32": 100.0}, {"memory": 10.0}, {"float32": 4.0}, {"memory": 2.0}, 3.0
)


# The arithmetic


def test_the_larger_of_operations_and_bytes_holds_a_call_back() -> None:
    computing, moving = (
        least_time(1000.0, 10.0, "float32", PEAKS),
        least_time(10.0, 10.0, "float32", PEAKS),
    )
    assert computing and (computing.side, computing.least) == ("compute", 10.0)
    assert moving and (moving.side, moving.least) == ("memory", 1.0)


def test_energy_is_the_larger_dynamic_part_and_base_power_over_the_least_time() -> None:
    found = least_energy(1000.0, 10.0, "float32", PEAKS)
    assert found and (found.side, found.least) == ("compute", 1000 / 4 + 3 * 10)
    found = least_energy(10.0, 10.0, "float32", PEAKS)
    assert found and (found.side, found.least) == ("memory", 10 / 2 + 3 * 1)


def tensor(shape: list[int], dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, **more}


def call(kind: str, dtype: str, **more: Any) -> Configuration:
    inputs: dict[str, Any] = {"input": tensor([1, 8, 8, 8], dtype)}
    if kind in ("conv2d", "linear"):
        inputs["weight"] = tensor([8, 8, 1, 1] if kind == "conv2d" else [8, 8], dtype)
    return Configuration(kind, {}, inputs, **more)


def product(kind: str, factor: str, rest: str = "float32") -> Configuration:
    """Return a product of two factors of a dtype; its scales, or what is added, are of another."""
    names = {"scaled_mm": "input mat2", "baddbmm": "batch1 batch2"}[kind].split()
    shape = [4, 8, 8] if kind == "baddbmm" else [8, 8]
    others = ("scale_a", "scale_b") if kind == "scaled_mm" else ("input",)
    given = {name: tensor(shape, factor) for name in names}
    given |= {name: tensor([8, 1] if len(others) > 1 else shape, rest) for name in others}
    return Configuration(kind, {"out_dtype": {"dtype": rest}}, given)


@pytest.mark.parametrize(
    ("configuration", "unit"),
    [
        (call("conv2d", "float32"), "tf32"),
        (call("linear", "float32"), "float32"),
        (call("linear", "bfloat16"), "bfloat16"),
        (call("linear", "float32", autocast="bfloat16"), "bfloat16"),
        (call("linear", "int8"), None),
        (product("scaled_mm", "float8_e4m3fn"), "float8_e4m3fn"),
        (product("baddbmm", "bfloat16"), "bfloat16"),
        (call("relu", "bfloat16"), "float32"),
        (call("relu", "float64"), "float64_vector"),
        (Configuration("of a newer version", {}, {}), None),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "kind", None),
)
def test_the_unit_goes_by_kind_dtype_and_settings(
    configuration: Configuration, unit: str | None
) -> None:
    assert unit_of(configuration, DEFAULT_SETTINGS) == unit


def point(flops: int, moved: int, dynamic_j: float, **spec: Any) -> Point:
    configuration = Configuration("relu", {}, {"input": tensor([4], **spec)})
    return Point(configuration, 1, "float32", flops, moved, 1.0, dynamic_j + 1, dynamic_j)


def test_peaks_of_energy_come_from_what_reaches_half_of_a_rate() -> None:
    rates = Peaks("a test", {"float32": 100.0}, {"memory": 2.0**28}, base_power_w=1.0)
    far, near, better = point(49, 0, 1.0), point(51, 0, 10.0), point(60, 0, 5.0)
    zeros = point(99, 0, 1.0, values={"zeros": 0.9})
    cached, moving = point(0, 2**27 - 1, 1.0), point(0, 2**27, 2.0)
    found = with_energy(rates, [far, near, better, zeros, cached, moving])
    assert found.flops_per_j == {"float32": 12.0}
    assert found.bytes_per_j == {"memory": 2**26}
    assert with_energy(rates, [far, cached]).flops_per_j == {}


# Peaks


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"flops_per_s": {"tf23": 1}}', "unknown key flops_per_s.tf23; did you mean 'tf32'?"),
        ('{"bytes_per_s": {"memory": "4 TB"}}', "bytes_per_s.memory: found '4 TB'; allowed: a num"),
        ('{"bytes_per_s": {"memory": NaN}}', "bytes_per_s.memory: found nan; allowed: a number"),
        ('{"base_power_w": -1}', "base_power_w: found -1; allowed: a number of 0 or more"),
        ("{}", "it gives no rate; give flops_per_s and bytes_per_s"),
        ("{", "line 1, column 2: not valid JSON"),
    ],
)
def test_a_wrong_peaks_file_is_one_message(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "peaks.json"
    path.write_text(content)
    with pytest.raises(InputError) as failed:
        read_peaks(path, 1.0)
    assert str(failed.value).startswith(str(path)) and said in str(failed.value)
    assert len(str(failed.value)) < 500
