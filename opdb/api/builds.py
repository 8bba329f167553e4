"""What a build came to: where every workload stands, and why a target is missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opdb.api.plans import cost_words, counts, rests_on, step_document
from opdb.errors import CheckError, OpdbError
from opdb.lookup.words import describe, workload_columns
from opdb.records import Json
from opdb.tables import RATIO, Column, Report, Rows, Table
from opdb.units import plural, show_duration, show_share

if TYPE_CHECKING:
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
        if progress.run is None:
            why.append("the model was not run")
        if progress.to_target:
            why.append(f"{cost_words(len(progress.to_target), self.to_target_s)}, to go")
        return ", ".join(why)


def _covered(name: str) -> Column[BuiltWorkload]:
    return Column(title=name, text=lambda each: show_share(each.coverage[name]))


def _attributed(name: str) -> Column[BuiltWorkload]:
    return Column(f"attribution_{name}", lambda each: each.attribution[name], f"{name} p/m", RATIO)


def _met(each: BuiltWorkload) -> str:
    return "met" if each.met else "missed" if each.progress.run == "ok" else "not run"


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
    """What a build did; `errors` name the models that could not be harvested."""

    built: Built
    target: float
    errors: Sequence[OpdbError] = ()

    @property
    def workloads(self) -> list[BuiltWorkload]:
        """Where every workload stands."""
        return [BuiltWorkload(each, self.target) for each in self.built.standings]

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
            "next": [step_document(known, step) for step in built.next],
            "workloads": WORKLOADS.documents(self.workloads),
            "errors": [str(error) for error in self.errors],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what was done, where every workload stands, and what comes next."""
        built, known = self.built, self.built.survey
        assert known is not None
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
        for step in built.next[:_NEXT]:
            said = step_document(known, step)
            yield f"  {said['kind']} {said['what']}, {step.seconds:.2f} s"

    def check(self) -> None:
        """Raise where the target does not hold for every model, each of them with the reason.

        Raises:
            CheckError: it does not.
        """
        lines = [str(error) for error in self.errors]
        for each in self.workloads:
            if not each.met:
                workload = each.progress.workload
                lines.append(f"{workload.name} {describe(workload)}: {each.why_missed}")
        if lines:
            listed = "\n".join(f"  {line}" for line in dict.fromkeys(lines))
            missed = plural(len(lines), "workload")
            raise CheckError(f"target {self.target:g} does not hold for {missed}\n{listed}")


def in_one(errors: Sequence[OpdbError]) -> str:
    """Return one message that names every error."""
    lines = list(dict.fromkeys(str(error) for error in errors))
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{len(lines)} models failed", *(f"  {line}" for line in lines)])
