"""`opdb measure`: whole models run and stored, the truth for predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.cli import driving, options
from opdb.cli.console import print_json, print_table, progress
from opdb.cli.crews import check_failures, chosen_places
from opdb.cli.selection import (
    describe,
    identity,
    note_harvest,
    request_for,
    requests_in,
    summary_files,
)
from opdb.cli.trust import in_words
from opdb.errors import InputError, OpdbError
from opdb.records import CAPTURED_MODE, Json, Mode
from opdb.units import show

if TYPE_CHECKING:
    from opdb.bench.model import RunOptions
    from opdb.cluster.devices import Place
    from opdb.derive.runs import RunCost
    from opdb.models import ModelRequest
    from opdb.records import ModelRun, Workload
    from opdb.store import Store


def run(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Model names or summary files.")
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
            help="Stretches to measure: of 1 s, in training of --iters.",
        ),
    ] = 3,
    batch_size: options.BatchSize = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    phase: options.PhaseName = None,
    optimizer: options.Optimizer = None,
    grad_accum_steps: options.Accumulation = None,
    backend: driving.Backend = None,
    precision: driving.PrecisionName = None,
    channels_last: driving.ChannelsLast = False,
    deterministic: driving.Deterministic = False,
    cudnn_benchmark: driving.CudnnBenchmark = False,
    synthetic: driving.Synthetic = False,
    images: driving.ImageFolder = None,
    no_augment: driving.NoAugment = False,
    workers: driving.Workers = None,
    pin_memory: driving.PinMemory = False,
    prefetch_factor: driving.PrefetchFactor = None,
    warmup_iters: driving.WarmupIters = None,
    iters: driving.Iters = None,
    nvtx: driving.Nvtx = False,
    label: driving.Label = None,
    note: driving.Note = None,
    csv: driving.CsvFile = None,
    device: options.MeasuredDevice = None,
    devices: options.Devices = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Run whole models on this device and store time, power and energy of a pass.

    Random weights; batch-norm statistics calibrated by one pass. A summary file runs all of its
    batch sizes and variants. Training (--phase training) runs a fixed number of iterations, on the
    model's example inputs or on a folder of images, and tells data loading and compute apart.
    """
    of_training = driving.Said(
        backend=backend,
        precision=precision,
        deterministic=deterministic,
        cudnn_benchmark=cudnn_benchmark,
        images=images,
        synthetic=synthetic,
        no_augment=no_augment,
        workers=workers,
        pin_memory=pin_memory,
        prefetch_factor=prefetch_factor,
        warmup_iters=warmup_iters,
        iters=iters,
        nvtx=nvtx,
        label=label,
        note=note,
        csv=csv,
    )
    memory_format = driving.memory_format(memory_format, channels_last)
    said = options.model_options(
        batch_size, input_size, dtype, memory_format, phase, optimizer, grad_accum_steps
    )
    chosen = [cast(Mode, options.parse_mode(mode)) for mode in modes or ["eager"]]
    requests: list[ModelRequest] = []
    for model in models:
        files = summary_files(model)
        requests += [r for file in files for r in requests_in(file, said)]
        if not files:
            requests.append(request_for(model, said))
    requests = [request.checked() for request in requests]
    driving.check_training(of_training, requests)
    if _is_driven(requests, chosen, devices, layers):
        how = driving.driver_options(of_training, repeats)
        where = driving.chosen_device(of_training, device)
        driving.drive(requests, driving.Driving(of_training, how, where, db, as_json, quiet))
        return
    if given := of_training.given():
        raise InputError(f"{given[0]} is for training runs in mode eager, on one device")
    jobs = [(request.checked(), mode) for request in requests for mode in chosen]
    from opdb.bench.measure import check_modes
    from opdb.bench.model import RunOptions
    from opdb.derive.runs import run_cost
    from opdb.store import open_store

    places = chosen_places(device, devices)
    if not places or any(place.device == "cpu" for place in places):
        check_modes(chosen, "cpu" if places else device)
    errors: list[OpdbError] = []
    with open_store(db) as store, progress(len(jobs), "measure", quiet=quiet) as shown:
        done: list[tuple[Workload, ModelRun, RunCost | None]] = []
        failures: list[str] = []
        asked = _Asked(jobs, RunOptions(repeats, layers), device, places, quiet)
        for workload, model_run in _measured(store, asked, errors, failures):
            shown.doing(f"{workload.name} {describe(workload)} {model_run.mode}")
            shown.done()
            done.append((workload, model_run, run_cost([model_run])))
        differing = [] if as_json else _differing(store, done)
    if as_json:
        print_json([_document(*each) for each in done])
    elif done:
        _print(done)
        print(*differing, sep="\n", end="\n" if differing else "")
    _finish(done, errors)
    check_failures(failures, places)


def _is_driven(
    requests: list[ModelRequest], modes: list[Mode], devices: str | None, layers: bool
) -> bool:
    """Whether requests are run as trainings are: all of them, eagerly, on one device."""
    training = all(request.training is not None for request in requests)
    return training and modes == ["eager"] and not devices and not layers


@dataclass(frozen=True)
class _Asked:
    """What is to be measured, how, and where: on one device or at several places."""

    jobs: list[tuple[ModelRequest, Mode]]
    options: RunOptions
    device: str | None
    places: list[Place]
    quiet: bool


def _measured(
    store: Store, asked: _Asked, errors: list[OpdbError], failures: list[str]
) -> Iterator[tuple[Workload, ModelRun]]:
    """Measure here, or at several places; yield workload and run as they are saved."""
    from opdb.bench.measure import harvested, measure_models

    tell = partial(note_harvest, quiet=asked.quiet)
    if not asked.places:
        device, options = asked.device, asked.options
        yield from measure_models(
            store, asked.jobs, options, device=device, errors=errors, tell=tell
        )
        return
    from opdb.cluster.crew import Crew
    from opdb.cluster.messages import Job

    workloads = harvested(store, [request for request, _ in asked.jobs], errors, tell)
    known = {workload.key: workload for workload in workloads.values()}
    jobs = [
        Job(request, workloads[repr(request)].key, mode)
        for request, mode in asked.jobs
        if repr(request) in workloads
    ]
    with Crew(asked.places, store.url) as crew:
        for job, run in crew.measure(jobs, asked.options):
            yield known[job.workload], run
        failures += crew.failures


def _differing(store: Store, done: list[tuple[Workload, ModelRun, RunCost | None]]) -> list[str]:
    """Say of each run whose kernels are not those of its operators how many differ.

    Of a model whose operators were not all benched here nothing can be said yet; a compiler's
    kernels are its own.
    """
    from opdb.derive.launches import compare_launches
    from opdb.predict import PLAIN_MODES

    boards = {campaign.id: campaign.board.uuid for campaign in store.campaigns()}
    kernels = {
        board: store.kernels(board) for board in {boards[run.campaign] for _, run, _ in done}
    }
    lines = []
    for workload, model_run, _ in done:
        if model_run.mode not in PLAIN_MODES:
            continue
        captured = store.captured(workload) if model_run.mode == CAPTURED_MODE else None
        of_board = kernels[boards[model_run.campaign]]
        found = compare_launches(captured or workload, model_run, of_board)
        if found is not None and not found.agree and not found.unseen:
            lines.append(
                f"{workload.name} {describe(workload)} {model_run.mode}: {in_words(found)}"
            )
    return lines


def _finish(done: list[tuple[Workload, ModelRun, RunCost | None]], errors: list[OpdbError]) -> None:
    """Raise what went wrong, every model named; nothing when all went well.

    Raises:
        OpdbError: a model could not be harvested, or a run failed.
    """
    lines = [str(error) for error in errors]
    lines += [
        f"{workload.name} {describe(workload)} {run.mode}: {run.outcome}: {run.reason}"
        for workload, run, _ in done
        if run.outcome != "ok"
    ]
    if len(lines) == 1:
        raise OpdbError(lines[0])
    if lines:
        listed = "\n".join(f"  {line}" for line in lines)
        raise OpdbError(f"{len(lines)} models failed; what was finished is stored\n{listed}")


def _document(workload: Workload, model_run: ModelRun, cost: RunCost | None) -> Json:
    return {
        **identity(workload),
        "mode": model_run.mode,
        "outcome": model_run.outcome,
        "reason": model_run.reason,
        "time_s": cost.time_s.mean if cost else None,
        "energy_j": cost.energy_j.mean if cost and cost.energy_j else None,
        "power_w": cost.power_w if cost else None,
        "clock_hz": cost.clock_hz if cost else None,
        "peak_memory_bytes": model_run.peak_memory_bytes,
        "layers": model_run.layers,
        "flags": list(model_run.flags),
        "facts": dict(model_run.facts),
    }


def _print(done: list[tuple[Workload, ModelRun, RunCost | None]]) -> None:
    rows = [
        (
            workload.name,
            describe(workload),
            model_run.mode,
            show(cost.time_s.mean if cost else None, "s"),
            show(cost.energy_j.mean if cost and cost.energy_j else None, "J"),
            show(cost.power_w if cost else None, "W"),
            "; ".join(model_run.flags),
        )
        for workload, model_run, cost in done
    ]
    print_table(("model", "workload", "mode", "time", "energy", "power", "flags"), rows)
    for workload, model_run, _ in done:
        slowest = sorted((model_run.layers or {}).items(), key=lambda item: -item[1])
        if slowest:
            print(f"\n{workload.name} {describe(workload)}: leaf modules in place")
            print_table(("module", "time"), [(path, show(time, "s")) for path, time in slowest])
