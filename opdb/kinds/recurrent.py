"""Recurrent layers and their cells; weights are implied by the constructor's arguments."""

from __future__ import annotations

from opdb.kinds.canonical import Arguments
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    input_dtype,
    inputs_and_outputs,
    item_bytes,
    numel,
)

# cuDNN runs these: its TF32 switch is the convolutions'
SETTINGS = ("tf32_convolution", "tf32_matmul")
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


def _dropout(parameters: Arguments, inputs: Arguments) -> None:
    if not parameters.get("training"):
        parameters.pop("dropout", None)


_LAYER = (
    "input, hx=None, *, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, "
    "dropout=0.0, bidirectional=False, training=False, weight_dtype=None"
)
_CELL = "input, hx=None, *, input_size, hidden_size, bias=True, weight_dtype=None"
for _name, _more in {"lstm": ", proj_size=0", "gru": "", "rnn": ", nonlinearity='tanh'"}.items():
    register(
        Kind(
            _name,
            _LAYER + _more,
            flops_rule=recurrent_flops,
            bytes_rule=_bytes,
            shapes_rule=_sequence_shapes,
            dtype_rule=input_dtype,
            canonical=_dropout,
            settings=SETTINGS,
        ),
        Kind(
            f"{_name}_cell",
            _CELL + (_more if _name == "rnn" else ""),
            flops_rule=recurrent_flops,
            bytes_rule=_bytes,
            shapes_rule=_cell_shapes,
            dtype_rule=input_dtype,
            settings=("tf32_matmul",),
        ),
    )
