"""A training step is the sum of its operators: rebuilt, they run together what the step runs.

A dispatch mode, which shares no code with the harvest, sees both on this processor: the operators
that compute, with the shape and dtype of what they return.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.bench.model import TrainingStep
from opdb.harvest.passes import harvest, record
from opdb.models import load
from opdb.operators import build
from opdb.spec import ModelSpec
from tests.own import model

F = nn.functional
HERE = "tests.harvest.test_step"

IDLE = frozenset(
    (
        *("alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice"),
        *("split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold"),
        *("unsqueeze", "view", "_unsafe_view", "_reshape_alias", "lift_fresh", "_record_function"),
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        *("_record_function_enter_new", "_record_function_exit"),
    )
)
"""Views, bare memory, and the profiler's marks."""

SAME = {"copy": "clone"}
"""A copy into a tensor made for it is a clone, or a change of layout."""


class Seeing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2].rstrip("_")  # the engine adds in place, or not
        if name not in IDLE:
            outputs = output if isinstance(output, list | tuple) else [output]
            first = next((t for t in outputs if isinstance(t, Tensor)), None)
            made = None if first is None else (tuple(first.shape), first.dtype)
            self.seen[SAME.get(name, name), made] += 1
        return output


@model(
    (2, 8),
    body=lambda: nn.Linear(8, 12),
    drop=lambda: nn.Dropout(0.5, inplace=True),
    head=lambda: nn.Linear(12, 4),
)
def changed_view(m: Any, x: Tensor) -> Any:
    """Changes parts of tensors in place: one that is used after it, and one that is not."""
    x = m.body(x)
    x[:, 3:9].mul_(x[:, :1].detach() + 2)
    x = m.drop(torch.sin(x).view(-1, 12))
    x[:, 2:5] += 1
    x[:, 0] = 3
    return m.head(x)


@model(
    (2, 3, 12, 12),
    stem=lambda: nn.Conv2d(3, 8, 3),
    norm=lambda: nn.LayerNorm(8),
    down=lambda: nn.Conv2d(8, 6, 2, stride=2),
)
def other_layout(m: Any, x: Tensor) -> Any:
    """Its convolution is given channels_last, so that its weight's gradient comes so."""
    x = m.norm(m.stem(x).permute(0, 2, 3, 1))
    return m.down(x.permute(0, 3, 1, 2)).mean((2, 3))


@model(
    (2, 6, 8),
    asking=lambda: nn.Linear(8, 8),
    asked=lambda: nn.Linear(8, 16).requires_grad_(False),
    head=lambda: nn.Linear(8, 4),
)
def frozen_keys(m: Any, x: Tensor) -> Any:
    """Attends to what a frozen layer makes: no gradient is asked of keys and values."""
    query = m.asking(x).view(2, 6, 2, 4).transpose(1, 2)
    key, value = m.asked(x).view(2, 6, 2, 2, 4).permute(2, 0, 3, 1, 4)
    x = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    return m.head(x.mean(1))


@model(
    (2, 6, 8),
    body=lambda: nn.Linear(8, 24),
    bias=lambda: nn.Parameter(torch.randn(1, 2, 6, 6)),
    head=lambda: nn.Linear(8, 4),
)
def learned_bias(m: Any, x: Tensor) -> Any:
    """Attends twice with a learned bias, for which a processor runs other operators than a GPU."""
    for _ in range(2):
        q, k, v = m.body(x).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, torch.sin(m.bias)).transpose(1, 2).flatten(2)
    return m.head(x.mean(1))


@model((2, 6, 8), cell=lambda: nn.LSTMCell(8, 8), head=lambda: nn.Linear(8, 4))
def cells(m: Any, x: Tensor) -> Any:
    """Runs a cell step by step: nothing uses its last state, and each other one goes to two."""
    output = state = x.new_zeros(2, 8)
    for step in range(3):
        output, state = m.cell(x[:, step], (output, state))
    return m.head(output)


@model(
    (2, 6, 8),
    body=lambda: nn.Linear(8, 8),
    bias=lambda: nn.Parameter(torch.randn(2, 6, 6)),
    head=lambda: nn.Linear(8, 4),
)
def biased_scores(m: Any, x: Tensor) -> Any:
    """Adds a bias to scores in place, which a product has returned as a view of what it made."""
    y = m.body(x).view(-1, 6, 2, 4)
    scores = torch.einsum("bqhd,bkhd->bhqk", y, y)
    scores += m.bias
    return m.head(torch.matmul(scores, x[:, None]).mean((1, 2)))


def asked(name: str) -> ModelSpec:
    size = (3, 64, 64) if ":" not in name and name != "lstm" else None
    return ModelSpec(name, phase="training", batch_size=2, input_size=size)


@pytest.mark.parametrize(
    "name",
    [
        *(f"{HERE}:{own}" for own in ("changed_view", "biased_scores", "other_layout", "cells")),
        *("lstm", "mnasnet0_5", "shufflenet_v2_x0_5"),
        pytest.param("swin_v2_t", marks=pytest.mark.slow),
    ],
)
def test_operators_run_together_what_a_step_runs(name: str) -> None:
    workload = harvest(asked(name))
    assert workload.unsupported == {}
    step = TrainingStep(load(asked(name), device="cpu"), asked(name))
    step()  # makes the optimizer's state
    with Seeing() as real:
        step()
    together: Counter[tuple[Any, ...]] = Counter()
    for configuration, count in workload.occurrences().items():
        call = build(configuration, device="cpu")
        call()
        with call.modes(), Seeing() as one:
            call()
        for made, runs in one.seen.items():
            together[made] += count * runs
    assert real.seen - together == Counter()
    assert together - real.seen == Counter()


@pytest.mark.parametrize(
    "name",
    [f"{HERE}:frozen_keys", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5"],
)
def test_gradients_are_laid_out_on_meta_as_with_values(name: str) -> None:
    request = replace(asked(name), memory_format="channels_last")
    on_meta, here = (
        record(load(request, device=device), training=request.training)
        for device in ("meta", "cpu")
    )
    pairs = zip(on_meta.calls, here.calls, strict=True)
    assert [(m.configuration.json, h.configuration.json) for m, h in pairs if m != h] == []
