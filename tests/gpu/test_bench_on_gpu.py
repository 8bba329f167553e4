"""Bench, measure and predict on a real NVIDIA GPU, end to end and in parts."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from opdb.bench.model import RunOptions, measure_models
from opdb.bench.plan import BenchRequest
from opdb.bench.run import bench
from opdb.bench.session import Session
from opdb.bench.visit import VisitRequest, is_at_full_clock, visit
from opdb.derive.runs import run_cost
from opdb.harvest.passes import harvest
from opdb.predict.predictor import predictor_for
from opdb.progress import Display
from opdb.records import Configuration, Mode
from opdb.spec import ModelSpec
from opdb.store import open_store

HEAVY = Configuration(
    "matmul",
    {},
    {
        "input": {"shape": [8192, 8192], "dtype": "bfloat16"},
        "other": {"shape": [8192, 8192], "dtype": "bfloat16"},
    },
)


def test_an_operator_at_the_power_limit_is_repeated_with_gaps(session: Session) -> None:
    made = visit(session, VisitRequest(HEAVY))
    if len(made) == 1:
        assert is_at_full_clock(made[0].flags)  # this board never reached its limit
        return
    assert [v.role for v in made[:-1]] == ["limited"] * (len(made) - 1)
    last = made[-1].stretch
    assert last is not None and last.busy_share < 1


def test_a_model_is_predicted_from_its_operators(calibrated: Path, tmp_path: Path) -> None:
    """With 128 images the GPU is the limit; with 32 a shared host is at times, too."""
    request = ModelSpec("resnet18", batch_size=128)
    modes: tuple[Mode, ...] = ("eager", "graph")
    with open_store(str(shutil.copy(calibrated, tmp_path))) as store:
        workload = harvest(request)
        store.save_workload(workload)
        result = bench(store, BenchRequest(device="cuda"), Display())
        assert set(result.outcomes) == {"ok"}
        jobs = [(request, workload, mode) for mode in modes]
        found, _ = measure_models(store, jobs, RunOptions(), "cuda", Display())
        runs = [run for _, run in found]
        kernels = {v.configuration: v.kernels for v in store.visits(result.board)}
        predictor = predictor_for(store)
        answers = [predictor.answer(workload, mode) for mode in modes]
        again = bench(store, BenchRequest(device="cuda"), Display())
    assert again.campaign is None, "nothing was pending any more"
    for run, answer in zip(runs, answers, strict=True):
        cost = run_cost([run])
        assert cost is not None and cost.energy_j is not None
        assert answer.prediction.coverage_calls == 1
        assert answer.attribution_time == pytest.approx(1, abs=0.1)
        assert answer.attribution_energy == pytest.approx(1, abs=0.1)
        summed: Counter[str] = Counter()
        for call in workload.calls:
            summed.update(kernels[call.configuration.key] or {})
        assert dict(summed) == run.kernels, "a model launches the kernels of its operators"
