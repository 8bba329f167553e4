"""Charts of answers, for notebooks and files: bars with intervals, lines over batch sizes.

matplotlib is imported when a figure is drawn, which is saved the same every time.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from opdb.distribution import install
from opdb.errors import InputError
from opdb.layout import escaped
from opdb.records import Quantity
from opdb.spec import describe
from opdb.units import show

if TYPE_CHECKING:
    from opdb.commands.predict import Predicted
    from opdb.commands.show import Shown


DPI = 120


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: SVG text, PNG bytes, and what each mark shows, by its id in the SVG."""

    svg: str
    png: bytes
    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def _repr_svg_(self) -> str:
        return self.svg

    @classmethod
    def of(cls, figure: Any, marks: Mapping[str, Mapping[str, str]] | None = None) -> Drawing:
        """Return a figure of matplotlib as it is saved: the same bytes every time."""
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        return cls(svg.getvalue(), png_of(figure), marks or {})


def png_of(figure: Any) -> bytes:
    """Return a figure of matplotlib as PNG: the same bytes every time."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    return png.getvalue()


def blank_figure(width_in: float, height_in: float) -> Any:
    """Return an empty figure of matplotlib; where that is not installed, say how to install it."""
    try:
        from matplotlib import figure
    except ImportError as error:
        raise InputError(
            f"a figure needs matplotlib, which is not installed; {install('plots')}"
        ) from error
    return figure.Figure(figsize=(width_in, height_in), layout="constrained")


@contextmanager
def new_figure(width_in: float, height_in: float, *, font_size: float) -> Iterator[Any]:
    """Yield an empty figure of matplotlib, to be drawn and saved inside the block."""
    blank_figure(width_in, height_in)
    import matplotlib

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "opdb", "font.size": font_size}
    with matplotlib.rc_context(settings):
        yield blank_figure(width_in, height_in)


_COLOURS = ("#0072B2", "#D55E00")
_WIDTH_IN, _BAR_IN, _FRAME_IN = 9.0, 0.28, 1.1


@dataclass(frozen=True)
class Bar:
    """A bar: its label, its value in the panel's unit, and the ends of its interval."""

    label: str
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """Bars of one quantity; a unit of "%" has values in 0..100."""

    title: str
    unit: str
    bars: Sequence[Bar]


def draw_bars(panels: Sequence[Panel], title: str) -> Drawing:
    """Draw panels beside each other, the first bar of each at the top."""
    most = max(len(panel.bars) for panel in panels)
    with new_figure(_WIDTH_IN, _FRAME_IN + _BAR_IN * most, font_size=9) as figure:
        from matplotlib.ticker import FuncFormatter

        for axes, panel, colour in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, _COLOURS, strict=False
        ):
            places = range(len(panel.bars))
            axes.barh(places, [bar.value for bar in panel.bars], color=colour)
            for place, bar in enumerate(panel.bars):
                if bar.interval is not None:
                    axes.plot(bar.interval, (place, place), color="#333333", marker="|")
            labels = [escaped(bar.label).replace("$", r"\$") for bar in panel.bars]
            axes.set_yticks(places, labels)
            axes.set_title(panel.title)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _, u=panel.unit: show(x, u)))
            axes.locator_params(axis="x", nbins=4)
            axes.invert_yaxis()
        figure.suptitle(escaped(title).replace("$", r"\$"), fontsize=11)
        return Drawing.of(figure)


MOST = 12
"""Bars of a chart; the rest of a pass is one more."""


def pass_chart(found: Predicted) -> Drawing:
    """Draw the shares of a pass's time and energy by kind, the largest first."""
    panels = []
    for title, of in (("time", "share_time"), ("energy", "share_energy")):
        shares: dict[str, float] = defaultdict(float)
        for part in found.prediction.parts:
            shares[part.configuration.title] += 100 * getattr(part, of)
        panels.append(Panel(title, "%", list(_largest(shares))))
    return draw_bars(panels, _title(found))


def _largest(shares: dict[str, float]) -> Iterator[Bar]:
    ordered = sorted(((k, v) for k, v in shares.items() if v > 0), key=lambda each: -each[1])
    yield from (Bar(*each) for each in ordered[:MOST])
    if len(ordered) > MOST:
        yield Bar("others", sum(share for _, share in ordered[MOST:]))


def predictions_chart(found: Sequence[Predicted]) -> Drawing:
    """Draw the predicted time and energy of a pass of each, with intervals."""
    timed = [each for each in found if each.time_s is not None]
    if not timed:
        raise InputError("no prediction has a time, so there is nothing to draw")
    times = [Bar(_title(p), p.time_s or 0.0, p.prediction.time_interval_s) for p in timed]
    energies = [
        Bar(_title(each), each.energy_j, each.prediction.energy_interval_j)
        for each in timed
        if each.energy_j is not None
    ]
    panels = [Panel("time, 1 pass", "s", times)]
    panels += [Panel("energy, 1 pass", "J", energies)] if energies else []
    return draw_bars(panels, "predicted, with 95 % intervals")


def costs_chart(rows: Sequence[Shown], title: str) -> Drawing:
    """Draw the time and energy of one call of each operator, in the order of the rows."""
    panels = [
        Panel(
            name, unit, [_bar(row, held) for row in rows[:MOST] if (held := getattr(row.cost, of))]
        )
        for name, unit, of in (("time, 1 call", "s", "time_s"), ("energy, 1 call", "J", "energy_j"))
    ]
    return draw_bars([panel for panel in panels if panel.bars], title)


def _bar(row: Shown, held: Quantity) -> Bar:
    return Bar(f"{row.configuration.title} {row.configuration.key[:6]}", held.value, held.interval)


def _title(found: Predicted) -> str:
    workload = found.prediction.workload
    return f"{workload.name}, {describe(workload)}, {found.prediction.mode}"


Line: TypeAlias = Sequence[tuple[int, float | None, float | None]]
"""Batch size, seconds and joules of an output token; None where one is not known."""

_LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_INK = "#333333"
_LINES_IN, _HIGH_IN = 8.0, 7.0


def draw(lines: Mapping[str, Line], title: str, command: str) -> Drawing:
    """Draw lines by their names; `command` is the command that repeats the figure."""
    with new_figure(_LINES_IN, _HIGH_IN, font_size=10) as figure:
        panels = figure.subplots(2, 1, sharex=True)
        for place, (axes, unit) in enumerate(zip(panels, ("s", "J"), strict=True), start=1):
            for number, (name, points) in enumerate(lines.items()):
                known = [(point[0], point[place]) for point in points if point[place] is not None]
                colour = _LINE_COLOURS[number % len(_LINE_COLOURS)]
                if known:
                    axes.plot(*zip(*known, strict=True), "o-", color=colour, label=name)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_ylabel(f"{unit} per output token")
            axes.grid(visible=True, alpha=0.3)
        panels[1].set_xlabel("batch size")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False
        )
        figure.suptitle(title, fontsize=12, color=_INK)
        figure.supxlabel(command, fontsize=7.5, color="#666666")
        return Drawing.of(figure)
