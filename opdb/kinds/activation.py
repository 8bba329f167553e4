"""Activations and dropouts."""

from __future__ import annotations

from functools import partial
from math import inf

from opdb.kinds.canonical import Arguments, chain, count_dims, drop_unless
from opdb.kinds.families import broadcasting
from opdb.kinds.gradients import between, bound, dense, dropped, goes_on
from opdb.kinds.registry import register
from opdb.kinds.view import (
    Shape,
    View,
    flops_an_element,
    input_dtype,
    input_shape,
    named_dtype,
    promoted_dtype,
    rectified,
    same_values,
    when_training,
)

activation = partial(
    broadcasting,
    shapes_rule=input_shape,
    dtype_rule=input_dtype,
    nonzero_rule=goes_on,
    functions="F.{0}",
)
"""One operation for each element, in the input's shape and dtype."""

in_place = partial(activation, mutates=("input",))
"""An activation that may work in place."""

register(
    in_place(
        "relu",
        "input, inplace=False",
        values_rule=rectified,
        nonzero_rule=between(lambda view: (0.0, inf)),
        functions="F.relu torch.relu Tensor.relu Tensor.relu_! torch.relu_! F.relu_!",
    ),
    in_place(
        "relu6",
        "input, inplace=False",
        values_rule=rectified,
        nonzero_rule=between(lambda view: (0.0, 6.0)),
    ),
    in_place("elu", "input, alpha=1.0, inplace=False", functions="F.elu F.elu_!"),
    in_place("selu", "input, inplace=False", functions="F.selu torch.selu torch.selu_! F.selu_!"),
    in_place(
        "celu",
        "input, alpha=1.0, inplace=False",
        functions="F.celu torch.celu torch.celu_! F.celu_!",
    ),
    in_place(
        "leaky_relu",
        "input, negative_slope=0.01, inplace=False",
        functions="F.leaky_relu F.leaky_relu_!",
    ),
    in_place("hardswish", "input, inplace=False"),
    in_place("hardsigmoid", "input, inplace=False"),
    in_place(
        "hardtanh",
        "input, min_val=-1.0, max_val=1.0, inplace=False",
        nonzero_rule=between(lambda view: (float(view["min_val"]), float(view["max_val"]))),
        functions="F.hardtanh F.hardtanh_!",
    ),
    in_place("silu", "input, inplace=False"),
    in_place("mish", "input, inplace=False"),
    in_place(
        "threshold",
        "input, threshold, value, inplace=False",
        nonzero_rule=between(lambda view: (bound(view["threshold"], -inf), inf)),
        functions="F.threshold torch.threshold torch.threshold_! F.threshold_!",
    ),
    activation("gelu", "input, *, approximate='none'"),
    activation("softplus", "input, beta=1.0, threshold=20.0"),
    activation("prelu", "input, weight", functions="F.prelu torch.prelu Tensor.prelu"),
    # zeros of gradients are not followed through these
    activation("softsign", "input", nonzero_rule=dense),
    activation("tanhshrink", "input", nonzero_rule=dense),
    activation(
        "hardshrink",
        "input, lambd=0.5",
        nonzero_rule=dense,
        functions="F.hardshrink torch.hardshrink Tensor.hardshrink",
    ),
    activation("softshrink", "input, lambd=0.5", nonzero_rule=dense),
    activation("logsigmoid", "input", nonzero_rule=dense),
    in_place(
        "rrelu",
        "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False",
        dtype_rule=promoted_dtype,
        nonzero_rule=dense,
        canonical=drop_unless("training", "training"),
    ),
)


def _halved(view: View) -> list[Shape]:
    shape = view.shape()
    dim = int(view["dim"])
    shape[dim] //= 2
    return [shape]


register(
    activation(
        "glu",
        "input, dim=-1",
        shapes_rule=_halved,
        dtype_rule=promoted_dtype,
        nonzero_rule=dense,
        canonical=count_dims(dim=-1),
    )
)


def _implicit_dim(parameters: Arguments, inputs: Arguments) -> None:
    # torch's rule where `dim` is left out: 0 for 0, 1 and 3 dimensions, else 1
    value = inputs.get("input")
    if "dim" not in parameters and isinstance(value, dict) and "shape" in value:
        parameters["dim"] = 0 if len(value["shape"]) in (0, 1, 3) else 1


softmax = partial(
    activation,
    spelled="input, dim=None, dtype=None",
    flops_rule=flops_an_element(5),  # maximum, subtraction, exponential, sum, division
    dtype_rule=named_dtype,
    nonzero_rule=dense,
    canonical=chain(_implicit_dim, count_dims(dim=None)),
)
_IMPLICIT = "F.{0}(input, dim=None, _stacklevel=3, dtype=None)"
_NAMED = f"{_IMPLICIT} torch.{{0}} Tensor.{{0}} special.{{0}}(input, dim, *, dtype=None)"
register(
    softmax("softmax", functions=_NAMED),
    softmax("log_softmax", functions=_NAMED),
    softmax("softmin", functions=_IMPLICIT),
    activation(
        "gumbel_softmax",
        "logits, tau=1.0, hard=False, eps=1e-10, dim=-1",
        flops_rule=flops_an_element(8, "logits"),
        dtype_rule=promoted_dtype,
        nonzero_rule=dense,
    ),
)

dropout = partial(
    in_place,
    spelled="input, p=0.5, training=False, inplace=False",
    launches_rule=when_training,
    values_rule=same_values,
    nonzero_rule=dropped,
    canonical=drop_unless("training", "p", "inplace"),
    functions="F.{0}(input, p=0.5, training=True, inplace=False)",
)
register(
    dropout(
        "dropout",
        functions="F.{0}(input, p=0.5, training=True, inplace=False) "
        "torch.{0}(input, p, training) torch.{0}_(input, p, training)!",
    ),
    dropout("dropout1d"),
    dropout("dropout2d"),
    dropout("dropout3d"),
    dropout(
        "alpha_dropout",
        nonzero_rule=dense,
        functions="F.{0}(input, p=0.5, training=False, inplace=False)",
    ),
    dropout("feature_alpha_dropout", nonzero_rule=dense),
)
