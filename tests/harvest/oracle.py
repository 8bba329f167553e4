"""Second opinions on a harvest, that share no code with what it decides by.

Under a dispatch mode of its own the oracle sees every operator that reaches PyTorch's dispatcher
and asks the recorder which recorded operator, if any, is running. And what was written down is
built again, and called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.harvest.passes import record
from opdb.harvest.recorder import Recorder
from opdb.models import load
from opdb.models.inputs import tensors
from opdb.operators import build
from opdb.records import Configuration, Form
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


class Oracle(TorchDispatchMode):
    """Keeps the computing operators by the recorded call that they ran in, and those in none."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder
        self.inside: dict[int, list[str]] = {}
        self.outside = Counter[str]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name not in _IDLE:
            if self.recorder.covered:
                self.inside.setdefault(len(self.recorder.calls), []).append(name)
            else:
                self.outside[name] += 1
        return func(*args, **(kwargs or {}))

    def faults(self) -> list[str]:
        """Return in words what is not as it must be; empty where the record is complete."""
        found = [f"{n} x {name} outside every call" for name, n in self.outside.items()]
        known = len(self.recorder.calls)
        found += [f"call {i} is not recorded" for i in self.inside if i >= known]
        order = list(self.inside)
        if order != sorted(order):
            found.append("calls ran in another order than recorded")
        return found


Outputs = list[tuple[list[int], torch.dtype]]


class Opinion:
    """A model run under recorder and oracle on a device, its calls' outputs kept."""

    def __init__(self, request: ModelSpec, device: str) -> None:
        outputs: dict[tuple[Configuration, Form], Outputs] = {}
        oracles: list[Oracle] = []

        class Keeping(Recorder):
            def _note(
                self, configuration: Configuration | None, form: Form, args: Any, output: Any
            ) -> None:
                if configuration is None:
                    oracles[-1].outside.update(oracles[-1].inside.pop(len(self.calls), ()))
                else:
                    outputs[configuration, form] = _seen(output)
                super()._note(configuration, form, args, output)

            @contextmanager
            def watching(self) -> Iterator[None]:
                oracles.append(Oracle(self))
                with super().watching(), oracles[-1]:
                    yield

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loaded = load(request, device=device)
            self.recorder = record(loaded, recorder_type=Keeping)
        self.oracle, self.outputs, self.device = oracles[-1], outputs, device

    def mismatches(self) -> list[str]:
        """Return which calls, built from what is written down, give other shapes or dtypes."""
        wrong = []
        for (configuration, form), expected in self.outputs.items():
            read = Configuration.from_json(configuration.json)
            found = _seen(build(read, form=form, device=self.device)())
            if found != expected:
                wrong.append(f"{configuration.json} ({form}): {found} instead of {expected}")
        return wrong


def _seen(output: Any) -> Outputs:
    return [(list(tensor.shape), tensor.dtype) for tensor in tensors(output)]
