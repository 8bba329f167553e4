"""Element-wise arithmetic, comparisons and logic; activations and dropouts.

A function that torch has as `torch.NAME` and computes one element from one needs one line here:
`unary("NAME")`, and its other callables behind `PLAIN` where it has more.
"""

from __future__ import annotations

from functools import partial
from math import inf

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    LINEAR,
    NO_FUNCTION,
    ONCE,
    PASSED_ON_OR_SUMMED,
    PLAIN,
    JsonArguments,
    between,
    bound,
    broadcasting,
    chain,
    count_dims,
    dense,
    drop_unless,
    dropped,
    elementwise,
    goes_on,
    moved,
    product_of,
    unary,
)
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import View, numel, promoted_dtype, spec_bytes
from opdb.records import canonical_json


def _two_flops(view: View) -> int:
    return 2 * view.output_elements


# Functions through which zeros of gradients are not followed.
unary_dense = partial(unary, nonzero_rule=dense)

positive_dense = partial(unary_dense, positive=("input",))

# Functions that are constant but for their steps.
step = partial(unary_dense, backward=CONSTANT)

# One operation for each element of two inputs, broadcast together.
binary = partial(elementwise, spelled="input, other")

predicate = partial(step, dtype_rule=v.bool_dtype, mutates=())
comparison = partial(binary, dtype_rule=v.bool_dtype, backward=CONSTANT)

register(
    unary("exp"),
    unary("log", positive=("input",)),
    unary("sqrt", positive=("input",)),
    unary("rsqrt", positive=("input",)),
    unary("square"),
    unary("tanh", functions=f"{PLAIN} F.tanh nn.Tanh"),
    unary("sigmoid", functions=f"{PLAIN} F.sigmoid special.expit nn.Sigmoid"),
    unary(
        "neg", backward=LINEAR, functions=f"{PLAIN} Tensor.__neg__ torch.negative Tensor.negative"
    ),
    unary_dense("positive", backward=LINEAR, functions=f"{PLAIN} Tensor.__pos__"),
    unary_dense(
        "abs",
        dtype_rule=v.real_dtype,
        functions=f"{PLAIN} Tensor.__abs__ torch.absolute Tensor.absolute",
    ),
    unary_dense("angle", dtype_rule=v.real_dtype),
    unary_dense("asin", functions=f"{PLAIN} torch.arcsin"),
    unary_dense("acos", functions=f"{PLAIN} torch.arccos"),
    unary_dense("atan", functions=f"{PLAIN} torch.arctan"),
    unary_dense("bitwise_not", functions=f"{PLAIN} Tensor.__invert__"),
    step("trunc", functions=f"{PLAIN} torch.fix"),
    step("logical_not", dtype_rule=v.bool_dtype),
)
register(
    *map(
        unary_dense,
        (
            *("exp2", "expm1", "reciprocal", "sin", "cos", "tan", "sinh", "cosh", "asinh", "acosh"),
            *("atanh", "erf", "erfc", "erfinv", "frac", "i0", "conj_physical", "deg2rad"),
            *("rad2deg", "sinc"),
        ),
    ),
    *map(positive_dense, ("log2", "log10", "log1p", "lgamma", "digamma")),
    *map(step, ("ceil", "floor", "sign", "sgn")),
    *map(predicate, ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit")),
)

register(
    comparison("eq", functions=f"{PLAIN} Tensor.__eq__"),
    comparison("ne", functions=f"{PLAIN} Tensor.__ne__ torch.not_equal"),
    comparison("lt", functions=f"{PLAIN} Tensor.__lt__ torch.less"),
    comparison("le", functions=f"{PLAIN} Tensor.__le__ torch.less_equal"),
    comparison("gt", functions=f"{PLAIN} Tensor.__gt__ torch.greater"),
    comparison("ge", functions=f"{PLAIN} Tensor.__ge__ torch.greater_equal"),
    *map(comparison, ("logical_and", "logical_or", "logical_xor")),
    comparison("isclose", spelled="input, other, rtol=1e-05, atol=1e-08, equal_nan=False"),
)

register(
    elementwise(
        "add",
        "input, other, *, alpha=1",
        backward=PASSED_ON_OR_SUMMED,
        nonzero_rule=goes_on,
        functions="torch.add Tensor.add Tensor.__add__ Tensor.__radd__~ Tensor.add_! "
        "Tensor.__iadd__!",
    ),
    elementwise(
        "sub",
        "input, other, *, alpha=1",
        backward=LINEAR,
        nonzero_rule=goes_on,
        functions="torch.sub Tensor.sub Tensor.__sub__ Tensor.sub_! Tensor.__isub__! "
        "torch.subtract Tensor.subtract Tensor.subtract_!",
    ),
    elementwise(
        "rsub",
        "input, other, *, alpha=1",
        backward=LINEAR,
        nonzero_rule=goes_on,
        functions="torch.rsub Tensor.__rsub__",
    ),
    binary(
        "mul",
        backward=product_of("input", "other"),
        nonzero_rule=goes_on,
        functions="torch.mul Tensor.mul Tensor.__mul__ Tensor.__rmul__~ Tensor.mul_! "
        "Tensor.__imul__! torch.multiply Tensor.multiply Tensor.multiply_!",
    ),
    elementwise(
        "div",
        "input, other, *, rounding_mode=None",
        dtype_rule=v.quotient_dtype,
        nonzero_rule=goes_on,
        functions="torch.div Tensor.div Tensor.__truediv__ Tensor.__div__ Tensor.div_! "
        "Tensor.__itruediv__! Tensor.__idiv__! torch.divide Tensor.divide Tensor.divide_! "
        "torch.true_divide Tensor.true_divide Tensor.true_divide_!",
    ),
    binary(
        "rtruediv", dtype_rule=v.quotient_dtype, functions="Tensor.__rtruediv__ Tensor.__rdiv__"
    ),
    binary(
        "floor_divide",
        backward=CONSTANT,
        functions=f"{PLAIN} Tensor.__floordiv__ Tensor.__ifloordiv__!",
    ),
    binary("rfloordiv", backward=CONSTANT, functions="Tensor.__rfloordiv__"),
    binary("remainder", functions=f"{PLAIN} Tensor.__mod__ Tensor.__imod__!"),
    elementwise(
        "pow",
        "input, exponent",
        positive=("input",),
        functions="torch.pow Tensor.pow Tensor.__pow__ Tensor.__rpow__~ Tensor.pow_! "
        "Tensor.__ipow__!",
    ),
    elementwise("float_power", "input, exponent"),
    *map(binary, ("fmod", "maximum", "minimum", "fmax", "fmin", "hypot", "logaddexp", "copysign")),
    binary("atan2", functions=f"{PLAIN} torch.arctan2"),
    binary("xlogy", positive=("input",)),
    binary("bitwise_and", functions=f"{PLAIN} Tensor.__and__ Tensor.__rand__~ Tensor.__iand__!"),
    binary("bitwise_or", functions=f"{PLAIN} Tensor.__or__ Tensor.__ror__~ Tensor.__ior__!"),
    binary("bitwise_xor", functions=f"{PLAIN} Tensor.__xor__ Tensor.__rxor__~ Tensor.__ixor__!"),
    binary("bitwise_left_shift", functions=f"{PLAIN} Tensor.__lshift__ Tensor.__ilshift__!"),
    binary("bitwise_right_shift", functions=f"{PLAIN} Tensor.__rshift__ Tensor.__irshift__!"),
)

register(
    elementwise("addcmul", "input, tensor1, tensor2, *, value=1", flops_rule=_two_flops),
    elementwise("addcdiv", "input, tensor1, tensor2, *, value=1", flops_rule=_two_flops),
    elementwise("lerp", "input, end, weight", flops_rule=_two_flops, probabilities=("weight",)),
    elementwise(
        "clamp",
        "input, min=None, max=None",
        dtype_rule=v.input_dtype,
        nonzero_rule=between(lambda view: (bound(view["min"], -inf), bound(view["max"], inf))),
        functions="torch.clamp Tensor.clamp Tensor.clamp_! torch.clamp_! torch.clip Tensor.clip "
        "Tensor.clip_! torch.clamp_min(input, min) Tensor.clamp_min(input, min) "
        "Tensor.clamp_min_(input, min)! torch.clamp_max(input, max) Tensor.clamp_max(input, max) "
        "Tensor.clamp_max_(input, max)!",
    ),
    elementwise("nan_to_num", "input, nan=0.0, posinf=None, neginf=None"),
    elementwise("round", "input, *, decimals=0", dtype_rule=v.input_dtype, backward=CONSTANT),
    elementwise(
        "logit", "input, eps=None", dtype_rule=v.input_dtype, functions=f"{PLAIN} special.logit"
    ),
    broadcasting("heaviside", "input, values", backward=CONSTANT),
    broadcasting("polar", "abs, angle", dtype_rule=v.complex_dtype),
    broadcasting("complex", "real, imag", dtype_rule=v.complex_dtype),
    broadcasting(
        "cross",
        "input, other, dim=None",
        flops_rule=lambda view: 5 * view.output_elements,
        functions=f"{PLAIN} linalg.cross(input, other, *, dim=-1)",
    ),
    broadcasting(
        "isin",
        "elements, test_elements",
        shapes_rule=v.input_shape,
        dtype_rule=v.bool_dtype,
        backward=CONSTANT,
    ),
    moved(
        "where",
        "condition, input, other",
        functions="torch.where Tensor.where(input, condition, other)",
    ),
    moved("masked_fill", "input, mask, value", dtype_rule=v.input_dtype, mutates=("input",)),
)


# activations and dropouts


# One operation for each element, in the input's shape and dtype.
activation = partial(
    broadcasting,
    shapes_rule=v.input_shape,
    dtype_rule=v.input_dtype,
    nonzero_rule=goes_on,
    functions="F.{0}",
)

# An activation that may work in place.
in_place = partial(activation, mutates=("input",))

register(
    in_place(
        "relu",
        "input, inplace=False",
        values_rule=v.rectified,
        nonzero_rule=between(lambda view: (0.0, inf)),
        functions="F.relu torch.relu Tensor.relu Tensor.relu_! torch.relu_! F.relu_! nn.ReLU",
    ),
    in_place(
        "relu6",
        "input, inplace=False",
        values_rule=v.rectified,
        nonzero_rule=between(lambda view: (0.0, 6.0)),
        functions="F.{0} nn.ReLU6",
    ),
    in_place("elu", "input, alpha=1.0, inplace=False", functions="F.elu F.elu_! nn.ELU"),
    in_place(
        "selu", "input, inplace=False", functions="F.selu torch.selu torch.selu_! F.selu_! nn.SELU"
    ),
    in_place(
        "celu",
        "input, alpha=1.0, inplace=False",
        functions="F.celu torch.celu torch.celu_! F.celu_! nn.CELU",
    ),
    in_place(
        "leaky_relu",
        "input, negative_slope=0.01, inplace=False",
        functions="F.leaky_relu F.leaky_relu_! nn.LeakyReLU",
    ),
    in_place("hardswish", "input, inplace=False", functions="F.{0} nn.Hardswish"),
    in_place("hardsigmoid", "input, inplace=False", functions="F.{0} nn.Hardsigmoid"),
    in_place(
        "hardtanh",
        "input, min_val=-1.0, max_val=1.0, inplace=False",
        nonzero_rule=between(lambda view: (float(view["min_val"]), float(view["max_val"]))),
        functions="F.hardtanh F.hardtanh_! nn.Hardtanh",
    ),
    in_place("silu", "input, inplace=False", functions="F.{0} nn.SiLU"),
    in_place("mish", "input, inplace=False", functions="F.{0} nn.Mish"),
    in_place(
        "threshold",
        "input, threshold, value, inplace=False",
        nonzero_rule=between(lambda view: (bound(view["threshold"], -inf), inf)),
        functions="F.threshold torch.threshold torch.threshold_! F.threshold_! nn.Threshold",
    ),
    activation("gelu", "input, *, approximate='none'", functions="F.{0} nn.GELU"),
    activation("softplus", "input, beta=1.0, threshold=20.0", functions="F.{0} nn.Softplus"),
    activation("prelu", "input, weight", functions="F.prelu torch.prelu Tensor.prelu"),
    # zeros of gradients are not followed through these
    activation("softsign", "input", nonzero_rule=dense, functions="F.{0} nn.Softsign"),
    activation("tanhshrink", "input", nonzero_rule=dense, functions="F.{0} nn.Tanhshrink"),
    activation(
        "hardshrink",
        "input, lambd=0.5",
        nonzero_rule=dense,
        functions="F.hardshrink torch.hardshrink Tensor.hardshrink nn.Hardshrink",
    ),
    activation(
        "softshrink", "input, lambd=0.5", nonzero_rule=dense, functions="F.{0} nn.Softshrink"
    ),
    activation("logsigmoid", "input", nonzero_rule=dense, functions="F.{0} nn.LogSigmoid"),
    activation(
        "glu",
        "input, dim=-1",
        shapes_rule=lambda view: [view.resized("dim", view.shape()[int(view["dim"])] // 2)],
        dtype_rule=v.promoted_dtype,
        nonzero_rule=dense,
        canonical=count_dims(dim=-1),
        functions="F.{0} nn.GLU",
    ),
    in_place(
        "rrelu",
        "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False",
        dtype_rule=v.promoted_dtype,
        nonzero_rule=dense,
        canonical=drop_unless("training", "training"),
        functions="F.{0} nn.RReLU",
    ),
)


def _implicit_dim(parameters: JsonArguments, inputs: JsonArguments) -> None:
    # torch's rule where `dim` is left out: 0 for 0, 1 and 3 dimensions, else 1
    value = inputs.get("input")
    if "dim" not in parameters and isinstance(value, dict) and "shape" in value:
        parameters["dim"] = 0 if len(value["shape"]) in (0, 1, 3) else 1


softmax = partial(
    activation,
    spelled="input, dim=None, dtype=None",
    flops_rule=v.flops_an_element(5),  # maximum, subtraction, exponential, sum, division
    dtype_rule=v.named_dtype,
    nonzero_rule=dense,
    canonical=chain(_implicit_dim, count_dims(dim=None)),
)
_IMPLICIT = "F.{0}(input, dim=None, _stacklevel=3, dtype=None)"
_NAMED = f"{_IMPLICIT} torch.{{0}} Tensor.{{0}} special.{{0}}(input, dim, *, dtype=None)"
register(
    softmax("softmax", functions=f"{_NAMED} nn.Softmax"),
    softmax("log_softmax", functions=f"{_NAMED} nn.LogSoftmax"),
    softmax("softmin", functions=f"{_IMPLICIT} nn.Softmin"),
    activation(
        "gumbel_softmax",
        "logits, tau=1.0, hard=False, eps=1e-10, dim=-1",
        flops_rule=v.flops_an_element(8, "logits"),
        dtype_rule=v.promoted_dtype,
        nonzero_rule=dense,
    ),
)

_DROPPED = "F.{0}(input, p=0.5, training=True, inplace=False)"
dropout = partial(
    in_place,
    spelled="input, p=0.5, training=False, inplace=False",
    launches_rule=lambda view: bool(view["training"]),
    values_rule=v.same_values,
    nonzero_rule=dropped,
    canonical=drop_unless("training", "p", "inplace"),
    functions=_DROPPED,
)
register(
    dropout(
        "dropout",
        functions=f"{_DROPPED} torch.{{0}}(input, p, training) torch.{{0}}_(input, p, training)! "
        "nn.Dropout",
    ),
    *(dropout(f"dropout{n}d", functions=f"{_DROPPED} nn.Dropout{n}d") for n in (1, 2, 3)),
    dropout(
        "alpha_dropout",
        nonzero_rule=dense,
        functions="F.{0}(input, p=0.5, training=False, inplace=False) nn.AlphaDropout",
    ),
    dropout(
        "feature_alpha_dropout", nonzero_rule=dense, functions=f"{_DROPPED} nn.FeatureAlphaDropout"
    ),
)


# Optimizer steps: one call updates all parameters of a model. Their pass is `update`.
#
# A configuration holds the parameters as a sorted list, so that equal multisets are equal text; the
# learning rate is a value, which no kernel depends on.


def _sorted(parameters: JsonArguments, inputs: JsonArguments) -> None:
    inputs["params"] = sorted(inputs["params"], key=canonical_json)


def _elements(view: View) -> int:
    return sum(numel(spec["shape"]) for spec in view.specs("params"))


def _bytes(view: View) -> int:
    return sum(spec_bytes(spec) for spec in view.specs("params"))


def _sgd_flops(view: View) -> int:
    """Count a multiply-add (2) each for the step, the momentum and the weight decay."""
    parts = 1 + bool(view["momentum"]) + bool(view["weight_decay"]) + bool(view["nesterov"])
    return 2 * parts * _elements(view)


optimizer = partial(
    Kind,
    shapes_rule=lambda view: [list(spec["shape"]) for spec in view.specs("params")],
    dtype_rule=promoted_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    functions=NO_FUNCTION,
    canonical=_sorted,
)
register(
    optimizer(
        "sgd",
        "params, *, momentum=0.0, weight_decay=0.0, nesterov=False",
        flops_rule=_sgd_flops,
        # parameter and gradient read, the parameter written; the momentum read and written
        bytes_rule=lambda view: (3 + 2 * bool(view["momentum"])) * _bytes(view),
    ),
    optimizer(
        "adamw",
        "params, *, weight_decay=0.01, amsgrad=False",
        # 3 and 4 for the two averages, 5 for the quotient and step, 1 for the decay
        flops_rule=lambda view: (13 + 2 * bool(view["amsgrad"])) * _elements(view),
        # parameter, gradient and two averages read, all but the gradient written
        bytes_rule=lambda view: (7 + 2 * bool(view["amsgrad"])) * _bytes(view),
    ),
)
