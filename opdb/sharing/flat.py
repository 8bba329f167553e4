"""Flat tables of a device's measurements: a row is whole by itself, numbers are in base SI.

Every value is a number, a text, a truth or missing; raw samples alone are lists of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from opdb.derive.costs import VisitCost, visit_cost
from opdb.footprint import bytes_moved
from opdb.kinds import KINDS, get_kind
from opdb.lookup.words import workload_columns
from opdb.predict import MODES, Answer, Predictor
from opdb.records import Campaign, Configuration, Cost, Json, Visit, Workload, canonical_json
from opdb.store import Store
from opdb.studies.accuracy import is_whole
from opdb.studies.validation import RUNS
from opdb.tables import Column, Row, Table, quantity

Record = dict[str, Json]


@dataclass(frozen=True, eq=False)
class Flat:
    """A table: its name, what a row is, and its rows."""

    name: str
    about: str
    rows: Sequence[Record]


COSTS: Table[Cost] = Table(
    *(Column(name, attrgetter(name)) for name in ("configuration", "board", "setting", "visits")),
    Column("kernels", attrgetter("kernels")),
    *quantity("time", "s", attrgetter("time_s")),
    *quantity("eager_time", "s", attrgetter("eager_time_s")),
    *quantity("power", "W", attrgetter("power_w")),
    *quantity("energy", "J", attrgetter("energy_j")),
    *quantity("dynamic_energy", "J", attrgetter("dynamic_energy_j")),
    *quantity("module_host_time", "s", lambda cost: cost.host_time_s.get("module")),
    *quantity("function_host_time", "s", lambda cost: cost.host_time_s.get("function")),
    Column("after_code_s", lambda cost: cost.after_others and cost.after_others.code_s),
    Column("after_stream_s", lambda cost: cost.after_others and cost.after_others.stream_s),
    Column("clock_hz", attrgetter("clock_hz")),
    Column("flags", lambda cost: list(cost.flags)),
)

CONFIGURATIONS: Table[Configuration] = Table(
    Column("configuration", attrgetter("key")),
    Column("kind", attrgetter("kind")),
    Column("pass", attrgetter("pass_name")),
    Column("parameters", lambda each: canonical_json(dict(each.parameters))),
    Column("inputs", lambda each: canonical_json(dict(each.inputs))),
    Column("gradient", attrgetter("gradient")),
    Column("autocast", attrgetter("autocast")),
    Column("flops", lambda each: get_kind(each.kind).flops(each) if each.kind in KINDS else None),
    Column("bytes", lambda each: bytes_moved(each) if each.kind in KINDS else None),
)

_IDENTITY: tuple[Column[Workload], ...] = workload_columns(lambda workload: workload)

WORKLOADS: Table[Workload] = Table(
    Column("workload", attrgetter("key")),
    *_IDENTITY,
    Column("source_version", attrgetter("source_version")),
    Column("calls", lambda workload: len(workload.calls)),
    Column("configurations", lambda workload: len(workload.occurrences())),
)


def _end(of: str, place: int) -> Column[Answer]:
    """Return the column of an end of a prediction's interval: `predicted_time_s_low`."""

    def get(answer: Answer) -> Json:
        ends = getattr(answer.prediction, of)
        return None if ends is None else ends[place]

    name = of.replace("_interval", "")
    return Column(f"predicted_{name}_{('low', 'high')[place]}", get)


RUNS_OF_MODELS: Table[Answer] = Table(
    Column("workload", lambda answer: answer.prediction.workload.key),
    *(column for column in RUNS.columns if "_interval_" not in (column.name or "_interval_")),
    *(_end(of, place) for of in ("time_interval_s", "energy_interval_j") for place in (0, 1)),
    Column("all_calls_measured", is_whole),
)


@dataclass(frozen=True)
class Visited:
    """A visit in its campaign."""

    visit: Visit
    campaign: Campaign

    @property
    def cost(self) -> VisitCost | None:
        """What it says of one call; None where it gives no time."""
        return visit_cost(self.visit, self.campaign.calibration)

    def samples(self, name: str) -> Sequence[Any]:
        """Return raw samples of its stretch by their name there."""
        return () if self.visit.stretch is None else getattr(self.visit.stretch, name)


def _of_visit(*names: str) -> tuple[Column[Visited], ...]:
    return tuple(Column(name, attrgetter(f"visit.{name}")) for name in names)


VISITS: Table[Visited] = Table(
    *_of_visit("id", "configuration"),
    Column("board", attrgetter("campaign.board.uuid")),
    *_of_visit("campaign", "setting", "role", "access", "weights", "started_at", "outcome"),
    *_of_visit("reason", "cost_s"),
    *(
        Column(name, lambda row, name=name: getattr(row.cost, name, None))  # type: ignore[misc]
        for name in ("time_s", "power_w", "dynamic_energy_j")
    ),
    Column("flags", lambda row: list(row.visit.flags)),
)
"""A visit, and what it says of one call."""

SAMPLES: Table[Visited] = Table(
    Column(
        "calls_per_replay", lambda row: row.visit.stretch and row.visit.stretch.calls_per_replay
    ),
    Column("replay_times_s", lambda row: list(row.samples("replay_times_s"))),
    Column("power_at_s", lambda row: [at_s for at_s, _ in row.samples("power_samples")]),
    Column("power_w_samples", lambda row: [power_w for _, power_w in row.samples("power_samples")]),
    Column("clock_hz_samples", lambda row: list(row.samples("clock_samples_hz"))),
)
"""The raw samples of a visit."""


def flat_tables(store: Store, predictor: Predictor, *, samples: bool) -> Iterator[Flat]:
    """Yield the tables of a device; with `samples`, visits have their raw samples."""
    device = predictor.device.slug
    costs = {board: store.costs(board) for board in predictor.boards}
    campaigns = {each.id: each for each in store.campaigns(device)}
    visits = [
        Visited(visit, campaigns[visit.campaign])
        for board in predictor.boards
        for visit in store.visits(board)
        if visit.campaign in campaigns
    ]
    measured = {key for of in costs.values() for key in of}
    measured |= {each.visit.configuration for each in visits}
    answers = predictor.answers((), MODES)
    every_workload = {
        each.key: each
        for each in (
            *store.workloads(),
            *store.workloads(compiled_for=device),
            *(answer.prediction.workload for answer in answers),
        )
    }
    workloads = [
        each
        for each in every_workload.values()
        if any(called.key in measured for called in each.occurrences())
    ]
    called = [(w, c, count) for w in workloads for c, count in w.occurrences().items()]
    configurations = {c.key: c for _, c, _ in called}
    configurations |= {c.key: c for c in store.configurations() if c.key in measured}
    every = [cost for of in costs.values() for each in of.values() for cost in each]
    yield Flat("costs", _COSTS, _flat(COSTS, every))
    yield Flat("configurations", _CONFIGURATIONS, _flat(CONFIGURATIONS, configurations.values()))
    yield Flat("runs", _RUNS, _flat(RUNS_OF_MODELS, answers))
    yield Flat("workloads", _WORKLOADS, _flat(WORKLOADS, workloads))
    yield Flat("calls", _CALLS, [_call(*each) for each in called])
    yield Flat("visits", _VISITS, [_visit(each, samples=samples) for each in visits])
    yield Flat("campaigns", _CAMPAIGNS, [_campaign(each) for each in campaigns.values()])


_COSTS = (
    "What one call of a configuration takes on a board: in a CUDA graph (`time_s`), issued eagerly "
    "(`eager_time_s`), and of the host's thread (`module_host_time_s`, `function_host_time_s`). "
    "`energy_j` is gross, `dynamic_energy_j` is above base power."
)
_CONFIGURATIONS = (
    "An operator call: its kind, its arguments, its tensors. FLOPs count a multiply-add as 2; "
    "bytes are those that must move at least."
)
_RUNS = (
    "A whole model that ran on a board in one mode: measured, and predicted from its operators' "
    "costs without the run. `attribution` is predicted over measured."
)
_WORKLOADS = "A model at work: its inputs, dtype and phase; `calls` are operator calls of a pass."
_CALLS = "How often a pass of a workload calls a configuration."
_VISITS = "A bounded measurement of one configuration, and what it says of one call."
_CAMPAIGNS = "A period of measuring on one board: its host, versions, and base power."


_UNITS = {"s": "seconds", "j": "joules", "w": "watts", "hz": "hertz"}

_MEANINGS = {
    "configuration": "key of the operator call, joins tables",
    "workload": "key of the model at work, joins tables",
    "board": "UUID of the physical GPU",
    "campaign": "the period of measuring",
    "setting": "backend switches, as JSON",
    "visits": "visits that it is derived from",
    "kernels": "kernels that one call launches",
    "after_code_s": "longer where its code is no longer held, in seconds",
    "after_stream_s": "longer, besides, after a stream beyond the L2, in seconds",
    "flags": "what was suspicious, in words",
    "parameters": "arguments that are no tensors, as JSON",
    "inputs": "tensors, as JSON",
    "flops": "floating-point operations of a call",
    "bytes": "bytes that a call moves at least",
    "attribution_time": "predicted over measured time",
    "attribution_energy": "predicted over measured energy",
    "brought": "calls whose cost was brought over from other boards",
    "coverage_calls": "share of the calls that are measured",
    "repeat_spread": "how far apart repeats are, over the fastest",
    "replay_times_s": "times of the replays, in seconds; each is `calls_per_replay` calls",
    "cost_s": "device time that the visit took, in seconds",
}


def meaning(column: str) -> str:
    """Return what a column is, in words; empty where its name says it."""
    if column in _MEANINGS:
        return _MEANINGS[column]
    for end, words in (("_low", "lower end, 95 %, "), ("_high", "upper end, 95 %, ")):
        if column.endswith(end):
            return words + _UNITS.get(column.removesuffix(end).split("_")[-1], "")
    for name, unit in _UNITS.items():
        if column.endswith((f"_{name}", f"_{name}_samples")):
            return unit
    return ""


def _flat(table: Table[Row], rows: Iterable[Row]) -> list[Record]:
    return [table.flat(row) for row in rows]


def _call(workload: Workload, configuration: Configuration, count: int) -> Record:
    return {"workload": workload.key, "configuration": configuration.key, "calls": count}


def _visit(visited: Visited, *, samples: bool) -> Record:
    return VISITS.flat(visited) | (SAMPLES.document(visited) if samples else {})


def _campaign(campaign: Campaign) -> Record:
    calibration = campaign.calibration
    return {
        "campaign": campaign.id,
        "board": campaign.board.uuid,
        "device": campaign.device.name,
        "power_limit_w": campaign.device.power_limit_w,
        "cpu": campaign.host.cpu,
        "system": campaign.host.system,
        "started_at": campaign.started_at,
        "base_power_w": calibration.base_power_w,
        "transition_s": calibration.transition_s,
        **campaign.environment,
    }
