"""A matrix as a figure: images per second and energy an image against the batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opdb.commands._figures import blank_figure, png_of
from opdb.errors import InputError
from opdb.studies.train.rows import Line

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS, _DASHES = "osD^v<>PX*", ("-", "--", ":", "-.")

_NARROW = 2.0
"""A logarithmic axis that spans less than this factor is widened: it would have no number."""

Value = tuple[float, float | None, float | None]
"""Mean, low and high end of its interval."""


def draw(lines: Sequence[Line], title: str, command: str) -> bytes:
    """Draw throughput above and energy an image below, a colour a model, a mark a sort, as PNG.

    Of one model alone each sort has its colour. Bars are 95 % intervals. An energy that was not
    read is not drawn, and the panel says why.
    """
    drawn = [line for line in lines if line.figures is not None]
    if not drawn:
        raise InputError("there is nothing to draw: no training of the matrix was measured yet")
    figure = blank_figure(10.0, 8.0)
    above, below = figure.subplots(2, 1, sharex=True)
    _panel(above, drawn, _throughput, "images a second")
    if not _panel(below, drawn, _energy, "energy an image, J"):
        why = sorted({str(line.figures.energy_reason) for line in drawn if line.figures})
        text = "no energy:\n" + "\n".join(why)
        below.set_yticks([])
        below.text(0.5, 0.5, text, transform=below.transAxes, ha="center", va="center", wrap=True)
    _sizes(below, sorted({line.cell.combination.batch_size for line in drawn}))
    below.set_xlabel(f"batch size\n{command}")
    shared = _shared(drawn)
    figure.suptitle(", ".join([title, *(part for part in drawn[0].cell.parts if part in shared)]))
    handles = above.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", fontsize=8, ncols=2, frameon=False)
    return png_of(figure)


def _throughput(line: Line) -> Value | None:
    found, images = line.figures, line.cell.combination.images_per_step
    if found is None:
        return None
    time = found.time_s
    low = None if time.high is None else images / time.high
    high = None if time.low is None else images / time.low
    return images / time.mean, low, high


def _energy(line: Line) -> Value | None:
    found, images = line.figures, line.cell.combination.images_per_step
    if found is None or found.energy_j is None:
        return None
    energy = found.energy_j
    low = None if energy.low is None else energy.low / images
    high = None if energy.high is None else energy.high / images
    return energy.mean / images, low, high


def _panel(
    axes: Any, lines: Sequence[Line], value: Callable[[Line], Value | None], label: str
) -> bool:
    """Draw one quantity of every series; return whether there was anything to draw."""
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    shared = _shared(lines)
    models = list(dict.fromkeys(line.cell.combination.model for line in lines))
    sorts = list(dict.fromkeys(line.cell.parts for line in lines))
    found = False
    for (model, sort), some in _series(lines).items():
        points = [(line, v) for line in some if (v := value(line)) is not None]
        if not points:
            continue
        found = True
        number = sorts.index(sort)
        shade = models.index(model) if len(models) > 1 else number
        axes.errorbar(
            [line.cell.combination.batch_size for line, _ in points],
            [mean for _, (mean, _, _) in points],
            yerr=_bars([v for _, v in points]),
            color=_COLOURS[shade % len(_COLOURS)],
            marker=_MARKS[number % len(_MARKS)],
            linestyle=_DASHES[number % len(_DASHES)],
            linewidth=1.2,
            markersize=5,
            capsize=3,
            label=" ".join([model, *(part for part in sort if part not in shared)]),
        )
    if found:
        _in_plain_numbers(axes)
    return found


def _series(lines: Sequence[Line]) -> dict[tuple[str, tuple[str, ...]], list[Line]]:
    found: dict[tuple[str, tuple[str, ...]], list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.cell.combination.batch_size):
        found.setdefault((line.cell.combination.model, line.cell.parts), []).append(line)
    return found


def _shared(lines: Sequence[Line]) -> set[str]:
    """Return what all of them are: the title says it once."""
    return set.intersection(*(set(line.cell.parts) for line in lines))


def _in_plain_numbers(axes: Any) -> None:
    """Make the upright axis logarithmic, with numbers written out: 0.1, where it is 10⁻¹ else."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log", nonpositive="clip")
    low, high = axes.get_ylim()
    if high < _NARROW * low:
        axes.set_ylim(low / _NARROW, high * _NARROW)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _bars(values: Sequence[Value]) -> list[list[float]]:
    """Return how far the intervals reach below and above the means; 0 where there is none."""
    below = [0.0 if low is None else mean - low for mean, low, _ in values]
    above = [0.0 if high is None else high - mean for mean, _, high in values]
    return [below, above]


def _sizes(axes: Any, sizes: Sequence[int]) -> None:
    """Make the batch sizes an axis of doublings, with those alone written that were run."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), labels=list(map(str, sizes)))
    axes.minorticks_off()
    if len(sizes) == 1:
        axes.set_xlim(sizes[0] / 2, sizes[0] * 2)
