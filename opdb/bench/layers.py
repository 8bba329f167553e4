"""Time every leaf module where it stands: events set by hooks, inside the running model."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import nn

from opdb.bench.replay import Clock

PASSES = 10
WARM_UP_PASSES = 2


def time_layers(module: nn.Module, step: Callable[[], Any], clock: Clock) -> dict[str, float]:
    """Return each leaf module's median time in place for one pass (seconds), by its path.

    A leaf that is called more than once in a pass has its calls added. The time between two
    events includes the gap after the launch, so eager sums lie above a sum of operators.
    """
    began: dict[str, list[Any]] = defaultdict(list)
    marks: list[tuple[str, Any, Any]] = []
    handles = []

    def before(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
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
        for _ in range(WARM_UP_PASSES):
            step()
        marks.clear()
        passes = []
        for _ in range(PASSES):
            step()
            clock.wait(clock.mark())
            passes.append(_sums(marks, clock))
            marks.clear()
    finally:
        for handle in handles:
            handle.remove()
    return {path: statistics.median(p[path] for p in passes) for path in passes[0]}


def _sums(marks: list[tuple[str, Any, Any]], clock: Clock) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for path, first, last in marks:
        total[path] += clock.elapsed_s(first, last)
    return dict(total)
