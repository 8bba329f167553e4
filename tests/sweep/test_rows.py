"""Rows of a sweep's files, from runs as they are stored."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.algorithms.names import algorithm_named
from opdb.errors import InputError
from opdb.records import ALGORITHM_SETTING, ModelRun, Stretch
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.studies.sweep.measuring import NOMINAL_S, planned_seconds
from opdb.studies.sweep.request import (
    SweepSpec,
    parse_sizes,
    sizes_of,
    spread_sizes,
)
from opdb.studies.sweep.rows import (
    LAYERS,
    OVERALL,
    LayerFacts,
    SweepRow,
    draw_curves,
    same_kernels,
)
from tests.store import samples

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


def row(run: ModelRun = RUN, cell: SweepSpec = FFT) -> SweepRow:
    return SweepRow(cell, run, "GPU-1", (0.011, 7.0), None, {"conv1": 0.5})


def overall(of: SweepRow) -> dict[str, Any]:
    return OVERALL.document(of)


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


def test_algorithms_that_run_the_same_kernels_are_named_as_the_same() -> None:
    some, other = {"gemm": 3, "copy": 1}, {"gemm": 3}
    ran = [("gemm", some), ("fft", other), ("guess", some), ("direct", None), ("default", None)]
    assert same_kernels(ran) == {"guess": "gemm"}


def test_the_sizes_of_the_full_stage_are_those_of_the_scripts_it_replaces() -> None:
    assert sizes_of("full", None, None) == [224 + int(i * 288 / 99) for i in range(100)]
    assert sizes_of("quick", None, None) == list(range(224, 513, 32))
    assert sizes_of("sanity", None, None) == [224]


@pytest.mark.parametrize("count", [1, 2, 5, 289])
def test_so_many_sizes_are_so_many(count: int) -> None:
    sizes = spread_sizes(count)
    assert len(set(sizes)) == count and sizes == sorted(sizes)
    assert sizes[0] == 224 and (count == 1 or sizes[-1] == 512)


@pytest.mark.parametrize("text", ["", "64,", "-5", "0", "big", "22.4", "99999999999"])
def test_what_is_no_size_is_said(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        parse_sizes(text)


SLUG = samples.DEVICE.slug


def test_a_cell_is_planned_as_all_of_the_device_took(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert planned_seconds(store, 2, SLUG) == (2 * NOMINAL_S, 0)
        store.save_campaign(samples.campaign())
        for number, (name, algorithm, cost_s) in enumerate((("a", "fft", 9.0), ("b", "gemm", 1.0))):
            workload = samples.workload(name, batch_size=number + 1)
            store.save_workload(workload, swept=True)
            run = replace(samples.model_run(workload, f"run-{number}"), cost_s=cost_s)
            store.save_model_run(replace(run, setting={ALGORITHM_SETTING: algorithm}))
        assert planned_seconds(store, 3, SLUG) == (15.0, 2)
        assert planned_seconds(store, 1, "another") == (NOMINAL_S, 0)


PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def drawn() -> Iterator[None]:
    pytest.importorskip("matplotlib")
    yield


def at(size: int, algorithm: str = "fft", **changes: object) -> SweepRow:
    cell = replace(FFT, size=size, algorithm=algorithm_named(algorithm))
    return row(replace(RUN, **changes), cell)  # type: ignore[arg-type]


def test_curves_are_drawn_of_full_partial_and_missing_cells() -> None:
    bare = tuple(replace(each, power_samples=()) for each in RUN.repeats)
    full = draw_curves([at(224), at(256, "gemm")], "made")
    assert full.startswith(PNG)
    assert draw_curves([at(224), at(256, facts=PARTIAL)], "made") != full
    assert draw_curves([at(224, repeats=bare)], "made").startswith(PNG)
    none = at(224, outcome="unsupported", repeats=(), layers=None)
    assert draw_curves([none], "made").startswith(PNG)
