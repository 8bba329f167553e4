"""Fused groups: a small graph of aten operators that a compiler makes one operator.

The graph is data. `inputs` are its tensors; `nodes` its operators in order, each with its name, its
arguments, and the shape that it gives (a list of shapes where it gives several tensors):

    {"op": "aten.add.Tensor", "args": [{"node": 0}, {"input": 1}], "shape": [1, 64, 56, 56]}

where {"node": i} is what an earlier node gives. `outputs` says which nodes' tensors are kept, with
their dtype, and their layout where it is not contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from opdb.kinds import view as v
from opdb.kinds.families import NO_FUNCTION, ONCE, dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import Shape, View
from opdb.records import Json

NAME = "fused"
# The host's work before a compiled graph's first kernel: it depends on its weights alone.
ENTRY = "enter_graph"


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Matrix products, and which of their arguments are multiplied.
_PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_int_mm": (0, 1)}

_REDUCTIONS = words(
    "sum mean amax amin prod argmax argmin var var_mean std any all cumsum max min norm "
    "native_layer_norm native_group_norm _softmax _log_softmax logsumexp sort topk"
)
_MOVES = words(
    "view reshape _unsafe_view permute transpose t unsqueeze squeeze expand slice select split "
    "split_with_sizes unbind alias clone cat stack constant_pad_nd getitem convert_element_type "
    "_to_copy full arange iota zeros ones empty embedding index index_select gather scatter copy "
    "scalar_tensor detach diagonal unfold as_strided repeat flip roll slice_scatter "
    "select_scatter upsample_nearest2d device_put full_like zeros_like ones_like rev "
    "inductor_force_stride_order"
)
_GATHERS = "embedding"
# The operator into which inductor joins the two reductions of a softmax on a GPU.
_SOFTMAX = "prepare_softmax_online"


def packet(node: Json) -> str:
    """Return the name of a node's operator without its library and overload."""
    parts = str(node["op"]).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def arguments(value: Json) -> Iterator[Json]:
    """Yield the {"node": i} and {"input": i} among arguments, in order."""
    if isinstance(value, dict):
        if "node" in value or "input" in value:
            yield value
        else:
            for item in value.values():
                yield from arguments(item)
    elif isinstance(value, list):
        for item in value:
            yield from arguments(item)


def _shape(view: View, argument: Json) -> Shape:
    if isinstance(argument, dict) and "input" in argument:
        return list(view.occurrences[argument["input"]]["shape"])
    if isinstance(argument, dict) and "node" in argument:
        shape = view["nodes"][argument["node"]]["shape"]
        return [] if shape and isinstance(shape[0], list) else list(shape)
    return []


def _node_flops(view: View, node: Json) -> int:
    name, given = packet(node), node["args"]
    shapes = [_shape(view, argument) for argument in given]
    if name in _PRODUCTS:
        first, second = (shapes[i] for i in _PRODUCTS[name])
        return 2 * prod(first) * second[-1]
    if name in ("convolution", "_convolution"):
        transposed = len(given) > 6 and given[6]
        spread = prod(shapes[0]) if transposed else _elements(node)
        return 2 * spread * prod(shapes[1][1:])
    if name.startswith("_scaled_dot_product"):
        query, key, value = shapes[:3]
        return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    if name == _SOFTMAX:  # largest value, differences, exponentials, their sum
        return 4 * prod(shapes[0])
    if name in _REDUCTIONS:
        return max((prod(_shape(view, a)) for a in arguments(given)), default=0)
    return 0 if name in _MOVES else _elements(node)


def _elements(node: Json) -> int:
    shape = node["shape"]
    if shape and isinstance(shape[0], list):
        shape = shape[0]
    return v.numel(shape)


def _output_dtype(view: View) -> str:
    """Return the dtype of the largest output, in which all are counted."""
    dtypes = [output["dtype"] for output in view["outputs"] or []]
    return max(zip(map(v.numel, view.outputs), dtypes, strict=True), default=(0, "float32"))[1]


def _not_read(view: View) -> Iterator[int]:
    nodes = view["nodes"] or []
    for node in (each for each in nodes if packet(each) == _GATHERS):
        table = node["args"][0]
        uses = sum(table == a for other in nodes for a in arguments(other["args"]))
        if isinstance(table, dict) and "input" in table and uses == 1:
            spec = view.occurrences[table["input"]]
            gathered = _elements(node) * v.item_bytes(spec["dtype"])
            yield max(0, v.spec_bytes(spec) - gathered)


register(
    Kind(
        NAME,
        "inputs, *, nodes, outputs, layout_optimized=False",
        flops_rule=lambda view: sum(_node_flops(view, node) for node in view["nodes"] or []),
        # inputs and outputs once; of a table that is only gathered from, what is gathered
        bytes_rule=lambda view: v.inputs_and_outputs(view) - sum(_not_read(view)),
        shapes_rule=lambda view: [_shape(view, output) for output in view["outputs"] or []],
        dtype_rule=_output_dtype,
        backward=ONCE,
        nonzero_rule=dense,
        functions=NO_FUNCTION,
        settings=("tf32_convolution", "tf32_matmul", "cudnn_benchmark"),
    ),
    Kind(
        ENTRY,
        "input, *, weights",
        flops_rule=v.no_flops,
        bytes_rule=lambda view: 0,
        shapes_rule=v.input_shape,
        dtype_rule=v.promoted_dtype,
        backward=ONCE,
        nonzero_rule=dense,
        functions=NO_FUNCTION,
        launches_rule=v.never,
    ),
)
