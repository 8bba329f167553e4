"""A database of one's own: how measurements come into it, and that it is opened before work."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from opdb.store import open_store
from opdb.store.opening import usual_sets
from tests.cli.conftest import Opdb, snapshot
from tests.paths import ROOT


@pytest.mark.parametrize("command", ["predict", "roofline"])
@pytest.mark.parametrize("is_there", [False, True])
def test_the_first_line_says_how_measurements_come_in(
    opdb: Opdb, command: str, is_there: bool
) -> None:
    if is_there:
        open_store("new one.sqlite").close()
    ran = opdb(command, "mlp", "-b", 9, "--db", "new one.sqlite")
    assert (ran.status, ran.out) == (2, "") and ran.err.count("\n") == 1
    _, _, command = ran.err.partition("to bring in the published measurements: ")
    hint = shlex.split(command)
    folders = [str(path) for path in usual_sets().values()]
    assert hint == ["opdb", "import", *folders, "--db", "new one.sqlite"]
    assert str(ROOT / "db" / "nvidia-h200") in folders


def test_the_command_that_is_proposed_makes_it_answer(
    opdb: Opdb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "held-out").symlink_to(ROOT / "db" / "nvidia-h200-held-out")
    monkeypatch.setattr("opdb.store.database.published_folder", lambda: tmp_path)
    asked = ("predict", "vgg11_bn", "-b", 8, "--db", "new.sqlite")
    hint = shlex.split(opdb(*asked).err.partition("measurements: ")[2])
    assert opdb(*hint[1:]).status == 0
    ran = opdb(*asked)
    assert ran.status == 0 and ran.out.startswith("vgg11_bn, batch 8 float32")


@pytest.mark.parametrize("command", ["measure", "modes"])
def test_a_database_that_cannot_be_used_is_told_before_a_model_is_looked_for(
    opdb: Opdb, tmp_path: Path, command: str
) -> None:
    Path("text.sqlite").write_text("nothing of ours")
    before = snapshot(tmp_path)
    places = {"text.sqlite": "not an opdb database", "text.sqlite/x": "check the path"}
    for place, said in places.items():
        ran = opdb(command, "no such model", "--db", place)
        assert ran.status == 2 and said in ran.err and "unknown model" not in ran.err
    assert snapshot(tmp_path) == before
