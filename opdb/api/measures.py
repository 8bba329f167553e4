"""Measure whole models on this machine's device: time, power and energy of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Unpack

from opdb.api.places import check_failures, measured_places
from opdb.errors import InputError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords, parse_mode
from opdb.lookup.requests import requests_named
from opdb.lookup.words import describe, note_harvest, workload_columns
from opdb.records import CAPTURED_MODE, Json, Mode
from opdb.runs.progress import Display
from opdb.tables import Column, Report, Rows, Table

if TYPE_CHECKING:
    from opdb.cluster.devices import WorkerDevice
    from opdb.derive.runs import RunCost
    from opdb.models import ModelRequest
    from opdb.records import ModelRun, Workload
    from opdb.runs.work import Maker
    from opdb.store import Store


@dataclass(frozen=True)
class MeasureOptions:
    """In which modes models are measured, where, and how long.

    `device` is cuda, cuda:N or cpu; `devices` several, as in "0,1". `repeats` stretches of 1 s are
    timed. `layers` times each leaf module in place as well.
    """

    modes: tuple[Mode, ...] = ("eager",)
    device: str | None = None
    devices: str | None = None
    repeats: int = 3
    layers: bool = False


@dataclass(frozen=True)
class MeasuredRun:
    """A run of a model, and its cost; `cost` is None where the run failed."""

    workload: Workload
    run: ModelRun
    cost: RunCost | None

    @property
    def words(self) -> str:
        """The model and the mode in a few words."""
        return f"{self.workload.name} {describe(self.workload)} {self.run.mode}"

    @property
    def energy_j(self) -> float | None:
        """The energy of a pass in joules."""
        return self.cost.energy_j.mean if self.cost and self.cost.energy_j else None


RUNS: Table[MeasuredRun] = Table(
    *workload_columns(lambda row: row.workload),
    Column("mode", lambda row: row.run.mode, title="mode"),
    Column("outcome", lambda row: row.run.outcome),
    Column("reason", lambda row: row.run.reason),
    Column("time_s", lambda row: row.cost and row.cost.time_s.mean, title="time", unit="s"),
    Column("energy_j", lambda row: row.energy_j, title="energy", unit="J"),
    Column("power_w", lambda row: row.cost and row.cost.power_w, title="power", unit="W"),
    Column("clock_hz", lambda row: row.cost and row.cost.clock_hz),
    Column(
        "host_slowdown", lambda row: row.cost and row.cost.slowdown and asdict(row.cost.slowdown)
    ),
    Column("peak_memory_bytes", lambda row: row.run.peak_memory_bytes),
    Column("layers", lambda row: row.run.layers),
    Column(
        "flags",
        lambda row: list(row.run.flags),
        title="flags",
        text=lambda row: "; ".join(row.run.flags),
    ),
    Column("facts", lambda row: dict(row.run.facts)),
)
"""A run of a model."""

LAYERS: Table[tuple[str, float]] = Table(
    Column("module", itemgetter(0), title="module"),
    Column("time_s", itemgetter(1), title="time", unit="s"),
)
"""A leaf module and its time in place."""


@dataclass(frozen=True, repr=False)
class Measured(Report):
    """Runs of models; `errors` and `failures` name the models and the devices that failed.

    `differing` says of which runs the kernels are not those of the model's operators.
    """

    runs: Sequence[MeasuredRun]
    errors: Sequence[OpdbError] = ()
    places: Sequence[WorkerDevice] = ()
    failures: Sequence[str] = ()
    differing: Sequence[str] = ()

    def check(self) -> None:
        """Raise what went wrong, every model and device named.

        Raises:
            OpdbError: a model could not be harvested, or a run failed.
            CannotMeasureError: a device failed.
        """
        lines = [str(error) for error in self.errors]
        lines += [
            f"{each.words}: {each.run.outcome}: {each.run.reason}"
            for each in self.runs
            if each.run.outcome != "ok"
        ]
        if len(lines) == 1:
            raise OpdbError(lines[0])
        if lines:
            listed = "\n".join(f"  {line}" for line in lines)
            raise OpdbError(f"{len(lines)} models failed; what was finished is stored\n{listed}")
        check_failures(self.failures, self.places)

    def to_dict(self) -> list[dict[str, Json]]:
        """Return what `opdb measure --json` prints."""
        return self.rows()

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a row a run, the layers where they were timed, and what differs."""
        yield Rows(RUNS, self.runs)
        for each in self.runs:
            if each.cost and each.cost.slowdown:
                yield f"{each.words}: the host took {each.cost.slowdown.words}"
            slowest = sorted((each.run.layers or {}).items(), key=itemgetter(1), reverse=True)
            if slowest:
                yield ""
                yield f"{each.workload.name} {describe(each.workload)}: leaf modules in place"
                yield Rows(LAYERS, slowest)
        yield from self.differing


def measure(
    *models: str,
    options: MeasureOptions | None = None,
    db: str | None = None,
    display: Display | None = None,
    **said: Unpack[ModelWords],
) -> Measured:
    """Run whole models and store time, power and energy of a pass, as `opdb measure` does.

    It needs torch. Of a training, whole steps are timed in the modes other than eager.

    Raises:
        InputError: a model, mode or device is not known, or an eager training is asked for.
        OpdbError: a model could not be harvested, or a run failed; the others are stored.
        CannotMeasureError: there is no such device, or it failed.
    """
    asked = options or MeasureOptions()
    asked = replace(asked, modes=tuple(parse_mode(mode) for mode in asked.modes))
    of_models = ModelOptions.parse(**said)
    requests = [request for name in models for request in requests_named(name, of_models)]
    if "eager" in asked.modes and any(request.training for request in requests):
        raise InputError("an eager training is run by the command: opdb measure --phase training")
    found = measure_all(requests, asked, db=db, display=display)
    found.check()
    return found


def measure_all(
    requests: Sequence[ModelRequest],
    asked: MeasureOptions,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> Measured:
    """Measure each request in each mode; one that fails does not stop the others.

    Raises:
        InputError: the database cannot be opened.
        CannotMeasureError: there is no such device, or it lacks a mode.
    """
    from opdb.bench.measure import check_modes, harvested, measure_models
    from opdb.bench.model import RunOptions
    from opdb.derive.runs import run_cost
    from opdb.derive.statistics import typical_on
    from opdb.store import open_store

    display = display or Display()
    places = measured_places(asked.device, asked.devices)
    if not places or any(place.device == "cpu" for place in places):
        check_modes(asked.modes, "cpu" if places else asked.device)
    errors: list[OpdbError] = []
    done: list[MeasuredRun] = []
    with open_store(db) as store:
        workloads = harvested(store, requests, errors, partial(note_harvest, display.note))
        found = [(r, workloads[repr(r)]) for r in requests if repr(r) in workloads]
        jobs = [(request, workload, mode) for request, workload in found for mode in asked.modes]
        progress = display.progress(len(jobs), "measure")
        with _maker(store, asked.device, places) as on, progress as shown:
            timed = RunOptions(asked.repeats, asked.layers)
            for workload, run in measure_models(store, jobs, timed, on, shown, _named):
                [ran] = [c for c in store.campaigns() if c.id == run.campaign]
                base_power_w = ran.calibration.base_power_w
                cost = run_cost([run], typical_on(ran.device), base_power_w)
                done.append(MeasuredRun(workload, run, cost))
            failures = list(on.failures)
        return Measured(done, errors, places, failures, _differing(store, done))


def _named(workload: Workload, mode: Mode) -> str:
    return f"{workload.name} {describe(workload)} {mode}"


@contextmanager
def _maker(store: Store, device: str | None, places: list[WorkerDevice]) -> Iterator[Maker]:
    """Yield who measures: this process, or workers at several places."""
    if not places:
        from opdb.bench.measure import here

        yield here(store, device)
        return
    from opdb.cluster.crew import Crew

    with Crew(places, store.url) as crew:
        yield crew


def _differing(store: Store, done: Sequence[MeasuredRun]) -> list[str]:
    """Say of each run whose kernels are not those of its operators how many differ.

    Of a model whose operators were not all benched here nothing can be said yet; a compiler's
    kernels are its own.
    """
    from opdb.derive.launches import compare_launches
    from opdb.predict import PLAIN_MODES
    from opdb.studies.agreement import in_words

    boards = {campaign.id: campaign.board.uuid for campaign in store.campaigns()}
    kernels = {
        board: store.kernels(board) for board in {boards[each.run.campaign] for each in done}
    }
    lines = []
    for each in done:
        workload, model_run = each.workload, each.run
        if model_run.mode not in PLAIN_MODES:
            continue
        captured = store.captured(workload) if model_run.mode == CAPTURED_MODE else None
        of_board = kernels[boards[model_run.campaign]]
        found = compare_launches(captured or workload, model_run, of_board)
        if found is not None and not found.agree and not found.unseen:
            lines.append(f"{each.words}: {in_words(found)}")
    return lines
