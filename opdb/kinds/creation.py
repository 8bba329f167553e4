"""Tensors made from nothing, or after another's shape."""

from __future__ import annotations

from math import ceil

from opdb.kinds.canonical import Arguments
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    input_dtype,
    input_shape,
    inputs_and_outputs,
    no_flops,
    written_over,
)
from opdb.records import Json


def _written(view: View) -> int:
    return view.output_bytes


def _default_dtype(view: View) -> str:
    given = view["dtype"]
    if isinstance(given, dict):
        return str(given["dtype"])
    if view.occurrences:
        return str(view.occurrences[0]["dtype"])
    if view.configuration.kind == "randint":
        return "int64"
    whole = {bool: "bool", int: "int64"}
    return whole.get(type(view["fill_value"]), "float32")


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


def _data_shape(view: View) -> list[Shape]:
    return [[int(n) for n in view["shape"] or []]]


for _name in ("zeros", "ones", "empty", "rand", "randn"):
    register(
        Kind(
            _name,
            "*size, dtype=None",
            flops_rule=no_flops,
            bytes_rule=_written,
            shapes_rule=_size,
            dtype_rule=_default_dtype,
            launches_rule=lambda view: view.configuration.kind != "empty",
        ),
        Kind(
            f"{_name}_like",
            "input, *, dtype=None, memory_format=None",
            flops_rule=no_flops,
            bytes_rule=_written,
            shapes_rule=input_shape,
            dtype_rule=_default_dtype,
            launches_rule=lambda view: view.configuration.kind != "empty_like",
        ),
    )
for _name, _signature in {
    "new_zeros": "input, *size, dtype=None",
    "new_ones": "input, *size, dtype=None",
    "new_empty": "input, *size, dtype=None",
    "new_full": "input, size, fill_value, *, dtype=None",
    "full": "size, fill_value, *, dtype=None",
    "randint": "low, high, size, *, dtype=None",
}.items():
    register(
        Kind(
            _name,
            _signature,
            flops_rule=no_flops,
            bytes_rule=_written,
            shapes_rule=_size,
            dtype_rule=_default_dtype,
            launches_rule=lambda view: view.configuration.kind != "new_empty",
        )
    )

register(
    Kind(
        "full_like",
        "input, fill_value, *, dtype=None, memory_format=None",
        flops_rule=no_flops,
        bytes_rule=_written,
        shapes_rule=input_shape,
        dtype_rule=_default_dtype,
    ),
    Kind(
        "arange",
        "start, end, step=1, *, dtype=None",
        flops_rule=no_flops,
        bytes_rule=_written,
        shapes_rule=_arange_shape,
        dtype_rule=_arange_dtype,
        canonical=_range,
    ),
    Kind(
        "linspace",
        "start, end, steps, *, dtype=None",
        bytes_rule=_written,
        shapes_rule=lambda view: [[int(view["steps"])]],
        dtype_rule=_default_dtype,
    ),
    Kind(
        "eye",
        "n, m=None, *, dtype=None",
        flops_rule=no_flops,
        bytes_rule=_written,
        shapes_rule=lambda view: [[int(view["n"]), int(view["m"] or view["n"])]],
        dtype_rule=_default_dtype,
    ),
    # the data of a constant cost nothing but their size: only shape and dtype are kept
    Kind(
        "tensor",
        "shape, dtype",
        flops_rule=no_flops,
        bytes_rule=_written,
        shapes_rule=_data_shape,
        dtype_rule=_default_dtype,
        launches_rule=lambda view: 0 not in (view["shape"] or []),
    ),
    Kind(
        "bernoulli",
        "input, p=None",
        flops_rule=no_flops,
        bytes_rule=lambda view: (written_over if view.inplace else inputs_and_outputs)(view),
        shapes_rule=input_shape,
        mutates=("input",),
    ),
    Kind(
        "multinomial",
        "input, num_samples, replacement=False",
        shapes_rule=lambda view: [[*view.shape()[:-1], int(view["num_samples"])]],
        dtype_rule=lambda view: "int64",
    ),
    Kind(
        "hann_window",
        "window_length, periodic=True, *, dtype=None",
        shapes_rule=lambda view: [[int(view["window_length"])]],
        bytes_rule=_written,
        dtype_rule=_default_dtype,
    ),
)
for _name, _signature in {
    "uniform": "input, from_=0, to=1",
    "normal": "input, mean=0, std=1",
    "zero": "input",
    "fill": "input, value",
}.items():
    register(
        Kind(
            _name,
            _signature,
            flops_rule=no_flops,
            bytes_rule=written_over,
            shapes_rule=input_shape,
            dtype_rule=input_dtype,
            mutates=("input",),
        )
    )
