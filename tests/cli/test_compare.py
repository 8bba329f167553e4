"""`opdb compare`: two sides of every sort, checks, and what is refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import opdb as api
from tests import published
from tests.cli.conftest import Opdb


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database in which every convolution takes half as long again."""
    path = published.copy_to(tmp_path_factory.mktemp("slower") / "slower.sqlite")
    names = [f"{q}_{part}" for q in ("time_s", "eager_time_s") for part in
             ("median", "mean", "low", "high")]  # fmt: skip
    scaled = ", ".join(f"{name} = 1.5 * {name}" for name in names)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"UPDATE cost SET {scaled} WHERE configuration_id IN "
            "(SELECT id FROM configuration WHERE kind = 'conv2d')"
        )
    return str(path)


def test_two_modes(opdb: Opdb, db: str) -> None:
    ran = opdb("compare", "resnet50", "-b", 1, "--mode", "eager", "graph", "--db", db)
    assert ran.status == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    assert [line[-1] for line in lines if line[:1] == ["throughput"]] == ["yes"]
    after = ran.out.split("operators that carry the difference, of a pass:\n")[1].splitlines()
    assert after[1].startswith("waits for the host") and after[-1].startswith("… and 48 more rows")


def test_the_verb_is_the_command(opdb: Opdb, db: str) -> None:
    found = api.compare("resnet50", "resnet18", modes=("eager", "graph"), batch_size=32, db=db)
    ran = opdb(
        *("compare", "resnet50", "resnet18", "--mode", "eager,graph", "-b", 32),
        *("--db", db, "--json"),
    )
    assert json.loads(ran.out) == json.loads(json.dumps(found.to_dict()))
    pairs = [
        (each.before.split(", on")[0], each.after.split(", on")[0]) for each in found.differences
    ]
    assert pairs == [
        (f"resnet50, batch 32 float32, {mode}", f"resnet18, batch 32 float32, {mode}")
        for mode in ("eager", "graph")
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_both_sides_are_of_one_board_where_one_measured_both(
    opdb: Opdb, db: str, first: int
) -> None:
    """Predicted alone each is of the board that ran it; their difference was that of two boards."""
    models = ["resnet50", "resnet152"][:: -1 if first else 1]
    alone = [api.predict(each, batch_size=32, mode="graph", db=db).prediction for each in models]
    assert alone[0].board != alone[1].board
    ran = opdb("compare", *models, "-b", 32, "--mode", "graph", "--db", db, "--json")
    found = json.loads(ran.out)
    [board] = {row["board"] for row in found["rows"]}
    assert board in {each.board for each in alone}
    [difference] = found["differences"]
    assert difference["boards"] is None
    for row, model in zip(found["rows"], models, strict=True):
        own = api.predict(
            model, batch_size=32, mode="graph", db=db, conditions=api.Conditions(board=board)
        )
        assert row["energy_j"]["value"] == own.energy_j


def test_boards_that_differ_are_told_by_their_factors(opdb: Opdb, db: str) -> None:
    """No board measured both models; and two boards that are named."""
    asked = ("-b", 32, "--mode", "graph", "--db", db)
    with api.open_store(db) as store:
        predictor = api.Predictor(store, api.choose_device(store, None))
        for models in (("resnet50", "vgg16_bn"), ("resnet50", "--board", "0e7b,ea87")):
            found = json.loads(opdb("compare", *models, *asked, "--json").out)
            before, after = (row["board"] for row in found["rows"])
            [difference] = found["differences"]
            factors = predictor.apart(after, before)
            assert before != after and difference["boards"] == factors
            assert all(factor is not None and 0.9 < factor < 1.1 for factor in factors.values())
            said = (
                f"the boards differ: the second takes {factors['time']:.3f} times the time, "
                f"{factors['dynamic_energy']:.3f} times the dynamic energy, "
                f"{factors['base_power']:.3f} times the base power of the first\n"
            )
            assert said in opdb("compare", *models, *asked).out


def test_two_devices_are_compared_each_by_a_board_of_its_own(opdb: Opdb, tmp_path: Path) -> None:
    path = str(published.copy_to(tmp_path / "two.sqlite"))
    with closing(sqlite3.connect(path)) as connection, connection:
        board = "GPU-cc8a7e62%"
        connection.execute("INSERT INTO device SELECT 'other', name, type, power_limit_w,"
                           " memory_bytes, l2_bytes, max_clock_hz FROM device")  # fmt: skip
        connection.execute("PRAGMA foreign_keys = OFF")
        for table, column in (("board", "uuid"), ("campaign", "board"), ("tally", "board")):
            connection.execute(
                f"UPDATE {table} SET device = 'other' WHERE {column} LIKE ?", (board,)
            )
    asked = ("compare", "resnet50", "-b", 32, "--mode", "graph", "--db", path, "--json")
    ran = opdb(*asked, "--device", "h200,other")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert [row["device"] for row in found["rows"]] == ["nvidia-h200", "other"]
    assert found["differences"][0]["boards"] is None


def test_within_is_a_check_of_what_got_worse(opdb: Opdb, db: str) -> None:
    command = ("compare", "resnet50", "-b", 1, "--db", db, "--within", 0.2, "--mode")
    assert opdb(*command, "eager", "graph").status == 0
    ran = opdb(*command, "graph", "eager")
    assert ran.status == 1
    assert "more than --within 0.2 worse" in ran.err
    assert "time of a sample is 3.8" in ran.err and "energy of a sample is 2.4" in ran.err


def test_an_upgrade(opdb: Opdb, slower: str, tmp_path: Path) -> None:
    """Operators are matched by configuration, and only those that moved are shown."""
    before = published.copy_to(tmp_path / "before.sqlite")
    ran = opdb("compare", "--db", before, "--against", slower, "--json")
    [found] = json.loads(ran.out)["differences"]
    moved = {row["operator"] for row in found["operators"] if row["time_s"]["moved"]}
    assert moved == {"conv2d", "conv2d backward"} or moved == {"conv2d"}
    ratios = [row["time_s"]["ratio"] for row in found["operators"] if row["operator"] == "conv2d"]
    assert ratios and all(ratio == pytest.approx(1.5) for ratio in ratios)
    text = opdb("compare", "--db", before, "--against", slower, "--within", 0.4)
    assert text.status == 1 and "time of conv2d is 1.500 times as large" in text.err
    assert "take more and 0 take less" in text.out
    model = opdb("compare", "resnet50", "-b", 32, "--mode", "graph", "--db", before,
                 "--against", slower)  # fmt: skip
    assert model.status == 0 and f"in {slower}:" in model.out


def test_what_cannot_be_compared_is_one_message(opdb: Opdb, db: str, tmp_path: Path) -> None:
    other = tmp_path / "cpu.sqlite"
    published.copy_to(other)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE device SET slug = 'another-gpu'")
    for arguments, message in (
        ((), "no model is named, nor another database"),
        (("resnet50",), "both sides are the same"),
        (("resnet50", "resnet50", "--dtype", "fp32,float32"), "both sides are the same"),
        (("resnet50", "--dtype", "float31"), "unknown --dtype 'float31'"),
        (("resnet50", "--mode", "eager", "grph"), "unknown model 'grph'"),
        (("resnet50", "resnt18"), "did you mean 'resnet18'"),
        (("resnet50", "--board", "0e7b,ffff"), "unknown board 'ffff'"),
        (("resnet50", "resnet18", "--within", -1), "--within -1: give a share of 0 or more"),
        (("--against", tmp_path / "none.sqlite"), "there is none"),
        (("--against", other), "holds nothing of 'nvidia-h200'"),
        (("resnet50", "--against", db, "--device", "nvidia-h20"), "unknown device 'nvidia-h20'"),
    ):
        ran = opdb("compare", *arguments, "--db", db)
        assert ran.status == 2, (arguments, ran.out, ran.err)
        assert message in ran.err and "Traceback" not in ran.err, ran.err


def test_two_sets_are_compared_as_two_databases_are(opdb: Opdb, tmp_path: Path) -> None:
    """With itself a set has no operator that moved; the folders' names are those that are shown."""
    one = published.SET.with_name("nvidia-h200-generation")
    ran = opdb("compare", "--db", one, "--against", one, "--within", 0)
    assert ran.status == 0, ran.err
    assert f"{one}, on GPU-" in ran.out and "nothing moved: " in ran.out
    ran = opdb("compare", "--db", one, "--against", tmp_path)
    assert ran.status == 2 and f"{tmp_path} is not a published set" in ran.err
