"""Tensors made from nothing, or after another's shape."""

from __future__ import annotations

from functools import partial
from math import ceil

from opdb.kinds.backward import CONSTANT
from opdb.kinds.canonical import Arguments
from opdb.kinds.families import NO_FUNCTION, PLAIN, filled
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    index_dtype,
    input_shape,
    inputs_and_outputs,
    never,
    no_flops,
    one_flop_an_output,
    promoted_dtype,
    written_over,
)
from opdb.records import Json


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


def _size(view: View) -> list[Shape]:
    return [[int(n) for n in view["size"] or []]]


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


def _range(parameters: Arguments, inputs: Arguments) -> None:
    if parameters.get("dtype") == {"dtype": "int64"} and not any(
        isinstance(parameters.get(n), float) for n in ("start", "end", "step")
    ):
        del parameters["dtype"]


created = partial(
    Kind,
    flops_rule=no_flops,
    bytes_rule=lambda view: view.output_bytes,
    shapes_rule=_size,
    dtype_rule=_default_dtype,
    backward=CONSTANT,
    nonzero_rule=dense,
    kernels="generated",
    functions=PLAIN,
)
"""A tensor that is written, whatever was there."""

from_nothing = partial(created, creates=True)
sized = partial(from_nothing, spelled="*size, dtype=None")
created_like = partial(
    created, spelled="input, *, dtype=None, memory_format=None", shapes_rule=input_shape
)
created_by = partial(
    created,
    spelled="input, *size, dtype=None",
    functions="Tensor.{0}(input, *size, dtype=None)",
)
register(
    *map(sized, ("zeros", "ones", "rand", "randn")),
    *map(created_like, ("zeros_like", "ones_like", "rand_like", "randn_like")),
    *map(created_by, ("new_zeros", "new_ones")),
    sized("empty", launches_rule=never),
    created_like("empty_like", launches_rule=never),
    created_by("new_empty", launches_rule=never),
    created("new_full", "input, size, fill_value, *, dtype=None", functions="Tensor.new_full"),
    from_nothing("full", "size, fill_value, *, dtype=None"),
    created(
        "full_like",
        "input, fill_value, *, dtype=None, memory_format=None",
        shapes_rule=input_shape,
    ),
    from_nothing(
        "randint",
        "low, high, size, *, dtype=None",
        dtype_rule=_whole_dtype,
        functions="torch.randint",
    ),
    from_nothing(
        "arange",
        "start, end, step=1, *, dtype=None",
        shapes_rule=_arange_shape,
        dtype_rule=_arange_dtype,
        canonical=_range,
        functions="torch.arange",
    ),
    from_nothing(
        "linspace",
        "start, end, steps, *, dtype=None",
        flops_rule=one_flop_an_output,
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
        flops_rule=one_flop_an_output,
        shapes_rule=lambda view: [[int(view["window_length"])]],
        functions="torch.hann_window",
    ),
    created(
        "multinomial",
        "input, num_samples, replacement=False",
        flops_rule=one_flop_an_output,
        bytes_rule=inputs_and_outputs,
        shapes_rule=lambda view: [[*view.shape()[:-1], int(view["num_samples"])]],
        dtype_rule=index_dtype,
        probabilities=("input",),
    ),
    filled(
        "bernoulli",
        "input, p=None",
        bytes_rule=lambda view: (written_over if view.inplace else inputs_and_outputs)(view),
        dtype_rule=promoted_dtype,
        functions=PLAIN,
        probabilities=("input",),
    ),
    filled("uniform", "input, from_=0, to=1", functions="Tensor.uniform_!"),
    filled("normal", "input, mean=0, std=1", functions="Tensor.normal_!"),
    filled("zero", "input", functions="Tensor.zero_! torch.zero_!"),
    filled("fill", "input, value", functions="torch.fill Tensor.fill_! torch.fill_!"),
)
