"""`opdb show`: costs of a kind, a model and a configuration, as the database has them."""

from __future__ import annotations

from typing import Any

import pytest

import opdb as api
from opdb.commands.show import SORTS
from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb, read

CONVOLUTION = "cd123c5d8b4a"
"""The first convolution of ResNet-50 at batch 32."""


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


def document(opdb: Opdb, *arguments: object) -> Any:
    ran = opdb("show", *arguments, "--json")
    assert ran.status == 0, ran.err
    return read(ran.out)


def test_a_kinds_costs_are_those_of_the_database(opdb: Opdb, db: str) -> None:
    found = document(opdb, "gelu", "--db", db)
    with open_store(db, create=False) as store:
        own = store.costs(found["board"])
        stored = {each.key for each in store.configurations(["gelu"])}
    assert {row["configuration"] for row in found["costs"]} <= stored
    assert len(found["costs"]) + found["lacking"] == len(stored)
    rows = [row for row in found["costs"] if row["configuration"] in own]
    assert rows
    for row in rows:
        times = [(c.time_s.mean, c.time_s.low) for c in own[row["configuration"]] if c.time_s]
        assert (row["time_s"], row["time_s_low"]) in times


@pytest.mark.parametrize("column", SORTS)
def test_a_models_rows_are_sorted_and_their_shares_are_the_predictions(
    opdb: Opdb, db: str, column: str
) -> None:
    asked = ("resnet50", "-b", 32, "--mode", "graph", "--db", db)
    found = document(opdb, *asked, "--sort", column)
    predicted = api.predict("resnet50", batch_size=32, mode="graph", db=db).operators()
    parts = {p["configuration"]: p for p in predicted if p["status"] == "measured"}
    assert {row["configuration"]: row["share_time"] for row in found["costs"]} == {
        key: part["share_time"] for key, part in parts.items()
    }
    names = {"time": "time_s", "energy": "energy_j", "power": "power_w"}
    if column != "interval":
        values = [row[names.get(column, column.replace("-", "_"))] for row in found["costs"]]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=True) and values[: len(known)] == known


def test_a_key_may_be_its_beginning_and_text_has_no_chart(opdb: Opdb, db: str) -> None:
    ran = opdb("show", CONVOLUTION, "--db", db)
    assert ran.status == 0 and CONVOLUTION in ran.out and "95 % interval" in ran.out
    assert not {*"▁▂▃▄▅▆▇█"} & {*ran.out}
    assert len(opdb("show", "conv2d", "--top", 3, "--db", db).out.splitlines()) == 8
    [row] = api.show(CONVOLUTION, db=db).rows()
    assert row["configuration"].startswith(CONVOLUTION)


def test_a_key_and_a_model_are_answered_for_one_board_that_measured_it(opdb: Opdb, db: str) -> None:
    """The key was answered for another board, which had not measured it: 171 mJ for 159.8."""
    of_model = document(opdb, "resnet50", "-b", 32, "--db", db)
    of_key = document(opdb, CONVOLUTION, "--db", db)
    [row] = [r for r in of_model["costs"] if r["configuration"].startswith(CONVOLUTION)]
    [alone] = of_key["costs"]
    assert of_key["board"] == of_model["board"]
    assert (alone["energy_j"], alone["time_s"]) == (row["energy_j"], row["time_s"])
    with open_store(db, create=False) as store:
        measured = {b.uuid for b in store.boards() if alone["configuration"] in store.costs(b.uuid)}
    assert set(of_key["measured_on"]) == measured and len(measured) > 5
    assert of_key["board"] in measured


@pytest.mark.parametrize("what", [("resnet50", "-b", 32), (CONVOLUTION,), ("conv2d",)])
def test_it_says_that_other_boards_measured_it(
    opdb: Opdb, db: str, what: tuple[object, ...]
) -> None:
    boards = document(opdb, *what, "--db", db)["measured_on"]
    said = f"measured on {len(boards)} boards, each its own (--board): {boards[0][:12]}, "
    assert len(boards) > 5 and said in opdb("show", *what, "--db", db).out
    other = document(opdb, *what, "--db", db, "--board", boards[1])
    assert (other["board"], other["measured_on"]) == (boards[1], boards)


def test_what_cannot_be_shown_is_one_message(opdb: Opdb, db: str) -> None:
    for arguments, message in (
        (("gelu", "--sort", "tme"), "unknown --sort 'tme'; did you mean 'time'?"),
        (("gelu", "--sort", "calls"), "only the rows of a model have it"),
        (("gelu", "-b", 3), "'gelu' is no model"),
        (("deadbeef",), "no configuration has a key that begins with 'deadbeef'"),
        (("resnt50",), "unknown model 'resnt50'"),
        (("gelu", "--board", "ffff"), "unknown board 'ffff'"),
    ):
        ran = opdb("show", *arguments, "--db", db)
        assert ran.status == 2 and message in ran.err and "Traceback" not in ran.err, ran.err
