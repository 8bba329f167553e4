"""What modes save, drawn over the traits of the workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opdb.records import Mode
from opdb.studies.drawing import Drawing, new_figure
from opdb.studies.gains import TRAITS, Gains, Trait, What

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_PANELS = ("launches_per_s", "intensity", "fusible_share")
_LOGARITHMIC = ("launches_per_s", "calls_per_s", "intensity")
_INK = "#333333"
_WIDTH_IN, _HEIGHT_IN = 11.0, 7.0


def draw_gains(found: Sequence[Gains], title: str, command: str) -> Drawing:
    """Draw savings of time above and of energy below, over three traits; a colour for each mode.

    A mark is a workload. Without kernels, as on a CPU, operator calls stand in for launches;
    without any energy its row is left out.

    Raises:
        InputError: matplotlib is not installed.
    """
    modes = list(dict.fromkeys(mode for each in found for mode in each.saves))
    with new_figure(_WIDTH_IN, _HEIGHT_IN, font_size=9) as figure:
        traits = _traits(found)
        rows = _rows(found)
        panels = figure.subplots(len(rows), len(traits), sharey="row", sharex="col", squeeze=False)
        for what, row in zip(rows, panels, strict=True):
            for trait, axes in zip(traits, row, strict=True):
                _panel(axes, found, modes, trait, what)
            row[0].set_ylabel(f"{what} saved of eager, %")
        for trait, axes in zip(traits, panels[-1], strict=True):
            axes.set_xlabel(f"{trait.words}{f', {trait.unit}' if trait.unit else ''}")
        handles = panels[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside right upper", frameon=False)
        figure.suptitle(title, fontsize=12, color=_INK)
        figure.supxlabel(command, fontsize=7.5, color="#666666")
        return Drawing.of(figure)


def _rows(found: Sequence[Gains]) -> list[What]:
    """Return what is drawn: time, and energy where any is known."""
    known = any(saves.energy is not None for each in found for saves in each.saves.values())
    return ["time", "energy"] if known else ["time"]


def _traits(found: Sequence[Gains]) -> list[Trait]:
    known = any(each.traits["launches_per_s"] is not None for each in found)
    names = _PANELS if known else ("calls_per_s", *_PANELS[1:])
    return [trait for trait in TRAITS if trait.name in names]


def _panel(
    axes: Any, found: Sequence[Gains], modes: Sequence[Mode], trait: Trait, what: What
) -> None:
    """Draw what each mode saves over one trait."""
    axes.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=1)
    if trait.name in _LOGARITHMIC:
        axes.set_xscale("log")
    for number, mode in enumerate(modes):
        points = [
            (trait.scale * value, 100 * saved)
            for each in found
            if (value := each.traits[trait.name]) is not None
            and (value > 0 or trait.name not in _LOGARITHMIC)
            and mode in each.saves
            and (saved := getattr(each.saves[mode], what)) is not None
        ]
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=22,
            color=_COLOURS[number % len(_COLOURS)],
            alpha=0.75,
            linewidths=0,
            label=mode,
        )
    axes.spines[["top", "right"]].set_visible(False)
