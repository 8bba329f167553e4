"""A cell of a sweep is stored by the worker that has its claim, and by no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from opdb.algorithms.names import algorithm_named
from opdb.bench import model as measure_module
from opdb.bench.run import campaign
from opdb.bench.session import Session, detect, new_id
from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.progress import Progress
from opdb.records import ModelRun
from opdb.spec import ModelSpec
from opdb.store import Claims, Store, schema
from opdb.store.claims import held, this_worker
from opdb.studies.sweep import measuring as bench_sweep
from opdb.studies.sweep.measuring import SweepOptions, SweepWork
from opdb.studies.sweep.request import SweepPolicy, SweepSpec

OTHER = "another-machine:1:0.00"


def cell_of(store: Store, size: int) -> SweepSpec:
    request = checked(ModelSpec("tests.sweep.models:small", input_size=(3, size, size)))
    workload = harvest(request)
    store.save_workload(workload)
    return SweepSpec(request, workload.key, size, algorithm_named("default"), "eager")


def swept(store: Store, cells: Sequence[SweepSpec]) -> Iterator[tuple[SweepSpec, ModelRun]]:
    options = SweepOptions(warm_up=1, measure=3, layers=False)
    work = SweepWork(SweepPolicy((detect("cpu").device.slug,)), options=options)
    return work.run(store, cells, "cpu", Progress())


def take_over(store: Store, session: Session, cell: SweepSpec) -> None:
    """Take a cell from a worker that gave no sign for the length of its lease."""
    with store.writing() as connection:
        connection.execute(update(schema.claim).values(until_s=0.0))
    claim_by(store, session, cell, OTHER)


def claim_by(store: Store, session: Session, cell: SweepSpec, worker: str) -> None:
    """Claim a cell as another worker does."""
    board = session.platform.board
    claims = Claims(store, f"sweep {board.device}", board.uuid)
    claims._worker = worker
    assert claims.take(cell.key)


@pytest.mark.usefixtures("short")
def test_what_a_killed_worker_had_is_measured_by_the_next_and_by_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, number, _ = this_worker().split(":")
    gone = f"{place}:{number}:1.00"  # this process's number, of one that began long ago
    first, second, third = (cell_of(store, size) for size in (16, 24, 32))
    measure = bench_sweep.measure_cell

    @contextmanager
    def left_by_the_dead(*given: Any) -> Iterator[Session]:
        with campaign(*given) as session:
            claim_by(store, session, first, gone)
            claim_by(store, session, second, OTHER)
            yield session

    def dying(session: Session, cell: SweepSpec, *more: object) -> ModelRun:
        """While the last cell is measured, the worker that has the second one is killed."""
        if cell == third:
            with store.writing() as connection:
                of_other = schema.claim.c.worker == OTHER
                connection.execute(update(schema.claim).where(of_other).values(worker=gone))
        return measure(session, cell, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(measure_module, "campaign", left_by_the_dead)
    monkeypatch.setattr(bench_sweep, "measure_cell", dying)
    found = [cell for cell, _ in swept(store, [first, second, third])]
    assert found == [first, third, second] and held(store) == []


@pytest.mark.usefixtures("short")
def test_a_cell_that_another_worker_took_over_is_stored_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cell_of(store, 16), cell_of(store, 24)
    measure = bench_sweep.measure_cell

    def slow(session: Session, cell: SweepSpec, *more: object) -> ModelRun:
        """Measure the first cell for so long that another worker takes it over and stores it."""
        run = measure(session, cell, *more)  # type: ignore[arg-type]
        if cell == first:
            take_over(store, session, cell)
            store.save_model_run(replace(run, id=new_id(), facts={**run.facts, "by": OTHER}))
        return run

    monkeypatch.setattr(bench_sweep, "measure_cell", slow)
    found = list(swept(store, [first, second]))
    assert [cell for cell, _ in found] == [second]
    [of_first] = store.model_runs(first.workload, setting=first.setting)
    assert of_first.facts["by"] == OTHER
    assert len(store.model_runs(second.workload, setting=second.setting)) == 1
    assert [(claim.worker, claim.task) for claim in held(store)] == [(OTHER, first.key)]
