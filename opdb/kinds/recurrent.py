"""Recurrent layers and their cells; weights are implied by the constructor's arguments."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import rows_spared, twice
from opdb.kinds.canonical import drop_unless
from opdb.kinds.families import NO_FUNCTION
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    input_dtype,
    inputs_and_outputs,
    item_bytes,
    numel,
)

_GATES = {"lstm": 4, "gru": 3, "rnn": 1, "lstm_cell": 4, "gru_cell": 3, "rnn_cell": 1}


def _matrices(view: View) -> tuple[int, int]:
    """Return the entries of all weight matrices, and of all biases."""
    gates, hidden = _GATES[view.configuration.kind], int(view["hidden_size"])
    projected = int(view["proj_size"] or hidden)
    directions = 2 if view["bidirectional"] else 1
    entries, width = 0, int(view["input_size"])
    for _ in range(int(view["num_layers"] or 1)):
        entries += directions * gates * hidden * (width + projected)
        if view["proj_size"]:
            entries += directions * hidden * projected
        width = directions * projected
    layers = int(view["num_layers"] or 1)
    return entries, 2 * layers * directions * gates * hidden if view["bias"] else 0


def recurrent_flops(view: View) -> int:
    """Count a multiply-add (2) for each weight and each step of each sequence."""
    return 2 * numel(view.shape()[:-1]) * _matrices(view)[0]


def _steps(view: View) -> int:
    """Return the length of the sequences times the layers; both directions run at once."""
    shape = view.shape()
    length = shape[1] if len(shape) == 3 and view["batch_first"] else shape[0]
    return int(length) * int(view["num_layers"])


def _bytes(view: View) -> int:
    dtype = view["weight_dtype"] or input_dtype(view)
    return inputs_and_outputs(view) + sum(_matrices(view)) * item_bytes(str(dtype))


def _sequence_shapes(view: View) -> list[Shape]:
    shape = view.shape()
    hidden = int(view["hidden_size"])
    width = int(view["proj_size"] or hidden)
    directions = 2 if view["bidirectional"] else 1
    batch = [] if len(shape) == 2 else [shape[0 if view["batch_first"] else 1]]
    layers = directions * int(view["num_layers"])
    shapes = [[*shape[:-1], directions * width], [layers, *batch, width]]
    if view.configuration.kind == "lstm":
        shapes.append([layers, *batch, hidden])
    return shapes


def _cell_shapes(view: View) -> list[Shape]:
    shape = [*view.shape()[:-1], int(view["hidden_size"])]
    return [shape, shape] if view.configuration.kind == "lstm_cell" else [shape]


def _spared(view: View) -> int:
    """Return the operations of the products spared for an input that needs no gradient."""
    rate = (2 if view["bidirectional"] else 1) * _GATES[view.configuration.kind]
    rows = rows_spared(view, "input")
    return 2 * rate * int(view["hidden_size"]) * rows * int(view["input_size"])


recurrent = partial(
    Kind,
    flops_rule=recurrent_flops,
    bytes_rule=_bytes,
    dtype_rule=input_dtype,
    backward=twice(_spared),
    nonzero_rule=dense,
    kernels="recurrent",
    functions=NO_FUNCTION,
)
"""Gates' products, for each step of each sequence."""

# cuDNN runs these: its TF32 switch is the convolutions'
layer = partial(
    recurrent,
    shapes_rule=_sequence_shapes,
    steps_rule=_steps,
    canonical=drop_unless("training", "dropout"),
    settings=("tf32_convolution", "tf32_matmul"),
)
cell = partial(recurrent, shapes_rule=_cell_shapes, settings=("tf32_matmul",))

_LAYER = (
    "input, hx=None, *, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, "
    "dropout=0.0, bidirectional=False, training=False, weight_dtype=None"
)
_CELL = "input, hx=None, *, input_size, hidden_size, bias=True, weight_dtype=None"
register(
    layer("lstm", f"{_LAYER}, proj_size=0"),
    layer("gru", _LAYER),
    layer("rnn", f"{_LAYER}, nonlinearity='tanh'"),
    cell("lstm_cell", _CELL),
    cell("gru_cell", _CELL),
    cell("rnn_cell", f"{_CELL}, nonlinearity='tanh'"),
)
