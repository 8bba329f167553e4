"""A CUDA graph is measured in several processes; here, without a GPU, an eager pass stands in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from opdb.bench import model as measuring
from opdb.bench.model import MAX_REDONE, RunOptions, measure_graph
from opdb.bench.session import Session
from opdb.bench.visit import VisitRequest, visit
from opdb.derive.costs import STARTED_FASTER, rejection
from opdb.models import checked
from opdb.records import Configuration, Device, Stretch
from opdb.runs import ModelRunSpec
from opdb.spec import ModelSpec
from tests.matrix import short

RELU = Configuration("relu", {}, {"input": {"shape": [4, 8], "dtype": "float32"}})
GPU = Device("gpu", "GPU", "cuda", None, None, None, None)


def spec(name: str) -> ModelRunSpec:
    request = checked(ModelSpec(name, batch_size=2))
    return ModelRunSpec(request, "key", "eager", ("board",))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    short.start_quickly(monkeypatch)


@pytest.mark.parametrize("repeats", [1, 4])
def test_each_repeat_has_a_process_of_its_own(
    session: Session, monkeypatch: pytest.MonkeyPatch, repeats: int
) -> None:
    monkeypatch.setattr(measuring, "disagreement", lambda *_: [])
    run = measure_graph(session, None, spec("mlp"), RunOptions(repeats, layers=True))
    wanted = max(3, repeats)
    assert run.outcome == "ok" and run.workload == "key"
    assert len(run.repeats) == run.facts["processes"] == wanted
    assert run.layers and run.facts["tiny_kernel_s"] == []
    assert run.campaign == session.campaign.id
    assert len(set(run.flags)) == len(run.flags)


def test_processes_that_disagree_are_followed_by_more_and_flagged(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([*(["apart"] for _ in range(4)), []])
    monkeypatch.setattr(measuring, "disagreement", lambda *_: next(said))
    assert len(measure_graph(session, None, spec("mlp"), RunOptions()).repeats) == 5
    monkeypatch.setattr(measuring, "disagreement", lambda *_: ["apart"])
    run = measure_graph(session, None, spec("mlp"), RunOptions())
    assert len(run.repeats) == 3 + MAX_REDONE and "apart" in run.flags


def test_a_process_that_is_killed_is_a_run_that_failed(session: Session) -> None:
    run = measure_graph(session, None, spec("tests.matrix.models:fatal"), RunOptions())
    assert (run.outcome, run.repeats) == ("error", ())
    assert "exit status -9" in str(run.reason)


def test_a_visit_in_which_another_process_came_is_rejected(session: Session) -> None:
    class Disturbed(Session):
        @contextmanager
        def settled(self) -> Iterator[list[str]]:
            flags: list[str] = []
            yield flags
            flags.append(f"{STARTED_FASTER} (190 of 230 ns): another process")

    disturbed = Disturbed(session.platform, session.meter, session.campaign)
    [made] = visit(disturbed, VisitRequest(RELU))
    assert isinstance(made.stretch, Stretch)
    assert rejection(made.flags, GPU) == "another process made or ended a CUDA context"
    [quiet] = visit(session, VisitRequest(RELU))
    assert rejection(replace(quiet, flags=()).flags, GPU) is None
    assert not any(flag.startswith(STARTED_FASTER) for flag in quiet.flags)
