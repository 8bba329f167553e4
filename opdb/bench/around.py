"""What a pass does in Python around its calls, timed on the host alone.

Modules prepare arguments, look things up in configurations, make output classes. The host needs
time for it in an eager pass beside that of the calls, whatever the device. So the pass runs on
meta with every recorded call answered at once by the output that it had; the same calls one by one,
as host times of operators are taken, are answered too, and their time is subtracted. In a model
other code runs between two lines of Python, so that these are no longer in the nearest caches:
without it they take two thirds of the time. So each answer runs a small operator first, whose own
time does not count.
"""

from __future__ import annotations

import io
import itertools
import logging
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
from opdb.garbage import gc_paused
from opdb.harvest.recorder import Recorder
from opdb.harvest.watching import record
from opdb.models import ModelRequest, load
from opdb.models.construction import ANY_FAILURE, one_line
from opdb.operators import is_metadata
from opdb.records import Harvest

ROUNDS = 30
MOST_S = 0.5
LEAST_ROUNDS = 3
"""So many rounds are made, fewer where they last longer, but these at least."""

ROUNDS_A_CONTAINER = 4
"""A container is timed again after so many rounds, and its shortest time counts."""

DIFFERENT = "its calls differ from one pass to the next"


Known: TypeAlias = dict[object, float | str | None]
"""What was timed before, or why it was not: by a model's name and the calls that it makes."""


def with_around(request: ModelRequest, found: Harvest, known: Known) -> Harvest:
    """Return a harvest whose workload has what is `around` its calls, or a note why it has not.

    It is timed once for all sizes and dtypes of a model that make the same calls, and added to what
    is `known`.
    """
    calls = tuple((call.configuration.kind, call.form) for call in found.workload.calls)
    if (made := (request.name, calls)) not in known:
        try:
            known[made] = around(request)
        except UnsupportedError as error:
            known[made] = str(error)
    timed = known[made]
    if isinstance(timed, str):
        return replace(found, notes=(*found.notes, timed))
    return replace(found, workload=replace(found.workload, around=timed))


def around(request: ModelRequest) -> float | None:
    """Return how long Python around the calls of a pass takes, as a number of containers.

    That is its quiet time over the time of a container (`container_time_s`) on this host, so that
    it serves for other hosts. It is 0 where the calls one by one take longer: each looks up its
    module, which `nn.Sequential` does not. None of training steps and generations: these are not
    timed.

    Raises:
        UnsupportedError: the pass fails on meta, or makes other calls from one time to the next.
    """
    if request.training is not None or request.phase == "generate":
        return None
    try:
        with _unheard():
            loaded = load(request, device="meta")
            recorder = record(loaded, autocast=request.autocast, recorder_type=_Keeping)
            assert isinstance(recorder, _Keeping)
            run = partial(loaded.module, *loaded.args, **loaded.kwargs)
            with torch.no_grad():
                return _timed(run, recorder.answers)
    except ANY_FAILURE as error:  # a forward is anyone's code
        said = str(error) if isinstance(error, OpdbError) else one_line(error)
        why = f"Python around the calls of {request.name!r} was not timed: {said}"
        raise UnsupportedError(why) from error


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep back what a model prints, warns of and logs: it told that when it was harvested."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@dataclass(frozen=True)
class _Answer:
    """A function or module that was called, and what it returned."""

    called: Any
    output: Any


class _Keeping(Recorder):
    """Keeps the output of every recorded call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.answers: list[_Answer] = []

    def forget(self) -> None:
        """Forget the calls of a pass before another."""
        super().forget()
        self.answers.clear()

    def call_function(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Record a function call, and keep its output."""
        output = super().call_function(function, args, kwargs)
        self.answers.append(_Answer(function, output))
        return output

    def leave_module(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        """Record a module call that has ended, and keep its output."""
        is_call = self.covered and not self._nested
        super().leave_module(module, args, kwargs, output)
        if is_call:
            self.answers.append(_Answer(module, output))


@dataclass
class _Answering(TorchFunctionMode):
    """Answers each call of a pass with what was kept of it."""

    answers: Sequence[_Answer]
    issues: list[tuple[Callable[[], Any], bool]] | None = None
    """Where it is a list: each call to be made again, and whether it only asks for metadata."""
    others: Iterator[Callable[[], Any]] = field(default_factory=lambda: itertools.cycle(_others()))
    aside_s: float = 0.0
    """What answering took."""
    marks_s: list[float] = field(default_factory=list)
    """When a pass began, came to each answer and ended, less what answering took before."""

    def __post_init__(self) -> None:
        super().__init__()

    def now_s(self) -> float:
        """Return the time less what answering took."""
        return time.perf_counter() - self.aside_s

    def answer(self, called: Any, start_s: float) -> Any:
        """Return what a call returned that began at a time, after another operator has run.

        Raises:
            UnsupportedError: it is not the next call of the pass.
        """
        place = len(self.marks_s) - 1
        self.marks_s.append(start_s - self.aside_s)
        if place >= len(self.answers) or self.answers[place].called is not called:
            raise UnsupportedError(DIFFERENT)
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
        asks = is_metadata(func)
        if self.issues is not None:
            self.issues.append((partial(func, *args, **kwargs), asks))
        if not asks:
            return self.answer(func, start_s)
        self.aside_s += time.perf_counter() - start_s
        return func(*args, **kwargs)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer functions and modules, until the block ends."""
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
        if self.issues is not None:
            parent: Any = nn.Module()
            parent.child = module
            self.issues.append((lambda: parent.child(*args, **kwargs), False))
        return self.answer(module, start_s)


def _others() -> list[Callable[[], Any]]:
    """Return small operators, as different as those of a model."""
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
    """Return the times (seconds) before, between and after the calls of a pass.

    Raises:
        UnsupportedError: it makes other calls than were kept.
    """
    mode.marks_s = [mode.now_s()]
    run()
    mode.marks_s.append(mode.now_s())
    if len(mode.marks_s) != len(mode.answers) + 2:
        raise UnsupportedError(DIFFERENT)
    return [later - sooner for sooner, later in itertools.pairwise(mode.marks_s)]


def _issued(mode: _Answering, issues: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the time (seconds) of each call by itself, as host times of operators are taken."""
    mode.marks_s = [mode.now_s()]
    times_s = []
    for issue in issues:
        start_s = mode.now_s()
        issue()
        times_s.append(mode.now_s() - start_s)
    return times_s


def _timed(run: Callable[[], Any], answers: Sequence[_Answer]) -> float:
    """Return the time of a pass less that of its calls, both answered, in containers."""
    mode = _Answering(answers, issues=[])
    with mode.answering():
        _passed(mode, run)
    found, mode.issues = mode.issues or [], None
    issues, questions = [issue for issue, _ in found], [issue for issue, asks in found if asks]
    passes_s: list[list[float]] = []
    calls_s: list[list[float]] = []
    asked_s: list[list[float]] = []
    containers_s: list[float] = []
    end_s = time.monotonic() + MOST_S
    while len(passes_s) < ROUNDS and (len(passes_s) < LEAST_ROUNDS or time.monotonic() < end_s):
        if len(passes_s) % ROUNDS_A_CONTAINER == 0:
            containers_s.append(container_time_s())
        with gc_paused():
            with mode.answering():
                passes_s.append(_second(lambda: _passed(mode, run)))
                calls_s.append(_second(lambda: _issued(mode, issues)))
            asked_s.append(_second(lambda: _issued(mode, questions)))
    # Questions are asked within the mode, which takes time; the pass's own part is without it.
    around_s = _quiet_s(passes_s) - _quiet_s(calls_s) + _quiet_s(asked_s)
    return max(around_s, 0.0) / min(containers_s)


def _second(times_s: Callable[[], list[float]]) -> list[float]:
    """Return the second times of two: the first meets the caches of something else."""
    times_s()
    return times_s()


def _quiet_s(rounds_s: Sequence[Sequence[float]]) -> float:
    """Add up the quiet times of what rounds consist of: each short, so that few are broken into."""
    return math.fsum(map(quiet_time_s, zip(*rounds_s, strict=True)))
