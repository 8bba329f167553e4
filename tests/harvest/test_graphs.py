"""Nodes of captured graphs are tied to the very configurations that a harvest finds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.errors import InputError
from opdb.harvest.passes import harvest
from opdb.records import Configuration
from opdb.spec import ModelSpec
from opdb.studies.fx.graphs import ModelGraphs, model_graphs
from tests.own import Built, model

HERE = "tests.harvest.test_graphs"


@model((2, 8), first=lambda: nn.Linear(8, 8), second=lambda: nn.Linear(8, 8))
def branching(m: Any, x: Tensor) -> Tensor:
    x = m.first(x)
    if x.sum() > 0:
        x = m.second(x)
    return x.relu()


@model((2,))
def failing(m: Any, x: Tensor) -> Tensor:
    raise ValueError("half way")


@model((2, 8))
def leaving(m: Any, x: Tensor) -> Tensor:
    raise SystemExit(3)


def recurrent() -> Built:
    return nn.LSTM(8, 8, batch_first=True), (torch.ones(2, 3, 8),)


def calls(found: ModelGraphs) -> Counter[Configuration]:
    return Counter(call for g in found.graphs for node in g.nodes for call in node.calls)


@pytest.mark.parametrize(
    "request_",
    [
        ModelSpec("resnet18", batch_size=2, input_size=(3, 64, 64)),
        ModelSpec("mobilenet_v3_small", input_size=(3, 64, 64), memory_format="channels_last"),
        ModelSpec("distilbert", input_size=(16,), dtype="bfloat16"),
        ModelSpec("gpt2", input_size=(16,)),
    ],
    ids=lambda request: request.name,
)
def test_nodes_call_what_a_harvest_finds(request_: ModelSpec) -> None:
    found = model_graphs(request_)
    assert (len(found.graphs), found.graph_breaks) == (1, 0)
    # Dynamo of torch 2.14 does not join an empty tensor to another on meta, as GPT-2's cache does.
    joined = request_.name != "gpt2" or not torch.__version__.startswith("2.14.")
    assert found.device == "meta" or not joined
    assert calls(found) == Counter(call.configuration for call in harvest(request_).calls)
    assert all(node.described for node in found.graphs[0].nodes)
    for node in found.graphs[0].nodes:
        if node.operation in ("call_function", "call_method"):
            assert f" {node.name}" in found.graphs[0].text


def test_a_model_that_fails_is_told_of() -> None:
    with pytest.raises(InputError, match="fails under dynamo: ValueError: half way"):
        model_graphs(ModelSpec(f"{HERE}:failing"))
    with pytest.raises(InputError, match="fails under dynamo: SystemExit: 3"):
        model_graphs(ModelSpec(f"{HERE}:leaving"))
    with pytest.raises(InputError, match="unknown model 'resnet81'"):
        model_graphs(ModelSpec("resnet81"))
