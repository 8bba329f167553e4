"""The loop: bench what matters most, measure the models, compare, until the target holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opdb.bench.measure import ModelWork
from opdb.bench.platform import current_settings
from opdb.bench.request import BenchRequest
from opdb.bench.rounds import Progress
from opdb.errors import CannotMeasureError, InputError
from opdb.plan.hands import BuildModel, Hands
from opdb.plan.known import Estimated, run_seconds
from opdb.plan.ranking import Step
from opdb.plan.survey import Survey, survey
from opdb.predict import Answer, Predictor, predictor_for
from opdb.records import Mode, Workload
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.progress import Progress as ModelProgress
from opdb.runs.table import RunTable
from opdb.runs.work import Answer as MayBegin
from opdb.runs.work import execute
from opdb.significance import Significance
from opdb.store import RunState, Store, take_in
from opdb.units import plural

FIRST_SLICE_S = 40.0
"""GPU-seconds of operators that are benched before sizes are estimated anew."""

SLICE_GROWTH = 2.0
"""How much longer each slice is than the last: a slice costs a calibration and anchors."""

FRUITLESS = "visited, and no usable time came of it"
ELSEWHERE = "another worker is at it"

CAMPAIGN_S = 11.0
"""Seconds until a campaign on a GPU has calibrated and makes its first visit, seen on an H200; a
budget with less left buys nothing more."""

RAISED_BY = 0.02
"""How far a goal is raised, at least, where a workload misses its target all the same."""


@dataclass(frozen=True)
class BuildRequest:
    """What to build: a target for every workload, within so many GPU-seconds.

    GPU-seconds are counted by the clock from the first measurement on, calibration included, for
    each board; None is without bound. `retry` tries again what failed before, operators and models.
    `runs` is how many of the models are run, drawn by lot, to hold the sums against; None is all.
    """

    target: float
    mode: Mode = "eager"
    gpu_seconds: float | None = None
    retry: bool = False
    runs: int | None = None
    significance: Significance = field(default_factory=Significance)


@dataclass(frozen=True)
class BuildProgress:
    """How far a workload is: its answer (None: nothing was measured), its run, what is left.

    `drawn` says whether its model is to be run, `run` is the outcome of that on the board, None
    where there is none yet; `left` are the pending configurations (keys), `to_target` those that
    would bring it to the target.
    """

    workload: Workload
    answer: Answer | None
    drawn: bool
    run: str | None
    reason: str | None
    left: tuple[str, ...]
    left_s: float
    to_target: tuple[Step, ...]
    calls: float

    def meets(self, target: float) -> bool:
        """Whether the target holds, and was held against a run if the model was to be run."""
        checked = self.run == "ok" or not self.drawn
        return checked and self.answer is not None and self.answer.meets(target)


@dataclass
class Built:
    """What a build did, and how far every workload is now.

    `stopped` says why it ended early, `next` what would have been measured then.
    """

    device: str
    boards: tuple[str, ...]
    standings: list[BuildProgress] = field(default_factory=list)
    benched: int = 0
    visits: int = 0
    runs: int = 0
    elapsed_s: float = 0.0
    stopped: str | None = None
    next: list[Step] = field(default_factory=list)
    survey: Survey | None = None


class _Time:
    """What is left of the GPU-seconds given, on so many boards at once."""

    def __init__(self, given_s: float | None, boards: int) -> None:
        self._began_s, self._given_s, self._boards = time.monotonic(), given_s, boards

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float | None:
        """Seconds left; None without bound."""
        return None if self._given_s is None else self._given_s / self._boards - self.elapsed_s

    def is_short_of(self, seconds: float) -> bool:
        """Whether less than so much is left."""
        left_s = self.left_s
        return left_s is not None and left_s <= seconds

    @property
    def up(self) -> str:
        """In words, that the time is up."""
        return f"the GPU-seconds given, {self._given_s:g}, are up"


def build(
    store: Store,
    jobs: Sequence[BuildModel],
    request: BuildRequest,
    hands: Hands,
    progress: Progress,
) -> Built:
    """Bench and measure until every workload meets the target, or nothing more can be done.

    The workloads must be stored. What is measured already is not measured again.

    Raises:
        CannotMeasureError: no device answers any more.
    """
    return _Build(store, jobs, request, hands, progress).run()


class _Build:
    """One build under way."""

    def __init__(
        self,
        store: Store,
        jobs: Sequence[BuildModel],
        request: BuildRequest,
        hands: Hands,
        progress: Progress,
    ) -> None:
        self._store, self._jobs, self._request, self._progress = store, jobs, request, progress
        self._hands = hands
        self._platform = hands.platforms[0]
        self._boards = tuple(dict.fromkeys(each.board.uuid for each in hands.platforms))
        # The board whose own costs go first: where there are several, none does.
        self._only = self._boards[0] if len(self._boards) == 1 else None
        devices = tuple(dict.fromkeys(each.device.slug for each in hands.platforms))
        self._policy = ModelPolicy(devices, self._boards)
        self._drawn = drawn_by_lot(jobs, request.runs)
        self._goals = dict.fromkeys((job.workload.key for job in jobs), request.target)
        self._slice_s = FIRST_SLICE_S * len(hands.platforms)
        self._begin_s = CAMPAIGN_S if self._platform.device.type == "cuda" else 0.0
        self._tried: set[str] = set()
        self._elsewhere: set[str] = set()
        self._time = _Time(request.gpu_seconds, len(hands.platforms))
        self._built = Built(self._platform.device.slug, self._boards)

    @cached_property
    def _estimated(self) -> Estimated:
        """Estimates as they are once the device's published sets have been taken in."""
        return Estimated(self._store, self._platform.device)

    def run(self) -> Built:
        """Go round until there is nothing to add or the time is up."""
        take_in(self._store, self._platform.device.slug)
        while self._bench() and self._measure_models() and self._raise_goals():
            pass
        built, known = self._built, self._survey()
        built.elapsed_s, built.survey = self._time.elapsed_s, known
        built.next = known.plan(self._goals, self._request.significance) if built.stopped else []
        built.standings = self._standings(known)
        return built

    def _survey(self) -> Survey:
        """Look at what is known; with retry, what failed before is pending until tried again."""
        platform, workloads = self._platform, [job.workload for job in self._jobs]
        known = survey(
            self._store,
            platform.device,
            workloads,
            current_settings(),
            self._only,
            self._estimated,
        )
        failed = dict(known.failed)
        if self._request.retry:
            failed = {key: why for key, why in failed.items() if key in self._tried}
        fruitless = {key for key in self._tried if key in known.configurations} - known.costs.keys()
        left = dict.fromkeys(self._elsewhere - known.costs.keys(), ELSEWHERE)
        return known.with_failures(left | dict.fromkeys(fruitless, FRUITLESS) | failed)

    def _bench(self) -> bool:
        """Bench slice by slice until all goals are reached; False when the time was up first."""
        while True:
            known = self._survey()
            steps = known.plan(self._goals, self._request.significance)
            if not steps:
                return True
            if self._time.is_short_of(self._begin_s):
                self._built.stopped = self._time.up
                return False
            some = _first_of(steps, self._slice_s)
            self._slice_s *= SLICE_GROWTH
            try:
                self._bench_slice(some, len(steps), known)
            except CannotMeasureError as error:
                # Where many fail in a row, that is kept, and others are left to measure; a device
                # that is gone lets nothing new be kept.
                if len(self._survey().pending) == len(known.pending):
                    raise
                self._progress.say(str(error))

    def _bench_slice(self, steps: Sequence[Step], of: int, known: Survey) -> None:
        everything = plural(of, "configuration")
        self._progress.say(f"bench: the next {len(steps)} of {everything} to the target")
        keys = [step.key for step in steps]
        wholes = {job.workload.key: known.whole(job.workload) for job in self._jobs}
        request = BenchRequest(
            max_s=self._time.left_s,
            retry=self._request.retry,
            rounds=None,
            configurations=keys,
            workloads=list(wholes),
            wholes={key: whole for key, whole in wholes.items() if whole is not None},
            host_times=self._request.mode != "graph",
        )
        results = self._hands.bench(request, self._progress)
        # What one of ours was at is done by now; what none of them could take is another's.
        elsewhere = frozenset.intersection(*(result.elsewhere for result in results))
        self._elsewhere |= elsewhere
        if all(result.stopped is None for result in results):
            self._tried |= set(keys) - elsewhere
        self._built.benched += sum(result.configurations for result in results)
        self._built.visits += sum(result.outcomes.total() for result in results)

    def _measure_models(self) -> bool:
        """Run the models that have no run on our boards; False when the time was up first."""
        retry = self._request.retry and not self._built.runs
        work = ModelWork(self._policy, retry)
        lacking = work.pending(self._store, [self._spec(job) for job in self._drawn])
        if not lacking:
            return True
        usual_s = run_seconds(self._store, self._platform.device.slug, self._request.mode)
        if self._time.is_short_of(self._begin_s + usual_s):
            return self._too_late(lacking)
        names = {job.ran: _named(job.workload) for job in self._jobs}
        begun: list[ModelSpec] = []

        def may_begin(spec: ModelSpec) -> MayBegin:
            if self._time.is_short_of(usual_s):
                return "stop"
            begun.append(spec)
            return "go"

        shown = _Said(self._progress, len(lacking))
        for _ in execute(
            self._hands.runs, work, lacking, shown, lambda spec: names[spec.workload], may_begin
        ):
            self._built.runs += 1
        late = work.pending(self._store, [spec for spec in lacking if spec not in begun])
        return self._too_late(late) if late else True

    def _spec(self, job: BuildModel) -> ModelSpec:
        return ModelSpec(job.request, job.ran, self._request.mode, self._boards)

    def _too_late(self, specs: Sequence[ModelSpec]) -> bool:
        self._built.stopped = f"{self._time.up}; not run: {plural(len(specs), 'model')}"
        return False

    def _raise_goals(self) -> bool:
        """Ask for more of what misses its target in spite of its coverage; False if nothing can.

        Attribution leaves out what was not measured: the more is, the nearer it comes.
        """
        known, target = self._survey(), self._request.target
        short = {
            standing.workload.key: shortfall
            for standing in self._standings(known)
            if (shortfall := _shortfall(standing, target)) is not None
        }
        while any(self._goals[key] < 1 for key in short):
            for key, shortfall in short.items():
                self._goals[key] = min(1.0, self._goals[key] + shortfall)
            if known.plan(self._goals, self._request.significance):
                return True
        return False

    def _standings(self, known: Survey) -> list[BuildProgress]:
        predictor = predictor_for(
            self._store, self._platform.device, current_settings(), estimates=False
        )
        table = RunTable(self._policy, self._policy.runs(self._store))
        return [
            _progress_of(job, known, self._answer(predictor, job), self._request, run, drawn)
            for job in self._jobs
            for run, drawn in [(table.run(self._spec(job)), job in self._drawn)]
        ]

    def _answer(self, predictor: Predictor, job: BuildModel) -> Answer | None:
        """Predict a workload for the board that ran it, for another where ours measured nothing."""
        ran = {
            run.board
            for run in self._policy.runs(self._store, self._spec(job))
            if run.outcome == "ok"
        }
        own = [each for each in self._boards if self._store.campaigns(board=each)]
        board = next(iter([*(each for each in self._boards if each in ran), *own]), None)
        try:
            return predictor.answer(job.workload, self._request.mode, board)
        except InputError:
            return None  # nothing was measured on the device at all


class _Said(ModelProgress):
    """Says of each model that it is being measured, and how many there are."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._begun = progress, total, 0

    def doing(self, what: str) -> None:
        """Say which model runs now."""
        self._begun += 1
        self._progress.say(f"measure {self._begun}/{self._total}: {what}")


def _progress_of(
    job: BuildModel,
    known: Survey,
    answer: Answer | None,
    request: BuildRequest,
    run: RunState | None,
    drawn: bool,
) -> BuildProgress:
    alone = known.only(job.workload)
    return BuildProgress(
        workload=job.workload,
        answer=answer,
        drawn=drawn,
        run=None if run is None else run.outcome,
        reason=None if run is None else run.reason,
        left=tuple(alone.pending),
        left_s=alone.seconds(alone.pending),
        to_target=tuple(alone.plan({job.workload.key: request.target}, request.significance)),
        calls=alone.coverage(job.workload).calls,
    )


def drawn_by_lot(jobs: Sequence[BuildModel], runs: int | None) -> list[BuildModel]:
    """Return so many of the models to run (None: all).

    Those with the lowest keys are drawn: keys are hashes of what identifies a workload, so nothing
    that is measured bears on the draw, and the same build draws the same models again.
    """
    return list(jobs) if runs is None else sorted(jobs, key=lambda job: job.ran)[:runs]


def _first_of(steps: Sequence[Step], seconds: float) -> list[Step]:
    """Return the first steps, one at least, that together cost no more than so much."""
    some: list[Step] = []
    spent_s = 0.0
    for step in steps:
        if some and spent_s + step.seconds > seconds:
            break
        some.append(step)
        spent_s += step.seconds
    return some


def _shortfall(standing: BuildProgress, target: float) -> float | None:
    """Return how much more of a workload is to be measured: as much as it misses the target by.

    None where it meets its target, or where measuring more would not help: its run failed, it has
    calls that no operator describes, or it is predicted to take more than it does.
    """
    answer = standing.answer
    failed = standing.drawn and standing.run != "ok"
    if failed or answer is None or standing.meets(target):
        return None
    prediction = answer.prediction
    if prediction.workload.unsupported:
        return None
    covered = prediction.coverages.values()
    known = [a for a in (answer.attribution_time, answer.attribution_energy) if a is not None]
    missed = max(target - value for value in (*covered, *known))
    return max(RAISED_BY, missed) if missed > 0 else None


def _named(workload: Workload) -> str:
    return f"{workload.name} batch {workload.batch_size} {workload.dtype}"
