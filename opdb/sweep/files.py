"""The files and figures of a sweep, by model and algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.distribution import install
from opdb.files import file_name, make_folder, write_file
from opdb.models import ModelRequest
from opdb.records import Json
from opdb.sweep.request import SweepRequest
from opdb.sweep.rows import LAYERS, OVERALL, Row
from opdb.sweep.specs import SweepSpec
from opdb.tables import csv_text

if TYPE_CHECKING:
    from opdb.store import Store


def folder_of(asked: SweepRequest, cell: SweepSpec, device: str, output: Path) -> Path:
    """Return the folder of a model's files under one algorithm, as people's scripts expect it.

    What is not batch 1 in float32 says so at the end of the name.
    """
    return output / asked.stage / file_name(f"{_stem(cell)}_{device}{_unusual(cell.request)}")


def _stem(cell: SweepSpec) -> str:
    return file_name(f"{cell.request.name}_{cell.algorithm.slug}")


def _unusual(request: ModelRequest) -> str:
    said = [f"b{request.batch_size}"] if request.batch_size != 1 else []
    said += [request.dtype] if request.dtype != "float32" else []
    said += [request.memory_format] if request.memory_format != "contiguous" else []
    return "".join(f"_{each}" for each in said)


def write_results(
    asked: SweepRequest, rows: Iterable[Row], layers: Any, device: str, output: Path
) -> list[Path]:
    """Write the two files of each algorithm of one model; return them.

    Raises:
        InputError: one cannot be written.
    """
    by_algorithm: dict[str, list[Row]] = {}
    for row in rows:
        by_algorithm.setdefault(row.cell.algorithm.name, []).append(row)
    written = []
    for some in by_algorithm.values():
        folder = folder_of(asked, some[0].cell, device, output)
        stem = _stem(some[0].cell)
        overall = csv_text(OVERALL.fields, map(_rounded, map(OVERALL.document, some)))
        lines = (line for row in some for line in row.layers(layers))
        in_place = csv_text(LAYERS.fields, map(_rounded, map(LAYERS.document, lines)))
        written.append(write(folder / f"{stem}_overall.csv", overall.encode()))
        written.append(write(folder / f"{stem}_layers.csv", in_place.encode()))
    return written


def _rounded(line: Mapping[str, Json]) -> dict[str, Json]:
    """Return a line of a file with numbers of as many digits as a person can use."""
    return {n: float(f"{v:.6g}") if isinstance(v, float) else v for n, v in line.items()}


def write(path: Path, content: bytes) -> Path:
    """Write a file, its folder made where there is none.

    Raises:
        InputError: it cannot be written.
    """
    make_folder(path.parent)
    write_file(path, content)
    return path


def figures(rows: Sequence[Row], device: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of one model's figures: curves, and each algorithm's layers.

    Raises:
        InputError: matplotlib is not installed.
    """
    from opdb.sweep.figure import draw_curves, draw_slowest

    first = rows[0].cell
    stem = f"{_stem(first).removesuffix('_' + first.algorithm.slug)}_{device}"
    stem = file_name(stem + _unusual(first.request))
    batch = f"batch {first.request.batch_size} {first.request.dtype}"
    title = f"{first.request.name}, {batch}, {first.mode}, on {device}"
    yield f"{stem}.png", draw_curves(rows, title)
    timed = sorted((row for row in rows if row.run.layers), key=lambda row: row.cell.size)
    last = {row.cell.algorithm.name: row for row in timed}
    for row in last.values():
        words = f"{title}\n{row.cell.algorithm.name} at {row.cell.size} pixels: slowest layers"
        yield f"{stem}_{row.cell.algorithm.slug}_layers.png", draw_slowest(row, words)


def has_matplotlib() -> bool:
    """Whether figures can be drawn here."""
    return find_spec("matplotlib") is not None


def write_all(
    store: Store,
    asked: SweepRequest,
    cells: Sequence[SweepSpec],
    device: str,
    output: Path,
    note: Callable[[str], None],
) -> list[Row]:
    """Write files and figures of all that was ever run of some cells; return their rows.

    Files are noted; without matplotlib it is noted how to have figures.

    Raises:
        InputError: a file cannot be written.
    """
    from opdb.bench.platform import current_settings
    from opdb.sweep.measuring import convolution_layers
    from opdb.sweep.results import SweepResults

    results = SweepResults(store, device, current_settings())
    found: list[Row] = []
    for name in dict.fromkeys(cell.request.name for cell in cells):
        of_model = [cell for cell in cells if cell.request.name == name]
        layers, calls = convolution_layers(of_model[0])
        rows = results.rows(of_model, calls)
        written = write_results(asked, rows, layers, device, output)
        if rows and has_matplotlib():
            folder = output / asked.stage
            written += [write(folder / file, content) for file, content in figures(rows, device)]
        elif rows:
            note(f"no figures without matplotlib: {install('plots')}")
        note("\n".join(f"written: {path}" for path in written))
        found += rows
    return found
