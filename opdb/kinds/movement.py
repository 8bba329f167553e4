"""Data moved from place to place, and tensors made from nothing or after another's shape."""

from __future__ import annotations

from functools import partial
from math import ceil

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    NO_FUNCTION,
    ONCE,
    PASSED_ON,
    PLAIN,
    JsonArguments,
    broadcasting,
    count_dims,
    dense,
    drop,
    filled,
    goes_on,
    listed,
    moved,
    taken_apart,
)
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import Shape, View
from opdb.records import Json


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
    sizes = [v.numel(t["shape"]) for t in view.specs("tensors")]
    if view["indexing"] == "xy":
        sizes[:2] = sizes[1::-1]
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
    leading = [sizes[0], steps] if view["batch_first"] else [steps, sizes[0]]
    return [[*leading, *view.occurrences[0]["shape"][1:]]]


# Tensors put together into one.
joined = partial(moved, backward=PASSED_ON, nonzero_rule=taken_apart, values_rule=v.kept_rectified)

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
        shapes_rule=_joined,
        canonical=count_dims(of="tensors", dim=0),
        functions="torch.cat torch.concat torch.concatenate",
    ),
    joined(
        "stack",
        "tensors, dim=0",
        shapes_rule=_stacked,
        canonical=count_dims(extra=1, of="tensors", dim=0),
    ),
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
    rearranged("rot90", "input, k=1, dims=(0, 1)", shapes_rule=_turned, values_rule=v.no_values),
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
    given = view["dtype"]
    if isinstance(given, dict):
        return str(given["dtype"])
    if view.occurrences:
        return str(view.occurrences[0]["dtype"])
    whole = {bool: "bool", int: "int64"}
    return whole.get(type(view["fill_value"]), "float32")


def _whole_dtype(view: View) -> str:
    given = isinstance(view["dtype"], dict) or view.occurrences
    return _default_dtype(view) if given else "int64"


def _arange_shape(view: View) -> list[Shape]:
    start, end, step = (_number(view[n]) for n in ("start", "end", "step"))
    return [[max(ceil((end - start) / step), 0)]]


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


def _arange_dtype(view: View) -> str:
    given = view["dtype"]
    if isinstance(given, dict):
        return str(given["dtype"])
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
