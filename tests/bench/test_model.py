"""Whole models on the processor: batch norms calibrated, layers timed, state put back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, nn

from opdb.bench import model as running
from opdb.bench.model import (
    PASSES,
    WARM_UP_PASSES,
    RunOptions,
    RunReadings,
    measure,
    run_of,
    time_layers,
)
from opdb.bench.replay import CpuClock, Observation
from opdb.bench.session import Session
from opdb.errors import (
    InputError,
    NotCompiledError,
    UnsupportedError,
)
from opdb.harvest.passes import harvest
from opdb.memory import memory_of
from opdb.meters import Reading
from opdb.records import ModelRun, Stretch
from opdb.spec import ModelSpec
from tests.own import model

MLP = ModelSpec("mlp", batch_size=2, input_size=(16,))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SETTLE_S", 0.002)
    monkeypatch.setattr(running, "WINDOW_S", 0.02)
    monkeypatch.setattr(running, "MAX_REDONE", 2)
    monkeypatch.setattr(running, "HOSTS_REDONE", 4)


def _body() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())


def test_layers_are_timed_by_their_path_and_hooks_are_removed() -> None:
    @model((4, 8), body=_body, head=lambda: nn.Linear(8, 2), passes=lambda: 0)
    def twice(m: Any, x: Tensor) -> Any:
        m.passes += 1
        return m.head(m.body(m.body(x)))

    module, (x,) = twice()
    found = time_layers(module, lambda: module(x), CpuClock())
    assert found.keys() == {"body.0", "body.1", "head"}
    assert all(0 < time_s < 1 for time_s in found.values())
    assert module.passes == PASSES + WARM_UP_PASSES
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_pass_that_outlasts_the_window_is_made_twice_a_repeat(
    session: Session, monkeypatch: pytest.MonkeyPatch, repeats: int
) -> None:
    """The first one makes everything ready, the second shows how long it takes."""
    passes: list[float] = []

    def step(*_: object) -> Callable[[], None]:
        def slept() -> None:
            passes.append(0.03)
            time.sleep(passes[-1])

        return slept

    monkeypatch.setattr(running, "_step", step)
    run = measure(session, MLP, "key", "eager", RunOptions(repeats=repeats))
    assert len(passes) == 2 + 2 * len(run.repeats)
    assert [len(r.replay_times_s) for r in run.repeats] == [1] * len(run.repeats)
    assert all(min(r.replay_times_s[0], r.duration_s) >= 0.03 for r in run.repeats)
    assert len(run.repeats) >= repeats


@pytest.mark.parametrize(
    ("outrun", "repeats", "told"),
    [((1.0, 0.95, 1.0), 3, False), ((0.2,) * 5, 5, True), ((1.0, 0.5, 1.0, 1.0, 1.0), 5, True)],
    ids=["host", "device", "not always"],
)
def test_repeats_that_the_host_times_agree_within_more(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    outrun: tuple[float, ...],
    repeats: int,
    told: bool,
) -> None:
    """Means 2 % apart: enough where the device outruns the host in every repeat."""
    run = repeated(session, monkeypatch, [1.0, 1.02, 1.01, 1.04, 1.06], outrun)
    assert len(run.repeats) == repeats
    assert (
        any("no three repeats agree: the fastest differ by 2.0 %" in f for f in run.flags) == told
    )


def repeated(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    times_s: Sequence[float],
    outrun: Sequence[float],
) -> ModelRun:
    """Measure a model whose repeats take these times, on a device that outruns so much."""
    shares, times = iter(outrun), iter(times_s)

    def observed(*_: object) -> Observation:
        stretch = Stretch(1, (next(times),) * 3, 3.0, 1.0)
        return Observation(stretch, Reading(), outrun_share=next(shares))

    monkeypatch.setattr(running, "observe", observed)
    return measure(session, MLP, "key", "eager", RunOptions(repeats=3))


@pytest.mark.parametrize(
    ("request_", "outcome", "said"),
    [
        (ModelSpec("mlp", batch_size=2**44), "out_of_memory", "can't allocate memory"),
        (ModelSpec("tests.bench.test_model:broken", input_size=(3,)), "error", "half way"),
        (ModelSpec("tests.bench.test_model:unbuildable"), "error", "cannot be built"),
    ],
)
def test_a_model_that_fails_is_an_outcome(
    session: Session, request_: ModelSpec, outcome: str, said: str
) -> None:
    run = measure(session, request_, "key", "eager", RunOptions(repeats=1))
    assert run.outcome == outcome
    assert run.reason is not None and said in run.reason and "\n" not in run.reason
    assert run.repeats == ()


def test_what_does_not_fit_is_refused_before_it_is_made(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "load", None)
    small = replace(session.platform.device, memory_bytes=100)
    options = RunOptions(repeats=1, memory=memory_of(harvest(MLP), small))
    run = measure(session, MLP, "key", "eager", options)
    assert run.outcome == "out_of_memory" and run.reason is not None
    assert re.fullmatch(r"needs about [\d.]+ MB, the device has 100 B", run.reason)


@model((3,))
def broken(m: Any, x: Tensor) -> Tensor:
    """Runs on meta, where it is harvested, and nowhere else."""
    if not x.is_meta:
        raise RuntimeError("half way")
    return x.relu()


def unbuildable() -> nn.Module:
    raise RuntimeError("no such file")


# From what a run saw to its record: findings are outcomes, everything else goes on its way


STRETCH = Stretch(1, (0.5,), 0.5, 1.0)


def fill(seen: RunReadings) -> None:
    seen.repeats.append(STRETCH)
    seen.flags += ["one", "another", "one"]
    seen.facts["label"] = "mine"
    seen.kernels, seen.layers, seen.peak_memory_bytes = {"gemm": 2}, {"fc": 0.5}, 64


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (InputError("no such folder"), "error", "no such folder"),
        (UnsupportedError("no kernel"), "unsupported", "no kernel"),
        (NotCompiledError("as it is"), "unsupported", "as it is"),
        (RuntimeError("wrong shape\nmore"), "error", "RuntimeError: wrong shape"),
        (MemoryError("too much"), "out_of_memory", "too much"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_finding_is_an_outcome_and_half_a_measurement_is_none(
    session: Session, error: Exception, outcome: str, reason: str
) -> None:
    def fails(seen: RunReadings) -> None:
        fill(seen)
        raise error

    run = run_of(session, "workload", "eager", fails)
    assert (run.outcome, run.reason, run.repeats) == (outcome, reason, ())
    assert run.kernels == {"gemm": 2} and run.facts == {"label": "mine"}
