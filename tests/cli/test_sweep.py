"""`opdb sweep` on the processor: torch's own way for real, forced algorithms by a stand-in."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from opdb.algorithms.names import ALGORITHMS
from opdb.store import open_store
from opdb.studies.sweep import measuring as bench_sweep
from opdb.studies.sweep import measuring as verify
from tests import published
from tests.algorithms.stand_in import REFUSAL, stand_in
from tests.cli.conftest import Opdb
from tests.workers.conftest import short_workers

SMALL = "tests.sweep.models:small"
STEM = "tests.sweep.models_small"
__all__ = ["short_workers"]


@pytest.fixture(autouse=True)
def fast(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (bench_sweep, "FIRST_SETTLE_S", 0.002),
        (bench_sweep, "SETTLE_S", 0.002),
        (bench_sweep, "WINDOW_S", 0.01),
        (bench_sweep, "LAYER_PASSES", 2),
        (verify, "PASSES", 2),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stand_in(monkeypatch)
    yield


def swept(opdb: Opdb, *arguments: str, stage: str = "quick") -> Any:
    """Sweep; only the stage sanity verifies, which takes its time."""
    return opdb.json("sweep", *arguments, "--stage", stage, "--device", "cpu", "--quiet")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def folder(algorithm: str, stage: str = "quick", stem: str = STEM) -> Path:
    [found] = Path("results", stage).glob(f"{stem}_{algorithm}_*")
    return found


def test_a_sweep_measures_writes_and_reuses(opdb: Opdb) -> None:
    first = swept(opdb, SMALL, "--sizes", "16,24", "--measure", "12")
    assert [row["input_size"] for row in first["rows"]] == [16, 24]
    assert {row["state"] for row in first["rows"]} == {"full"}
    assert all(row["iterations"] >= 12 for row in first["rows"])
    assert all(row["convolutions"] == 3 and row["mode"] == "eager" for row in first["rows"])
    again = swept(opdb, SMALL, "--sizes", "24,16,32")
    known = {row["input_size"]: row for row in again["rows"]}
    assert [known[16], known[24]] == first["rows"], "what was measured is reused"
    overall = table(folder("default") / f"{STEM}_default_overall.csv")
    assert [row["input_size"] for row in overall] == ["24", "16", "32"]
    assert float(overall[0]["mean_ms"]) == pytest.approx(known[24]["mean_ms"], rel=1e-5)
    layers = table(folder("default") / f"{STEM}_default_layers.csv")
    assert [row["layer"] for row in layers] == ["0", "3", "4"] * 3
    assert layers[0]["kernel_size"] == "(3, 3)" and layers[1]["in_channels"] == "4"
    assert all(0 < float(row["percentage"]) < 100 for row in layers)
    figure = folder("default").name.replace("_default", "")
    assert (Path("results/quick") / f"{figure}.png").is_file()


def test_partial_and_unsupported_are_never_full(opdb: Opdb, forced: None) -> None:
    strided = "tests.sweep.models:strided"
    found = swept(opdb, SMALL, strided, "--algorithm", "fft", "--sizes", "16")
    partial, unsupported = found["rows"]
    assert partial["state"] == "partial"
    assert (partial["convolutions"], partial["forced"], partial["elsewhere"]) == (3, 2, 1)
    assert 0 < partial["share_elsewhere"] < 1
    assert partial["reason"].startswith(REFUSAL)
    assert unsupported["state"] == "unsupported" and unsupported["mean_ms"] is None
    assert f"runs none of 2 convolutions (2 of them: {REFUSAL})" in unsupported["reason"]
    layers = table(folder("fft") / f"{STEM}_fft_layers.csv")
    assert [row["algorithm"] for row in layers] == ["fft", "default", "fft"]
    stem = "tests.sweep.models_strided"
    assert table(folder("fft", stem=stem) / f"{stem}_fft_layers.csv") == []
    told = opdb("sweep", SMALL, strided, "--algorithm", "fft", "--sizes", "16", "--status",
                "--device", "cpu")  # fmt: skip
    assert "partial" in told.out and "unsupported" in told.out


def test_verification_is_told_by_layer(opdb: Opdb, forced: None) -> None:
    arguments = (SMALL, "--algorithm", "fft", "--algorithm", "default", "--sizes", "16")
    assert swept(opdb, *arguments)["verified"] == []
    found = swept(opdb, *arguments, stage="sanity")
    fft, own = found["verified"]
    assert fft["holds"] and own["holds"]
    assert (fft["forced"], fft["convolutions"]) == (2, 3) and fft["refused"] == {"3": REFUSAL}
    assert fft["layer_error"] == 0.0 and fft["tolerance"] == 5e-3 and fft["output_error"] == 0.0
    assert fft["time_s"] > 0 and fft["default_time_s"] > 0 and fft["kernels"] is None


def test_a_wrong_output_is_exit_1(
    opdb: Opdb, forced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opdb.algorithms import convolution

    right = convolution.__dict__["run"]
    monkeypatch.setattr(convolution, "run", lambda *arguments: 1.02 * right(*arguments))
    found = opdb("sweep", SMALL, "--algorithm", "fft", "--sizes", "16", "--device", "cpu")
    assert found.status == 1
    assert "what ran is not verified" in found.err and "errs more than 0.005" in found.err


def test_the_prediction_stands_beside_the_run(opdb: Opdb, forced: None) -> None:
    arguments = (SMALL, "--algorithm", "default", "--sizes", "16")
    [row] = swept(opdb, *arguments)["rows"]
    assert row["predicted_ms"] is None
    bench = ("bench", "--device", "cpu", "--precision", "100", "--duplicates", "0")
    assert "nothing is pending" in opdb(*bench).out, "what a sweep harvests is not asked for"
    assert opdb("harvest", SMALL, "--input-size", "3x16x16").status == 0
    assert opdb(*bench).status == 0
    found = swept(opdb, *arguments)
    [row] = found["rows"]
    error = abs(row["predicted_ms"] / row["mean_ms"] - 1)
    assert found["composed"]["time"] == {"runs": 1, "median": error, "largest": error}


def test_status_counts_every_combination(opdb: Opdb) -> None:
    swept(opdb, SMALL, "--sizes", "16")
    arguments = (SMALL, "--algorithm", "all", "--sizes", "16,24", "--status")
    found = {each["algorithm"]: each for each in swept(opdb, *arguments)}
    assert found.keys() == ALGORITHMS.keys()
    assert (found["default"]["full"], found["default"]["left"]) == (1, 1)
    assert found["fft"]["left"] == 2 and found["fft"]["took_s"] == 0
    with open_store(None) as store:
        [run] = store.model_runs(setting=None)
    assert found["default"]["took_s"] == run.cost_s


@pytest.mark.slow
def test_workers_measure_what_one_command_asks_for(opdb: Opdb, short_workers: None) -> None:
    arguments = ("alexnet", "--stage", "quick", "--sizes", "64,72,80", "--devices", "cpu,cpu")
    rows = opdb.json("sweep", *arguments, "--quiet")["rows"]
    assert [row["state"] for row in rows] == ["full"] * 3
    again = opdb("sweep", *arguments, "--plan", "--json")
    assert json.loads(again.out)["left"] == 0


def test_files_are_written_of_what_is_stored(opdb: Opdb) -> None:
    """Of what is there alone, as a sweep writes them, on any machine."""
    missing = opdb("sweep", SMALL, "--sizes", "16", "--files")
    assert missing.status == 2 and f"nothing of {SMALL} was swept on" in missing.err
    measured = swept(opdb, SMALL, "--sizes", "16")
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    shutil.rmtree("results")
    asked = ("--sizes", "16,24", "--files", "--output-dir", "there")
    again = swept(opdb, SMALL, *asked, "--algorithm", "all")
    assert again["rows"] == measured["rows"] and not Path("results").exists()
    for path, content in before.items():
        assert Path("there", *path.parts[1:]).read_bytes() == content
    with open_store(None) as store:
        assert len(store.model_runs(setting=None)) == 1


def test_what_does_not_fit_is_kept_and_the_sweep_goes_on(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = bench_sweep._measure

    def starved(session: Any, cell: Any, *rest: Any) -> None:
        if cell.size == 16:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.60 GiB")
        measure(session, cell, *rest)

    monkeypatch.setattr(bench_sweep, "_measure", starved)
    first, second = swept(opdb, SMALL, "--sizes", "16,24")["rows"]
    assert first["state"] == "out_of_memory" and "4.60 GiB" in first["reason"]
    assert second["state"] == "full"
    monkeypatch.setattr(bench_sweep, "_measure", measure)
    assert swept(opdb, SMALL, "--sizes", "16,24")["rows"][0]["state"] == "out_of_memory"
    assert swept(opdb, SMALL, "--sizes", "16,24", "--retry")["rows"][0]["state"] == "full"


def test_an_interrupted_sweep_keeps_what_was_finished(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = bench_sweep._measure

    def stopped(session: Any, cell: Any, *rest: Any) -> None:
        if cell.size == 24:
            raise KeyboardInterrupt
        measure(session, cell, *rest)

    monkeypatch.setattr(bench_sweep, "_measure", stopped)
    found = opdb("sweep", SMALL, "--sizes", "16,24", "--device", "cpu")
    assert found.status == 130 and "what was finished is stored" in found.err
    arguments = (SMALL, "--sizes", "16,24", "--algorithm", "default", "--status")
    [status] = swept(opdb, *arguments)
    assert (status["full"], status["left"]) == (1, 1)


def test_status_without_models_is_of_those_of_the_studies(opdb: Opdb) -> None:
    found = opdb("sweep", "--status", "--db", published.all_sets())
    assert found.status == 0 and "googlenet" in found.out
