"""`opdb measure`: whole models run and stored, the truth for predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.cli import console, options
from opdb.cli.options import batch_sizes_among
from opdb.commands import _lazy as lazy
from opdb.commands.bench import check_failures, harvested, measured_places
from opdb.derive.runs import RunCost, run_cost
from opdb.derive.statistics import typical_on
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError, raise_all
from opdb.files import AppendedCsv
from opdb.models import checked
from opdb.progress import Display
from opdb.records import Campaign, Json, Mode, ModelRun, Stored, Workload
from opdb.runs import BACKENDS, PRECISIONS, DriverOptions, ImageOptions
from opdb.spec import (
    ModelSpec,
    describe,
    identity,
    parse_mode,
    times,
    workload_columns,
)
from opdb.summary_files import requests_named
from opdb.tables import Column, Report, Rows, Table

PANEL = "measure"

TRAINING = "Of training:"


@dataclass(frozen=True)
class TrainingOptions:
    """How trainings are run beyond what all models have, the defaults those of `DriverOptions`."""

    backend: Annotated[
        str,
        typer.Option(
            "--backend", metavar="NAME", help=f"{TRAINING} auto, cuda, mps (refused) or cpu."
        ),
    ] = "auto"
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="NAME",
            help=f"{TRAINING} fp32, or amp: autocast to bfloat16, fp32 where that cannot be.",
        ),
    ] = "fp32"
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="The same as --memory-format channels_last.")
    ] = False
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help=f"{TRAINING} only algorithms that repeat their results."
        ),
    ] = False
    cudnn_benchmark: Annotated[
        bool,
        typer.Option("--cudnn-benchmark", help=f"{TRAINING} let cuDNN try its algorithms first."),
    ] = False
    synthetic: Annotated[
        bool,
        typer.Option(
            "--synthetic", help=f"{TRAINING} the model's example inputs, which stay on the device."
        ),
    ] = False
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="FOLDER",
            help=f"{TRAINING} read images from here, one folder a class.  [default: --synthetic]",
        ),
    ] = None
    no_augment: Annotated[
        bool, typer.Option("--no-augment", help="Of --images: no random crops, no mirroring.")
    ] = False
    workers: Annotated[
        int,
        typer.Option(
            "--workers", metavar="N", min=0, help="Of --images: processes that read ahead."
        ),
    ] = ImageOptions.workers
    pin_memory: Annotated[
        bool, typer.Option("--pin-memory", help="Of --images: batches in page-locked memory.")
    ] = False
    prefetch_factor: Annotated[
        int | None,
        typer.Option(
            "--prefetch-factor",
            metavar="N",
            min=1,
            help="Of --images: batches a worker reads ahead.",
        ),
    ] = None
    warmup_iters: Annotated[
        int,
        typer.Option(
            "--warmup-iters", metavar="N", min=1, help=f"{TRAINING} iterations before timing."
        ),
    ] = DriverOptions.warmup_iters
    iters: Annotated[
        int, typer.Option("--iters", metavar="N", min=1, help=f"{TRAINING} iterations timed.")
    ] = DriverOptions.iters
    nvtx: Annotated[
        bool,
        typer.Option("--nvtx", help=f"{TRAINING} mark its parts for NVIDIA's profilers."),
    ] = False
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help=f"{TRAINING} a name of the run.")
    ] = None
    note: Annotated[
        str | None,
        typer.Option("--note", metavar="TEXT", help=f"{TRAINING} a remark kept with it."),
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help=f"{TRAINING} append a row for each run."),
    ] = None

    def given(self) -> list[str]:
        """Return the options that are not as usual and that only a training has."""
        return [
            "--" + each.name.replace("_", "-")
            for each in fields(self)
            if getattr(self, each.name) != each.default and each.name != "channels_last"
        ]

    def with_layout(self, said: ModelSpec) -> ModelSpec:
        """Return what is said of the model, its memory format by that name or --channels-last."""
        if not self.channels_last:
            return said
        if said.memory_format not in (None, "channels_last"):
            raise InputError(
                f"give --memory-format {said.memory_format} or --channels-last, not both"
            )
        return replace(said, memory_format="channels_last")

    def on(self, device: str | None) -> str | None:
        """Return the device that trainings run on, checked; None for the best there is."""
        if self.precision not in PRECISIONS:
            raise UnknownNameError("--precision", self.precision, PRECISIONS)
        if self.backend not in BACKENDS:
            raise UnknownNameError("--backend", self.backend, BACKENDS)
        if self.backend == "mps":
            raise CannotMeasureError(lazy.driver.NO_MPS)
        if self.backend == "auto":
            return device
        if device is not None:
            raise InputError(f"give --backend {self.backend} or --device {device}, not both")
        return self.backend

    def driver(self, repeats: int) -> DriverOptions:
        named = {each.name for each in fields(DriverOptions)} - {"images", "repeats"}
        same = {name: getattr(self, name) for name in named}
        return DriverOptions(images=self._image_options(), repeats=repeats, **same)

    def _image_options(self) -> ImageOptions | None:
        of_images = ("--no-augment", "--workers", "--pin-memory", "--prefetch-factor")
        if self.images is None:
            for name in set(of_images) & set(self.given()):
                raise InputError(f"{name} is for images: give a folder with --images")
            return None
        if self.synthetic:
            raise InputError("give --synthetic or --images, not both")
        if self.workers == 0 and self.prefetch_factor is not None:
            raise InputError("--prefetch-factor needs workers; there are none (--workers 0)")
        how = self.workers, self.pin_memory, self.prefetch_factor
        if not self.images.is_dir():
            raise InputError(f"{self.images}: no such folder; give one with a folder a class")
        return ImageOptions(self.images, not self.no_augment, *how)


@dataclass(frozen=True)
class MeasuredRun:
    """A run of a model, its cost (None where it failed), and its campaign."""

    workload: Workload
    run: ModelRun
    cost: RunCost | None
    campaign: Campaign

    @property
    def words(self) -> str:
        return f"{self.workload.name} {describe(self.workload)} {self.run.mode}"

    @property
    def energy_j(self) -> float | None:
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
    Column("host_slowdown", lambda row: row.cost and row.cost.slowdown),
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

LAYERS: Table[tuple[str, float]] = Table(
    Column("module", itemgetter(0), title="module"),
    Column("time_s", itemgetter(1), title="time", unit="s"),
)


@dataclass(frozen=True, repr=False)
class Measured(Report):
    """Runs of models; `errors` and `failures` name the models and the devices that failed."""

    runs: Sequence[MeasuredRun]
    errors: Sequence[OpdbError] = ()
    places: Sequence[lazy.workers.WorkerDevice] = ()
    failures: Sequence[str] = ()

    def check(self) -> None:
        failed = (each for each in self.runs if each.run.outcome != "ok")
        ran = [OpdbError(f"{r.words}: {r.run.outcome}: {r.run.reason}") for r in failed]
        raise_all([*self.errors, *ran], "stored")
        check_failures(self.failures, self.places)

    def to_dict(self) -> list[dict[str, Json]]:
        return self.rows()

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield Rows(RUNS, self.runs)
        for each in self.runs:
            slowest = sorted((each.run.layers or {}).items(), key=itemgetter(1), reverse=True)
            if slowest:
                yield ""
                yield f"{each.workload.name} {describe(each.workload)}: leaf modules in place"
                yield Rows(LAYERS, slowest)


def _entry(of: Callable[[MeasuredRun], Mapping[str, Json]], name: str) -> Column[MeasuredRun]:
    return Column(name, lambda one: of(one).get(name))


def _named(
    of: Callable[[MeasuredRun], Mapping[str, Json]], *names: str
) -> Iterator[Column[MeasuredRun]]:
    return map(partial(_entry, of), names)


def _input_size(one: MeasuredRun) -> str | None:
    size = identity(one.workload)["input_size"]
    return None if size is None else times(size)


def _facts(one: MeasuredRun) -> Mapping[str, Json]:
    return one.run.facts


def _seconds(name: str, title: str) -> Column[MeasuredRun]:
    return Column(name, lambda one: one.run.facts.get(name), title, "s")


TRAININGS: Table[MeasuredRun] = Table(
    *_named(_facts, "label"),
    Column("model", lambda one: one.workload.name, "model"),
    Column(title="workload", text=lambda one: describe(one.workload)),
    Column("batch_size", lambda one: one.workload.batch_size),
    Column("input_size", _input_size),
    *_named(_facts, "precision"),
    Column("memory_format", lambda one: one.workload.memory_format),
    *_named(lambda one: one.workload.inputs.get("training") or {}, "optimizer", "accumulation"),
    *_named(_facts, "data"),
    Column("deterministic", lambda one: bool(one.run.setting.get("deterministic"))),
    Column("cudnn_benchmark", lambda one: bool(one.run.setting.get("cudnn_benchmark"))),
    Column("device", lambda one: one.campaign.device.slug),
    Column("board", lambda one: one.campaign.board.uuid),
    Column("outcome", lambda one: one.run.outcome),
    Column("reason", lambda one: one.run.reason),
    Column("repeats", lambda one: len(one.run.repeats)),
    *_named(_facts, "iters", "measured_s", "images_per_s"),
    _seconds("data_time_s", "waiting for data"),
    _seconds("compute_time_s", "compute"),
    Column("time_s", lambda one: one.cost.time_s.mean if one.cost else None, "a step", "s"),
    Column("energy_j", lambda one: one.energy_j, "energy", "J"),
    Column("power_w", lambda one: one.cost.power_w if one.cost else None),
    Column("peak_memory_bytes", lambda one: one.run.peak_memory_bytes),
    *_named(_facts, "peak_resident_bytes", "os"),
    Column("host", lambda one: one.campaign.host.id),
    *_named(lambda one: one.campaign.environment, "torch", "cuda", "cudnn", "driver", "opdb"),
    Column("started_at", lambda one: one.run.started_at),
    Column("run", lambda one: one.run.id),
    *_named(_facts, "note"),
    Column("flags", lambda one: "; ".join(one.run.flags), "flags"),
)


@dataclass(frozen=True, repr=False)
class Trainings(Measured):
    """Trainings that were run."""

    def rows(self) -> list[dict[str, Json]]:
        return [TRAININGS.document(one) for one in self.runs]

    def blocks(self) -> Iterator[str | Rows[Any]]:
        good = [one for one in self.runs if one.run.outcome == "ok"]
        for facts in (one.run.facts for one in good):
            seconds, rate = facts["measured_s"], facts["images_per_s"]
            yield f"MEASURED_SEC={seconds:.6f} IMGS_PER_SEC={rate:.3f}"
        if good:
            yield Rows(TRAININGS, good)


def measure(
    *models: str,
    modes: Sequence[str] = ("eager",),
    batch_sizes: Sequence[int] = (),
    layers: bool = False,
    repeats: int = 3,
    training: TrainingOptions | None = None,
    device: str | None = None,
    devices: str | None = None,
    db: str | None = None,
    display: Display | None = None,
    check: bool = True,
    **said: Any,
) -> Measured:
    """Run whole models and store time, power and energy of a pass, as `opdb measure` does.

    It needs torch. `repeats` stretches of 1 s are timed; `layers` times each leaf module in place
    as well. `device` is cuda, cuda:N or cpu; `devices` several, as in "0,1". Trainings in mode
    eager on one device are run as `training` says, and give `Trainings`; in other modes whole steps
    are timed. A model that fails does not stop the others; it raises at the end, unless `check`
    leaves that to `check()` of what is returned.
    """
    given = training or TrainingOptions()
    of_models = given.with_layout(ModelSpec.parse(**said)).at_sizes(batch_sizes)
    chosen = tuple(parse_mode(mode) for mode in modes)
    lazy.store.open_store(db).close()  # to load models takes seconds
    requests = [each for name in models for one in of_models for each in requests_named(name, one)]
    named, trained = given.given(), [request.training is not None for request in requests]
    if named and not all(trained):
        raise InputError(f"{named[0]} is for training runs: add --phase training")
    display = display or Display()
    found: Measured
    if all(trained) and chosen == ("eager",) and not devices and not layers:
        found = _trained(requests, given, repeats, device, db, display)
    elif named:
        raise InputError(f"{named[0]} is for training runs in mode eager, on one device")
    else:
        found = _measured(requests, chosen, (repeats, layers), (device, devices), db, display)
    if check:
        found.check()
    return found


def _measured(
    requests: Sequence[ModelSpec],
    modes: Sequence[Mode],
    timed: tuple[int, bool],
    where: tuple[str | None, str | None],
    db: str | None,
    display: Display,
) -> Measured:
    device, places = where[0], measured_places(*where, modes)
    errors: list[OpdbError] = []
    done: list[MeasuredRun] = []
    with lazy.store.open_store(db) as store:
        stored = harvested(store, requests, lazy.harvests.measuring(), display, errors)
        jobs = [(*job, mode) for job in _jobs(requests, stored) for mode in modes]
        how = lazy.model.RunOptions(*timed)
        runs, failures = lazy.model.measure_models(store, jobs, how, device, display, places)
        for workload, run in runs:
            [ran] = [c for c in store.campaigns() if c.id == run.campaign]
            base_power_w = ran.calibration.base_power_w
            cost = run_cost([run], typical_on(ran.device), base_power_w)
            done.append(MeasuredRun(workload, run, cost, ran))
        return Measured(done, errors, places, failures)


def _jobs(
    requests: Sequence[ModelSpec], stored: Mapping[str, Stored]
) -> list[tuple[ModelSpec, Workload]]:
    return [(each, stored[repr(each)].workload) for each in requests if repr(each) in stored]


def _trained(
    requests: Sequence[ModelSpec],
    asked: TrainingOptions,
    repeats: int,
    device: str | None,
    db: str | None,
    display: Display,
) -> Trainings:
    """Train models one by one; each is stored, and its row written, as soon as it is done."""
    device, driver = asked.on(device), asked.driver(repeats)
    table = None if asked.csv is None else AppendedCsv(asked.csv, TRAININGS.fields)
    done: list[MeasuredRun] = []
    errors: list[OpdbError] = []
    if asked.precision == "amp":
        if why := lazy.driver.why_no_amp(lazy.session.detect(device).torch_device):
            display.note(f"{why}: trained in fp32")
        else:
            requests = [
                checked(replace(request, autocast=lazy.driver.AMP_DTYPE)) for request in requests
            ]
    with lazy.store.open_store(db) as store:
        stored = harvested(store, requests, lazy.harvests.measuring(), display, errors)
        jobs = _jobs(requests, stored)
        if not jobs:
            return Trainings(done, errors)
        platform = lazy.session.detect(device)
        with (
            lazy.bench_run.campaign(platform, store) as session,
            display.progress(len(jobs), "train") as shown,
        ):
            for request, workload in jobs:
                shown.doing(f"{workload.name} {describe(workload)}")
                run = lazy.driver.train(session, request, workload.key, driver)
                store.save_model_run(run)
                cost = run_cost([run], typical_on(platform.device))
                done.append(MeasuredRun(workload, run, cost, session.campaign))
                if table is not None:
                    table.append(TRAININGS.document(done[-1]))
                shown.done()
    return Trainings(done, errors)


def run(
    models: Annotated[
        list[str],
        options.models("Model names or summary files."),
    ],
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="eager, graph, compile, compile:reduce-overhead, compile:max-autotune, dynamo or "
            "trace; may be repeated.  [default: eager]",
        ),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Time each leaf module in place as well.")
    ] = False,
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats",
            "--repeat",
            metavar="N",
            min=1,
            help="Stretches to measure: of 1 s, in training of --iters; in mode graph 3 at least, "
            "each in a process of its own.",
        ),
    ] = 3,
    batch_sizes: options.BatchSizes = None,
    said: Annotated[ModelSpec, options.OfModel("batch_size", "autocast")] = ModelSpec(),
    training: TrainingOptions = TrainingOptions(),
    device: options.MeasuredDevice = None,
    devices: options.Devices = None,
    out: options.Output = options.Output(),
) -> None:
    """Run whole models on this device and store time, power and energy of a pass.

    Random weights; batch-norm statistics calibrated by one pass. A summary file runs all of its
    batch sizes and variants, unless others are given here. Training (--phase training) runs a fixed
    number of iterations, on the model's example inputs or on a folder of images, and tells data
    loading and compute apart.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    found = measure(
        *names,
        modes=modes or ("eager",),
        batch_sizes=sizes,
        layers=layers,
        repeats=repeats,
        training=training,
        device=device,
        devices=devices,
        db=out.db,
        display=console.Terminal(quiet=out.quiet),
        check=False,
        **said.keywords(),
    )
    if out.as_json or found.runs:
        console.show(found, as_json=out.as_json)
    found.check()
