"""Two processes that ask for the same runs make each of them once, whatever the question."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from opdb import workers
from opdb.bench.driver import DriverSpec, DriverWork
from opdb.bench.model import AlikeRuns, ModelWork, RunOptions
from opdb.bench.session import detect
from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.progress import Progress
from opdb.runs import DriverOptions, ModelPolicy, ModelRunSpec
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from opdb.store.claims import held
from opdb.studies import modes
from opdb.workers import Work
from tests.workers import short

QUICK = RunOptions(repeats=1)
SHORT = DriverOptions(warmup_iters=1, iters=2, repeats=1)


def serve(url: str, asked: Work[Any], specs: list[ModelRunSpec], both: Any, told: Any) -> None:
    """Make the runs at the same time as the other process; tell which were made here."""
    short.shorten()
    workers.LOOK_EVERY_S = 0.02
    with open_store(url, create=False) as store:
        both.wait()
        told.send([spec.key for spec, _ in asked.run(store, specs, "cpu", Progress())])


def question(name: str, store: Store) -> tuple[Work[Any], list[ModelRunSpec]]:
    platform = detect("cpu")
    board = platform.board
    devices, boards = (board.device,), (board.uuid,)
    phase: Any = "training" if name == "training" else "inference"
    requests = [checked(ModelSpec("mlp", batch_size=size, phase=phase)) for size in (1, 2)]
    workloads = [harvest(request) for request in requests]
    for workload in workloads:
        store.save_workload(workload)
    pairs = [(r, w.key) for r, w in zip(requests, workloads, strict=True)]
    if name == "training":
        specs: list[ModelRunSpec] = [DriverSpec(*pair, "eager", boards, SHORT) for pair in pairs]
        return DriverWork(ModelPolicy(devices, boards), options=SHORT), specs
    specs = [ModelRunSpec(*pair, "eager", boards) for pair in pairs]
    if name == "measure":
        policy = AlikeRuns(devices, boards, options=QUICK).without_stored(store)
        return ModelWork(policy, options=QUICK), specs
    if name == "modes":
        counted = modes.policy(board, platform.environment["torch"])
        return ModelWork(counted, retry=True, options=QUICK), specs
    return ModelWork(ModelPolicy(devices, boards), options=QUICK), specs


@pytest.mark.parametrize("name", ["modes", "measure", "build", "training"])
def test_two_processes_make_each_run_once(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'opdb.sqlite'}"
    with open_store(url) as store:
        asked, specs = question(name, store)
        short.start_quickly()
        context = multiprocessing.get_context("forkserver")
        both = context.Barrier(2)
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        processes = [
            context.Process(target=serve, args=(url, asked, specs, both, there))
            for _, there in pipes
        ]
        for process in processes:
            process.start()
        for _, there in pipes:
            there.close()
        made = [key for here, _ in pipes for key in here.recv()]
        for process in processes:
            process.join()
        assert sorted(made) == sorted(spec.key for spec in specs)
        assert len(store.model_runs(setting=None)) == len(specs)
        assert {run.outcome for run in store.model_runs(setting=None)} == {"ok"}
        assert held(store) == []


def test_a_run_that_is_asked_for_anew_is_made_however_many_are_stored(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        asked, specs = question("build", store)
        again, _ = question("measure", store)
        assert asked.pending(store, specs) == again.pending(store, specs) == specs
        [(spec, run)] = asked.run(store, specs[:1], "cpu", Progress())
        assert asked.pending(store, specs) == specs[1:]
        assert again.pending(store, specs) == specs[1:], "made since it was asked for"
        assert question("measure", store)[0].pending(store, specs) == specs
        assert list(asked.run(store, specs, "cpu", Progress(), may_begin=lambda spec: False)) == []
        assert [spec.workload, "ok"] == [run.workload, run.outcome] and held(store) == []
