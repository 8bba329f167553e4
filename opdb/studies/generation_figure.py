"""What an output token takes over the batch size, drawn: time above, energy below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from opdb.studies.drawing import Drawing, new_figure

Line: TypeAlias = Sequence[tuple[int, float | None, float | None]]
"""Batch size, seconds and joules of an output token; None where one is not known."""

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_INK = "#333333"
_WIDTH_IN, _HEIGHT_IN = 8.0, 7.0


def draw(lines: Mapping[str, Line], title: str, command: str) -> Drawing:
    """Draw lines by their names; `command` is the command that repeats the figure.

    Raises:
        InputError: matplotlib is not installed.
    """
    with new_figure(_WIDTH_IN, _HEIGHT_IN, font_size=10) as figure:
        panels = figure.subplots(2, 1, sharex=True)
        for place, (axes, unit) in enumerate(zip(panels, ("s", "J"), strict=True), start=1):
            for number, (name, points) in enumerate(lines.items()):
                known = [(point[0], point[place]) for point in points if point[place] is not None]
                colour = _COLOURS[number % len(_COLOURS)]
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
