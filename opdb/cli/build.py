"""`opdb build`: the loop that fills the database where it matters, and its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.cli import options
from opdb.cli.building import (
    built_document,
    check,
    in_one,
    plan_document,
    print_built,
    print_plan,
)
from opdb.cli.console import note, print_json, progress
from opdb.cli.crews import check_failures, chosen_places
from opdb.cli.selection import (
    describe,
    note_harvest,
    request_for,
    requests_in,
    summary_files,
)
from opdb.cli.visiting import Visiting
from opdb.errors import CheckError, InputError, OpdbError
from opdb.records import Device, Mode

if TYPE_CHECKING:
    from opdb.build.gather import Harvested
    from opdb.build.hands import Hands
    from opdb.build.survey import Survey
    from opdb.cluster.devices import Place
    from opdb.models import ModelRequest
    from opdb.significance import Significance
    from opdb.store import Store


def run(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Folders of summary files, summary files, model names, or patterns of names "
            "such as 'resnet*' or 'torchvision.classification:*'.",
        ),
    ],
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Share of each model's time and of its energy to be measured; attribution is to "
            "lie within 1 ± (1 - it).  [default: that of significant.yml, else 0.95]",
        ),
    ] = None,
    gpu_seconds: Annotated[
        float | None,
        typer.Option(
            "--gpu-seconds", metavar="N", help="Measure for at most so long, calibration included."
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show what would be measured, in which order; measure nothing."
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cuda, cuda:N or cpu; with --plan also a device as opdb status names it.",
        ),
    ] = None,
    devices: options.Devices = None,
    mode: options.ModeName = "eager",
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            "--batch-size", "-b", metavar="N", min=1, help="Batch size; may be given several times."
        ),
    ] = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before, operators and models.")
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure what carries the models' time and energy, and the models, until a target holds.

    Harvests all models, benches the most significant operators of them all first, measures the
    models, compares, and adds operators until the target holds for each, for time and for energy.
    What the database has is not measured again. A model that fails does not stop the others.

    The list of what is significant, significant.yml, is kept beside the summary files.
    """
    chosen = cast(Mode, options.parse_mode(mode))
    from opdb.predict import PLAIN_MODES, check_mode

    check_mode(chosen, PLAIN_MODES)
    _check(target, gpu_seconds)
    errors: list[OpdbError] = []
    lists = [_list_for(path) for path in paths]
    significance = _significance(lists)
    if plan and devices is not None:
        raise InputError(f"--plan and --devices {devices}: a plan measures nothing; use --device")
    # What cannot be measured here is told before a harvest.
    places = () if plan else tuple(chosen_places(device, devices))
    target = target or significance.target
    asked = _Asked(target, gpu_seconds, plan, device, places, chosen, retry)
    wanted = _wanted(paths, _said(batch_size, dtype, memory_format), errors)
    if not plan and not places:
        from opdb.bench.measure import check_modes

        check_modes([chosen], device)
    if not wanted:
        raise InputError(in_one(errors))
    with _opened(db, plan=plan) as store:
        jobs = _harvest(store, wanted, errors, quiet=quiet)
        if not jobs:
            raise InputError(in_one(errors))
        if plan:
            _plan(store, jobs, asked, significance, errors, _Output(lists, as_json, quiet))
        else:
            _build(store, jobs, asked, significance, errors, _Output(lists, as_json, quiet))


@dataclass(frozen=True)
class _Asked:
    target: float
    gpu_seconds: float | None
    plan: bool
    device: str | None
    places: tuple[Place, ...]
    mode: Mode
    retry: bool


@dataclass(frozen=True)
class _List:
    """A list of significant operators that concerns a build, and whether the build is all of it."""

    path: Path
    whole: bool


@dataclass(frozen=True)
class _Output:
    lists: Sequence[_List | None]
    as_json: bool
    quiet: bool


@dataclass
class _Harvest:
    """A summary file (None for a model's name), its requests, and the workloads found."""

    file: Path | None
    requests: list[ModelRequest]
    found: list[Harvested] = field(default_factory=list)


def _check(target: float | None, gpu_seconds: float | None) -> None:
    if target is not None and not 0 < target <= 1:
        raise InputError(f"--target {target:g}: give a share above 0, up to 1, such as 0.95")
    if gpu_seconds is not None and not gpu_seconds >= 0:
        raise InputError(f"--gpu-seconds {gpu_seconds:g}: give seconds, 0 or more")


def _said(
    batch_sizes: list[int] | None, dtype: str | None, memory_format: str | None
) -> list[options.ModelOptions]:
    said = options.model_options(None, None, dtype, memory_format, None)
    if not batch_sizes:
        return [said]
    return [replace(said, batch_size=size) for size in dict.fromkeys(batch_sizes)]


# What is to be built


def _wanted(
    paths: Sequence[str], said: Sequence[options.ModelOptions], errors: list[OpdbError]
) -> list[_Harvest]:
    """Return what the arguments ask for; what is wrong with one file or name is kept for the end.

    Raises:
        InputError: a folder holds no summary file, or a pattern matches nothing.
    """
    wanted = []
    for path in paths:
        if _is_pattern(path):
            wanted += [_Harvest(None, _requests([request], said)) for request in _matching(path)]
            continue
        files = summary_files(path)
        for file in files:
            with _kept(errors):
                found = [r for each in said for r in requests_in(file, each)]
                wanted.append(_Harvest(file, [r.checked() for r in _distinct(found)]))
        if not files:
            with _kept(errors):
                found = [request_for(path, each).checked() for each in said]
                wanted.append(_Harvest(None, _distinct(found)))
    return wanted


@contextmanager
def _kept(errors: list[OpdbError]) -> Iterator[None]:
    """Keep an error of the block for the end."""
    try:
        yield
    except OpdbError as error:
        errors.append(error)


def _distinct(requests: Sequence[ModelRequest]) -> list[ModelRequest]:
    return list({repr(request): request for request in requests}.values())


def _requests(
    requests: Sequence[ModelRequest], said: Sequence[options.ModelOptions]
) -> list[ModelRequest]:
    """Return requests changed to what the options say."""
    changes = [
        {name: value for name, value in vars(each).items() if value is not None} for each in said
    ]
    return [replace(request, **change).checked() for request in requests for change in changes]


def _is_pattern(argument: str) -> bool:
    return any(sign in argument for sign in "*?[") and not Path(argument).exists()


def _matching(pattern: str) -> list[ModelRequest]:
    """Return requests for the models of a source that a pattern matches: `torchvision:resnet*`.

    Without a source all are looked through; `torchvision.classification:` is one family.

    Raises:
        InputError: it matches nothing.
    """
    from opdb.models import ModelRequest, names

    source, colon, rest = pattern.rpartition(":")
    source, _, family = source.partition(".")
    valid = _family(source, family) if family else names(source if colon else None)
    found = [name for name in valid if fnmatchcase(name, rest)]
    if not found:
        raise InputError(f"no model's name matches {pattern!r}")
    return [ModelRequest(name, source=source if colon else None) for name in found]


def _family(source: str, family: str) -> Sequence[str]:
    from opdb.errors import UnknownNameError
    from opdb.models.torchvision import family_names

    families = ("classification", "segmentation", "video", "detection", "optical_flow")
    if source != "torchvision" or family not in families:
        valid = [f"torchvision.{each}" for each in families]
        raise UnknownNameError("family", f"{source}.{family}", valid)
    return family_names(family)


def _harvest(
    store: Store, wanted: Sequence[_Harvest], errors: list[OpdbError], *, quiet: bool
) -> list[_Harvest]:
    """Harvest everything that does not stand; return what was found, each workload once."""
    from opdb.bench.harvests import standing
    from opdb.build.gather import Harvested, gather

    requests = _distinct([request for each in wanted for request in each.requests])
    stood = {repr(request): standing(store, request) for request in requests}
    with progress(len(requests), "harvest", quiet=quiet) as shown:

        def tell(request: ModelRequest) -> None:
            shown.doing(f"{request.name} {describe(request)}")
            shown.done()

        lacking = [request for request in requests if stood[repr(request)] is None]
        found = {repr(one.request): one for one in gather(lacking, tell)}
        for request in requests:
            if (known := stood[repr(request)]) is not None:
                found[repr(request)] = Harvested.of(request, known)
                tell(request)
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


def _opened(db: str | None, *, plan: bool) -> Store:
    from opdb.store import open_store

    return open_store(db, create=not plan)


# The list of what is significant


def _list_for(argument: str) -> _List | None:
    """Return the list beside what an argument names: in the folder, beside the file, else here."""
    from opdb.significance import place_of

    path = Path(argument)
    if _is_pattern(argument) or not (path.is_dir() or path.suffix in (".yml", ".yaml")):
        here = place_of(Path("measurements"))
        return _List(here, whole=False) if here.exists() else None
    return _List(place_of(path if path.is_dir() else path.parent), whole=path.is_dir())


def _significance(lists: Sequence[_List | None]) -> Significance:
    """Return what the lists say, pins of all together; the first one's thresholds.

    Raises:
        InputError: one of them has mistakes.
    """
    from opdb.significance import Significance, load_significance

    paths = dict.fromkeys(each.path for each in lists if each is not None and each.path.exists())
    found = [load_significance(path) for path in paths]
    if not found:
        return Significance()
    return found[0].model_copy(
        update={
            "always": tuple(dict.fromkeys(pin for each in found for pin in each.always)),
            "never": tuple(dict.fromkeys(pin for each in found for pin in each.never)),
        }
    )


def _propose(known: Survey, asked: _Asked, significance: Significance, output: _Output) -> None:
    """Write the proposal into the list of a folder that is built whole; say so if it changed."""
    from opdb.build.proposal import proposal
    from opdb.significance import propose

    [only, *more] = dict.fromkeys(output.lists)
    if only is None or not only.whole or more:
        return  # of a part, or of several projects, no list of one project can be made
    try:
        changed = propose(only.path, proposal(known, significance, asked.target))
    except InputError as error:
        note(f"the list of significant operators was left alone: {error}", quiet=output.quiet)
        return
    if changed:
        note(f"{only.path}: the significant operators, as proposed now", quiet=output.quiet)


# The plan


def _plan(
    store: Store,
    jobs: Sequence[_Harvest],
    asked: _Asked,
    significance: Significance,
    errors: list[OpdbError],
    output: _Output,
) -> None:
    from opdb.build.planned import planned
    from opdb.build.survey import survey
    from opdb.settings import DEFAULT_SETTINGS

    device = _planned_device(store, asked.device)
    workloads = [one.called_in(asked.mode) for job in jobs for one in job.found]
    known = survey(store, device, workloads, DEFAULT_SETTINGS)
    _say_of_others(store, device, known, output)
    found = planned(known, asked.target, significance, asked.gpu_seconds)
    _propose(known, asked, significance, output)
    if output.as_json:
        print_json(plan_document(found, errors))
    else:
        print_plan(found)
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


def _build(
    store: Store,
    jobs: Sequence[_Harvest],
    asked: _Asked,
    significance: Significance,
    errors: list[OpdbError],
    output: _Output,
) -> None:
    from opdb.bench.settings import current_settings
    from opdb.build.hands import Job
    from opdb.build.loop import BuildRequest, build
    from opdb.build.survey import survey
    from opdb.summary import mark_processed

    for job in jobs:
        for one in job.found:
            if one.workload is not None:
                estranged = store.save_workload(
                    one.workload, one.captured, fingerprint=one.fingerprint
                )
                note_harvest(one.workload, None, estranged, quiet=output.quiet)
        if job.file is not None:
            mark_processed(job.file)
    pairs = [Job(one.request, one.called_in(asked.mode)) for job in jobs for one in job.found]
    request = BuildRequest(asked.target, asked.mode, asked.gpu_seconds, asked.retry, significance)
    with _hands(store, asked) as hands, Visiting(quiet=output.quiet) as shown:
        device = hands.platforms[0].device
        known = survey(store, device, [pair.workload for pair in pairs], current_settings())
        _say_of_others(store, device, known, output)
        _propose(known, asked, significance, output)
        built = build(store, pairs, request, hands, shown)
        failures = list(hands.failures)
    assert built.survey is not None
    _propose(built.survey, asked, significance, output)
    if output.as_json:
        print_json(built_document(built, asked.target, errors))
    else:
        print_built(built, asked.target)
    check_failures(failures, asked.places)
    check(built, asked.target, errors)


@contextmanager
def _hands(store: Store, asked: _Asked) -> Iterator[Hands]:
    """Yield who measures: this process, or workers at several places."""
    from opdb.build.hands import Alone, Several

    if not asked.places:
        yield Alone(store, asked.device, asked.mode)
        return
    from opdb.cluster.crew import Crew

    with Crew(asked.places, store.url) as crew:
        yield Several(crew, asked.mode)
