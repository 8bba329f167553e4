"""Charts of answers, for notebooks: bars of quantities beside each other, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opdb.layout import escaped
from opdb.studies.drawing import Drawing, new_figure
from opdb.units import show

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
    """Draw panels beside each other, the first bar of each at the top.

    Raises:
        InputError: matplotlib is not installed.
    """
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
