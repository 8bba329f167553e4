"""Commands that only look change nothing; what cannot be marked is stored all the same."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, snapshot

SUMMARY = "model: mlp\ninput_size: [16]\nbatch_sizes: [1, 4]\n"

LOOKING = [
    "show",
    "status --json",
    "doctor",
    "validate",
    "complexity models",
    "fx mlp",
    "predict mlp --no-harvest",
    "build models --plan --device cpu",
    "sweep --status",
    "sweep --list-models",
    "matrix runs.yml --plan",
    "matrix runs.yml --status",
    "modes --stored",
    "bench --grid grid.yml --dry-run",
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


def test_a_plan_writes_the_list_where_that_is_asked(
    opdb: Opdb, database: Path, folder: Path
) -> None:
    listed = folder / "models/significant.yml"
    before = listed.read_text()
    assert opdb("build", "models", "--plan", "--device", "cpu").status == 0
    assert listed.read_text() == before
    ran = opdb("build", "models", "--plan", "--write", "--device", "cpu")
    assert ran.status == 0, ran.err
    assert listed.read_text() != before


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


def test_a_file_that_cannot_be_marked_is_a_note(opdb: Opdb, tmp_path: Path) -> None:
    """Its folder is gone, so that root, too, can read the file and write nothing beside it."""
    folder = tmp_path / "gone"
    folder.mkdir()
    (folder / "mlp.yml").write_text(SUMMARY)
    with (folder / "mlp.yml").open() as held:
        shutil.rmtree(folder)
        name = f"/proc/self/fd/{held.fileno()}"
        ran = opdb("harvest", name)
        built = opdb("build", name, "--device", "cpu", "--gpu-seconds", "0", "--target", "0.01")
    assert ran.status == 0, ran.err
    for each in (ran, built):
        assert f"not marked as processed, though all of it is stored: {name}" in each.err
        assert "opdb: " not in each.err or "target" in each.err, each.err
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert {each.batch_size for each in store.workloads("mlp")} == {1, 4}
