"""A second opinion on completeness, that shares no code with what the harvest decides by.

Under a dispatch mode of its own it sees every operator that reaches PyTorch's dispatcher and asks
the recorder which recorded operator, if any, is running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.harvest.passes import record
from opdb.harvest.recorder import Recorder
from opdb.models import load
from opdb.spec import ModelSpec

# Spelled out from the list of ATen operators: these make a view, a handle or bare memory.
_IDLE = frozenset(
    (
        *("alias", "as_strided", "chunk", "detach", "diagonal", "expand"),
        *("imag", "lift", "lift_fresh", "permute", "real", "select"),
        *("slice", "split", "split_with_sizes", "squeeze", "t", "transpose"),
        *("unbind", "unfold", "unsqueeze", "view", "view_as_complex", "view_as_real"),
        *("_reshape_alias", "_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty"),
        *("new_empty_strided", "empty_permuted", "set_", "resize_", "sym_size", "sym_stride"),
        *("sym_numel"),
    )
)


@dataclass
class Verdict:
    """What the oracle saw: computing operators by the recorded call they ran in."""

    recorder: Recorder
    inside: dict[int, list[str]] = field(default_factory=dict)
    outside: Counter[str] = field(default_factory=Counter)

    def faults(self) -> list[str]:
        """Return in words what is not as it must be; empty where the record is complete."""
        found = [f"{n} x {name} outside every call" for name, n in self.outside.items()]
        calls = self.recorder.calls
        found += [f"call {i} is not recorded" for i in self.inside if i >= len(calls)]
        order = list(self.inside)
        if order != sorted(order):
            found.append("calls ran in another order than recorded")
        return found


class Oracle(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.verdict = Verdict(recorder)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name not in _IDLE:
            active = self.verdict.recorder.active
            if active is None:
                self.verdict.outside[name] += 1
            else:
                self.verdict.inside.setdefault(active, []).append(name)
        return func(*args, **(kwargs or {}))


def consult(request: ModelSpec, device: str) -> Verdict:
    """Run the model under recorder and oracle, on a device: the last pass counts."""
    made: list[Oracle] = []

    def observe(recorder: Recorder) -> TorchDispatchMode:
        made.append(Oracle(recorder))
        return made[-1]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        record(load(request, device=device), observer=observe)
    return made[-1].verdict
