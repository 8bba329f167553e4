"""`opdb modes` on the processor: figures, what is refused, what is there already."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.predict.predictor import predictor_for
from opdb.records import ModelRun
from opdb.runs import ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.studies.modes import MODES, TorchPolicy, mode_rows
from tests import published
from tests.cli.conftest import Opdb
from tests.store import samples

pytestmark = pytest.mark.usefixtures("short")

MLP = ("mlp", "--input-size", 16, "--device", "cpu", "--repeats", 1)
HERE = "tests.bench.test_modes"


def runs(folder: Path) -> list[ModelRun]:
    with open_store(str(folder / "opdb.sqlite")) as store:
        return store.model_runs()


def test_modes_are_measured_compared_and_stored(opdb: Opdb, tmp_path: Path) -> None:
    found = opdb.json("modes", *MLP, "--batch-sizes", 1, 2, "--modes", "eager,dynamo")
    rows = found["rows"]
    assert [(r["batch_size"], r["mode"]) for r in rows] == [
        (size, mode) for size in (1, 2) for mode in ("eager", "dynamo")
    ]
    for eager, dynamo in zip(rows[::2], rows[1::2], strict=True):
        assert eager["saving_time"] is None and eager["compile_time_s"] is None
        assert dynamo["saving_time"] == pytest.approx(1 - dynamo["time_s"] / eager["time_s"])
        assert (dynamo["graphs"], dynamo["graph_breaks"], dynamo["compiled"]) == (1, 0, True)
        assert dynamo["compile_time_s"] > 0
        assert (dynamo["energy_j"], dynamo["saving_energy"]) == (None, None)
        assert any("RAPL" in flag for flag in dynamo["flags"])
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
    summed = opdb.read("predict", "mlp", "--input-size", 16, "--mode", "graph")
    assert row["operators_time_s"] == summed["time_s"] and row["operators_coverage_time"] == 1
    wanted = 1 - row["time_s"] / summed["time_s"]
    assert row["saving_time_of_operators"] == pytest.approx(wanted)


def test_what_is_stored_is_shown_where_nothing_can_be_measured(opdb: Opdb, tmp_path: Path) -> None:
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


def test_a_mode_that_fails_does_not_stop_the_others_nor_fail_the_command(
    opdb: Opdb, tmp_path: Path
) -> None:
    model = (f"{HERE}:refused", "--device", "cpu", "--repeats", 1, "--modes", "trace,eager")
    rows = opdb.json("modes", *model)["rows"]
    assert [(row["mode"], row["outcome"]) for row in rows] == [("eager", "ok"), ("trace", "error")]
    assert opdb("modes", *model, "--quiet").status == 0 and len(runs(tmp_path)) == 2
    assert opdb("modes", *model, "--retry", "--quiet").status == 0
    assert [r.mode for r in runs(tmp_path)] == ["trace", "eager", "trace"]


LESS_POWER = replace(samples.DEVICE, slug="nvidia-h200-500w", power_limit_w=500.0)


def test_runs_under_another_power_limit_stand_apart(tmp_path: Path) -> None:
    """The same board is one of two devices; what a mode saves is not what a limit costs."""
    workload = samples.workload()
    eager = samples.model_run(workload)
    slower = replace(eager, id="run-2", campaign="campaign-2", mode="graph")
    with open_store(str(tmp_path / "limits.sqlite")) as store:
        store.save_workload(workload)
        full = samples.campaign()
        less = samples.campaign("campaign-2", device=LESS_POWER)
        for campaign in (full, less):
            store.save_campaign(campaign)
        for run in (eager, slower):
            store.save_model_run(run)
        for campaign, mode in ((full, "eager"), (less, "graph")):
            board, torch = campaign.board, campaign.environment["torch"]
            counted = TorchPolicy((board.device,), (board.uuid,), torch=torch)
            specs = [
                ModelRunSpec(ModelSpec("m"), workload.key, each, counted.boards)
                for each in ("eager", "graph")
            ]
            left = RunTable(counted, counted.runs(store)).pending(specs)
            assert [spec.mode for spec in specs if spec not in left] == [mode]
            used = predictor_for(store, campaign.device)
            [row] = mode_rows(store, used, campaign.board.uuid, [workload])
            assert row.mode == mode
