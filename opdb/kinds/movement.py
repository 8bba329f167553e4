"""Data moved from place to place: copies, joins, repeats."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import CONSTANT, ONCE, PASSED_ON
from opdb.kinds.canonical import Arguments, count_dims, drop, listed
from opdb.kinds.families import NO_FUNCTION, broadcasting, filled, moved
from opdb.kinds.gradients import goes_on, taken_apart
from opdb.kinds.layout import (
    channels_last_strides,
    contiguous_strides,
    same_strides,
    strides_of,
)
from opdb.kinds.registry import register
from opdb.kinds.view import (
    Shape,
    View,
    always,
    bool_dtype,
    broadcast,
    input_dtype,
    input_shape,
    is_spec,
    kept_rectified,
    named_dtype,
    never,
    no_flops,
    no_output,
    no_values,
    numel,
    promoted_dtype,
    same_values,
)


def _joined(view: View) -> list[Shape]:
    shapes = [list(t["shape"]) for t in view.specs("tensors")]
    # torch skips the empty tensor of one dimension
    shapes = [s for s in shapes if s != [0]] or shapes
    dim = int(view["dim"] or 0)
    out = list(shapes[0])
    if out:
        out[dim] = sum(s[dim] for s in shapes)
    return [out]


def _stacked(view: View) -> list[Shape]:
    tensors = view.specs("tensors")
    shape = list(tensors[0]["shape"])
    dim = int(view["dim"] or 0) % (len(shape) + 1)
    return [[*shape[:dim], len(tensors), *shape[dim:]]]


def _padded(view: View) -> list[Shape]:
    shape, pad = view.shape(), view["pad"]
    for axis in range(len(pad) // 2):
        shape[-1 - axis] += int(pad[2 * axis]) + int(pad[2 * axis + 1])
    return [shape]


def _repeated(view: View) -> list[Shape]:
    times = [int(n) for n in view["repeats"] or []]
    shape = [1] * (len(times) - len(view.shape())) + view.shape()
    times = [1] * (len(shape) - len(times)) + times
    return [[n * t for n, t in zip(shape, times, strict=True)]]


def _contiguous_launches(view: View) -> bool:
    spec = view["input"]
    if not is_spec(spec):
        return False
    shape = list(spec["shape"])
    last = "channels_last" in str(view["memory_format"])
    strides = channels_last_strides(shape) if last else contiguous_strides(shape)
    return not same_strides(shape, strides_of(spec), strides)


def _to_launches(view: View) -> bool:
    if view["copy"] or named_dtype(view) != input_dtype(view):
        return True
    wanted = str(view["memory_format"])
    if view["memory_format"] is None or "preserve" in wanted:
        return False
    # torch goes by the format that a tensor seems to have: all but channels_last count as none
    return bool(("channels_last" in wanted) != (view["input"].get("layout") == "channels_last"))


def _to(parameters: Arguments, inputs: Arguments) -> None:
    # asking for the dtype that is there asks for nothing
    spec = inputs.get("input")
    if is_spec(spec) and parameters.get("dtype") == {"dtype": spec["dtype"]}:
        del parameters["dtype"]


def _turned(view: View) -> list[Shape]:
    shape = view.shape()
    if int(view["k"]) % 2:
        first, second = view["dims"]
        shape[first], shape[second] = shape[second], shape[first]
    return [shape]


def _diagonal(view: View) -> list[Shape]:
    shape, offset = view.shape(), int(view["diagonal"])
    if len(shape) == 1:
        return [[shape[0] + abs(offset)] * 2]
    return [[max(min(shape[0] + min(offset, 0), shape[1] - max(offset, 0)), 0)]]


def _embedded(view: View) -> list[Shape]:
    *batch, length = view.shape()
    places = {int(view[name]) % (len(batch) + 2) for name in ("dim1", "dim2")}
    sizes = iter(batch)
    side = length + abs(int(view["offset"]))
    return [[side if axis in places else next(sizes) for axis in range(len(batch) + 2)]]


def _mesh(view: View) -> list[Shape]:
    sizes = [numel(t["shape"]) for t in view.specs("tensors")]
    if view["indexing"] == "xy":
        sizes[:2] = sizes[1::-1]
    return [sizes] * len(sizes)


def _interleaved(view: View) -> list[Shape]:
    shape, times, dim = view.shape(), view["repeats"], view["dim"]
    factor = times if isinstance(times, int) else 1
    if dim is None:
        return [[numel(shape) * factor]]
    shape[int(dim)] = int(view["output_size"] or shape[int(dim)] * factor)
    return [shape]


joined = partial(moved, backward=PASSED_ON, nonzero_rule=taken_apart, values_rule=kept_rectified)
"""Tensors put together into one."""

rearranged = partial(moved, shapes_rule=input_shape, nonzero_rule=goes_on, values_rule=same_values)
"""The same elements in another order, or as another type."""

asked = partial(
    broadcasting,
    shapes_rule=no_output,
    dtype_rule=bool_dtype,
    backward=CONSTANT,
    waits_rule=always,
)
"""Answers that the host waits for."""

register(
    joined(
        "cat",
        "tensors, dim=0",
        shapes_rule=_joined,
        canonical=count_dims(of="tensors", dim=0),
        functions="torch.cat torch.concat torch.concatenate",
    ),
    joined(
        "stack",
        "tensors, dim=0",
        shapes_rule=_stacked,
        canonical=count_dims(extra=1, of="tensors", dim=0),
        functions="torch.stack",
    ),
    rearranged(
        "pad",
        "input, pad, mode='constant', value=None",
        shapes_rule=_padded,
        dtype_rule=input_dtype,
        values_rule=lambda view: None if view["value"] else kept_rectified(view),
        functions="F.pad torch.constant_pad_nd(input, pad, value=None)",
    ),
    broadcasting(
        "meshgrid",
        "*tensors, indexing='ij'",
        shapes_rule=_mesh,
        launches_rule=never,
        canonical=drop("indexing", None),  # torch takes None for "ij"
        functions="torch.meshgrid(*tensors, indexing=None)",
    ),
    broadcasting(
        "broadcast_tensors",
        "*tensors",
        shapes_rule=lambda view: (
            [broadcast([list(t["shape"]) for t in view.occurrences])] * len(view.occurrences)
        ),
        launches_rule=never,
        functions="torch.broadcast_tensors",
    ),
    rearranged(
        "contiguous",
        "input, memory_format=None",
        dtype_rule=input_dtype,
        backward=PASSED_ON,
        launches_rule=_contiguous_launches,
        functions="Tensor.contiguous(input, *, memory_format=None)",
    ),
    rearranged(
        "clone",
        "input, *, memory_format=None",
        dtype_rule=input_dtype,
        backward=PASSED_ON,
        functions="torch.clone Tensor.clone",
    ),
    rearranged(
        "to",
        "input, *, dtype=None, copy=False, memory_format=None",
        dtype_rule=named_dtype,
        launches_rule=_to_launches,
        values_rule=lambda view: same_values(view) if view["dtype"] is None else None,
        canonical=_to,
        functions=NO_FUNCTION,
    ),
    filled("copy", "input, src", backward=ONCE, functions="Tensor.copy_!"),
    rearranged("roll", "input, shifts, dims=()", canonical=listed("shifts")),
    rearranged("flip", "input, *dims", functions="Tensor.flip torch.flip"),
    rearranged("rot90", "input, k=1, dims=(0, 1)", shapes_rule=_turned, values_rule=no_values),
    rearranged("repeat", "input, *repeats", shapes_rule=_repeated, functions="Tensor.repeat"),
    rearranged(
        "tile",
        "input, *repeats",
        shapes_rule=_repeated,
        values_rule=no_values,
        functions="Tensor.tile torch.tile",
    ),
    moved(
        "repeat_interleave",
        "input, repeats, dim=None, *, output_size=None",
        shapes_rule=_interleaved,
        bound_rule=lambda view, name: 2 if name == "repeats" else None,
        dtype_rule=input_dtype,
        canonical=count_dims(dim=None),
        functions="torch.repeat_interleave Tensor.repeat_interleave",
    ),
    moved("triu", "input, diagonal=0", mutates=("input",)),
    moved("tril", "input, diagonal=0", mutates=("input",)),
    moved("diag", "input, diagonal=0", shapes_rule=_diagonal, backward=ONCE),
    moved("diag_embed", "input, offset=0, dim1=-2, dim2=-1", shapes_rule=_embedded, backward=ONCE),
    asked(
        "item",
        "input",
        flops_rule=no_flops,
        dtype_rule=promoted_dtype,
        backward=ONCE,
        functions="Tensor.item Tensor.__bool__ Tensor.__int__ Tensor.__float__ Tensor.__index__ "
        "Tensor.is_nonzero torch.is_nonzero",
    ),
    asked(
        "tolist",
        "input",
        flops_rule=no_flops,
        dtype_rule=promoted_dtype,
        backward=ONCE,
        functions="Tensor.tolist",
    ),
    asked("contains", "input, element", functions="Tensor.__contains__"),
    asked("equal", "input, other"),
    asked("allclose", "input, other, rtol=1e-05, atol=1e-08, equal_nan=False"),
)
