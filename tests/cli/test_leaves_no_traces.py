"""Commands that only look change nothing, and code that a file names does not run unasked."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, snapshot

SUMMARY = "model: mlp\ninput_size: [16]\nbatch_sizes: [1, 4]\n"

LOOKING = [
    "show",
    "doctor",
    "validate",
    "complexity models",
    "predict mlp --no-harvest",
    "build models --plan --device cpu",
    "sweep alexnet --status",
    "matrix runs.yml --plan",
    "submit slurm --dry-run -- harvest mlp",
]


@pytest.fixture
def folder(opdb: Opdb) -> Iterator[Path]:
    Path("models").mkdir()
    Path("models/mlp.yml").write_text(SUMMARY)
    Path("models/significant.yml").write_text("target: 0.5\n")
    Path("runs.yml").write_text("models: mlp\nbackend: cpu\niters: 1\n")
    Path("grid.yml").write_text("operator: nn.ReLU\nsizes: {n: [1, 2]}\ninputs: {input: [n]}\n")
    yield Path.cwd()


def content(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("command", LOOKING)
def test_what_only_looks_changes_nothing(
    opdb: Opdb, database: Path, folder: Path, command: str
) -> None:
    before, held = snapshot(folder), content(database)
    ran = opdb(*command.split())
    assert "unforeseen" not in ran.err and "No such option" not in ran.err, ran.err
    assert snapshot(folder) == before
    assert content(database) == held


@pytest.mark.parametrize("asked", [("harvest",), ("build", "--device", "cpu", "--target", "0.01")])
def test_the_file_of_a_checkout_is_marked_by_its_own_database_alone(
    opdb: Opdb, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    """The marker says what the checkout's database holds, and git would show the change."""
    checkout = tmp_path / "checkout"
    for folder in ("opdb/store", "db", "measurements"):
        (checkout / folder).mkdir(parents=True)
    file, own = checkout / "measurements/mlp.yml", checkout / "db/opdb.sqlite"
    file.write_text(SUMMARY)
    command = (*asked, file, *(() if len(asked) == 1 else ("--gpu-seconds", "0")))
    private = opdb(*command)
    assert file.read_text() == SUMMARY
    said = f"{file} is not marked as processed, for the database is not its checkout's {own}\n"
    assert said in private.err, private.err
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert {each.batch_size for each in store.workloads("mlp")} == {1, 4}
    ran = opdb(*command, "--db", own)
    assert f"{file} is marked as processed\n" in ran.err, ran.err
    assert "processed: true" in file.read_text()


CODE = """
from pathlib import Path
from torch import nn

Path("marker").write_text("imported")

def run():
    Path("marker").write_text("called")
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
"""

THEIRS = "model: strangers_code:run\ninput_size: [3, 8, 8]\nbatch_sizes: [2]\n"
MATRIX = "models: strangers_code:run\nbackend: cpu\niters: 1\nwarmup_iters: 1\n"

MEANT = [
    "harvest models",
    "build models --plan --device cpu",
    "build models --device cpu",
    "measure models/their.yml --device cpu",
    "fx models/their.yml",
    "sweep models/their.yml --device cpu --sizes 8 --plan",
    "complexity models",
    "train runs.yml --plan",
    "predict models/their.yml",
]


@pytest.fixture
def marker(opdb: Opdb, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stranger's code leaves where it runs, in a folder with every file that names it."""
    Path("models").mkdir()
    Path("strangers_code.py").write_text(CODE)
    Path("models/their.yml").write_text(THEIRS)
    Path("runs.yml").write_text(MATRIX)
    monkeypatch.delitem(sys.modules, "strangers_code", raising=False)
    return Path("marker")


@pytest.mark.parametrize("command", MEANT)
def test_code_that_a_file_names_does_not_run_unasked(
    opdb: Opdb, marker: Path, command: str
) -> None:
    ran = opdb(*command.split())
    assert ran.status == 2
    assert not marker.exists()
    if not command.startswith("predict"):  # which looks in the database alone
        name = "runs.yml" if command.startswith("train ") else "models/their.yml"
        assert f"{name}: model 'strangers_code:run' is an import path" in ran.err
        assert "--allow-code" in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "command",
    [
        "harvest models --allow-code",
        "harvest strangers_code:run --input-size 3x8x8",
        "fx models/their.yml --allow-code",
        "sweep models/their.yml --allow-code --device cpu --sizes 8 --plan",
        "measure strangers_code:run --input-size 3x8x8 --device cpu --repeats 1",
    ],
)
@pytest.mark.usefixtures("short")
def test_code_runs_where_it_is_allowed_or_named(opdb: Opdb, marker: Path, command: str) -> None:
    ran = opdb(*command.split())
    # Measured on a busy machine, a build may miss its target.
    assert ran.status == 0 or (command.startswith("build") and ran.status == 1), ran.err
    assert marker.read_text() == "called"
