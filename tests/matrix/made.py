"""Runs of a matrix as they are stored, made up: figures in them are nobody's."""

from __future__ import annotations

from dataclasses import replace

from opdb.records import Json, ModelRun, Stretch
from opdb.runs import State
from opdb.store import RunState
from opdb.studies.train.file import Combination
from opdb.studies.train.rows import BackendDevice, MatrixRun, TrainingSpec
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
    """Return the state of a run of `cell()`."""
    ran = run((0.1,))
    found = RunState("one", "workload", "eager", {}, "ok", None, 1.0, ran.facts, "campaign", *WHERE)
    return replace(found, outcome=outcome, **more)  # type: ignore[arg-type]
