"""Whole models with their convolutions forced, as CUDA graphs: what ran, what it drew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opdb.algorithms.names import algorithms_named
from opdb.bench.session import detect
from opdb.derive.runs import run_cost
from opdb.errors import OpdbError
from opdb.progress import Progress
from opdb.records import ModelRun
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from opdb.studies.sweep.measuring import SweepOptions, sweep_work, unmetered, verify
from opdb.studies.sweep.request import (
    SweepPolicy,
    SweepRequest,
    SweepSpec,
    harvested_specs,
    image_request,
)

NAMES = ("implicit gemm", "implicit precomp gemm", "fft tiling", "winograd", "direct", "default")


@pytest.fixture(scope="module")
def swept(
    calibrated: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, list[tuple[SweepSpec, ModelRun]]]]:
    path = tmp_path_factory.mktemp("swept") / "opdb.sqlite"
    shutil.copy(calibrated, path)
    store = open_store(str(path))
    request = image_request("resnet18", ModelSpec(batch_size=1))
    asked = SweepRequest((request,), (224, 256), tuple(algorithms_named(NAMES)), "graph", "quick")
    errors: list[OpdbError] = []
    cells = harvested_specs(store, asked, errors, Progress())
    assert not errors
    work = sweep_work(SweepPolicy((detect("cuda").device.slug,)), SweepOptions())
    yield store, list(work.run(store, cells, "cuda", Progress()))
    store.close()


def test_every_cell_ended_in_a_state_of_its_own(swept: Any) -> None:
    _, found = swept
    assert len(found) == 12
    for cell, run in found:
        assert run.outcome in ("ok", "unsupported"), f"{cell.algorithm.name}: {run.reason}"
        if run.outcome == "unsupported":
            assert "NOT_SUPPORTED" in (run.reason or "")
    states = {cell.algorithm.name: run.outcome for cell, run in found}
    assert states["default"] == states["implicit precomp gemm"] == states["direct"] == "ok"


def test_runs_have_time_power_layers_and_kernels(swept: Any) -> None:
    _, found = swept
    for cell, run in found:
        if run.outcome != "ok":
            continue
        cost = run_cost([run])
        assert cost is not None and cost.energy_j is not None and cost.energy_j.low is not None
        assert sum(len(stretch.replay_times_s) for stretch in run.repeats) >= 20
        assert run.layers and run.kernels
        in_place = sum(run.layers.values())
        assert 0.7 * cost.time_s.mean < in_place < 3 * cost.time_s.mean, cell.algorithm.name


def test_what_ran_is_verified(swept: Any) -> None:
    store, found = swept
    cells = [cell for cell, _ in found if cell.size == 224]
    [workload] = store.workloads_by_key([cells[0].workload])
    for each in verify(unmetered(detect("cuda")), cells, workload):
        assert each.holds, f"{each.cell.algorithm.name}: {each}"
        assert each.kernels
