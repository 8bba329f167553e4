"""Fused groups: from nodes of a compiler's graph to JSON, and back to a call, compiled."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.node import Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from opdb.compile import inductor
from opdb.errors import UnsupportedError
from opdb.kinds.fused import NAME, packet
from opdb.kinds.layout import (
    channels_last_strides,
    contiguous_strides,
    packed_strides,
    same_strides,
    strides_of,
)
from opdb.operators.aten import GETITEM, is_allowed
from opdb.operators.aten import operator as operator_named
from opdb.operators.bounds import check_bounds
from opdb.operators.call import BuiltCall
from opdb.operators.encoding import decode, dtype_name, encode_constant
from opdb.operators.values import generator_on, materialize
from opdb.records import Configuration, Json

FORCE = "prims.inductor_force_stride_order.default"
_OF_DEVICE = {"device": True}
"""The placeholder of the device that a group is on."""

_POSITIVE = frozenset({"rsqrt", "sqrt", "log", "log2", "log10", "lgamma"})
_DIVIDING = frozenset({"div", "floor_divide", "remainder", "fmod"})
_ON_THE_WAY = frozenset({"add", "unsqueeze", "convert_element_type", "reshape", "view", "expand"})
"""Through these a positive input stays positive."""
_WHOLE = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})


def encode_argument(value: Any, reference: Callable[[Node], Json]) -> Json:
    """Return the JSON of an argument of a node; `reference` gives that of another node.

    Raises:
        UnsupportedError: JSON cannot name the argument.
    """
    if isinstance(value, Node):
        return reference(value)
    if isinstance(value, list | tuple):
        return [encode_argument(item, reference) for item in value]
    if isinstance(value, torch.device):
        return dict(_OF_DEVICE)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise UnsupportedError("a size that depends on values")
    return encode_constant(value)


def encode_node(node: Node, reference: Callable[[Node], Json]) -> Json:
    """Return the JSON of a node of a compiler's graph.

    Raises:
        UnsupportedError: no group may hold such a node.
    """
    name = GETITEM if node.target is operator.getitem else _functional(node)
    if name != GETITEM and not is_allowed(name):
        raise UnsupportedError(name)
    encoded: dict[str, Json] = {
        "op": name,
        "args": [encode_argument(value, reference) for value in node.args],
        "shape": _shape(node.meta["val"]),
    }
    kept = {
        key: encode_argument(value, reference)
        for key, value in node.kwargs.items()
        if value is not None and key not in ("layout", "pin_memory")
    }
    return {**encoded, "kwargs": kept} if kept else encoded


def _functional(node: Node) -> str:
    """Return the name of a node's operator; of one that changes its argument, of its like."""
    name = str(node.target)
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return name
    library, packed, overload = name.split(".")
    return f"{library}.{packed.removesuffix('_')}.{overload}"


def _shape(value: Any) -> Json:
    if isinstance(value, Tensor):
        if any(not isinstance(size, int) for size in value.shape):
            raise UnsupportedError("a size that depends on values")
        return list(value.shape)
    if isinstance(value, list | tuple):
        return [_shape(item) for item in value]
    return []


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> Json | None:
    """Return a layout as a spec spells it; dimensions of one element lie as the others suggest."""
    if _same_layout(shape, strides, contiguous_strides(list(shape))):
        return None
    if len(shape) in (4, 5) and _same_layout(shape, strides, channels_last_strides(list(shape))):
        return "channels_last"
    return list(strides)


def dense(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return strides in the order of these that leave nothing out."""
    return packed_strides(shape, sorted(range(len(shape)), key=lambda i: (strides[i], -i)))


def _same_layout(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    return 0 in shape or same_strides(shape, one, other)


def spec_of(layout: inductor.Layout) -> dict[str, Json]:
    """Return the spec of a buffer."""
    shape, strides, dtype = layout
    spec: dict[str, Json] = {"shape": list(shape), "dtype": dtype_name(dtype)}
    found = layout_of(shape, strides)
    return spec if found is None else {**spec, "layout": found}


# From a configuration to a call


def build_fused(configuration: Configuration, device: str, seed: int) -> BuiltCall:
    """Build the call that a fused group's configuration describes, compiled for the device.

    On meta it is not compiled.

    Raises:
        UnsupportedError: it holds what no group may hold, or what this torch lacks.
    """
    try:
        specs = list(configuration.inputs["inputs"])
        tensors = _tensors(configuration, specs, device, seed)
        run = _compiled(configuration, tensors, device)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise UnsupportedError(f"cannot build {NAME}: {error}") from error
    of_weights = [spec.get("role") == "weight" for spec in specs]
    return BuiltCall(
        configuration,
        "function",
        [t for t, is_weight in zip(tensors, of_weights, strict=True) if not is_weight],
        [t for t, is_weight in zip(tensors, of_weights, strict=True) if is_weight],
        (),
        None,
        run,
        tuple(tensors),
        {},
        device,
    )


def _tensors(
    configuration: Configuration, specs: Sequence[Json], device: str, seed: int
) -> list[Tensor]:
    generator = generator_on(device, seed)
    nodes: list[Json] = list(configuration.parameters["nodes"])
    positive, divisors = _inputs_of(nodes, _POSITIVE, 0), _inputs_of(nodes, _DIVIDING, 1)
    tensors = []
    for place, spec in enumerate(specs):
        tensor = materialize(spec, device, generator)
        if place in positive and tensor.is_floating_point():
            tensor.abs_().add_(0.5)
        elif place in divisors and tensor.dtype in _WHOLE:
            tensor.clamp_(min=1)
        tensors.append(tensor)
    return tensors


def _inputs_of(nodes: Sequence[Json], names: Collection[str], place: int) -> set[int]:
    """Return the inputs that operators of these names are given here, perhaps after an addition."""
    found: set[int] = set()
    for node in nodes:
        argument = node["args"][place] if packet(node) in names else None
        while isinstance(argument, dict) and "node" in argument:
            before = nodes[argument["node"]]
            argument = before["args"][0] if packet(before) in _ON_THE_WAY else None
        if isinstance(argument, dict) and "input" in argument:
            found.add(argument["input"])
    return found


_built: dict[tuple[str, str], Callable[..., Any]] = {}
"""The groups compiled in this process, by configuration and device: compiling takes seconds."""


def _compiled(
    configuration: Configuration, tensors: Sequence[Tensor], device: str
) -> Callable[..., Any]:
    place = configuration.key, device
    if place not in _built:
        graph = graph_of(configuration, tensors, device)
        if torch.device(device).type == "meta":
            return graph.forward
        optimized = is_layout_optimized(configuration)
        run = inductor.compiled(graph, tensors, layout_optimized=optimized)

        def call(*tensors: Tensor) -> Any:
            return run(list(tensors))

        _built[place] = call
    return _built[place]


def is_layout_optimized(configuration: Configuration) -> bool:
    """Return whether the compiler brought convolutions to channels last where a group is from."""
    return bool(configuration.parameters.get("layout_optimized", False))


def graph_of(
    configuration: Configuration, tensors: Sequence[Tensor], device: str = "cpu"
) -> GraphModule:
    """Return the graph of a fused group that is called with these tensors, on their device.

    Raises:
        UnsupportedError: it holds what no group may hold, or gives other shapes than it says.
    """
    nodes: list[Json] = list(configuration.parameters["nodes"])
    graph = Graph()
    given = [graph.placeholder(f"input_{place}") for place in range(len(tensors))]
    made: list[Node] = []

    def argument(value: Json) -> Any:
        if isinstance(value, list):
            return [argument(item) for item in value]
        if value == _OF_DEVICE:
            return torch.device(device)
        if isinstance(value, dict) and "node" in value:
            return made[value["node"]]
        if isinstance(value, dict) and "input" in value:
            return given[value["input"]]
        if isinstance(value, str) and not value.isidentifier():
            raise UnsupportedError(f"no operator takes {value!r}")
        return decode(value, _no_tensor)

    for node in nodes:
        target = operator.getitem if node["op"] == GETITEM else operator_named(node["op"])
        args = tuple(argument(value) for value in node["args"])
        kwargs = {name: argument(value) for name, value in node.get("kwargs", {}).items()}
        made.append(graph.call_function(target, args, kwargs))
    outputs = [argument(output) for output in map(_reference, configuration.parameters["outputs"])]
    graph.output(tuple(outputs))
    module = GraphModule({}, graph)
    _propagate(module, tensors)
    for node, node_spec in zip(made, nodes, strict=True):
        if _shape(node.meta["val"]) != node_spec["shape"]:
            raise UnsupportedError(
                f"{node_spec['op']} gives {_shape(node.meta['val'])}, expected {node_spec['shape']}"
            )
    check_bounds(made, [_range(spec) for spec in configuration.inputs["inputs"]])
    output_specs = configuration.parameters["outputs"]
    _force_layouts(module, output_specs, optimized=is_layout_optimized(configuration))
    return module


def _range(spec: Json) -> tuple[int, int]:
    """Return from where to below what an input's values are, where they are whole numbers."""
    values = spec.get("values")
    low, high = values["range"] if isinstance(values, dict) and "range" in values else (0, 2)
    return int(low), max(int(high), int(low) + 1)


def _reference(output: Json) -> Json:
    return {name: output[name] for name in ("node", "input") if name in output}


def _no_tensor(spec: Json) -> Tensor:
    raise UnsupportedError(f"a tensor among the arguments: {spec!r}")


def _propagate(module: GraphModule, tensors: Sequence[Tensor]) -> None:
    """Have each node know the shape and layout of what it gives.

    Raises:
        UnsupportedError: torch refuses a call.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
            FakeTensorProp(module, mode=mode).propagate(*tensors)
    except RuntimeError as error:
        raise UnsupportedError(f"torch refuses {NAME}: {str(error).splitlines()[0]}") from error


def _force_layouts(module: GraphModule, outputs: Sequence[Json], *, optimized: bool) -> None:
    """Lay outputs out as the configuration says, where they would not be by themselves."""
    graph = module.graph
    returned = next(iter(reversed(graph.nodes)))
    forced = []
    for node, node_spec in zip(returned.args[0], outputs, strict=True):
        value = node.meta["val"]
        shape = list(value.shape)
        strides = dense(shape, strides_of({"shape": shape, "layout": node_spec.get("layout")}))
        if str(node.target) == FORCE or _same_layout(shape, strides, value.stride()):
            forced.append(node)
            continue
        with graph.inserting_after(node):
            laid = graph.call_function(operator_named(FORCE), (node, strides))
        node.replace_all_uses_with(laid, lambda user, laid=laid: user is not laid)
        forced.append(laid)
    returned.args = (tuple(forced),)
    if optimized:
        inductor.keep_layouts(returned, len(forced))
    module.recompile()
