"""`opdb modes --explain`: tables, files and sentences from what is in a database."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb

EXPLAIN = ("modes", "--explain")
H200 = "nvidia-h200"


@pytest.fixture
def h200(tmp_path: Path) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


@pytest.mark.usefixtures("h200")
def test_all_models_measured_and_what_goes_with_gains(opdb: Opdb) -> None:
    ran = opdb(*EXPLAIN)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split()[:4] == ["model", "workload", "launches/ms", "FLOP/byte"]
    assert sum(line.startswith("resnet50 ") for line in lines) == 4
    assert (
        f"{published.EAGER_AND_GRAPH} workloads of 15 models on NVIDIA H200: what goes with savings"
        in lines
    )
    [launches] = [line for line in lines if line.startswith("launches a millisecond")]
    assert launches.split()[-2].startswith("+0.8")
    assert "no independent witnesses" in lines[-1]


@pytest.mark.usefixtures("h200")
def test_one_model_in_sentences_and_all_in_json(opdb: Opdb) -> None:
    ran = opdb(*EXPLAIN, "resnet50", "--batch-sizes", 1, 32)
    assert ran.status == 0, ran.err
    told = [line for line in ran.out.splitlines() if line.startswith("resnet50 ")]
    assert [line.split(":")[0] for line in told] == [
        "resnet50 batch 1 float32",
        "resnet50 batch 32 float32",
    ]
    assert all("graph saves" in line and "rank correlation +0.8" in line for line in told)
    found = json.loads(opdb(*EXPLAIN, "resnet50", "--batch-sizes", 1, "--json").out)
    assert len(found["workloads"]) == published.EAGER_AND_GRAPH and found["device"] == H200
    [one] = found["sentences"]
    assert (one["model"], one["batch_size"], one["mode"]) == ("resnet50", 1, "graph")
    assert told[0].endswith(one["sentence"])
    times = {c["trait"]: c for c in found["correlations"] if c["what"] == "time"}
    assert times["launches_per_s"]["told"] and times["graph_breaks"]["rho"] is None


@pytest.mark.usefixtures("h200")
def test_files(opdb: Opdb) -> None:
    ran = opdb(*EXPLAIN, "--csv", "g.csv", "--png", "g.png", "--svg", "g.svg")
    assert ran.status == 0 and ran.err.count("written: ") == 3
    with Path("g.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == published.EAGER_AND_GRAPH
    one = next(r for r in rows if r["model"] == "resnet50" and r["batch_size"] == "1")
    assert 0.5 < float(one["graph saving_time"]) < 0.7 and one["graph_breaks"] == ""
    assert float(one["launches_per_s"]) > 50_000
    assert Path("g.png").read_bytes().startswith(b"\x89PNG")
    marks = ET.fromstring(Path("g.svg").read_text())
    assert "launches a millisecond in eager" in "".join(marks.itertext())


@pytest.mark.usefixtures("short")
def test_a_processor_without_energy_and_with_a_mode_that_refuses(opdb: Opdb) -> None:
    both = ("mlp", "tests.bench.test_modes:recurrent", "--device", "cpu", "--repeats", 1)
    assert opdb("modes", *both, "--modes", "eager,dynamo", "--quiet").status == 0
    ran = opdb(*EXPLAIN, "tests.bench.test_modes:recurrent", "--svg", "g.svg")
    assert ran.status == 0, ran.err
    assert "dynamo gave no figures: not compiled: dynamo captures no graph" in ran.out
    assert "time saved of eager" in Path("g.svg").read_text()
    assert "energy saved" not in Path("g.svg").read_text()
    lines = opdb(*EXPLAIN).out.splitlines()
    assert lines[0].split()[2] == "calls/ms"
    assert lines[2].split()[-2:] == ["refused", "refused"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet81",), "unknown model 'resnet81'; did you mean"),
        (("resnet50", "--batch-sizes", 7), "resnet50: not measured at batch size 7"),
        (("--modes", "compile"), f"no model was measured in eager and in compile on {H200}"),
        (("--modes", "jit"), "unknown --mode 'jit'"),
        (("--device", "h201"), "unknown device 'h201'"),
        (("--png", "none/x.png"), "there is no folder none"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("h200")
def test_bad_input_is_one_message(opdb: Opdb, arguments: tuple[str, ...], said: str) -> None:
    ran = opdb(*EXPLAIN, *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err and "Traceback" not in ran.err


def test_figures_and_names_are_asked_for_where_they_belong(opdb: Opdb) -> None:
    ran = opdb("modes", "mlp", "--png", "x.png")
    assert ran.status == 2 and "add --explain" in ran.err
    ran = opdb("modes")
    assert ran.status == 2 and "no model is named" in ran.err
