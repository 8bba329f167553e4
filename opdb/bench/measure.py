"""Model runs of several workloads in one campaign, each saved as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, get_args

from opdb.bench.harvests import harvest_into
from opdb.bench.model import RunOptions, measure
from opdb.bench.modes import CUDA_ONLY, check_switches
from opdb.bench.platform import Platform, detect
from opdb.bench.run import campaign
from opdb.errors import CannotMeasureError, DatabaseError, OpdbError
from opdb.models import ModelRequest
from opdb.records import Mode, ModelRun, Workload
from opdb.store import Store


def check_modes(modes: Collection[Mode], device: str | None) -> None:
    """Check that models can be measured in these modes on a device.

    Raises:
        CannotMeasureError: there is no such device, it lacks a mode, or the environment switches
            one off.
    """
    for mode in modes:
        check_switches(mode)
    platform = detect(device)
    lacking = [mode for mode in modes if mode in CUDA_ONLY]
    if lacking and platform.device.type != "cuda":
        raise CannotMeasureError(
            f"mode {lacking[0]!r} needs a CUDA device; {platform.device.name} is none: use "
            "another mode, such as eager"
        )


def modes_of(platform: Platform) -> tuple[Mode, ...]:
    """Return the modes that a platform has."""
    return tuple(m for m in get_args(Mode) if platform.device.type == "cuda" or m not in CUDA_ONLY)


Tell: TypeAlias = Callable[[Workload, str | None, int], None]
"""Hears of a workload stored: why it is not known what it calls while captured, if it asks; and how
many runs of it stand against other calls now."""


def measure_models(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Mode]],
    options: RunOptions,
    *,
    device: str | None = None,
    errors: list[OpdbError] | None = None,
    tell: Tell | None = None,
) -> Iterator[tuple[Workload, ModelRun]]:
    """Measure each request in its mode; yield workload and run as they are saved.

    A model that was not harvested yet is harvested first. One that fails does not stop the others:
    its run carries the outcome. One that cannot be harvested has no run; with `errors`, why is
    appended there and the others are measured. `tell` is that of `harvested`.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
        InputError: a model cannot be harvested, and no `errors` are given.
    """
    check_modes({mode for _, mode in jobs}, device)
    workloads = harvested(store, [request for request, _ in jobs], errors, tell)
    wanted = [
        (request, workloads[repr(request)], mode)
        for request, mode in jobs
        if repr(request) in workloads
    ]
    yield from measure_harvested(store, wanted, options, device=device)


def harvested(
    store: Store,
    requests: Iterable[ModelRequest],
    errors: list[OpdbError] | None = None,
    tell: Tell | None = None,
) -> dict[str, Workload]:
    """Harvest and save each request that does not stand; return the workloads by its `repr`.

    With `errors`, why one cannot be harvested is appended there, and it is left out. `tell` hears
    of each, saved now or before.

    Raises:
        InputError: a model cannot be harvested, and no `errors` are given.
    """
    workloads: dict[str, Workload] = {}
    for request in {repr(request): request for request in requests}.values():
        try:
            stored = harvest_into(store, request)
        except DatabaseError:
            raise
        except OpdbError as error:
            if errors is None:
                raise
            errors.append(error)
        else:
            found = stored.found
            if tell is not None:
                tell(found.workload, found.failure, stored.estranged)
            workloads[repr(request)] = found.workload
    return workloads


def measure_harvested(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Workload, Mode]],
    options: RunOptions,
    *,
    device: str | None = None,
) -> Iterator[tuple[Workload, ModelRun]]:
    """Measure each request, its workload stored, in its mode; yield what `measure_models` does.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
    """
    if jobs:
        each = [(request, workload.key, mode) for request, workload, mode in jobs]
        runs = measure_each(store, each, options, device=device)
        for (_, workload, _), run in zip(jobs, runs, strict=True):
            yield workload, run


def measure_each(
    store: Store,
    jobs: Iterable[tuple[ModelRequest, str, Mode]],
    options: RunOptions,
    *,
    device: str | None = None,
    workers: int = 1,
) -> Iterator[ModelRun]:
    """Measure each request, its workload (key) stored, in its mode; yield each run once saved.

    A job is asked for when the one before is done. Where several workers measure on this host at
    once, each run says so.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
    """
    flags = (f"{workers} workers measured on this host at once",) if workers > 1 else ()
    with campaign(device, store, workers) as session:
        for request, workload, mode in jobs:
            run = measure(session, request, workload, mode, options)
            run = replace(run, flags=(*run.flags, *flags))
            store.save_model_run(run)
            yield run
