"""`opdb measure --phase training`: options, lines, rows, and what contradicts itself."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest

from opdb.commands.measure import TRAININGS
from opdb.files import AppendedCsv
from opdb.store import open_store
from tests.cli.conftest import Opdb

STEP = ("mlp", "--phase", "training", "--batch-size", 4, "--backend", "cpu")
SHORT = ("--iters", 3, "--warmup-iters", 1, "--repeat", 2)

pytestmark = pytest.mark.usefixtures("short")


def test_a_run_prints_its_line_is_stored_and_appended(opdb: Opdb, tmp_path: Path) -> None:
    for number in range(2):
        ran = opdb("measure", *STEP, *SHORT, "--label", f"run {number}", "--csv", "runs.csv")
        assert ran.status == 0, ran.err
        found = re.match(r"MEASURED_SEC=([\d.]+) IMGS_PER_SEC=([\d.]+)\n", ran.out)
        assert found is not None
        assert float(found[2]) == pytest.approx(12 / float(found[1]), rel=1e-3)
    with Path("runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["run 0", "run 1"]
    assert {row["precision"] for row in rows} == {"float32"}
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [workload] = store.workloads("mlp")
        runs = store.model_runs(workload.key)
    assert [run.facts["label"] for run in runs] == ["run 0", "run 1"]
    assert [run.id for run in runs] == [row["run"] for row in rows]


def test_json_is_the_row(opdb: Opdb) -> None:
    ran = opdb("measure", *STEP, *SHORT, "--grad-accum-steps", 2, "--json", "--quiet")
    assert (ran.status, ran.err) == (0, "")
    [row] = json.loads(ran.out)
    assert [*row] == TRAININGS.fields
    assert (row["accumulation"], row["optimizer"], row["outcome"]) == (2, "sgd", "ok")
    assert row["images_per_s"] == pytest.approx(2 * 4 * 3 / row["measured_s"])
    assert row["energy_j"] is None and row["peak_memory_bytes"] is None


def test_mixed_precision_falls_back_and_says_so(opdb: Opdb) -> None:
    ran = opdb("measure", *STEP, *SHORT, "--precision", "amp", "--json")
    assert ran.status == 0
    assert "mixed precision is for NVIDIA GPUs, not for 'cpu': trained in fp32" in ran.err
    assert json.loads(ran.out)[0]["precision"] == "float32"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("mlp", "--iters", 3), 2, "--iters is for training runs: add --phase training"),
        ((*STEP, "--device", "cpu"), 2, "give --backend cpu or --device cpu, not both"),
        ((*STEP[:-1], "cpuu"), 2, "unknown --backend 'cpuu'; did you mean 'cpu'?"),
        ((*STEP[:-1], "mps"), 3, "mps"),
        ((*STEP, "--precision", "fp64"), 2, "unknown --precision 'fp64'"),
        ((*STEP, "--workers", 2), 2, "--workers is for images: give a folder with --images"),
        ((*STEP, "--images", ".", "--synthetic"), 2, "not both"),
        ((*STEP, "--images", ".", "--workers", 0, "--prefetch-factor", 2), 2, "needs workers"),
        ((*STEP, "--images", "."), 2, "does not take a batch of images alone"),
        ((*STEP, "--csv", "."), 2, "cannot be written"),
        ((*STEP, "--nvtx"), 3, "NVTX ranges need a GPU"),
        ((*STEP, "--mode", "graph", "--label", "x"), 2, "is for training runs in mode eager"),
        ((*STEP, "--channels-last", "--memory-format", "contiguous"), 2, "not both"),
    ],
    ids=lambda value: " ".join(map(str, value[-2:])) if isinstance(value, tuple) else None,
)
def test_what_cannot_be(opdb: Opdb, arguments: tuple[object, ...], status: int, said: str) -> None:
    ran = opdb("measure", *arguments)
    assert ran.status == status, ran.err
    assert said in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2\n", "other.csv: has other columns; give another file for --csv"),
        (b"\x89PNG\r\n\x00\xff", "other.csv: not a text file (byte 0 is not UTF-8)"),
    ],
)
def test_a_file_of_other_columns_is_left_alone(
    opdb: Opdb, tmp_path: Path, content: bytes, said: str
) -> None:
    Path("other.csv").write_bytes(content)
    ran = opdb("measure", *STEP, *SHORT, "--csv", "other.csv")
    assert (ran.status, ran.err) == (2, f"opdb: {said}\n")
    assert Path("other.csv").read_bytes() == content
    assert not (tmp_path / "opdb.sqlite").exists(), "it is told before anything is measured"


def test_a_folder_of_images_that_is_not_there_is_told_first(opdb: Opdb, tmp_path: Path) -> None:
    ran = opdb("measure", *STEP, *SHORT, "--images", "nowhere")
    assert ran.status == 2 and "nowhere: no such folder" in ran.err
    assert not (tmp_path / "opdb.sqlite").exists(), "nothing is harvested for it"


def test_rows_go_to_a_pipe_as_well(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    columns = TRAININGS.fields
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        AppendedCsv(pipe, columns).append(dict.fromkeys(columns, "x"))
        header, row = os.read(reader, 10_000).decode().splitlines()
        assert header == ",".join(columns) and row == ",".join(["x"] * len(columns))
    finally:
        os.close(reader)


def test_one_that_fails_does_not_stop_the_others(opdb: Opdb) -> None:
    names = ("tests.harvest.test_training:nothing", "mlp")
    ran = opdb("measure", *names, "--phase", "training", "--backend", "cpu", *SHORT)
    assert ran.status == 2 and "nothing' cannot be trained" in ran.err
    assert ran.out.count("MEASURED_SEC=") == 1
