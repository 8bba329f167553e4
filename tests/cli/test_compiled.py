"""`--mode compile` from harvest to validate, on the processor."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, read
from tests.compiled import compiled_models

pytestmark = pytest.mark.usefixtures("short")

MLP = ("mlp", "--input-size", 16)
HARVEST = ("harvest", *MLP, "--mode", "compile", "--device", "cpu")


def test_a_compiled_model_is_predicted_from_its_groups(opdb: Opdb, tmp_path: Path) -> None:
    ran = opdb(*HARVEST, "--json", "--quiet")
    assert ran.status == 0, ran.err
    [told] = read(ran.out)
    assert set(told["by_kind"]) == {"enter_graph", "fused"} and told["unsupported"] == {}
    assert told["compiled_for"] and not ran.err
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [plain] = store.workloads("mlp")
        [compiled] = store.workloads("mlp", compiled_for=told["compiled_for"])
    assert plain.compiled_for is None and compiled.model_key == plain.key
    assert opdb("bench", "fused", "enter_graph", "--device", "cpu", "--quiet").status == 0
    [status] = opdb.read("show")["devices"]
    assert "fused" not in status["pending"]
    missing = opdb("predict", *MLP, "--mode", "compile", "--json")
    answer = read(missing.out)
    assert answer["coverage"]["calls"] == 1 and answer["time_s"] > 0
    assert answer["mode"] == "compile" and answer["measured"] is None
    assert opdb("measure", *MLP, "--mode", "compile", "--device", "cpu", "--quiet").status == 0
    answer = opdb.read("predict", *MLP, "--mode", "compile")
    assert answer["measured"]["attribution_time"] == pytest.approx(
        answer["time_s"] / answer["measured"]["time_s"]
    )
    [row] = opdb.read("validate")["rows"]
    assert (row["model"], row["mode"]) == ("mlp", "compile")
    assert opdb.read("validate", "--mode", "compile")["rows"] == [row]
    assert opdb("validate", "--mode", "graph").status == 2
    assert opdb("validate", "--mode", "trace").status == 2


def test_it_comes_through_a_published_set(opdb: Opdb, tmp_path: Path) -> None:
    assert opdb(*HARVEST, "--quiet").status == 0
    assert opdb("bench", "fused", "enter_graph", "--device", "cpu", "--quiet").status == 0
    assert opdb("measure", *MLP, "--mode", "compile", "--device", "cpu", "--quiet").status == 0
    before = opdb("predict", *MLP, "--mode", "compile", "--json")
    assert opdb("export", tmp_path / "set", "--quiet").status == 0
    again = ("--db", tmp_path / "again.sqlite")
    assert opdb("import", tmp_path / "set", *again, "--quiet").status == 0
    after = opdb("predict", *MLP, "--mode", "compile", "--json", *again)
    assert read(after.out) == read(before.out)


def test_what_was_not_harvested_for_the_device_says_how(opdb: Opdb) -> None:
    assert opdb("harvest", *MLP, "--quiet").status == 0
    assert opdb("bench", "--device", "cpu", "--quiet").status == 0
    assert opdb("measure", *MLP, "--mode", "compile", "--device", "cpu", "--quiet").status == 0
    ran = opdb("predict", *MLP, "--mode", "compile")
    assert ran.status == 2
    assert re.search(r"run opdb harvest mlp [^;,]*--mode compile there", ran.err)
    assert "opdb bench fused enter_graph" in ran.err
    ran = opdb("validate")
    assert ran.status == 2 and "left out: 1 run in modes that compile: what" in ran.err


MODEL = ("resnet18", "--batch-size", 32)
HERE, OWN = "tests.harvest.test_graphs", "tests.cli.test_compiled"


@pytest.fixture
def empty(tmp_path: Path) -> None:
    open_store(str(tmp_path / "opdb.sqlite")).close()


@pytest.mark.usefixtures("h200")
def test_each_node_has_its_kind_and_measured_cost(opdb: Opdb) -> None:
    ran = opdb("fx", *MODEL)
    assert ran.status == 0, ran.err
    head = ran.out.splitlines()[:4]
    assert head[0].startswith("# resnet18, batch 32 float32: 1 graph, 0 breaks, captured on meta")
    assert head[1].startswith("# costs of one call each on NVIDIA H200 (GPU-")
    assert re.match(r"# graph 1 of 1: \d+ nodes, 69 operator calls, 69 of them measu", head[3])
    ends = re.compile(r"# conv2d: [\d.]+ µs, [\d.]+ mJ$")
    told = [line for line in ran.out.splitlines() if ends.search(line)]
    assert len(told) == 20 and all("torch.conv2d(" in line for line in told)
    code = "\n".join(ran.out.splitlines()[4:])
    ast.parse(code)  # comments leave what dynamo printed readable as Python

    document = opdb.json("fx", *MODEL)
    assert (document["graph_count"], document["graph_breaks"], document["breaks"]) == (1, 0, [])
    [graph] = document["graphs"]
    known = [call for node in graph["nodes"] for call in node["calls"]]
    assert len(known) == graph["calls"] == graph["measured"] == 69
    assert graph["time_s"] == pytest.approx(sum(call["time_s"] for call in known))
    assert graph["energy_j"] == pytest.approx(sum(call["energy_j"] for call in known))
    assert document["by_kind"]["conv2d"] == 20


@pytest.mark.usefixtures("empty")
def test_graphs_without_any_measurement(opdb: Opdb) -> None:
    model = compiled_models.path("between")
    ran = opdb("fx", model, "--output", "graphs.txt")
    assert ran.status == 0, ran.err
    assert "written: graphs.txt" in ran.err
    text = Path("graphs.txt").read_text()
    title, *_ = text.splitlines()
    assert title.startswith(f"# {model}, batch ")
    assert ": 2 graphs, 1 break, captured on meta by torch " in title
    assert "# broken off at " in text and "disable" in text and "compiled_models.py:" in text
    assert "# no costs: " in text and "holds no measurements" in text
    assert "# embedding: not measured" in text and "# linear: not measured" in text
    assert ran.out.splitlines()[0] == text.splitlines()[0].removeprefix("# ")
    assert ran.out.splitlines()[-2].split()[:4] == ["1", "4", "1", "0"]
