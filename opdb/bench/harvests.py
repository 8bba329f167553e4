"""How all that measures harvests: only what the same code harvested counts, with Python timed."""

from __future__ import annotations

import gc
import io
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from opdb.bench.calibrate import container_time_s
from opdb.derive.quiet import quiet_time_s
from opdb.errors import OpdbError, UnsupportedError
from opdb.growth import CHOICE
from opdb.harvest.finding import HarvestPolicy
from opdb.harvest.passes import record
from opdb.harvest.recorder import Recorder
from opdb.models import load
from opdb.models.construction import ANY_FAILURE, one_line
from opdb.operators import is_metadata
from opdb.records import Harvest
from opdb.spec import ModelSpec


def measuring(
    *,
    anew: bool = False,
    swept: bool = False,
    around: KnownTimes | None = None,
) -> HarvestPolicy:
    """Return the policy of all that measures: what the same code harvested counts, unless `anew`.

    Python around the calls is timed here, one model after the other, but not for sweeps
    (`swept`); `around` is what was timed for requests before, and is added to.
    """
    known: KnownTimes = {} if around is None else around
    return HarvestPolicy(
        accept="nothing" if anew else "same code",
        save="must",
        swept=swept,
        finish=None if swept else lambda request, found: with_around(request, found, known),
    )


# Passes whose calls are answered at once, so that what is left is Python around the calls.
#
# The pass runs on meta with every recorded call answered at once by the output that it had; the
# same calls one by one, as host times of operators are taken, are answered too, and their time is
# subtracted. In a model other code runs between two lines of Python, so that these are no longer in
# the nearest caches: without it they take two thirds of the time. So each answer runs a small
# operator first, whose own time does not count.

ROUNDS = 30
MOST_S = 0.5
LEAST_ROUNDS = 3
"""So many rounds are made, fewer where they last longer, but these at least."""

ROUNDS_A_CONTAINER = 4
"""A container is timed again after so many rounds, and its shortest time counts."""

DIFFERENT = "its calls differ from one pass to the next"


@dataclass(frozen=True)
class CallResult:
    """A function or module that was called, and what it returned.

    `calls` counts the calls that the recorder had written down by then: not those that no operator
    describes, which are answered, too.
    """

    called: Any
    output: Any
    calls: int


class Keeping(Recorder):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.answers: list[CallResult] = []

    def forget(self) -> None:
        super().forget()
        self.answers.clear()

    def call_function(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        output = super().call_function(function, args, kwargs)
        self.answers.append(CallResult(function, output, len(self.calls)))
        return output

    def leave_module(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        is_call = self.covered and not self._nested
        super().leave_module(module, args, kwargs, output)
        if is_call:
            self.answers.append(CallResult(module, output, len(self.calls)))


@dataclass(frozen=True)
class _Issue:
    """A call to be made again; `gap` counts the answers before it."""

    make: Callable[[], Any]
    asks: bool
    """Whether it only asks for metadata."""
    gap: int


@dataclass
class _Answering(TorchFunctionMode):
    answers: Sequence[CallResult]
    issues: list[_Issue] | None = None
    """Where it is a list: the calls of the pass."""
    others: Iterator[Callable[[], Any]] = field(default_factory=lambda: itertools.cycle(_others()))
    aside_s: float = 0.0
    marks_s: list[float] = field(default_factory=list)
    """When a pass began, came to each answer and ended, less what answering took before."""

    def __post_init__(self) -> None:
        super().__init__()

    def now_s(self) -> float:
        return time.perf_counter() - self.aside_s

    def answer(self, called: Any, make: Callable[[], Any], start_s: float) -> Any:
        place = len(self.marks_s) - 1
        self.marks_s.append(start_s - self.aside_s)
        if place >= len(self.answers) or self.answers[place].called is not called:
            raise UnsupportedError(DIFFERENT)
        if self.issues is not None:
            self.issues.append(_Issue(make, False, place))
        with torch._C.DisableTorchFunction():
            next(self.others)()
        output = self.answers[place].output
        self.aside_s += time.perf_counter() - start_s
        return output

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        start_s = time.perf_counter()
        kwargs = kwargs or {}
        make = partial(func, *args, **kwargs)
        if not is_metadata(func):
            return self.answer(func, make, start_s)
        if self.issues is not None:
            self.issues.append(_Issue(make, True, len(self.marks_s) - 1))
        self.aside_s += time.perf_counter() - start_s
        return func(*args, **kwargs)

    @contextmanager
    def answering(self) -> Iterator[None]:
        modules = {id(a.called): a.called for a in self.answers if isinstance(a.called, nn.Module)}
        for module in modules.values():
            module.forward = partial(self._forward, module)
        try:
            with self:
                yield
        finally:
            for module in modules.values():
                del module.forward

    def _forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        start_s = time.perf_counter()
        parent: Any = None
        if self.issues is not None:
            parent = nn.Module()
            parent.child = module
        return self.answer(module, lambda: parent.child(*args, **kwargs), start_s)


def _others() -> list[Callable[[], Any]]:
    image, rows, weight = torch.zeros(1, 8, 4, 4), torch.zeros(8, 32), torch.zeros(32, 32)
    return [
        partial(nn.Conv2d(8, 8, 1), image),
        partial(functional.linear, rows, weight),
        partial(nn.BatchNorm2d(8).eval(), image),
        partial(nn.LayerNorm(32), rows),
        partial(torch.softmax, rows, -1),
        partial(nn.AdaptiveAvgPool2d(1), image),
        partial(torch.cat, [rows, rows]),
        partial(torch.mul, rows, rows),
        partial(torch.Tensor.contiguous, rows.t()),
        partial(functional.gelu, rows),
    ]


def _passed(mode: _Answering, run: Callable[[], Any]) -> list[float]:
    mode.marks_s = [mode.now_s()]
    run()
    mode.marks_s.append(mode.now_s())
    if len(mode.marks_s) != len(mode.answers) + 2:
        raise UnsupportedError(DIFFERENT)
    return [later - sooner for sooner, later in itertools.pairwise(mode.marks_s)]


def _issued(mode: _Answering, issues: Sequence[_Issue]) -> list[float]:
    mode.marks_s = [mode.now_s()]
    times_s = []
    for issue in issues:
        start_s = mode.now_s()
        issue.make()
        times_s.append(mode.now_s() - start_s)
    return times_s


def times_around(run: Callable[[], Any], answers: Sequence[CallResult]) -> list[float]:
    """Return how long Python takes before, between and after the calls of a pass, in containers.

    That is the quiet time of what lies before each answer (and, the last, after all of them), less
    that of the same call by itself, over the time of a container (`container_time_s`): a time may
    be below 0.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # others would be waited for where other work has the cores
    try:
        return _timed_once(run, _Answering(answers, issues=[]))
    finally:
        torch.set_num_threads(threads)


def _timed_once(run: Callable[[], Any], mode: _Answering) -> list[float]:
    with mode.answering():
        _passed(mode, run)
    issues, mode.issues = mode.issues or [], None
    questions = [issue for issue in issues if issue.asks]
    passes_s: list[list[float]] = []
    calls_s: list[list[float]] = []
    asked_s: list[list[float]] = []
    containers_s: list[float] = []
    end_s = time.monotonic() + MOST_S
    while len(passes_s) < ROUNDS and (len(passes_s) < LEAST_ROUNDS or time.monotonic() < end_s):
        if len(passes_s) % ROUNDS_A_CONTAINER == 0:
            containers_s.append(container_time_s())
        gc.disable()
        try:
            with mode.answering():
                passes_s.append(_second(lambda: _passed(mode, run)))
                calls_s.append(_second(lambda: _issued(mode, issues)))
            asked_s.append(_second(lambda: _issued(mode, questions)))
        finally:
            gc.enable()
    found_s = _quiet_s(passes_s)
    for issue, quiet_s in zip(issues, _quiet_s(calls_s), strict=True):
        found_s[issue.gap] -= quiet_s
    # Questions are asked within the mode, which takes time; the pass's own part is without it.
    for issue, quiet_s in zip(questions, _quiet_s(asked_s), strict=True):
        found_s[issue.gap] += quiet_s
    container_s = min(containers_s)
    return [each / container_s for each in found_s]


def _second(times_s: Callable[[], list[float]]) -> list[float]:
    """Return the second times of two: the first meets the caches of something else."""
    times_s()
    return times_s()


def _quiet_s(rounds_s: Sequence[Sequence[float]]) -> list[float]:
    """Return the quiet times of what rounds consist of: each short, so that few are broken into."""
    return [quiet_time_s(each) for each in zip(*rounds_s, strict=True)]


# What a pass does in Python around its calls, timed on the host alone.
#
# Modules prepare arguments, look things up in configurations, make output classes. The host needs
# time for it in an eager pass beside that of the calls, whatever the device.
#
# Of a whole generation a few tokens are timed: what comes up to the first, and the steps after it.

FEW = 3
"""Tokens of a whole generation that are timed; further ones take what these steps do."""

KnownTimes: TypeAlias = dict[tuple[object, ...], float | str]
"""The time around the calls of a pass, in containers, or why there is none.

By a model's name, a phase, and the calls (`Workload.made`)."""


def with_around(request: ModelSpec, found: Harvest, known: KnownTimes) -> Harvest:
    """Return a harvest whose workload has what is `around` its calls, or a note why it has not.

    That is how long Python around the calls of a pass takes, as a number of containers: its quiet
    time over the time of a container (`container_time_s`) on this host, so that it serves for other
    hosts. It is 0 where the calls one by one take longer: each looks up its module, which
    `nn.Sequential` does not. Training steps are not timed.

    It is timed once for all sizes and dtypes of a model that make the same calls: what is `known`
    grows.
    """
    if request.training is not None:
        return found
    key = request.name, request.phase, found.workload.made
    if key not in known:
        try:
            with _unheard(), torch.no_grad():
                known[key] = _timed(request)
        except ANY_FAILURE as error:  # a forward is anyone's code
            said = str(error) if isinstance(error, OpdbError) else one_line(error)
            known[key] = f"Python around the calls of {request.name!r} was not timed: {said}"
    timed = known[key]
    if isinstance(timed, str):
        return replace(found, notes=(*found.notes, timed))
    return replace(found, workload=replace(found.workload, around=timed))


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep back what a model prints and warns of: it told that when it was harvested."""
    nowhere = io.StringIO()
    with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _timed(request: ModelSpec) -> float:
    tokens = request.max_new_tokens or 1 if request.phase == "generate" else 1
    begun = request if tokens <= FEW else replace(request, max_new_tokens=FEW)
    loaded = load(begun, device="meta")
    for _ in range(2):  # the first time a model may make what it finds the next time
        recorder = record(loaded, autocast=request.autocast, recorder_type=Keeping)
    assert isinstance(recorder, Keeping)
    run = partial(loaded.module, *loaded.args, **loaded.kwargs)
    times = times_around(run, recorder.answers)
    if begun is request:
        return max(math.fsum(times), 0.0)
    chosen = [call.configuration.kind for call in recorder.calls].index(CHOICE)
    first = next(n for n, answer in enumerate(recorder.answers, 1) if answer.calls > chosen)
    step = max(math.fsum(times[first:]), 0.0) / (FEW - 1)
    return max(math.fsum(times[:first]), 0.0) + (tokens - 1) * step
