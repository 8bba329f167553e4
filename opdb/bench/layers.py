"""Time every leaf module in its place: events set by hooks, inside the running model."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from opdb.bench.replay import HOLD_UP, Clock

PASSES = 10
WARM_UP_PASSES = 2
HELD_LEAVES = 64
"""Leaves issued behind one hold-up: few enough for the queue of launches to take them all."""

LONGEST_S = 0.1
"""How long the device is held up at most for a host that became slower."""


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
            holding.end_pass()
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
        self._held: tuple[float, int] | None = None

    def begin_pass(self) -> None:
        """Hear that a pass begins."""
        self._leaves = 0

    def begin(self) -> None:
        """Hear that a leaf begins."""
        if self._hold is not None and self._leaf_s and self._leaves % HELD_LEAVES == 0:
            self._look_back()
            self._hold(HELD_LEAVES * self._leaf_s * HOLD_UP)
            self._held = time.perf_counter(), self._leaves
        self._leaves += 1

    def end_pass(self) -> None:
        """Hear that all leaves of a pass were issued."""
        self._look_back()
        self._held = None

    def learn(self, step: Callable[[], Any]) -> None:
        """Run a pass, and learn how long the host takes to issue one leaf."""
        self._leaves, self._leaf_s = 0, 0.0
        began_s = time.perf_counter()
        step()
        self._leaf_s = (time.perf_counter() - began_s) / max(self._leaves, 1)

    def _look_back(self) -> None:
        """Learn anew where the host issued the leaves behind the last hold-up more slowly.

        A full queue of launches slows it down as well, the more the longer the device is held up:
        so this goes no further than `LONGEST_S`.
        """
        if self._held is not None:
            began_s, before = self._held
            leaf_s = (time.perf_counter() - began_s) / max(self._leaves - before, 1)
            most_s = LONGEST_S / (HELD_LEAVES * HOLD_UP)
            self._leaf_s = max(self._leaf_s, min(leaf_s, most_s))


def _sums(marks: list[tuple[str, Any, Any]], clock: Clock) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for path, first, last in marks:
        total[path] += clock.elapsed_s(first, last)
    return dict(total)
