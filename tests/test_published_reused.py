"""The published models whose operators wrote over memory just let go of, as the docs tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opdb.store import open_store
from opdb.store.exchange import import_set
from tests import published
from tests.cli.conftest import Opdb, opdb

__all__ = ["opdb"]

GRAPHS = {
    "efficientnet_b0": (1.043, 1.001),
    "mobilenet_v3_large": (1.052, 1.013),
    "swin_t": (1.000, 0.992),
}
"""Predicted over measured time and energy."""


def test_graphs_are_predicted_as_the_docs_say(opdb: Opdb, tmp_path: Path) -> None:
    path = tmp_path / "reused.sqlite"
    with open_store(str(path)) as store:
        import_set(store, published.SET.parent / "apart" / "nvidia-h200-reused")
        seen = {v.outputs for board in store.boards() for v in store.visits(board.uuid)}
    assert seen == {"reused"}
    ran = opdb("validate", "--mode", "graph", "--json", "--db", str(path))
    assert ran.status == 0, ran.err
    rows = {row["model"]: row for row in json.loads(ran.out)["rows"]}
    assert rows.keys() == GRAPHS.keys()
    for model, (time, energy) in GRAPHS.items():
        row = rows[model]
        assert row["predicted_time_s"] / row["measured_time_s"] == pytest.approx(time, abs=1e-3)
        assert row["predicted_energy_j"] / row["measured_energy_j"] == pytest.approx(
            energy, abs=1e-3
        )
