"""`opdb show`: costs of a kind, a model and a configuration, as the database has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opdb as api
from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb, snapshot

CONVOLUTION = "cd123c5d8b4a"
"""The first convolution of ResNet-50 at batch 32."""


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.default_database())


def document(opdb: Opdb, *arguments: object) -> Any:
    return opdb.read("show", *arguments)


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


def test_a_models_rows_are_sorted_and_their_shares_are_the_predictions(opdb: Opdb, db: str) -> None:
    found = document(opdb, "resnet50", "-b", 32, "--mode", "graph", "--db", db)
    predicted = api.predict("resnet50", batch_size=32, mode="graph", db=db).operators()
    shares = {p["configuration"]: p["share_time"] for p in predicted if p["status"] == "measured"}
    assert {row["configuration"]: row["share_time"] for row in found["costs"]} == shares
    known = [row["share_time"] for row in found["costs"]]
    assert known == sorted(known, reverse=True)


def test_a_key_may_be_its_beginning(opdb: Opdb, db: str) -> None:
    ran = opdb("show", CONVOLUTION, "--db", db)
    assert ran.status == 0 and CONVOLUTION in ran.out and "95 % interval" in ran.out
    assert len(opdb("show", "conv2d", "--top", 3, "--db", db).out.splitlines()) == 7
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


def test_workloads_and_devices_are_those_of_the_database(opdb: Opdb, tmp_path: Path) -> None:
    published.copy_to(tmp_path / "opdb.sqlite")
    before = snapshot(tmp_path / "here")
    workloads = opdb.json("show", "workloads")
    assert {"resnet50", "bert_base"} <= {each["model"] for each in workloads}
    assert all(each["calls"] >= each["configurations"] > 0 for each in workloads)
    [device] = opdb.json("show", "devices")["devices"]
    assert device["device"] == published.DEVICE
    shown = opdb("show", "workloads", "RESNET1").out.splitlines()
    assert {line.split()[0] for line in shown[1:]} == {"resnet152", "resnet18"}
    assert snapshot(tmp_path / "here") == before
