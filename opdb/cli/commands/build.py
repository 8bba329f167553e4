"""`opdb build`: the loop that fills the database where it matters, and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from opdb.api.build_sources import (
    BuildSource,
    SignificanceList,
    build_sources,
    distinct,
    joined_significance,
    list_beside,
)
from opdb.api.builds import BuildReport, in_one
from opdb.api.places import check_failures, chosen_places
from opdb.api.plans import MeasuringPlan
from opdb.cli.support import options
from opdb.cli.support.console import note, progress, show
from opdb.cli.support.selection import mark, note_harvest
from opdb.cli.support.visiting import Visiting
from opdb.errors import CheckError, InputError, OpdbError
from opdb.lookup.options import ModelOptions, parse_mode
from opdb.lookup.words import describe
from opdb.records import Device, Mode

if TYPE_CHECKING:
    from opdb.cluster.devices import WorkerDevice
    from opdb.models import ModelRequest
    from opdb.plan.loop import Built
    from opdb.plan.survey import Survey
    from opdb.significance import Significance
    from opdb.store import Store


@dataclass(frozen=True)
class BuildArguments:
    """What is to be built until when, and whether it is measured or only planned."""

    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Share of each model's time and of its energy to be measured; attribution is to "
            "lie within 1 ± (1 - it).  [default: that of significant.yml, else 0.95]",
        ),
    ] = None
    gpu_seconds: Annotated[
        float | None,
        typer.Option(
            "--gpu-seconds", metavar="N", help="Measure for at most so long, calibration included."
        ),
    ] = None
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show what would be measured, in which order; measure nothing."
        ),
    ] = False
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="With --plan: write significant.yml as proposed.  [default: nothing]"
        ),
    ] = False
    mode: options.ModeName = "eager"
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            "--batch-size", "-b", metavar="N", min=1, help="Batch size; may be given several times."
        ),
    ] = None
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before, operators and models.")
    ] = False

    def check(self, devices: str | None) -> Mode:
        """Check the options, and return the mode.

        Raises:
            InputError: one has no such value, or two contradict each other.
        """
        chosen = parse_mode(self.mode)
        from opdb.predict import PLAIN_MODES, check_mode

        check_mode(chosen, PLAIN_MODES)
        if self.target is not None and not 0 < self.target <= 1:
            raise InputError(
                f"--target {self.target:g}: give a share above 0, up to 1, such as 0.95"
            )
        if self.gpu_seconds is not None and not self.gpu_seconds >= 0:
            raise InputError(f"--gpu-seconds {self.gpu_seconds:g}: give seconds, 0 or more")
        if self.plan and devices is not None:
            raise InputError(
                f"--plan and --devices {devices}: a plan measures nothing; use --device"
            )
        if self.write and not self.plan:
            raise InputError("--write is for --plan; what is built is written in any case")
        return chosen

    def at_sizes(self, said: ModelOptions) -> list[ModelOptions]:
        """Return what is said of the models, at each batch size."""
        sizes = dict.fromkeys(self.batch_size or ())
        return [replace(said, batch_size=size) for size in sizes] or [said]


AnyDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cuda, cuda:N or cpu; with --plan also a device as opdb status names it.",
    ),
]


def run(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Folders of summary files, summary files, model names, or patterns of names "
            "such as 'resnet*' or 'torchvision.classification:*'.",
        ),
    ],
    asked: BuildArguments = BuildArguments(),
    said: options.ModelFormat = options.ModelArguments(),
    device: AnyDevice = None,
    devices: options.Devices = None,
    out: options.Output = options.Output(),
) -> None:
    """Measure what carries the models' time and energy, and the models, until a target holds.

    Harvests all models, benches the most significant operators of them all first, measures the
    models, compares, and adds operators until the target holds for each, for time and for energy.
    What the database has is not measured again. A model that fails does not stop the others.

    The list of what is significant, significant.yml, is kept beside the summary files.
    """
    chosen = asked.check(devices)
    errors: list[OpdbError] = []
    lists = [list_beside(path) for path in paths]
    significance = joined_significance(lists)
    # What cannot be measured here is told before a harvest.
    places = () if asked.plan else tuple(chosen_places(device, devices))
    target = asked.target or significance.target
    goal = _Goal(target, asked.gpu_seconds, device, places, chosen, asked.retry)
    wanted = build_sources(paths, asked.at_sizes(said.options), errors)
    if not asked.plan and not places:
        from opdb.bench.measure import check_modes

        check_modes([chosen], device)
    from opdb.store import open_store

    with open_store(out.db, create=not asked.plan) if wanted else nullcontext() as store:
        jobs = _harvest(store, wanted, errors, quiet=out.quiet) if store else []
        if store is None or not jobs:
            raise InputError(in_one(errors))
        shown = _Output(lists if asked.write or not asked.plan else (), out.as_json, out.quiet)
        (_plan if asked.plan else _build)(store, jobs, goal, significance, errors, shown)


@dataclass(frozen=True)
class _Goal:
    """Until when it is measured, and where; `target` is a share of time and of energy."""

    target: float
    gpu_seconds: float | None
    device: str | None
    places: tuple[WorkerDevice, ...]
    mode: Mode
    retry: bool


@dataclass(frozen=True)
class _Output:
    lists: Sequence[SignificanceList | None]
    as_json: bool
    quiet: bool


def _harvest(
    store: Store, wanted: Sequence[BuildSource], errors: list[OpdbError], *, quiet: bool
) -> list[BuildSource]:
    """Harvest everything that does not stand; return what was found, each workload once."""
    from opdb.plan.gather import harvested

    requests = distinct([request for each in wanted for request in each.requests])
    with progress(len(requests), "harvest", quiet=quiet) as shown:

        def tell(request: ModelRequest) -> None:
            shown.doing(f"{request.name} {describe(request)}")
            shown.done()

        found = harvested(store, requests, tell)
    seen: set[str] = set()
    for each in wanted:
        for request in each.requests:
            one = found[repr(request)]
            if one.workload is not None and one.workload.key not in seen:
                seen.add(one.workload.key)
                each.found.append(one)
                note_harvest(one.workload, one.failure, quiet=quiet)
    errors += [one.error for one in found.values() if one.error is not None]
    failed = {key for key, one in found.items() if one.error is not None}
    for each in wanted:
        if any(repr(request) in failed for request in each.requests):
            each.file = None  # it is not marked as processed
    return [each for each in wanted if each.found]


def _propose(known: Survey, goal: _Goal, significance: Significance, output: _Output) -> None:
    """Write the proposal into the list of a folder that is built whole; say so if it changed."""
    from opdb.plan.proposal import proposal
    from opdb.significance import propose

    lists = [*dict.fromkeys(output.lists)]
    only = lists[0] if len(lists) == 1 else None
    if only is None or not only.whole:
        return  # of a part, or of several projects, no list of one project can be made
    try:
        changed = propose(only.path, proposal(known, significance, goal.target))
    except InputError as error:
        note(f"the list of significant operators was left alone: {error}", quiet=output.quiet)
        return
    if changed:
        note(f"{only.path}: the significant operators, as proposed now", quiet=output.quiet)


# The plan


def _plan(
    store: Store,
    jobs: Sequence[BuildSource],
    goal: _Goal,
    significance: Significance,
    errors: list[OpdbError],
    output: _Output,
) -> None:
    from opdb.plan.planned import planned
    from opdb.plan.survey import survey
    from opdb.settings import DEFAULT_SETTINGS

    device = _planned_device(store, goal.device)
    workloads = [one.called_in(goal.mode) for job in jobs for one in job.found]
    known = survey(store, device, workloads, DEFAULT_SETTINGS)
    _say_of_others(store, device, known, output)
    found = planned(known, goal.target, significance, goal.gpu_seconds)
    _propose(known, goal, significance, output)
    show(MeasuringPlan(found, errors), as_json=output.as_json)
    if errors:
        raise CheckError(in_one(errors))


def _planned_device(store: Store, name: str | None) -> Device:
    """Return the device to plan for: a machine's own, one of the database, else the published."""
    from opdb.predict import choose_device

    if name is None and store.devices():
        return choose_device(store, None)
    if name is None or name == "cpu" or name.startswith("cuda"):
        from opdb.bench.platform import detect

        return detect(name).device
    return choose_device(store, name)


def _say_of_others(store: Store, device: Device, known: Survey, output: _Output) -> None:
    """Say where nothing of a device was measured, though others were."""
    others = [each.slug for each in store.devices() if each.slug != device.slug]
    if not known.costs and others:
        note(
            f"{store.location} holds nothing of these models on {device.slug}, only measurements "
            f"of {', '.join(others)}: these do not count, and sizes are rough at first",
            quiet=output.quiet,
        )


# The loop


def _save(store: Store, jobs: Sequence[BuildSource], output: _Output) -> None:
    """Store what was harvested, and mark the summary files as processed."""
    for job in jobs:
        for one in job.found:
            if one.workload is not None:
                stale = store.save_workload(one.workload, one.captured, fingerprint=one.fingerprint)
                note_harvest(one.workload, None, stale, quiet=output.quiet)
        if job.file is not None:
            mark(job.file, quiet=output.quiet)


def _build(
    store: Store,
    jobs: Sequence[BuildSource],
    goal: _Goal,
    significance: Significance,
    errors: list[OpdbError],
    output: _Output,
) -> None:
    _save(store, jobs, output)
    built, failures = _measured(store, jobs, goal, significance, output)
    assert built.survey is not None
    _propose(built.survey, goal, significance, output)
    found = BuildReport(built, goal.target, errors)
    show(found, as_json=output.as_json)
    check_failures(failures, goal.places)
    found.check()


def _measured(
    store: Store,
    jobs: Sequence[BuildSource],
    goal: _Goal,
    significance: Significance,
    output: _Output,
) -> tuple[Built, list[str]]:
    """Measure until the target holds; return what was done, and why devices failed."""
    from opdb.bench.platform import current_settings
    from opdb.cluster.crew import Crew
    from opdb.plan.hands import Alone, BuildModel, Several
    from opdb.plan.loop import BuildRequest, build
    from opdb.plan.survey import survey

    pairs = [BuildModel(one.request, one.called_in(goal.mode)) for job in jobs for one in job.found]
    request = BuildRequest(goal.target, goal.mode, goal.gpu_seconds, goal.retry, significance)
    places = goal.places
    with (
        Crew(places, store.url) if places else nullcontext() as crew,
        Visiting(quiet=output.quiet) as shown,
    ):
        hands = Several(crew, goal.mode) if crew else Alone(store, goal.device, goal.mode)
        device = hands.platforms[0].device
        known = survey(store, device, [pair.workload for pair in pairs], current_settings())
        _say_of_others(store, device, known, output)
        _propose(known, goal, significance, output)
        built = build(store, pairs, request, hands, shown)
        failures = list(hands.runs.failures)
    return built, failures
