"""The files and figures of a sweep, by model and algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.algorithms.names import ALGORITHMS
from opdb.commands._figures import blank_figure, png_of
from opdb.distribution import install
from opdb.files import file_name, make_folder, write_file
from opdb.records import ELSEWHERE, Json
from opdb.spec import ModelSpec
from opdb.studies.sweep.request import SweepRequest, SweepSpec
from opdb.studies.sweep.rows import LAYERS, OVERALL, Row
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


def _unusual(request: ModelSpec) -> str:
    said = [f"b{request.batch_size}"] if request.batch_size != 1 else []
    said += [str(request.dtype)] if request.dtype != "float32" else []
    said += [str(request.memory_format)] if request.memory_format != "contiguous" else []
    return "".join(f"_{each}" for each in said)


def write_results(
    asked: SweepRequest, rows: Iterable[Row], layers: Any, device: str, output: Path
) -> list[Path]:
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
    make_folder(path.parent)
    write_file(path, content)
    return path


def figures(rows: Sequence[Row], device: str) -> Iterator[tuple[str, bytes]]:
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
    """
    from opdb.bench.session import current_settings
    from opdb.studies.sweep.measuring import convolution_layers
    from opdb.studies.sweep.rows import SweepResults

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


_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#882255", "#E69F00"),
    *("#56B4E9", "#999999", "#CC79A7", "#B8A300", "#000000"),
)
_MARKS = "osD^v<>pX*"
_STYLES = dict(zip(ALGORITHMS, zip(_COLOURS, _MARKS, strict=True), strict=True))
"""Each algorithm's colour and mark, the same in every figure."""

_SLOWEST = 12
_TICKS = 12
_HOLLOW = "input size, pixels a side; hollow: some convolution ran otherwise (partial)"


def draw_curves(rows: Sequence[Row], title: str) -> bytes:
    """Draw one model's time and energy against the input's size, a line an algorithm, as PNG.

    Partial cells are hollow. What ran the same kernels as another algorithm, or nowhere, is named
    so beside the panels. An energy that was not read is not drawn, and the panel says so.
    """
    figure = blank_figure(9.0, 8.0)
    above, below = figure.subplots(2, 1, sharex=True)
    above.set_title(title)
    by = _by(rows)
    for axes, column, label in (
        (above, "mean_ms", "a pass, ms"),
        (below, "energy_per_inference_j", "an inference, J"),
    ):
        drawn = [_curve(axes, name, of, column) for name, of in by.items()]
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if any(drawn):
            _in_plain_numbers(axes)
        else:
            axes.set_yticks([])
            axes.text(0.5, 0.5, "nothing was read", transform=axes.transAxes, ha="center")
    below.set_xlabel(_HOLLOW)
    sizes = sorted({row.cell.size for row in rows})
    below.set_xticks(sizes[:: math.ceil(len(sizes) / _TICKS)])
    handles = [_handle(name, of) for name, of in by.items()]
    figure.legend(handles=handles, loc="outside right upper", fontsize=8)
    return png_of(figure)


def _handle(algorithm: str, rows: Sequence[Row]) -> Any:
    from matplotlib.lines import Line2D

    colour, mark = _STYLES[algorithm]
    if all(row.run.outcome != "ok" for row in rows):
        said = ", ".join(sorted({row.run.outcome.replace("_", " ") for row in rows}))
        return Line2D([], [], linestyle="", label=f"{algorithm}:\n{said}")
    same = {row.same_as for row in rows if row.run.outcome == "ok"}
    [other] = same if len(same) == 1 else [None]
    label = algorithm if other is None else f"{algorithm}:\nkernels of {other}"
    return Line2D([], [], color=colour, linewidth=1, marker=mark, markersize=4, label=label)


def _in_plain_numbers(axes: Any) -> None:
    """Make the upright axis logarithmic, and write 0.6 where matplotlib would write 6e-01."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axes.set_yscale("log")
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which(Plain(minor_thresholds=(1.5, 0.5)))


def _by(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.cell.size):
        found.setdefault(row.cell.algorithm.name, []).append(row)
    return found


def _curve(axes: Any, algorithm: str, rows: Sequence[Row], column: str) -> bool:
    points = [(row, value) for row in rows if (value := OVERALL.document(row)[column]) is not None]
    if not points:
        return False
    colour, mark = _STYLES[algorithm]
    sizes = [row.cell.size for row, _ in points]
    axes.plot(sizes, [value for _, value in points], color=colour, linewidth=1)
    for partial, inside in ((False, colour), (True, "white")):
        chosen = [
            (row.cell.size, value)
            for row, value in points
            if bool(row.run.facts.get(ELSEWHERE)) == partial
        ]
        if chosen:
            style = {"color": colour, "markerfacecolor": inside, "markersize": 5}
            axes.plot(*zip(*chosen, strict=True), mark, **style)
    return True


def draw_slowest(row: Row, title: str) -> bytes:
    """Draw the slowest leaf modules of one run, in place, as PNG."""
    layers: Mapping[str, float] = row.run.layers or {}
    slowest = sorted(layers.items(), key=lambda item: -item[1])[:_SLOWEST]
    figure = blank_figure(9.0, 0.35 * len(slowest) + 1.5)
    axes = figure.subplots(1, 1)
    names = [path for path, _ in slowest]
    axes.barh(names, [1e3 * seconds for _, seconds in slowest], color=_COLOURS[0])
    axes.invert_yaxis()
    axes.set_xlabel("in place, ms")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    return png_of(figure)
