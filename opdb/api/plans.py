"""Plan what to measure: which operators carry models' time and energy, and what that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Unpack

from opdb.api.build_sources import BuildOptions, BuildQuestion, in_one
from opdb.errors import CheckError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.words import workload_columns
from opdb.records import Configuration, Device, Json
from opdb.runs.progress import Display
from opdb.tables import SHARE, Column, Report, Rows, Table
from opdb.units import plural, show_share

if TYPE_CHECKING:
    from opdb.plan.planned import Planned, PlannedStep, PlannedWorkload
    from opdb.plan.ranking import Step
    from opdb.plan.survey import Survey
    from opdb.store import Store

_SHOWN = 20


def _covered(title: str, of: Callable[[PlannedWorkload], float | None]) -> Column[PlannedWorkload]:
    return Column(title=title, text=lambda each: show_share(of(each)))


PLANNED_WORKLOADS: Table[PlannedWorkload] = Table(
    *workload_columns(lambda each: each.workload),
    Column("coverage", lambda each: asdict(each.now)),
    Column("coverage_then", lambda each: asdict(each.then)),
    _covered("calls", lambda each: each.now.calls),
    _covered("time", lambda each: each.now.time),
    _covered("energy", lambda each: each.now.energy),
    _covered("time then", lambda each: each.then.time),
    _covered("energy then", lambda each: each.then.energy),
    Column("left", lambda each: each.left, "left then"),
    Column(
        "left_gpu_seconds",
        lambda each: each.left_s,
        "cost",
        text=lambda each: f"{each.left_s:.0f} s",
    ),
    Column("unsupported", lambda each: dict(each.workload.unsupported)),
)
"""What operators explain of each workload of a plan, now and then."""


@dataclass(frozen=True)
class SurveyedStep:
    """A step to a target with the survey that it belongs to."""

    survey: Survey
    step: Step

    @property
    def configuration(self) -> Configuration:
        """The configuration to measure."""
        return self.survey.configurations[self.step.key]

    @property
    def models(self) -> list[str]:
        """The names of the models that call it."""
        return self.survey.models_of[self.step.key]

    @property
    def words(self) -> str:
        """The configuration in a few words."""
        from opdb.significance import in_words

        return in_words(self.configuration)


@dataclass(frozen=True)
class NumberedStep(SurveyedStep):
    """A step of a plan: its number, and what all workloads have after it."""

    number: int
    then: PlannedStep


def _step_columns() -> tuple[Column[Any], ...]:
    """Return the columns of a configuration to measure: what it gains, and what it takes."""
    return (
        Column("configuration", lambda each: each.step.key),
        Column(
            "kind",
            lambda each: each.configuration.kind,
            "kind",
            text=lambda each: each.configuration.title,
        ),
        Column("what", lambda each: each.words, "what"),
        Column(
            "gain_per_gpu_second",
            lambda each: each.step.gain,
            "gain/s",
            text=lambda each: f"{each.step.gain:.3f}",
            last=True,
        ),
        Column("gpu_seconds", lambda each: each.step.seconds),
    )


NEXT_STEPS: Table[SurveyedStep] = Table(*_step_columns())
"""Configurations to measure next."""

STEPS: Table[NumberedStep] = Table(
    Column(title="step", text=lambda each: each.number),
    *_step_columns(),
    Column("models", lambda each: each.models),
    Column(title="models", text=lambda each: len(each.models)),
    Column(
        "until_gpu_seconds",
        lambda each: each.then.until_s,
        "GPU-s",
        text=lambda each: f"{each.then.until_s:.1f}",
        last=True,
    ),
    Column(title="mean", text=lambda each: show_share(each.then.mean), last=True),
    Column("least_coverage", lambda each: each.then.least, "least", SHARE, last=True),
    Column("mean_coverage", lambda each: each.then.mean),
    Column("workloads_at_target", lambda each: each.then.at_target, "at target", last=True),
)
"""The steps of a plan, in their order."""


@dataclass(frozen=True, repr=False)
class MeasuringPlan(Report):
    """What to measure first: each step with its gain and cost; `errors` say what was left out."""

    planned: Planned
    errors: Sequence[OpdbError] = ()

    @property
    def steps(self) -> list[NumberedStep]:
        """The steps, in order."""
        known = self.planned.survey
        return [
            NumberedStep(known, row.step, number, row)
            for number, row in enumerate(self.planned.steps, start=1)
        ]

    def check(self) -> None:
        """Raise why models were left out, in one message.

        Raises:
            CheckError: some were.
        """
        if self.errors:
            raise CheckError(in_one(self.errors))

    def rows(self) -> list[dict[str, Json]]:
        """Return each step as data, in order."""
        return [STEPS.document(step) for step in self.steps]

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb build --plan --json` prints."""
        found, known = self.planned, self.planned.survey
        return {
            "device": known.device,
            "target": found.target,
            "models": len({workload.name for workload in known.workloads}),
            "workloads": PLANNED_WORKLOADS.documents(found.workloads),
            **counts(known),
            "gpu_seconds": found.gpu_seconds,
            "gpu_seconds_of_all_pending": known.seconds(known.pending),
            "gpu_seconds_rest_on": rests_on(known),
            "steps": self.rows(),
            "beyond": len(found.beyond),
            "gpu_seconds_beyond": sum(step.seconds for step in found.beyond),
            "unsized": known.unsized,
            "failed": dict(known.failed),
            "errors": [str(error) for error in self.errors],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb build --plan` prints: totals, the first steps, every workload."""
        found = self.planned
        yield from _totals(found)
        if steps := self.steps:
            yield ""
            yield Rows(STEPS, [*steps[:_SHOWN], *steps[_SHOWN:][-1:]])
            if len(steps) > _SHOWN + 1:
                yield f"(the first {_SHOWN} and the last of {len(steps)} steps; all with --json)"
        if found.beyond:
            beyond = sum(step.seconds for step in found.beyond)
            yield f"beyond the GPU-seconds given: {cost_words(len(found.beyond), beyond)}"
        yield ""
        yield Rows(PLANNED_WORKLOADS, found.workloads)


def plan(
    *models: str,
    mode: str = "eager",
    target: float | None = None,
    gpu_seconds: float | None = None,
    device: str | None = None,
    db: str | None = None,
    **said: Unpack[ModelWords],
) -> MeasuringPlan:
    """Plan what to measure until operators that are measured explain the target's share of models.

    As `opdb build --plan`, it measures and stores nothing. `models` are names, patterns of names,
    summary files or folders of them. A model that is stored is taken as it is; another one is
    harvested, which needs torch, in several processes where there are many. `target` is that of
    significant.yml where none is given, else 0.95. `device` is one that the database has; without
    it, this machine's GPU or the device that was measured most.

    Raises:
        InputError: a model, mode or device is not known, or no model can be harvested.
        CheckError: some models cannot be harvested; the message names them.
    """
    asked = BuildOptions(target, gpu_seconds, mode, device=device, write=False)
    found = plan_all(models, asked, ModelOptions.parse(**said), db=db)
    found.check()
    return found


def plan_all(
    paths: Sequence[str],
    asked: BuildOptions,
    said: ModelOptions,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> MeasuringPlan:
    """Plan what `build_all` would measure; a model that fails stops no other.

    Raises:
        InputError: an option is not valid, or nothing is left to plan for.
    """
    from opdb.lookup.workloads import workloads_of
    from opdb.plan.planned import planned
    from opdb.plan.survey import survey
    from opdb.settings import DEFAULT_SETTINGS
    from opdb.store import open_store

    display = display or Display()
    question = BuildQuestion.of(paths, asked, said)
    requests = question.requests
    with open_store(db, create=False) as store:
        with display.progress(len(requests), "harvest") as shown:
            stored = workloads_of(store, requests, shown)
        workloads = [workload for _, workload in question.called(stored)]
        device = _planned_device(store, asked.device)
        known = survey(store, device, workloads, DEFAULT_SETTINGS)
        note_others(store, known, display.note)
    question.propose(known, display.note)
    found = planned(known, question.target, question.significance, asked.gpu_seconds)
    return MeasuringPlan(found, question.errors)


def _planned_device(store: Store, name: str | None) -> Device:
    """Return the device to plan for: a machine's own, one of the database, else the published."""
    from opdb.predict import choose_device
    from opdb.store import take_in

    if name is None and store.devices():
        return choose_device(store, None)
    if name is None or name == "cpu" or name.startswith("cuda"):
        from opdb.bench.platform import detect

        device = detect(name).device
        take_in(store, device.slug)
        return device
    return choose_device(store, name)


def note_others(store: Store, known: Survey, note: Callable[[str], None]) -> None:
    """Note where nothing of a device was measured, though others were."""
    others = [each.slug for each in store.devices() if each.slug != known.device]
    if not known.costs and others:
        note(
            f"{store.location} holds nothing of these models on {known.device}, only measurements "
            f"of {', '.join(others)}: these do not count, and sizes are rough at first"
        )


def counts(known: Survey) -> dict[str, Json]:
    """Return how many configurations there are, and how many of them are measured."""
    return {
        "configurations": len(known.configurations),
        "shared": known.shared,
        "measured": len(known.costs),
        "pending": len(known.pending),
    }


def rests_on(known: Survey) -> str:
    """Return in words what the GPU-seconds of a plan rest on."""
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


def _totals(found: Planned) -> Iterator[str]:
    known = found.survey
    models = len({workload.name for workload in known.workloads})
    workloads = plural(len(known.workloads), "workload")
    yield f"{plural(models, 'model')}, {workloads}, on {known.device}"
    yield (
        f"configurations: {len(known.configurations)}, of which {known.shared} in more than one "
        f"model; {len(known.costs)} measured, {len(known.pending)} pending"
        + (f", {len(known.failed)} failed" if known.failed else "")
    )
    total = found.gpu_seconds + sum(step.seconds for step in found.beyond)
    everything = known.seconds(known.pending)
    to_target = cost_words(len(found.steps) + len(found.beyond), total)
    yield (
        f"to the target {found.target:g}: {to_target}; "
        f"everything pending: {plural(round(everything), 'GPU-second')}"
    )
    yield f"GPU-seconds rest on {rests_on(known)}; calibration and model runs come on top"
    if known.unsized:
        unsized = plural(len(known.unsized), "configuration")
        yield f"first comes what cannot be sized: {unsized}"


def cost_words(configurations: int, seconds: float) -> str:
    """Say how many configurations are to be measured, and in how many GPU-seconds."""
    return f"{plural(configurations, 'configuration')}, {plural(round(seconds), 'GPU-second')}"
