"""Measure models in each mode, and hold the runs against each other and their operators' sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from opdb.errors import OpdbError
from opdb.lookup.words import describe
from opdb.records import Mode
from opdb.runs.progress import Display

if TYPE_CHECKING:
    from opdb.bench.platform import Platform
    from opdb.models import ModelRequest
    from opdb.records import Workload
    from opdb.runs.models import ModelSpec
    from opdb.runs.work import Work
    from opdb.store import Store
    from opdb.studies.mode_report import ModesReport
    from opdb.studies.modes import ModeRow

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class ModeOptions:
    """In which modes models are measured (none named: all that the device has), where, how long.

    `device` is cuda, cuda:N or cpu. `repeats` stretches of 1 s are timed. With `retry` what failed
    before is tried again.
    """

    modes: tuple[Mode, ...] = ()
    device: str | None = None
    repeats: int = 3
    retry: bool = False


def measure_modes(
    requests: Sequence[ModelRequest],
    asked: ModeOptions,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> ModesReport:
    """Measure what this board lacks of each request in each mode, with this version of torch.

    A model that fails does not stop the others; `check()` of what is returned raises why.

    Raises:
        InputError: the database cannot be opened.
        CannotMeasureError: there is no such device, or it lacks a mode.
    """
    from opdb.bench.measure import ModelWork, check_modes, modes_of
    from opdb.bench.model import RunOptions
    from opdb.bench.platform import detect
    from opdb.runs.models import ModelSpec
    from opdb.store import open_store
    from opdb.studies.mode_report import ModesReport
    from opdb.studies.modes import policy

    display = display or Display()
    platform = detect(asked.device)
    modes = asked.modes or modes_of(platform)
    check_modes(modes, asked.device)
    errors: list[OpdbError] = []
    with open_store(db) as store:
        jobs = _harvested(store, requests, errors, display)
        counted = policy(platform.board, platform.environment["torch"])
        work = ModelWork(counted, asked.retry, options=RunOptions(asked.repeats))
        specs = [
            ModelSpec(request, workload.key, mode, counted.boards)
            for request, workload in jobs
            for mode in modes
        ]
        _measure(store, platform, specs, work, asked.device, display)
        rows = _rows(store, platform, [workload for _, workload in jobs], modes)
    left_out = [] if asked.modes else [mode for mode in MODES if mode not in modes]
    return ModesReport(platform.device, platform.board.uuid, rows, left_out, errors)


def _harvested(
    store: Store, requests: Sequence[ModelRequest], errors: list[OpdbError], display: Display
) -> list[tuple[ModelRequest, Workload]]:
    """Return each request with its workload, harvested and saved; why there is none in `errors`."""
    from opdb.bench.harvests import harvest_each

    found = []
    with display.progress(len(requests), "harvest") as shown:
        harvests = harvest_each(store, requests, shown)
    for request in requests:
        stored = harvests[repr(request)]
        if isinstance(stored, OpdbError):
            errors.append(stored)
        else:
            found.append((request, stored.workload))
    return found


def _measure(
    store: Store,
    platform: Platform,
    specs: Sequence[ModelSpec],
    work: Work[ModelSpec],
    device: str | None,
    display: Display,
) -> None:
    """Make the runs that this board lacks with this version of torch."""
    from opdb.runs.work import Here, execute
    from opdb.studies.modes import why_failed

    left = work.pending(store, list({spec.key: spec for spec in specs}.values()))
    on = Here(store, device, (platform.board,))

    def name(spec: ModelSpec) -> str:
        return f"{spec.request.name} {describe(spec.request)} {spec.mode}"

    with display.progress(len(left), "measure") as shown:
        for _, named, run in execute(on, work, left, shown, name):
            if run.outcome != "ok":
                shown.note(f"{named}: {why_failed(run)}")


def _rows(
    store: Store, platform: Platform, workloads: Sequence[Workload], modes: Sequence[Mode]
) -> list[ModeRow]:
    from opdb.predict import predictor_for
    from opdb.studies.modes import mode_rows

    distinct = list({workload.key: workload for workload in workloads}.values())
    if not distinct:
        return []
    predictor = predictor_for(store, platform.device.slug, estimates=False)
    found = mode_rows(store, predictor, platform.board.uuid, distinct)
    return [row for row in found if row.mode in modes]
