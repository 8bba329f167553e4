"""Files that are read: regular ones, of bounded size, whatever a command is given."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opdb.bench import driver as images
from opdb.errors import InputError
from opdb.files import parse_json, write_file
from opdb.grid import load_grids
from opdb.store.database import check_file
from opdb.store.opening import FILE, MANIFEST, SAMPLES
from opdb.store.sets import opened
from opdb.studies.annotate import read_profile
from opdb.studies.roofline.counters import read_metrics, take_csv
from opdb.studies.roofline.points import read_peaks
from opdb.studies.train.rows import load_matrix
from opdb.summary_files import load_significance, load_summary, mark_processed
from opdb.workers import read_state
from tests.paths import ROOT

SET = ROOT / "db" / "nvidia-h200-held-out"


def csv_of_ncu(path: Path) -> None:
    take_csv(None, path)  # a store is asked only about what was read


def of_set(name: str) -> Callable[[Path], object]:
    """Return what reads a set of which one file is the given path; no manifest tells of it."""

    def read(path: Path) -> object:
        folder = path.with_name(f"set with another {name}")
        folder.mkdir()
        for each in (FILE, SAMPLES):
            if each != name:
                (folder / each).symlink_to(SET / each)
        (folder / name).symlink_to(path)
        with opened(folder) as found:
            return found

    return read


READERS: dict[str, Callable[[Path], Any]] = {
    "summary": load_summary,
    "marked summary": mark_processed,
    "significant operators": load_significance,
    "grid": load_grids,
    "matrix": load_matrix,
    "peaks": lambda path: read_peaks(path, 100.0),
    "metrics": read_metrics,
    "CSV of ncu": csv_of_ncu,
    "profile": read_profile,
    "database of a set": of_set(FILE),
    "samples of a set": of_set(SAMPLES),
    "manifest of a set": of_set(MANIFEST),
    "state of a job": read_state,
    "image": lambda path: images._read(str(path)),
    "database": lambda path: check_file(path, create=False),
}


@pytest.fixture
def within_seconds() -> Iterator[None]:
    """Fail what waits for a pipe, or reads without an end, in place of waiting with it."""

    def fail(*_: object) -> None:
        raise TimeoutError("it reads what never ends")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("within_seconds")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_by_each_reader(
    tmp_path: Path, reader: Callable[[Path], object], kind: str
) -> None:
    path = tmp_path / "given"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"a device or a pipe|a folder|not a file"):
        reader(path)


@pytest.mark.parametrize("reader", [load_summary, read_metrics, lambda p: read_peaks(p, 1.0)])
def test_a_file_written_by_hand_is_small(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    path = tmp_path / "large"
    path.write_bytes(b" " * (128 * 1024 + 1))
    with pytest.raises(InputError, match=r"131073 bytes; .* has at most 131072"):
        reader(path)


def test_invalid_json_is_told_with_its_place() -> None:
    for text, message in (
        ('{"a": 1,\n "b": }', r"x.json, line 2, column 7: not valid JSON: Expecting value$"),
        ('{"a": 1,\n', r"x.json, line 3?.*not valid JSON: .*; is it cut off\?"),
        ("[" * 100_000, "x.json: not valid JSON: nested too deep"),
        ("9" * 5000, "x.json: not valid JSON: Exceeds the limit"),
    ):
        with pytest.raises(InputError, match=message):
            parse_json(Path("x.json"), text)


def test_a_file_that_is_written_anew_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    write_file(path, b"a")
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    write_file(path, b"b")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"b", 0o600)
