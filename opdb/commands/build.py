"""`opdb build`: measure what carries the time and energy of models, until a target holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.cli import console, options
from opdb.cli.options import batch_sizes_among
from opdb.commands import _lazy as lazy
from opdb.commands._figures import coverage, misses
from opdb.commands.bench import measured_places
from opdb.commands.harvest import is_pattern, requested
from opdb.errors import CheckError, InputError, OpdbError, in_one
from opdb.harvest.finding import HarvestPolicy, find_or_harvest, mark
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.progress import Display
from opdb.records import Configuration, Device, Json, Mode, Stored
from opdb.significance import Significance, in_words, load_significance, place_of
from opdb.spec import ModelSpec, describe, parse_mode, workload_columns
from opdb.tables import Column, Report, Rows, Table
from opdb.units import plural, show_duration, show_ratio, show_share

PANEL = "measure"

SHOWN = 20
"""Steps of a plan that a person is shown; --json has all."""


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
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            min=0,
            help="Run only so many of the models, drawn by lot.  [default: all]",
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cuda, cuda:N or cpu; with --plan also a device, such as h200.",
        ),
    ] = None

    def check(self) -> Mode:
        mode = parse_mode(self.mode)
        lazy.predictor.check_mode(mode, lazy.predictor.PLAIN_MODES)
        if self.target is not None and not 0 < self.target <= 1:
            raise InputError(
                f"--target {self.target:g}: give a share above 0, up to 1, such as 0.95"
            )
        if self.gpu_seconds is not None and not self.gpu_seconds >= 0:
            raise InputError(f"--gpu-seconds {self.gpu_seconds:g}: give seconds, 0 or more")
        if self.runs is not None and self.runs < 0:
            raise InputError(f"--runs {self.runs}: give a number of models, 0 or more")
        return mode


@dataclass(frozen=True)
class BuildQuestion:
    """What a build or its plan is asked: models, a mode, a target, and what is significant.

    `sources` are summary files (None: a model's name) with their requests, `errors` say what cannot
    be built, and why.
    """

    mode: Mode
    target: float
    sources: Sequence[tuple[Path | None, list[ModelSpec]]]
    significance: Significance
    errors: list[OpdbError] = field(default_factory=list)

    @classmethod
    def of(
        cls, paths: Sequence[str], said: Sequence[ModelSpec], asked: BuildOptions
    ) -> BuildQuestion:
        """Read what the arguments ask for; what is wrong with one of them is kept in `errors`."""
        mode = asked.check()
        if not paths:
            raise InputError("no model is named")
        significance = joined_significance(list(map(list_beside, paths)))
        errors: list[OpdbError] = []
        sources = requested(paths, said, errors)
        if not sources:
            raise InputError(in_one(errors))
        return cls(mode, asked.target or significance.target, sources, significance, errors)

    @property
    def requests(self) -> list[ModelSpec]:
        return list(
            {repr(each): each for _, requests in self.sources for each in requests}.values()
        )

    def called(self, stored: Mapping[str, Stored | OpdbError]) -> list[lazy.loop.BuildModel]:
        """Return what each request calls in the mode, each workload once.

        `stored` has what became of each request by its `repr`; failures are added to `errors`.
        """
        called: dict[str, lazy.loop.BuildModel] = {}
        for request in self.requests:
            found = stored[repr(request)]
            if isinstance(found, OpdbError):
                self.errors.append(found)
            else:
                workload = found.in_mode(self.mode)
                called.setdefault(workload.key, lazy.loop.BuildModel(request, workload))
        if not called:
            raise InputError(in_one(self.errors))
        return list(called.values())


def list_beside(argument: str) -> Path:
    """Return where the list lies: in a folder, beside a summary file, else in measurements/."""
    path = Path(argument)
    if is_pattern(argument) or not (path.is_dir() or path.suffix in (".yml", ".yaml")):
        return place_of(Path("measurements"))
    return place_of(path if path.is_dir() else path.parent)


def joined_significance(paths: Sequence[Path]) -> Significance:
    """Return what the lists say, pins of all together; the first one's thresholds."""
    there = [path for path in dict.fromkeys(paths) if path.exists()]
    found = [load_significance(path) for path in there] or [Significance()]
    return replace(
        found[0],
        always=tuple(dict.fromkeys(pin for each in found for pin in each.always)),
        never=tuple(dict.fromkeys(pin for each in found for pin in each.never)),
    )


@dataclass(frozen=True)
class PlanRow:
    """A configuration to measure: its number, and the GPU-seconds up to its end."""

    survey: lazy.survey.Survey
    step: lazy.survey.SurveyStep
    number: int
    until_s: float

    @property
    def configuration(self) -> Configuration:
        return self.survey.configurations[self.step.key]

    @property
    def models(self) -> list[str]:
        return self.survey.models_of[self.step.key]


STEPS: Table[PlanRow] = Table(
    Column(title="step", text=lambda row: row.number),
    Column("configuration", lambda row: row.step.key),
    Column(
        "kind", lambda row: row.configuration.kind, "kind", text=lambda row: row.configuration.title
    ),
    Column("what", lambda row: in_words(row.configuration), "what"),
    Column(
        "gain_per_gpu_second",
        lambda row: row.step.gain,
        "gain/s",
        text=lambda row: f"{row.step.gain:.3f}",
    ),
    Column("gpu_seconds", lambda row: row.step.seconds),
    Column("models", lambda row: row.models, "models", text=lambda row: len(row.models)),
    Column(
        "until_gpu_seconds",
        lambda row: row.until_s,
        "GPU-s",
        text=lambda row: f"{row.until_s:.1f}",
    ),
)


def _left(get: Callable[[Any], float]) -> Column[Any]:
    return Column("left_gpu_seconds", get, "cost", text=lambda each: f"{get(each):.0f} s")


def _covered(title: str, of: Callable[[Any], float | None]) -> Column[Any]:
    return Column(title=title, text=lambda each: show_share(of(each)))


PLANNED: Table[lazy.survey.PlannedWorkload] = Table(
    *workload_columns(lambda each: each.workload),
    Column("coverage", lambda each: asdict(each.now)),
    Column("coverage_then", lambda each: asdict(each.then)),
    _covered("calls", lambda each: each.now.calls),
    _covered("time", lambda each: each.now.time),
    _covered("energy", lambda each: each.now.energy),
    _covered("time then", lambda each: each.then.time),
    _covered("energy then", lambda each: each.then.energy),
    Column("left", lambda each: each.left, "left then"),
    _left(lambda each: each.left_s),
    Column("unsupported", lambda each: dict(each.workload.unsupported)),
)


def _cost_words(configurations: int, seconds: float) -> str:
    return f"{plural(configurations, 'configuration')}, {plural(round(seconds), 'GPU-second')}"


def _survey_document(known: lazy.survey.Survey) -> dict[str, Json]:
    return {
        "configurations": len(known.configurations),
        "shared": known.shared,
        "measured": len(known.costs),
        "pending": len(known.pending),
        "gpu_seconds_rest_on": _rests_on(known),
    }


def _rests_on(known: lazy.survey.Survey) -> str:
    prices = known.prices
    if not prices.rests_on:
        return (
            f"nothing was visited on {known.device} yet: {prices.usual:g} s a configuration, the "
            "median on an H200"
        )
    return (
        f"the median of a configuration's visits on {known.device}, kind by kind where there are "
        f"enough: {prices.usual:.2f} s over all {prices.rests_on}"
    )


@dataclass(frozen=True, repr=False)
class MeasuringPlan(Report):
    """What to measure first: each step with its gain and cost; `errors` say what was left out."""

    planned: lazy.survey.Planned
    errors: Sequence[OpdbError] = ()

    @property
    def steps(self) -> list[PlanRow]:
        steps = self.planned.steps
        until_s = accumulate(step.seconds for step in steps)
        return [
            PlanRow(self.planned.survey, step, number, s)
            for number, (step, s) in enumerate(zip(steps, until_s, strict=True), start=1)
        ]

    def check(self) -> None:
        if self.errors:
            raise CheckError(in_one(self.errors))

    def rows(self) -> list[dict[str, Json]]:
        return [STEPS.document(step) for step in self.steps]

    def to_dict(self) -> dict[str, Json]:
        found, known = self.planned, self.planned.survey
        return {
            "device": known.device,
            "target": found.target,
            "models": len({workload.name for workload in known.workloads}),
            "workloads": PLANNED.documents(found.workloads),
            **_survey_document(known),
            "gpu_seconds": found.gpu_seconds,
            "gpu_seconds_of_all_pending": known.seconds(known.pending),
            "steps": self.rows(),
            "beyond": len(found.beyond),
            "gpu_seconds_beyond": sum(step.seconds for step in found.beyond),
            "unsized": known.unsized,
            "failed": dict(known.failed),
            "errors": [str(error) for error in self.errors],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        found, known, steps = self.planned, self.planned.survey, self.steps
        models = plural(len({workload.name for workload in known.workloads}), "model")
        yield f"{models}, {plural(len(known.workloads), 'workload')}, on {known.device}"
        yield (
            f"configurations: {len(known.configurations)}, of which {known.shared} in more than "
            f"one model; {len(known.costs)} measured, {len(known.pending)} pending"
            + (f", {len(known.failed)} failed" if known.failed else "")
        )
        beyond_s = sum(step.seconds for step in found.beyond)
        count, seconds = len(found.steps) + len(found.beyond), found.gpu_seconds + beyond_s
        everything = plural(round(known.seconds(known.pending)), "GPU-second")
        yield (
            f"to the target {found.target:g}: {_cost_words(count, seconds)}; "
            f"everything pending: {everything}"
        )
        yield f"GPU-seconds rest on {_rests_on(known)}; calibration and model runs come on top"
        if known.unsized:
            unsized = plural(len(known.unsized), "configuration")
            yield f"first comes what cannot be sized: {unsized}"
        if steps:
            yield ""
            yield Rows(STEPS, [*steps[:SHOWN], *steps[SHOWN:][-1:]])
            if len(steps) > SHOWN + 1:
                yield f"(the first {SHOWN} and the last of {len(steps)} steps; all with --json)"
        if found.beyond:
            yield f"beyond the GPU-seconds given: {_cost_words(len(found.beyond), beyond_s)}"
        yield ""
        yield Rows(PLANNED, found.workloads)


@dataclass(frozen=True)
class BuiltWorkload:
    """Where a workload stands, held against a target (a share of time and of energy)."""

    progress: lazy.loop.BuildProgress
    target: float

    @property
    def coverage(self) -> dict[str, float | None]:
        answer = self.progress.answer
        if answer is None:
            return {"calls": self.progress.calls, "time": 0.0, "energy": None}
        return coverage(answer.prediction)

    @property
    def attribution(self) -> dict[str, float | None]:
        answer = self.progress.answer
        return {
            "time": None if answer is None else answer.attribution_time,
            "energy": None if answer is None else answer.attribution_energy,
        }

    @property
    def met(self) -> bool:
        return self.progress.meets(self.target)

    @property
    def why_missed(self) -> str:
        progress = self.progress
        if progress.run is not None and progress.run != "ok":
            return f"{progress.run}: {progress.reason}"
        covered = {name: self.coverage[name] for name in self.attribution}
        why = misses(progress.workload, covered, self.attribution, self.target)
        if progress.run is None and progress.drawn:
            why.append("the model was not run")
        return ", ".join(why)


def _attributed(name: str) -> Column[BuiltWorkload]:
    def text(each: BuiltWorkload) -> str:
        inside = getattr(each.progress.answer, f"inside_{name}", None)
        return show_ratio(each.attribution[name], inside)

    return Column(
        f"attribution_{name}", lambda row: row.attribution[name], f"{name} p/m", text=text
    )


def _met(each: BuiltWorkload) -> str:
    if each.met:
        return "met"
    return "missed" if each.progress.run == "ok" or not each.progress.drawn else "not run"


WORKLOADS: Table[BuiltWorkload] = Table(
    *workload_columns(lambda each: each.progress.workload),
    Column("target_met", lambda each: each.met, "target", text=_met),
    Column("coverage", lambda each: each.coverage),
    _covered("calls", lambda each: each.coverage["calls"]),
    _covered("time", lambda each: each.coverage["time"]),
    _covered("energy", lambda each: each.coverage["energy"]),
    Column("run", lambda each: each.progress.run),
    Column("reason", lambda each: each.progress.reason),
    *map(_attributed, ("time", "energy")),
    Column("left", lambda each: len(each.progress.left), "left"),
    _left(lambda each: each.progress.left_s),
    Column("unsupported", lambda each: dict(each.progress.workload.unsupported)),
)


@dataclass(frozen=True, repr=False)
class BuildReport(Report):
    """What a build did; `errors` name the models that could not be harvested."""

    built: lazy.loop.Built
    target: float
    errors: Sequence[OpdbError] = ()

    @property
    def workloads(self) -> list[BuiltWorkload]:
        return [BuiltWorkload(each, self.target) for each in self.built.standings]

    def to_dict(self) -> dict[str, Json]:
        built = self.built
        return {
            "device": built.device,
            "board": built.board,
            "target": self.target,
            **_survey_document(built.survey),
            "benched": built.benched,
            "visits": built.visits,
            "runs": built.runs,
            "elapsed_s": built.elapsed_s,
            "stopped": built.stopped,
            "workloads": WORKLOADS.documents(self.workloads),
            "errors": [str(error) for error in self.errors],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        built = self.built
        yield (
            f"{built.device}: {plural(built.benched, 'configuration')} benched in "
            f"{plural(built.visits, 'visit')}, {plural(built.runs, 'model')} run; "
            f"{show_duration(built.elapsed_s)}"
        )
        yield Rows(WORKLOADS, self.workloads)
        yield (
            "p/m: predicted / measured (attribution); left: pending configurations, and their cost"
        )
        if built.stopped:
            yield f"stopped early: {built.stopped}; run it again to go on"

    def check(self) -> None:
        lines = [str(error) for error in self.errors]
        for each in self.workloads:
            if not each.met:
                workload = each.progress.workload
                lines.append(f"{workload.name} {describe(workload)}: {each.why_missed}")
        if lines:
            listed = "\n".join(f"  {line}" for line in dict.fromkeys(lines))
            missed = plural(len(lines), "workload")
            raise CheckError(f"target {self.target:g} does not hold for {missed}\n{listed}")


def build(
    *models: str,
    batch_sizes: Sequence[int] = (),
    options: BuildOptions | None = None,
    db: str | None = None,
    display: Display | None = None,
    **said: Any,
) -> BuildReport:
    """Measure what carries the models' time and energy, and the models, until a target holds.

    As `opdb build` does it, on this machine's device; it needs torch. `models` are names, patterns
    of names, summary files or folders of them; `batch_sizes` go before those of files. What the
    database has is not measured again. A model that fails does not stop the others: `check()` of
    what is returned raises why a target does not hold. Summary files of which all is harvested are
    marked as processed.
    """
    display, asked = display or Display(), options or BuildOptions()
    specs = ModelSpec.parse(**said).at_sizes(list(dict.fromkeys(batch_sizes)))
    question = BuildQuestion.of(models, specs, asked)
    # What cannot be measured here is told before a harvest.
    measured_places(asked.device, None, [question.mode])
    requests = question.requests
    with lazy.store.open_store(db) as store:
        with display.progress(len(requests), "harvest") as shown:
            stored = find_or_harvest(store, requests, lazy.harvests.measuring(), shown)
        jobs = question.called(stored)
        for file, of in question.sources:
            if file is not None and all(isinstance(stored[repr(each)], Stored) for each in of):
                mark(file, store.path, display.note)
        request = lazy.loop.BuildRequest(
            target=question.target,
            mode=question.mode,
            gpu_seconds=asked.gpu_seconds,
            retry=asked.retry,
            runs=asked.runs,
            significance=question.significance,
        )
        built = lazy.loop.build(store, jobs, request, asked.device, display)
    return BuildReport(built, question.target, question.errors)


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
    specs = ModelSpec.parse(**said).at_sizes(list(dict.fromkeys(batch_sizes)))
    question = BuildQuestion.of(models, specs, asked)
    requests = question.requests
    with lazy.store.open_store(db, create=False) as store:
        with display.progress(len(requests), "harvest") as shown:
            stored = find_or_harvest(store, requests, HarvestPolicy(save="no"), shown)
        workloads = [each.workload for each in question.called(stored)]
        device = _planned_device(store, asked.device)
        known = lazy.survey.survey(store, device, workloads, DEFAULT_SETTINGS)
        _note_others(store, known, display.note)
    steps = lazy.survey.planned(known, question.target, question.significance, asked.gpu_seconds)
    found = MeasuringPlan(steps, question.errors)
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


def _note_others(
    store: lazy.store.Store, known: lazy.survey.Survey, note: Callable[[str], None]
) -> None:
    """Note where nothing of a device was measured, though others were."""
    others = [each.slug for each in store.devices() if each.slug != known.device]
    if not known.costs and others:
        note(
            f"{store.location} holds nothing of these models on {known.device}, only measurements "
            f"of {', '.join(others)}: these do not count, and sizes are rough at first"
        )


def run(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Folders of summary files, summary files, model names, or patterns of names "
            "such as 'resnet*' or 'torchvision.classification:*'.",
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
    """Measure what carries the models' time and energy, and the models, until a target holds.

    Harvests all models, benches the most significant operators of them all first, measures the
    models, compares, and adds operators until the target holds for each, for time and for energy.
    What the database has is not measured again. A model that fails does not stop the others.

    A list beside the summary files, significant.yml, may pin what is measured in any case or never.
    """
    names, sizes = batch_sizes_among(paths, batch_sizes)
    common: dict[str, Any] = {"batch_sizes": sizes, "options": asked, "db": out.db}
    common |= {"display": console.Terminal(quiet=out.quiet), **said.keywords()}
    found: MeasuringPlan | BuildReport
    found = plan(*names, check=False, **common) if is_plan else build(*names, **common)
    out.answer(found)
