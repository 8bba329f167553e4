"""Fused groups: from nodes of a compiler's graph to JSON, and back to a call, compiled.

A group may come from a stranger: it calls reviewed operators of aten alone, and is refused where it
would read beyond its own tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.node import Node, map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from opdb.compiled import inductor
from opdb.errors import UnsupportedError
from opdb.kinds.fused import NAME, packet, words
from opdb.kinds.view import (
    channels_last_strides,
    contiguous_strides,
    packed_strides,
    same_strides,
    strides_of,
)
from opdb.models.inputs import dtype_name, materialize
from opdb.operators.call import BuiltCall
from opdb.operators.encoding import (
    decode,
    encode_constant,
    generator_on,
    no_tensor,
)
from opdb.records import Configuration, Json

# the reviewed operators, and nothing else: none reads files, runs code or changes its arguments


_ATEN = """
abs acos acosh add addcdiv addcmul addmm alias all amax amin any arange argmax argmin asin asinh
atan atan2 atanh avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
adaptive_max_pool2d baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor bmm bucketize cat ceil clamp clamp_max clamp_min clone
constant_pad_nd convolution copy cos cosh cumprod cumsum _cdist_forward diagonal div elu embedding
eq erf erfc erfinv exp exp2 expand expm1 flip floor floor_divide fmax fmin fmod full full_like
gather ge gelu glu grid_sampler_2d gt hardsigmoid hardswish hardtanh index index_add index_copy
index_put index_select isinf isnan le leaky_relu lgamma lift_fresh_copy linspace log log10 log1p
log2 logaddexp logical_and logical_not logical_or logical_xor logsumexp __lshift__ lt max
max_pool2d_with_indices max_pool3d_with_indices maximum mean min minimum mish mm _int_mm mul
native_dropout native_group_norm native_layer_norm ne neg nonzero_static ones ones_like
pad permute _pdist_forward pixel_shuffle pixel_unshuffle pow prod reciprocal reflection_pad1d
reflection_pad2d relu remainder repeat replication_pad2d reshape roll round __rshift__ rsqrt rsub
scalar_tensor _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable
scatter scatter_add scatter_reduce select select_scatter selu
sigmoid sign silu sin sinh slice slice_scatter _softmax _log_softmax softplus sort split
split_with_sizes sqrt squeeze stack sub sum t tan tanh _to_copy topk transpose tril triu trunc
unbind unfold _unsafe_index _unsafe_view unsqueeze upsample_bicubic2d _upsample_bicubic2d_aa
upsample_bilinear2d _upsample_bilinear2d_aa upsample_nearest2d upsample_nearest3d var var_mean std
view where zeros zeros_like as_strided _transformer_encoder_layer_fwd _native_multi_head_attention
"""

_PRIMS = """
_low_memory_max_pool_with_offsets _low_memory_max_pool_offsets_to_indices
_low_memory_max_pool2d_with_offsets _low_memory_max_pool2d_offsets_to_indices
convert_element_type device_put fma inductor_force_stride_order iota
broadcast_in_dim prepare_softmax_online rev
"""

# The one name that is not an operator: it takes an element of another node's result.
GETITEM = "getitem"

# Every allowed name, without overloads.
ALLOWED = frozenset(
    {f"aten.{name}" for name in _ATEN.split()} | {f"prims.{name}" for name in _PRIMS.split()}
)


def is_allowed(name: str) -> bool:
    library, _, rest = name.partition(".")
    return f"{library}.{rest.partition('.')[0]}" in ALLOWED


def operator_named(name: str) -> Any:
    parts = name.split(".")
    if len(parts) != 3 or not is_allowed(name):
        raise UnsupportedError(f"no group may call {name!r}")
    from torch._inductor import inductor_prims  # noqa: F401  (it registers operators of its own)

    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part, None)
    if not isinstance(found, torch._ops.OpOverload) or found._schema.is_mutable:
        raise UnsupportedError(f"torch {torch.__version__} has no operator {name!r}")
    return found


# checks that a group reads only its own tensors: some operators of torch leave that open


VIEWS = words("view reshape permute unsqueeze squeeze expand slice select transpose t alias")
_BY_PLACES = words("index _unsafe_index index_put")
_ALONG_DIM = words("gather index_select index_add index_copy scatter scatter_add scatter_reduce")
_UNCHECKED = "_unsafe_index"
# The most indices that are computed where they depend on no input.
MOST_INDICES = 2**24


def check_bounds(nodes: Sequence[Node], ranges: Sequence[tuple[int, int]]) -> None:
    """Check what the nodes of a group read; what is looked up unchecked and unknown gets a check.

    `ranges` are those of the whole-numbered values of the group's inputs, [low, high).
    """
    made_of_nothing: set[Node] = set()
    for node in nodes:
        if made_of_nothing.issuperset(node.all_input_nodes):
            made_of_nothing.add(node)
        name = packet({"op": str(node.target)})
        if name == "as_strided":
            _check_reach(node)
        elif name.startswith("_scaled_dot_product"):
            _check_attention(node)
        for index, size in _indices(name, node):
            made = index in made_of_nothing
            low, high = _range_of_made(index) if made else _range_of_given(index, ranges)
            wraps = name in _BY_PLACES and name != _UNCHECKED
            least = -size if wraps else 0
            if low < least or high > max(size, 1):
                raise _beyond(node)
            if name == _UNCHECKED and not made:
                node.target = torch.ops.aten.index.Tensor


def _beyond(node: Node) -> UnsupportedError:
    return UnsupportedError(f"{node.target} looks beyond the tensor that it reads")


def _check_reach(node: Any) -> None:
    """Check a strided view: it stays within whatever the tensor that it views is a view of."""
    viewed, sizes, strides, *offset = node.args
    start = int(offset[0] or 0) if offset else 0
    pairs = list(zip(sizes, strides, strict=True))
    reach = start + sum((n - 1) * s for n, s in pairs)
    if min([start, *(s for _, s in pairs)]) < 0 or reach >= _held(viewed) or node.kwargs:
        raise _beyond(node)


def _held(value: Any) -> int:
    """Return the fewest elements of a value and of all that it may be a view of."""
    held = int(value.meta["val"].numel())
    while isinstance(value, Node) and value.op == "call_function" and value.args:
        value = value.args[0]
        if isinstance(value, Node) and isinstance(value.meta["val"], torch.Tensor):
            held = min(held, value.meta["val"].numel())
    return held


def _check_attention(node: Any) -> None:
    given = [_sizes(a) for a in (*node.args, *node.kwargs.values()) if _is_tensor(a)]
    query, key, value, *masks = given
    together = query[0] == key[0] and query[-1] == key[-1] and key[:-1] == value[:-1]
    scores = (*query[:-1], key[-2])
    try:
        fits = all(torch.broadcast_shapes(mask, scores) == scores for mask in masks)
    except RuntimeError:
        fits = False
    if not (together and fits):
        raise _beyond(node)


def _sizes(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta["val"], torch.Tensor)


def _indices(name: str, node: Any) -> Iterator[tuple[Node, int]]:
    """Yield the whole-numbered indices that a node is given, each with the size they are below."""
    args = node.args
    if name == "embedding":
        table, index = args[:2]
        yield index, table.meta["val"].shape[0]
    elif name in _ALONG_DIM:
        read, dim, index = args[:3]
        shape = read.meta["val"].shape or [1]
        yield index, shape[dim]
    elif name in _BY_PLACES:
        shape, place = args[0].meta["val"].shape, 0
        for index in args[1]:
            mask = isinstance(index, Node) and index.meta["val"].dtype in (torch.bool, torch.uint8)
            if isinstance(index, Node) and not mask:
                yield index, shape[place]
            place += index.meta["val"].dim() if mask else 1


def _range_of_given(index: Any, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return from where to below what indices are that are an input, seen another way perhaps.

    Of what is computed from inputs nothing is known: (0, 0).
    """
    while index.op == "call_function" and packet({"op": str(index.target)}) in VIEWS:
        index = index.args[0]
    if index.op != "placeholder":
        return 0, 0
    return ranges[int(index.name.removeprefix("input_"))]


def _range_of_made(index: Node) -> tuple[int, int]:
    """Return the range of indices that depend on no input, computed on the processor."""
    needed, waiting = set[Node](), [index]
    while waiting:
        if (node := waiting.pop()) not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    values: dict[Node, Any] = {}
    for node in index.graph.nodes:
        if node not in needed:
            continue
        if _is_tensor(node) and node.meta["val"].numel() > MOST_INDICES:
            raise UnsupportedError(f"more than {MOST_INDICES} indices made of nothing")
        kwargs = dict(map_arg(node.kwargs, values.__getitem__))
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        values[node] = node.target(*map_arg(node.args, values.__getitem__), **kwargs)
    made = values[index]
    return (int(made.min()), int(made.max()) + 1) if made.numel() else (0, 0)


# nodes to JSON


FORCE = "prims.inductor_force_stride_order.default"
# The placeholder of the device that a group is on.
_OF_DEVICE = {"device": True}

_POSITIVE = frozenset({"rsqrt", "sqrt", "log", "log2", "log10", "lgamma"})
_DIVIDING = frozenset({"div", "floor_divide", "remainder", "fmod"})
# Through these a positive input stays positive.
_ON_THE_WAY = frozenset({"add", "unsqueeze", "convert_element_type", "reshape", "view", "expand"})
_WHOLE = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})


def encode_argument(value: Any, reference: Callable[[Node], Json]) -> Json:
    if isinstance(value, Node):
        return reference(value)
    if isinstance(value, list | tuple):
        return [encode_argument(item, reference) for item in value]
    if isinstance(value, torch.device):
        return dict(_OF_DEVICE)
    return encode_constant(value)


def encode_node(node: Node, reference: Callable[[Node], Json]) -> Json:
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
    shape, strides, dtype = layout
    spec: dict[str, Json] = {"shape": list(shape), "dtype": dtype_name(dtype)}
    found = layout_of(shape, strides)
    return spec if found is None else {**spec, "layout": found}


# From a configuration to a call


def build_fused(configuration: Configuration, device: str, seed: int) -> BuiltCall:
    """Build the call that a fused group's configuration describes, compiled for the device.

    On meta it is not compiled.
    """
    try:
        specs = list(configuration.inputs["inputs"])
        tensors = _tensors(configuration, specs, device, seed)
        run = _compiled(configuration, tensors, device)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise UnsupportedError(f"cannot build {NAME}: {error}") from error
    weights = [t for t, spec in zip(tensors, specs, strict=True) if spec.get("role") == "weight"]
    inputs = [t for t, spec in zip(tensors, specs, strict=True) if spec.get("role") != "weight"]
    given = tuple(tensors)
    return BuiltCall(configuration, run, given, _device=device, inputs=inputs, weights=weights)


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


# The groups compiled in this process, by configuration and device: compiling takes seconds.
_built: dict[tuple[str, str], Callable[..., Any]] = {}


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
        return decode(value, no_tensor)

    for node in nodes:
        target = operator.getitem if node["op"] == GETITEM else operator_named(node["op"])
        args = tuple(argument(value) for value in node["args"])
        kwargs = {name: argument(value) for name, value in node.get("kwargs", {}).items()}
        made.append(graph.call_function(target, args, kwargs))
    output_specs = configuration.parameters["outputs"]
    graph.output(tuple(map(argument, output_specs)))
    module = GraphModule({}, graph)
    _propagate(module, tensors)
    for node, node_spec in zip(made, nodes, strict=True):
        if _shape(node.meta["val"]) != node_spec["shape"]:
            raise UnsupportedError(
                f"{node_spec['op']} gives {_shape(node.meta['val'])}, expected {node_spec['shape']}"
            )
    check_bounds(made, [_range(spec) for spec in configuration.inputs["inputs"]])
    _force_layouts(module, output_specs, optimized=is_layout_optimized(configuration))
    return module


def _range(spec: Json) -> tuple[int, int]:
    """Return from where to below what an input's values are, where they are whole numbers."""
    values = spec.get("values")
    low, high = values["range"] if isinstance(values, dict) and "range" in values else (0, 2)
    return int(low), max(int(high), int(low) + 1)


def _propagate(module: GraphModule, tensors: Sequence[Tensor]) -> None:
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


# entering a compiled graph: the guards on a model's modules and weights, its inputs and outputs
#
# A stand-in is entered, of as many weights as the model's graph: blocks of a norm, a linear layer,
# an activation and a dropout. What a model's own code makes dynamo guard beyond that is not known.


WEIGHTS_A_BLOCK = 4
# Compiling a stand-in takes some 10 ms a weight; a stranger might ask for any number.
MOST_WEIGHTS = 10_000


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(2), nn.Linear(2, 2)
        self.activation, self.dropout = nn.GELU(), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.dropout(self.activation(self.linear(self.norm(x))))
        return y


class _Blocks(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block() for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x + 1


def build_entry(configuration: Configuration, device: str) -> BuiltCall:
    """Build the call that enters a compiled graph of a number of weights and runs nothing in it."""
    weights = configuration.parameters.get("weights")
    if not isinstance(weights, int) or not 0 <= weights <= MOST_WEIGHTS:
        raise UnsupportedError(f"a graph of {weights!r} weights cannot be entered")
    given = torch.ones(2, 2, device=device)
    module = _Blocks(round(weights / WEIGHTS_A_BLOCK)).to(device).eval()
    module.forward = _own(_Blocks.forward).__get__(module)  # type: ignore[method-assign]
    run: Any = module if given.is_meta else inductor.entered(module, given)
    return BuiltCall(configuration, run, (given,), _device=device, inputs=[given])


def _own(function: Any) -> Any:
    """Return a function with code of its own: of each code, dynamo compiles a few variants only."""
    return FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
