"""A build by two workers: operators and models shared, the target held for each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.session import detect
from opdb.errors import InputError
from opdb.harvest.passes import harvest
from opdb.plan.loop import ELSEWHERE, BuildModel, BuildRequest, build, build_on_each
from opdb.spec import ModelSpec
from opdb.store import Claims, open_store
from opdb.workers import WorkerDevice
from tests.heard import Heard

TWO = [WorkerDevice("cpu", None), WorkerDevice("cpu", None)]
REQUESTS = [ModelSpec("mlp", input_size=(size,)) for size in (8, 16, 24)]

pytestmark = pytest.mark.usefixtures("short_workers")


def test_two_workers_build_and_nothing_is_done_twice(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        jobs = [BuildModel(request, harvest(request)) for request in REQUESTS]
        for job in jobs:
            store.save_workload(job.workload)
        heard = Heard()
        on = [detect("cpu")]
        built, failures = build_on_each(TWO, on, store, jobs, BuildRequest(1.0), heard)
        again, _ = build_on_each(TWO, on, store, jobs, BuildRequest(1.0), Heard())
        assert failures == []
        [board] = store.boards()
        assert built.boards == (board.uuid,) and built.runs == 3 and again.runs == 0
        assert again.benched == 0 and built.benched == len(store.usage())
        visits = Counter((v.configuration, v.role) for v in store.visits(board.uuid))
        assert set(visits.values()) == {2} and {key for key, _ in visits} == store.usage().keys()
        assert Counter(run.workload for run in store.model_runs()) == Counter(
            job.workload.key for job in jobs
        )
        for standing in built.standings:
            assert standing.run == "ok" and standing.answer is not None
            assert standing.answer.prediction.coverage_time == 1


def test_what_another_command_is_at_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        job = BuildModel(REQUESTS[0], harvest(REQUESTS[0]))
        store.save_workload(job.workload)
        key = next(iter(store.usage()))
        with monkeypatch.context() as patch:
            patch.setattr("opdb.store.claims.this_worker", lambda: "0123456789abcdef:7:1.00")
            claims = Claims(store, detect("cpu").device.slug, "another board")
        assert claims.take(f"model {key}")
        built = build(store, [job], BuildRequest(1.0), "cpu", Heard())
        assert built.survey is not None and built.survey.failed == {key: ELSEWHERE}
        [board] = store.boards()
        assert key not in {visit.configuration for visit in store.visits(board.uuid)}


def test_boards_of_several_kinds_share_nothing(tmp_path: Path) -> None:
    here = detect("cpu")
    mixed = [replace(here, device=replace(here.device, slug=slug)) for slug in ("h200", "a100")]
    with (
        open_store(str(tmp_path / "opdb.sqlite")) as store,
        pytest.raises(InputError, match=r"several kinds \(a100, h200\)"),
    ):
        build_on_each(TWO, mixed, store, [], BuildRequest(1.0), Heard())
