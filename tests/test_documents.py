"""Every command that a document tells to type works as it is written, in the order of the page."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import typer.main
from torch import Tensor, nn

from opdb import ModelSpec, cli, models
from opdb.cli import main
from opdb.cli.console import app
from opdb.errors import UnknownNameError
from opdb.harvest.passes import harvest
from opdb.kinds import KINDS, elementwise, registry
from opdb.models import catalogue
from opdb.spec import SOURCES
from opdb.store import database
from tests import declarations, published
from tests.cli.conftest import Opdb
from tests.documents import (
    DOCUMENTS,
    PAGES,
    PLACEHOLDER,
    ROOT,
    Told,
    anchors,
    commands,
    links,
)

USAGE: Any = typer.BadParameter.__mro__[1]
"""What the command line raises of any wrong usage."""

MODEL = """
from torch import nn, ones

def build():
    return nn.Linear(8, 4), (ones(2, 8),)
"""


def block(document: str, key: str) -> str:
    """Return the block of a document in docs/ that gives an example of a file with this key."""
    text = (ROOT / "docs" / document).read_text()
    blocks: list[str] = re.findall(r"(?ms)^```\w+\n(.*?)^```", text)
    return next(each for each in blocks if key in each)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with its default database and what a reader has: a model, peaks, runs."""
    for name in ("measurements", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "db").mkdir()
    for folder in filter(Path.is_dir, (ROOT / "db").iterdir()):
        (tmp_path / "db" / folder.name).symlink_to(folder)
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "models.py").write_text(MODEL)
    (tmp_path / "data" / "train" / "cats").mkdir(parents=True)
    (tmp_path / "peaks.json").write_text(block("studies.md", '"base_power_w"'))
    (tmp_path / "runs.yml").write_text(block("studies.md", "variants:"))
    shutil.copy(published.all_sets(), tmp_path / "db" / database.FILE_NAME)
    for name in ("before.sqlite", "after.sqlite"):
        shutil.copy(published.database(), tmp_path / name)
    monkeypatch.delenv("OPDB_DB", raising=False)
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told_in(document: Path) -> list[Told]:
    return list(dict.fromkeys(commands(document)))


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_run_as_they_are_written(
    document: Path, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for told in told_in(document):
        if told.left_out is not None:
            continue
        status = main(told.arguments)
        said = capsys.readouterr().err.splitlines()[-1:]
        if status not in allowed(told):
            failed.append(f"opdb {told.text}: {status}: {said}")
    assert failed == []


def allowed(told: Told) -> set[int]:
    """Return the exit statuses of success; 1 is that of a check which does not hold here."""
    checks = {"doctor", "--target", "--check"} & set(told.arguments)
    return {0, 1} if checks else {0}


@cache
def group() -> Any:
    return typer.main.get_command(app)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_document_is_one_with_its_options(document: Path) -> None:
    wrong = []
    for told in told_in(document):
        try:
            parse(told)
        except USAGE as error:
            wrong.append(f"opdb {told.text}: {error.format_message()}")
    assert wrong == []


def parse(told: Told) -> None:
    """Take a command's words as the command line does; only words in the text may lack arguments.

    Raises:
        UsageError: there is no such command, option or value.
    """
    name, *words = told.arguments
    own = group().make_context("opdb", [name, *words])
    found = group().get_command(own, name)
    if found is None:
        raise typer.BadParameter(f"there is no command {name}")
    try:
        found.make_context(name, words, parent=own)
    except typer.BadParameter as error:
        if told.whole or type(error).__name__ != "MissingParameter":
            raise
    except UnknownNameError:
        if not any(PLACEHOLDER.fullmatch(word) for word in told.arguments):
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_examples_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = shutil.copy(published.default_database(), tmp_path / "opdb.sqlite")
    monkeypatch.setenv("OPDB_DB", str(database))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```pycon\n(.*?)^```", (ROOT / "docs" / "tutorial.md").read_text(), re.M | re.S
    )
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "tutorial", None, 0)
    assert len(examples.examples) > 20
    told: list[str] = []
    ran = doctest.DocTestRunner(optionflags=LOOSELY).run(examples, out=told.append)
    assert not ran.failed, "".join(told)


TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def example(path: str) -> str:
    code: str = re.findall(rf"(?ms)^```python\n# {re.escape(path)}\n(.*?)^```", TEXT)[0]
    return code


def module(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
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
        del registry.KINDS[name]
    declarations.clear()


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = torch.special.ndtr(x)
        return gated


def gate() -> tuple[nn.Module, tuple[Tensor]]:
    return Gate(), (torch.randn(4, 8),)


def test_the_kind_is_harvested_and_counted(declared: None) -> None:
    (call,) = harvest(ModelSpec("tests.test_documents:gate")).calls
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
    listed = (catalogue.CatalogueModel("tiny", "zoo", "of the page"), *catalogue.catalogue())
    monkeypatch.setattr(catalogue, "catalogue", lambda: listed)
    assert models.names("zoo") == ["tiny"]
    workload = harvest(ModelSpec("tiny", batch_size=2))
    assert workload.source == "zoo"
    assert [call.configuration.kind for call in workload.calls] == ["linear"]


def test_the_command_runs(opdb: Opdb, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module("opdb/commands/boards.py", monkeypatch)
    monkeypatch.setitem(cli.COMMANDS, "boards", "opdb.commands.boards")
    found = opdb.json("boards")
    assert found and set(found[0]) == {"board", "device"}
    assert found[0]["board"] in opdb("boards").out


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
