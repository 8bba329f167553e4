"""`opdb sweep`: convolution algorithms × input sizes, whole models, resumable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.algorithms.names import DEFAULT
from opdb.cli import options
from opdb.cli.console import note, print_json, progress
from opdb.cli.crews import check_failures, chosen_places
from opdb.cli.files import make_folder
from opdb.cli.sweeping import (
    Asked,
    harvested_cells,
    image_request,
    write_all,
)
from opdb.cli.swept import (
    document_of,
    judged,
    named,
    print_lists,
    print_rows,
    print_status,
    swept_device,
    write_stored,
)
from opdb.errors import CannotMeasureError, CheckError, InputError, UnknownNameError
from opdb.records import Mode
from opdb.sweep.cells import Cell, Standing
from opdb.sweep.rows import Row
from opdb.sweep.stages import parse_sizes, sizes_of
from opdb.units import counted, show_duration

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.bench.platform import Platform
    from opdb.bench.verify import Verification
    from opdb.cluster.crew import Crew
    from opdb.cluster.devices import Place
    from opdb.store import Store

MODES = ("graph", "eager")
"""In which modes a sweep's passes are issued."""


def run(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Models that take images.")
    ] = None,
    algorithms: options.Algorithms = None,
    stage: Annotated[
        str,
        typer.Option(
            "--stage", metavar="NAME", help="sanity (1 size, verified), quick (10), full (100)."
        ),
    ] = "sanity",
    num_sizes: Annotated[
        int | None, typer.Option("--num-sizes", metavar="N", help="So many sizes, 224 to 512.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="LIST", help="These sizes, as in 224,256.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", metavar="N", min=1, help="Batch size.")
    ] = 1,
    warm_up: Annotated[
        int, typer.Option("--warmup", metavar="N", min=1, help="Passes before measuring.")
    ] = 10,
    measure: Annotated[
        int, typer.Option("--measure", metavar="N", min=2, help="Passes measured, at least.")
    ] = 20,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="FOLDER", help="Where files are written.")
    ] = Path("results"),
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", metavar="MODE", help="graph or eager.  [default: graph on a GPU, else eager]"
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove what ran: outputs, kernels, time.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what is left and its seconds; measure nothing.")
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Say what is done, running, failed, left; measure nothing."),
    ] = False,
    files: Annotated[
        bool,
        typer.Option("--files", help="Write the files of what is stored; measure nothing."),
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False,
    list_models: Annotated[
        bool, typer.Option("--list-models", help="List models that can be swept.")
    ] = False,
    list_algorithms: Annotated[
        bool, typer.Option("--list-algorithms", help="List the algorithms.")
    ] = False,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    device: options.MeasuredDevice = None,
    devices: options.Devices = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Run whole models at many input sizes, their convolutions forced to take named algorithms.

    At each size: time with its distribution, power, energy, every layer's time in place.
    Each run is stored as soon as it is done; a stage reuses what an earlier one measured. What an
    algorithm cannot run is stored as unsupported; a model in which it cannot run some layer is
    partial. Files for pandas are written under results/STAGE/.
    """
    if list_models or list_algorithms:
        print_lists(list_models, list_algorithms, as_json=as_json)
        return
    if not models and not status:
        raise InputError("give models, as in: opdb sweep resnet50 --algorithm all --stage quick")
    found_sizes = sizes_of(stage, num_sizes, None if sizes is None else parse_sizes(sizes))
    forced = options.parse_algorithms(algorithms or ([] if status else [DEFAULT]))
    said = options.model_options(batch_size, None, dtype, memory_format, None)
    if mode is not None and mode not in MODES:
        raise UnknownNameError("--mode of a sweep", mode, MODES)
    places = chosen_places(device, devices)
    from opdb.store import open_store

    if status or files:
        requests = tuple(image_request(name, said) for name in dict.fromkeys(models or []))
        slug = _platform(device, places, forced, measuring=False).device.slug
        with open_store(db, create=db is None, sweeps=True) as store:
            slug = slug if device or places else swept_device(store, slug)
            asked = Asked(requests, tuple(found_sizes), tuple(forced), cast("Mode", mode), stage)
            if status:
                print_status(store, asked, slug, as_json=as_json)
                return
            rows = write_stored(store, asked, slug, output_dir, quiet=quiet)
        _tell(rows, [], as_json=as_json)
        return
    measuring = not plan
    # What cannot be measured here is told before a database is opened.
    here = None if places and measuring else _platform(device, places, forced, measuring)
    requests = tuple(image_request(name, said) for name in dict.fromkeys(models or []))
    if measuring:
        make_folder(output_dir / stage)  # ahead of the work
    with open_store(db, sweeps=True) as store, _crew(places if measuring else [], store) as crew:
        platform = _checked(crew.platforms[0], forced) if crew else cast("Platform", here)
        asked = Asked(requests, tuple(found_sizes), tuple(forced), _mode_on(platform, mode), stage)
        sweeping = _Sweeping(store, asked, platform, quiet=quiet)
        sweeping.plan(retry=retry, as_json=as_json and plan)
        if plan:
            return
        failures = sweeping.measure(crew or device, warm_up, measure)
        rows = sweeping.write(output_dir)
    verified = []
    if verify or stage == "sanity":
        with open_store(db) as store:  # the workers have ended and left their devices
            verified = sweeping.verify(store, places[0].name if places else device)
    _tell(rows, verified, as_json=as_json)
    sweeping.finish(verified)
    check_failures(failures, places)


def _tell(rows: Sequence[Row], verified: Sequence[Verification], *, as_json: bool) -> None:
    if as_json:
        print_json(document_of(rows, verified))
    else:
        print_rows(rows, verified)


def _platform(
    device: str | None, places: Sequence[Place], forced: Sequence[Algorithm], measuring: bool
) -> Platform:
    """Return the platform that is measured, or was.

    Raises:
        CannotMeasureError: it is not here, or an algorithm cannot be forced on it.
    """
    from opdb.bench.platform import detect

    platform = detect(places[0].device if places else device)
    return _checked(platform, forced) if measuring else platform


def _checked(platform: Platform, forced: Sequence[Algorithm]) -> Platform:
    from opdb.bench.forced import check_algorithms

    check_algorithms(forced, platform)
    return platform


def _mode_on(platform: Platform, mode: str | None) -> Mode:
    """Return the mode that was asked for, else the platform's own.

    Raises:
        CannotMeasureError: the platform has no such mode.
    """
    on_gpu = platform.device.type == "cuda"
    if mode == "graph" and not on_gpu:
        raise CannotMeasureError(
            f"mode 'graph' needs a CUDA device; {platform.device.name} is none: use --mode eager"
        )
    return cast("Mode", mode or ("graph" if on_gpu else "eager"))


@contextmanager
def _crew(places: Sequence[Place], store: Store) -> Iterator[Crew | None]:
    """Yield workers, one a place; None where there is none."""
    if not places:
        yield None
        return
    from opdb.cluster.crew import Crew

    with Crew(places, store.url) as crew:
        yield crew


class _Sweeping:
    """One sweep under way: its cells, what is left of them, and what went wrong."""

    def __init__(self, store: Store, asked: Asked, platform: Platform, *, quiet: bool) -> None:
        self._store, self._asked, self._platform = store, asked, platform
        self._quiet = quiet
        self._cells, self._errors = harvested_cells(store, asked, quiet=quiet)
        self._left: list[Cell] = []
        self._retry = False

    @property
    def _slug(self) -> str:
        return self._platform.device.slug

    def plan(self, *, retry: bool, as_json: bool) -> None:
        """Say which cells are to be measured and what that is likely to take."""
        from opdb.bench.sweep import planned_seconds

        standing = Standing(self._store.algorithm_runs(self._slug))
        self._left, self._retry = standing.pending(self._cells, retry=retry), retry
        seconds, rests_on = planned_seconds(self._store, self._left, self._slug)
        if as_json:
            print_json(
                {
                    "cells": len(self._cells),
                    "left": len(self._left),
                    "planned_s": seconds,
                    "rests_on_runs": rests_on,
                }
            )
            return
        grounds = (
            f"as {counted(rests_on, 'run')} here took" if rests_on else "as cells usually take"
        )
        note(
            f"{self._slug}: {len(self._left)} of {counted(len(self._cells), 'cell')} to be "
            f"measured, about {show_duration(seconds)} "
            f"({counted(round(seconds), 'GPU-second')}, {grounds})",
            quiet=self._quiet,
        )

    def measure(self, where: Crew | str | None, warm_up: int, measure: int) -> list[str]:
        """Measure what is left, on one device or by workers; return why some of these failed."""
        from opdb.bench.sweep import SweepOptions, sweep

        asked = SweepOptions(warm_up, measure, retry=self._retry)
        with progress(len(self._left), "sweep", quiet=self._quiet) as shown:

            def tell(cell: Cell, outcome: str, reason: str | None, on: str = "") -> None:
                shown.doing(f"{named(cell)}{on}")
                if outcome not in ("ok", "unsupported"):
                    shown.note(f"{named(cell)}{on}: {outcome}: {reason}")
                shown.done()

            if where is None or isinstance(where, str):
                for cell, made in sweep(self._store, self._left, asked, device=where):
                    tell(cell, made.outcome, made.reason)
                return []
            for device, swept in where.sweep(self._left, asked) if self._left else ():
                tell(swept.cell, swept.outcome, swept.reason, f" on {device}")
        return where.failures

    def write(self, output: Path) -> list[Row]:
        """Write files and figures of all that was ever run of the sweep; return its rows."""
        found = write_all(
            self._store, self._asked, self._cells, self._slug, output, quiet=self._quiet
        )
        if lacking := len(self._cells) - len(found):
            note(
                f"not in these files: {counted(lacking, 'cell')}, which others measure or nobody "
                "could"
            )
        return found

    def verify(self, store: Store, device: str | None) -> list[Verification]:
        """Verify every algorithm at the first size of each model."""
        from opdb.bench.platform import detect
        from opdb.bench.verify import unmetered, verify

        session = unmetered(detect(device))
        found: list[Verification] = []
        for name in dict.fromkeys(cell.request.name for cell in self._cells):
            of_model = [cell for cell in self._cells if cell.request.name == name]
            first = [cell for cell in of_model if cell.size == of_model[0].size]
            note(f"verifying {name} at {first[0].size} pixels", quiet=self._quiet)
            [workload] = store.workloads_by_key([first[0].workload])
            found += verify(session, first, workload)
        return found

    def finish(self, verified: Sequence[Verification]) -> None:
        """Raise what went wrong, every part of it named; nothing when all went well.

        Raises:
            InputError: the model cannot be run at some size.
            CheckError: an output is not what torch computes.
        """
        if self._errors:
            raise InputError("\n".join(str(error) for error in self._errors))
        wrong = [f"{named(each.cell)}: {judged(each)}" for each in verified if not each.holds]
        if wrong:
            raise CheckError("what ran is not verified:\n" + "\n".join(f"  {w}" for w in wrong))
