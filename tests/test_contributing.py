"""The examples of CONTRIBUTING.md work, and the value that it follows is a real one."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from opdb import ModelSpec, cli, models
from opdb.harvest.passes import harvest
from opdb.kinds import KINDS, elementwise, registry
from opdb.spec import SOURCES
from tests import declarations, published
from tests.cli.conftest import Opdb, database, opdb

__all__ = ["database", "opdb"]

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def example(path: str) -> str:
    """Return the code that the page shows for a file."""
    code: str = re.findall(rf"(?ms)^```python\n# {re.escape(path)}\n(.*?)^```", TEXT)[0]
    return code


def module(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a file that the page shows, as if it were there."""
    name = path.removesuffix(".py").replace("/", ".")
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(example(path), path, "exec"), vars(made))
    return made


@pytest.fixture
def declared() -> Iterator[None]:
    """Declare the kind of the page for one test."""
    before = set(KINDS)
    declarations.clear()
    exec(example("opdb/kinds/elementwise.py"), vars(elementwise).copy())
    yield
    for name in set(KINDS) - before:
        del registry._kinds[name]
    declarations.clear()


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = torch.special.ndtr(x)
        return gated


def gate() -> tuple[nn.Module, tuple[Tensor]]:
    return Gate(), (torch.randn(4, 8),)


def test_the_kind_is_harvested_and_counted(declared: None) -> None:
    (call,) = harvest(ModelSpec("tests.test_contributing:gate")).calls
    assert call.configuration.kind == "ndtr"
    assert KINDS["ndtr"].flops(call.configuration) == 32


def test_the_meter_reads_its_power(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = module("opdb/meters/constant.py", monkeypatch).ConstantMeter(42.0)
    reading = meter.window(10.0, 10.1)
    assert [watts for _, watts in reading.power_samples] == [42.0] * 5
    assert reading.reason is None
    meter.close()


def test_the_source_is_found_and_harvested(monkeypatch: pytest.MonkeyPatch) -> None:
    module("opdb/models/zoo.py", monkeypatch)
    monkeypatch.setattr("opdb.models.SOURCES", ("zoo", *SOURCES))
    assert models.names("zoo") == ["tiny"]
    workload = harvest(ModelSpec("tiny", batch_size=2))
    assert workload.source == "zoo"
    assert [call.configuration.kind for call in workload.calls] == ["linear"]


def test_the_command_runs(opdb: Opdb, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module("opdb/commands/boards.py", monkeypatch)
    monkeypatch.setitem(cli.COMMANDS, "boards", "opdb.commands.boards")
    ran = opdb("boards", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert found and set(found[0]) == {"board", "device"}
    assert found[0]["board"] in opdb("boards").out


def test_every_file_and_folder_that_the_page_names_is_there() -> None:
    examples = set(re.findall(r"(?m)^# (\S+\.py)$", TEXT))
    named = set(re.findall(r"`((?:opdb|tests|db|docs|measurements)/[\w/.]*)`", TEXT))
    assert len(named) > 15
    assert [each for each in sorted(named - examples) if not (ROOT / each).exists()] == []


def test_the_value_that_the_page_follows_is_what_predict_says(opdb: Opdb, tmp_path: Path) -> None:
    copied = shutil.copy(published.default_database(), tmp_path / "copy.sqlite")
    ran = opdb(
        *("predict", "resnet50", "-b", "32", "--mode", "graph", "--layers", "--json"),
        *("--device", published.DEVICE, "--db", copied),
    )
    assert ran.status == 0, ran.err
    answer = json.loads(ran.out)
    conv1, energy = answer["layers"][0], answer["energy_j"]
    told = {
        "key begins with": conv1["configuration"][:12],
        "from both visits": f"{conv1['time_s'] * 1e6:.1f} µs",
        "above base power": f"{conv1['dynamic_energy_j'] * 1e3:.1f} mJ above base power",
        "of the call": f"= {conv1['energy_j'] * 1e3:.1f} mJ",
        "of the pass": f"{energy['value']:.3f} J, {energy['low']:.3f} to {energy['high']:.3f}",
        "measured": f"board: {answer['measured']['energy_j']:.3f} J",
        "board": f"board {answer['board'][:12]}…",
        "calls": f"all {sum(each['count'] for each in answer['layers'])} calls",
    }
    assert conv1["path"] == "conv1"
    assert {name: value for name, value in told.items() if value not in TEXT} == {}
