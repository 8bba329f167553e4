"""The measured runs beside their predictions, and where each prediction's time and energy go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opdb.compose import Breakdown
from opdb.layout import escaped
from opdb.lookup.words import describe, short_board
from opdb.predict import Answer
from opdb.predict.figures import Figures
from opdb.predict.layers import first_shape, rests
from opdb.records import Configuration, Json, Workload
from opdb.report.html import titled
from opdb.studies.accuracy import is_whole
from opdb.studies.validation import RUNS
from opdb.tables import SHARE, Column, Table

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


def _in_words(column: Column[Answer]) -> Column[Answer]:
    """Return a column whose lists and truths people read as words."""

    def text(answer: Answer) -> str:
        value = column.get(answer)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return "; ".join(value) if isinstance(value, list) else "–"

    return replace(column, text=text)


ACCURACY: Table[Answer] = Table(
    *(
        _in_words(column)
        if column.name in ("flags", "inside_interval_time", "inside_interval_energy")
        else column
        for column in titled(RUNS, _TITLES).columns
    )
)
"""A measured run beside its prediction, with intervals."""


def _values(*columns: tuple[str, str, str | None]) -> Table[Mapping[str, Json]]:
    """Return a table whose rows are dicts, from each column's name, title and unit."""

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
"""The same by kind."""

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
"""A power sample of a visit."""

REPLAYS = _values(
    ("replay", "replay", None),
    ("replay_s", "time of the replay", "s"),
    ("call_s", "time of a call", "s"),
)
"""A timed replay of a visit; the page divides it by its calls."""


@dataclass(frozen=True)
class Run:
    """A measured run: its answer, and the parts of the prediction."""

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
        """The title of the run for readers."""
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
        **RUNS.document(run.answer),
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
