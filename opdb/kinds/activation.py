"""Activations and dropouts."""

from __future__ import annotations

from opdb.kinds.canonical import Arguments, chain, count_dims, drop_unless
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    input_dtype,
    input_shape,
    named_dtype,
    no_values,
    numel,
    rectified,
    same_values,
    when_training,
)

_IN_PLACE = {
    "relu": "input, inplace=False",
    "relu6": "input, inplace=False",
    "elu": "input, alpha=1.0, inplace=False",
    "selu": "input, inplace=False",
    "celu": "input, alpha=1.0, inplace=False",
    "leaky_relu": "input, negative_slope=0.01, inplace=False",
    "hardswish": "input, inplace=False",
    "hardsigmoid": "input, inplace=False",
    "hardtanh": "input, min_val=-1.0, max_val=1.0, inplace=False",
    "silu": "input, inplace=False",
    "mish": "input, inplace=False",
    "threshold": "input, threshold, value, inplace=False",
}
_OUT_OF_PLACE = {
    "gelu": "input, *, approximate='none'",
    "softplus": "input, beta=1.0, threshold=20.0",
    "softsign": "input",
    "tanhshrink": "input",
    "hardshrink": "input, lambd=0.5",
    "softshrink": "input, lambd=0.5",
    "logsigmoid": "input",
    "prelu": "input, weight",
}
for _name, _signature in {**_IN_PLACE, **_OUT_OF_PLACE}.items():
    register(
        Kind(
            _name,
            _signature,
            shapes_rule=input_shape,
            dtype_rule=input_dtype,
            values_rule=rectified if _name in ("relu", "relu6") else no_values,
            mutates=("input",) if _name in _IN_PLACE else (),
        )
    )


def _rrelu(parameters: Arguments, inputs: Arguments) -> None:
    if not parameters.get("training"):
        parameters.pop("training", None)


register(
    Kind(
        "rrelu",
        "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False",
        shapes_rule=input_shape,
        canonical=_rrelu,
        mutates=("input",),
    )
)


def _halved(view: View) -> list[Shape]:
    shape = view.shape()
    dim = int(view["dim"])
    shape[dim] //= 2
    return [shape]


register(Kind("glu", "input, dim=-1", shapes_rule=_halved, canonical=count_dims(dim=-1)))


def softmax_flops(view: View) -> int:
    """Count 5 an element: maximum, subtraction, exponential, sum, division."""
    return 5 * numel(view.shape())


def _implicit_dim(parameters: Arguments, inputs: Arguments) -> None:
    # torch's rule where `dim` is left out: 0 for 0, 1 and 3 dimensions, else 1
    value = inputs.get("input")
    if "dim" not in parameters and isinstance(value, dict) and "shape" in value:
        parameters["dim"] = 0 if len(value["shape"]) in (0, 1, 3) else 1


for _name in ("softmax", "log_softmax", "softmin"):
    register(
        Kind(
            _name,
            "input, dim=None, dtype=None",
            flops_rule=softmax_flops,
            shapes_rule=input_shape,
            dtype_rule=named_dtype,
            canonical=chain(_implicit_dim, count_dims(dim=None)),
        )
    )

for _name in (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
):
    register(
        Kind(
            _name,
            "input, p=0.5, training=False, inplace=False",
            shapes_rule=input_shape,
            dtype_rule=input_dtype,
            launches_rule=when_training,
            values_rule=same_values,
            canonical=drop_unless("training", "p", "inplace"),
            mutates=("input",),
        )
    )


register(
    Kind(
        "gumbel_softmax",
        "logits, tau=1.0, hard=False, eps=1e-10, dim=-1",
        flops_rule=lambda view: 8 * numel(view.shape("logits")),
        shapes_rule=input_shape,
    ),
)
