"""`opdb bench`: what is pending, measured on this device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.algorithms.names import algorithms_named
from opdb.cli import console, options
from opdb.commands import _lazy as lazy
from opdb.derive.statistics import PRECISION, Reached
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError
from opdb.growth import benched_configurations
from opdb.harvest.finding import HarvestPolicy, find_or_harvest, workload_of
from opdb.kinds import KINDS
from opdb.progress import Display
from opdb.records import Configuration, Json, Mode, Stored
from opdb.spec import ModelSpec, identity
from opdb.summary_files import checked_request
from opdb.tables import Listing, Report
from opdb.units import plural, show, show_duration, show_share

PANEL = "measure"


def chosen_places(device: str | None, devices: str | None) -> list[lazy.workers.WorkerDevice]:
    """Return the places that `--devices` names; none where it is not given.

    Where one device is to be measured, it is looked for: what cannot be measured here is told
    before a database is opened.
    """
    if device is not None and devices is not None:
        raise InputError(f"--device {device} and --devices {devices}: give one of them")
    if devices is None:
        lazy.session.detect(device)
        return []
    return lazy.workers.places(devices)


def measured_places(
    device: str | None, devices: str | None, modes: Sequence[Mode] = ()
) -> list[lazy.workers.WorkerDevice]:
    """Return the places to measure on, as `chosen_places` does.

    A processor is measured only where it is named: all that is published would take it a day. It
    runs models in some of the modes alone.
    """
    if device is None and devices is None and not lazy.workers.cuda_devices():
        raise CannotMeasureError(
            "no NVIDIA GPU here that torch can use (opdb doctor says why); to measure this "
            "machine's processor, add --device cpu"
        )
    places = chosen_places(device, devices)
    if modes and (not places or any(place.device == "cpu" for place in places)):
        lazy.model.check_modes(modes, "cpu" if places else device)
    return places


def harvested(
    store: lazy.store.Store,
    requests: Sequence[ModelSpec],
    policy: HarvestPolicy,
    display: Display,
    errors: list[OpdbError],
) -> dict[str, Stored]:
    """Return what each request means, by its `repr`; `errors` get why that is not known of some."""
    with display.progress(len(requests), "harvest") as shown:
        answers = find_or_harvest(store, requests, policy, shown)
    errors += [found for found in answers.values() if isinstance(found, OpdbError)]
    return {name: found for name, found in answers.items() if isinstance(found, Stored)}


def check_failures(failures: Sequence[str], places: Sequence[lazy.workers.WorkerDevice]) -> None:
    """Raise where a device failed, each named with the reason."""
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        raise CannotMeasureError(
            f"{len(failures)} of {plural(len(places), 'device')} failed; what was finished is "
            f"stored, and the others went on\n{listed}"
        )


def _grid(path: Path, display: Display) -> tuple[Sequence[Configuration], Listing]:
    """Read a grid file; return the configurations that its combinations come to, and the rest."""
    grids = lazy.grid.load_grids(path)
    asked = lazy.grid.steps(grids)
    if asked > lazy.grid.MOST:
        raise InputError(
            f"{path}: {asked} combinations, more than {lazy.grid.MOST}; give fewer values or a "
            "sample (sample: 400)"
        )
    with display.progress(asked, "grid") as shown:
        found = lazy.grid.expand(grids, shown.done)
    dropped = [
        f"dropped {each.count}: {each.reason} (the first: {json.dumps(dict(each.example))})"
        for each in found.dropped
    ]
    if not found.calls:
        why = "; ".join(dropped)
        raise InputError(f"{path}: none of its combinations can be called: {why}")
    line = (
        f"{path}: {plural(len(found.calls), 'configuration')} of "
        f"{plural(found.combinations, 'combination')}"
    )
    document = {
        "file": str(path),
        "combinations": found.combinations,
        "sample": found.asked,
        "tried": found.tried,
        "configurations": len(found.calls),
        "repeated": found.repeated,
        "dropped": [
            {"reason": each.reason, "combinations": each.count, "first": dict(each.example)}
            for each in found.dropped
        ],
    }
    configurations = [call.configuration for call in found.calls]
    as_data = [json.loads(each.json) for each in configurations]
    listing = Listing({"grid": document, "configurations": as_data}, [line, *dropped])
    return configurations, listing


@dataclass(frozen=True)
class BenchOptions:
    """What is measured, where, and how exactly.

    Where `rounds` is None, what models call is visited as often as their sums need: until the
    sampling part of the sums' 95 % intervals is within `precision` (None: 0.01), a share. Operators
    of no model, or all of them where a number of rounds is given, are visited until the interval of
    their own energy is (None: 0.02).
    """

    device: options.MeasuredDevice = None
    devices: options.Devices = None
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", metavar="S", min=1, help="Stop after so many seconds."),
    ] = None
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before (out of memory, errors).")
    ] = False
    this_board: Annotated[
        bool,
        typer.Option("--this-board", help="Measure what this very board lacks, not its device."),
    ] = False
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            metavar="N",
            min=1,
            max=4,
            help="Visit each configuration so often at least; with 1, a tenth of them twice.  "
            "[default: once where models call it, then as their sums need; else twice]",
        ),
    ] = None
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision",
            metavar="SHARE",
            help="Go on, up to 4 visits each, until the 95 % intervals of models' sums are within "
            "± this (their sampling part); of operators of no model, or with --rounds, those of "
            "their energies.  [default: 0.01; for energies 0.02]",
        ),
    ] = None
    duplicates: Annotated[
        float,
        typer.Option(
            "--duplicates",
            metavar="SHARE",
            help="Measure this share of the configurations twice over, to test the intervals.",
        ),
    ] = 0.1
    algorithms: options.Algorithms = None
    grid: Annotated[
        Path | None,
        typer.Option(
            "--grid",
            metavar="FILE",
            help="Measure the combinations of a grid file, which belong to no model.",
        ),
    ] = None

    def check(self, kinds: Sequence[str], model: str | None) -> None:
        if not 0 <= self.duplicates <= 1:
            raise InputError(
                f"--duplicates {self.duplicates:g}: give a share between 0 and 1, such as 0.9"
            )
        if self.precision is not None and self.precision <= 0:
            raise InputError(f"--precision {self.precision:g}: give a share above 0, such as 0.02")
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownNameError("kind", kind, KINDS)
        if self.grid is not None and (kinds or model is not None):
            raise InputError("--grid: give it without kinds and without --model")

    def request(self, kinds: Sequence[str]) -> lazy.bench_plan.BenchRequest:
        """Return what is asked of a campaign, its algorithms found by name."""
        forced = algorithms_named(self.algorithms or [])
        if any(each.is_forced for each in forced) and list(kinds) not in ([], ["conv2d"]):
            raise InputError(
                f"--algorithm {forced[0].name!r} is about convolutions: opdb bench conv2d, not "
                f"{' '.join(kinds)}"
            )
        return lazy.bench_plan.BenchRequest(
            kinds=frozenset(kinds) if kinds else None,
            device=self.device,
            max_s=self.max_seconds,
            retry=self.retry,
            this_board=self.this_board,
            rounds=self.rounds,
            precision=self.precision or PRECISION,
            sum_precision=self.precision or lazy.bench_plan.SUM_PRECISION,
            duplicates=self.duplicates,
            algorithms=tuple(forced),
        )


@dataclass(frozen=True, repr=False)
class BenchReport(Report):
    """What campaigns measured, one a board; `failures` name the devices that failed, and why."""

    results: Sequence[lazy.bench_run.BenchResult]
    places: Sequence[lazy.workers.WorkerDevice] = ()
    failures: Sequence[str] = ()
    model: Json = None
    grid: Json = None

    def check(self) -> None:
        check_failures(self.failures, self.places)

    def rows(self) -> list[dict[str, Json]]:
        return [_document(each) for each in self.results]

    def to_dict(self) -> dict[str, Json]:
        several: dict[str, Json] = {"boards": self.rows(), "failures": list(self.failures)}
        found = several if self.places else self.rows()[0]
        grid = {} if self.grid is None else {"grid": self.grid}
        return found | grid | ({} if self.model is None else {"model": self.model})

    def blocks(self) -> Iterator[str]:
        for each in self.results:
            yield from _lines(each)


def _lines(result: lazy.bench_run.BenchResult) -> Iterator[str]:
    place = f"{result.device} ({result.board})"
    if result.elsewhere:
        elsewhere = plural(len(result.elsewhere), "configuration")
        yield f"{place}: other workers are at {elsewhere}, left to them"
    if result.campaign is None:
        yield f"nothing {'else ' if result.elsewhere else ''}is pending on {place}"
        return
    visits = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items()) or "0"
    yield (
        f"{place}: {plural(result.configurations, 'configuration')}, visits: {visits}; "
        f"{show_duration(result.elapsed_s)}"
    )
    if result.rejected:
        yield f"rejected and kept: {plural(result.rejected, 'visit')}"
    for (algorithm, reason), count in sorted(result.refused.items()):
        yield f"{algorithm}: {count} unsupported: {reason}"
    if (sums := result.sums) is not None:
        yield (
            f"models' sums of time and energy: {sums.within} of {sums.sums} within "
            f"{100 * sums.asked:g} % (sampling part of the 95 % interval; median "
            f"{show_share(sums.half_width)}, largest {show_share(sums.largest)})"
        )
    if result.reached is not None and (said := _precision(result.reached, result.typical_cost_s)):
        yield "; ".join(said)
    if result.stopped:
        yield f"stopped early: {result.stopped}; run it again to go on"


def _precision(reached: Reached, typical_cost_s: float | None) -> list[str]:
    """Say what intervals are like now: how many as narrow as asked, and why others are not."""
    judged = reached.within + reached.missed.total()
    said = []
    if judged:
        said.append(
            f"within {100 * reached.asked:g} % (half the 95 % interval of the energy): "
            f"{reached.within} of {plural(judged, 'configuration')}"
        )
        said += [f"{count} not, {why}" for why, count in reached.missed.items()]
    if reached.unjudged:
        said.append(f"{reached.unjudged} with a time and no energy")
    if reached.half_width is not None:
        said.append(f"median half width {show_share(reached.half_width)}")
    if typical_cost_s is not None:
        said.append(f"median device time {show(typical_cost_s, 's', digits=2)} a configuration")
    return said


def bench(
    *kinds: str,
    model: str | None = None,
    options: BenchOptions | None = None,
    db: str | None = None,
    display: Display | None = None,
    check: bool = True,
    **said: Any,
) -> BenchReport:
    """Measure operators on this machine's device, as `opdb bench` does; it needs torch.

    `model` measures only what that model lacks, `said` are its options: batch_size, dtype … Without
    it everything that is pending is measured, of these kinds where some are given. Each visit is
    stored as soon as it is done. Devices that fail stop no others; they raise at the end, unless
    `check` leaves that to `check()` of what is returned.
    """
    asked, of = options or BenchOptions(), ModelSpec.parse(**said)
    asked.check(kinds, model)
    if model is None and of != ModelSpec():
        raise InputError("options of a model are given, but no model: add --model NAME")
    wanted = None if model is None else checked_request(model, of)
    request = asked.request(kinds)
    display = display or Display()
    grid = None
    if asked.grid is not None:
        configurations, grid = _grid(asked.grid, Display())
    places = measured_places(asked.device, asked.devices)
    if request.algorithms and not places:  # workers check their own device
        lazy.visit.check_algorithms(list(request.algorithms), lazy.session.detect(request.device))
    of_model = None
    with lazy.store.open_store(db, create=grid is not None or wanted is not None) as store:
        if grid is not None:
            for line in grid.lines():
                display.note(line)
            store.save_configurations(configurations)
            request = replace(request, configurations=[each.key for each in configurations])
        elif wanted is not None:
            stored = workload_of(store, wanted, lazy.harvests.measuring())
            of_model, request = _of_model(stored, request)
        elif not store.workload_names():
            raise InputError(
                f"{store.location} holds no workload, so nothing is pending; start with, say, "
                "opdb harvest measurements/resnet50.yml"
            )
        if places:
            done = lazy.bench_run.bench_on_each(places, store, request, display)
        else:
            done = [lazy.bench_run.bench(store, request, display)], []
    of_grid = None if grid is None else grid.document["grid"]
    found = BenchReport(done[0], places, done[1], of_model, of_grid)
    if check:
        found.check()
    return found


def _of_model(
    stored: Stored, request: lazy.bench_plan.BenchRequest
) -> tuple[Json, lazy.bench_plan.BenchRequest]:
    """Return what a harvested model is, and a request for what it calls alone.

    That is in the model's order, captured in a CUDA graph too; of a whole generation, that of few
    steps.
    """
    workload, captured = stored.found.workload, stored.found.captured
    workloads = [workload, *([] if captured is None else [captured])]
    benched = list(benched_configurations(workloads))
    document = {
        **identity(workload),
        "configurations": len(workload.occurrences()),
        # Of a whole generation, the configurations of few steps are benched.
        "benched": len(benched_configurations([workload])),
    }
    keys = [each.key for each in workloads]
    return document, replace(request, configurations=benched, workloads=keys)


def _document(result: lazy.bench_run.BenchResult) -> dict[str, Json]:
    return {
        "device": result.device,
        "board": result.board,
        "campaign": result.campaign,
        "configurations": result.configurations,
        "visits": sum(result.outcomes.values()),
        "outcomes": dict(result.outcomes),
        "rejected": result.rejected,
        "device_time_s": result.cost_s,
        "device_time_per_configuration_s": result.typical_cost_s,
        "elapsed_s": result.elapsed_s,
        "stopped": result.stopped,
        "left_to_other_workers": len(result.elsewhere),
        "refused": [
            {"algorithm": algorithm, "reason": reason, "visits": count}
            for (algorithm, reason), count in sorted(result.refused.items())
        ],
        "reached": result.reached
        and {
            "precision": result.reached.asked,
            "within": result.reached.within,
            "missed": dict(result.reached.missed),
            "without_energy": result.reached.unjudged,
            "median_half_width": result.reached.half_width,
        },
        "sums": result.sums
        and {
            "precision": result.sums.asked,
            "sums": result.sums.sums,
            "within": result.sums.within,
            "median_half_width": result.sums.half_width,
            "largest_half_width": result.sums.largest,
        },
    }


def run(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND",
            help="Kinds of operator.  [default: all]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Measure what this model alone lacks; it is harvested where it was not.",
        ),
    ] = None,
    said: options.Model = ModelSpec(),
    how: BenchOptions = BenchOptions(),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what a grid comes to and measure nothing.")
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """Measure every pending configuration of these kinds on this device; resumes where it stopped.

    What was harvested and lacks visits is pending. Each visit is stored as soon as it is done; one
    that heat, another process or a moving clock spoiled is kept and made again.

    With --model it is what this model calls, at the batch size and so on that are given with it.

    --algorithm measures convolutions by algorithms that are named, forced (docs/studies.md); what
    one cannot run is stored as unsupported, with cuDNN's status, and nothing takes its place.

    A grid file (see measurements/grids/) names one operator and ranges of all that it is called
    with. Its configurations are stored, and those that lack visits are measured, in its order.
    """
    if dry_run:
        how.check(kinds or (), model)
        if how.grid is None:
            raise InputError("--dry-run is about a grid: give --grid FILE")
        out.answer(_grid(how.grid, console.Terminal(quiet=out.quiet))[1])
        return
    found = bench(
        *(kinds or ()),
        model=model,
        options=how,
        db=out.db,
        display=console.Terminal(quiet=out.quiet),
        check=False,
        **said.keywords(),
    )
    out.answer(found)
