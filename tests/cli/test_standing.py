"""Commands take a stored workload where a harvest would find the same, and else harvest anew."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import select

from opdb.records import Workload
from opdb.store import open_store
from opdb.store.schema import workload as table
from tests import warm
from tests.paths import python_path

ON_CPU = ("--device", "cpu", "--quiet")

PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from opdb.bench import model
from opdb.cli import main
model.SETTLE_S, model.WINDOW_S, model.MAX_REDONE, model.HOSTS_REDONE = 0.002, 0.02, 0, 0
for line in sys.stdin:
    arguments = json.loads(line)
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(arguments)
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """What commands printed, one after the other."""

    out: str
    err: str


class Elsewhere:
    """A process that has imported nothing of the tests, and runs one command after the other."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            warm.command("-c", PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=path.parent,
            env={**os.environ, "OPDB_DB": str(path), "PYTHONPATH": python_path()},
        )

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ran(self, *commands: tuple[str, ...]) -> Ran:
        """Run commands, of which only a build's target may be missed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        printed, told = "", ""
        for arguments in commands:
            self._process.stdin.write(json.dumps(arguments) + "\n")
            self._process.stdin.flush()
            status, out, err = json.loads(self._process.stdout.readline())
            assert status == 0 or (arguments[0], status) == ("build", 1), (arguments, err)
            printed, told = printed + out, told + err
        return Ran(printed, told)


def ran(path: Path, *commands: tuple[str, ...]) -> Ran:
    """Run commands in one such process."""
    with Elsewhere(path) as process:
        return process.ran(*commands)


def stored(path: Path, **chosen: Any) -> list[Workload]:
    with open_store(str(path)) as store:
        return store.workloads(**chosen)


def shortened(path: Path, **chosen: Any) -> Workload:
    """Take the first call off a stored workload: whoever harvests it anew puts it back."""
    with open_store(str(path)) as store:
        [workload] = store.workloads(**chosen)
        with store.reading() as connection:
            known = connection.scalar(
                select(table.c.fingerprint).where(table.c.key == workload.key)
            )
        short = replace(workload, calls=workload.calls[1:])
        store.save_workload(short, fingerprint=known)
    return short


def test_commands_take_what_stands(tmp_path: Path) -> None:
    path = tmp_path / "opdb.sqlite"
    ran(path, ("harvest", "mlp", "--quiet"))
    [whole], short = stored(path), shortened(path)
    with Elsewhere(path) as other:
        again = other.ran(
            ("measure", "mlp", "--repeats", "1", *ON_CPU),
            ("modes", "mlp", "--modes", "eager", "--repeats", "1", *ON_CPU),
            ("build", "mlp", "--gpu-seconds", "0", *ON_CPU),
            ("harvest", "mlp"),
        )
        assert "1 workload of 1 stood in" in again.err and stored(path) == [short]
        assert "stood in" not in other.ran(("harvest", "mlp", "--anew")).err
    assert stored(path) == [whole]


def test_what_was_compiled_for_a_device_stands_until_it_is_asked_for_anew(tmp_path: Path) -> None:
    path = tmp_path / "opdb.sqlite"
    asked = ("harvest", "mlp", "--mode", "compile", "--device", "cpu")
    told = ran(path, (*asked, "--json", "--quiet"))
    [first] = json.loads(told.out)
    assert first["stood"] is False and first["runs_of_other_calls"] == 0
    [whole] = stored(path, compiled_for=first["compiled_for"])
    short = shortened(path, compiled_for=first["compiled_for"])
    with Elsewhere(path) as other:
        again = other.ran(asked)
        assert "1 workload of 1 stood in" in again.err and "--anew" in again.err
        assert stored(path, compiled_for=first["compiled_for"]) == [short]
        [told_again] = json.loads(other.ran((*asked, "--json", "--quiet")).out)
        assert told_again == {**first, "calls": first["calls"] - 1, "stood": True} | {
            name: told_again[name] for name in ("configurations", "by_kind")
        }
        other.ran((*asked, "--anew", "--quiet"))
    assert stored(path, compiled_for=first["compiled_for"]) == [whole]


def test_a_model_of_ones_own_is_harvested_anew_each_time(tmp_path: Path) -> None:
    path, own = tmp_path / "opdb.sqlite", tmp_path / "own.py"
    text = "import torch\n\ndef build():\n    return torch.nn.{}(), torch.ones(2, 4)\n"
    for name in ("ReLU", "Sigmoid"):  # another length: bytecode of the same second is told by it
        own.write_text(text.format(name))
        ran(path, ("harvest", "own:build", "--quiet"))
        [found] = stored(path)
        assert [call.configuration.kind for call in found.calls] == [name.lower()]
