"""`opdb harvest`: models to operators with counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import Progress, note, print_json, print_table, progress, raise_all
from opdb.cli.selection import (
    describe,
    identity,
    note_harvest,
    request_for,
    requests_in,
    summary_files,
)
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError
from opdb.records import Json, Workload
from opdb.units import counted

HARVESTED = ("eager", "compile")
"""The modes whose calls can be listed: those of a model as it stands, and as it is compiled."""

if TYPE_CHECKING:
    from opdb.bench.harvests import Stored
    from opdb.bench.platform import Platform
    from opdb.harvest import Harvest
    from opdb.models import ModelRequest
    from opdb.store import Store


@dataclass
class Job:
    """What one argument asks for, and whether all of it was done."""

    file: Path | None
    requests: list[ModelRequest]
    failed: bool = False
    done: list[Stored] = field(default_factory=list)


def run(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Summary files, folders of them, or model names."),
    ],
    batch_size: options.BatchSize = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    phase: options.PhaseName = None,
    optimizer: options.Optimizer = None,
    grad_accum_steps: options.Accumulation = None,
    autocast: options.Autocast = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="compile: what torch.compile makes of the models, too, on this machine's device.",
        ),
    ] = "eager",
    device: options.MeasuredDevice = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Harvest and compile again what stands in the database."),
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """List the operator calls of models.

    They are stored in the database. Neither weights nor a GPU are needed, unless it is asked what
    torch.compile makes of them: then each is compiled, as far as its fused groups, on the device.
    What was stored of the same code and packages stands, and is not harvested again.

    A summary file gives all of its batch sizes and variants, and is then marked as processed.
    A model that fails does not stop the others; the exit status is then 2.
    """
    said = options.model_options(
        batch_size,
        input_size,
        dtype,
        memory_format,
        phase,
        optimizer,
        grad_accum_steps,
        autocast,
    )
    errors: list[OpdbError] = []
    platform = _compiling(mode, device)
    jobs = _jobs(models, said, errors)
    location = ""
    if any(job.requests for job in jobs):
        from opdb.store import open_store

        total = sum(len(job.requests) for job in jobs)
        with open_store(db) as store, progress(total, "harvest", quiet=quiet) as shown:
            location = store.location
            for job in jobs:
                _harvest(job, store, shown, errors, platform, anew=anew)
    done = [each for job in jobs for each in job.done]
    for each in done:
        failure = each.found.failure
        note_harvest(each.found.workload, failure, each.estranged, quiet=quiet or as_json)
    if stood := sum(each.stood for each in done):
        note(
            f"{counted(stood, 'workload')} of {len(done)} stood in {location}, and nothing changed "
            "since: --anew harvests all the same",
            quiet=quiet or as_json,
        )
    if as_json:
        print_json([_document(each) for each in done])
    elif done:
        _print([each.found for each in done])
    raise_all(errors, "stored")


def _jobs(arguments: list[str], said: options.ModelOptions, errors: list[OpdbError]) -> list[Job]:
    """Return what the arguments ask for; what is wrong with one is kept for the end."""
    jobs = []
    for argument in arguments:
        try:
            files = summary_files(argument)
            if not files:
                jobs.append(Job(None, [request_for(argument, said).checked()]))
        except OpdbError as error:
            errors.append(error)
            continue
        for file in files:
            try:
                requests = requests_in(file, said)
                jobs.append(Job(file, [request.checked() for request in requests]))
            except OpdbError as error:
                errors.append(error)
    return jobs


def _compiling(mode: str, device: str | None) -> Platform | None:
    """Return the platform whose device models are compiled for; None where they are not.

    Raises:
        InputError: what runs in the mode is not harvested, or a device is named that is not needed.
        CannotMeasureError: there is no such device.
    """
    if mode not in HARVESTED:
        raise UnknownNameError("--mode", mode, HARVESTED)
    if mode == "eager":
        if device is not None:
            raise InputError(f"--device {device}: only --mode compile asks for one")
        return None
    from opdb.bench.platform import detect

    return detect(device)


def _harvest(
    job: Job,
    store: Store,
    shown: Progress,
    errors: list[OpdbError],
    platform: Platform | None,
    *,
    anew: bool,
) -> None:
    """Harvest and store what a job asks for; mark its file when all of it is stored.

    With a platform, what is compiled for its device is stored and told, beside the model as it is.
    """
    from opdb.bench.harvests import compile_into, harvest_into
    from opdb.summary import mark_processed

    for request in job.requests:
        shown.doing(f"{request.name} {describe(request)}")
        try:
            stored = harvest_into(store, request, anew=anew)
            if platform is not None:
                stored = compile_into(store, request, stored, platform, anew=anew)
        except CannotMeasureError:
            raise
        except OpdbError as error:
            errors.append(error)
            job.failed = True
        else:
            job.done.append(stored)
        shown.done()
    if job.file is not None and not job.failed:
        mark_processed(job.file)


def _document(stored: Stored) -> Json:
    found = stored.found
    workload, captured = found.workload, found.captured
    return {
        **identity(workload),
        "training": workload.inputs.get("training"),
        **_called(workload),
        "compiled_for": workload.compiled_for,
        "captured": None if captured is None else _called(captured),
        "captured_failure": found.failure,
        "runs_of_other_calls": stored.estranged,
        "stood": stored.stood,
    }


def _called(workload: Workload) -> dict[str, Json]:
    """Return what a workload calls, counted."""
    calls = Counter(call.configuration.title for call in workload.calls)
    distinct = Counter(configuration.title for configuration in workload.occurrences())
    return {
        "calls": len(workload.calls),
        "configurations": len(workload.occurrences()),
        "by_kind": {
            kind: {"calls": calls[kind], "configurations": distinct[kind]} for kind in sorted(calls)
        },
        "unsupported": dict(workload.unsupported),
    }


def _print(harvests: list[Harvest]) -> None:
    found = [each.workload for each in harvests]
    if len(found) == 1:
        kinds = _called(found[0])["by_kind"]
        compiled = f", compiled for {found[0].compiled_for}" if found[0].compiled_for else ""
        print(f"{found[0].name}, {describe(found[0])}{compiled}")
        rows = [(kind, each["calls"], each["configurations"]) for kind, each in kinds.items()]
        total = ("all", len(found[0].calls), len(found[0].occurrences()))
        print_table(("kind", "calls", "configurations"), [*rows, total])
    else:
        header = ("model", "workload", "calls", "configurations", "unsupported")
        rows_of_all = [
            (
                workload.name,
                describe(workload),
                len(workload.calls),
                len(workload.occurrences()),
                sum(workload.unsupported.values()),
            )
            for workload in found
        ]
        print_table(header, rows_of_all)
    for each in harvests:
        name, captured = each.workload.name, each.captured
        _print_unsupported(name, each.workload)
        if captured is not None:
            print(
                f"{name} {describe(captured)}: {counted(len(captured.calls), 'call')} of "
                f"{counted(len(captured.occurrences()), 'configuration')} while it is captured in "
                "a CUDA graph, for it asks (mode graph)"
            )
            _print_unsupported(f"{name} while captured", captured)


def _print_unsupported(name: str, workload: Workload) -> None:
    for called, count in workload.unsupported.items():
        print(f"{name}: no operator describes {called} ({counted(count, 'call')})")
