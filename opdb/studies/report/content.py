"""The content of a report, gathered from a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from opdb.commands.validate import RUNS, Measure, Validation, is_whole, predicted
from opdb.derive.costs import VisitCost, visit_cost
from opdb.harvest.coverage import Covered
from opdb.layout import escaped
from opdb.predict.compose import Breakdown, Share
from opdb.predict.figures import Figures, first_shape, rests
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor
from opdb.records import Campaign, Configuration, Device, Json, Mode, Visit, Workload
from opdb.spec import describe, workload_columns
from opdb.store import Standing, Store
from opdb.studies.roofline.points import ModelRoofline, Study, study
from opdb.studies.roofline.report import OPERATORS, PEAKS, Placed, title_of
from opdb.tables import SHARE, Column, Table, interval
from opdb.units import short_board

SHOWN = 20
"""Configurations on a board whose visits are shown."""


@dataclass(frozen=True)
class Sampled:
    visit: Visit
    campaign: Campaign
    configuration: Configuration

    @property
    def cost(self) -> VisitCost | None:
        return visit_cost(self.visit, self.campaign.calibration)

    @property
    def flags(self) -> list[str]:
        cost = self.cost
        return list(dict.fromkeys((*self.visit.flags, *(cost.flags if cost else ()))))

    @property
    def title(self) -> str:
        shape = "×".join(map(str, first_shape(self.configuration) or ()))
        operator = f"{self.configuration.title} {shape}".strip()
        board = short_board(self.campaign.board.uuid)
        return escaped(f"{operator}, {board}, {self.visit.started_at}, {self.visit.role}")

    @property
    def document(self) -> Json:
        visit, cost = self.visit, self.cost
        stretch = visit.stretch
        return {
            "title": self.title,
            "id": visit.id,
            "configuration": self.configuration.key,
            "board": self.campaign.board.uuid,
            "role": visit.role,
            "outcome": visit.outcome,
            "reason": visit.reason,
            "weights": visit.weights,
            "flags": self.flags,
            "base_power_w": self.campaign.calibration.base_power_w,
            "time_s": cost and cost.time_s,
            "power_w": cost and cost.power_w,
            "dynamic_energy_j": cost and cost.dynamic_energy_j,
            "calls_per_replay": stretch and stretch.calls_per_replay,
            "replay_times_s": [] if stretch is None else list(stretch.replay_times_s),
            "power_samples": [] if stretch is None else list(map(list, stretch.power_samples)),
            "clock_samples_hz": [] if stretch is None else list(stretch.clock_samples_hz),
        }


def sampled(store: Store, device: str, answers: Sequence[Answer]) -> list[Sampled]:
    """Return the visits of the configurations that carry most of the runs' energy, each on a board.

    `device` is its slug. A configuration that its board did not measure has no visit there.
    """
    weights: dict[tuple[str, str], float] = defaultdict(float)
    configurations: dict[str, Configuration] = {}
    for answer in answers:
        for share in answer.prediction.parts:
            key = share.configuration.key
            configurations[key] = share.configuration
            weights[key, answer.prediction.board] += share.share_energy
    by_board: dict[str, list[str]] = defaultdict(list)
    for key, board in sorted(weights, key=lambda each: weights[each], reverse=True)[:SHOWN]:
        by_board[board].append(key)
    campaigns = {campaign.id: campaign for campaign in store.campaigns(device)}
    return [
        Sampled(visit, campaigns[visit.campaign], configurations[visit.configuration])
        for visit in _visits(store, by_board)
        if visit.campaign in campaigns
    ]


def _visits(store: Store, by_board: dict[str, list[str]]) -> Iterator[Visit]:
    for board, keys in by_board.items():
        place = {key: number for number, key in enumerate(keys)}
        found = store.visits(board, keys)
        yield from sorted(found, key=lambda visit: place[visit.configuration])


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
"""An operator under its roofs, as `opdb roofline` shows it; each column is a value."""


def roofs_document(found: Study) -> Json:
    """Return the peaks, and each model's operators that give the device work."""
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


def _accuracy(column: Column[Answer]) -> Column[Answer]:
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
    *map(_accuracy, RUNS.columns), _interval("time", "s"), _interval("energy", "J")
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

SAMPLES = _values(("at_s", "since the beginning", "s"), ("power_w", "power", "W"))

REPLAYS = _values(
    ("replay", "replay", None),
    ("replay_s", "time of the replay", "s"),
    ("call_s", "time of a call", "s"),
)
"""A timed replay of a visit; the page divides it by its calls."""


@dataclass(frozen=True)
class Run:
    answer: Answer
    parts: Breakdown

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


def runs_document(runs: Sequence[Run]) -> Json:
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


def _run(run: Run, numbers: Mapping[str, int]) -> Json:
    found, parts = run.answer.prediction, run.parts
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
        "rest": [[rest.what, rest.time_s] for rest in rests(found, parts)],
        "base_power_w": parts.base_power_w if has_energy else None,
        "coverage": dict(found.coverages),
        "notes": list(found.notes),
    }


COVERAGE: Table[Covered] = Table(
    *workload_columns(lambda row: row.head.workload),
    Column("calls", lambda row: row.head.calls, title="calls"),
    Column("configurations", lambda row: row.head.configurations, title="configurations"),
    Column("measured_calls", lambda row: row.measured_calls, title="calls measured"),
    Column("coverage_calls", lambda row: row.share, title="share measured", unit=SHARE),
    Column("model_runs", lambda row: row.runs, title="model runs"),
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
"""A configuration that a run's prediction lacks: no board of the device measured it."""


def missing(answers: Sequence[Answer]) -> Iterator[Missing]:
    for answer in answers:
        yield from ((answer, share) for share in answer.prediction.missing)


@dataclass(frozen=True)
class Content:
    """The content of a report about one device: of these models (none: all), made by a command.

    `validation` has a prediction for each measured run, `left_out` says which runs it has not.
    `runs` are the parts of each prediction, in the same order; `roofs` is None where no board ran a
    whole workload. `samples` are visits of the configurations that carry most of the energy.
    `boards` of the device measured `workloads`, of which those of sweeps alone are left out.
    """

    models: Sequence[str]
    command: str
    validation: Validation
    left_out: str | None
    runs: Sequence[Run]
    roofs: Study | None
    samples: Sequence[Sampled]
    device: Device
    boards: int
    standing: Standing
    workloads: Sequence[Covered]


def gather(
    store: Store,
    predictor: Predictor,
    models: Sequence[str],
    command: str,
    found: Validation,
    left_out: str | None,
) -> Content:
    """Gather what a report shows, beside the predictions of measured runs that were found."""
    answers, device = found.answers, predictor.device
    standing = store.standing(device.slug)
    heads = [h for h in store.heads() if not h.swept and (not models or h.workload.name in models)]
    return Content(
        models,
        command,
        found,
        left_out,
        [Run(answer, predictor.breakdown(answer.prediction)) for answer in answers],
        roofs(store, predictor, answers),
        sampled(store, device.slug, answers),
        device,
        len(store.boards(device.slug)),
        standing,
        [Covered.of(head, standing) for head in heads],
    )
