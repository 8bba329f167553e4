"""The report as one HTML file, which opens from disk and needs no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from opdb import __version__
from opdb.commands.validate import REGIMES, groups
from opdb.harvest.coverage import FAILED
from opdb.layout import escaped
from opdb.predict.predictor import Answer
from opdb.records import Json
from opdb.studies.report.content import (
    ACCURACY,
    COVERAGE,
    KINDS,
    MISSING,
    PARTS,
    PENDING,
    POINTS,
    REPLAYS,
    SAMPLES,
    SCALING,
    Content,
    missing,
    roofs_document,
    runs_document,
)
from opdb.studies.roofline.report import title_of
from opdb.tables import Column, Row, Rows, Table
from opdb.units import plural

Link = Callable[[Row], str]


def table_html(
    name: str,
    caption: str,
    table: Table[Row],
    rows: Iterable[Row],
    link: Link[Row] | None = None,
) -> str:
    """Return a table with its caption, in a region of its own that can be scrolled.

    `name` is the element's id. `link` gives what the first cell of a row leads to. A cell whose
    text is not its value has the value in `data-v`, so that it can be sorted and saved.
    """
    shown = [column for column in table.columns if column.title is not None]
    head = "".join(_heading(column) for column in shown)
    body = "".join(f"<tr>{_cells(shown, row, link)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0">'
        f'<table id="{name}"><caption id="{name}-caption">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def specification(table: Table[Any]) -> list[dict[str, Json]]:
    """Return the columns that people read as data: the page fills such a table by itself."""
    return [
        {"name": column.name, "title": column.title, "unit": column.unit}
        for column in table.columns
        if column.title is not None
    ]


def safe(text: str) -> str:
    """Return a text from a database as HTML: nothing in it is markup, or turns the writing."""
    return escape(escaped(text))


def _heading(column: Column[Any]) -> str:
    name = f' data-name="{escape(column.name)}"' if column.name else ""
    return f'<th scope="col"{name}>{escape(column.title or "")}</th>'


def _cells(columns: Sequence[Column[Row]], row: Row, link: Link[Row] | None) -> str:
    cells = []
    for place, column in enumerate(columns):
        text, value = column.cell(row), column.get(row)
        inner = safe(text)
        if place == 0 and link is not None:
            inner = f'<a href="{escape(link(row))}">{inner}</a>'
        cells.append(f"<td{_value(value, text)}>{inner}</td>")
    return "".join(cells)


def _value(value: Json, text: str) -> str:
    """Return the attribute with a cell's value, where that is not what people read."""
    if value is None or isinstance(value, bool | dict):
        return ""
    if isinstance(value, list):
        value = (" " if value and isinstance(value[0], int | float) else "; ").join(map(str, value))
    if isinstance(value, int | float):
        return f' data-v="{value!r}"'
    return "" if value == text else f' data-v="{safe(value)}"'


_SCRIPTS = ("d3.min.js", "plot.min.js", "report.js")
_SECTIONS = (
    ("accuracy", "Predicted and measured"),
    ("where", "Where time and energy go"),
    ("scaling-section", "A model over batch sizes and contexts"),
    ("roofline", "Roofline"),
    ("samples-section", "Raw samples"),
    ("coverage", "Coverage, and what is missing"),
    ("made", "How the numbers are made"),
)


@cache
def _asset(name: str) -> str:
    return (files("opdb.studies.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def policy() -> str:
    """Return the content security policy: the page's own scripts and style sheet, no network."""
    scripts = " ".join(_hash(_asset(name)) for name in _SCRIPTS)
    style = _hash(_asset("report.css"))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {style}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def page(content: Content) -> str:
    title = f"opdb report: {content.device.name}"
    links = "".join(f'<li><a href="#{name}">{text}</a></li>' for name, text in _SECTIONS)
    scripts = "".join(f"<script>{_asset(name)}</script>" for name in _SCRIPTS)
    sections = (_accuracy, _where, _scaling, _roofline, _samples, _coverage, _made)
    body = "".join(section(content) for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{safe(title)}</title>'
        f"<style>{_asset('report.css')}</style></head><body>"
        f'<a class="skip" href="#accuracy">Skip to the content</a>'
        f"<header><h1>{safe(title)}</h1>{_summary(content)}</header>"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>{body}</main>'
        f'<script type="application/gzip" id="data">{_data(content)}</script>'
        f"{scripts}</body></html>\n"
    )


def _data(content: Content) -> str:
    """Return the page's data: JSON, by gzip, in base64, in which nothing can end its element."""
    document: Json = {
        **runs_document(content.runs),
        "roofs": content.roofs and roofs_document(content.roofs),
        "visits": [each.document for each in content.samples],
        "columns": {
            "parts": specification(PARTS),
            "kinds": specification(KINDS),
            "points": specification(POINTS),
            "scaling": specification(SCALING),
            "samples": specification(SAMPLES),
            "replays": specification(REPLAYS),
        },
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


def _summary(content: Content) -> str:
    command = safe(content.command)
    models = ", ".join(content.models) or "all models"
    return (
        f"<p>{safe(models)} on {safe(content.device.slug)}: "
        f"{plural(len(content.runs), 'measured run')} of "
        f"{plural(len(content.workloads), 'workload')}; {plural(content.boards, 'board')}, "
        f"{plural(content.standing.measured, 'measured configuration')}. "
        f'<span class="soft">Made by <code>{command}</code>, opdb {__version__}; '
        "this file loads nothing.</span></p>"
    )


def _section(place: int, *parts: str) -> str:
    name, title = _SECTIONS[place]
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}" tabindex="-1">{title}</h2>'
        f"{''.join(parts)}</section>"
    )


def _figure(name: str, caption: str) -> str:
    return (
        f'<figure id="{name}"><div class="drawn"></div><figcaption>{caption}</figcaption></figure>'
    )


def _measure(name: str) -> str:
    choices = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"'
        f"{' checked' if value == 'time' else ''}> {value}</label>"
        for value in ("time", "energy")
    )
    return f'<fieldset id="{name}"><legend>Show</legend>{choices}</fieldset>'


def _select(name: str, label: str, options: Iterable[tuple[str, str]]) -> str:
    every = "".join(f'<option value="{safe(v)}">{safe(text)}</option>' for v, text in options)
    return f'<label>{label} <select id="{name}">{every}</select></label>'


def _controls(*inner: str) -> str:
    return f'<div class="controls">{"".join(inner)}</div>'


def _empty(name: str, caption: str) -> str:
    """Return a table that the page fills by itself."""
    return (
        f'<div class="scroll" role="region" aria-labelledby="{name}-caption" tabindex="0">'
        f'<table id="{name}"><caption id="{name}-caption">{caption}</caption>'
        "<thead><tr></tr></thead><tbody></tbody></table></div>"
    )


def _accuracy(content: Content) -> str:
    found = content.validation
    texts = [text for text in (*found.blocks(), content.left_out) if isinstance(text, str)]
    said = "".join(f"<p>{safe(text)}</p>" for text in texts)
    names = {id(run.answer): run.name for run in content.runs}

    def link(answer: Answer) -> str:
        return f"#run={quote(names[id(answer)], safe='')}"

    return _section(
        0,
        said,
        _controls(_measure("accuracy-measure")),
        _figure("accuracy-chart", "Each dot is a run, each line its 95 % interval."),
        table_html("regimes", "Errors by mode and batch size", REGIMES, groups(found.whole)),
        table_html("runs", "Runs of which every call is measured", ACCURACY, found.whole, link),
    )


def _where(content: Content) -> str:
    return _section(
        1,
        _controls(_select("run", "Run", ((run.name, run.title) for run in content.runs))),
        '<dl id="run-figures"></dl>',
        _figure("kinds-time", "Time by kind, predicted."),
        _figure("kinds-energy", "Energy by kind: dynamic, and of base power."),
        _figure("order-chart", "The calls in their order; time and energy of no call come last."),
        _empty("kinds", "By kind"),
        _empty("configurations", "By configuration"),
    )


def _scaling(content: Content) -> str:
    models = dict.fromkeys(run.answer.prediction.workload.name for run in content.runs)
    return _section(
        2,
        _controls(
            _select("scaling-model", "Model", ((name, name) for name in models)),
            _select("scaling-over", "Over", (("batch_size", "batch size"), ("context", "context"))),
            _measure("scaling-measure"),
        ),
        _figure("scaling-chart", "Lines are predicted, with intervals; dots are measured."),
        _empty("scaling", "The runs of the model"),
    )


def _roofline(content: Content) -> str:
    if content.roofs is None:
        return _section(3, "<p>No board ran a model of which all operators are measured.</p>")
    found = content.roofs
    titles = ((str(number), title_of(model)) for number, model in enumerate(found.models))
    notes = "".join(f"<li>{safe(note)}</li>" for note in (*found.notes, *found.vendor.notes))
    return _section(
        3,
        f"<p>On board {safe(found.board)}, {safe(found.mode)}. Solid roofs: peaks "
        f"{safe(found.measured.source)}; dashed: {safe(found.vendor.source)}. The star is the "
        "whole pass.</p>",
        _controls(
            _select("roofline-model", "Model", titles),
            _measure("roofline-measure"),
        ),
        _figure("roofline-chart", "The larger a mark, the more of the pass it takes."),
        _empty("points", "Operators under their roofs"),
        f"<ul>{notes}</ul>" if notes else "",
    )


def _samples(content: Content) -> str:
    if not content.samples:
        return _section(4, "<p>No visit of these runs' operators is in the database.</p>")
    options = ((safe(each.visit.id), each.title) for each in content.samples)
    return _section(
        4,
        "<p>What the meters said in visits of the operators that carry most of the energy of "
        "these runs. A visit replays one call again and again; costs are derived from these "
        "samples and nothing else.</p>",
        _controls(_select("visit", "Visit", options)),
        '<dl id="visit-figures"></dl>',
        _figure("samples-chart", "Power samples; the dashed line is base power."),
        _figure("replays-chart", "The time of a call in each replay."),
        _empty("samples", "Power samples"),
        _empty("replays", "Replays"),
    )


def _coverage(content: Content) -> str:
    standing = content.standing
    lacking = list(missing(content.validation.answers))
    tables: list[tuple[str, str, Rows[Any]]] = [
        ("workloads", "Workloads", Rows(COVERAGE, content.workloads)),
        ("missing", "What predictions of measured runs lack", Rows(MISSING, lacking)),
        ("pending", "Configurations to measure", Rows(PENDING, list(standing.pending.items()))),
        ("failed", "Configurations that failed", Rows(FAILED, standing.failures)),
    ]
    parts = [
        table_html(name, caption, of.table, of.rows) if of.rows else f"<p>{caption}: none.</p>"
        for name, caption, of in tables
    ]
    return _section(5, *parts)


def _made(content: Content) -> str:
    return _section(
        6,
        "<dl>"
        "<dt>measured time, energy</dt><dd>The whole model ran on the board. CUDA events give the "
        "time; energy is the driver's power times the time. Repeats that agree are averaged.</dd>"
        "<dt>predicted time</dt><dd>The sum over the calls of a pass: what one call of the "
        "configuration took on that board in a CUDA graph, plus the transitions between kernels, "
        "plus the time in which the device waits for the host. The run itself is not used.</dd>"
        "<dt>dynamic energy</dt><dd>A call's energy above base power, from power samples of visits "
        "of that configuration.</dd>"
        "<dt>base energy</dt><dd>Base power, as the board's calibration measured it, times the "
        "time.</dd>"
        "<dt>95 % interval</dt><dd>It contains the spread of visits, what they share on a board, "
        "the host, and the errors of other models in the same regime.</dd>"
        "<dt>calls from other boards</dt><dd>Calls whose configuration this board did not measure: "
        "another board's cost, scaled by what both boards measured.</dd>"
        "<dt>roofs</dt><dd>FLOPs and bytes are counted, peaks are measured by calibration; a "
        "roof is the least time or energy that the counts allow.</dd>"
        "</dl><p>Times are in seconds and energies in joules in the CSV files; a multiply-add is "
        "2 FLOPs.</p>",
    )
