"""Whole models with their convolutions forced, as CUDA graphs: what ran, what it drew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opdb.algorithms.names import algorithms_named
from opdb.bench.plan import BenchRequest
from opdb.bench.run import bench
from opdb.bench.session import detect
from opdb.derive.runs import run_cost
from opdb.errors import OpdbError
from opdb.progress import Display, Progress
from opdb.records import Configuration, ModelRun
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from opdb.studies.sweep.measuring import SweepOptions, SweepWork, unmetered, verify
from opdb.studies.sweep.request import (
    SweepPolicy,
    SweepRequest,
    SweepSpec,
    harvested_specs,
    image_request,
)
from opdb.studies.sweep.rows import same_kernels

NAMES = ("implicit gemm", "implicit precomp gemm", "fft tiling", "winograd", "direct", "default")
CONV = Configuration(
    "conv2d",
    {"padding": [1, 1]},
    {
        "input": {"shape": [8, 64, 56, 56], "dtype": "float32"},
        "weight": {"shape": [64, 64, 3, 3], "dtype": "float32", "role": "weight"},
    },
)


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
    work = SweepWork(SweepPolicy((detect("cuda").device.slug,)), options=SweepOptions())
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


def test_direct_ran_no_kernels_but_its_own(swept: Any) -> None:
    _, found = swept
    runs = [(cell.algorithm.name, run) for cell, run in found if cell.size == 224]
    assert "direct" not in same_kernels(runs)
    [direct] = [run for name, run in runs if name == "direct"]
    assert (
        sum(n for kernel, n in direct.kernels.items() if "opdb_direct_convolution" in kernel) == 20
    )


def test_what_ran_is_verified(swept: Any) -> None:
    store, found = swept
    cells = [cell for cell, _ in found if cell.size == 224]
    [workload] = store.workloads_by_key([cells[0].workload])
    for each in verify(unmetered(detect("cuda")), cells, workload):
        assert each.holds, f"{each.cell.algorithm.name}: {each}"
        assert each.kernels


def test_energy_by_algorithm_stands_in_the_database(calibrated: Path, tmp_path: Path) -> None:
    shutil.copy(calibrated, tmp_path / "one.sqlite")
    with open_store(str(tmp_path / "one.sqlite")) as store:
        store.save_configurations([CONV])
        request = BenchRequest(
            configurations=[CONV.key],
            algorithms=tuple(algorithms_named(["default", "implicit gemm", "winograd"])),
            duplicates=0.0,
        )
        result = bench(store, request, Display())
        costs = {cost.setting: cost for cost in store.costs(result.board)[CONV.key]}
        usual = [cost for setting, cost in costs.items() if "algorithm" not in setting]
        forced = [cost for setting, cost in costs.items() if '"implicit gemm"' in setting]
        assert len(usual) == len(forced) == 1
        for cost in (*usual, *forced):
            assert cost.energy_j is not None and cost.energy_j.mean > 0
        assert any("NOT_SUPPORTED" in why for _, why in result.refused)
