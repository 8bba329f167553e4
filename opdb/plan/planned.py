"""A plan: what would be measured, in which order, what each step brings and costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from opdb.plan.ranking import Step
from opdb.plan.survey import Coverage, Survey
from opdb.records import Workload
from opdb.significance import Significance


@dataclass(frozen=True)
class PlannedStep:
    """A step, the GPU-seconds up to its end, and what all workloads then have.

    `least` is the smallest coverage of time and of energy of any workload, `mean` their mean,
    `at_target` the number of workloads that are there.
    """

    step: Step
    until_s: float
    least: float
    mean: float
    at_target: int


@dataclass(frozen=True)
class PlannedWorkload:
    """A workload's coverage now and after the plan, and what is pending of it."""

    workload: Workload
    now: Coverage
    then: Coverage
    left: int
    left_s: float


@dataclass(frozen=True)
class Planned:
    """A plan to a target; `beyond` are steps that the GPU-seconds given do not reach to."""

    target: float
    survey: Survey
    steps: tuple[PlannedStep, ...]
    beyond: tuple[Step, ...]
    workloads: tuple[PlannedWorkload, ...]

    @property
    def gpu_seconds(self) -> float:
        """GPU-seconds of the steps."""
        return sum(each.step.seconds for each in self.steps)


def planned(
    survey: Survey, target: float, significance: Significance, gpu_seconds: float | None = None
) -> Planned:
    """Plan what brings every workload to the target, within so many GPU-seconds where given."""
    goals = dict.fromkeys((workload.key for workload in survey.workloads), target)
    steps = survey.plan(goals, significance)
    within = _within(steps, gpu_seconds)
    taken = {step.key for step in steps[:within]}
    workloads = []
    for workload in survey.workloads:
        alone = survey.only(workload)
        left = [key for key in alone.pending if key not in taken]
        now, then = survey.coverage(workload), survey.coverage(workload, taken)
        workloads.append(PlannedWorkload(workload, now, then, len(left), alone.seconds(left)))
    rows = _with_coverage(survey, steps[:within], target)
    return Planned(target, survey, tuple(rows), tuple(steps[within:]), tuple(workloads))


def _within(steps: Sequence[Step], gpu_seconds: float | None) -> int:
    """Return how many of the first steps so many GPU-seconds pay for."""
    spent_s = 0.0
    for number, step in enumerate(steps):
        spent_s += step.seconds
        if gpu_seconds is not None and spent_s > gpu_seconds:
            return number
    return len(steps)


def _with_coverage(survey: Survey, steps: Sequence[Step], target: float) -> list[PlannedStep]:
    """Add up what steps bring; a workload that cannot be sized counts as not covered."""
    quantities = 2 if survey.energy else 1
    have: list[list[float]] = []
    of_key: dict[str, list[tuple[int, tuple[float, ...]]]] = defaultdict(list)
    for number, workload in enumerate(survey.workloads):
        shares = survey.shares(workload) or {}
        have.append(
            [sum(b[q] for k, b in shares.items() if k in survey.costs) for q in range(quantities)]
        )
        for key, both in shares.items():
            of_key[key].append((number, both[:quantities]))
    least = [min(each) for each in have]
    rows, until_s = [], 0.0
    for step in steps:
        until_s += step.seconds
        for number, its in of_key[step.key]:
            have[number] = [h + s for h, s in zip(have[number], its, strict=True)]
            least[number] = min(have[number])
        there = sum(share >= target - 1e-9 for share in least)
        smallest, mean = min(1.0, *least), sum(least) / len(least)
        rows.append(PlannedStep(step, until_s, smallest, min(1.0, mean), there))
    return rows
