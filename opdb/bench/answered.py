"""Passes whose calls are answered at once, so that what is left is Python around the calls.

The pass runs on meta with every recorded call answered at once by the output that it had; the same
calls one by one, as host times of operators are taken, are answered too, and their time is
subtracted. In a model other code runs between two lines of Python, so that these are no longer in
the nearest caches: without it they take two thirds of the time. So each answer runs a small
operator first, whose own time does not count.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from opdb.bench.calibrate import container_time_s
from opdb.derive.quiet import quiet_time_s
from opdb.errors import UnsupportedError
from opdb.garbage import gc_paused
from opdb.harvest.recorder import Recorder
from opdb.models.generation import BrokenOffError
from opdb.operators import is_metadata

ROUNDS = 30
MOST_S = 0.5
LEAST_ROUNDS = 3
"""So many rounds are made, fewer where they last longer, but these at least."""

ROUNDS_A_CONTAINER = 4
"""A container is timed again after so many rounds, and its shortest time counts."""

DIFFERENT = "its calls differ from one pass to the next"


@dataclass(frozen=True)
class Answer:
    """A function or module that was called, and what it returned.

    `calls` counts the calls that the recorder had written down by then: not those that no operator
    describes, which are answered, too.
    """

    called: Any
    output: Any
    calls: int


class Keeping(Recorder):
    """Keeps the output of every recorded call."""

    def __init__(self, model: nn.Module, **others: Any) -> None:
        super().__init__(model, **others)
        self.answers: list[Answer] = []

    def forget(self) -> None:
        """Forget the calls of a pass before another."""
        super().forget()
        self.answers.clear()

    def call_function(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Record a function call, and keep its output."""
        output = super().call_function(function, args, kwargs)
        self.answers.append(Answer(function, output, len(self.calls)))
        return output

    def leave_module(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        """Record a module call that has ended, and keep its output."""
        is_call = self.covered and not self._nested
        super().leave_module(module, args, kwargs, output)
        if is_call:
            self.answers.append(Answer(module, output, len(self.calls)))


@dataclass(frozen=True)
class _Issue:
    """A call to be made again; `gap` counts the answers before it."""

    make: Callable[[], Any]
    asks: bool
    """Whether it only asks for metadata."""
    gap: int


@dataclass
class _Answering(TorchFunctionMode):
    """Answers each call of a pass with what was kept of it."""

    answers: Sequence[Answer]
    broken_off: bool = False
    """Whether the pass is broken off at the call after the last."""
    issues: list[_Issue] | None = None
    """Where it is a list: the calls of the pass."""
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

    def answer(self, called: Any, make: Callable[[], Any], start_s: float) -> Any:
        """Return what a call returned that began at a time, after another operator has run.

        Raises:
            UnsupportedError: it is not the next call of the pass.
            BrokenOffError: it comes after the last call of a pass that is broken off.
        """
        place = len(self.marks_s) - 1
        if self.broken_off and place == len(self.answers):
            raise BrokenOffError
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
        parent: Any = None
        if self.issues is not None:
            parent = nn.Module()
            parent.child = module
        return self.answer(module, lambda: parent.child(*args, **kwargs), start_s)


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


def _issued(mode: _Answering, issues: Sequence[_Issue]) -> list[float]:
    """Return the time (seconds) of each call by itself, as host times of operators are taken."""
    mode.marks_s = [mode.now_s()]
    times_s = []
    for issue in issues:
        start_s = mode.now_s()
        issue.make()
        times_s.append(mode.now_s() - start_s)
    return times_s


def times_around(
    run: Callable[[], Any], answers: Sequence[Answer], *, broken_off: bool = False
) -> list[float]:
    """Return how long Python takes before, between and after the calls of a pass, in containers.

    That is the quiet time of what lies before each answer (and, the last, after all of them), less
    that of the same call by itself, over the time of a container (`container_time_s`): a time may
    be below 0. `broken_off` says that the pass goes on beyond these calls (`BrokenOffError`).

    Raises:
        UnsupportedError: it makes other calls than were kept.
    """
    with _one_thread():
        return _timed(run, _Answering(answers, broken_off, issues=[]))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let operators use one thread: others would be waited for where other work has the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _timed(run: Callable[[], Any], mode: _Answering) -> list[float]:
    """Return what `times_around` does."""
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
        with gc_paused():
            with mode.answering():
                passes_s.append(_second(lambda: _passed(mode, run)))
                calls_s.append(_second(lambda: _issued(mode, issues)))
            asked_s.append(_second(lambda: _issued(mode, questions)))
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
