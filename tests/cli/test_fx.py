"""`opdb fx`: text with costs, breaks with their reasons, and what is not known."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb
from tests.compiled import compiled_models

MODEL = ("resnet18", "--batch-size", 32)
HERE = "tests.harvest.test_graphs"


@pytest.fixture
def h200(tmp_path: Path) -> None:
    """The database of `opdb`: the published set."""
    published.copy_to(tmp_path / "opdb.sqlite")


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

    document = json.loads(opdb("fx", *MODEL, "--json").out)
    assert (document["graph_count"], document["graph_breaks"], document["breaks"]) == (1, 0, [])
    [graph] = document["graphs"]
    known = [call for node in graph["nodes"] for call in node["calls"]]
    assert len(known) == graph["calls"] == graph["measured"] == 69
    assert graph["time_s"] == pytest.approx(sum(call["time_s"] for call in known))
    assert graph["energy_j"] == pytest.approx(sum(call["energy_j"] for call in known))
    assert document["by_kind"]["conv2d"] == 20


def test_without_a_database_the_graphs_are_shown_without_costs(opdb: Opdb) -> None:
    found = json.loads(opdb("fx", "mlp", "--json").out)
    assert (found["graph_count"], found["board"]) == (1, None)
    assert "there is none" in opdb("fx", "mlp").out.splitlines()[1]
    named = opdb("fx", "mlp", "--device", "nvidia-h200")
    assert named.status == 2 and "there is none" in named.err


@pytest.mark.usefixtures("h200")
def test_costs_are_those_of_the_board_that_is_named(opdb: Opdb) -> None:
    with_most = json.loads(opdb("fx", *MODEL, "--json").out)
    board = with_most["board"]
    again = json.loads(opdb("fx", *MODEL, "--json", "--board", board[:12]).out)
    assert again == with_most
    ran = opdb("fx", *MODEL, "--board", "GPU-none")
    assert ran.status == 2 and "unknown board 'GPU-none'" in ran.err
    ran = opdb("fx", *MODEL, "--device", "h201")
    assert ran.status == 2 and "unknown device 'h201'" in ran.err


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


@pytest.mark.usefixtures("empty")
def test_a_model_without_graphs(opdb: Opdb) -> None:
    ran = opdb("fx", f"{HERE}:recurrent")
    assert ran.status == 0, ran.err
    assert "0 graphs, 0 breaks" in ran.out and "LSTM" in ran.out
    assert "# not compiled: dynamo captures no graph of this model" in ran.out


@pytest.mark.usefixtures("empty")
def test_every_break_is_accounted_for(opdb: Opdb) -> None:
    lines = opdb("fx", f"{HERE}:nested").out.splitlines()
    breaks = json.loads(opdb("fx", f"{HERE}:nested", "--json").out)["graph_breaks"]
    placed = [line for line in lines if line.startswith("# broken off at ")]
    [rest] = [line for line in lines if line.startswith("# broken off besides ")]
    assert f"besides {breaks - len(placed)} time" in rest and "returns" in rest
    assert "besides" not in opdb("fx", f"{HERE}:printing").out


@pytest.mark.usefixtures("empty")
def test_what_a_model_prints_is_kept_out_of_the_text(opdb: Opdb) -> None:
    ran = opdb("fx", f"{HERE}:printing")
    assert ran.status == 0 and ran.out.startswith(
        f"# {HERE}:printing, batch 2 float32 (as built): "
    )
    assert "hello from the model" not in ran.out.splitlines()
    assert "hello from the model" in ran.err.splitlines()


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("switch", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_a_compiler_that_is_switched_off_is_told_of(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(switch, "1")
    for arguments in (("fx", "mlp"), ("harvest", "mlp", "--mode", "compile", "--device", "cpu")):
        ran = opdb(*arguments)
        assert (ran.status, ran.out) == (3, "")
        assert f"{switch}=1 in the environment keeps torch.compile from" in ran.err


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet81",), "unknown model 'resnet81'"),
        ((f"{HERE}:failing",), "fails under dynamo: ValueError: half way"),
        (("models/mine.py:build",), "there is no file models/mine.py"),
        (("mlp", "--output", "none/x.txt"), "there is no folder none"),
        (("mlp", "--phase", "training"), "No such option"),
        (("mlp", "--db", "none.sqlite"), "database none.sqlite: there is none"),
    ],
    ids=str,
)
def test_bad_input_is_one_message(opdb: Opdb, arguments: tuple[str, ...], said: str) -> None:
    ran = opdb("fx", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err and "Traceback" not in ran.err
