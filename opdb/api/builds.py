"""Measure what carries the time and energy of many models, and the models, until a target holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from opdb.api.build_sources import BuildOptions, BuildQuestion
from opdb.api.places import check_failures, measured_places
from opdb.api.plans import NEXT_STEPS, SurveyedStep, cost_words, counts, note_others, rests_on
from opdb.errors import CheckError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.words import describe, workload_columns
from opdb.records import Configuration, Json, Visit
from opdb.runs.progress import Display
from opdb.tables import RATIO, Column, Report, Rows, Table
from opdb.units import plural, show_duration, show_share

if TYPE_CHECKING:
    from opdb.bench.rounds import Progress
    from opdb.cluster.devices import WorkerDevice
    from opdb.plan.loop import BuildProgress, Built

_NEXT = 5


@dataclass(frozen=True)
class BuiltWorkload:
    """Where a workload stands, held against a target (a share of time and of energy)."""

    progress: BuildProgress
    target: float

    @property
    def coverage(self) -> dict[str, float | None]:
        """The measured shares of calls, time and energy."""
        answer = self.progress.answer
        if answer is None:
            return {"calls": self.progress.calls, "time": 0.0, "energy": None}
        found = answer.prediction
        return {
            "calls": found.coverage_calls,
            "time": found.coverage_time,
            "energy": found.coverage_energy,
        }

    @property
    def attribution(self) -> dict[str, float | None]:
        """Predicted over measured, of time and of energy."""
        answer = self.progress.answer
        return {
            "time": answer.attribution_time if answer else None,
            "energy": answer.attribution_energy if answer else None,
        }

    @property
    def met(self) -> bool:
        """Whether the target holds."""
        return self.progress.meets(self.target)

    @property
    def to_target_s(self) -> float:
        """The GPU-seconds that are left to the target."""
        return sum(step.seconds for step in self.progress.to_target)

    @property
    def why_missed(self) -> str:
        """Why the target does not hold."""
        progress = self.progress
        if progress.run is not None and progress.run != "ok":
            return f"{progress.run}: {progress.reason}"
        why = []
        if progress.workload.unsupported:
            why.append("it makes calls that no operator describes")
        for name in ("time", "energy"):
            share, ratio = self.coverage[name], self.attribution[name]
            if share is not None and share < self.target:
                why.append(f"coverage of {name} is {share:.3f}")
            if ratio is not None and abs(ratio - 1) > 1 - self.target:
                why.append(f"attribution of {name} is {ratio:.3f}")
        if progress.run is None and progress.drawn:
            why.append("the model was not run")
        if progress.to_target:
            why.append(f"{cost_words(len(progress.to_target), self.to_target_s)}, to go")
        return ", ".join(why)


def _covered(name: str) -> Column[BuiltWorkload]:
    return Column(title=name, text=lambda each: show_share(each.coverage[name]))


def _attributed(name: str) -> Column[BuiltWorkload]:
    return Column(f"attribution_{name}", lambda each: each.attribution[name], f"{name} p/m", RATIO)


def _met(each: BuiltWorkload) -> str:
    if each.met:
        return "met"
    return "missed" if each.progress.run == "ok" or not each.progress.drawn else "not run"


WORKLOADS: Table[BuiltWorkload] = Table(
    *workload_columns(lambda each: each.progress.workload),
    Column("target_met", lambda each: each.met, "target", text=_met, last=True),
    Column("coverage", lambda each: each.coverage),
    *map(_covered, ("calls", "time", "energy")),
    Column("run", lambda each: each.progress.run),
    Column("reason", lambda each: each.progress.reason),
    *map(_attributed, ("time", "energy")),
    Column("left", lambda each: len(each.progress.left), "left"),
    Column(
        "left_gpu_seconds",
        lambda each: each.progress.left_s,
        "cost",
        text=lambda each: f"{each.progress.left_s:.0f} s",
    ),
    Column("to_target", lambda each: len(each.progress.to_target)),
    Column("to_target_gpu_seconds", lambda each: each.to_target_s),
    Column("unsupported", lambda each: dict(each.progress.workload.unsupported)),
)
"""Where every workload of a build stands."""


@dataclass(frozen=True, repr=False)
class BuildReport(Report):
    """What a build did; `errors` name the models that could not be harvested.

    `failures` name the devices that failed, of the `places` where several were to measure.
    """

    built: Built
    target: float
    errors: Sequence[OpdbError] = ()
    places: Sequence[WorkerDevice] = ()
    failures: Sequence[str] = ()

    @property
    def workloads(self) -> list[BuiltWorkload]:
        """Where every workload stands."""
        return [BuiltWorkload(each, self.target) for each in self.built.standings]

    @property
    def next(self) -> list[SurveyedStep]:
        """What would have been measured next, where the build ended early."""
        assert self.built.survey is not None
        return [SurveyedStep(self.built.survey, step) for step in self.built.next]

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb build --json` prints."""
        built, known = self.built, self.built.survey
        assert known is not None
        return {
            "device": built.device,
            "board": built.boards[0] if len(built.boards) == 1 else None,
            "boards": list(built.boards),
            "target": self.target,
            **counts(known),
            "benched": built.benched,
            "visits": built.visits,
            "runs": built.runs,
            "elapsed_s": built.elapsed_s,
            "stopped": built.stopped,
            "gpu_seconds_rest_on": rests_on(known),
            "next": NEXT_STEPS.documents(self.next),
            "workloads": WORKLOADS.documents(self.workloads),
            "errors": [str(error) for error in self.errors],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what was done, where every workload stands, and what comes next."""
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
        if built.next:
            total = sum(step.seconds for step in built.next)
            yield f"to the target: {cost_words(len(built.next), total)}; first:"
        for each in self.next[:_NEXT]:
            yield f"  {each.configuration.kind} {each.words}, {each.step.seconds:.2f} s"

    def check(self) -> None:
        """Raise where the target does not hold for every model, each of them with the reason.

        Raises:
            CannotMeasureError: a device failed.
            CheckError: the target does not hold.
        """
        check_failures(self.failures, self.places)
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
    options: BuildOptions | None = None,
    db: str | None = None,
    display: Display | None = None,
    progress: Progress | None = None,
    **said: Unpack[ModelWords],
) -> BuildReport:
    """Measure what carries the models' time and energy, and the models, until a target holds.

    As `opdb build` does it, on this machine's device; it needs torch. `models` are names, patterns
    of names, summary files or folders of them. What the database has is not measured again.
    `check()` of what is returned raises why a target does not hold. Many models are harvested in
    several processes: a script calls it below `if __name__ == "__main__":`.

    Raises:
        InputError: an option is not valid, or no model can be harvested.
        CannotMeasureError: there is no such device, it lacks the mode, or it stopped answering.
    """
    asked = options or BuildOptions()
    return build_all(
        models, asked, ModelOptions.parse(**said), db=db, display=display, progress=progress
    )


def build_all(
    paths: Sequence[str],
    asked: BuildOptions,
    said: ModelOptions,
    *,
    db: str | None = None,
    display: Display | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Build models; one that fails stops no other, and devices that fail are among the `failures`.

    Summary files of which all is harvested are marked as processed. The list of what is
    significant is kept beside them.

    Raises:
        InputError: an option is not valid, or no model can be harvested.
        CannotMeasureError: there is no such device, it lacks the mode, or it stopped answering.
    """
    from opdb.bench.harvests import harvest_each
    from opdb.bench.measure import check_modes
    from opdb.bench.platform import current_settings
    from opdb.plan import loop
    from opdb.plan.hands import BuildModel, hands_at
    from opdb.plan.survey import survey
    from opdb.store import open_store

    display = display or Display()
    question = BuildQuestion.of(paths, asked, said)
    # What cannot be measured here is told before a harvest.
    places = measured_places(asked.device, asked.devices)
    if not places:
        check_modes([question.mode], asked.device)
    requests = question.requests
    with open_store(db) as store:
        with display.progress(len(requests), "harvest") as shown:
            stored = harvest_each(store, requests, shown, processes=None)
        models = [BuildModel(*each) for each in question.called(stored)]
        question.mark(stored, display.note)
        with hands_at(store, asked.device, places, question.mode) as hands:
            workloads = [model.workload for model in models]
            known = survey(store, hands.platforms[0].device, workloads, current_settings())
            note_others(store, known, display.note)
            question.propose(known, display.note)
            request = loop.BuildRequest(
                target=question.target,
                mode=question.mode,
                gpu_seconds=asked.gpu_seconds,
                retry=asked.retry,
                runs=asked.runs,
                significance=question.significance,
            )
            built = loop.build(store, models, request, hands, progress or _Messages(display))
            failures = list(hands.runs.failures)
    assert built.survey is not None
    question.propose(built.survey, display.note)
    return BuildReport(built, question.target, question.errors, places, failures)


@dataclass(frozen=True)
class _Messages:
    """Tells a display what a campaign says, and nothing of its visits."""

    display: Display

    def say(self, text: str) -> None:
        """Tell of a step that is no visit."""
        self.display.note(text)

    def begin(self, visits: int) -> None:
        """Hear how many visits are planned."""

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        """Hear of a finished visit."""
