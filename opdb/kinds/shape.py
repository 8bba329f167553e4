"""Views: the data stay where they are. Those that may have to copy say when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from opdb.kinds.canonical import Arguments, count_dims, input_rank
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    complex_dtype,
    input_dtype,
    input_shape,
    inputs_and_outputs,
    is_spec,
    never,
    no_flops,
    numel,
    real_dtype,
    same_values,
)
from opdb.records import Json


def contiguous_strides(shape: Shape) -> list[int]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return strides[::-1]


def channels_last_strides(shape: Shape) -> list[int]:
    """Return the strides of a channels-last tensor of 4 or 5 dimensions."""
    order = [1, *range(len(shape) - 1, 1, -1), 0]
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


def strides_of(spec: Json) -> list[int]:
    """Return a spec's strides, in elements."""
    shape, layout = list(spec["shape"]), spec.get("layout")
    if isinstance(layout, list):
        return layout
    if layout == "channels_last":
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def is_viewable(spec: Json, shape: Shape) -> bool:
    """Return whether a tensor can be viewed as another shape without a copy.

    As in ATen's computeStride: each run of dimensions that lie together in memory must be cut
    into whole dimensions of the new shape.
    """
    old = [(n, s) for n, s in zip(spec["shape"], strides_of(spec), strict=True) if n != 1]
    runs: list[int] = []
    for index, (size, stride) in enumerate(old):
        if index and old[index - 1][1] == size * stride:
            runs[-1] *= size
        else:
            runs.append(size)
    new = [n for n in shape if n != 1]
    for run in runs:
        product = 1
        while product < run and new:
            product *= new.pop(0)
        if product != run:
            return False
    return not new


def resolved(shape: Shape, elements: int) -> Shape:
    """Return a shape with its -1 filled in."""
    known = numel([n for n in shape if n != -1])
    return [elements // known if n == -1 and known else n for n in shape]


def _resolve(parameters: Arguments, inputs: Arguments) -> None:
    value, shape = inputs.get("input"), parameters.get("shape")
    if is_spec(value) and isinstance(shape, list) and all(isinstance(n, int) for n in shape):
        parameters["shape"] = resolved(shape, numel(value["shape"]))


def _given_shape(view: View) -> list[Shape]:
    shape = view["shape"]
    if isinstance(shape, dict):
        return [view.shape()]
    return [[int(n) if isinstance(n, int) else 1 for n in shape or []]]


def _other_shape(view: View) -> list[Shape]:
    return [view.shape("other")]


def _copies(view: View) -> bool:
    spec = view["input"]
    shapes = view.outputs or _RESHAPES[view.configuration.kind](view)
    return is_spec(spec) and not is_viewable(spec, shapes[0])


def _flat(view: View) -> list[Shape]:
    shape = view.shape()
    start, end = int(view["start_dim"] or 0), int(view["end_dim"])
    rank = max(len(shape), 1)
    start, end = start % rank, end % rank
    return [[*shape[:start], numel(shape[start : end + 1]), *shape[end + 1 :]]]


def _unflat(view: View) -> list[Shape]:
    shape, dim = view.shape(), int(view["dim"])
    dim %= len(shape)
    return [[*shape[:dim], *resolved(list(view["sizes"]), shape[dim]), *shape[dim + 1 :]]]


def _permuted(view: View) -> list[Shape]:
    shape = view.shape()
    return [[shape[int(d)] for d in view["dims"] or []]]


def _swapped(view: View) -> list[Shape]:
    shape = view.shape()
    first, second = int(view["dim0"]), int(view["dim1"])
    shape[first], shape[second] = shape[second], shape[first]
    return [shape]


def _moved(view: View) -> list[Shape]:
    shape, source, destination = view.shape(), view["source"], view["destination"]
    sources = [int(d) % len(shape) for d in (source if isinstance(source, list) else [source])]
    places = destination if isinstance(destination, list) else [destination]
    rest = [axis for axis in range(len(shape)) if axis not in sources]
    for place, axis in sorted(
        (int(p) % len(shape), a) for p, a in zip(places, sources, strict=True)
    ):
        rest.insert(place, axis)
    return [[shape[axis] for axis in rest]]


def _sized(view: View) -> list[Shape]:
    return [[int(n) for n in view["size"]]]


def _diagonal(view: View) -> list[Shape]:
    shape, offset = view.shape(), int(view["offset"])
    rows, columns = (int(view[name]) % len(shape) for name in ("dim1", "dim2"))
    length = min(shape[rows] + min(offset, 0), shape[columns] - max(offset, 0))
    kept = [n for axis, n in enumerate(shape) if axis not in (rows, columns)]
    return [[*kept, max(length, 0)]]


def _reversed(view: View) -> list[Shape]:
    shape = view.shape()
    if view.configuration.kind == "t":
        return [shape[::-1]]
    return [[*shape[:-2], *shape[:-3:-1]]]


def _squeezed(view: View) -> list[Shape]:
    shape, dims = view.shape(), view["dim"]
    if dims is None:
        return [[n for n in shape if n != 1]]
    chosen = {int(d) % max(len(shape), 1) for d in (dims if isinstance(dims, list) else [dims])}
    return [[n for axis, n in enumerate(shape) if n != 1 or axis not in chosen]]


def _unsqueezed(view: View) -> list[Shape]:
    shape = view.shape()
    dim = int(view["dim"]) % (len(shape) + 1)
    return [[*shape[:dim], 1, *shape[dim:]]]


def _expanded(view: View) -> list[Shape]:
    sizes = [n if isinstance(n, int) else 1 for n in view["size"] or []]
    shape = [1] * (len(sizes) - len(view.shape())) + view.shape()
    return [[old if new == -1 else new for old, new in zip(shape, sizes, strict=False)]]


def _narrowed(view: View) -> list[Shape]:
    shape = view.shape()
    shape[int(view["dim"])] = int(view["length"] or 1)
    return [shape]


def _selected(view: View) -> list[Shape]:
    shape = view.shape()
    del shape[int(view["dim"])]
    return [shape]


def _pieces(view: View) -> list[Shape]:
    shape, dim = view.shape(), int(view["dim"] or 0)
    size = shape[dim]
    if view.configuration.kind == "chunk":
        step = -(-size // int(view["chunks"]))
    else:
        step = view["split_size_or_sections"]
    if isinstance(step, list):
        lengths = [int(n) for n in step]
    else:
        lengths = [min(step, size - at) for at in range(0, size, max(step, 1))]
    return [[*shape[:dim], n, *shape[dim + 1 :]] for n in lengths]


def _cut(view: View) -> list[Shape]:
    shape, dim = view.shape(), int(view["dim"] or 0)
    given, size = view["indices_or_sections"], shape[dim]
    if isinstance(given, int):
        lengths = [size // given + (at < size % given) for at in range(given)]
    else:
        ends = [slice(None, int(n)).indices(size)[1] for n in given or []]
        edges = [0, *ends, size]
        lengths = [max(b - a, 0) for a, b in pairwise(edges)]
    return [[*shape[:dim], n, *shape[dim + 1 :]] for n in lengths]


def _unbound(view: View) -> list[Shape]:
    shape, dim = view.shape(), int(view["dim"] or 0)
    return [shape[:dim] + shape[dim + 1 :]] * shape[dim]


def _unfolded(view: View) -> list[Shape]:
    shape, dim = view.shape(), int(view["dimension"])
    size, step = int(view["size"]), int(view["step"])
    shape[dim] = (shape[dim] - size) // step + 1
    return [[*shape, size]]


_RESHAPES = {"reshape": _given_shape, "flatten": _flat, "reshape_as": _other_shape}
for _name, _signature, _canonical in (
    ("reshape", "input, *shape", _resolve),
    ("flatten", "input, start_dim=0, end_dim=-1", count_dims(start_dim=0, end_dim=-1)),
    ("reshape_as", "input, other", None),
):
    register(
        Kind(
            _name,
            _signature,
            flops_rule=no_flops,
            bytes_rule=inputs_and_outputs,
            shapes_rule=_RESHAPES[_name],
            dtype_rule=input_dtype,
            launches_rule=_copies,
            values_rule=same_values,
            canonical=_canonical,
        )
    )


def _positive_dims(parameters: Arguments, inputs: Arguments) -> None:
    rank = input_rank(inputs)
    dims = parameters.get("dims")
    if rank and isinstance(dims, list):
        parameters["dims"] = [d % rank for d in dims]


def _two_dims(parameters: Arguments, inputs: Arguments) -> None:
    rank = input_rank(inputs)
    if rank and {"dim0", "dim1"} <= parameters.keys():
        pair = sorted((parameters["dim0"] % rank, parameters["dim1"] % rank))
        parameters["dim0"], parameters["dim1"] = pair


_DIM = count_dims(dim=None)
_FIRST = count_dims(dim=0)
_VIEWS: dict[str, tuple[str, Callable[[View], list[Shape]], Canonical | None]] = {
    "view": ("input, *shape", _given_shape, _resolve),
    "view_as": ("input, other", _other_shape, None),
    "unflatten": ("input, dim, sizes", _unflat, _DIM),
    "permute": ("input, *dims", _permuted, _positive_dims),
    "transpose": ("input, dim0, dim1", _swapped, _two_dims),
    "t": ("input", _reversed, None),
    "mT": ("input", _reversed, None),
    "movedim": ("input, source, destination", _moved, None),
    "squeeze": ("input, dim=None", _squeezed, _DIM),
    "unsqueeze": ("input, dim", _unsqueezed, count_dims(extra=1, dim=None)),
    "expand": ("input, *size", _expanded, None),
    "expand_as": ("input, other", _other_shape, None),
    "broadcast_to": ("input, *size", _expanded, None),
    "narrow": ("input, dim, start, length", _narrowed, _DIM),
    "select": ("input, dim, index", _selected, _DIM),
    "split": ("input, split_size_or_sections, dim=0", _pieces, _FIRST),
    "chunk": ("input, chunks, dim=0", _pieces, _FIRST),
    "tensor_split": ("input, indices_or_sections, dim=0", _cut, _FIRST),
    "unbind": ("input, dim=0", _unbound, _FIRST),
    "diagonal": ("input, offset=0, dim1=0, dim2=1", _diagonal, None),
    "unfold_view": ("input, dimension, size, step", _unfolded, count_dims(dimension=None)),
    "as_strided": ("input, size, stride, storage_offset=None", _sized, None),
    "detach": ("input", input_shape, None),
    "identity": ("input", input_shape, None),
    "real": ("input", input_shape, None),
    "imag": ("input", input_shape, None),
    "view_as_real": ("input", lambda view: [[*view.shape(), 2]], None),
    "view_as_complex": ("input", lambda view: [view.shape()[:-1]], None),
}
_PARTS = {
    **dict.fromkeys(("real", "imag", "view_as_real"), real_dtype),
    "view_as_complex": complex_dtype,
}
for _name, (_signature, _shapes, _canonical) in _VIEWS.items():
    register(
        Kind(
            _name,
            _signature,
            flops_rule=no_flops,
            shapes_rule=_shapes,
            dtype_rule=_PARTS.get(_name, input_dtype),
            launches_rule=never,
            values_rule=same_values,
            canonical=_canonical,
        )
    )
