"""The loop: bench what matters most until it explains enough, measure the models, compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opdb.bench.model import model_work
from opdb.bench.plan import BenchRequest
from opdb.bench.run import Budget, bench
from opdb.bench.session import Platform, current_settings, detect
from opdb.errors import InputError
from opdb.plan.survey import Survey, run_seconds, survey
from opdb.predict.predictor import Answer, Predictor, predictor_for
from opdb.progress import Display
from opdb.records import Cost, Mode, Workload
from opdb.runs import ModelPolicy, ModelRunSpec, RunTable
from opdb.spec import ModelSpec
from opdb.store import Store, take_in
from opdb.summary_files import Significance
from opdb.units import plural

FRUITLESS = "visited, and no usable time came of it"
ELSEWHERE = "another process is at it"


@dataclass(frozen=True)
class BuildModel:
    """A workload to bring to the target, as its model calls it, and the request that loads that."""

    request: ModelSpec
    workload: Workload


@dataclass(frozen=True)
class BuildRequest:
    """What to build: a target for every workload, within so many GPU-seconds.

    GPU-seconds are counted by the clock from the first measurement on, calibration included, for
    each board; None is without bound. `retry` tries again what failed before, operators and models.
    """

    target: float
    mode: Mode = "eager"
    gpu_seconds: float | None = None
    retry: bool = False
    significance: Significance = field(default_factory=Significance)


@dataclass(frozen=True)
class BuildProgress:
    """None: nothing was measured, or not run yet. `left` are the pending configurations (keys)."""

    workload: Workload
    answer: Answer | None
    run: str | None
    reason: str | None
    left: tuple[str, ...]
    left_s: float
    calls: float

    def meets(self, target: float) -> bool:
        """Whether the target holds, and was held against a run."""
        return self.run == "ok" and self.answer is not None and self.answer.meets(target)


def build(
    store: Store,
    jobs: Sequence[BuildModel],
    request: BuildRequest,
    device: str | None,
    display: Display,
) -> Build:
    """Bench until operators explain the target's share of every workload, measure, compare.

    The workloads must be stored. What is measured already is not measured again; what another
    process is at is left to it.
    """
    made = Build(store, jobs, request, detect(device), display, device)
    made.run()
    return made


class Build:
    """`stopped` says why it ended early."""

    survey: Survey
    standings: list[BuildProgress]
    elapsed_s: float

    def __init__(
        self,
        store: Store,
        jobs: Sequence[BuildModel],
        request: BuildRequest,
        platform: Platform,
        display: Display,
        device: str | None,
    ) -> None:
        self._store, self._jobs, self._request, self._display = store, jobs, request, display
        self._platform, self._named = platform, device
        self.device, self.board = platform.device.slug, platform.board.uuid
        self._policy = ModelPolicy((self.device,), (self.board,))
        self._tried: set[str] = set()
        self._elsewhere: set[str] = set()
        self._time = Budget(request.gpu_seconds)
        take_in(store, platform.device.slug)
        self._estimates: Mapping[str, Cost] | None = None
        self.benched = self.visits = self.runs = 0
        self.stopped: str | None = None

    def run(self) -> None:
        if self._bench():
            self._measure_models()
        self.elapsed_s, self.survey = self._time.elapsed_s, self._survey()
        self.standings = self._standings(self.survey)

    def _survey(self) -> Survey:
        platform, workloads = self._platform, [job.workload for job in self._jobs]
        known = survey(
            self._store,
            platform.device,
            workloads,
            current_settings(),
            self.board,
            self._estimates,
        )
        self._estimates = known.estimates
        failed = dict(known.failed)
        if self._request.retry:
            failed = {key: why for key, why in failed.items() if key in self._tried}
        fruitless = {key for key in self._tried if key in known.configurations} - known.costs.keys()
        left = dict.fromkeys(self._elsewhere - known.costs.keys(), ELSEWHERE)
        return replace(known, failed=left | dict.fromkeys(fruitless, FRUITLESS) | failed)

    def _is_short_of(self, seconds: float) -> bool:
        left_s = self._time.left_s
        return left_s is not None and left_s <= seconds

    @property
    def _time_is_up(self) -> str:
        return f"the GPU-seconds given, {self._request.gpu_seconds:g}, are up"

    def _bench(self) -> bool:
        """Bench what a plan says until the target is covered; False when the time was up first.

        Costs may differ from what the plan took them for, so that another one follows.
        """
        while True:
            known = self._survey()
            steps = known.plan(self._request.target, self._request.significance)
            if not steps:
                return True
            if self._is_short_of(0.0):
                self.stopped = self._time_is_up
                return False
            self._bench_all([step.key for step in steps])

    def _bench_all(self, keys: Sequence[str]) -> None:
        self._display.note(f"bench: {plural(len(keys), 'configuration')} to the target")
        request = BenchRequest(
            device=self._named,
            max_s=self._time.left_s,
            retry=self._request.retry,
            rounds=None,
            configurations=keys,
            workloads=[job.workload.key for job in self._jobs],
            host_times=self._request.mode != "graph",
        )
        result = bench(self._store, request, self._display)
        self._elsewhere |= result.elsewhere
        if result.stopped is None:
            self._tried |= set(keys) - result.elsewhere
        self.benched += result.configurations
        self.visits += result.outcomes.total()

    def _measure_models(self) -> None:
        work = model_work(self._policy, retry=self._request.retry)
        lacking = work.pending(self._store, [self._spec(job) for job in self._jobs])
        usual_s = run_seconds(self._store, self._platform.device.slug, self._request.mode)
        made = 0
        if lacking and not self._is_short_of(usual_s):
            with self._display.progress(len(lacking), "measure") as shown:
                for _ in work.run(self._store, lacking, self._named, shown):
                    made += 1
                    if self._is_short_of(usual_s):
                        break
        self.runs = made
        late = len(lacking) - made
        if late and self._is_short_of(usual_s):
            self.stopped = f"{self._time_is_up}; not run: {plural(late, 'model')}"

    def _spec(self, job: BuildModel) -> ModelRunSpec:
        return ModelRunSpec(job.request, job.workload.model_key, self._request.mode, (self.board,))

    def _standings(self, known: Survey) -> list[BuildProgress]:
        predictor = predictor_for(
            self._store, self._platform.device, current_settings(), estimates=False
        )
        table = RunTable(self._policy, self._policy.runs(self._store))
        standings = []
        for job in self._jobs:
            run, left = table.run(self._spec(job)), known.left_of(job.workload)
            standings.append(
                BuildProgress(
                    workload=job.workload,
                    answer=self._answer(predictor, job),
                    run=None if run is None else run.outcome,
                    reason=None if run is None else run.reason,
                    left=tuple(left),
                    left_s=known.seconds(left),
                    calls=known.coverage(job.workload).calls,
                )
            )
        return standings

    def _answer(self, predictor: Predictor, job: BuildModel) -> Answer | None:
        board = self.board if self._store.campaigns(board=self.board) else None
        try:
            return predictor.answer(job.workload, self._request.mode, board)
        except InputError:
            return None  # nothing was measured on the device at all
