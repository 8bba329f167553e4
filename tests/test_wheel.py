"""The wheel predicts by itself: installed where neither torch nor a clone is."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opdb.derive.quiet import LEAST_BLOCKS
from opdb.store import open_store
from tests import published, shared
from tests.paths import ROOT
from tests.requirements import LEFT_OPEN, required

pytestmark = pytest.mark.slow

MOST_BYTES = 15e6


def build_wheel(path: Path) -> None:
    """Build the wheel from a copy of the tree, so that nothing is written into the tree."""
    source = path.with_name("wheel-source")
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "opdb", source / "opdb", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "db").symlink_to(ROOT / "db")
    out = path.with_name("wheel-out")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(source))
    pip(*wheel)
    [built] = out.glob("opdb_torch-*.whl")
    path.mkdir()
    built.rename(path / built.name)
    shutil.rmtree(source)


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        env={
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "SOURCE_DATE_EPOCH": "1764028800",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def link_requirements(site: Path) -> None:
    """Put what opdb needs but torch into an environment, as links to what the tests run with."""
    for name, found in required().items():
        for file in () if LEFT_OPEN.fullmatch(name) else found.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))


@dataclass(frozen=True)
class Installed:
    """An environment in which the wheel is installed, and an empty folder to run in."""

    environment: Path
    folder: Path

    @property
    def database(self) -> Path:
        return self.folder.parent / "data" / "opdb" / "opdb.sqlite"

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; it knows nothing of this tree."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPDB", "PYTHON", "XDG"))}
        data = self.folder.parent / "data"
        return subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=self.folder,
            env={**kept, "XDG_DATA_HOME": str(data), "HOME": str(self.folder.parent)},
            capture_output=True,
            text=True,
        )

    def json(self, *arguments: str) -> Any:
        ran = self.run("opdb", *arguments, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def wheel() -> Path:
    [path] = shared.made_once("wheel", build_wheel).iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    pip("--python", str(environment), "install", "--no-deps", "--no-compile", str(wheel))
    link_requirements(site)
    (folder / "empty").mkdir()
    return Installed(environment, folder / "empty")


def test_it_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_BYTES


def test_neither_torch_nor_this_tree_is_there(installed: Installed) -> None:
    ran = installed.run("python", "-c", "import opdb; print(opdb.__file__); import torch")
    assert str(installed.environment) in ran.stdout
    assert "No module named 'torch'" in ran.stderr


def test_it_predicts_what_a_clone_predicts(installed: Installed) -> None:
    import opdb

    for mode in ("eager", "graph"):
        found = installed.json("predict", "resnet152", "-b", "32", "--mode", mode)
        clone = str(published.default_database())
        expected = opdb.predict("resnet152", batch_size=32, mode=mode, db=clone)
        assert found == expected.to_dict()
    assert list(installed.folder.iterdir()) == []


def rows(path: Path, *, of_visits: str = "*") -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a database by table, but what names the sources that it has seen."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = [name for (name,) in names if name != "source"]
        columns = {name: of_visits if name == "visit" else "*" for name in tables}
        return {
            name: connection.execute(f"SELECT {columns[name]} FROM {name}").fetchall()
            for name in tables
        }


def test_its_database_is_that_of_a_clone_but_for_raw_samples(installed: Installed) -> None:
    """What several sets give together is the same too: costs that are derived from all of them."""
    assert installed.run("opdb", "show", "devices").returncode == 0
    others = (
        "id, campaign, configuration_id, setting, role, outcome, started_at, cost_s, kernels, "
        "stretch IS NULL, restore IS NULL, neighbours IS NULL, "
        "CASE role WHEN 'anchor' THEN stretch END"
    )
    ours = rows(installed.database, of_visits=others)
    theirs = rows(published.default_database(), of_visits=others)
    assert ours.keys() == theirs.keys()
    mine, every = (set(found.pop("host_visit")) for found in (ours, theirs))
    assert mine < every, "without those from which costs alone follow"
    with open_store(str(published.default_database())) as store:
        visits = [visit for board in store.boards() for visit in store.host_visits(board.uuid)]
    needed = [visit.id for visit in visits if len(visit.times_s) >= LEAST_BLOCKS]
    assert needed and {id_ for id_, *_ in mine}.issuperset(needed)
    for name, found in theirs.items():
        assert sorted(ours[name], key=repr) == sorted(found, key=repr), name


@pytest.mark.parametrize(
    "command", ["python -m opdb.derive --check", "opdb export set", "opdb validate --duplicates"]
)
def test_what_needs_raw_samples_says_where_they_are(installed: Installed, command: str) -> None:
    ran = installed.run(*command.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("opdb: raw samples are needed") and ran.stderr.count("\n") == 1
    assert "opdb import CLONE/db/nvidia-h200 --db FILE" in ran.stderr


@pytest.mark.parametrize(
    "command", ["predict resnet50 -b 3", "predict mlp -b 7", "doctor --calibrate"]
)
def test_what_needs_torch_says_what_to_install(installed: Installed, command: str) -> None:
    ran = installed.run("opdb", *command.split())
    assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.count("\n") == 1
    assert "pip install torch torchvision" in ran.stderr and "unforeseen" not in ran.stderr


def test_it_takes_in_the_sets_of_a_device_that_is_named(installed: Installed) -> None:
    device = "nvidia-h100-80gb-hbm3"
    found = installed.json("predict", "resnet50", "-b", "32", "--mode", "graph", "--device", device)
    assert (found["device"], found["coverage"]["time"]) == (device, 1.0)
    assert 0.9 < found["time_s"]["value"] / found["measured"]["time_s"] < 1.1
