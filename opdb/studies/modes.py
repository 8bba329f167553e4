"""`opdb modes`: runs in each mode, what they save of eager's, and of the operators' sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import typer

from opdb.cli import console, options
from opdb.cli.console import Terminal, save
from opdb.cli.options import batch_sizes_among
from opdb.derive.runs import RunCost, run_cost
from opdb.derive.statistics import typical_on
from opdb.errors import InputError, OpdbError, UnknownNameError, raise_all
from opdb.files import check_writable
from opdb.progress import Display
from opdb.records import Campaign, Device, Json, Mode, ModelRun, Workload
from opdb.runs import ModelPolicy
from opdb.spec import ModelSpec, describe, workload_columns
from opdb.summary_files import requests_named
from opdb.tables import MISSING, SHARE, Column, Report, Rows, Table
from opdb.units import show

if TYPE_CHECKING:
    from opdb.predict.predictor import Answer, Predictor
    from opdb.runs import ModelRunSpec
    from opdb.store import RunState, Store

PANEL = "studies"

SUMMED: Mode = "graph"
"""The mode in which a pass is predicted to take what its operators take, and nothing else."""

Figures: TypeAlias = tuple[float | None, float | None]
"""The time (s) and energy (J) of a pass."""

NOTHING_KNOWN: Figures = (None, None)


@dataclass(frozen=True)
class ModeRow:
    """A workload in one mode: the run, what it cost, and what it saves.

    `cost` is None where the run gave none; `run.reason` says why. `eager` has the time and energy
    of the eager run, of an eager run itself nothing; `operators` those of all operators together,
    on the run's board, where none is missing. `coverage_time` is the share of their time that was
    measured.
    """

    workload: Workload
    mode: Mode
    board: str
    torch: str | None
    run: ModelRun
    cost: RunCost | None
    eager: Figures
    operators: Figures
    coverage_time: float | None

    @property
    def figures(self) -> Figures:
        return figures_of(self.cost)

    @property
    def remarks(self) -> list[str]:
        if self.cost is None:
            return [why_failed(self.run)]
        broken = self.run.facts.get("graph_break_reasons") or []
        return [*(f"dynamo breaks off: {reason}" for reason in broken), *self.run.flags]


def why_failed(run: ModelRun) -> str:
    return str(run.reason) if run.outcome == "unsupported" else f"{run.outcome}: {run.reason}"


@dataclass(frozen=True)
class TorchPolicy(ModelPolicy):
    """What counts as run already: what these boards ran with this version of torch."""

    torch: str | None = None

    def runs(self, store: Store) -> list[RunState]:
        alike = {c.id for c in store.campaigns() if _torch_of(c) == self.torch}
        return [run for run in super().runs(store) if run.campaign in alike]


def mode_rows(
    store: Store, predictor: Predictor, board: str, workloads: Iterable[Workload]
) -> list[ModeRow]:
    """Return a row for each mode that each workload was run in on a board, in the modes' order.

    Of several runs the last good one counts, else the last. All are of the predictor's device, so
    under one power limit, and of one version of torch, that of the workload's last run.
    """
    device = predictor.device.slug
    campaigns = {c.id: c for c in store.campaigns(device, board=board)}
    rows = []
    for workload in workloads:
        runs = store.model_runs(workload.key, device=device, board=board)
        if not runs:
            continue
        torch = _torch_of(campaigns[runs[-1].campaign])
        alike = [run for run in runs if _torch_of(campaigns[run.campaign]) == torch]
        rows += _rows_of(workload, board, torch, alike, predictor.answer(workload, SUMMED, board))
    return rows


def stored_rows(
    store: Store, predictor: Predictor, models: Collection[str], batch_sizes: Collection[int]
) -> list[ModeRow]:
    """Of inference, of these models and at these batch sizes; where none are named, of all."""
    slug = predictor.device.slug
    boards = {campaign.id: campaign.board.uuid for campaign in store.campaigns(slug)}
    ran_on = {(boards[run.campaign], run.workload) for run in store.model_runs(device=slug)}
    ran = {workload for _, workload in ran_on}
    heads = [h.workload for h in store.heads() if h.workload.phase == "inference"]
    heads = [workload for workload in heads if workload.key in ran]
    names = {workload.name for workload in heads}
    for model in models:
        if model not in names:
            raise UnknownNameError("model", model, names, hint=f"(of those measured on {slug})")
    wanted = {
        workload.key
        for workload in heads
        if (not models or workload.name in models)
        and (not batch_sizes or workload.batch_size in batch_sizes)
    }
    workloads = [w for w in store.workloads(phase="inference") if w.key in wanted]
    predictor.read_costs(dict.fromkeys(predictor.boards, workloads))
    rows = []
    for board in store.boards(slug):
        own = [w for w in workloads if (board.uuid, w.key) in ran_on]
        rows += mode_rows(store, predictor, board.uuid, own)
    return rows


def _rows_of(
    workload: Workload, board: str, torch: str | None, runs: Sequence[ModelRun], answer: Answer
) -> list[ModeRow]:
    chosen = by_mode(runs)
    typical = typical_on(answer.prediction.device)
    costs = {mode: run_cost([run], typical) for mode, run in chosen.items()}
    return [
        ModeRow(
            workload=workload,
            mode=mode,
            board=board,
            torch=torch,
            run=run,
            cost=costs[mode],
            eager=NOTHING_KNOWN if mode == "eager" else figures_of(costs.get("eager")),
            operators=_summed(answer),
            coverage_time=answer.prediction.coverage_time,
        )
        for mode, run in chosen.items()
    ]


def by_mode(runs: Sequence[ModelRun]) -> Mapping[Mode, ModelRun]:
    """Return the run that counts in each mode: the last good one, else the last."""
    ordered = sorted(runs, key=lambda run: run.outcome == "ok")
    found = {run.mode: run for run in ordered}
    return {mode: found[mode] for mode in get_args(Mode) if mode in found}


def figures_of(cost: RunCost | None) -> Figures:
    if cost is None:
        return NOTHING_KNOWN
    return cost.time_s.mean, cost.energy_j.mean if cost.energy_j else None


def _saved(own: float | None, other: float | None) -> float | None:
    return None if own is None or not other else 1 - own / other


def _summed(answer: Answer) -> Figures:
    found = answer.prediction
    whole = not (found.missing or found.estimated or found.workload.unsupported)
    return (found.time_s, found.energy_j) if whole and found.time_s else NOTHING_KNOWN


def _torch_of(campaign: Campaign) -> str | None:
    return campaign.environment.get("torch")


def _fact(name: str) -> Callable[[ModeRow], Json]:
    return lambda row: row.run.facts.get(name)


def _savings(
    name: str, of: Callable[[ModeRow], Figures], title: str
) -> tuple[Column[ModeRow], Column[ModeRow]]:
    def saved(quantity: int) -> Callable[[ModeRow], float | None]:
        return lambda row: _saved(row.figures[quantity], of(row)[quantity])

    return (
        Column(name.format("time"), saved(0), title, SHARE),
        Column(name.format("energy"), saved(1), "energy", SHARE),
    )


MODES: Table[ModeRow] = Table(
    *workload_columns(lambda row: row.workload),
    Column("board", lambda row: row.board),
    Column("torch", lambda row: row.torch),
    Column("mode", lambda row: row.mode, title="mode"),
    Column("outcome", lambda row: row.run.outcome),
    Column("reason", lambda row: row.run.reason),
    Column("compiled", _fact("compiled")),
    Column("time_s", lambda row: row.figures[0], "time", "s"),
    Column("energy_j", lambda row: row.figures[1], "energy", "J"),
    Column("power_w", lambda row: row.cost.power_w if row.cost else None),
    Column("clock_hz", lambda row: row.cost.clock_hz if row.cost else None),
    Column("peak_memory_bytes", lambda row: row.run.peak_memory_bytes),
    Column(
        "launches",
        lambda row: None if row.run.kernels is None else sum(row.run.kernels.values()),
    ),
    Column(
        "compile_time_s",
        _fact("compile_time_s"),
        "compile",
        text=lambda row: show(_fact("compile_time_s")(row), "s", digits=3) if row.cost else MISSING,
    ),
    Column("graphs", _fact("graphs"), "graphs"),
    Column("graph_breaks", _fact("graph_breaks"), "breaks"),
    Column("graph_break_reasons", _fact("graph_break_reasons")),
    Column("output_difference", _fact("output_difference")),
    *_savings("saving_{}", lambda row: row.eager, "saves: time"),
    Column("operators_time_s", lambda row: row.operators[0]),
    Column("operators_energy_j", lambda row: row.operators[1]),
    Column("operators_coverage_time", lambda row: row.coverage_time),
    *_savings("saving_{}_of_operators", lambda row: row.operators, "of operators: time"),
    Column("started_at", lambda row: row.run.started_at),
    Column("flags", lambda row: list(row.run.flags)),
)


@dataclass(frozen=True, repr=False)
class ModesReport(Report):
    device: Device
    board: str | None
    found: Sequence[ModeRow]
    left_out: Sequence[Mode] = ()
    errors: Sequence[OpdbError] = ()

    def check(self) -> None:
        failed = [
            OpdbError(f"{_named(row)} {row.mode}: {why_failed(row.run)}")
            for row in self.found
            if row.mode == "eager" and row.cost is None
        ]
        raise_all([*self.errors, *failed], "stored")

    def csv(self) -> str:
        return MODES.csv(self.found)

    def to_dict(self) -> Json:
        return {
            "device": self.device.slug,
            "board": self.board,
            "rows": MODES.documents(self.found),
            "left_out": dict.fromkeys(self.left_out, "it needs a CUDA device"),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        for (board, torch), found in groupby(self.found, key=lambda row: (row.board, row.torch)):
            rows = list(found)
            yield f"{self.device.name} ({board}), torch {torch}"
            yield Rows(MODES, rows)
            yield from _remarks(rows)
        if self.left_out:
            yield f"left out, as they need a CUDA device: {', '.join(self.left_out)}"


def stored_modes(
    store: Store,
    models: Sequence[str],
    batch_sizes: Sequence[int],
    modes: Sequence[Mode],
    device: str | None,
) -> ModesReport:
    from opdb.predict.predictor import choose_device, predictor_for

    found = choose_device(store, device)
    rows = stored_rows(store, predictor_for(store, found, estimates=False), models, batch_sizes)
    rows = [row for row in rows if row.mode in modes]
    if not rows:
        raise InputError(f"no run of that on {found.slug}; without --stored opdb modes makes it")
    return ModesReport(found, None, rows)


def _named(row: ModeRow) -> str:
    return f"{row.workload.name} {describe(row.workload)}"


def _remarks(rows: Sequence[ModeRow]) -> Iterator[str]:
    said: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for remark in row.remarks:
            said.setdefault(remark, {}).setdefault(_named(row), []).append(row.mode)
    for remark, concerned in said.items():
        yield from (f"{who} {', '.join(of)}: {remark}" for who, of in concerned.items())


def measure_modes(
    requests: Sequence[ModelSpec],
    modes: Sequence[Mode] = (),
    device: str | None = None,
    *,
    repeats: int = 3,
    retry: bool = False,
    db: str | None = None,
    display: Display | None = None,
) -> ModesReport:
    """Measure what this board lacks of each request in each mode, with this version of torch.

    No mode named: all that the device has. `repeats` stretches of 1 s are timed. A model that fails
    does not stop the others; `check()` of what is returned raises why.
    """
    from opdb.bench.harvests import measuring
    from opdb.bench.model import RunOptions, check_modes, model_work, modes_of
    from opdb.bench.session import detect
    from opdb.harvest.finding import find_or_harvest
    from opdb.predict.predictor import predictor_for
    from opdb.runs import ModelRunSpec
    from opdb.store import open_store

    display = display or Display()
    platform = detect(device)
    chosen = modes or modes_of(platform)
    check_modes(tuple(chosen), device)
    errors: list[OpdbError] = []
    rows: list[ModeRow] = []
    workloads: dict[str, Workload] = {}
    specs: dict[str, ModelRunSpec] = {}
    with open_store(db) as store:
        with display.progress(len(requests), "harvest") as shown:
            harvests = find_or_harvest(store, requests, measuring(), shown)
        counted = TorchPolicy(
            (platform.device.slug,), (platform.board.uuid,), torch=platform.environment["torch"]
        )
        for request in requests:
            stored = harvests[repr(request)]
            if isinstance(stored, OpdbError):
                errors.append(stored)
                continue
            workload = workloads.setdefault(stored.workload.key, stored.workload)
            for mode in chosen:
                spec = ModelRunSpec(request, workload.key, mode, counted.boards)
                specs[spec.key] = spec
        work = model_work(counted, RunOptions(repeats), retry=retry)
        left = work.pending(store, list(specs.values()))
        with display.progress(len(left), "measure") as shown:
            for spec, run in work.run(store, left, device, shown):
                if run.outcome != "ok":
                    shown.note(f"{spec.label}: {why_failed(run)}")
        if workloads:
            predictor = predictor_for(store, platform.device.slug, estimates=False)
            rows = mode_rows(store, predictor, platform.board.uuid, workloads.values())
    rows = [row for row in rows if row.mode in chosen]
    left_out = [] if modes else [mode for mode in get_args(Mode) if mode not in chosen]
    return ModesReport(platform.device, platform.board.uuid, rows, left_out, errors)


@dataclass(frozen=True)
class ModeArguments:
    batch_sizes: options.BatchSizes = None
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--modes",
            metavar="MODE…",
            help="As in eager,compile; may be given several times.  [default: eager, graph, "
            "compile, compile:reduce-overhead, compile:max-autotune, dynamo and trace, those "
            "that the device has]",
        ),
    ] = None
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Stretches of 1 s to measure.")
    ] = 3
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed before.")] = False
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every row as CSV.")
    ] = None
    stored: Annotated[
        bool,
        typer.Option(
            "--stored", help="Measure nothing: show what the database has, of all boards."
        ),
    ] = False


def run(
    models: Annotated[
        list[str] | None,
        options.models("Model names or summary files."),
    ] = None,
    asked: ModeArguments = ModeArguments(),
    said: options.InferenceModelAtSizes = ModelSpec(),
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cuda, cuda:N or cpu; with --stored a device, such as h200.",
        ),
    ] = None,
    out: options.Output = options.Output(),
) -> None:
    """Measure models in each mode: time and energy, what compiling takes, what is saved.

    Savings are shares of the eager run's time and energy, and of the sum of the model's operators
    where all were measured. What this board has of this version of torch is not measured again.
    Compilers start with an empty cache each time. A model that a mode leaves as it is counts as
    not compiled. A mode that fails does not stop the others.
    """
    chosen = options.parse_modes(asked.modes)
    check_writable(asked.csv_file)
    names, sizes = batch_sizes_among(models or [], asked.batch_sizes, needed=not asked.stored)
    from opdb.store import open_store

    if asked.stored:
        with open_store(out.db, create=False) as store:
            found = stored_modes(store, names, sizes, chosen or get_args(Mode), device)
    else:
        open_store(out.db).close()  # to load models takes seconds
        wanted = said.at_sizes(sizes)
        requests = [each for name in names for one in wanted for each in requests_named(name, one)]
        found = measure_modes(
            requests,
            chosen,
            device,
            repeats=asked.repeats,
            retry=asked.retry,
            db=out.db,
            display=Terminal(quiet=out.quiet),
        )
    if asked.csv_file is not None:
        save(asked.csv_file, found.csv(), quiet=out.quiet or out.as_json)
    if out.as_json or found.found:
        console.show(found, as_json=out.as_json)
    if not asked.stored:
        found.check()
