"""A model's FX graphs, each node tied to the operators that it calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx.node import Node as FxNode

from opdb.compiled.inductor import Break, capture_graphs
from opdb.errors import OpdbError
from opdb.harvest.recorder import Recorder
from opdb.models import LoadedModel, load
from opdb.models.construction import ANY_FAILURE, ModelFailureError, one_line
from opdb.models.meta import fused_attention_on_meta
from opdb.records import Configuration
from opdb.spec import ModelSpec

_PUBLIC: dict[Any, Any] = {torch._C._nn.pad: torch.nn.functional.pad}
"""The function that dynamo calls inside a public one that does nothing else, and the public one."""


@dataclass(frozen=True)
class Node:
    """`described` is false where it computes and no registered operator describes it."""

    name: str
    operation: str
    target: str
    calls: tuple[Configuration, ...] = ()
    described: bool = True


@dataclass(frozen=True)
class Graph:
    text: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class ModelGraphs:
    """Of one pass; `loaded` is the model, without its weights, and its inputs."""

    loaded: LoadedModel
    graphs: tuple[Graph, ...]
    breaks: tuple[Break, ...]
    graph_breaks: int
    device: str
    torch: str


def model_graphs(request: ModelSpec) -> ModelGraphs:
    """As harvesting does, on the meta device, or on the CPU for a model that asks for values."""
    try:
        return _captured(load(request, device="meta"), "meta")
    except ModelFailureError:  # perhaps for lack of values: the CPU shows
        return _captured(load(request, device="cpu"), "cpu")


def _captured(loaded: LoadedModel, device: str) -> ModelGraphs:
    nodes: dict[int, dict[str, Node]] = {}
    recorder = Recorder(loaded.module)
    recorder.declare(loaded)

    def run(graph: GraphModule, inputs: tuple[Any, ...]) -> Any:
        watched = _Watched(graph, recorder)
        with recorder.watching():
            output = watched.run(*inputs)
        nodes[id(graph)] = watched.seen
        return output

    try:
        with fused_attention_on_meta():
            found = capture_graphs(loaded.module, loaded.args, loaded.kwargs, run)
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a model's forward is anyone's code and may raise anything
        raise ModelFailureError(f"{loaded.name!r} fails under dynamo: {one_line(error)}") from error
    return ModelGraphs(
        loaded,
        tuple(_graph(each, nodes.get(id(each), {})) for each in found.graphs),
        found.breaks,
        found.graph_breaks,
        device,
        torch.__version__,
    )


def _graph(graph: GraphModule, seen: dict[str, Node]) -> Graph:
    nodes = tuple(seen.get(node.name) or _node(node) for node in graph.graph.nodes)
    return Graph(graph.print_readable(print_output=False), nodes)


def _node(node: FxNode, calls: tuple[Configuration, ...] = (), *, described: bool = True) -> Node:
    target = node.target
    if not isinstance(target, str):
        target = f"{getattr(target, '__module__', None)}.{getattr(target, '__name__', target)}"
    return Node(node.name, node.op, target, calls, described)


class _Watched(Interpreter):
    def __init__(self, graph: GraphModule, recorder: Recorder) -> None:
        super().__init__(graph)
        self._recorder = recorder
        self.seen: dict[str, Node] = {}

    def run_node(self, n: FxNode) -> Any:
        calls, left = len(self._recorder.calls), self._recorder.unsupported.total()
        output = super().run_node(n)
        made = tuple(call.configuration for call in self._recorder.calls[calls:])
        described = self._recorder.unsupported.total() == left
        self.seen[n.name] = _node(n, made, described=described)
        return output

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(_PUBLIC.get(target, target), args, kwargs)
