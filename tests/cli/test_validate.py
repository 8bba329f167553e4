"""`opdb validate` on the published set."""

from __future__ import annotations

import json
import re
import sqlite3
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb

ROW = {
    *("model", "mode", "dtype", "batch_size", "predicted_time_s", "measured_time_s"),
    *("predicted_energy_j", "measured_energy_j", "attribution_time", "attribution_energy"),
    *("inside_interval_time", "inside_interval_energy"),
}


def test_every_measured_run_is_a_row_and_the_summary_is_theirs(opdb: Opdb, h200: Path) -> None:
    ran = opdb("validate", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    rows = found["rows"]
    names = {
        (r["model"], r["mode"], r["dtype"], r["batch_size"], *r["input_size"], r["board"])
        for r in rows
    }
    with open_store(str(h200)) as store:
        board_of = {c.id: c.board.uuid for c in store.campaigns(published.DEVICE)}
        ran_on = {
            (run.workload, run.mode, board_of[run.campaign])
            for run in store.model_runs(device=published.DEVICE)
        }
    assert len(names) == len(rows) == len(ran_on) == 167
    for row in rows:
        assert row.keys() >= ROW
        for name, unit in (("time", "s"), ("energy", "j")):
            predicted, measured = row[f"predicted_{name}_{unit}"], row[f"measured_{name}_{unit}"]
            assert row[f"attribution_{name}"] == pytest.approx(predicted["value"] / measured)
            inside = predicted["low"] <= measured <= predicted["high"]
            assert row[f"inside_interval_{name}"] == inside and predicted["unit"].lower() == unit
    for name in ("time", "energy"):
        summary = found["summary"][name]
        errors = [abs(row[f"attribution_{name}"] - 1) for row in rows]
        assert summary["count"] == len(rows)
        assert summary["median"] == pytest.approx(statistics.median(errors))
        assert summary["largest"] == pytest.approx(max(errors))
        assert summary["median"] <= summary["percentile_95"] <= summary["largest"]
        inside = [row[f"inside_interval_{name}"] for row in rows]
        assert summary["inside_interval"] == pytest.approx(sum(inside) / len(inside))


def test_regimes_hold_each_run_once_and_borrowed_costs_stand_apart(opdb: Opdb, h200: Path) -> None:
    found = opdb.json("validate")
    rows, regimes = found["rows"], found["regimes"]
    assert sum(regime["runs"] for regime in regimes) == len(rows)
    borrowed = [row for row in rows if row["brought"]]
    assert {row["model"] for row in borrowed} == {"gpt2-bare"}, (
        "what only one board has of its capture"
    )
    for regime in regimes:
        of_regime = [
            row
            for row in rows
            if (row["brought"] > 0) == (regime["operators"] == "borrowed")
            and row["mode"] == regime["mode"]
            and (row["batch_size"] == 1) == (regime["batch"] == "1")
        ]
        errors = [abs(row["attribution_time"] - 1) for row in of_regime]
        inside = [row["inside_interval_time"] for row in of_regime]
        assert regime["runs"] == regime["time"]["count"] == len(of_regime) > 0
        assert regime["time"]["largest"] == max(errors)
        assert regime["time"]["inside_interval"] == pytest.approx(sum(inside) / len(inside))
    uneven = [row for row in rows if row["repeat_spread"] > 0.03]
    assert found["uneven"]["runs"] == len(uneven) > 0
    assert all(any("repeats differ" in flag for flag in row["flags"]) for row in uneven)


def test_within_is_a_check(opdb: Opdb, h200: Path) -> None:
    assert opdb("validate", "resnet18", "--within", 0.99, "--json").status == 0
    ran = opdb("validate", "resnet18", "--within", 0.0, "--json")
    assert ran.status == 1
    assert ran.err.startswith("opdb: largest error ") and len(ran.err.splitlines()) == 1
    assert json.loads(ran.out)["rows"], "what was found is printed all the same"


def test_models_launch_their_operators_kernels(opdb: Opdb, h200: Path) -> None:
    ran = opdb("validate", "--kernels")
    assert ran.status == 0
    said = "runs that launched exactly the kernels of their operators: "
    assert ran.out.splitlines()[-1].startswith(said)
    before = opdb.json("validate", "--kernels")["kernels"]
    masked = [row for row in before if not row["agree"]]  # see docs/measuring.md
    assert [(row["model"], row["mode"]) for row in masked] == [("gpt2-bare", "eager")] * 6
    assert not any(row["operators_alone"] for row in masked)
    assert {sum(row["model_alone"].values()) for row in masked} == {43}
    with open_store(str(h200)) as store:
        board_of = {c.id: c.board.uuid for c in store.campaigns(published.DEVICE)}
        seen = {
            (run.workload, run.mode, board_of[run.campaign])
            for run in store.model_runs(device=published.DEVICE)
            if run.kernels is not None
        }
    assert len(before) == len(seen) > 0
    with sqlite3.connect(h200) as connection:
        connection.execute(
            "UPDATE visit SET kernels = '{\"another\":1}' WHERE configuration_id IN "
            "(SELECT id FROM configuration WHERE kind = 'relu')"
        )
    connection.close()
    [row, *_] = opdb.json("validate", "--kernels", "resnet18")["kernels"]
    assert row["model"] == "resnet18" and not row["agree"] and row["model_alone"]
    assert set(row["operators_alone"]) == {"another"}
    out = opdb("validate", "--kernels", "resnet18").out
    assert re.search(r"^runs that launched exactly .*: 0 of \d+$", out, re.MULTILINE)


def test_duplicates_are_held_against_measurements(opdb: Opdb, h200: Path) -> None:
    """Each measurement of a board copied as its duplicate."""
    published_pairs = opdb.json("validate", "--duplicates")["duplicates"]
    assert published_pairs["pairs"] > 80 and 0.8 < published_pairs["share_inside_time"] < 1
    published.keep_kinds(h200, "conv2d", "linear")
    with sqlite3.connect(h200) as connection:
        connection.execute("DELETE FROM visit WHERE role = 'duplicate'")
    connection.close()
    ran = opdb("validate", "--duplicates")
    assert ran.status == 2 and "nothing was measured twice over yet" in ran.err
    with open_store(str(h200)) as store:
        [board] = [b.uuid for b in store.boards() if b.uuid.startswith("GPU-c1e7")]
        made = store.visits(board, role="measurement")
        for each in made:
            store.save_visit(replace(each, id=f"copy-{each.id}", role="duplicate"))
    found = opdb.json("validate", "--duplicates")
    count = len({(visit.configuration, visit.setting) for visit in made})
    assert found["duplicates"]["pairs"] == len(found["rows"]) == count
    assert found["duplicates"]["share_inside_time"] == 1, "a copy agrees with itself"
    assert found["duplicates"]["median_difference_energy"] == 0
    out = opdb("validate", "--duplicates", "resnet50").out
    assert out.startswith(f"time: 100.0 % of {count} pairs")
