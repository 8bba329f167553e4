"""Runs of whole workloads, in one campaign: the truth that predictions are checked against."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, get_args

import torch
from torch import Tensor, nn

from opdb.bench.calibrate import stored_calibration, trusting
from opdb.bench.modes import (
    CUDA_ONLY,
    REPLAYING,
    Passing,
    check_switches,
    flags_of,
    issuing,
    output_difference,
)
from opdb.bench.replay import HOLD_UP, MIN_REPLAYS, Clock, Timing, launched_kernels, observe
from opdb.bench.run import campaign
from opdb.bench.session import (
    Launching,
    Platform,
    Session,
    detect,
    new_id,
    now,
    open_meter,
    platforms,
    release,
)
from opdb.bench.visit import refusal, session_flags, waiting_flags
from opdb.derive.quiet import blocks_s
from opdb.derive.runs import (
    AGREEING,
    AGREEMENT,
    HOSTS_AGREEMENT,
    QUIET_BLOCKS,
    agreeing,
    repeat_spread,
)
from opdb.errors import (
    CannotMeasureError,
    DatabaseError,
    InputError,
    NotCompiledError,
    OpdbError,
    UnsupportedError,
)
from opdb.memory import Memory, memory_of
from opdb.models import LoadedModel, load
from opdb.models.construction import ANY_FAILURE, Loss, calibrate_batch_norms
from opdb.models.inputs import numbers, tensors
from opdb.operators import dtype_of, make_optimizer
from opdb.processes import DiedError, done_apart
from opdb.progress import Display, Progress
from opdb.records import (
    BoardCalibration,
    Campaign,
    Json,
    Mode,
    ModelRun,
    Outcome,
    Stretch,
    Workload,
)
from opdb.runs import ModelPolicy, ModelRunSpec, Policy, RunTable, Spec
from opdb.spec import ModelSpec
from opdb.store import Claims, Store, open_store
from opdb.units import show
from opdb.workers import ALONE, Crew, WorkerDevice, on_each, runs_made


@dataclass
class RunReadings:
    """Gathers the readings of a run, so that a failure half way leaves nothing undefined."""

    repeats: list[Stretch] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)
    kernels: dict[str, int] | None = None
    layers: dict[str, float] | None = None
    peak_memory_bytes: int | None = None


def run_of(
    session: Session,
    workload: str,
    mode: Mode,
    measure: Callable[[RunReadings], None],
    setting: Mapping[str, Json] | None = None,
) -> ModelRun:
    """Measure a workload (key) in a mode; a failure to measure it is a run with that outcome.

    `setting` is what the run was made under beyond the campaign's.
    """
    began_s, started_at = time.monotonic(), now()
    seen = RunReadings()
    outcome: Outcome = "ok"
    reason = None
    try:
        measure(seen)
    except ANY_FAILURE as error:
        outcome, reason = _finding(error)
    release(session)
    if outcome != "ok":
        session.check_alive()
    return ModelRun(
        id=new_id(),
        campaign=session.campaign.id,
        workload=workload,
        mode=mode,
        outcome=outcome,
        reason=reason,
        started_at=started_at,
        cost_s=time.monotonic() - began_s,
        repeats=tuple(seen.repeats) if outcome == "ok" else (),
        peak_memory_bytes=seen.peak_memory_bytes,
        kernels=seen.kernels,
        layers=seen.layers,
        flags=tuple(dict.fromkeys(seen.flags)),
        setting=setting or {},
        facts=seen.facts,
    )


def _finding(error: BaseException) -> tuple[Outcome, str]:
    """Return what an error says of a model, and its reason; raise one that is no finding.

    What torch raises is a finding, as is what a model's code raises, which may be anything.
    """
    if isinstance(error, UnsupportedError | NotCompiledError):
        return "unsupported", str(error)
    if isinstance(error, InputError | DiedError) and not isinstance(error, DatabaseError):
        return "error", str(error)
    if isinstance(error, OpdbError):
        raise error
    return refusal(error)


# A whole workload measured: the truth that predictions are checked against.

SETTLE_S = 0.5
WINDOW_S = 1.0
REPEATS = 3
MAX_REDONE = 5
"""Repeats added where the first ones do not agree."""

HOSTS_REDONE = 13
"""So many where the host is the bottleneck: others' work holds it up in most seconds of some hosts,
and three seconds are waited for in which it does not."""

OUTRUN = 0.9
"""The host is the bottleneck where the device outruns it in this share of the passes or more."""

UNCHANGED: tuple[Mode, ...] = ("eager", "graph")
"""Modes that run the model's own kernels."""


@dataclass(frozen=True)
class RunOptions:
    """How to measure models: how many stretches, and whether layers are timed in place.

    A model whose `memory` does not fit is not made; None: that is not known.
    """

    repeats: int = REPEATS
    layers: bool = False
    memory: Memory | None = None


def measure(
    session: Session, request: ModelSpec, workload: str, mode: Mode, options: RunOptions
) -> ModelRun:
    work = partial(_measure, session, request, mode, options)
    return run_of(session, workload, mode, work)


def _measure(
    session: Session,
    request: ModelSpec,
    mode: Mode,
    options: RunOptions,
    seen: RunReadings,
) -> None:
    memory = options.memory
    if memory is not None and memory.fits is False:
        needed, there = show(memory.needed_bytes, "B"), show(memory.device_bytes, "B")
        raise MemoryError(f"needs about {needed}, the device has {there}")
    loaded = load(request, device=session.platform.torch_device)
    step = _step(loaded, request, mode)
    first_s, outputs = _timed(step, session.clock)
    if first_s > WINDOW_S:  # the first pass may wait for libraries
        first_s, outputs = _timed(step, session.clock)
    if not is_finite(outputs):
        seen.flags.append("the model's outputs are not finite")
    kept = None if mode in UNCHANGED else [t.cpu() for t in tensors(outputs)]
    del outputs  # outputs are compared on the host: of the device's memory a mode may need all
    if session.on_gpu:
        torch.cuda.reset_peak_memory_stats()
        if mode in UNCHANGED:
            seen.kernels = launched_kernels(step, hidden=mode != "graph")
    if options.layers:
        seen.layers = time_layers(loaded.module, step, session.clock)
    passing = Passing(loaded, step, session.clock)
    with issuing(mode, passing, seen.facts) as issue:
        if kept is not None:
            found = [t.cpu() for t in tensors(issue())]
            if is_finite(kept) and not is_finite(found):
                seen.flags.append(f"outputs are finite in eager, and not in {mode}")
            seen.facts["output_difference"] = output_difference(kept, found)
            del kept, found
        if session.on_gpu and mode not in (*UNCHANGED, *REPLAYING):
            seen.kernels = launched_kernels(issue)
        least = 1 if first_s > WINDOW_S else MIN_REPLAYS
        timing = Timing(SETTLE_S, WINDOW_S, lag_s=session.lag_s, least=least)
        _observe(session, issue, timing, options, seen, replays=mode in REPLAYING)
    if mode == "eager" and seen.facts.get("outrun_share", 0.0) >= OUTRUN:  # it waits for the host
        blocks = [block for repeat in seen.repeats for block in blocks_s(repeat.replay_times_s)]
        seen.facts[QUIET_BLOCKS] = len(blocks)
    seen.flags += flags_of(seen.facts)
    if session.on_gpu:
        seen.peak_memory_bytes = torch.cuda.max_memory_allocated()


def _timed(step: Callable[[], Any], clock: Clock) -> tuple[float, Any]:
    first = clock.mark()
    outputs = step()
    last = clock.mark()
    clock.wait(last)
    return clock.elapsed_s(first, last), outputs


def _observe(
    session: Session,
    issue: Callable[[], Any],
    timing: Timing,
    options: RunOptions,
    seen: RunReadings,
    *,
    replays: bool,
) -> None:
    bound, outrun, wanted = AGREEMENT, 1.0, options.repeats
    while len(seen.repeats) < wanted:
        with session.settled() as started:
            found = observe(issue, 1, session.clock, session.meter, timing)
        seen.repeats.append(found.stretch)
        seen.flags += (*session_flags(session, found), *started)
        if replays:  # an eager pass may wait for the host; a CUDA graph that does was issued late
            seen.flags += waiting_flags(found)
        outrun = min(outrun, found.outrun_share)
        bound, redone = (
            (HOSTS_AGREEMENT, HOSTS_REDONE) if outrun >= OUTRUN else (AGREEMENT, MAX_REDONE)
        )
        wanted = options.repeats + (redone if disagreement(seen.repeats, bound) else 0)
    if session.on_gpu:
        seen.facts["outrun_share"] = outrun
    if session.launching:
        seen.facts["tiny_kernel_s"] = [session.launching.tiny_kernel_s]
    seen.flags += disagreement(seen.repeats, bound)


def disagreement(repeats: Sequence[Stretch], bound: float) -> list[str]:
    """Return the flag of repeats of which no three agree within a share; no flag where they do."""
    spread = repeat_spread(agreeing(repeats))
    if spread <= bound:
        return []
    return [f"no three repeats agree: the fastest differ by {100 * spread:.1f} %"]


def _step(loaded: LoadedModel, request: ModelSpec, mode: Mode) -> Callable[[], Any]:
    if request.training is not None:
        if mode not in UNCHANGED:
            raise InputError(f"training is not measured in mode {mode!r}; use eager or graph")
        return TrainingStep(loaded, request)
    if request.autocast is not None:
        raise InputError("a model under autocast is measured in training alone")
    calibrate_batch_norms(loaded)

    def infer() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    return infer


def is_finite(outputs: Any) -> bool:
    return all(
        bool(t.isfinite().all())
        for t in numbers(outputs)
        if t.dtype.is_floating_point or t.is_complex()
    )


# Time every leaf module in its place: events set by hooks, inside the running model.

PASSES = 10
WARM_UP_PASSES = 2
HELD_LEAVES = 64
"""Leaves issued behind one hold-up: few enough for the queue of launches to take them all."""


def time_layers(
    module: nn.Module,
    step: Callable[[], Any],
    clock: Clock,
    *,
    passes: int = PASSES,
    hold: Callable[[float], None] | None = None,
) -> dict[str, float]:
    """Return each leaf module's median time in place for one pass (seconds), by its path.

    A leaf that is called more than once in a pass has its calls added. The time between two
    events includes the gap after the launch, so eager sums lie above a sum of operators. `hold`
    keeps the device busy for a number of seconds before what is issued next: it then never waits
    for the host, and the times are its own.
    """
    holding = _Holding(hold)
    with _marked(module, clock, holding) as marks:
        for _ in range(WARM_UP_PASSES):
            holding.learn(step)
            clock.wait(clock.mark())
            marks.clear()
        found = []
        for _ in range(passes):
            holding.begin_pass()
            step()
            clock.wait(clock.mark())
            found.append(_sums(marks, clock))
            marks.clear()
    paths = dict.fromkeys(path for sums in found for path in sums)  # not every pass has to call all
    return {path: statistics.median(sums.get(path, 0.0) for sums in found) for path in paths}


@contextmanager
def _marked(
    module: nn.Module, clock: Clock, holding: _Holding
) -> Iterator[list[tuple[str, Any, Any]]]:
    """Hook the leaves of a module; yields the list that each call adds its path and marks to."""
    began: dict[str, list[Any]] = defaultdict(list)
    marks: list[tuple[str, Any, Any]] = []
    handles = []

    def before(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            holding.begin()
            began[path].append(clock.mark())

        return hook

    def after(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            marks.append((path, began[path].pop(), clock.mark()))

        return hook

    leaves = [(path, m) for path, m in module.named_modules() if not any(m.children())]
    try:
        for path, leaf in leaves:
            handles.append(leaf.register_forward_pre_hook(before(path)))
            handles.append(leaf.register_forward_hook(after(path)))
        yield marks
    finally:
        for handle in handles:
            handle.remove()


class _Holding:
    """Holds the device up before every `HELD_LEAVES` leaves, while the host issues them."""

    def __init__(self, hold: Callable[[float], None] | None) -> None:
        self._hold = hold
        self._leaves = 0
        self._leaf_s = 0.0

    def begin_pass(self) -> None:
        self._leaves = 0

    def begin(self) -> None:
        if self._hold is not None and self._leaf_s and self._leaves % HELD_LEAVES == 0:
            self._hold(HELD_LEAVES * self._leaf_s * HOLD_UP)
        self._leaves += 1

    def learn(self, step: Callable[[], Any]) -> None:
        self._leaves, self._leaf_s = 0, 0.0
        began_s = time.perf_counter()
        step()
        self._leaf_s = (time.perf_counter() - began_s) / max(self._leaves, 1)


def _sums(marks: list[tuple[str, Any, Any]], clock: Clock) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for path, first, last in marks:
        total[path] += clock.elapsed_s(first, last)
    return dict(total)


# One training step of a model: forward pass, loss, backward pass, optimizer step.


class TrainingStep:
    """A training step that runs again and again when it is called, and returns its loss.

    Gradients are let go of after the step, as `zero_grad` does by default. It trains on the model's
    example inputs and on random targets.
    """

    def __init__(self, loaded: LoadedModel, request: ModelSpec) -> None:
        self._module = loaded.module
        self._args, self._kwargs = loaded.args, loaded.kwargs
        self._batches = request.accumulation
        self._autocast = request.autocast
        self._device = next(loaded.module.parameters()).device.type
        self._optimizer = make_optimizer(request.optimizer, loaded.module.parameters())
        self._loss: Loss | None = None

    def __call__(self) -> Tensor:
        """Run one step; the loss returned is that of its last batch.

        A step that fails leaves no gradients: those of one that was being captured hold nothing.
        """
        try:
            for _ in range(self._batches):
                loss = self.backward(self.forward())
            self.update()
        except RuntimeError:
            self._optimizer.zero_grad()
            raise
        return loss

    def forward(self) -> Tensor:
        with self._casting():
            outputs: Any = self._module(*self._args, **self._kwargs)
            self._loss = self._loss or Loss.of(outputs)
            loss = self._loss(outputs)
        return loss / self._batches if self._batches > 1 else loss

    @property
    def classes(self) -> int:
        """The number of the model's classes, once it has run; 0 where it has its own loss."""
        return 0 if self._loss is None else self._loss.classes

    def feed(self, images: Tensor, classes: Tensor) -> None:
        self._args = (images,)
        self._loss = Loss(classes, self.classes)

    def backward(self, loss: Tensor) -> Tensor:
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _casting(self) -> AbstractContextManager[Any]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._device, dtype=dtype_of(self._autocast))


# Model runs of several workloads in one campaign, each saved as soon as it is done.


def check_modes(modes: Collection[Mode], device: str | None) -> None:
    for mode in modes:
        check_switches(mode)
    platform = detect(device)
    lacking = [mode for mode in modes if mode in CUDA_ONLY]
    if lacking and platform.device.type != "cuda":
        raise CannotMeasureError(
            f"mode {lacking[0]!r} needs a CUDA device; {platform.device.name} is none: use "
            "another mode, such as eager"
        )


def modes_of(platform: Platform) -> tuple[Mode, ...]:
    return tuple(m for m in get_args(Mode) if platform.device.type == "cuda" or m not in CUDA_ONLY)


@dataclass(frozen=True)
class CampaignWork(Generic[Spec]):
    """Runs of a question that a process measures itself, all in one campaign.

    `measurer` returns what measures one run. With `retry` runs are made that failed before.
    """

    policy: Policy[Spec]
    measurer: Callable[[Session, Store], Callable[[Spec], ModelRun]]
    retry: bool = False

    def pending(self, store: Store, specs: Sequence[Spec]) -> list[Spec]:
        return RunTable(self.policy, self.policy.runs(store)).pending(specs, retry=self.retry)

    def run(
        self,
        store: Store,
        specs: Sequence[Spec],
        device: str | None,
        shown: Progress,
        crew: Crew = ALONE,
    ) -> Iterator[tuple[Spec, ModelRun]]:
        if not specs:
            return
        workers = crew.workers
        with ExitStack() as stack:
            with crew.measuring():
                session = stack.enter_context(campaign(detect(device), store, workers))
            scope = self.policy.scope(session.platform.device.slug)
            claims = stack.enter_context(Claims(store, scope, session.platform.board.uuid))
            measure_one = self.measurer(session, store)

            def make(spec: Spec) -> ModelRun:
                run = measure_one(spec)
                store.save_model_run(run, claims.claim(spec.key))
                return run

            yield from runs_made(
                store, claims, self.policy, specs, make, shown, retry=self.retry, crew=crew
            )

    def run_on_each(
        self,
        places: Sequence[WorkerDevice],
        store: Store,
        specs: Sequence[Spec],
        display: Display,
        what: str,
    ) -> list[str]:
        """Make runs on several devices, each on whichever is free; return why devices failed."""
        return on_each(places, _run, (store.url, self, specs, what), display)[1] if specs else []


def _run(
    device: str,
    display: Display,
    crew: Crew,
    url: str,
    work: CampaignWork[Spec],
    specs: Sequence[Spec],
    what: str,
) -> None:
    with (
        open_store(url, create=False) as store,
        display.progress(len(specs), what) as shown,
    ):
        for spec, run in work.run(store, specs, device, shown, crew):
            note_failure(shown, spec, run)


def note_failure(shown: Progress, spec: Spec, run: ModelRun) -> None:
    if run.outcome not in ("ok", "unsupported"):
        shown.note(f"{spec.label}: {run.outcome}: {run.reason}")


def model_work(
    policy: ModelPolicy, options: RunOptions | None = None, *, retry: bool = False
) -> CampaignWork[ModelRunSpec]:
    return CampaignWork(policy, partial(_model_measurer, options or RunOptions()), retry)


def _model_measurer(
    options: RunOptions, session: Session, store: Store
) -> Callable[[ModelRunSpec], ModelRun]:
    def measure_one(spec: ModelRunSpec) -> ModelRun:
        found = store.workloads_by_key([spec.workload])
        memory = memory_of(found[0], session.platform.device) if found else None
        timed = replace(options, memory=memory)
        if spec.mode == "graph":
            return measure_graph(session, stored_calibration(session, store), spec, timed)
        return measure(session, spec.request, spec.workload, spec.mode, timed)

    return measure_one


def measure_graph(
    session: Session, known: BoardCalibration | None, spec: ModelRunSpec, options: RunOptions
) -> ModelRun:
    """Measure a model as a CUDA graph, in three processes or more, one after the other, as one run.

    Repeats in one process agree within 0.02 %, and processes differ by several per cent, by where
    the model's memory lies (docs/measuring.md). `known` is the calibration of the board.
    """
    release(session)
    least, runs = max(options.repeats, AGREEING), list[ModelRun]()
    repeats, flags = tuple[Stretch, ...](), list[str]()
    given = session.campaign, session.platform.torch_device, known, spec
    while len(runs) < least + (MAX_REDONE if flags else 0):
        timed = replace(options, repeats=1, layers=options.layers and not runs)
        try:
            run: ModelRun = done_apart(_measured, *given, timed)
        except DiedError as error:
            run = run_of(session, spec.workload, spec.mode, partial(_fail, error))
        if run.outcome != "ok":
            return run
        runs.append(run)
        repeats += run.repeats
        flags = disagreement(repeats, AGREEMENT)
    tiny = [time_s for run in runs for time_s in run.facts.get("tiny_kernel_s", [])]
    return replace(
        runs[0],
        repeats=repeats,
        cost_s=sum(run.cost_s for run in runs),
        flags=tuple(dict.fromkeys(chain(flags, *(run.flags for run in runs)))),
        facts={**runs[0].facts, "processes": len(runs), "tiny_kernel_s": tiny},
    )


def _measured(
    campaign: Campaign,
    device: str,
    known: BoardCalibration | None,
    spec: ModelRunSpec,
    options: RunOptions,
) -> ModelRun:
    platform = detect(device)
    meter = open_meter(platform)
    try:
        session = trusting(Session(platform, meter, campaign), known)
        if session.on_gpu:
            session = replace(session, launching=Launching(device))
        return measure(session, spec.request, spec.workload, spec.mode, options)
    finally:
        meter.close()


def _fail(error: Exception, _: RunReadings) -> None:
    raise error


def measure_models(
    store: Store,
    jobs: Sequence[tuple[ModelSpec, Workload, Mode]],
    options: RunOptions,
    device: str | None,
    display: Display,
    places: Sequence[WorkerDevice] = (),
) -> tuple[list[tuple[Workload, ModelRun]], list[str]]:
    """Measure each request, its workload stored, in its mode; return the runs, each stored.

    A model that fails does not stop the others: its run carries the outcome. What another process
    measures on the same boards at the same time is left to it. Where there are several `places`,
    why devices failed is returned beside the runs.
    """
    on = [each.board for each in (platforms(places) if places else [detect(device)])]
    boards = tuple(board.uuid for board in on)
    specs = {
        spec.key: spec
        for request, workload, mode in jobs
        for spec in [ModelRunSpec(request, workload.key, mode, boards)]
    }
    workloads = {workload.key: workload for _, workload, _ in jobs}
    policy = ModelPolicy(tuple({board.device for board in on}), boards).without_stored(store)
    work, failures = model_work(policy, options), list[str]()
    if places:
        failures = work.run_on_each(places, store, [*specs.values()], display, "measure")
    else:
        with display.progress(len(specs), "measure") as shown:
            for _ in work.run(store, [*specs.values()], device, shown):
                pass
    made = {run.id for run in policy.runs(store)}
    runs = [r for key in workloads for r in store.model_runs(key) if r.id in made]
    return [(workloads[run.workload], run) for run in runs], failures
