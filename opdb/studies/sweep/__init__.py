"""`opdb sweep`: convolution algorithms × input sizes, whole models, resumable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.algorithms.names import ALGORITHMS, DEFAULT, Algorithm, algorithms_named
from opdb.cli import options
from opdb.cli.console import Terminal, show
from opdb.commands.bench import check_failures, chosen_places
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError
from opdb.files import make_folder
from opdb.progress import Display
from opdb.records import Mode
from opdb.runs import RunTable
from opdb.spec import ModelSpec
from opdb.studies.sweep.request import (
    SweepPolicy,
    SweepRequest,
    SweepSpec,
    harvested_specs,
    image_request,
    parse_sizes,
    sizes_of,
    stored_specs,
)
from opdb.studies.sweep.rows import (
    MODELS,
    STANDINGS,
    GroupStanding,
    SweepReport,
    lists,
    write_all,
)
from opdb.tables import Listing, Rows
from opdb.units import plural, show_duration

if TYPE_CHECKING:
    from opdb.bench.session import Platform
    from opdb.store import Store
    from opdb.studies.sweep.measuring import Verification
    from opdb.workers import WorkerDevice

PANEL = "studies"


def sweep_standing(swept: SweepRequest, named: str | None, *, db: str | None = None) -> Listing:
    """Say of every model and algorithm how many sizes are in which state; measure nothing."""
    from opdb.store import open_store

    with open_store(db, create=db is None, sweeps=True) as store:
        device = _swept_device(store, named)
        table = RunTable.read(store, SweepPolicy((device,)))
        cells = stored_specs(store, _in_its_mode(store, swept, device))
    groups: dict[tuple[str, str], list[SweepSpec]] = {}
    for cell in cells:
        groups.setdefault((cell.request.name, cell.algorithm.name), []).append(cell)
    rows = [
        GroupStanding(
            device,
            some[0],
            Counter(map(table.state, some)),
            sum(run.cost_s for run in map(table.run, some) if run),
        )
        for some in groups.values()
    ]
    heading = f"{device}, sizes {min(swept.sizes)} to {max(swept.sizes)}"
    return Listing(STANDINGS.documents(rows), [heading, Rows(STANDINGS, rows)])


def stored_sweep(
    swept: SweepRequest,
    named: str | None,
    output: Path,
    display: Display,
    *,
    db: str | None = None,
) -> SweepReport:
    """Write files and figures of what is stored of a device; measure nothing."""
    from opdb.store import open_store

    with open_store(db, create=db is None, sweeps=True) as store:
        device = _swept_device(store, named)
        swept = _in_its_mode(store, swept, device)
        rows = write_all(store, swept, stored_specs(store, swept), device, output, display.note)
    if not rows:
        names = ", ".join(request.name for request in swept.requests)
        raise InputError(
            f"nothing of {names} was swept on {device} in mode {swept.mode} at these sizes "
            f"({', '.join(map(str, swept.sizes))}): opdb sweep MODEL --status tells what was"
        )
    return SweepReport(rows)


def _swept_device(store: Store, named: str | None) -> str:
    """Return the device (slug) that is named, else this machine's if it was swept, else another."""
    swept = [device.slug for device in store.devices() if SweepPolicy((device.slug,)).runs(store)]
    if named is None and len(swept) == 1:
        return swept[0]
    from opdb.bench.session import detect  # which imports torch

    here = detect(named).device.slug
    return here if named or here in swept or not swept else swept[0]


def _in_its_mode(store: Store, swept: SweepRequest, device: str) -> SweepRequest:
    on_gpu = any(each.slug == device and each.type == "cuda" for each in store.devices())
    return replace(swept, mode=swept.mode or ("graph" if on_gpu else "eager"))


def _harvested(
    store: Store, swept: SweepRequest, platform: Platform, display: Display
) -> tuple[SweepRequest, list[SweepSpec], list[OpdbError]]:
    on_gpu = platform.device.type == "cuda"
    if swept.mode == "graph" and not on_gpu:
        raise CannotMeasureError(
            f"mode 'graph' needs a CUDA device; {platform.device.name} is none: use --mode eager"
        )
    swept = replace(swept, mode=swept.mode or ("graph" if on_gpu else "eager"))
    errors: list[OpdbError] = []
    with display.progress(len(swept.sized()), "harvest") as shown:
        return swept, harvested_specs(store, swept, errors, shown), errors


def _planned(store: Store, cells: Sequence[SweepSpec], device: str, *, retry: bool) -> Listing:
    from opdb.studies.sweep.measuring import planned_seconds

    policy = SweepPolicy((device,))
    left = RunTable(policy, policy.runs(store)).pending(cells, retry=retry)
    seconds, rests_on = planned_seconds(store, len(left), device)
    document = {
        "cells": len(cells),
        "left": len(left),
        "planned_s": seconds,
        "rests_on_runs": rests_on,
    }
    grounds = f"as {plural(rests_on, 'run')} here took" if rests_on else "as cells usually take"
    words = (
        f"{device}: {len(left)} of {plural(len(cells), 'cell')} to be measured, "
        f"about {show_duration(seconds)} ({plural(round(seconds), 'GPU-second')}, {grounds})"
    )
    return Listing(document, [words])


def _verified(
    store: Store, cells: Sequence[SweepSpec], device: str | None, display: Display
) -> list[Verification]:
    """Verify every algorithm at the first size of each model."""
    from opdb.bench.session import detect
    from opdb.studies.sweep.measuring import unmetered, verify

    session = unmetered(detect(device))
    found: list[Verification] = []
    for name in dict.fromkeys(cell.request.name for cell in cells):
        of_model = [cell for cell in cells if cell.request.name == name]
        first = [cell for cell in of_model if cell.size == of_model[0].size]
        display.note(f"verifying {name} at {first[0].size} pixels")
        [workload] = store.workloads_by_key([first[0].workload])
        found += verify(session, first, workload)
    return found


MODES = ("graph", "eager")


@dataclass(frozen=True)
class SweepArguments:
    algorithms: options.Algorithms = None
    stage: Annotated[
        str,
        typer.Option(
            "--stage", metavar="NAME", help="sanity (1 size, verified), quick (10), full (100)."
        ),
    ] = "sanity"
    num_sizes: Annotated[
        int | None, typer.Option("--num-sizes", metavar="N", help="So many sizes, 224 to 512.")
    ] = None
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="LIST", help="These sizes, as in 224,256.")
    ] = None
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", metavar="N", min=1, help="Batch size.")
    ] = 1
    warm_up: Annotated[
        int, typer.Option("--warmup", metavar="N", min=1, help="Passes before measuring.")
    ] = 10
    measure: Annotated[
        int, typer.Option("--measure", metavar="N", min=2, help="Passes measured, at least.")
    ] = 20
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="FOLDER", help="Where files are written.")
    ] = Path("results")
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", metavar="MODE", help="graph or eager.  [default: graph on a GPU, else eager]"
        ),
    ] = None
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove what ran: outputs, kernels, time.")
    ] = False
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what is left and its seconds; measure nothing.")
    ] = False
    status: Annotated[
        bool,
        typer.Option("--status", help="Say what is done, running, failed, left; measure nothing."),
    ] = False
    files: Annotated[
        bool,
        typer.Option("--files", help="Write the files of what is stored; measure nothing."),
    ] = False
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False
    list_models: Annotated[
        bool, typer.Option("--list-models", help="List models to sweep; any of images can be.")
    ] = False
    list_algorithms: Annotated[
        bool, typer.Option("--list-algorithms", help="List the algorithms.")
    ] = False

    def request(
        self, models: Sequence[str], algorithms: Sequence[Algorithm], said: ModelSpec
    ) -> SweepRequest:
        sizes = None if self.sizes is None else parse_sizes(self.sizes)
        found = sizes_of(self.stage, self.num_sizes, sizes)
        if self.mode is not None and self.mode not in MODES:
            raise UnknownNameError("--mode of a sweep", self.mode, MODES)
        of_models = replace(said, batch_size=self.batch_size)
        return SweepRequest(
            tuple(image_request(name, of_models) for name in dict.fromkeys(models)),
            tuple(found),
            tuple(algorithms),
            cast("Mode", self.mode),
            self.stage,
        )


def run(
    models: Annotated[
        list[str] | None,
        options.models("Models that take images."),
    ] = None,
    asked: SweepArguments = SweepArguments(),
    said: options.ModelFormat = ModelSpec(),
    device: options.AnyDevice = None,
    devices: options.Devices = None,
    out: options.Output = options.Output(),
) -> None:
    """Run whole models at many input sizes, their convolutions forced to take named algorithms.

    At each size: time with its distribution, power, energy, every layer's time in place.
    Each run is stored as soon as it is done; a stage reuses what an earlier one measured. What an
    algorithm cannot run is stored as unsupported; a model in which it cannot run some layer is
    partial. Files for pandas are written under results/STAGE/.
    """
    if asked.list_models or asked.list_algorithms:
        show(lists(models=asked.list_models, algorithms=asked.list_algorithms), as_json=out.as_json)
        return
    if not models and asked.status:
        models = list(MODELS)
    if not models:
        raise InputError("give models, as in: opdb sweep resnet50 --algorithm all --stage quick")
    usual = list(ALGORITHMS) if asked.status else [DEFAULT]
    algorithms = algorithms_named(asked.algorithms or usual)
    reads = asked.status or asked.files
    of_any = reads and device is None and devices is None
    places = [] if of_any else chosen_places(device, devices)
    here = places[0].device if places else device
    display = Terminal(quiet=out.quiet)
    if reads:
        swept = asked.request(models, algorithms, said)
        found = (
            sweep_standing(swept, here, db=out.db)
            if asked.status
            else stored_sweep(swept, here, asked.output_dir, display, db=out.db)
        )
        show(found, as_json=out.as_json)
        return
    from opdb.bench.session import detect
    from opdb.bench.visit import check_algorithms
    from opdb.store import open_store

    if not (places or asked.plan):
        check_algorithms(algorithms, detect(device))  # told before models are loaded
    swept = asked.request(models, algorithms, said)
    if asked.plan:
        with open_store(out.db, sweeps=True) as store:
            platform = detect(here)
            _, cells, _ = _harvested(store, swept, platform, display)
            plan = _planned(store, cells, platform.device.slug, retry=asked.retry)
        show(plan, as_json=out.as_json)
    else:
        found = _measured(asked, swept, places, device, display, out.db)
        show(found, as_json=out.as_json)
        found.check()
        check_failures(found.failures, places)


def _measured(
    asked: SweepArguments,
    swept: SweepRequest,
    places: Sequence[WorkerDevice],
    device: str | None,
    display: Display,
    db: str | None,
) -> SweepReport:
    from opdb.bench.model import note_failure
    from opdb.bench.session import detect, platforms
    from opdb.bench.visit import check_algorithms
    from opdb.store import open_store
    from opdb.studies.sweep.measuring import SweepOptions, sweep_work

    make_folder(asked.output_dir / swept.stage)  # ahead of the work
    with open_store(db, sweeps=True) as store:
        platform = platforms(places)[0] if places else detect(device)
        check_algorithms(list(swept.algorithms), platform)
        swept, cells, errors = _harvested(store, swept, platform, display)
        slug = platform.device.slug
        display.note(str(_planned(store, cells, slug, retry=asked.retry)))
        how = SweepOptions(asked.warm_up, asked.measure)
        work = sweep_work(SweepPolicy((slug,)), how, retry=asked.retry)
        left = work.pending(store, cells)
        failures: list[str] = []
        if places:
            failures = work.run_on_each(places, store, left, display, "sweep")
        else:
            with display.progress(len(left), "sweep") as shown:
                for cell, run in work.run(store, left, device, shown):
                    note_failure(shown, cell, run)
        rows = write_all(store, swept, cells, slug, asked.output_dir, display.note)
    verified = []
    if asked.verify or asked.stage == "sanity":
        with open_store(db) as store:  # the workers have ended and left their devices
            verified = _verified(store, cells, places[0].name if places else device, display)
    return SweepReport(rows, verified, errors, failures)
