"""`opdb predict` asked several questions: one table, one list; one failure does not stop it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb


@pytest.fixture
def h200(opdb: Opdb, tmp_path: Path) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_models_modes_and_batch_sizes_come_in_one_table(opdb: Opdb, h200: Path) -> None:
    several = ("resnet18", "resnet50", "--mode", "eager", "graph", "--batch-sizes", 1, 32)
    ran = opdb("predict", *several, "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert found["failures"] == []
    assert [(row["model"], row["mode"], row["batch_size"]) for row in found["rows"]] == [
        (model, mode, size)
        for model in ("resnet18", "resnet50")
        for mode in ("eager", "graph")
        for size in (1, 32)
    ]
    alone = opdb("predict", "resnet50", "--mode", "graph", "-b", 32, "--json")
    assert json.loads(alone.out) == found["rows"][-1]
    shown = opdb("predict", *several).out
    assert shown.count("resnet18") == shown.count("resnet50") == 4
    for column in ("model", "mode", "time", "throughput", "energy a sample", "coverage"):
        assert column in shown
    assert "rent" not in shown
    assert "rent" in opdb("predict", *several, "--price", 2).out


def test_one_that_fails_does_not_stop_the_others(opdb: Opdb, h200: Path) -> None:
    ran = opdb("predict", "resnet50", "nonesuch", "resnet18", "-b", 32, "--json")
    assert ran.status == 2
    found = json.loads(ran.out)
    assert [row["model"] for row in found["rows"]] == ["resnet50", "resnet18"]
    [failure] = found["failures"]
    assert (failure["model"], failure["batch_size"], failure["mode"]) == ("nonesuch", 32, "eager")
    assert failure["reason"].startswith("unknown model 'nonesuch'")
    assert ran.err.startswith("opdb: 1 of 3 predictions failed\n  nonesuch -b 32 --mode eager: ")


def test_modes_may_be_separated_by_commas(opdb: Opdb, h200: Path) -> None:
    ran = opdb("predict", "resnet18", "-b", 32, "--mode", "eager,graph", "--json")
    assert [row["mode"] for row in json.loads(ran.out)["rows"]] == ["eager", "graph"]


def test_a_missed_target_is_told_of_each(opdb: Opdb, h200: Path) -> None:
    published.keep_kinds(h200, "conv2d", "linear")
    ran = opdb("predict", "resnet18", "resnet50", "-b", 32, "--target", 0.9, "--no-estimates")
    assert ran.status == 1
    assert ran.err.count("target 0.9 missed") == 2 and "at least " in ran.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet50", "--mode", "eager", "grph"), "unknown model 'grph'"),
        (("resnet50", "--mode", "eager,grph"), "unknown --mode 'grph'; did you mean 'graph'?"),
        (("resnet50", "-b", "1", "0"), "--batch-sizes '0': give whole numbers of 1 or more"),
        (("-b", "1", "2"), "no model is named, only batch sizes"),
        (("resnet18", "resnet50", "--layers"), "--layers is of one prediction, not of 2"),
    ],
)
def test_bad_input_is_one_message(
    arguments: tuple[str, ...], said: str, opdb: Opdb, h200: Path
) -> None:
    ran = opdb("predict", *arguments)
    assert ran.status == 2 and said in ran.err
