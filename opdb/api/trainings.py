"""Train whole models on this machine's device: time, power and energy of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.errors import InputError, OpdbError
from opdb.files import AppendedCsv
from opdb.lookup.words import describe, identity, note_harvest, training_of
from opdb.models.usual import times
from opdb.records import Json
from opdb.runs.progress import Display
from opdb.tables import Column, Report, Rows, Table

if TYPE_CHECKING:
    from opdb.bench.options import DriverOptions
    from opdb.derive.runs import RunCost
    from opdb.models import ModelRequest
    from opdb.records import Campaign, ModelRun, Workload


@dataclass(frozen=True)
class TrainedRun:
    """A training that is done, its campaign, and its cost; `cost` is None where it failed."""

    workload: Workload
    run: ModelRun
    campaign: Campaign
    cost: RunCost | None

    @property
    def energy_j(self) -> float | None:
        """The energy of a step in joules."""
        return self.cost.energy_j.mean if self.cost and self.cost.energy_j else None


def _of_workload(name: str, title: str | None = None) -> Column[TrainedRun]:
    return Column(name, lambda one: identity(one.workload)[name], title)


def _input_size(one: TrainedRun) -> str | None:
    size = identity(one.workload)["input_size"]
    return None if size is None else times(size)


def _of_training(name: str) -> Column[TrainedRun]:
    return Column(name, lambda one: (training_of(one.workload) or {}).get(name))


def _fact(name: str) -> Column[TrainedRun]:
    return Column(name, lambda one: one.run.facts.get(name))


def _seconds(name: str, title: str) -> Column[TrainedRun]:
    return Column(name, lambda one: one.run.facts.get(name), title, "s", last=True)


def _set(name: str) -> Column[TrainedRun]:
    return Column(name, lambda one: bool(one.run.setting.get(name)))


def _of_environment(name: str) -> Column[TrainedRun]:
    return Column(name, lambda one: one.campaign.environment.get(name))


TRAININGS: Table[TrainedRun] = Table(
    _fact("label"),
    _of_workload("model", "model"),
    Column(title="workload", text=lambda one: describe(one.workload)),
    _of_workload("batch_size"),
    Column("input_size", _input_size),
    _fact("precision"),
    _of_workload("memory_format"),
    *map(_of_training, ("optimizer", "accumulation")),
    _fact("data"),
    *map(_set, ("deterministic", "cudnn_benchmark")),
    Column("device", lambda one: one.campaign.device.slug),
    Column("board", lambda one: one.campaign.board.uuid),
    Column("outcome", lambda one: one.run.outcome),
    Column("reason", lambda one: one.run.reason),
    Column("repeats", lambda one: len(one.run.repeats)),
    *map(_fact, ("iters", "measured_s", "images_per_s")),
    _seconds("data_time_s", "waiting for data"),
    _seconds("compute_time_s", "compute"),
    Column("time_s", lambda one: one.cost.time_s.mean if one.cost else None, "a step", "s"),
    Column("energy_j", lambda one: one.energy_j, "energy", "J", last=True),
    Column("power_w", lambda one: one.cost.power_w if one.cost else None),
    Column("peak_memory_bytes", lambda one: one.run.peak_memory_bytes),
    *map(_fact, ("peak_resident_bytes", "os")),
    Column("host", lambda one: one.campaign.host.id),
    *map(_of_environment, ("torch", "cuda", "cudnn", "driver", "opdb")),
    Column("started_at", lambda one: one.run.started_at),
    Column("run", lambda one: one.run.id),
    _fact("note"),
    Column("flags", lambda one: "; ".join(one.run.flags), "flags", last=True),
)
"""A training as a flat row: what it was, what it cost, and where it ran."""


@dataclass(frozen=True, repr=False)
class Trainings(Report):
    """Trainings that were run; `errors` name the models that could not be."""

    runs: Sequence[TrainedRun]
    errors: Sequence[OpdbError] = ()

    def check(self) -> None:
        """Raise what went wrong, every model named.

        Raises:
            OpdbError: something did.
        """
        lines = [str(error) for error in self.errors]
        lines += [
            f"{one.workload.name} {describe(one.workload)}: {one.run.outcome}: {one.run.reason}"
            for one in self.runs
            if one.run.outcome != "ok"
        ]
        if len(lines) == 1:
            raise OpdbError(lines[0])
        if lines:
            listed = "\n".join(f"  {line}" for line in lines)
            raise OpdbError(f"{len(lines)} trainings failed; what was finished is stored\n{listed}")

    def rows(self) -> list[dict[str, Json]]:
        """Return each training as data."""
        return [TRAININGS.document(one) for one in self.runs]

    def to_dict(self) -> list[dict[str, Json]]:
        """Return what `opdb measure --phase training --json` prints."""
        return self.rows()

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a line a training for scripts to read, and all that ended well as a table."""
        good = [one for one in self.runs if one.run.outcome == "ok"]
        for facts in (one.run.facts for one in good):
            seconds, rate = facts["measured_s"], facts["images_per_s"]
            yield f"MEASURED_SEC={seconds:.6f} IMGS_PER_SEC={rate:.3f}"
        if good:
            yield Rows(TRAININGS, good)


@dataclass(frozen=True)
class TrainOptions:
    """How models are trained, and where.

    `device` is cuda, cuda:N or cpu. `mixed` is under autocast where the device has it. A row of
    each training is appended to `csv`.
    """

    driver: DriverOptions
    device: str | None = None
    mixed: bool = False
    csv: Path | None = None


def train_all(
    requests: Sequence[ModelRequest],
    asked: TrainOptions,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> Trainings:
    """Train models one by one; each is stored, and its row written, as soon as it is done.

    One that fails does not stop the others.

    Raises:
        InputError: the database cannot be opened, or the file is no such table.
        CannotMeasureError: there is no such device, or it stopped answering.
    """
    from opdb.bench.measure import harvested
    from opdb.bench.trainings import train_models
    from opdb.derive.runs import run_cost
    from opdb.derive.statistics import typical_on
    from opdb.store import open_store

    display = display or Display()
    table = None if asked.csv is None else AppendedCsv(asked.csv, TRAININGS.fields)
    done: list[TrainedRun] = []
    errors: list[OpdbError] = []
    if asked.mixed:
        requests = _in_mixed_precision(requests, asked.device, display.note)
    with open_store(db) as store, display.progress(len(requests), "train") as shown:
        workloads = harvested(store, requests, errors, partial(note_harvest, display.note))
        jobs = [(r, workloads[repr(r)]) for r in requests if repr(r) in workloads]
        names = [f"{workload.name} {describe(workload)}" for _, workload in jobs]
        made = train_models(store, jobs, asked.driver, asked.device, shown, names)
        for workload, run in made:
            if isinstance(run, InputError):
                errors.append(run)
                continue
            [ran] = [c for c in store.campaigns() if c.id == run.campaign]
            done.append(TrainedRun(workload, run, ran, run_cost([run], typical_on(ran.device))))
            if table is not None:
                table.append(TRAININGS.document(done[-1]))
    return Trainings(done, errors)


def _in_mixed_precision(
    requests: Sequence[ModelRequest], device: str | None, note: Callable[[str], None]
) -> Sequence[ModelRequest]:
    """Return the requests under autocast; where the device has none, say so and leave them."""
    from opdb.bench.driver import AMP_DTYPE, why_no_amp
    from opdb.bench.platform import detect

    why = why_no_amp(detect(device).torch_device)
    if why is not None:
        note(f"{why}: trained in fp32")
        return requests
    return [replace(request, autocast=AMP_DTYPE).checked() for request in requests]
