"""`opdb predict --layers` on the published set."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb, read


@pytest.fixture
def h200(opdb: Opdb, tmp_path: Path) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_the_command_shows_layers_in_their_order_and_says_that_it_harvested(
    opdb: Opdb, h200: Path
) -> None:
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--top", 3)
    assert ran.status == 0
    assert "which modules make its calls is not stored, harvested now" in ran.err
    shown = ran.out.split("layer by layer:\n")[1].splitlines()
    assert shown[0].split("  ")[0] == "module" and "share of time" in shown[0]
    assert (
        shown[1].startswith("conv1 ")
        and "32x3x224x224" in shown[1]
        and " other layers " in shown[4]
    )
    assert shown[-1].startswith("sum ") and "100.0 %" in shown[-1]
    found = read(opdb("predict", "resnet18", "-b", 32, "--layers", "--json").out)
    assert found["layers"][0]["path"] == "conv1" and found["layers"][-1]["path"] == "fc"
    whole = math.fsum(each["time_s"] for each in (*found["layers"], *found["rest"]))
    assert whole == pytest.approx(found["time_s"], rel=1e-12)
    assert math.fsum(each["share_time"] for each in (*found["layers"], *found["rest"])) == (
        pytest.approx(1)
    )


def test_what_is_missing_has_its_rows_without_a_time(opdb: Opdb, h200: Path) -> None:
    published.keep_kinds(h200, "conv2d")
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--no-estimates", "--json")
    rows = read(ran.out)["layers"]
    assert {row["status"] for row in rows if row["kind"] == "conv2d"} == {"measured"}
    assert {(row["status"], row["time_s"]) for row in rows if row["kind"] == "relu"} == {
        ("missing", None)
    }


def test_other_calls_than_those_stored_are_not_guessed_at(opdb: Opdb, h200: Path) -> None:
    with sqlite3.connect(h200) as connection:
        query = "SELECT id, sequence FROM workload WHERE name = 'resnet18'"
        for workload, sequence in connection.execute(query).fetchall():
            called = sequence.split(" ")
            without = " ".join(called[:7] + called[8:])
            connection.execute("UPDATE workload SET sequence = ? WHERE id = ?", (without, workload))
    connection.close()
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--quiet")
    assert (ran.status, ran.out) == (2, "")
    assert "from call 8 of " in ran.err
    assert "is not guessed" in ran.err and ran.err.count("\n") == 1


def test_top_is_about_layers(opdb: Opdb) -> None:
    ran = opdb("predict", "resnet18", "--top", 3)
    assert (ran.status, ran.err) == (2, "opdb: --top 3 is about layers: add --layers\n")
