"""The figures of a matrix: throughput, energy with its interval, and what is missing with why."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from opdb.records import Json, ModelRun, Stretch
from opdb.runs import State
from opdb.store import RunState
from opdb.studies.train.rows import (
    LINES,
    RUNS,
    BackendDevice,
    Combination,
    MatrixRun,
    TrainingSpec,
    figures,
    lines_of,
    remarks_of,
)
from opdb.studies.train.running import draw
from tests.store import samples

NO_POWER = "no power: this is a test"
WHERE = samples.DEVICE.slug, "GPU-1"
HERE = BackendDevice("cpu", samples.DEVICE.slug, "GPU-1", why_no_amp="no amp in this test")


def cell(model: str = "mlp", batch_size: int = 4, **more: object) -> TrainingSpec:
    return TrainingSpec(Combination(model, batch_size, **more), HERE)  # type: ignore[arg-type]


def stretch(step_s: float, power_w: float | None = None) -> Stretch:
    samples_w = () if power_w is None else tuple((0.01 * i, power_w) for i in range(100))
    return Stretch(1, (step_s,) * 50, 1.0, 1.0, power_samples=samples_w)


def run(steps_s: tuple[float, ...], power_w: float | None = None, **facts: Json) -> ModelRun:
    """Return a good run whose stretches took so long a step."""
    known = {
        "label": "mlp-b4-fp32-cpu",
        "data_time_s": 0.0,
        "compute_time_s": steps_s[0],
        "peak_resident_bytes": 2**30,
        "iters": 50,
        "warmup_iters": 10,
    }
    return ModelRun(
        id="run",
        campaign=samples.campaign().id,
        workload="workload",
        mode="eager",
        outcome="ok",
        reason=None,
        started_at="2026-11-21T12:00:00+00:00",
        cost_s=1.0,
        repeats=tuple(stretch(step_s, power_w) for step_s in steps_s),
        peak_memory_bytes=None,
        kernels=None,
        flags=() if power_w else (NO_POWER,),
        facts={**known, **facts},
    )


def made(one: TrainingSpec, state: State = "done", ran: ModelRun | None = None) -> MatrixRun:
    return MatrixRun(one, state, ran, None if ran is None else samples.campaign())


def state(outcome: str = "ok", **more: object) -> RunState:
    ran = run((0.1,))
    found = RunState("one", "workload", "eager", {}, "ok", None, 1.0, ran.facts, "campaign", *WHERE)
    return replace(found, outcome=outcome, **more)  # type: ignore[arg-type]


def test_a_step_is_the_mean_of_all_that_was_timed() -> None:
    found = figures([run((0.09, 0.1, 0.11), power_w=200.0)])
    assert found is not None and found.energy_j is not None
    assert found.time_s.mean == pytest.approx(0.1)
    assert found.energy_j.mean == pytest.approx(20.0)
    assert found.power_w == pytest.approx(200.0) and found.energy_reason is None
    row = RUNS.document(made(cell(), ran=run((0.09, 0.1, 0.11), power_w=200.0)))
    assert row["images_per_s"] == pytest.approx(40.0)
    assert row["energy_per_image_j"] == pytest.approx(5.0)
    assert row["energy_low_j"] < 5.0 < row["energy_high_j"]


def test_several_runs_are_one_value_each() -> None:
    """What differs between processes is in the interval: their stretches alone say less."""
    runs = [run((0.1, 0.1, 0.1)), run((0.12, 0.12, 0.12))]
    found = figures(runs)
    assert found is not None and found.time_s.count == 2
    assert found.time_s.mean == pytest.approx(0.11)
    alone = figures(runs[:1])
    assert alone is not None and alone.time_s.high is not None and found.time_s.high is not None
    assert alone.time_s.high - alone.time_s.mean < found.time_s.high - found.time_s.mean


def test_energy_that_was_not_read_is_missing_with_the_reason() -> None:
    row = RUNS.document(made(cell(), ran=run((0.1, 0.1))))
    assert row["energy_per_image_j"] is None and row["energy_low_j"] is None
    assert row["energy_reason"] == NO_POWER
    half = replace(run((0.1, 0.1)), flags=())
    whole = run((0.1,), power_w=200.0)
    found = figures([replace(half, repeats=half.repeats + whole.repeats)])
    assert found is not None and found.energy_j is None
    assert found.energy_reason == "no power was read"


def test_repeats_are_one_line_and_what_failed_says_why() -> None:
    again = cell(number=2)
    failed = replace(run((0.1,)), outcome="out_of_memory", reason="too large", repeats=(), flags=())
    some = [
        made(cell(), ran=run((0.1,))),
        made(again, "out of memory", failed),
        made(cell(precision="amp"), "not here"),
        made(cell(batch_size=8), "left"),
    ]
    lines = lines_of(some)
    assert [tuple(LINES.cells(line)[:3]) for line in lines] == [
        ("mlp-b4-fp32-cpu", "1 of 2", "40"),
        ("mlp-b4-amp-cpu", "0 of 1", "–"),
        ("mlp-b8-fp32-cpu", "0 of 1", "–"),
    ]
    assert remarks_of(lines) == [
        "mlp-b4-fp32-cpu: out of memory: too large",
        f"mlp-b4-fp32-cpu: {NO_POWER}",
        "mlp-b4-amp-cpu: not here: no amp in this test",
        "mlp-b8-fp32-cpu: left",
    ]


@pytest.mark.parametrize("power_w", [None, 200.0])
def test_a_figure_is_drawn_with_and_without_energy(power_w: float | None) -> None:
    runs = [
        made(cell(model, size, precision=precision), ran=run((0.1, 0.11), power_w))
        for model in ("mlp", "lstm")
        for precision in ("fp32", "amp")
        for size in (4, 8)
    ]
    image = draw(lines_of(runs), "a title", "a command")
    assert image.startswith(b"\x89PNG")
    assert struct.unpack(">II", image[16:24]) == (1200, 960)
