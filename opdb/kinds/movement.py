"""Views, data moved from place to place, and tensors made from nothing or after another's shape.

Views leave the data where they are; those that may have to copy say when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    LINEAR,
    NO_FUNCTION,
    ONCE,
    PASSED_ON,
    PLAIN,
    JsonArguments,
    broadcasting,
    chain,
    count_dims,
    dense,
    drop,
    filled,
    goes_on,
    listed,
    moved,
    part_of,
    taken_apart,
    view_of,
)
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import Shape, ShapesRule, View
from opdb.records import Json


def _padded(view: View) -> list[Shape]:
    shape, pad = view.shape(), view["pad"]
    for axis in range(len(pad) // 2):
        shape[-1 - axis] += int(pad[2 * axis]) + int(pad[2 * axis + 1])
    return [shape]


def _repeated(view: View) -> list[Shape]:
    return [[*view.shape(), *(int(n) for n in view["repeats"] or [])]]


def _contiguous_launches(view: View) -> bool:
    spec = view["input"]
    if not v.is_spec(spec):
        return False
    shape = list(spec["shape"])
    last = "channels_last" in str(view["memory_format"])
    strides = v.channels_last_strides(shape) if last else v.contiguous_strides(shape)
    return not v.same_strides(shape, v.strides_of(spec), strides)


def _to_launches(view: View) -> bool:
    if view["copy"] or v.named_dtype(view) != v.input_dtype(view):
        return True
    wanted = str(view["memory_format"])
    if view["memory_format"] is None or "preserve" in wanted:
        return False
    # torch goes by the format that a tensor seems to have: all but channels_last count as none
    return bool(("channels_last" in wanted) != (view["input"].get("layout") == "channels_last"))


def _to(parameters: JsonArguments, inputs: JsonArguments) -> None:
    # asking for the dtype that is there asks for nothing
    spec = inputs.get("input")
    if v.is_spec(spec) and parameters.get("dtype") == {"dtype": spec["dtype"]}:
        del parameters["dtype"]


def _diagonal(view: View) -> list[Shape]:
    shape, offset = view.shape(), int(view["diagonal"])
    if len(shape) == 1:
        return [[shape[0] + abs(offset)] * 2]
    return [[max(min(shape[0] + min(offset, 0), shape[1] - max(offset, 0)), 0)]]


def _embedded(view: View) -> list[Shape]:
    *batch, length = view.shape()
    side = length + abs(int(view["offset"]))
    return [[*batch, side, side]]


def _mesh(view: View) -> list[Shape]:
    sizes = [v.numel(t["shape"]) for t in view.specs("tensors")]
    return [sizes] * len(sizes)


def _interleaved(view: View) -> list[Shape]:
    shape, times, dim = view.shape(), view["repeats"], view["dim"]
    factor = times if isinstance(times, int) else 1
    if dim is None:
        return [[v.numel(shape) * factor]]
    shape[int(dim)] = int(view["output_size"] or shape[int(dim)] * factor)
    return [shape]


def _padded_sequences(view: View) -> list[Shape]:
    lengths = [t["shape"][0] for t in view.specs("sequences")]
    sizes = view["batch_sizes"] or [len(lengths)]  # of a packed sequence, at each step
    steps = max(len(sizes), int(view["total_length"] or 0), *lengths)
    return [[steps, sizes[0], *view.occurrences[0]["shape"][1:]]]


# Tensors put together into one.
joined = partial(
    moved,
    shapes_rule=lambda view: [[sum(v.numel(t["shape"]) for t in view.occurrences)]],
    backward=PASSED_ON,
    nonzero_rule=taken_apart,
    values_rule=v.kept_rectified,
)

# The same elements in another order, or as another type.
rearranged = partial(
    moved, shapes_rule=v.input_shape, nonzero_rule=goes_on, values_rule=v.same_values
)

# Answers that the host waits for.
asked = partial(
    broadcasting,
    shapes_rule=v.no_output,
    dtype_rule=v.bool_dtype,
    backward=CONSTANT,
    waits_rule=v.always,
)

register(
    joined(
        "cat",
        "tensors, dim=0",
        canonical=count_dims(of="tensors", dim=0),
        functions="torch.cat torch.concat torch.concatenate",
    ),
    joined("stack", "tensors, dim=0", canonical=count_dims(extra=1, of="tensors", dim=0)),
    rearranged(
        "pad",
        "input, pad, mode='constant', value=None",
        shapes_rule=_padded,
        dtype_rule=v.input_dtype,
        values_rule=lambda view: None if view["value"] else v.kept_rectified(view),
        functions="F.pad torch.constant_pad_nd(input, pad, value=None)",
    ),
    broadcasting(
        "meshgrid",
        "*tensors, indexing='ij'",
        shapes_rule=_mesh,
        launches_rule=v.never,
        canonical=drop("indexing", None),  # torch takes None for "ij"
        functions="torch.meshgrid(*tensors, indexing=None)",
    ),
    broadcasting(
        "broadcast_tensors",
        "*tensors",
        shapes_rule=lambda view: (
            [v.broadcast([list(t["shape"]) for t in view.occurrences])] * len(view.occurrences)
        ),
        launches_rule=v.never,
    ),
    rearranged(
        "contiguous",
        "input, memory_format=None",
        dtype_rule=v.input_dtype,
        backward=PASSED_ON,
        launches_rule=_contiguous_launches,
        canonical=drop("memory_format", {"memory_format": "contiguous_format"}),
        functions="Tensor.contiguous(input, *, memory_format=None)",
    ),
    rearranged(
        "clone", "input, *, memory_format=None", dtype_rule=v.input_dtype, backward=PASSED_ON
    ),
    rearranged(
        "to",
        "input, *, dtype=None, copy=False, memory_format=None",
        dtype_rule=v.named_dtype,
        launches_rule=_to_launches,
        values_rule=lambda view: v.same_values(view) if view["dtype"] is None else None,
        canonical=_to,
        functions=NO_FUNCTION,
    ),
    filled("copy", "input, src", backward=ONCE),
    rearranged("roll", "input, shifts, dims=()", canonical=listed("shifts")),
    rearranged("flip", "input, *dims", functions="Tensor.flip torch.flip"),
    rearranged("rot90", "input, k=1, dims=(0, 1)", values_rule=v.no_values),
    rearranged("repeat", "input, *repeats", shapes_rule=_repeated),
    rearranged(
        "tile",
        "input, *repeats",
        shapes_rule=_repeated,
        values_rule=v.no_values,
        functions="Tensor.tile torch.tile",
    ),
    moved(
        "repeat_interleave",
        "input, repeats, dim=None, *, output_size=None",
        shapes_rule=_interleaved,
        bound_rule=lambda view, name: 2 if name == "repeats" else None,
        dtype_rule=v.input_dtype,
        canonical=count_dims(dim=None),
    ),
    moved("triu", "input, diagonal=0", mutates=("input",)),
    moved("tril", "input, diagonal=0", mutates=("input",)),
    moved("diag", "input, diagonal=0", shapes_rule=_diagonal, backward=ONCE),
    moved("diag_embed", "input, offset=0, dim1=-2, dim2=-1", shapes_rule=_embedded, backward=ONCE),
    # the lengths of sequences, and how many reach each step, lie on the CPU as numbers
    moved(
        "pack_padded_sequence",
        "input, lengths, batch_first=False",
        bytes_rule=v.outputs_twice,
        shapes_rule=lambda view: [[sum(view["lengths"]), *view.shape()[2:]]],
        functions=NO_FUNCTION,
    ),
    moved(
        "pad_packed_sequence",
        "input, batch_sizes, batch_first=False, padding_value=0.0, total_length=0",
        shapes_rule=_padded_sequences,
        functions=NO_FUNCTION,
    ),
    moved(
        "pad_sequence",
        "sequences, batch_first=False, padding_value=0.0, padding_side='right'",
        shapes_rule=_padded_sequences,
        functions="_nn.pad_sequence",
    ),
    asked(
        "item",
        "input",
        flops_rule=v.no_flops,
        dtype_rule=v.promoted_dtype,
        backward=ONCE,
        functions="Tensor.item Tensor.__bool__ Tensor.__int__ Tensor.__float__ Tensor.__index__ "
        "Tensor.is_nonzero torch.is_nonzero Tensor.__complex__",
    ),
    asked("tolist", "input", flops_rule=v.no_flops, dtype_rule=v.promoted_dtype, backward=ONCE),
    asked("contains", "input, element", functions="Tensor.__contains__"),
    asked("equal", "input, other"),
    asked("allclose", "input, other, rtol=1e-05, atol=1e-08, equal_nan=False"),
)


# tensors made


def _default_dtype(view: View) -> str:
    if isinstance(view["dtype"], dict) or view.occurrences:
        return v.named_dtype(view)
    whole = {bool: "bool", int: "int64"}
    return whole.get(type(view["fill_value"]), "float32")


def _whole_dtype(view: View) -> str:
    given = isinstance(view["dtype"], dict) or view.occurrences
    return v.named_dtype(view) if given else "int64"


def _arange_shape(view: View) -> list[Shape]:
    start, end, step = (_number(view[n]) for n in ("start", "end", "step"))
    return [[max(ceil((end - start) / step), 0)]]


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


def _arange_dtype(view: View) -> str:
    if isinstance(view["dtype"], dict):
        return v.named_dtype(view)
    floats = any(isinstance(view[n], float) for n in ("start", "end", "step"))
    return "float32" if floats else "int64"


def _range(parameters: JsonArguments, inputs: JsonArguments) -> None:
    if parameters.get("dtype") == {"dtype": "int64"} and not any(
        isinstance(parameters.get(n), float) for n in ("start", "end", "step")
    ):
        del parameters["dtype"]


# A tensor that is written, whatever was there.
created = partial(
    Kind,
    flops_rule=v.no_flops,
    bytes_rule=lambda view: view.output_bytes,
    shapes_rule=lambda view: [[int(n) for n in view["size"] or []]],
    dtype_rule=_default_dtype,
    backward=CONSTANT,
    nonzero_rule=dense,
    functions=PLAIN,
)

from_nothing = partial(created, creates=True)
sized = partial(from_nothing, spelled="*size, dtype=None")
created_like = partial(
    created, spelled="input, *, dtype=None, memory_format=None", shapes_rule=v.input_shape
)
created_by = partial(
    created, spelled="input, *size, dtype=None", functions="Tensor.{0}(input, *size, dtype=None)"
)
register(
    *map(sized, ("zeros", "ones", "rand", "randn")),
    *map(created_like, ("zeros_like", "ones_like", "rand_like", "randn_like")),
    *map(created_by, ("new_zeros", "new_ones")),
    sized("empty", launches_rule=v.never),
    created_like("empty_like", launches_rule=v.never),
    created_by("new_empty", launches_rule=v.never),
    created("new_full", "input, size, fill_value, *, dtype=None"),
    from_nothing("full", "size, fill_value, *, dtype=None"),
    created(
        "full_like",
        "input, fill_value, *, dtype=None, memory_format=None",
        shapes_rule=v.input_shape,
    ),
    from_nothing("randint", "low, high, size, *, dtype=None", dtype_rule=_whole_dtype),
    from_nothing(
        "arange",
        "start, end, step=1, *, dtype=None",
        shapes_rule=_arange_shape,
        dtype_rule=_arange_dtype,
        canonical=_range,
    ),
    from_nothing(
        "linspace",
        "start, end, steps, *, dtype=None",
        flops_rule=v.one_flop_an_output,
        shapes_rule=lambda view: [[int(view["steps"])]],
    ),
    from_nothing(
        "eye",
        "n, m=None, *, dtype=None",
        shapes_rule=lambda view: [[int(view["n"]), int(view["m"] or view["n"])]],
    ),
    # the data of a constant cost nothing but their size: only shape and dtype are kept
    created(
        "tensor",
        "shape, dtype",
        shapes_rule=lambda view: [[int(n) for n in view["shape"] or []]],
        launches_rule=lambda view: 0 not in (view["shape"] or []),
        functions=NO_FUNCTION,
    ),
    from_nothing(
        "hann_window",
        "window_length, periodic=True, *, dtype=None",
        flops_rule=v.one_flop_an_output,
        shapes_rule=lambda view: [[int(view["window_length"])]],
    ),
    created(
        "multinomial",
        "input, num_samples, replacement=False",
        flops_rule=v.one_flop_an_output,
        bytes_rule=v.inputs_and_outputs,
        shapes_rule=lambda view: [[*view.shape()[:-1], int(view["num_samples"])]],
        dtype_rule=v.index_dtype,
        probabilities=("input",),
    ),
    filled(
        "bernoulli",
        "input, p=None",
        bytes_rule=lambda view: (v.written_over if view.inplace else v.inputs_and_outputs)(view),
        dtype_rule=v.promoted_dtype,
        functions=PLAIN,
        probabilities=("input",),
    ),
    filled("uniform", "input, from_=0, to=1"),
    filled("normal", "input, mean=0, std=1", functions="Tensor.normal_!"),
    filled("zero", "input"),
    filled("fill", "input, value"),
)


# views


def _resolve(parameters: JsonArguments, inputs: JsonArguments) -> None:
    value, shape = inputs.get("input"), parameters.get("shape")
    if v.is_spec(value) and isinstance(shape, list) and all(isinstance(n, int) for n in shape):
        known = v.numel([n for n in shape if n != -1])
        rest = v.numel(value["shape"]) // known if known else -1
        parameters["shape"] = [rest if n == -1 else n for n in shape]


def _given_shape(view: View) -> list[Shape]:
    return [[int(n) if isinstance(n, int) else 1 for n in view["shape"] or []]]


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


def _diagonal_view(view: View) -> list[Shape]:
    shape, offset = view.shape(), int(view["offset"])
    rows, columns = (int(view[name]) % len(shape) for name in ("dim1", "dim2"))
    length = min(shape[rows] + min(offset, 0), shape[columns] - max(offset, 0))
    kept = [n for axis, n in enumerate(shape) if axis not in (rows, columns)]
    return [[*kept, max(length, 0)]]


def _expanded(view: View) -> list[Shape]:
    sizes = [n if isinstance(n, int) else 1 for n in view["size"] or []]
    shape = [1] * (len(sizes) - len(view.shape())) + view.shape()
    return [[old if new == -1 else new for old, new in zip(shape, sizes, strict=False)]]


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
        launches_rule=_copies(_given_shape),
        canonical=_resolve,
        functions="Tensor.reshape torch.reshape",
    ),
    reshaped(
        "flatten",
        "input, start_dim=0, end_dim=-1",
        launches_rule=_copies(_flat),
        canonical=count_dims(start_dim=0, end_dim=-1),
        functions="torch.flatten Tensor.flatten torch.ravel(input) Tensor.ravel(input) nn.Flatten",
    ),
    reshaped(
        "reshape_as",
        "input, other",
        launches_rule=_copies(_other_shape),
        backward=ONCE,
    ),
)

half_of_complex = partial(
    view_of,
    spelled="input",
    dtype_rule=v.real_dtype,
    functions="torch.{0} Tensor.{0}@",
)

_DIM = count_dims(dim=None)
_FIRST = count_dims(dim=0)
register(
    view_of("view", "input, *shape", canonical=_resolve),
    view_of("view_as", "input, other"),
    view_of(
        "unflatten",
        "input, dim, sizes",
        canonical=_DIM,
        functions="Tensor.unflatten torch.unflatten",
    ),
    view_of(
        "permute",
        "input, *dims",
        canonical=count_dims(dims=None),
        functions="Tensor.permute torch.permute",
    ),
    view_of(
        "transpose",
        "input, dim0, dim1",
        canonical=chain(count_dims(dim0=None, dim1=None), _in_order),
        functions="torch.transpose Tensor.transpose torch.swapaxes Tensor.swapaxes "
        "torch.swapdims Tensor.swapdims",
    ),
    view_of("t", "input", functions="torch.t Tensor.t Tensor.T@"),
    view_of("mT", "input", functions="Tensor.mT@"),
    view_of(
        "movedim",
        "input, source, destination",
        functions="torch.movedim Tensor.movedim torch.moveaxis Tensor.moveaxis",
    ),
    view_of(
        "squeeze",
        "input, dim=None",
        canonical=_DIM,
        functions="torch.squeeze Tensor.squeeze",
    ),
    view_of("unsqueeze", "input, dim", canonical=count_dims(extra=1, dim=None)),
    view_of("identity", "input", functions="nn.Identity"),
    view_of(
        "detach",
        "input",
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
        canonical=_FIRST,
        functions="torch.split Tensor.split torch.split_with_sizes Tensor.split_with_sizes",
    ),
    part_of("chunk", "input, chunks, dim=0", canonical=_FIRST),
    part_of("tensor_split", "input, indices_or_sections, dim=0", canonical=_FIRST),
    part_of(
        "unbind",
        "input, dim=0",
        canonical=_FIRST,
        functions="torch.unbind Tensor.unbind Tensor.__iter__",
    ),
    part_of("diagonal", "input, offset=0, dim1=0, dim2=1", shapes_rule=_diagonal_view),
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
