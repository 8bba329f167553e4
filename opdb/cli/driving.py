"""Training runs from the command line: their options, what they print, rows of a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from opdb.bench.options import BACKENDS, PRECISIONS
from opdb.cli.console import note, print_json, print_table, progress
from opdb.cli.files import check_writable, is_special
from opdb.cli.selection import describe, identity, note_harvest
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError
from opdb.records import Json
from opdb.units import show

if TYPE_CHECKING:
    from opdb.bench.options import DriverOptions
    from opdb.derive.runs import RunCost
    from opdb.models import ModelRequest
    from opdb.records import Campaign, ModelRun, Workload


_TRAINING = "Of training:"

Backend: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--backend", metavar="NAME", help=f"{_TRAINING} auto, cuda, mps or cpu.  [default: auto]"
    ),
]
PrecisionName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help=f"{_TRAINING} fp32, or amp: autocast to bfloat16, fp32 where that cannot be.  "
        "[default: fp32]",
    ),
]
ChannelsLast: TypeAlias = Annotated[
    bool, typer.Option("--channels-last", help="The same as --memory-format channels_last.")
]
Deterministic: TypeAlias = Annotated[
    bool,
    typer.Option("--deterministic", help=f"{_TRAINING} only algorithms that repeat their results."),
]
CudnnBenchmark: TypeAlias = Annotated[
    bool, typer.Option("--cudnn-benchmark", help=f"{_TRAINING} let cuDNN try its algorithms first.")
]
ImageFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--images",
        metavar="FOLDER",
        help=f"{_TRAINING} read images from here, one folder a class.  [default: --synthetic]",
    ),
]
Synthetic: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--synthetic", help=f"{_TRAINING} the model's example inputs, which stay on the device."
    ),
]
NoAugment: TypeAlias = Annotated[
    bool, typer.Option("--no-augment", help="Of --images: no random crops, no mirroring.")
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=0,
        help="Of --images: processes that read ahead.  [default: 4]",
    ),
]
PinMemory: TypeAlias = Annotated[
    bool, typer.Option("--pin-memory", help="Of --images: batches in page-locked memory.")
]
PrefetchFactor: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--prefetch-factor", metavar="N", min=1, help="Of --images: batches a worker reads ahead."
    ),
]
WarmupIters: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--warmup-iters",
        metavar="N",
        min=1,
        help=f"{_TRAINING} iterations before timing.  [default: 10]",
    ),
]
Iters: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--iters", metavar="N", min=1, help=f"{_TRAINING} iterations timed.  [default: 50]"
    ),
]
Nvtx: TypeAlias = Annotated[
    bool,
    typer.Option("--nvtx", help=f"{_TRAINING} mark its parts for NVIDIA's profilers."),
]
Label: TypeAlias = Annotated[
    str | None, typer.Option("--label", metavar="TEXT", help=f"{_TRAINING} a name of the run.")
]
Note: TypeAlias = Annotated[
    str | None, typer.Option("--note", metavar="TEXT", help=f"{_TRAINING} a remark kept with it.")
]
CsvFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help=f"{_TRAINING} append a row for each run."),
]


@dataclass(frozen=True)
class Said:
    """The options of a training run as they were given; None or False where they were not."""

    backend: str | None
    precision: str | None
    deterministic: bool
    cudnn_benchmark: bool
    images: Path | None
    synthetic: bool
    no_augment: bool
    workers: int | None
    pin_memory: bool
    prefetch_factor: int | None
    warmup_iters: int | None
    iters: int | None
    nvtx: bool
    label: str | None
    note: str | None
    csv: Path | None

    def given(self) -> list[str]:
        """Return the names of the options that were given."""
        return [
            "--" + name.replace("_", "-")
            for name, value in vars(self).items()
            if value is not None and value is not False
        ]


@dataclass(frozen=True)
class Driven:
    """A training run that is done, with what tells it apart and what it cost."""

    workload: Workload
    run: ModelRun
    campaign: Campaign
    cost: RunCost | None


def check_training(said: Said, requests: Sequence[ModelRequest]) -> None:
    """Check that options of training were given of trainings alone.

    Raises:
        InputError: one was, and a request is of inference.
    """
    given = said.given()
    if given and any(request.training is None for request in requests):
        raise InputError(f"{given[0]} is for training runs: add --phase training")


def memory_format(said: str | None, channels_last: bool) -> str | None:
    """Return the memory format that was said, by its name or by --channels-last.

    Raises:
        InputError: both were said and differ.
    """
    if channels_last and said not in (None, "channels_last"):
        raise InputError(f"give --memory-format {said} or --channels-last, not both")
    return "channels_last" if channels_last else said


def chosen_device(said: Said, device: str | None) -> str | None:
    """Return the device that a training runs on; None for the best there is.

    Raises:
        InputError: there is no such backend, or both a device and a backend were given.
        CannotMeasureError: this machine lacks the backend.
    """
    if said.backend is None:
        return device
    if said.backend not in BACKENDS:
        raise UnknownNameError("--backend", said.backend, BACKENDS)
    if device is not None:
        raise InputError(f"give --backend {said.backend} or --device {device}, not both")
    if said.backend == "mps":
        from opdb.bench.driver import why_no_mps

        raise CannotMeasureError(why_no_mps())
    return None if said.backend == "auto" else said.backend


def driver_options(said: Said, repeats: int) -> DriverOptions:
    """Return what the options of a training run mean.

    Raises:
        InputError: one has no such value, two contradict each other, or the images' folder is not
            there.
    """
    from opdb.bench.options import DriverOptions, ImageOptions

    if said.precision is not None and said.precision not in PRECISIONS:
        raise UnknownNameError("--precision", said.precision, PRECISIONS)
    of_images = {
        "--no-augment": said.no_augment,
        "--workers": said.workers is not None,
        "--pin-memory": said.pin_memory,
        "--prefetch-factor": said.prefetch_factor is not None,
    }
    images = None
    if said.images is not None:
        if said.synthetic:
            raise InputError("give --synthetic or --images, not both")
        if said.workers == 0 and said.prefetch_factor is not None:
            raise InputError("--prefetch-factor needs workers; there are none (--workers 0)")
        options = ImageOptions(said.images)
        images = replace(
            options,
            augment=not said.no_augment,
            workers=options.workers if said.workers is None else said.workers,
            pin_memory=said.pin_memory,
            prefetch_factor=said.prefetch_factor,
        )
        images.check_folder()
    elif any(of_images.values()):
        first = next(name for name, given in of_images.items() if given)
        raise InputError(f"{first} is for images: give a folder with --images")
    usual = DriverOptions()
    return DriverOptions(
        deterministic=said.deterministic,
        cudnn_benchmark=said.cudnn_benchmark,
        images=images,
        warmup_iters=said.warmup_iters or usual.warmup_iters,
        iters=said.iters or usual.iters,
        repeats=repeats,
        nvtx=said.nvtx,
        label=said.label,
        note=said.note,
    )


@dataclass(frozen=True)
class Driving:
    """What a command asks of training runs: how, where, and what of it is shown and kept."""

    said: Said
    options: DriverOptions
    device: str | None
    db: str | None
    as_json: bool
    quiet: bool


def drive(requests: Sequence[ModelRequest], asked: Driving) -> None:
    """Run trainings one by one; each is stored, printed and appended as soon as it is done.

    Raises:
        OpdbError: one of them failed; the others were run all the same.
    """
    from opdb.bench.driver import train
    from opdb.bench.measure import harvested
    from opdb.bench.run import campaign
    from opdb.derive.runs import run_cost
    from opdb.store import open_store

    rows = None if asked.said.csv is None else Rows(asked.said.csv)
    done: list[Driven] = []
    errors: list[OpdbError] = []
    if asked.said.precision == "amp":
        requests = _in_mixed_precision(requests, asked.device)
    with (
        open_store(asked.db) as store,
        progress(len(requests), "train", quiet=asked.quiet) as shown,
    ):
        tell = partial(note_harvest, quiet=asked.quiet)
        workloads = harvested(store, requests, errors, tell)
        found = [(r, workloads[repr(r)]) for r in requests if repr(r) in workloads]
        if found:
            with campaign(asked.device, store) as session:
                for request, workload in found:
                    shown.doing(f"{workload.name} {describe(workload)}")
                    try:
                        run = train(session, request, workload.key, asked.options)
                    except InputError as error:
                        errors.append(error)
                        continue
                    store.save_model_run(run)
                    shown.done()
                    one = Driven(workload, run, session.campaign, run_cost([run]))
                    done.append(one)
                    if rows is not None:
                        rows.append(row_of(one))
    if asked.as_json:
        print_json([row_of(one) for one in done])
    elif done:
        _print(done)
    _finish(done, errors)


def _in_mixed_precision(
    requests: Sequence[ModelRequest], device: str | None
) -> Sequence[ModelRequest]:
    """Return the requests under autocast; where the device has none, say so and leave them."""
    from opdb.bench.driver import AMP_DTYPE, why_no_amp
    from opdb.bench.platform import detect

    why = why_no_amp(detect(device).torch_device)
    if why is not None:
        note(f"{why}: trained in fp32")
        return requests
    return [replace(request, autocast=AMP_DTYPE).checked() for request in requests]


def row_of(one: Driven) -> dict[str, Json]:
    """Return a run as a flat row: what it was, what it cost, and where it ran."""
    run, workload, environment = one.run, one.workload, one.campaign.environment
    facts, training = run.facts, workload.inputs["training"]
    size = identity(workload)["input_size"]
    return {
        "label": facts.get("label"),
        "model": workload.name,
        "batch_size": workload.batch_size,
        "input_size": None if size is None else "x".join(map(str, size)),
        "precision": facts.get("precision"),
        "memory_format": workload.memory_format,
        **training,
        "data": facts.get("data"),
        "deterministic": bool(run.setting.get("deterministic")),
        "cudnn_benchmark": bool(run.setting.get("cudnn_benchmark")),
        "device": one.campaign.device.slug,
        "board": one.campaign.board.uuid,
        "outcome": run.outcome,
        "reason": run.reason,
        "repeats": len(run.repeats),
        "iters": facts.get("iters"),
        "measured_s": facts.get("measured_s"),
        "images_per_s": facts.get("images_per_s"),
        "data_time_s": facts.get("data_time_s"),
        "compute_time_s": facts.get("compute_time_s"),
        "time_s": one.cost.time_s.mean if one.cost else None,
        "energy_j": one.cost.energy_j.mean if one.cost and one.cost.energy_j else None,
        "power_w": one.cost.power_w if one.cost else None,
        "peak_memory_bytes": run.peak_memory_bytes,
        "peak_resident_bytes": facts.get("peak_resident_bytes"),
        "os": facts.get("os"),
        "host": one.campaign.host.id,
        **{name: environment.get(name) for name in ("torch", "cuda", "cudnn", "driver", "opdb")},
        "started_at": run.started_at,
        "run": run.id,
        "note": facts.get("note"),
        "flags": "; ".join(run.flags),
    }


COLUMNS = (
    *("label", "model", "batch_size", "input_size", "precision", "memory_format"),
    *("optimizer", "accumulation", "data", "deterministic", "cudnn_benchmark"),
    *("device", "board", "outcome", "reason", "repeats", "iters", "measured_s", "images_per_s"),
    *("data_time_s", "compute_time_s", "time_s", "energy_j", "power_w"),
    *("peak_memory_bytes", "peak_resident_bytes", "os", "host"),
    *("torch", "cuda", "cudnn", "driver", "opdb", "started_at", "run", "note", "flags"),
)
"""The columns of the file that rows are appended to."""


class Rows:
    """A CSV file that rows are appended to; it gets its header with the first."""

    def __init__(self, path: Path) -> None:
        """Look at the file before anything is measured; a device or pipe has nothing to look at.

        Raises:
            InputError: it is a folder, cannot be written, or has other columns.
        """
        check_writable(path)
        self._path = path
        text = "" if is_special(path) else self._read()
        try:
            columns = next(csv.reader(io.StringIO(text)), [])
        except csv.Error:
            columns = [""]
        if columns and columns != [*COLUMNS]:
            raise InputError(f"{path}: has other columns; give another file for --csv")
        self._header, self._whole = not columns, not text or text.endswith("\n")

    def _read(self) -> str:
        try:
            with self._path.open("a+", newline="", errors="replace") as file:
                file.seek(0)
                return file.read()
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from error

    def append(self, row: dict[str, Json]) -> None:
        """Append one row.

        Raises:
            InputError: the file cannot be written.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        if self._header:
            writer.writeheader()
        writer.writerow(row)
        try:
            with self._path.open("a", newline="") as file:
                file.write(("" if self._whole else "\n") + text.getvalue())
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from error
        self._header, self._whole = False, True


def _print(done: Sequence[Driven]) -> None:
    header = ("model", "workload", "a step", "waiting for data", "compute", "energy", "flags")
    rows = [
        (
            one.workload.name,
            describe(one.workload),
            show(one.cost.time_s.mean if one.cost else None, "s"),
            show(one.run.facts.get("data_time_s"), "s"),
            show(one.run.facts.get("compute_time_s"), "s"),
            show(one.cost.energy_j.mean if one.cost and one.cost.energy_j else None, "J"),
            "; ".join(one.run.flags),
        )
        for one in done
        if one.run.outcome == "ok"
    ]
    for facts in (one.run.facts for one in done if one.run.outcome == "ok"):
        seconds, rate = facts["measured_s"], facts["images_per_s"]
        print(f"MEASURED_SEC={seconds:.6f} IMGS_PER_SEC={rate:.3f}")
    if rows:
        print_table(header, rows)


def _finish(done: Sequence[Driven], errors: Sequence[OpdbError]) -> None:
    lines = [str(error) for error in errors]
    lines += [
        f"{one.workload.name} {describe(one.workload)}: {one.run.outcome}: {one.run.reason}"
        for one in done
        if one.run.outcome != "ok"
    ]
    if len(lines) == 1:
        raise OpdbError(lines[0])
    if lines:
        listed = "\n".join(f"  {line}" for line in lines)
        raise OpdbError(f"{len(lines)} trainings failed; what was finished is stored\n{listed}")
