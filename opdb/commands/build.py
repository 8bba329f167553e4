"""`opdb build`: measure what carries the time and energy of models, until a target holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from opdb.cli import console, options
from opdb.cli.options import batch_sizes_among
from opdb.commands import _lazy as lazy
from opdb.commands._predictions import coverage, in_words, misses
from opdb.commands.bench import harvested, measured_places
from opdb.commands.harvest import requested
from opdb.errors import CheckError, InputError, OpdbError, in_one
from opdb.harvest.finding import HarvestPolicy, mark
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.progress import Display
from opdb.records import Device, Json, Mode, Stored
from opdb.spec import ModelSpec, describe, parse_mode, workload_columns
from opdb.summary_files import SIGNIFICANT, Significance, load_significance
from opdb.tables import Column, Listing, Rows, Table
from opdb.units import plural, show_duration, show_ratio, show_share

PANEL = "measure"

SHOWN = 20
"""Steps of a plan that a person is shown; --json has all."""

Sources = Sequence[tuple[Path | None, list[ModelSpec]]]
"""Summary files (None: a model's name) with what they ask for."""


@dataclass(frozen=True)
class BuildOptions:
    """Until when operators and models are measured, how, and where.

    `target` None is that of significant.yml, else 0.95; `gpu_seconds` None is without bound. Of a
    plan, `device` may also be one of the database.
    """

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
    mode: options.ModeName = "eager"
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before, operators and models.")
    ] = False
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cuda, cuda:N or cpu; with --plan also a device, such as h200.",
        ),
    ] = None

    def check(self) -> None:
        lazy.predictor.check_mode(parse_mode(self.mode), lazy.predictor.PLAIN_MODES)
        if self.target is not None and not 0 < self.target <= 1:
            raise InputError(
                f"--target {self.target:g}: give a share above 0, up to 1, such as 0.95"
            )
        if self.gpu_seconds is not None and not self.gpu_seconds >= 0:
            raise InputError(f"--gpu-seconds {self.gpu_seconds:g}: give seconds, 0 or more")


def _read(
    models: Sequence[str], batch_sizes: Sequence[int], asked: BuildOptions, said: Mapping[str, Any]
) -> tuple[Sources, Significance, list[OpdbError]]:
    """Return what the arguments ask for, what is significant, and what is wrong with some."""
    specs = ModelSpec.parse(**said).at_sizes(list(dict.fromkeys(batch_sizes)))
    asked.check()
    if not models:
        raise InputError("no model is named")
    lists = [each for each in map(_list_beside, models) if each.exists()]
    significance = load_significance(lists[0]) if lists else Significance()
    errors: list[OpdbError] = []
    sources = requested(models, specs, errors)
    if not sources:
        raise InputError(in_one(errors))
    return sources, significance, errors


def _list_beside(argument: str) -> Path:
    """Return where the list lies: in a folder, beside a summary file, else in measurements/."""
    path = Path(argument)
    if path.is_dir():
        return path / SIGNIFICANT
    is_summary = path.suffix in (".yml", ".yaml")
    return (path.parent if is_summary else Path("measurements")) / SIGNIFICANT


def _jobs(
    requests: Sequence[ModelSpec], stored: Mapping[str, Stored], mode: Mode
) -> list[lazy.loop.BuildModel]:
    called: dict[str, lazy.loop.BuildModel] = {}
    for request in requests:
        if (found := stored.get(repr(request))) is not None:
            workload = found.in_mode(mode)
            called.setdefault(workload.key, lazy.loop.BuildModel(request, workload))
    return list(called.values())


def _member(name: str, title: str | None = None, digits: int | None = None) -> Column[Json]:
    text = None if digits is None else lambda row: f"{row[name]:.{digits}f}"
    return Column(name, itemgetter(name), title, text=text)


STEPS: Table[Json] = Table(
    _member("configuration"),
    _member("kind", "kind"),
    _member("what", "what"),
    _member("gain_per_gpu_second", "gain/s", 3),
    _member("gpu_seconds"),
    _member("until_gpu_seconds", "GPU-s", 1),
)
"""A configuration to measure, and the GPU-seconds up to its end."""


def _steps(found: lazy.survey.Planned) -> list[Json]:
    known = found.survey
    until_s = accumulate(step.seconds for step in found.steps)
    return [
        {
            "configuration": step.key,
            "kind": known.configurations[step.key].kind,
            "what": in_words(known.configurations[step.key]),
            "gain_per_gpu_second": step.gain,
            "gpu_seconds": step.seconds,
            "until_gpu_seconds": end_s,
        }
        for step, end_s in zip(found.steps, until_s, strict=True)
    ]


def _covered(title: str, of: Callable[[Any], float | None]) -> Column[Any]:
    return Column(title=title, text=lambda each: show_share(of(each)))


PLANNED: Table[lazy.survey.PlannedWorkload] = Table(
    *workload_columns(lambda each: each.workload),
    Column("coverage", lambda each: asdict(each.now)),
    Column("coverage_then", lambda each: asdict(each.then)),
    _covered("time", lambda each: each.now.time),
    _covered("energy", lambda each: each.now.energy),
    _covered("time then", lambda each: each.then.time),
    _covered("energy then", lambda each: each.then.energy),
    Column("left", lambda each: each.left, "left then"),
    Column("left_gpu_seconds", lambda each: each.left_s),
    Column("unsupported", lambda each: dict(each.workload.unsupported)),
)


def _survey_document(known: lazy.survey.Survey) -> dict[str, Json]:
    return {
        "configurations": len(known.configurations),
        "measured": len(known.costs),
        "pending": len(known.pending),
    }


class MeasuringPlan(Listing):
    """What to measure first: each step with its gain and cost."""

    def rows(self) -> list[dict[str, Json]]:
        steps: list[dict[str, Json]] = self.document["steps"]
        return steps


def _plan(found: lazy.survey.Planned, errors: Sequence[OpdbError] = ()) -> MeasuringPlan:
    known, steps = found.survey, _steps(found)
    models = len({workload.name for workload in known.workloads})
    beyond_s = sum(step.seconds for step in found.beyond)
    everything_s = known.seconds(known.pending)
    document = {
        "device": known.device,
        "target": found.target,
        "models": models,
        "workloads": PLANNED.documents(found.workloads),
        **_survey_document(known),
        "gpu_seconds": found.gpu_seconds,
        "gpu_seconds_of_all_pending": everything_s,
        "steps": STEPS.documents(steps),
        "beyond": len(found.beyond),
        "gpu_seconds_beyond": beyond_s,
        "unsized": known.unsized,
        "failed": dict(known.failed),
        "errors": [str(error) for error in errors],
    }
    parts: list[str | Rows[Any]] = [
        f"{plural(models, 'model')}, {plural(len(known.workloads), 'workload')}, on {known.device}:"
        f" {len(known.configurations)} configurations; "
        f"{len(known.costs)} measured, {len(known.pending)} pending, {len(known.failed)} failed",
        f"to the target {found.target:g}: {len(found.steps) + len(found.beyond)} configurations, "
        f"{found.gpu_seconds + beyond_s:.0f} GPU-seconds; {len(found.beyond)} of them beyond those "
        f"given; everything pending: {everything_s:.0f} GPU-seconds",
        "calibration and model runs come on top",
        Rows(STEPS, [*steps[:SHOWN], *steps[SHOWN:][-1:]]),
        f"{plural(len(steps), 'step')}, all with --json",
        Rows(PLANNED, found.workloads),
    ]
    return MeasuringPlan(document, parts, CheckError(in_one(errors)) if errors else None)


Standing: TypeAlias = "tuple[lazy.loop.BuildProgress, float]"
"""How far a workload is, and the target that it is held against (a share)."""


def _coverage(each: Standing) -> dict[str, float | None]:
    answer = each[0].answer
    if answer is None:
        return {"calls": each[0].calls, "time": 0.0, "energy": None}
    return coverage(answer.prediction)


def _attribution(each: Standing, name: str) -> float | None:
    value: float | None = getattr(each[0].answer, f"attribution_{name}", None)
    return value


def _attributed(name: str) -> Column[Standing]:
    def text(each: Standing) -> str:
        inside = getattr(each[0].answer, f"inside_{name}", None)
        return show_ratio(_attribution(each, name), inside)

    return Column(
        f"attribution_{name}", lambda each: _attribution(each, name), f"{name} p/m", text=text
    )


WORKLOADS: Table[Standing] = Table(
    *workload_columns(lambda each: each[0].workload),
    Column(
        "target_met",
        lambda each: each[0].meets(each[1]),
        "target",
        text=lambda each: "met" if each[0].meets(each[1]) else "missed",
    ),
    Column("coverage", _coverage),
    _covered("calls", lambda each: _coverage(each)["calls"]),
    _covered("time", lambda each: _coverage(each)["time"]),
    _covered("energy", lambda each: _coverage(each)["energy"]),
    Column("run", lambda each: each[0].run, "run"),
    Column("reason", lambda each: each[0].reason),
    *map(_attributed, ("time", "energy")),
    Column("left", lambda each: len(each[0].left), "left"),
    Column("left_gpu_seconds", lambda each: each[0].left_s),
    Column("unsupported", lambda each: dict(each[0].workload.unsupported)),
)


def _why_missed(each: Standing) -> str:
    progress, target = each
    if progress.run is not None and progress.run != "ok":
        return f"{progress.run}: {progress.reason}"
    ratios = {name: _attribution(each, name) for name in ("time", "energy")}
    covered = {name: _coverage(each)[name] for name in ratios}
    why = misses(progress.workload, covered, ratios, target)
    if progress.run is None:
        why.append("the model was not run")
    return ", ".join(why)


def _report(built: lazy.loop.Build, target: float, errors: Sequence[OpdbError]) -> Listing:
    standings = [(each, target) for each in built.standings]
    document = {
        "device": built.device,
        "board": built.board,
        "target": target,
        **_survey_document(built.survey),
        "benched": built.benched,
        "visits": built.visits,
        "runs": built.runs,
        "elapsed_s": built.elapsed_s,
        "stopped": built.stopped,
        "workloads": WORKLOADS.documents(standings),
        "errors": [str(error) for error in errors],
    }
    parts: list[str | Rows[Any]] = [
        f"{built.device}: {plural(built.benched, 'configuration')} benched in "
        f"{plural(built.visits, 'visit')}, {plural(built.runs, 'model')} run; "
        f"{show_duration(built.elapsed_s)}",
        Rows(WORKLOADS, standings),
        "p/m: predicted / measured; left: pending configurations",
    ]
    if built.stopped:
        parts.append(f"stopped early: {built.stopped}; run it again to go on")
    missed = [str(error) for error in errors]
    for each in standings:
        if not each[0].meets(target):
            workload = each[0].workload
            missed.append(f"{workload.name} {describe(workload)}: {_why_missed(each)}")
    if not missed:
        return Listing(document, parts)
    listed = "\n".join(f"  {line}" for line in dict.fromkeys(missed))
    count = plural(len(missed), "workload")
    failure = CheckError(f"target {target:g} does not hold for {count}\n{listed}")
    return Listing(document, parts, failure)


def build(
    *models: str,
    batch_sizes: Sequence[int] = (),
    options: BuildOptions | None = None,
    db: str | None = None,
    display: Display | None = None,
    **said: Any,
) -> Listing:
    """Measure what carries the models' time and energy, and the models, until a target holds.

    As `opdb build` does it, on this machine's device; it needs torch. `models` are names, patterns
    of names, summary files or folders of them; `batch_sizes` go before those of files. What the
    database has is not measured again. A model that fails does not stop the others: `check()` of
    what is returned raises why a target does not hold. Summary files of which all is harvested are
    marked as processed.
    """
    display, asked = display or Display(), options or BuildOptions()
    sources, significance, errors = _read(models, batch_sizes, asked, said)
    requests = list({repr(each): each for _, some in sources for each in some}.values())
    mode, target = parse_mode(asked.mode), asked.target or significance.target
    # What cannot be measured here is told before a harvest.
    measured_places(asked.device, None, [mode])
    with lazy.store.open_store(db) as store:
        stored = harvested(store, requests, lazy.harvests.measuring(), display, errors)
        if not stored:
            raise InputError(in_one(errors))
        for file, of in sources:
            if file is not None and all(repr(each) in stored for each in of):
                mark(file, store.path, display.note)
        request = lazy.loop.BuildRequest(target, mode, asked.gpu_seconds, asked.retry, significance)
        built = lazy.loop.build(
            store, _jobs(requests, stored, mode), request, asked.device, display
        )
    return _report(built, target, errors)


def plan(
    *models: str,
    batch_sizes: Sequence[int] = (),
    options: BuildOptions | None = None,
    db: str | None = None,
    display: Display | None = None,
    check: bool = True,
    **said: Any,
) -> MeasuringPlan:
    """Plan what `build` would measure until operators explain the target's share of each model.

    It measures and stores nothing. A model that is stored is taken as it is; another one is
    harvested, which needs torch. The options' `device` is one that the database has; without it,
    this machine's GPU or the device that was measured most. Models that cannot be harvested raise
    at the end, unless `check` leaves that to `check()` of what is returned.
    """
    display, asked = display or Display(), options or BuildOptions()
    sources, significance, errors = _read(models, batch_sizes, asked, said)
    requests = list({repr(each): each for _, some in sources for each in some}.values())
    target = asked.target or significance.target
    with lazy.store.open_store(db, create=False) as store:
        stored = harvested(store, requests, HarvestPolicy(save="no"), display, errors)
        if not stored:
            raise InputError(in_one(errors))
        device = _planned_device(store, asked.device)
        workloads = [job.workload for job in _jobs(requests, stored, parse_mode(asked.mode))]
        known = lazy.survey.survey(store, device, workloads, DEFAULT_SETTINGS)
    found = _plan(lazy.survey.planned(known, target, significance, asked.gpu_seconds), errors)
    if check:
        found.check()
    return found


def _planned_device(store: lazy.store.Store, name: str | None) -> Device:
    """Return the device to plan for: a machine's own, one of the database, else the published."""
    of_machine = name is not None and (name == "cpu" or name.startswith("cuda"))
    if not of_machine and (name is not None or store.devices()):
        return lazy.predictor.choose_device(store, name)

    device = lazy.session.detect(name).device
    lazy.store.take_in(store, device.slug)
    return device


def run(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Folders of summary files, summary files, model names, or patterns of names "
            "such as 'resnet*' or 'torchvision:*'.",
        ),
    ],
    asked: BuildOptions = BuildOptions(),
    is_plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show what would be measured, in which order; measure nothing."
        ),
    ] = False,
    batch_sizes: options.BatchSizes = None,
    said: options.ModelFormat = ModelSpec(),
    out: options.Output = options.Output(),
) -> None:
    """Measure what carries the models' time and energy, then the models, and compare.

    Harvests all models, benches operators, the most significant of them all first, until they
    explain the target's share of each model's time and energy, then measures the models.
    What the database has is not measured again. A model that fails does not stop the others.

    A list beside the summary files, significant.yml, may pin what is measured in any case or never.
    """
    names, sizes = batch_sizes_among(paths, batch_sizes)
    common: dict[str, Any] = {"batch_sizes": sizes, "options": asked, "db": out.db}
    common |= {"display": console.Terminal(quiet=out.quiet), **said.keywords()}
    out.answer(plan(*names, check=False, **common) if is_plan else build(*names, **common))
