"""The published runs in all execution modes: what they hold, and what the docs say of them."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest

from opdb.bench.model import OUTRUN
from opdb.derive.runs import AGREEMENT, HOSTS_AGREEMENT, agreeing, repeat_spread
from opdb.predict import Predictor, choose_device
from opdb.store import open_store
from opdb.store.exchange import import_set
from opdb.studies.modes import ModeRow, stored_rows
from tests import published
from tests.cli.conftest import Opdb, opdb

__all__ = ["opdb"]

MODES = published.SET.with_name("nvidia-h200-modes")
SIZES = (1, 2, 4, 8, 16, 32)
PLAIN = ("eager", "graph", "trace")
COMPILED = ("compile", "compile:reduce-overhead", "dynamo")
HELD_UP = ("bert-base-uncased", 2, "eager")
"""A run that is left out."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that holds this set alone."""
    found = tmp_path_factory.mktemp("modes") / "modes.sqlite"
    with open_store(str(found)) as store:
        import_set(store, MODES)
    return found


@pytest.fixture(scope="module")
def rows(path: Path) -> list[ModeRow]:
    with open_store(str(path)) as store:
        predictor = Predictor(store, choose_device(store, published.DEVICE))
        return stored_rows(store, predictor, [], [])


def test_each_model_at_each_batch_size_has_figures_in_each_mode_or_a_reason(
    rows: list[ModeRow],
) -> None:
    found = {(row.workload.name, row.workload.batch_size, row.mode): row for row in rows}
    assert len(found) == len(rows)
    models = ("lstm", "resnet50", "bert-base-uncased")
    wanted = {(m, size, mode) for m in models for size in SIZES for mode in PLAIN + COMPILED}
    assert found.keys() == wanted - {HELD_UP}
    for (model, _, mode), row in found.items():
        if model == "lstm" and mode in COMPILED:
            assert row.cost is None and (row.run.reason or "").startswith("not compiled: dynamo")
            continue
        assert row.cost is not None and row.cost.energy_j is not None
        assert row.cost.time_s.low is not None and row.cost.energy_j.low is not None
        assert row.run.facts["outrun_share"] <= 1
        if mode in COMPILED:
            assert (row.run.facts["graphs"], row.run.facts["graph_breaks"]) == (1, 0)
            assert row.run.facts["output_difference"] < 0.01
            assert row.run.facts["compile_cold"] is True


def test_the_operators_sum_is_close_to_a_cuda_graph(rows: list[ModeRow]) -> None:
    graphs = [row for row in rows if row.mode == "graph"]
    assert len(graphs) == 18 and all(row.coverage_time == 1 for row in graphs)
    times = [abs(row.saves_of_operators.time or 1) for row in graphs]
    energies = [abs(row.saves_of_operators.energy or 1) for row in graphs]
    assert statistics.median(times) < 0.009 and max(times) < 0.09
    assert statistics.median(energies) < 0.015 and max(energies) < 0.06


def test_runs_launch_exactly_the_kernels_of_their_operators(opdb: Opdb, path: Path) -> None:
    ran = opdb("validate", "--kernels", "--db", str(path))
    assert ran.status == 0, ran.err
    assert ran.out.endswith("exactly the kernels of their operators: 35 of 35\n")


def test_repeats_agree_as_the_docs_say_and_those_that_do_not_are_flagged(
    rows: list[ModeRow],
) -> None:
    agree: Counter[tuple[bool, bool]] = Counter()
    for row in rows:
        if row.cost is None:
            continue
        by_host = row.run.facts["outrun_share"] >= OUTRUN
        bound = HOSTS_AGREEMENT if by_host else AGREEMENT
        close = repeat_spread(agreeing(row.run.repeats)) <= bound
        assert close != any(flag.startswith("no three repeats agree") for flag in row.run.flags)
        agree[by_host, close] += 1
    assert agree == {(False, True): 41, (False, False): 1, (True, True): 35, (True, False): 12}


def test_kernels_of_inductor_in_cuda_graphs_save_most(rows: list[ModeRow]) -> None:
    saved = {
        (row.workload.name, row.workload.batch_size): row.saves
        for row in rows
        if row.mode == "compile:reduce-overhead" and row.cost is not None
    }
    for (model, size), (time, energy) in {
        ("resnet50", 1): (0.82, 0.71),
        ("resnet50", 32): (0.51, 0.41),
        ("bert-base-uncased", 1): (0.63, 0.42),
        ("bert-base-uncased", 32): (0.06, 0.14),
    }.items():
        assert saved[model, size].time == pytest.approx(time, abs=0.006)
        assert saved[model, size].energy == pytest.approx(energy, abs=0.006)
