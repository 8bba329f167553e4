"""Standard streams that are full, and results told to be written to a device or pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.files import check_writable, write_file
from tests import warm
from tests.paths import python_path

FULL = Path("/dev/full")

needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")


WARNING = """
import logging, os, sys, warnings
from torch import nn, ones

class Warning(nn.Module):
    def forward(self, x):
        warnings.warn("of a model")
        logging.getLogger("torch._inductor").warning("of a compiler")
        print("of its own", file=sys.stderr)
        return x.relu()

def build():
    return Warning(), (ones(2, 3),)
"""


def opdb(
    tmp_path: Path, redirected: str, *arguments: str, python: Sequence[str] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    """Run a command by the shell, its streams redirected so."""
    command = f'"$@" {redirected}'
    environment = {**os.environ, "PYTHONPATH": python_path(), "OPDB_DB": str(tmp_path / "x.sqlite")}
    environment.pop("PYTHONUNBUFFERED", None)  # what is printed is written at the end
    return subprocess.run(
        ["sh", "-c", command, "sh", *python, "-m", "opdb", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_full
def test_a_full_stdout_is_one_line_and_a_full_stderr_leaves_the_status(tmp_path: Path) -> None:
    for command in (["sweep", "--list-algorithms"], ["validate", "--help"], ["--version"]):
        found = opdb(tmp_path, ">/dev/full", *command)
        assert found.returncode == 2
        assert found.stderr.splitlines()[-1].endswith("No space left on device")
        assert found.stderr.count("opdb:") == 1 and "Traceback" not in found.stderr
    assert opdb(tmp_path, "2>/dev/full", "nosuch").returncode == 2


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(pipe)
        write_file(pipe, b"a,b\n")
        assert os.read(reader, 100) == b"a,b\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_dash_makes_no_file_of_that_name() -> None:
    with pytest.raises(InputError, match="-: is no file here; name one, or /dev/stdout"):
        check_writable(Path("-"))


def test_a_file_that_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder would let it be; who may write everything, such as root, is let."""
    file = tmp_path / "kept.csv"
    file.write_text("a,b\n")
    check_writable(file)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != file)
    with pytest.raises(InputError, match=r"kept.csv: cannot be written: no permission"):
        check_writable(file)


def test_two_results_are_not_written_to_one_file(tmp_path: Path) -> None:
    """Not by another spelling either, nor over a link; what is no file takes both."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "in").mkdir()
    check_writable(tmp_path / "a", None, tmp_path / "b", Path("/dev/null"), Path("/dev/null"))
    for again in ("a", "link", "in/../a"):
        with pytest.raises(InputError, match=r"a: named for two results; give each a file|link: "):
            check_writable(tmp_path / "a", tmp_path / "b", tmp_path / again)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "asked",
    [
        ("generate", "llama", "--prompt", "8", "--tokens", "8", "--csv", "same", "--svg", "same"),
        ("roofline", "resnet50", "--csv", "same", "--html", "same"),
        ("roofline", "resnet50", "--csv", "same", "--ncu", "--ncu-report", "same"),
        ("train", "no.yml", "--csv", "same", "--markdown", "same"),
    ],
)
def test_a_command_refuses_one_file_for_two_results(tmp_path: Path, asked: Sequence[str]) -> None:
    ran = opdb(tmp_path, "", *asked)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "same: named for two results" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@needs_full
def test_a_full_device_is_an_error_and_stays_a_device() -> None:
    with pytest.raises(InputError, match="/dev/full: cannot be written: No space left"):
        write_file(FULL, b"a,b\n")
    assert FULL.is_char_device()


def test_quiet_keeps_warnings_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model prints is its own; PYTHONWARNINGS and TORCH_LOGS say what is wanted."""
    (tmp_path / "warning.py").write_text(WARNING)
    told = opdb(tmp_path, "", "harvest", "warning:build", python=warm.command()).stderr
    assert "of a model" in told and "of a compiler" in told
    found = opdb(tmp_path, "", "harvest", "warning:build", "--quiet", python=warm.command())
    assert (found.returncode, found.stderr) == (0, "of its own\n")
    monkeypatch.setenv("PYTHONWARNINGS", "always")
    monkeypatch.setenv("TORCH_LOGS", "+inductor")
    told = opdb(tmp_path, "", "harvest", "warning:build", "-q").stderr
    assert "of a model" in told and "of a compiler" in told
