"""`opdb bench --model`: what one model lacks on this device, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, read

MLP = ("--model", "mlp", "-b", 3)


def measured(path: Path) -> set[str]:
    """Return the configurations (keys) that a database has costs of."""
    with open_store(str(path)) as store:
        keys = [c.key for c in store.configurations()]
        return {key for board in store.boards() for key in store.costs(board.uuid, keys)}


def called(path: Path, name: str) -> set[str]:
    with open_store(str(path)) as store:
        return {c.key for workload in store.workloads(name) for c in workload.occurrences()}


@pytest.mark.usefixtures("short")
def test_what_a_model_lacks_is_harvested_and_measured_alone(opdb: Opdb, tmp_path: Path) -> None:
    database = tmp_path / "opdb.sqlite"
    assert opdb("harvest", "lstm", "--quiet").status == 0
    ran = opdb("bench", *MLP, "--device", "cpu")
    assert ran.status == 0, ran.err
    assert "mlp, batch 3 float32 size 784: 4 configurations, 4 to measure on " in ran.err
    assert measured(database) == called(database, "mlp")
    predicted = read(opdb("predict", "mlp", "-b", 3, "--json").out)
    assert predicted["coverage"]["calls"] == 1


@pytest.mark.usefixtures("short")
def test_it_goes_on_where_it_was(opdb: Opdb, tmp_path: Path) -> None:
    assert opdb("bench", "relu", *MLP, "--device", "cpu").status == 0
    kinds = {"relu"}
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        keys = measured(tmp_path / "opdb.sqlite")
        assert {store.configuration(key).kind for key in keys} == kinds  # type: ignore[union-attr]
    ran = opdb("bench", *MLP, "--device", "cpu", "--json")
    found = read(ran.out)["model"]
    assert (found["model"], found["configurations"], found["lacking"]) == ("mlp", 4, 3)
    assert found["expected_s"] > 0
    ran = opdb("bench", *MLP, "--device", "cpu", "--json")
    assert read(ran.out)["model"]["lacking"] == 0 == read(ran.out)["visits"]
    assert "all measured on " in ran.err


@pytest.mark.usefixtures("short")
def test_few_steps_of_a_generation_are_benched_and_the_others_interpolated(opdb: Opdb) -> None:
    pytest.importorskip("transformers")
    name = "tests.models.decoders:llama"
    sizes = ("--phase", "generate", "--input-size", 9, "--max-new-tokens", 30)
    asked, once = (*sizes, "--cache", "dynamic"), ("--rounds", 1, "--duplicates", 0)
    ran = opdb("bench", "--model", name, *asked, "--device", "cpu", *once, "--json")
    assert ran.status == 0, ran.err
    model = read(ran.out)["model"]
    assert model["lacking"] == model["benched"] < model["configurations"] - 50
    ran = opdb("predict", name, *asked, "--mode", "eager", "--json")
    assert ran.status == 0, ran.err
    found = read(ran.out)
    assert found["missing"] == []
    between = [note for note in found["notes"] if "interpolated between measured sizes" in note]
    assert len(between) == 1
    assert found["time_s_low"] is not None
    assert opdb("measure", name, *asked, "--device", "cpu", "--mode", "eager").status == 0
    held = read(opdb("validate", "--json").out)
    assert [row["model"] for row in held["rows"]] == [name]
    ran = opdb("bench", "--device", "cpu", *once, "--json")
    assert read(ran.out)["visits"] == 0, "nor is anything else pending"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-b", 3), "add --model NAME"),
        (("--model", "mpl"), "unknown model 'mpl'"),
        (("--model", "mlp", "--grid", "some.yml"), "give one of them"),
        (("--model", "mlp", "--optimizer", "sgd"), "add --phase training"),
    ],
)
def test_bad_input_is_told_before_anything_is_made(
    arguments: tuple[object, ...], said: str, opdb: Opdb, tmp_path: Path
) -> None:
    ran = opdb("bench", *arguments, "--device", "cpu")
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err and ran.err.count("\n") == 1
    assert not (tmp_path / "opdb.sqlite").exists()
