"""`opdb modes` on the processor: figures, what is refused, what is there already."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from opdb.records import ModelRun
from opdb.store import open_store
from opdb.studies.modes import MODES
from tests import published
from tests.cli.conftest import Opdb, read

pytestmark = pytest.mark.usefixtures("short")

MLP = ("mlp", "--input-size", 16, "--device", "cpu", "--repeats", 1)
HERE = "tests.bench.test_modes"


def runs(folder: Path) -> list[ModelRun]:
    with open_store(str(folder / "opdb.sqlite")) as store:
        return store.model_runs()


def test_modes_are_measured_compared_and_stored(opdb: Opdb, tmp_path: Path) -> None:
    ran = opdb("modes", *MLP, "--batch-sizes", 1, 2, "--modes", "eager,dynamo", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    rows = found["rows"]
    assert [(r["batch_size"], r["mode"]) for r in rows] == [
        (size, mode) for size in (1, 2) for mode in ("eager", "dynamo")
    ]
    for eager, dynamo in zip(rows[::2], rows[1::2], strict=True):
        assert eager["saving_time"] is None and eager["compile_time_s"] is None
        assert dynamo["saving_time"] == pytest.approx(1 - dynamo["time_s"] / eager["time_s"])
        assert (dynamo["graphs"], dynamo["graph_breaks"], dynamo["compiled"]) == (1, 0, True)
        assert dynamo["compile_cold"] is True and dynamo["compile_time_s"] > 0
        assert (dynamo["energy_j"], dynamo["saving_energy"]) == (None, None)
        assert "RAPL" in dynamo["energy_reason"]
        assert (dynamo["operators_time_s"], dynamo["saving_time_of_operators"]) == (None, None)
    assert [(r.mode, r.outcome) for r in runs(tmp_path)] == [("eager", "ok"), ("dynamo", "ok")] * 2


def test_what_the_board_has_is_not_repeated(opdb: Opdb, tmp_path: Path) -> None:
    assert opdb("modes", *MLP, "--modes", "eager", "--quiet").status == 0
    assert opdb("modes", *MLP, "--modes", "eager,dynamo,trace", "--quiet").status == 0
    before = runs(tmp_path)
    assert [r.mode for r in before] == ["eager", "dynamo", "trace"]
    ran = opdb("modes", *MLP, "--modes", "eager,dynamo,trace", "--csv", "modes.csv")
    assert ran.status == 0 and runs(tmp_path) == before
    with Path("modes.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == MODES.fields
    assert [line["mode"] for line in lines] == ["eager", "dynamo", "trace"]
    assert lines[0]["input_size"] == "16" and lines[0]["energy_j"] == ""
    assert float(lines[1]["time_s"]) > 0
    head, *table = ran.out.splitlines()
    assert "torch" in head and [line.split()[0] for line in table[1:4]] == ["mlp"] * 3


def test_savings_of_the_operators_where_all_are_measured(opdb: Opdb) -> None:
    assert opdb("modes", *MLP, "--modes", "eager", "--quiet").status == 0
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    ran = opdb("modes", *MLP, "--modes", "eager", "--json", "--quiet")
    [row] = json.loads(ran.out)["rows"]
    summed = read(opdb("predict", "mlp", "--input-size", 16, "--mode", "graph", "--json").out)
    assert row["operators_time_s"] == summed["time_s"] and row["operators_coverage_time"] == 1
    wanted = 1 - row["time_s"] / summed["time_s"]
    assert row["saving_time_of_operators"] == pytest.approx(wanted)


def test_what_is_stored_is_shown_where_nothing_can_be_measured(opdb: Opdb, tmp_path: Path) -> None:
    """Of the published boards, on a machine without their GPU."""
    published.copy_to(tmp_path / "opdb.sqlite")
    before = runs(tmp_path)
    ran = opdb("modes", "--stored", "resnet50", "vgg16", "--batch-sizes", 1, 32, "--csv", "m.csv")
    assert ran.status == 0, ran.err
    assert runs(tmp_path) == before
    with Path("m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == MODES.fields
    assert {(row["model"], row["batch_size"], row["mode"]) for row in rows} == {
        (model, size, mode)
        for model in ("resnet50", "vgg16")
        for size in ("1", "32")
        for mode in ("eager", "graph")
    }
    boards = list(dict.fromkeys(row["board"] for row in rows))
    told = [line for line in ran.out.splitlines() if line.startswith("NVIDIA H200 (")]
    assert told == [f"NVIDIA H200 ({board}), torch 2.11.0+cu130" for board in boards]
    assert len(boards) > 1
    first = [row for row in rows if (row["model"], row["batch_size"]) == ("resnet50", "1")]
    saved = [float(row["saving_time"]) for row in first if row["saving_time"]]
    assert saved and min(saved) > 0.5
    asked = ("modes", "--stored", "--device", published.DEVICE, "--modes", "graph", "--json")
    shown = json.loads(opdb(*asked).out)
    assert (shown["device"], shown["board"]) == (published.DEVICE, None)
    assert {row["mode"] for row in shown["rows"]} == {"graph"}
    assert len({row["model"] for row in shown["rows"]}) == 15


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("alexnt",), "unknown model 'alexnt'; did you mean 'alexnet'? (of those measured on nvid"),
        (("alexnet", "--batch-sizes", 7), "no run of that on nvidia-h200"),
        (("alexnet", "--modes", "trace"), "no run of that on nvidia-h200"),
        (("--device", "nvidia-x"), "unknown device 'nvidia-x'"),
    ],
    ids=str,
)
def test_what_is_not_stored(
    opdb: Opdb, tmp_path: Path, arguments: tuple[object, ...], said: str
) -> None:
    published.copy_to(tmp_path / "opdb.sqlite")
    ran = opdb("modes", "--stored", *arguments)
    assert ran.status == 2 and ran.err.count("\n") == 1 and said in ran.err


def test_all_modes_of_the_device_unless_said(opdb: Opdb) -> None:
    ran = opdb("modes", *MLP, "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    modes = ["eager", "compile", "compile:max-autotune", "dynamo", "trace"]
    assert [row["mode"] for row in found["rows"]] == modes
    assert found["left_out"].keys() == {"graph", "compile:reduce-overhead"}
    assert (
        "left out, as they need a CUDA device: graph, compile:reduce-o" in opdb("modes", *MLP).out
    )


def test_a_model_that_is_left_as_it_is_is_no_full_row(opdb: Opdb) -> None:
    model = (f"{HERE}:recurrent", "--device", "cpu", "--repeats", 1)
    ran = opdb("modes", *model, "--modes", "eager,compile,dynamo")
    assert ran.status == 0, ran.err
    lines = [line for line in ran.out.splitlines() if line.startswith(HERE)]
    for line, mode in zip(lines[1:3], ("compile", "dynamo"), strict=True):
        assert line.split("float32 3x8")[1].split() == [mode, *"–––––––", "0", "0"]
    assert f"{HERE}:recurrent batch 2 float32 3x8 compile, dynamo: not compiled: dynamo" in ran.out
    [_, *left] = json.loads(opdb("modes", *model, "--modes", "eager,compile", "--json").out)["rows"]
    row: dict[str, Any]
    for row in left:
        assert (row["outcome"], row["compiled"], row["time_s"]) == ("unsupported", False, None)


def test_a_mode_that_fails_does_not_stop_the_others_nor_fail_the_command(
    opdb: Opdb, tmp_path: Path
) -> None:
    model = (f"{HERE}:refused", "--device", "cpu", "--repeats", 1, "--modes", "trace,eager")
    ran = opdb("modes", *model, "--json")
    assert ran.status == 0, ran.err
    rows = json.loads(ran.out)["rows"]
    assert [(row["mode"], row["outcome"]) for row in rows] == [("eager", "ok"), ("trace", "error")]
    assert opdb("modes", *model, "--quiet").status == 0 and len(runs(tmp_path)) == 2
    assert opdb("modes", *model, "--retry", "--quiet").status == 0
    assert [r.mode for r in runs(tmp_path)] == ["trace", "eager", "trace"]


def test_too_large_a_batch_in_every_mode(opdb: Opdb) -> None:
    ran = opdb("modes", *MLP, "--batch-sizes", f"1,{2**33}", "--modes", "eager,dynamo", "--json")
    assert ran.status == 2
    rows = json.loads(ran.out)["rows"]
    assert [row["outcome"] for row in rows] == ["ok", "ok", "out_of_memory", "out_of_memory"]
    assert "eager: out_of_memory: " in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((*MLP, "--modes", "compil"), 2, "did you mean 'compile'? (modes: eager, graph, compile,"),
        ((*MLP, "--modes", "graph"), 3, "mode 'graph' needs a CUDA device"),
        ((*MLP, "--modes", "eager,compile:reduce-overhead"), 3, "needs a CUDA device"),
        ((*MLP, "--batch-sizes", "0"), 2, "--batch-sizes '0': give whole numbers of 1 or more"),
        ((*MLP, "--batch-sizes", "9" * 11), 2, "of 1 or more, with 10 digits at most"),
        (("mlp", "--input-size", "9" * 11), 2, "of 1 or more, with 10 digits at most, as in"),
        ((*MLP, "--batch-sizes", "x"), 2, "--batch-sizes 'x'"),
        ((*MLP, "--batch-sizes", "4", "8x"), 2, "unknown model '8x'"),
        (("7", "--batch-sizes", "4", "8"), 2, "no model is named, only batch sizes"),
        ((*MLP, "--csv", "none/x.csv"), 2, "there is no folder none"),
        ((*MLP, "--csv", "."), 2, "it is a folder"),
        (("mpl", "--device", "cpu"), 2, "unknown model 'mpl'; did you mean"),
    ],
    ids=str,
)
def test_bad_input_is_one_message(
    opdb: Opdb, tmp_path: Path, arguments: tuple[object, ...], status: int, said: str
) -> None:
    ran = opdb("modes", *arguments)
    assert (ran.status, ran.out) == (status, ""), ran.err
    assert said in ran.err and "Traceback" not in ran.err
    assert not (tmp_path / "opdb.sqlite").exists()


def test_a_model_that_fails_does_not_stop_the_others(opdb: Opdb) -> None:
    given = ("tests.bench.test_model:unbuildable", *MLP, "--modes", "eager")
    ran = opdb("modes", *given, "--json", "--quiet")
    assert ran.status == 2 and "no such file" in ran.err
    assert [row["model"] for row in json.loads(ran.out)["rows"]] == ["mlp"]


def test_build_refuses_a_mode_that_cannot_be_predicted(opdb: Opdb) -> None:
    ran = opdb("build", "mlp", "--mode", "compile", "--device", "cpu")
    assert (ran.status, ran.out) == (2, "")
    assert "mode 'compile' cannot be predicted here; use eager, graph" in ran.err
