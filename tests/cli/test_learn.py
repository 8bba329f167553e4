"""`python -m opdb.estimates`, and what other commands make of it, on the published set."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.left_out import of_learned_anew
from opdb.estimates import training
from opdb.estimates.__main__ import run as learn
from opdb.predict.predictor import predictor_for
from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb, read

KINDS = ("relu", "batch_norm", "add", "linear", "max_pool2d", "adaptive_avg_pool2d", "flatten")
RESNET18 = ("predict", "resnet18", "--device", "nvidia-h200", "--mode", "graph")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The published costs of some kinds, and what was learned from them; convolutions are gone."""
    from opdb.cli import main

    path = published.copy_to(tmp_path_factory.mktemp("learned") / "opdb.sqlite")
    forget(path, f"kind NOT IN {KINDS}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM learned")
        connection.commit()
    with pytest.MonkeyPatch.context() as patch:
        learn_little(patch)
        assert main(["--db", str(path), "--quiet"], run=learn) == 0
    yield path


def learn_little(patch: pytest.MonkeyPatch) -> None:
    """Learn from some of the points: in seconds, not minutes."""
    patch.setattr(training, "MOST_TUNED", 100)
    patch.setattr(training, "MOST_POINTS", 1000)


def forget(path: Path, which: str) -> None:
    """Remove the costs and visits of some configurations."""
    with closing(sqlite3.connect(path)) as connection:
        for table in ("cost", "visit"):
            connection.execute(
                f"DELETE FROM {table} WHERE configuration_id IN "
                f"(SELECT id FROM configuration WHERE {which})"
            )
        connection.commit()


@pytest.fixture
def database(learned: Path, opdb: Opdb, tmp_path: Path) -> Path:
    """The database of `opdb`: a copy of it."""
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(learned.read_bytes())
    return path


def test_predict_estimates_what_is_missing_and_tells_it_apart(opdb: Opdb, database: Path) -> None:
    before = read(opdb(*RESNET18, "--json").out)
    forget(database, "kind IN ('relu', 'batch_norm')")
    found = read(opdb(*RESNET18, "--json").out)
    assert {row["kind"] for row in found["estimated"]} == {"relu", "batch_norm", "conv2d"}
    rests_on = {row["kind"]: row["rests_on"] for row in found["estimated"]}
    assert rests_on["conv2d"] == "roofline alone", "no convolution was learned from"
    assert rests_on["relu"] == rests_on["batch_norm"] == "alike" and not found["missing"]
    assert found["coverage"]["calls"] < before["coverage"]["calls"]
    assert found["time_s"] == pytest.approx(before["time_s"], rel=0.1)
    assert found["energy_j"] == pytest.approx(before["energy_j"], rel=0.1)
    for each in (before, found):
        assert each["complete"] and each["time_s_low"] is not None
    for row in found["estimated"]:
        low, high = row["time_s_low"], row["time_s_high"]
        assert 0 < low < row["time_s"] < high
        assert row["dynamic_energy_j"] > 0
        assert bool(row["host_time_s"]) == (row["kind"] != "conv2d")
    shares = [row["share_time"] for row in (*found["estimated"], *found["missing"])]
    assert found["coverage"]["time"] + sum(shares) == pytest.approx(1)


def test_the_published_estimates_are_used(opdb: Opdb, tmp_path: Path) -> None:
    path = published.copy_to(tmp_path / "opdb.sqlite")
    before = read(opdb(*RESNET18, "--json").out)
    forget(path, "kind = 'conv2d'")
    found = read(opdb(*RESNET18, "--json").out)
    assert {row["kind"] for row in found["estimated"]} == {"conv2d"} and not found["missing"]
    assert found["time_s"] == pytest.approx(before["time_s"], rel=0.2)
    low, high = found["time_s_low"], found["time_s_high"]
    assert low < before["time_s"] < high


def test_what_another_board_taught_is_brought_over(opdb: Opdb, database: Path) -> None:
    with open_store(str(database)) as store:
        [taught] = store.learned("nvidia-h200")
        other = next(b.uuid for b in store.boards("nvidia-h200") if b.uuid != taught)
    forget(database, "kind = 'relu'")
    found = read(opdb(*RESNET18, "--board", other, "--json").out)
    assert found["board"] == other and found["estimated"]


def test_one_model_is_left_out_of_learning(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn_little(monkeypatch)
    with open_store(str(database)) as store:
        predictor = predictor_for(store, published.DEVICE, estimates=False)
        found = of_learned_anew(store, predictor, "model", ["vgg16"])
    assert {row["model"] for row in found["rows"]} == {"vgg16"}
    ours = found["summary"].pop("estimates")
    assert ours["operators"]["count"] > 5 and 0 < ours["operators"]["inside_time"] <= 1
    assert found["summary"].keys() == {
        *("proportional to FLOPs", "plain roofline"),
        *("nearest neighbour", "nearest neighbour, scaled"),
    }
    rival = found["summary"]["proportional to FLOPs"]["operators"]
    assert (
        rival["count"] == ours["operators"]["count"] and rival["time"] > ours["operators"]["time"]
    )


def test_damaged_estimates_are_one_message(opdb: Opdb, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE learned SET document = '{\"format\": 7}'")
        connection.commit()
    forget(database, "kind = 'relu'")
    ran = opdb(*RESNET18)
    assert ran.status == 2 and "python -m opdb.estimates makes them" in ran.err
    assert "Traceback" not in ran.err
    assert opdb(*RESNET18, "--no-estimates").status == 0
