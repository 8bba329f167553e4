"""Model runs of several workloads in one campaign, each saved as soon as it is done."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from opdb.bench.model import RunOptions, measure
from opdb.bench.platform import detect
from opdb.bench.run import campaign
from opdb.errors import CannotMeasureError, InputError, OpdbError
from opdb.harvest import harvest
from opdb.models import ModelRequest
from opdb.records import Mode, ModelRun, Workload
from opdb.store import Store

MODES: tuple[Mode, ...] = ("eager", "graph")
"""The modes in which models are measured."""


def check_modes(modes: Collection[Mode], device: str | None) -> None:
    """Check that models can be measured in these modes on a device.

    Raises:
        InputError: no model is measured in a mode of that name.
        CannotMeasureError: there is no such device, or it lacks the mode.
    """
    for mode in modes:
        if mode not in MODES:
            raise InputError(f"models are not measured in mode {mode!r}; use {' or '.join(MODES)}")
    platform = detect(device)
    if "graph" in modes and platform.device.type != "cuda":
        raise CannotMeasureError(
            f"mode 'graph' needs a CUDA device; {platform.device.name} is none: use --mode eager"
        )


def measure_models(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Mode]],
    options: RunOptions,
    *,
    device: str | None = None,
    errors: list[OpdbError] | None = None,
) -> Iterator[tuple[Workload, ModelRun]]:
    """Measure each request in its mode; yield workload and run as they are saved.

    A model that was not harvested yet is harvested first. One that fails does not stop the others:
    its run carries the outcome. One that cannot be harvested has no run; with `errors`, why is
    appended there and the others are measured.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
        InputError: a model cannot be harvested, and no `errors` are given.
    """
    check_modes({mode for _, mode in jobs}, device)
    workloads: dict[str, Workload] = {}
    for request in {repr(request): request for request, _ in jobs}.values():
        try:
            workloads[repr(request)] = harvest(request)
        except OpdbError as error:
            if errors is None:
                raise
            errors.append(error)
        else:
            store.save_workload(workloads[repr(request)])
    if not workloads:
        return
    with campaign(device, store) as session:
        for request, mode in jobs:
            if repr(request) in workloads:
                workload = workloads[repr(request)]
                run = measure(session, request, workload.key, mode, options)
                store.save_model_run(run)
                yield workload, run
