"""`opdb train`: real trainings of small models, stopped, killed, resumed, tabulated, replayed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from PIL import Image

from opdb.records import ModelRun
from opdb.store import open_store
from opdb.store.claims import held
from tests.cli.conftest import Opdb
from tests.matrix import short
from tests.paths import python_path

SHORT = "backend: cpu\niters: 2\nwarmup_iters: 1\nstretches: 2\n"
TAIL = "cpu+warmup_iters=1+iters=2+stretches=2"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    short.start_quickly(monkeypatch)


def matrix(text: str) -> str:
    Path("runs.yml").write_text(SHORT + text)
    return "runs.yml"


def stored(tmp_path: Path) -> list[ModelRun]:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        return store.model_runs(setting=None)


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_combination_is_run_once_and_tabulated(opdb: Opdb, tmp_path: Path) -> None:
    file = matrix("models: mlp\nbatch_sizes: [2, 4]\nprecision: [fp32, amp]\nrepeats: 2\nnote: n\n")
    written = ("--csv", "m.csv", "--plot", "m.png")
    ran = opdb("train", file, *written)
    assert ran.status == 0, ran.err
    labels = [f"mlp-b{size}-fp32-{TAIL}{number}" for number in ("", "#2") for size in (2, 4)]
    runs = stored(tmp_path)
    assert [run.facts["label"] for run in runs] == labels
    assert {run.facts["note"] for run in runs} == {"n"}
    table = rows("m.csv")
    assert [row["label"] for row in table if row["state"] == "done"] == labels
    assert {row["state"] for row in table if row["precision"] == "amp"} == {"not here"}
    for row in table:
        if row["state"] == "done":
            measured = float(row["batch_size"]) / float(row["time_s"])
            assert float(row["images_per_s"]) == pytest.approx(measured)
            assert int(row["peak_resident_bytes"]) > 2**20 and row["os"] and row["host"]
            assert row["energy_per_image_j"] or row["energy_reason"]
    assert "not here: mixed precision is for NVIDIA GPUs" in ran.out
    assert Path("m.png").read_bytes().startswith(b"\x89PNG")

    again = opdb("train", file, "--csv", "m2.csv")
    assert again.status == 0
    assert [run.id for run in stored(tmp_path)] == [run.id for run in runs]
    assert rows("m2.csv") == table


def test_a_run_is_repeated_by_its_label(opdb: Opdb, tmp_path: Path) -> None:
    text = (
        "models: mlp\nbatch_sizes: [2, 3]\noptimizer: adamw\ngrad_accum_steps: 2\n"
        "deterministic: true\ncudnn_benchmark: true\nnote: it's a note\n"
    )
    file = matrix(text)
    assert opdb("train", file).status == 0
    label = stored(tmp_path)[1].facts["label"]
    chosen = ("--only", label, "--again")
    assert opdb("train", file, *chosen, "--plan").out.splitlines() == [label]
    assert opdb("train", file, *chosen).status == 0
    _, first, repeated = stored(tmp_path)
    assert (first.workload, first.setting) == (repeated.workload, repeated.setting)
    same = ("label", "note", "precision", "data", "warmup_iters", "iters")
    assert [first.facts[name] for name in same] == [repeated.facts[name] for name in same]
    assert len(first.repeats) == len(repeated.repeats) == 2


def test_what_failed_stays_failed_until_it_is_tried_again(opdb: Opdb, tmp_path: Path) -> None:
    for number in range(4):
        path = Path(f"images/class{number % 2}/{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20)).save(path)
    good = path.read_bytes()
    path.write_bytes(good[:40])
    file = matrix(
        "models: tests.bench.test_training:network\n"
        "variants: [{images: images, workers: [0, 1], batch_sizes: 4}]\n"
    )
    failed = opdb("train", file, "--allow-code")
    assert failed.status == 2 and "2 of 3 runs failed" in failed.err
    assert failed.err.count(f"{path}: cannot be read as an image") >= 2
    outcomes = [run.outcome for run in stored(tmp_path)]
    assert outcomes == ["ok", "error", "error"]

    path.write_bytes(good)
    assert opdb("train", file, "--allow-code").status == 2
    assert [run.outcome for run in stored(tmp_path)] == outcomes
    assert opdb("train", file, "--retry", "--quiet", "--allow-code").status == 0
    assert [run.outcome for run in stored(tmp_path)] == [*outcomes, "ok", "ok"]
    states = opdb.json("train", file, "--status")["states"]
    assert states == {"done": 3}


# Real processes, stopped in the middle

LONG = "models: mlp\nbatch_sizes: [2, 4, 8]\n"


def started(tmp_path: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OPDB_DB": str(tmp_path / "opdb.sqlite"),
    }
    command = [sys.executable, "-m", "opdb", "train", matrix(LONG)]
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def in_the_second_run(process: subprocess.Popen[str], tmp_path: Path) -> list[psutil.Process]:
    """Wait until one run is stored and the next has its process; return the processes."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        assert process.poll() is None, process.communicate()[1]
        if (tmp_path / "opdb.sqlite").exists() and stored(tmp_path):
            children: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
            with open_store(str(tmp_path / "opdb.sqlite")) as store:
                tasks = [claim.task for claim in held(store)]
            if children and any("-b4-" in task for task in tasks):
                return children
        time.sleep(0.05)
    pytest.fail("the second run did not begin within two minutes")


def works(process: psutil.Process) -> bool:
    """Return whether a process still does something; where nobody reaps, one that ended is kept."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_matrix_that_is_stopped_costs_the_run_in_flight_alone(
    opdb: Opdb, tmp_path: Path, stop: signal.Signals
) -> None:
    process = started(tmp_path)
    children = in_the_second_run(process, tmp_path)
    if stop == signal.SIGINT:
        os.killpg(process.pid, stop)  # as a terminal does
    else:
        process.kill()
    _, said = process.communicate(timeout=60)
    deadline_s = time.monotonic() + 40
    while any(map(works, children)):
        assert time.monotonic() < deadline_s, "a training goes on that nobody waits for"
        time.sleep(0.05)
    if stop == signal.SIGINT:
        assert process.returncode == 130 and "Traceback" not in said
        assert "opdb: interrupted; what was finished is stored" in said
        with open_store(str(tmp_path / "opdb.sqlite")) as store:
            assert held(store) == []
    kept = [run.id for run in stored(tmp_path)]
    assert 1 <= len(kept) < 3
    assert opdb("train", "runs.yml").status == 0
    runs = stored(tmp_path)
    assert [run.id for run in runs][: len(kept)] == kept
    assert [run.facts["label"] for run in runs] == [f"mlp-b{n}-fp32-{TAIL}" for n in (2, 4, 8)]
