"""Checks that a fused group reads only its own tensors: some operators of torch leave that open.

A group may come from a stranger. Its nodes know what they give (`meta["val"]`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx.node import Node, map_arg

from opdb.errors import UnsupportedError
from opdb.kinds.fused import packet, words

_VIEWS = words("view reshape permute unsqueeze squeeze expand slice select transpose alias")
_BY_PLACES = words("index _unsafe_index index_put")
_ALONG_DIM = words("gather index_select index_add index_copy scatter scatter_add scatter_reduce")
_UNCHECKED = "_unsafe_index"
MOST_INDICES = 2**24
"""The most indices that are computed where they depend on no input."""


def check_bounds(nodes: Sequence[Node], ranges: Sequence[tuple[int, int]]) -> None:
    """Check what the nodes of a group read; what is looked up unchecked and unknown gets a check.

    `ranges` are those of the whole-numbered values of the group's inputs, [low, high).

    Raises:
        UnsupportedError: a node looks beyond a tensor.
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


def _check_reach(node: Node) -> None:
    """Check a strided view: it stays within whatever the tensor that it views is a view of."""
    viewed, sizes, strides, *offset = _args(node)
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


def _check_attention(node: Node) -> None:
    """Check that queries, keys, values and a mask belong together."""
    given = [_shape(a) for a in (*_args(node), *node.kwargs.values()) if _is_tensor(a)]
    query, key, value, *masks = given
    together = query[0] == key[0] and query[-1] == key[-1] and key[:-1] == value[:-1]
    scores = (*query[:-1], key[-2])
    try:
        fits = all(torch.broadcast_shapes(mask, scores) == scores for mask in masks)
    except RuntimeError:
        fits = False
    if not (together and fits):
        raise _beyond(node)


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta["val"], torch.Tensor)


def _args(node: Node) -> tuple[Any, ...]:
    return node.args


def _indices(name: str, node: Node) -> Iterator[tuple[Node, int]]:
    """Yield the whole-numbered indices that a node is given, each with the size they are below."""
    args = _args(node)
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


def _range_of_given(index: Node, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return from where to below what indices are that are an input, seen another way perhaps.

    Of what is computed from inputs nothing is known: (0, 0).
    """
    while index.op == "call_function" and packet({"op": str(index.target)}) in _VIEWS:
        index = _args(index)[0]
    if index.op != "placeholder":
        return 0, 0
    return ranges[int(index.name.removeprefix("input_"))]


def _range_of_made(index: Node) -> tuple[int, int]:
    """Return the range of indices that depend on no input, computed on the processor.

    Raises:
        UnsupportedError: there are too many.
    """
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
