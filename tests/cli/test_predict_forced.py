"""`opdb predict --algorithm` on the processor: torch's convolution stands in for forced ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.algorithms.names import algorithm_named
from opdb.derive.costs import ESTIMATOR
from opdb.kinds.registry import DEFAULT_SETTINGS, relevant_setting
from opdb.predict.predictor import Predictor, predictor_for
from opdb.records import ELSEWHERE, Json, Workload
from opdb.store import Store, open_store
from tests import published
from tests.algorithms.stand_in import REFUSAL, stand_in
from tests.cli.conftest import Opdb

SMALL = "tests.sweep.models:small"
"""Three convolutions, the second of which no algorithm of stride 1 can run."""


@pytest.fixture
def benched(opdb: Opdb, short: None, monkeypatch: pytest.MonkeyPatch) -> Opdb:
    """The command line, with costs as usual and by fft."""
    stand_in(monkeypatch)
    assert opdb("harvest", SMALL, "--input-size", "3x16x16").status == 0
    bench = ("--device", "cpu", "--precision", "100", "--duplicates", "0", "--quiet")
    assert opdb("bench", *bench).status == 0
    assert "opdb predict" not in opdb("show").out
    assert opdb("bench", "conv2d", "--algorithm", "fft", *bench).status == 0
    return opdb


def predicted(opdb: Opdb, *arguments: str) -> Any:
    return opdb.read("predict", SMALL, *arguments)


def test_what_an_algorithm_cannot_run_is_missing_with_the_reason(benched: Opdb) -> None:
    found = predicted(benched, "--algorithm", "fft")
    assert (found["algorithm"], found["mode"], found["measured"]) == ("fft", "graph", None)
    [missing] = found["missing"]
    assert (missing["kind"], missing["reason"]) == ("conv2d", REFUSAL)
    assert found["coverage"]["calls"] == pytest.approx(7 / 8)
    assert found["coverage"]["time"] + missing["share_time"] == pytest.approx(1)
    assert f"1 configuration unsupported by fft: {REFUSAL}" in found["notes"]
    told = benched("predict", SMALL, "--algorithm", "fft").out
    assert "graph, convolutions by fft, on " in told and REFUSAL in told
    assert "to measure what is missing" not in told, "no bench measures what is unsupported"


def test_what_was_not_benched_by_it_is_missing_and_how_to_bench_it_is_said(benched: Opdb) -> None:
    found = predicted(benched, "--algorithm", "Implicit_GEMM")
    assert found["algorithm"] == "implicit gemm"
    assert [(m["kind"], m["reason"]) for m in found["missing"]] == [("conv2d", None)] * 3
    assert math.fsum(m["share_time"] for m in found["missing"]) > 0
    told = benched("predict", SMALL, "--algorithm", "implicit gemm").out
    assert f": opdb bench --model {SMALL} --algorithm implicit_gemm\n" in told
    ran = benched("predict", SMALL, "--algorithm", "implicit gemm", "--target", 0.9999)
    assert ran.status == 1 and "coverage of time is 0." in ran.err


def test_default_is_what_torch_does(benched: Opdb) -> None:
    usual, found = predicted(benched), predicted(benched, "--algorithm", "default")
    assert "algorithm" not in usual and found.pop("algorithm") == "default"
    assert found == usual and found["mode"] == "eager"


GEMM = algorithm_named("implicit gemm")
UNDER = {**DEFAULT_SETTINGS, **GEMM.setting}
USUAL = relevant_setting("conv2d", DEFAULT_SETTINGS)
FORCED = relevant_setting("conv2d", UNDER)
RUN_ON, BENCHED_ON = "GPU-cc8a", "GPU-ea87"
"""Boards of resnet18 at batch 1: the one with the usual run, and the one with costs by GEMM."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return published.copy_to(tmp_path / "opdb.sqlite")


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(str(path)) as opened:
        force(opened)
        yield opened


def resnet18(store: Store) -> Workload:
    [found] = store.workloads("resnet18", batch_size=1, dtype="float32")
    return found


def predictor(store: Store, settings: dict[str, Json]) -> Predictor:
    return predictor_for(store, None, settings, estimates=False)


def force(store: Store, longer_s: float = 0.0) -> None:
    """Give the board costs of resnet18's convolutions by GEMM: its usual ones, so much longer."""
    board = predictor(store, {}).board(BENCHED_ON)
    wanted = {c.key for c in resnet18(store).occurrences() if c.kind == "conv2d"}
    kept = [c for costs in store.costs(board).values() for c in costs if c.setting != FORCED]
    added = [
        replace(cost, setting=FORCED, time_s=cost.time_s.moved(longer_s), host_time_s={})
        for cost in kept
        if cost.configuration in wanted and cost.setting == USUAL and cost.time_s is not None
    ]
    assert len(added) == len(wanted) and {cost.estimator for cost in added} == {ESTIMATOR}
    store.replace_costs(board, [*kept, *added])


def test_convolutions_cost_what_they_do_by_the_algorithm_and_all_else_as_usual(
    store: Store,
) -> None:
    board = predictor(store, UNDER).board(BENCHED_ON)
    usual = predictor(store, {**DEFAULT_SETTINGS}).answer(resnet18(store), "graph", board)
    alike = predictor(store, UNDER).answer(resnet18(store), "graph", board).prediction
    # The interval, too, is that of the usual: other models' usual runs make it.
    assert alike == replace(usual.prediction, workload=alike.workload, notes=alike.notes)
    assert not any("rests on a prior" in note for note in alike.notes)
    force(store, longer_s=1e-3)
    longer = predictor(store, UNDER).answer(resnet18(store), "graph", board).prediction
    calls = sum(c.configuration.kind == "conv2d" for c in resnet18(store).calls)
    assert longer.time_s is not None and alike.time_s is not None
    assert longer.time_s == pytest.approx(alike.time_s + calls * 1e-3, rel=1e-2)
    after = predictor(store, {**DEFAULT_SETTINGS}).answer(resnet18(store), "graph", board)
    assert after == usual


def test_the_board_is_the_one_that_has_most_of_it_and_others_lend_theirs(store: Store) -> None:
    workload, on = resnet18(store), predictor(store, UNDER)
    usual = predictor(store, {**DEFAULT_SETTINGS}).answer(workload, "graph").prediction
    chosen = on.answer(workload, "graph").prediction
    assert usual.board.startswith(RUN_ON) and chosen.board.startswith(BENCHED_ON)
    lent = on.answer(workload, "graph", usual.board).prediction
    convolutions = {c for c in workload.occurrences() if c.kind == "conv2d"}
    said = f"measured only on board {chosen.board}: {len(convolutions)} configurations; costs are "
    assert not lent.missing and any(note.startswith(said) for note in lent.notes)


def test_a_usual_run_is_no_truth_and_one_by_the_algorithm_is(store: Store) -> None:
    """One of which a convolution ran otherwise, or by another algorithm, is none either."""
    workload = resnet18(store)
    usual = predictor(store, {**DEFAULT_SETTINGS}).answer(workload, "graph")
    board = usual.prediction.board
    [*_, run] = store.model_runs(workload.key, board=board, mode="graph")
    assert usual.measured is not None

    def measured() -> object:
        return predictor(store, UNDER).answer(workload, "graph", board).measured

    assert measured() is None
    setting, fft = GEMM.setting, algorithm_named("fft").setting
    store.save_model_run(replace(run, id="by-another", setting=fft))
    partial = {ELSEWHERE: {"conv1": {"ran": "default"}}}
    store.save_model_run(replace(run, id="partial", setting=setting, facts=partial))
    assert measured() is None
    store.save_model_run(replace(run, id="by-it", setting=setting))
    assert measured() is not None
    elsewhere = predictor(store, UNDER)
    assert elsewhere.answer(workload, "graph", elsewhere.board(BENCHED_ON)).measured is None
