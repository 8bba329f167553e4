"""Predicted operators in the form that Inductor reads as a profile: durations of aten operators.

Inductor's profile-guided estimates look an operator up by its aten name, the shapes and strides of
its tensors, and its dtype. A call of a configuration is made on the meta device to see which aten
operator computes it; a call that several compute is left out, because its time is that of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.compose import CallCost, Schedule
from opdb.errors import UnsupportedError
from opdb.operators.build import build
from opdb.operators.profiled import ELEMENT_TYPES
from opdb.records import Configuration, Json
from opdb.trace.chrome import as_bytes
from opdb.units import MICRO, plural

_NO_WORK = frozenset(["aten::_unsafe_view", "aten::detach"])


@dataclass(frozen=True)
class Written:
    """A profile for Inductor: the document, and how many configurations are in it and are not."""

    document: dict[str, Json]
    included: int
    left_out: int

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return as_bytes(self.document)

    @property
    def said(self) -> str:
        """What is in it, in words."""
        return (
            f"times of {plural(self.included, 'configuration')}; {self.left_out} left out, which "
            "are not one aten operator"
        )


class _Seen(TorchDispatchMode):
    """Records the aten operators of a call that compute something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        if not func.is_view and name not in _NO_WORK:
            self.calls.append((name, tuple(args)))
        return func(*args, **(kwargs or {}))


def inductor_profile(schedule: Schedule) -> Written:
    """Return the device times of a predicted pass's operators as Inductor reads them."""
    events: list[Json] = []
    called = {slot.call.configuration.key: slot.call.configuration for slot in schedule.slots}
    costs = [(called[key], cost) for key, cost in schedule.costs.items() if key in called]
    timed = [(configuration, cost) for configuration, cost in costs if cost.time_s.mean > 0]
    included = 0
    for configuration, cost in timed:
        if (args := _described(configuration)) is not None:
            included += 1
            events += _events(included, args, cost)
    document: dict[str, Json] = {"schemaVersion": 1, "traceEvents": events}
    return Written(document, included, len(timed) - included)


def _events(number: int, found: tuple[str, dict[str, Json]], cost: CallCost) -> list[Json]:
    """Return an operator's event, and that of its work on the device."""
    name, args = found
    at = {"ph": "X", "ts": float(number), "dur": cost.time_s.mean / MICRO}
    ids = {"External id": number}
    return [
        {**at, "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "args": {**ids, **args}},
        {**at, "cat": "kernel", "name": name, "pid": 0, "tid": 7, "args": ids},
    ]


def _described(configuration: Configuration) -> tuple[str, dict[str, Json]] | None:
    """Return the aten operator that computes a call, and its tensors; None where several do."""
    if configuration.pass_name != "forward" or configuration.autocast is not None:
        return None
    try:
        call = build(configuration, device="meta")
        with _Seen() as seen:
            call()
    except (UnsupportedError, RuntimeError, NotImplementedError):
        return None  # some operators need data: no shape tells how long they take
    if len(seen.calls) != 1:
        return None
    [(name, args)] = seen.calls
    tensors = [each for each in args if isinstance(each, Tensor)]
    if not tensors or any(each.dtype not in _names() for each in tensors):
        return None
    return name.removesuffix("_"), {  # Inductor's graphs change nothing in place
        "Input Dims": [list(each.shape) for each in tensors],
        "Input Strides": [list(each.stride()) for each in tensors],
        "Input type": [_names()[each.dtype] for each in tensors],
    }


@cache
def _names() -> Mapping[torch.dtype, str]:
    """Return how profiles spell the types of elements."""
    return {dtype: name for name, dtype in reversed(ELEMENT_TYPES.items())}
