"""A training step from harvest to prediction, on the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, read
from tests.store import samples

STEP = ("mlp", "--phase", "training", "--batch-size", 4)

pytestmark = pytest.mark.usefixtures("short")


def test_a_step_is_harvested_benched_measured_and_predicted(opdb: Opdb) -> None:
    ran = opdb("harvest", *STEP, "--json")
    assert ran.status == 0, ran.err
    [found] = read(ran.out)
    assert found["training"] == {"optimizer": "sgd", "accumulation": 1}
    assert found["by_kind"]["linear backward"] == {"calls": 3, "configurations": 3}
    assert found["by_kind"]["sgd update"]["calls"] == 1
    assert opdb("bench", "--device", "cpu", "--precision", 10, "--duplicates", 0).status == 0
    assert opdb("measure", *STEP, "--device", "cpu", "--repeats", 1).status == 0
    predicted = opdb("predict", *STEP, "--json")
    assert predicted.status == 0, predicted.err
    answer = read(predicted.out)
    assert answer["coverage"]["calls"] == 1 and answer["missing"] == []
    assert answer["measured"]["time_s"] > 0 and answer["time_s"] > 0
    assert answer["phase"] == "training"


def test_another_optimizer_is_another_workload(opdb: Opdb) -> None:
    assert opdb("harvest", *STEP).status == 0
    with open_store() as store:
        store.save_campaign(samples.campaign())
    ran = opdb("predict", *STEP, "--optimizer", "adamw", "--no-harvest")
    assert ran.status == 2
    assert "harvested for batch 4 float32 training adamw" in ran.err
    assert "--phase training --optimizer adamw" in ran.err
    assert opdb("harvest", *STEP, "--optimizer", "adam").err.endswith("did you mean 'adamw'?\n")


def test_autocast_is_part_of_a_workload(opdb: Opdb) -> None:
    ran = opdb("harvest", *STEP, "--autocast", "bf16", "--json")
    assert ran.status == 0, ran.err
    assert opdb("bench", "--device", "cpu", "--precision", 10, "--duplicates", 0).status == 0
    answer = read(opdb("predict", *STEP, "--autocast", "bfloat16", "--json").out)
    assert answer["coverage"]["calls"] == 1
    ran = opdb("predict", *STEP, "--autocast", "float16", "--no-harvest")
    assert ran.status == 2
    assert "only for: batch 4 float32 autocast bfloat16 training sgd" in ran.err
    assert "--autocast float16 --phase training" in ran.err
    ran = opdb("harvest", *STEP, "--autocast", "bfloat61")
    assert ran.status == 2 and "unknown --autocast 'bfloat61'; did you mean 'bfloat16'" in ran.err


def test_a_summary_file_may_say_how_a_step_is_made(opdb: Opdb) -> None:
    text = (
        "model: mlp\nphase: training\noptimizer: adamw\naccumulation: 2\nbatch_sizes: [3]\n"
        "variants:\n  - {autocast: bfloat16}\n"
    )
    Path("net.yml").write_text(text)
    found, cast = read(opdb("harvest", "net.yml", "--json").out)
    assert found["training"] == cast["training"] == {"optimizer": "adamw", "accumulation": 2}
    assert found["by_kind"]["linear backward"]["calls"] == 6
    Path("net.yml").write_text(text.replace("adamw", "adamax"))
    ran = opdb("harvest", "net.yml")
    assert ran.status == 2 and "optimizer: found 'adamax'" in ran.err


def test_what_a_backward_pass_lacks_is_told_with_its_pass(opdb: Opdb) -> None:
    assert opdb("harvest", *STEP).status == 0
    assert opdb("bench", "relu", "--device", "cpu", "--precision", 10).status == 0
    ran = opdb("predict", *STEP, "--no-estimates")
    assert ran.status == 0, ran.err
    missing = ran.out[ran.out.index("not measured") :]
    assert "linear backward" in missing and "sgd update" in missing


def test_training_is_not_measured_as_compiled(opdb: Opdb) -> None:
    ran = opdb("measure", *STEP, "--device", "cpu", "--mode", "compile")
    assert ran.status == 2 and "training is not measured in mode 'compile'" in ran.err
