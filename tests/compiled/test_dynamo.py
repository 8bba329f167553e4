"""Graphs and breaks are those that torch's own `explain` counts, on real models."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.compiled.inductor import Captured, capture_graphs, in_short
from tests.own import model

LAYER = {"linear": lambda: nn.Linear(8, 8)}
LAYERS = {"first": lambda: nn.Linear(8, 8), "second": lambda: nn.Linear(8, 8)}


@model((2, 8), **LAYERS)
def broken(m: Any, x: Tensor) -> Any:
    """A break in the middle: dynamo cannot trace a print."""
    x = m.first(x)
    print(end="")
    return m.second(x).relu()


@model((2, 8), **LAYERS)
def branching(m: Any, x: Tensor) -> Tensor:
    """Control flow that hangs on data."""
    x = m.first(x)
    if x.sum() > 0:
        x = m.second(x)
    return x.relu()


@model((2, 8))
def early(m: Any, x: Tensor) -> Tensor:
    """A break before there is anything to keep."""
    print(end="")
    return x.relu() + 1


@model((2, 8), **LAYER, passes=lambda: 0)
def counting(m: Any, x: Tensor) -> Any:
    """Counts its passes, which dynamo takes for a constant; its outputs do not tell."""
    m.passes += 1
    y = m.linear(x)
    return y + 1 if m.passes % 1_000_000 == 0 else y.relu()


@model((2, 8), **LAYER, kept=list)
def cached(m: Any, x: Tensor) -> Tensor:
    """Has another graph in each of its first passes."""
    m.kept = [*m.kept, m.linear(x)][-3:]
    return torch.stack(m.kept).sum(0)


def explained(module: nn.Module, args: Any, kwargs: Any) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch._dynamo.explain(module)(*args, **kwargs)


def both(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Captured, Any]:
    return capture_graphs(module, args, kwargs), explained(module, args, kwargs)


@pytest.mark.parametrize(
    ("module", "shape", "graphs", "breaks"),
    [
        (broken()[0], (2, 8), 2, 1),
        (branching()[0], (2, 8), 2, 1),
        (early()[0], (2, 8), 1, 0),
        (nn.Sequential(nn.Linear(8, 8), broken()[0], branching()[0]), (2, 8), 4, 3),
    ],
    ids=["break", "branch", "early", "several"],
)
def test_as_many_graphs_and_breaks_as_explain_counts(
    module: nn.Module, shape: tuple[int, ...], graphs: int, breaks: int
) -> None:
    found, told = both(module.eval(), torch.ones(shape))
    assert len(found.graphs) == told.graph_count == graphs
    assert found.graph_breaks == told.graph_break_count == breaks
    ended = [each for each in found.breaks if each.place is not None]
    assert [each.reason for each in ended] == [in_short(b.reason) for b in told.break_reasons]
    assert [len(g.graph.nodes) for g in found.graphs] == [len(g.graph.nodes) for g in told.graphs]


@pytest.mark.parametrize(
    "module",
    [nn.LSTM(8, 8), nn.Sequential(nn.Linear(8, 8), nn.LSTM(8, 8))],
    ids=["lstm", "lstm in a sequence"],
)
def test_a_model_that_is_left_as_it_is_has_no_graph_and_it_is_told_why(module: nn.Module) -> None:
    found, told = both(module, torch.ones(3, 2, 8))
    assert found.graphs == () and told.graph_count == 0
    assert found.graph_breaks == 0, "no graph was broken; explain counts one less than graphs: -1"
    assert "LSTM" in found.why
