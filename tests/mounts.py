"""A small file system of a test's own: one that is soon full, or that can be made read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Mount:
    """A file system in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no byte free for a while."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as stream:
            block = bytes(4096)
            try:
                while stream.write(block):
                    pass
            except OSError:
                pass
        try:
            yield
        finally:
            filler.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody write for a while, root included."""
        self._mount("remount,ro")
        try:
            yield
        finally:
            self._mount("remount,rw")

    def _mount(self, how: str) -> None:
        subprocess.run(["mount", "-o", how, str(self.folder)], check=True)


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Mount]:
    """Mount a file system of a size (as in "4m") at a folder; skip where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: that needs root")
    try:
        yield Mount(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
