"""The readers of files that a stranger may have written, each with files that it accepts.

A reader does with a file what commands do: what it accepts is used as well.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from opdb.estimates.estimator import Learned, Process, from_document, to_document
from opdb.grid import load_grids, steps
from opdb.records import Configuration
from opdb.store import open_store
from opdb.store.fields import read_json
from opdb.store.opening import FILE, MANIFEST, SAMPLES, write_manifest
from opdb.store.sets import merge, opened
from opdb.studies.annotate import Index, KernelIndex, find_energies, read_profile
from opdb.studies.roofline.counters import read_report
from opdb.studies.train.rows import load_matrix
from opdb.summary_files import load_significance, load_summary, mark_processed
from tests.counters.test_report import RAW
from tests.grid.test_file import GOOD as GRID
from tests.hostile import cells
from tests.paths import ROOT
from tests.store.small_set import unpacked

CORPUS = ROOT / "tests" / "data" / "hostile"
"""Files that once ended in an internal error, in a folder by reader."""

_RELU = {"input": {"shape": [32, 64, 56, 56], "dtype": "float32"}}
_LINEAR = {
    "input": {"shape": [8, 64], "dtype": "float32"},
    "weight": {"shape": [16, 64], "dtype": "float32", "role": "weight"},
}
_ASKED = (Configuration("relu", {}, _RELU), Configuration("linear", {}, _LINEAR))


@dataclass(frozen=True)
class Reader:
    """Reads a file or, of a published set, one of its files; `seeds` returns some it accepts.

    `words` are what is likely to be put in place of others.
    """

    read: Callable[[Path], object]
    seeds: Callable[[], list[str]]
    words: tuple[str, ...] = ()
    ending: str = ".json"


_YAML = (
    *(
        "!!int ''",
        "!!bool maybe",
        "!!timestamp x",
        "!!python/name:os.system",
        "&a",
        "*a",
        "<<",
        "?",
    ),
    *("2001-01-01 00:00:00 +99:99", "0001-01-01 00:00:00 +23:59", "2024-13-45", "0x_", "0b", "1_"),
    *("1:59:59.5", "190:20:30", "0x" + "f" * 5000, ":".join(["9"] * 600) + ".5", ".inf", "-.nan"),
    *("{", "}", "[", "]", "- ", ": ", "|\n  ", ">\n  ", "'", '"', "#", "%YAML 9.9\n", "---\n"),
    *("...\n", "~", "null", "yes", "1e999", "[" * 100, "{a: " * 40, "\ufeff", "\x00", "\x85"),
    *("=", "`", "@", "null: ", "1: ", "[1]: ", "true: ", "- - - ", "\t", "\n", "9" * 5000),
)
_JSON = (
    *("null", "true", "{}", "[]", "-1", "0", "1e999", "NaN", "-Infinity", '"x"', "1e-300", "{"),
    *("9" * 5000, "[" * 5000, '"\\ud800"', "1.5", "2", '""', "[[]]", '{"a": null}', "}", "]", ","),
    *("1e308", "-1e308", "18446744073709551616", '"\\u0000"', "[1, [2]]", "-0.0"),
)
_CSV = ('"', '""', ",", "\n", "\r", "nan", "inf", "-inf", "-1", "1e999", "9" * 5000, "\x00", "''")


def _summary(path: Path) -> None:
    load_summary(path)
    mark_processed(path)


def _mark(path: Path) -> None:
    mark_processed(path)


def _significant(path: Path) -> None:
    load_significance(path)


def _learned(path: Path) -> None:
    try:
        document = read_json(path.read_text(errors="replace"))
    except (ValueError, RecursionError):
        return  # a damaged row of the database: see `Connected.reading`
    estimator = from_document(document)
    found = estimator.estimate(_ASKED)
    found.half_widths(dict.fromkeys(found.costs, 2.0), 100.0)


def _profile(path: Path) -> None:
    find_energies(read_profile(path), Index((), {}), KernelIndex({}, {}), 100.0)


def _files(*patterns: str) -> Callable[[], list[str]]:
    return lambda: [p.read_text() for each in patterns for p in sorted(ROOT.glob(each))]


_MATRIX = """\
models: [alexnet, vgg16]
batch_sizes: [32, 128]
precision: [fp32, amp]
backend: cuda
input_size: [[3, 224, 224], null]
optimizer: sgd
repeats: 3
iters: 50
note: after the new driver
variants:
  - {batch_sizes: 4, channels_last: [true, false]}
"""

_SIGNIFICANT = """\
target: 0.95  # of each model
always: [conv2d, relu]
never: [dropout]
"""


def _profiles() -> list[str]:
    """Return a short profile: two operators, one in the other, that launch two kernels."""
    base = {"ph": "X", "pid": 1, "tid": 1}
    dims = {"Input Dims": [[4, 8]], "Input type": ["float"], "Concrete Inputs": [""]}
    events = [
        {**base, "cat": "cpu_op", "name": "aten::relu", "ts": 1.0, "dur": 9.0,
         "args": {"External id": 1, **dims}},
        {**base, "cat": "cpu_op", "name": "aten::clamp_min", "ts": 2.0, "dur": 3.0,
         "args": {"External id": 2, **dims}},
        {**base, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2.5, "dur": 0.5,
         "args": {"External id": 2, "correlation": 7}},
        {**base, "cat": "kernel", "name": "k", "ts": 4.0, "dur": 2.0, "args": {"correlation": 7}},
        {**base, "cat": "gpu_memset", "name": "m", "ts": 7, "dur": 1, "args": {"External id": 1}},
    ]  # fmt: skip
    return [json.dumps({"schemaVersion": 1, "traceEvents": events})]


def _estimates() -> list[str]:
    """Return the published estimates of a board, of each family the first four points alone."""
    with opened(ROOT / "db" / "nvidia-h200", trusted=True) as store:
        [document] = store.learned("nvidia-h200").values()
    estimator = from_document(document)
    families = {name: _few(estimator.families[name]) for name in ("memory", "matrix")}
    usual = dict(list(estimator.usual.items())[:2])
    return [json.dumps(to_document(replace(estimator, families=families, usual=usual)))]


def _few(learned: Learned) -> Learned:
    """Return what was learned of a family with its first four points alone."""
    points = slice(4)
    metered = tuple(row for row in learned.metered if row < 4)
    power = None if learned.power is None else _cut(learned.power, slice(len(metered)))
    return replace(learned, time=_cut(learned.time, points), power=power, metered=metered)


def _cut(process: Process, points: slice) -> Process:
    return replace(process, points=process.points[points], weights=process.weights[points])


def _set_reader(
    folder: Path, empty: Path, put: Callable[[Path, Path], None], seeds: list[str], ending: str
) -> Reader:
    """Return a reader that imports a set after `put` has put the given file into its folder."""

    def read(path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            made = Path(aside, "set")
            shutil.copytree(folder, made)
            put(path, made)
            shutil.copyfile(empty, Path(aside, "db.sqlite"))
            with opened(made) as found, open_store(str(Path(aside, "db.sqlite"))) as store:
                merge(store, found, made)
                for board in store.boards():
                    store.costs(board.uuid)
                    store.visits(board.uuid)
                    store.host_visits(board.uuid)
                store.model_runs()
                store.standing("nvidia-h200")

    return Reader(read, lambda: seeds, (*_CSV, *_JSON), ending)


def _put_manifest(path: Path, folder: Path) -> None:
    shutil.copy(path, folder / MANIFEST)


def _put_samples(path: Path, folder: Path) -> None:
    (folder / SAMPLES).write_bytes(lzma.compress(path.read_bytes()))


def _put_database(path: Path, folder: Path) -> None:
    (folder / FILE).write_bytes(lzma.compress(path.read_bytes(), preset=0))


def _put_cells(path: Path, folder: Path) -> None:
    unpacked = folder.with_suffix(".sqlite")
    unpacked.write_bytes(lzma.decompress((folder / FILE).read_bytes()))
    cells.write_cells(unpacked, path)
    _put_database(unpacked, folder)


READERS: Mapping[str, Reader] = {
    "summary": Reader(_summary, _files("measurements/*[!t].yml"), _YAML, ".yml"),
    "mark": Reader(_mark, _files("measurements/resnet50.yml"), _YAML, ".yml"),
    "significant": Reader(_significant, lambda: [_SIGNIFICANT], _YAML, ".yml"),
    "grid": Reader(lambda p: steps(load_grids(p)), lambda: [GRID], _YAML, ".yml"),
    "matrix": Reader(load_matrix, lambda: [_MATRIX], _YAML, ".yml"),
    "learned": Reader(_learned, _estimates, _JSON),
    "profile": Reader(_profile, _profiles, _JSON),
    "ncu": Reader(
        lambda p: read_report(p.read_text(errors="replace"), p.name), lambda: [RAW], _CSV, ".csv"
    ),
    "cells": Reader(cells.read_cells, lambda: cells.seeds(cells.filled()), (*_CSV, *_JSON), ".csv"),
}
"""The readers of single files by name; `set_readers` has those of a published set."""


def set_readers(folder: Path) -> dict[str, Reader]:
    """Return a reader for each file of a published set, and one for cells of its database.

    The manifest, with its checksums, is there for its own reader alone. Beside the set's folder
    they keep an empty database to begin with: making one takes longer.
    """
    with unpacked(folder) as connection:
        connection.execute("PRAGMA page_size = 512")  # a seventh of the usual size
        connection.execute("VACUUM")
    write_manifest(folder, {"device": "nvidia-h200"})
    manifest = folder.joinpath(MANIFEST).read_text()
    folder.joinpath(MANIFEST).unlink()
    database = lzma.decompress(folder.joinpath(FILE).read_bytes())
    samples = lzma.decompress(folder.joinpath(SAMPLES).read_bytes()).decode()
    tried: dict[str, tuple[Callable[[Path, Path], None], list[str], str]] = {
        "manifest": (_put_manifest, [manifest], ".json"),
        "samples": (_put_samples, [samples], ".txt"),
        "database": (_put_database, [database.decode("utf-8", "surrogateescape")], ".sqlite"),
        "cells": (_put_cells, cells.seeds(database), ".csv"),
    }
    empty = folder.with_name(f"{folder.name}-empty.sqlite")
    with open_store(str(empty)):
        pass
    return {f"set/{name}": _set_reader(folder, empty, *each) for name, each in tried.items()}
