"""Rows of a sweep's files, from runs as they are stored."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from opdb.algorithms.names import algorithm_named
from opdb.records import ModelRun, Stretch
from opdb.runs import RunTable
from opdb.spec import ModelSpec
from opdb.store import RunState
from opdb.studies.sweep.request import SweepPolicy, SweepSpec, by_group
from opdb.studies.sweep.rows import LAYERS, OVERALL, LayerFacts, Predicted, Row, same_kernels

REQUEST = ModelSpec("made", batch_size=2, input_size=(3, 224, 224))
FFT = SweepSpec(REQUEST, "w" * 64, 224, algorithm_named("fft"), "graph")
POWER = tuple((0.02 * i, 300.0) for i in range(1, 11))


def stretch(*times: float) -> Stretch:
    return Stretch(1, times, 0.22, 1.0, power_samples=POWER)


RUN = ModelRun(
    id="1",
    campaign="c",
    workload=FFT.workload,
    mode="graph",
    outcome="ok",
    reason=None,
    started_at="2026-11-21T12:00:00.000+00:00",
    cost_s=2.0,
    repeats=(stretch(0.010, 0.012), stretch(0.011, 0.013), stretch(0.011, 0.011)),
    peak_memory_bytes=None,
    kernels={"fft2d": 3},
    layers={"conv1": 0.006, "conv2": 0.002, "fc": 0.002},
    setting=FFT.setting,
    facts={"convolutions": 2, "forced": 2},
)
PARTIAL: dict[str, Any] = {
    "convolutions": 2,
    "forced": 1,
    "elsewhere": {"conv1": {"ran": "default", "why": "cudnnAny: NOT_SUPPORTED (3000)"}},
    "share_elsewhere": 0.6,
}
CONVOLUTIONS = [LayerFacts("conv1", 3, 8, (7, 7)), LayerFacts("conv2", 8, 16, (3, 1))]


def row(run: ModelRun = RUN, cell: SweepSpec = FFT) -> Row:
    return Row(cell, run, "GPU-1", Predicted(0.011, 7.0), None, {"conv1": 0.5})


def overall(of: Row) -> dict[str, Any]:
    return OVERALL.document(of)


def test_the_first_columns_are_those_that_peoples_scripts_read() -> None:
    assert (*OVERALL.fields[:9],) == (
        *("model", "algorithm", "input_size", "mean_ms", "std_ms", "min_ms", "max_ms"),
        *("power_mean_w", "energy_per_inference_j"),
    )
    assert (*LAYERS.fields[:7],) == (
        *("input_size", "layer", "in_channels", "out_channels", "kernel_size"),
        *("mean_ms", "percentage"),
    )


def test_times_are_those_of_the_measured_passes() -> None:
    told = overall(row())
    times = [t for each in RUN.repeats for t in each.replay_times_s]
    assert told["mean_ms"] == pytest.approx(1e3 * statistics.fmean(times))
    assert told["std_ms"] == pytest.approx(1e3 * statistics.stdev(times))
    assert (told["min_ms"], told["max_ms"]) == pytest.approx((10.0, 13.0))
    assert told["mean_low_ms"] < told["mean_ms"] < told["mean_high_ms"]
    assert told["iterations"] == 6 and told["state"] == "full"


def test_energy_is_that_of_one_image_of_the_batch() -> None:
    told = overall(row())
    assert told["power_mean_w"] == pytest.approx(300.0)
    assert told["energy_per_inference_j"] == pytest.approx(300 * told["mean_ms"] * 1e-3 / 2)
    assert told["energy_low_j"] < told["energy_per_inference_j"] < told["energy_high_j"]
    assert told["predicted_energy_j"] == 3.5 and told["predicted_ms"] == 11.0


def test_an_energy_that_was_not_read_is_missing_with_its_reason() -> None:
    bare = tuple(replace(each, power_samples=()) for each in RUN.repeats)
    told = overall(row(replace(RUN, repeats=bare, flags=("no power: no meter",))))
    assert told["energy_per_inference_j"] is None and told["power_mean_w"] is None
    assert told["mean_ms"] is not None and told["reason"] == "no power: no meter"


def test_layers_that_waited_for_the_host_are_told_by_the_pass_in_a_graph() -> None:
    """Three kernels and three layers add some 10 µs; what is beyond that was waited for."""
    told = "layers in place add up to 1.9 passes: they most likely waited for the host"
    slow = {**(RUN.layers or {}), "fc": 0.013}
    assert overall(row(replace(RUN, layers=slow)))["reason"] == told
    for calm in (
        replace(RUN, layers={**(RUN.layers or {}), "fc": 0.00334}),
        replace(RUN, layers=slow, mode="eager"),
        replace(RUN, layers=slow, kernels=None),
        replace(RUN, layers=None),
    ):
        assert overall(row(calm))["reason"] is None
    many = {"gemv": 9000}
    assert overall(row(replace(RUN, layers=slow, kernels=many)))["reason"] is None


def test_a_reason_is_said_once() -> None:
    why = "cudnnAny: NOT_SUPPORTED (3000)"
    none = f"fft runs none of 2 convolutions (2 of them: {why})"
    run = replace(RUN, outcome="unsupported", reason=none, repeats=(), layers=None, facts=PARTIAL)
    assert overall(row(run))["reason"] == none


def test_a_partial_run_says_what_ran_instead_and_its_share() -> None:
    told = overall(row(replace(RUN, facts=PARTIAL)))
    assert told["state"] == "partial"
    assert (told["forced"], told["elsewhere"], told["elsewhere_ran"]) == (1, 1, "default")
    assert told["share_elsewhere"] == 0.6 and "NOT_SUPPORTED (3000)" in told["reason"]
    lines = LAYERS.documents(row(replace(RUN, facts=PARTIAL)).layers(CONVOLUTIONS))
    assert [line["algorithm"] for line in lines] == ["default", "fft"]


@pytest.mark.parametrize("outcome", ["unsupported", "out_of_memory", "error"])
def test_a_run_that_was_none_has_no_numbers(outcome: Any) -> None:
    none = replace(RUN, outcome=outcome, reason="because", repeats=(), layers=None)
    told = overall(row(none))
    assert told["mean_ms"] is None and told["energy_per_inference_j"] is None
    assert told["state"] == outcome and told["reason"] == "because"
    assert row(none).layers(CONVOLUTIONS) == []


def test_layers_have_their_share_of_all_that_was_timed() -> None:
    first, second = LAYERS.documents(row().layers(CONVOLUTIONS))
    assert first == {
        "input_size": 224,
        "layer": "conv1",
        "in_channels": 3,
        "out_channels": 8,
        "kernel_size": "(7, 7)",
        "mean_ms": pytest.approx(6.0),
        "percentage": pytest.approx(60.0),
        "algorithm": "fft",
        "energy_j": 0.5,
    }
    assert second["percentage"] == pytest.approx(20.0) and second["energy_j"] is None


def test_what_was_guessed_stands_with_the_layer() -> None:
    guess = replace(FFT, algorithm=algorithm_named("guess"))
    facts = {**RUN.facts, "guessed": {"conv1": ["gemm"], "conv2": ["fft", "gemm"]}}
    lines = LAYERS.documents(row(replace(RUN, facts=facts), guess).layers(CONVOLUTIONS))
    assert [line["algorithm"] for line in lines] == ["gemm", "fft and gemm"]


def test_algorithms_that_run_the_same_kernels_are_named_as_the_same() -> None:
    other, unseen = replace(RUN, kernels={"gemm": 3}), replace(RUN, kernels=None)
    runs = [("gemm", RUN), ("fft", other), ("guess", RUN), ("direct", unseen), ("default", unseen)]
    assert same_kernels(runs) == {"guess": "gemm"}
    assert same_kernels([("gemm", replace(RUN, outcome="error")), ("fft", RUN)]) == {}


def state(outcome: Any, facts: Any = None, **changes: Any) -> RunState:
    facts = facts or {"convolutions": 2}
    end = outcome, None, 1.0, facts, "campaign", "gpu", "GPU-1"
    return replace(RunState("1", FFT.workload, "graph", FFT.setting, *end), **changes)


def table(runs: Sequence[RunState], claimed: Collection[str] = ()) -> RunTable[SweepSpec]:
    return RunTable(SweepPolicy(("gpu",)), runs, claimed)


def test_what_failed_is_pending_when_asked() -> None:
    failed = table([state("out_of_memory")])
    assert failed.state(FFT) == "failed"
    assert failed.pending([FFT]) == [] and failed.pending([FFT], retry=True) == [FFT]
    [(group, specs)] = by_group([FFT, replace(FFT, size=9, workload="v")]).items()
    assert (group.model, group.algorithm) == ("made", "fft")
    assert Counter(map(failed.state, specs)) == {"failed": 1, "left": 1}
