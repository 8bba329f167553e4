"""A sweep as figures: time and energy against the input's size, and the slowest layers."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from opdb.algorithms.names import ALGORITHMS
from opdb.distribution import install
from opdb.errors import InputError
from opdb.records import ELSEWHERE
from opdb.sweep.rows import OVERALL, Row

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


def _figure(rows: int, height_in: float) -> tuple[Any, Sequence[Any]]:
    """Return a figure and its panels, one above the other.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            f"a figure needs matplotlib, which is not installed; {install('plots')}"
        ) from error
    figure = Figure(figsize=(9.0, height_in), layout="constrained")
    panels = figure.subplots(rows, 1, squeeze=False, sharex=True)
    return figure, [row[0] for row in panels]


def _png(figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120, metadata={"Software": None})
    return stream.getvalue()


def draw_curves(rows: Sequence[Row], title: str) -> bytes:
    """Draw one model's time and energy against the input's size, a line an algorithm, as PNG.

    Partial cells are hollow. What ran the same kernels as another algorithm, or nowhere, is named
    so beside the panels. An energy that was not read is not drawn, and the panel says so.

    Raises:
        InputError: matplotlib is not installed.
    """
    figure, (above, below) = _figure(2, 8.0)
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
    return _png(figure)


def _handle(algorithm: str, rows: Sequence[Row]) -> Any:
    """Return the entry of an algorithm beside the panels."""
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
    """Draw one algorithm's line; return whether there was anything to draw."""
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
    """Draw the slowest leaf modules of one run, in place, as PNG.

    Raises:
        InputError: matplotlib is not installed.
    """
    layers: Mapping[str, float] = row.run.layers or {}
    slowest = sorted(layers.items(), key=lambda item: -item[1])[:_SLOWEST]
    figure, [axes] = _figure(1, 0.35 * len(slowest) + 1.5)
    names = [path for path, _ in slowest]
    axes.barh(names, [1e3 * seconds for _, seconds in slowest], color=_COLOURS[0])
    axes.invert_yaxis()
    axes.set_xlabel("in place, ms")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    return _png(figure)
