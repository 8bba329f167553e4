"""The report as one HTML file, which opens from disk and needs no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib.resources import files
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from opdb import __version__
from opdb.commands.show import FAILED
from opdb.commands.validate import REGIMES, RUNS, Measure, Validation, groups, is_whole, predicted
from opdb.predict.compose import Share
from opdb.predict.figures import Figures, first_shape, rests
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor
from opdb.records import Configuration, Device, Json, Mode, Workload
from opdb.spec import describe, workload_columns
from opdb.store import Head, Standing, Store
from opdb.studies.roofline.points import ModelRoofline, Study, study
from opdb.studies.roofline.report import OPERATORS, PEAKS, Placed, title_of
from opdb.tables import SHARE, Column, Row, Rows, Table, escaped, interval
from opdb.units import plural, short_board

# The content of a report, gathered from a database.

_UNITS = {
    "intensity": "number",
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "B/s",
    "flops_per_j": "FLOP/J",
}


def _as_value(column: Column[Placed]) -> Column[Placed]:
    get: Any = column.text if column.name is None and column.text else column.get
    name = column.name or column.title
    return replace(column, name=name, get=get, text=None, unit=_UNITS.get(name or "", column.unit))


POINTS: Table[Placed] = Table(
    *(_as_value(column) for column in OPERATORS.columns if column.title is not None)
)


def roofs_document(found: Study) -> Json:
    return {
        "device": found.device,
        "board": found.board,
        "mode": found.mode,
        "measured": PEAKS.document(found.measured),
        "vendor": PEAKS.document(found.vendor),
        "models": [_model(found, model) for model in found.models],
        "notes": [*found.notes, *found.vendor.notes],
    }


def _model(found: Study, model: ModelRoofline) -> Json:
    placed = [Placed(found, model, point) for point in model.points if point.works]
    return {
        "title": title_of(model),
        "flops": model.flops,
        "bytes": model.bytes_moved,
        "intensity": model.intensity,
        "flops_per_s": model.flops_per_s,
        "flops_per_j": model.flops_per_j,
        "points": [list(POINTS.document(row).values()) for row in placed],
    }


def roofs(store: Store, predictor: Predictor, answers: Sequence[Answer]) -> Study | None:
    """Place the workloads that one board ran under its roofs; None where no board ran any whole.

    It is the board and mode with the most runs whose operators are all measured; CUDA graphs come
    before eager runs, because they do not wait for the host.
    """
    ran: dict[tuple[Mode, str], dict[str, Workload]] = {}
    for answer in answers:
        found = answer.prediction
        if found.mode in PLAIN_MODES and is_whole(answer) and found.time_s is not None:
            ran.setdefault((found.mode, found.board), {})[found.workload.key] = found.workload
    if not ran:
        return None
    mode, board = max(ran, key=lambda place: (place[0] == "graph", len(ran[place]), place[1]))
    workloads = list(ran[mode, board].values())
    return study(store, predictor, workloads, mode, board)


_KEY = 12
"""Digits of a configuration's key in the page, as the other commands show them."""

_TITLES = {
    "brought": "calls from other boards",
    "predicted_time_s": "predicted time",
    "measured_time_s": "measured time",
    "attribution_time": "predicted / measured time",
    "predicted_energy_j": "predicted energy",
    "measured_energy_j": "measured energy",
    "attribution_energy": "predicted / measured energy",
    "time_interval_s": "95 % interval of time",
    "energy_interval_j": "95 % interval of energy",
    "inside_interval_time": "time inside",
    "inside_interval_energy": "energy inside",
    "repeat_spread": "spread of repeats",
    "flags": "flags of the run",
}


def _of_run(column: Column[Answer]) -> Column[Answer]:
    """Return a column under the page's title; quantities are values, lists and truths words."""
    take = column.get

    def text(answer: Answer) -> str:
        value = column.get(answer)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "; ".join(value) if isinstance(value, list) else "–"

    if column.name in ("flags", "inside_interval_time", "inside_interval_energy"):
        column = replace(column, text=text)
    if column.members:
        column = replace(column, get=lambda row: (take(row) or {}).get("value"), members=())
    return replace(column, title=_TITLES.get(column.name or "", column.title))


def _interval(measure: Measure, unit: str) -> Column[Answer]:
    name = f"{measure}_interval_{unit.lower()}"
    of: Column[Answer] = interval(unit, lambda answer: predicted(answer, measure))
    return replace(of, name=name, title=_TITLES[name])


ACCURACY: Table[Answer] = Table(
    *map(_of_run, RUNS.columns), _interval("time", "s"), _interval("energy", "J")
)


def _values(*columns: tuple[str, str, str | None]) -> Table[Mapping[str, Json]]:
    def column(name: str, title: str, unit: str | None) -> Column[Mapping[str, Json]]:
        return Column(name, lambda row: row[name], title=title, unit=unit)

    return Table(*(column(*each) for each in columns))


PARTS = _values(
    ("part", "part", None),
    ("configuration", "configuration", None),
    ("input", "first input", None),
    ("calls", "calls", None),
    ("status", "status", None),
    ("time_s", "time", "s"),
    ("share_time", "share of time", SHARE),
    ("energy_j", "energy", "J"),
    ("share_energy", "share of energy", SHARE),
    ("dynamic_energy_j", "dynamic energy", "J"),
    ("base_energy_j", "base energy", "J"),
)
"""A part of a pass: a kind, a configuration, or time outside calls; the page computes the rows."""

KINDS = PARTS.without("configuration", "first input", "status")

SCALING = _values(
    ("batch_size", "batch size", None),
    ("context", "context", None),
    ("series", "mode and workload", None),
    ("board", "board", None),
    ("predicted_time_s", "predicted time", "s"),
    ("measured_time_s", "measured time", "s"),
    ("time_per_sample_s", "predicted time a sample", "s"),
    ("measured_time_per_sample_s", "measured time a sample", "s"),
    ("energy_per_sample_j", "predicted energy a sample", "J"),
    ("measured_energy_per_sample_j", "measured energy a sample", "J"),
)
"""A run of a model among others of it; the page computes what a sample takes."""


@dataclass(frozen=True)
class ReportedRun:
    answer: Answer

    @property
    def name(self) -> str:
        """The run's name in links: model, workload, mode and board; the same in every report."""
        found = self.answer.prediction
        workload = found.workload
        return escaped("~".join((workload.name, describe(workload), found.mode, found.board)))

    @property
    def title(self) -> str:
        found = self.answer.prediction
        words = describe(found.workload)
        return f"{found.workload.name}, {words}, {found.mode}, {short_board(found.board)}"


def runs_document(runs: Sequence[ReportedRun]) -> Json:
    """Return the runs as data: configurations and workloads once, each run by their numbers.

    `times_s` and `dynamic_j` of a run are those of one call of each configuration of its workload,
    in their order there; None where there is none.
    """
    configurations: dict[str, Configuration] = {}
    workloads: dict[str, Workload] = {}
    for run in runs:
        workload = run.answer.prediction.workload
        if workloads.setdefault(workload.key, workload) is workload:
            configurations |= {c.key: c for c in workload.occurrences()}
    places = {key: place for place, key in enumerate(configurations)}
    numbers = {key: number for number, key in enumerate(workloads)}
    return {
        "configurations": [_configuration(each) for each in configurations.values()],
        "workloads": [_workload(each, places) for each in workloads.values()],
        "runs": [_run(run, numbers) for run in runs],
    }


def _configuration(configuration: Configuration) -> Json:
    shape = first_shape(configuration)
    return [configuration.key[:_KEY], configuration.title, "×".join(map(str, shape or ()))]


def _workload(workload: Workload, places: Mapping[str, int]) -> Json:
    called = workload.occurrences()
    own = {configuration.key: place for place, configuration in enumerate(called)}
    return {
        "configurations": [places[configuration.key] for configuration in called],
        "counts": list(called.values()),
        "order": [own[call.configuration.key] for call in workload.calls],
    }


def _run(run: ReportedRun, numbers: Mapping[str, int]) -> Json:
    found = run.answer.prediction
    parts = found.total
    keys = [configuration.key for configuration in found.workload.occurrences()]
    has_energy = found.energy_j is not None
    return {
        **ACCURACY.document(run.answer),
        "name": run.name,
        "whole": is_whole(run.answer),
        "shown": escaped(found.workload.name),
        "words": escaped(describe(found.workload)),
        "workload": numbers[found.workload.key],
        "samples": Figures.predicted(found).samples,
        "times_s": [parts.call_s.get(key) for key in keys],
        "dynamic_j": [parts.call_j.get(key) if has_energy else None for key in keys],
        "rest": [[rest.path, rest.time_s] for rest in rests(found)],
        "base_power_w": parts.base_power_w if has_energy else None,
        "coverage": dict(found.coverages),
        "notes": list(found.notes),
    }


COVERAGE: Table[tuple[Head, int]] = Table(
    *workload_columns(lambda row: row[0].workload),
    Column("calls", lambda row: row[0].calls, title="calls"),
    Column("measured_calls", itemgetter(1), title="calls measured"),
)

PENDING: Table[tuple[str, int]] = Table(
    Column("kind", itemgetter(0), title="kind"),
    Column("pending", itemgetter(1), title="configurations to measure"),
)

Missing = tuple[Answer, Share]

MISSING: Table[Missing] = Table(
    *workload_columns(lambda row: row[0].prediction.workload),
    Column("mode", lambda row: row[0].prediction.mode, title="mode"),
    Column(
        "board",
        lambda row: row[0].prediction.board,
        title="board",
        text=lambda row: short_board(row[0].prediction.board),
    ),
    Column("operator", lambda row: row[1].configuration.title, title="operator"),
    Column("configuration", lambda row: row[1].configuration.key, title="configuration"),
    Column("count", lambda row: row[1].count, title="calls"),
    Column("share_time", lambda row: row[1].share_time, title="share of time, about", unit=SHARE),
)


def missing(answers: Sequence[Answer]) -> Iterator[Missing]:
    for answer in answers:
        yield from ((answer, share) for share in answer.prediction.missing)


@dataclass(frozen=True)
class Content:
    """The content of a report about one device: of these models (none: all), made by a command.

    `validation` has a prediction for each measured run, `left_out` says which runs it has not.
    `runs` are the parts of each prediction, in the same order; `roofs` is None where no board ran a
    whole workload. `boards` of the device measured `workloads`, of which those of sweeps alone are
    left out.
    """

    models: Sequence[str]
    command: str
    validation: Validation
    left_out: str | None
    runs: Sequence[ReportedRun]
    roofs: Study | None
    device: Device
    boards: int
    standing: Standing
    workloads: Sequence[tuple[Head, int]]


def gather(
    store: Store,
    predictor: Predictor,
    models: Sequence[str],
    command: str,
    found: Validation,
    left_out: str | None,
) -> Content:
    answers, device = found.answers, predictor.device
    standing = store.standing(device.slug)
    return Content(
        models,
        command,
        found,
        left_out,
        [ReportedRun(answer) for answer in answers],
        roofs(store, predictor, answers),
        device,
        len(store.boards(device.slug)),
        standing,
        [
            (head, head.calls - standing.unmeasured_calls.get(head.workload.key, 0))
            for head in store.heads()
            if not head.swept and (not models or head.workload.name in models)
        ],
    )


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
    sections = (_accuracy, _where, _scaling, _roofline, _coverage, _made)
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
        "columns": {
            "parts": specification(PARTS),
            "kinds": specification(KINDS),
            "points": specification(POINTS),
            "scaling": specification(SCALING),
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
    return _section(4, *parts)


def _made(content: Content) -> str:
    return _section(
        5,
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
