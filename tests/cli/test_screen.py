"""What commands print on a terminal of 80 columns, a real one: no line is wider."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opdb.cli import main
from opdb.layout import width_of
from tests import published
from tests.paths import ROOT, python_path

COLUMNS = 80


class Screen:
    """A pseudo-terminal, and what was printed on it."""

    def __init__(self) -> None:
        self._other, self.terminal = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self._printed = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                self._printed += os.read(self._other, 65536)
            except OSError:  # the terminal was closed
                return

    def lines(self) -> list[str]:
        """Close the terminal and return what was printed on it."""
        os.close(self.terminal)
        self._reader.join(timeout=10)
        os.close(self._other)
        return self._printed.decode().splitlines()


@contextmanager
def printing_to(screen: Screen) -> Iterator[None]:
    """Let this process print to a terminal."""
    patch = pytest.MonkeyPatch()
    patch.delenv("COLUMNS", raising=False)
    with os.fdopen(os.dup(screen.terminal), "w", encoding="utf-8") as stream:
        patch.setattr("sys.stdout", stream)
        try:
            yield
        finally:
            patch.undo()


def printed(*arguments: str) -> list[str]:
    """Run a command in this process with a terminal as its stdout; return the lines."""
    screen = Screen()
    try:
        with printing_to(screen):
            status = main(arguments)
    finally:
        lines = screen.lines()
    assert status in (0, 1), arguments
    return lines


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All published sets in one database."""
    path = tmp_path_factory.mktemp("screen") / "opdb.sqlite"
    shutil.copy(published.all_sets(), path)
    return path


LOOKING = [
    ("doctor",),
    ("show",),
    ("validate",),
    ("modes", "--stored"),
    ("roofline", "resnet50", "vgg16"),
    ("sweep", "--status"),
    ("sweep", "--list-algorithms"),
    ("complexity", "resnet18", "--batch-size", "1,32"),
    ("predict", "resnet50"),
    ("predict", "resnet50", "--algorithm", "gemm"),
    ("harvest", "resnet18", "--batch-size", "3"),
    ("predict", "resnet18", "--batch-size", "3"),
    ("fx", "resnet18"),
    ("build", "resnet18.yml", "--plan"),
]


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(
    arguments: tuple[str, ...], database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "measurements" / "resnet18.yml", tmp_path)
    lines = printed(*arguments, "--db", str(database))
    assert lines
    assert [line for line in lines if width_of(line) > COLUMNS] == []


def test_json_on_a_terminal_is_json(database: Path) -> None:
    document = json.loads("\n".join(printed("show", "--json", "--db", str(database))))
    assert document["devices"]


def test_help_and_messages_fit(tmp_path: Path) -> None:
    """In a process of its own, whose stderr is the terminal, too."""
    screen = Screen()
    environment = {**os.environ, "PYTHONPATH": python_path()}
    environment.pop("COLUMNS", None)
    for arguments in (["--help"], ["bench", "--help"], ["show", "--db", str(tmp_path / "none")]):
        subprocess.run(
            [sys.executable, "-m", "opdb", *arguments],
            env=environment,
            stdout=screen.terminal,
            stderr=screen.terminal,
            check=False,
        )
    lines = screen.lines()
    said = " ".join(" ".join(lines).split())  # the path's length says where that line is broken
    assert "there is none" in said
    assert [line for line in lines if width_of(line) > COLUMNS] == []


def test_a_pipe_has_tables_at_their_full_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["sweep", "--list-algorithms"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > COLUMNS
