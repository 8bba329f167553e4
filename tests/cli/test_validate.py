"""`opdb validate` on the published set."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb

ROW = {
    *("model", "mode", "dtype", "batch_size", "predicted_time_s", "measured_time_s"),
    *("predicted_energy_j", "measured_energy_j", "attribution_time", "attribution_energy"),
    *("time_interval_s", "energy_interval_j", "inside_interval_time", "inside_interval_energy"),
}


@pytest.fixture
def h200(opdb: Opdb, tmp_path: Path) -> Path:
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_every_measured_run_is_a_row_and_the_summary_is_theirs(opdb: Opdb, h200: Path) -> None:
    ran = opdb("validate", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    rows = found["rows"]
    names = {(r["model"], r["mode"], r["dtype"], r["batch_size"]) for r in rows}
    assert len(names) == len(rows) >= 16
    for row in rows:
        assert row.keys() >= ROW
        for name, unit in (("time", "s"), ("energy", "j")):
            predicted, measured = row[f"predicted_{name}_{unit}"], row[f"measured_{name}_{unit}"]
            assert row[f"attribution_{name}"] == pytest.approx(predicted / measured)
            low, high = row[f"{name}_interval_{unit}"]
            assert row[f"inside_interval_{name}"] == (low <= measured <= high)
    for name in ("time", "energy"):
        summary = found["summary"][name]
        errors = [abs(row[f"attribution_{name}"] - 1) for row in rows]
        assert summary["count"] == len(rows)
        assert summary["median"] == pytest.approx(statistics.median(errors))
        assert summary["largest"] == pytest.approx(max(errors))
        assert summary["median"] <= summary["percentile_95"] <= summary["largest"]
        inside = [row[f"inside_interval_{name}"] for row in rows]
        assert summary["inside_interval"] == pytest.approx(sum(inside) / len(inside))


def test_models_choose_and_people_are_shown_a_table(opdb: Opdb, h200: Path) -> None:
    ran = opdb("validate", "resnet152")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("model")
    assert all(line.startswith(("resnet152", "time:", "energy:")) for line in lines[1:])


def test_within_is_a_check(opdb: Opdb, h200: Path) -> None:
    assert opdb("validate", "--within", 0.99, "--json").status == 0
    ran = opdb("validate", "--within", 0.0, "--json")
    assert ran.status == 1
    assert ran.err.startswith("opdb: largest error ") and len(ran.err.splitlines()) == 1
    assert json.loads(ran.out)["rows"], "what was found is printed all the same"
