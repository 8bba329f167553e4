"""Rooflines as a figure, and as one HTML page that shows what each mark is."""

from __future__ import annotations

import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any, Literal

from opdb.commands._predictions import blank_figure, png_of
from opdb.studies.roofline.counters import MEMORY
from opdb.studies.roofline.points import (
    ModelRoofline,
    Peaks,
    Point,
    Study,
    least_energy,
    least_time,
)
from opdb.units import show, show_share

What = Literal["time", "energy"]
_Box = tuple[float, float, float, float]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_OTHERS = "#9a9a9a"
_INK = "#333333"
_LABELLED = 9
_LEAST_LABELLED = 0.01
_CHARACTER_PT, _LINE_PT = 4.4, 9.5
_STAR = 19.0
_BARE = 2.0  # FLOP/byte: few operators lie between additions and products
_PLATE: Any = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.4}
_WIDTH_IN, _HEIGHT_IN = 9.0, 11.0
_SMALLEST, _LARGEST = 5.0, 26.0
_STEPS = 400


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: SVG text, PNG bytes, and what each mark shows, by its id in the SVG."""

    svg: str
    png: bytes
    marks: Mapping[str, Mapping[str, str]]


def draw(study: Study, titles: Sequence[str], command: str) -> Drawing:
    """Draw a study; `titles` name its models, `command` is the command that repeats it."""
    blank_figure(_WIDTH_IN, _HEIGHT_IN)  # says how to install matplotlib
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "opdb", "font.size": 10}):
        figure = blank_figure(_WIDTH_IN, _HEIGHT_IN)
        marks: dict[str, Mapping[str, str]] = {}
        above, below = figure.subplots(2, 1)
        panels = [_Panel(above, study, titles, "time"), _Panel(below, study, titles, "energy")]
        for panel in panels:
            marks |= panel.draw()
        figure.suptitle(_title(study, titles), fontsize=12, color=_INK)
        figure.supxlabel(_source(study, command), fontsize=7.5, color="#666666")
        figure.draw_without_rendering()
        for panel in panels:
            panel.write()
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        return Drawing(svg.getvalue(), png_of(figure), marks)


def _title(study: Study, titles: Sequence[str]) -> str:
    models = titles[0] if len(titles) == 1 else f"{len(titles)} models"
    return f"{models}, {study.mode}, on {study.device}"


def _source(study: Study, command: str) -> str:
    passes = "pass" if len(study.models) == 1 else "passes"
    return (
        f"{command}\nsolid roofs: {study.measured.source}\ndashed roofs: {study.vendor.source}\n"
        "operations and bytes are counted; the larger a mark, the more of the "
        f"{passes}' time (above) or energy (below)"
    )


class _Panel:
    def __init__(self, axes: Any, study: Study, titles: Sequence[str], what: What) -> None:
        self.axes, self.study, self.titles, self.what = axes, study, titles, what
        self.unit = "FLOP/s" if what == "time" else "FLOP/J"
        self.drawn = [
            (number, model, place, point)
            for number, model in enumerate(study.models)
            for place, point in enumerate(model.points)
            if point.flops and point.intensity and self._rate(point)
        ]
        self.colours = self._colours()

    def draw(self) -> dict[str, Mapping[str, str]]:
        self._scales()
        self._roofs(self.study.vendor, dashed=True)
        self._roofs(self.study.measured, dashed=False)
        marks = self._points() | self._models()
        if self.what == "time":
            self._legend()
        self._undrawn()
        return marks

    def write(self) -> None:
        rate = self.study.measured.bytes_per_s.get(MEMORY)
        if self.what == "time" and rate:
            self._along(rate, f"memory, {show(rate, 'B/s', digits=3)}")
        self._labels()

    def _rate(self, of: Point | ModelRoofline) -> float | None:
        return of.flops_per_s if self.what == "time" else of.flops_per_j

    def _share(self, model: ModelRoofline, point: Point) -> float:
        if self.what == "time":
            return model.share_time(point)
        return model.share_energy(point) or 0.0

    def _colours(self) -> dict[str, str]:
        """Return a colour for each model, or for each kind of the only one; the rest is grey."""
        weights: dict[str, float] = {}
        for number, model, _, point in self.drawn:
            name = self._group(number, point)
            weights[name] = weights.get(name, 0.0) + model.share_time(point)
        names = sorted(weights, key=lambda name: weights[name], reverse=True)
        if len(self.study.models) > 1:
            names = [title for title in self.titles if title in weights]
        return dict(zip(names, _COLOURS, strict=False))

    def _group(self, number: int, point: Point) -> str:
        return self.titles[number] if len(self.study.models) > 1 else point.configuration.kind

    def _scales(self) -> None:
        self.axes.set_xscale("log")
        self.axes.set_yscale("log")
        rates = [rate for _, _, _, p in self.drawn if (rate := self._rate(p))]
        rates += [rate for model in self.study.models if (rate := self._rate(model))]
        intensities = [p.intensity for _, _, _, p in self.drawn if p.intensity]
        intensities += [m.intensity for m in self.study.models if m.intensity]
        low, high = min(intensities, default=1.0), max(intensities, default=1.0)
        self.intensities = (min(low / 2, 0.05), max(high * 6, 3000.0))
        tops = [
            top
            for peaks in (self.study.measured, self.study.vendor)
            for unit in self._units()
            if (top := self._roof(self.intensities[1], unit, peaks))
        ]
        self.axes.set_xlim(*self.intensities)
        highest = max([*tops, *rates], default=1.0)
        self.axes.set_ylim(max(min(rates, default=1.0), highest / 1e5) / 3, 1.8 * highest)
        self.axes.set_xlabel("arithmetic intensity, FLOP/byte", color=_INK)
        self.axes.set_ylabel(self.unit, color=_INK)
        self.axes.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
        self.axes.set_axisbelow(True)
        from matplotlib.ticker import FuncFormatter

        self.axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: show(y, self.unit)))
        self.axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        for side in ("top", "right"):
            self.axes.spines[side].set_visible(False)

    def _units(self) -> list[str]:
        units = {p.unit for _, _, _, p in self.drawn if p.unit}
        known = self.study.measured.flops_per_s
        return sorted(units, key=lambda unit: known.get(unit, 0.0))

    def _roof(self, intensity: float, unit: str | None, peaks: Peaks) -> float | None:
        """Return the highest rate at an intensity: operations over the least time or energy."""
        least = least_time if self.what == "time" else least_energy
        bound = least(intensity, 1.0, unit, peaks)
        return intensity / bound.least if bound else None

    def _roofs(self, peaks: Peaks, *, dashed: bool) -> None:
        low, high = self.intensities
        grid = [low * (high / low) ** (step / _STEPS) for step in range(_STEPS + 1)]
        style = {"linestyle": "--", "color": "#aaaaaa", "linewidth": 1.0}
        if not dashed:
            style = {"linestyle": "-", "color": _INK, "linewidth": 1.4}
        tops: list[float] = []
        for unit in self._units():
            roof = [(x, y) for x in grid if (y := self._roof(x, unit, peaks))]
            if not roof:
                continue
            self.axes.plot(*zip(*roof, strict=True), zorder=1.5 if dashed else 2, **style)
            if not dashed and not any(abs(roof[-1][1] / top - 1) < 0.3 for top in tops):
                tops.append(roof[-1][1])
                text = f"{unit}\n{show(roof[-1][1], self.unit, digits=3)}"
                self.axes.annotate(
                    text, (1.0, roof[-1][1]), xycoords=("axes fraction", "data"), xytext=(5, 0),
                    textcoords="offset points", va="center", fontsize=8.5, color=_INK,
                    annotation_clip=False,
                )  # fmt: skip

    def _along(self, rate: float, text: str) -> None:
        x = _BARE
        ends = self.axes.transData.transform([(x, x * rate), (10 * x, 10 * x * rate)])
        rise, run = ends[1][1] - ends[0][1], ends[1][0] - ends[0][0]
        self.axes.annotate(
            text, (x, x * rate), xytext=(-4, 4), textcoords="offset points", fontsize=8.5,
            color=_INK, rotation=math.degrees(math.atan2(rise, run)), rotation_mode="anchor",
            bbox=_PLATE,
        )  # fmt: skip

    def _points(self) -> dict[str, Mapping[str, str]]:
        marks: dict[str, Mapping[str, str]] = {}
        by_share = sorted(self.drawn, key=lambda each: self._share(each[1], each[3]), reverse=True)
        for number, model, place, point in by_share:
            name = f"{self.what}-{number}-{place}"
            share = self._share(model, point)
            size = _mark_size(share)
            self.axes.plot(
                [point.intensity], [self._rate(point)], "o", markersize=size, gid=name, zorder=3,
                color=self.colours.get(self._group(number, point), _OTHERS), alpha=0.8,
                markeredgecolor="white", markeredgewidth=0.8,
            )  # fmt: skip
            group = self._group(number, point)
            marks[name] = {"group": group, **told(self.titles[number], model, point)}
        return marks

    def _models(self) -> dict[str, Mapping[str, str]]:
        marks: dict[str, Mapping[str, str]] = {}
        for number, model in enumerate(self.study.models):
            rate, title = self._rate(model), self.titles[number]
            if not rate or not model.intensity:
                continue
            several = len(self.study.models) > 1
            name = f"{self.what}-{number}-model"
            self.axes.plot(
                [model.intensity], [rate], "*", markersize=_STAR, gid=name, zorder=4,
                color=self.colours.get(title, _OTHERS) if several else "#F0E442",
                markeredgecolor="black", markeredgewidth=0.9,
            )  # fmt: skip
            marks[name] = {"group": "whole passes", **told_model(title, model)}
        return marks

    def _labels(self) -> None:
        by_share = sorted(self.drawn, key=lambda each: self._share(each[1], each[3]), reverse=True)
        boxes = [box for _, model, _, point in by_share for box in self._mark_box(model, point)]
        for model in self.study.models:
            boxes += self._box(model.intensity, self._rate(model), _STAR)
        said = 0
        for _, model, _, point in by_share:
            share = self._share(model, point)
            if said == _LABELLED or share < _LEAST_LABELLED:
                break
            text = f"{point.configuration.kind} × {point.count}, {show_share(share)}"
            for box in self._mark_box(model, point):
                said += self._label(text, box, boxes)

    def _mark_box(self, model: ModelRoofline, point: Point) -> list[_Box]:
        """Return the box of a mark, in points of the page; none for a mark without a rate."""
        size = _mark_size(self._share(model, point))
        return self._box(point.intensity, self._rate(point), size)

    def _box(self, intensity: float | None, rate: float | None, size: float) -> list[_Box]:
        if not rate or not intensity:
            return []
        x, y = self.axes.transData.transform((intensity, rate)) * self._points_a_pixel
        return [(x - size / 2, y - size / 2, x + size / 2, y + size / 2)]

    @property
    def _points_a_pixel(self) -> float:
        return float(72 / self.axes.figure.dpi)

    def _label(self, text: str, mark: _Box, taken: list[_Box]) -> bool:
        """Write beside a mark where no other mark or label is; return whether there was room."""
        frame = self.axes.bbox.extents * self._points_a_pixel
        width, height = _CHARACTER_PT * len(text), _LINE_PT
        left, right = mark[0] - 2 - width, mark[2] + 2
        middle = (mark[1] + mark[3] - height) / 2
        low, high = mark[1] - height, mark[3]
        centred = min((mark[0] + mark[2] - width) / 2, frame[2] - width - 1)
        beside = [(x, y) for x in (right, left) for y in (middle, low + 4, high - 4)]
        for x, y in (*beside, (centred, low), (centred, high), (centred, low - 9)):
            box = (x, y, x + width, y + height)
            inside = frame[0] < box[0] and box[2] < frame[2] and frame[1] < box[1]
            if not inside or any(_overlap(box, other) for other in taken):
                continue
            taken.append(box)
            self.axes.annotate(
                text, (x - frame[0], y - frame[1] + 2), xycoords="axes points", fontsize=8,
                color=_INK, zorder=2.5, bbox=_PLATE,
            )  # fmt: skip
            return True
        return False

    def _legend(self) -> None:
        from matplotlib.lines import Line2D

        shape: Any = {"linestyle": "none", "marker": "o", "markersize": 7}
        handles = [
            Line2D([], [], color=colour, label=name, **shape)
            for name, colour in self.colours.items()
        ]
        groups = {self._group(number, point) for number, _, _, point in self.drawn}
        if groups - self.colours.keys():
            handles.append(Line2D([], [], color=_OTHERS, label="others", **shape))
        star: Any = {**shape, "marker": "*", "markersize": 12, "markeredgecolor": "black"}
        handles.append(Line2D([], [], color="#F0E442", label="a whole pass", **star))
        handles.append(Line2D([], [], color="#aaaaaa", linestyle="--", label="data sheet"))
        self.axes.legend(handles=handles, loc="lower right", fontsize=8.5, framealpha=0.9)

    def _undrawn(self) -> None:
        drawn = {(number, place) for number, _, place, _ in self.drawn}
        left = [
            (model, point)
            for number, model in enumerate(self.study.models)
            for place, point in enumerate(model.points)
            if point.works and (number, place) not in drawn
        ]
        if left and len(self.study.models) == 1:
            calls = sum(point.count for _, point in left)
            share = show_share(sum(self._share(model, point) for model, point in left))
            text = f"not drawn, as without FLOPs: {share} of the {self.what} (calls: {calls})"
            self.axes.annotate(
                text, (0.01, 0.015), xycoords="axes fraction", fontsize=8, color="#666666"
            )


def _mark_size(share: float) -> float:
    """Return a mark's diameter (points): its area is in proportion to the share."""
    return max(_SMALLEST, min(_LARGEST, 60 * math.sqrt(share)))


def _overlap(first: _Box, second: _Box) -> bool:
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )


def told(title: str, model: ModelRoofline, point: Point) -> dict[str, str]:
    parameters = ", ".join(f"{k}={v}" for k, v in point.configuration.parameters.items())
    shapes = "; ".join(f"{n} {_shape(v)}" for n, v in point.configuration.inputs.items())
    said = {
        "": f"{point.configuration.kind} × {point.count} in {title}",
        "inputs": shapes,
        "arguments": parameters or "as by default",
        "a call": f"{show(point.flops, 'FLOP')}, {show(point.bytes_moved, 'B')}, "
        f"{show(point.time_s, 's')}, {show(point.energy_j, 'J')}",
        "rates": f"{show(point.flops_per_s, 'FLOP/s')}, {show(point.bytes_per_s, 'B/s')}, "
        f"{show(point.flops_per_j, 'FLOP/J')}",
        "share": f"{show_share(model.share_time(point))} of the time, "
        f"{show_share(model.share_energy(point))} of the energy",
    }
    for name, roofs in (("measured peaks", point.measured), ("data sheet", point.vendor)):
        bounds = [
            f"{what}: {bound.side}, {show_share(bound.reached)} reached"
            for what, bound in (("time", roofs.time), ("energy", roofs.energy))
            if bound is not None
        ]
        said[name] = "; ".join(bounds) or "no peak is known"
    return said


def told_model(title: str, model: ModelRoofline) -> dict[str, str]:
    return {
        "": f"{title}, a whole pass",
        "counts": f"{show(model.flops, 'FLOP')}, {show(model.bytes_moved, 'B')}",
        "predicted": f"{show(model.time_s, 's')}, {show(model.energy_j, 'J')}",
        "rates": f"{show(model.flops_per_s, 'FLOP/s')}, {show(model.flops_per_j, 'FLOP/J')}",
        "of its operators' roofs": f"time: {show_share(model.reached('time'))}, "
        f"energy: {show_share(model.reached('energy'))}",
    }


def _shape(value: Any) -> str:
    if isinstance(value, dict) and "shape" in value:
        return "×".join(map(str, value["shape"])) + f" {value.get('dtype', '')}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shape, value)) + "]"
    if isinstance(value, dict) and "same" in value:
        return "the same tensor again"
    return str(value)


def page(drawing: Drawing, title: str) -> str:
    svg = drawing.svg[drawing.svg.index("<svg") :]
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    # no text in the data can end the element that holds it
    marks = json.dumps(drawing.marks).replace("<", "\\u003c")
    file = files("opdb.studies.roofline") / "assets" / "page.html"
    template = Template(file.read_text(encoding="utf-8"))
    return template.substitute(title=html.escape(title), svg=svg, marks=marks)
