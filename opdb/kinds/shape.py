"""Views: the data stay where they are. Those that may have to copy say when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    LINEAR,
    ONCE,
    JsonArguments,
    chain,
    count_dims,
    dense,
    part_of,
    view_of,
)
from opdb.kinds.registry import register
from opdb.kinds.view import Shape, ShapesRule, View


def resolved(shape: Shape, elements: int) -> Shape:
    known = v.numel([n for n in shape if n != -1])
    return [elements // known if n == -1 and known else n for n in shape]


def _resolve(parameters: JsonArguments, inputs: JsonArguments) -> None:
    value, shape = inputs.get("input"), parameters.get("shape")
    if v.is_spec(value) and isinstance(shape, list) and all(isinstance(n, int) for n in shape):
        parameters["shape"] = resolved(shape, v.numel(value["shape"]))


def _given_shape(view: View) -> list[Shape]:
    shape = view["shape"]
    if isinstance(shape, dict):
        return [view.shape()]
    return [[int(n) if isinstance(n, int) else 1 for n in shape or []]]


def _other_shape(view: View) -> list[Shape]:
    return [view.shape("other")]


def _copies(shapes: ShapesRule) -> Callable[[View], bool]:
    """Return the rule of what gives the device work where no view has the shape."""

    def rule(view: View) -> bool:
        spec = view["input"]
        return v.is_spec(spec) and not v.is_viewable(spec, shapes(view)[0])

    return rule


def _flat(view: View) -> list[Shape]:
    shape = view.shape()
    start, end = int(view["start_dim"] or 0), int(view["end_dim"])
    rank = max(len(shape), 1)
    start, end = start % rank, end % rank
    return [[*shape[:start], v.numel(shape[start : end + 1]), *shape[end + 1 :]]]


def _unflat(view: View) -> list[Shape]:
    size = view.shape()[int(view["dim"])]
    return [view.resized("dim", *resolved(list(view["sizes"]), size))]


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


def _diagonal(view: View) -> list[Shape]:
    shape, offset = view.shape(), int(view["offset"])
    rows, columns = (int(view[name]) % len(shape) for name in ("dim1", "dim2"))
    length = min(shape[rows] + min(offset, 0), shape[columns] - max(offset, 0))
    kept = [n for axis, n in enumerate(shape) if axis not in (rows, columns)]
    return [[*kept, max(length, 0)]]


def _last_reversed(view: View) -> list[Shape]:
    shape = view.shape()
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


def _pieces(view: View) -> list[Shape]:
    given = view["split_size_or_sections"]
    if not isinstance(given, list):
        return _steps(view, given)
    return [view.resized("dim", int(n)) for n in given]


def _chunks(view: View) -> list[Shape]:
    size = view.shape()[int(view["dim"] or 0)]
    return _steps(view, -(-size // int(view["chunks"])))


def _steps(view: View, step: int) -> list[Shape]:
    size = view.shape()[int(view["dim"] or 0)]
    lengths = [min(step, size - at) for at in range(0, size, max(step, 1))]
    return [view.resized("dim", n) for n in lengths]


def _cut(view: View) -> list[Shape]:
    given, size = view["indices_or_sections"], view.shape()[int(view["dim"] or 0)]
    if isinstance(given, int):
        lengths = [size // given + (at < size % given) for at in range(given)]
    else:
        ends = [slice(None, int(n)).indices(size)[1] for n in given or []]
        edges = [0, *ends, size]
        lengths = [max(b - a, 0) for a, b in pairwise(edges)]
    return [view.resized("dim", n) for n in lengths]


def _unbound(view: View) -> list[Shape]:
    return [view.resized("dim")] * view.shape()[int(view["dim"] or 0)]


def _unfolded(view: View) -> list[Shape]:
    shape, dim = view.shape(), int(view["dimension"])
    size, step = int(view["size"]), int(view["step"])
    shape[dim] = (shape[dim] - size) // step + 1
    return [[*shape, size]]


def _in_order(parameters: JsonArguments, inputs: JsonArguments) -> None:
    if {"dim0", "dim1"} <= parameters.keys():
        pair = sorted((parameters["dim0"], parameters["dim1"]))
        parameters["dim0"], parameters["dim1"] = pair


# A view where the data lie so that they can be viewed, else a copy.
reshaped = partial(view_of, backward=LINEAR)

register(
    reshaped(
        "reshape",
        "input, *shape",
        shapes_rule=_given_shape,
        launches_rule=_copies(_given_shape),
        canonical=_resolve,
        functions="Tensor.reshape torch.reshape",
    ),
    reshaped(
        "flatten",
        "input, start_dim=0, end_dim=-1",
        shapes_rule=_flat,
        launches_rule=_copies(_flat),
        canonical=count_dims(start_dim=0, end_dim=-1),
        functions="torch.flatten Tensor.flatten torch.ravel(input) Tensor.ravel(input) nn.Flatten",
    ),
    reshaped(
        "reshape_as",
        "input, other",
        shapes_rule=_other_shape,
        launches_rule=_copies(_other_shape),
        backward=ONCE,
    ),
)

half_of_complex = partial(
    view_of,
    spelled="input",
    shapes_rule=v.input_shape,
    dtype_rule=v.real_dtype,
    functions="torch.{0} Tensor.{0}@",
)

_DIM = count_dims(dim=None)
_FIRST = count_dims(dim=0)
register(
    view_of("view", "input, *shape", shapes_rule=_given_shape, canonical=_resolve),
    view_of("view_as", "input, other", shapes_rule=_other_shape),
    view_of(
        "unflatten",
        "input, dim, sizes",
        shapes_rule=_unflat,
        canonical=_DIM,
        functions="Tensor.unflatten torch.unflatten",
    ),
    view_of(
        "permute",
        "input, *dims",
        shapes_rule=lambda view: [[view.shape()[int(d)] for d in view["dims"] or []]],
        canonical=count_dims(dims=None),
        functions="Tensor.permute torch.permute",
    ),
    view_of(
        "transpose",
        "input, dim0, dim1",
        shapes_rule=_swapped,
        canonical=chain(count_dims(dim0=None, dim1=None), _in_order),
        functions="torch.transpose Tensor.transpose torch.swapaxes Tensor.swapaxes "
        "torch.swapdims Tensor.swapdims",
    ),
    view_of(
        "t",
        "input",
        shapes_rule=lambda view: [view.shape()[::-1]],
        functions="torch.t Tensor.t Tensor.T@",
    ),
    view_of("mT", "input", shapes_rule=_last_reversed, functions="Tensor.mT@"),
    view_of(
        "movedim",
        "input, source, destination",
        shapes_rule=_moved,
        functions="torch.movedim Tensor.movedim torch.moveaxis Tensor.moveaxis",
    ),
    view_of(
        "squeeze",
        "input, dim=None",
        shapes_rule=_squeezed,
        canonical=_DIM,
        functions="torch.squeeze Tensor.squeeze",
    ),
    view_of(
        "unsqueeze", "input, dim", shapes_rule=_unsqueezed, canonical=count_dims(extra=1, dim=None)
    ),
    view_of("identity", "input", shapes_rule=v.input_shape, functions="nn.Identity"),
    view_of(
        "detach",
        "input",
        shapes_rule=v.input_shape,
        backward=CONSTANT,
        nonzero_rule=dense,
        functions="Tensor.detach torch.detach Tensor.data@",
    ),
    part_of("expand", "input, *size", shapes_rule=_expanded),
    part_of("expand_as", "input, other", shapes_rule=_other_shape),
    part_of(
        "broadcast_to",
        "input, *size",
        shapes_rule=_expanded,
        functions="Tensor.broadcast_to torch.broadcast_to",
    ),
    part_of(
        "narrow",
        "input, dim, start, length",
        shapes_rule=lambda view: [view.resized("dim", int(view["length"] or 1))],
        canonical=_DIM,
    ),
    part_of(
        "select",
        "input, dim, index",
        shapes_rule=lambda view: [view.resized("dim")],
        canonical=_DIM,
    ),
    part_of(
        "split",
        "input, split_size_or_sections, dim=0",
        shapes_rule=_pieces,
        canonical=_FIRST,
        functions="torch.split Tensor.split torch.split_with_sizes Tensor.split_with_sizes",
    ),
    part_of("chunk", "input, chunks, dim=0", shapes_rule=_chunks, canonical=_FIRST),
    part_of(
        "tensor_split", "input, indices_or_sections, dim=0", shapes_rule=_cut, canonical=_FIRST
    ),
    part_of(
        "unbind",
        "input, dim=0",
        shapes_rule=_unbound,
        canonical=_FIRST,
        functions="torch.unbind Tensor.unbind Tensor.__iter__",
    ),
    part_of("diagonal", "input, offset=0, dim1=0, dim2=1", shapes_rule=_diagonal),
    part_of(
        "unfold_view",
        "input, dimension, size, step",
        shapes_rule=_unfolded,
        nonzero_rule=dense,
        canonical=count_dims(dimension=None),
        functions="Tensor.unfold",
    ),
    part_of(
        "as_strided",
        "input, size, stride, storage_offset=None",
        shapes_rule=lambda view: [[int(n) for n in view["size"]]],
    ),
    *map(half_of_complex, ("real", "imag")),
    view_of(
        "view_as_real",
        "input",
        shapes_rule=lambda view: [[*view.shape(), 2]],
        dtype_rule=v.real_dtype,
        nonzero_rule=dense,
    ),
    view_of(
        "view_as_complex",
        "input",
        shapes_rule=lambda view: [view.shape()[:-1]],
        dtype_rule=v.complex_dtype,
        nonzero_rule=dense,
    ),
)
