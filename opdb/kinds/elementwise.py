"""Element-wise arithmetic, comparisons and logic.

A function that torch has as `torch.NAME` and computes one element from one needs one line here:
`unary("NAME")`, and its other callables behind `PLAIN` where it has more.
"""

from __future__ import annotations

from functools import partial
from math import inf

from opdb.kinds.backward import CONSTANT, LINEAR, PASSED_ON_OR_SUMMED, product_of
from opdb.kinds.families import (
    NO_FUNCTION,
    PLAIN,
    broadcasting,
    elementwise,
    moved,
    unary,
)
from opdb.kinds.gradients import between, bound, dense, goes_on
from opdb.kinds.registry import register
from opdb.kinds.view import (
    View,
    bool_dtype,
    complex_dtype,
    input_dtype,
    input_shape,
    quotient_dtype,
    real_dtype,
)


def _two_flops(view: View) -> int:
    return 2 * view.output_elements


unary_dense = partial(unary, nonzero_rule=dense)
"""Functions through which zeros of gradients are not followed."""

positive_dense = partial(unary_dense, positive=("input",))

step = partial(unary_dense, backward=CONSTANT)
"""Functions that are constant but for their steps."""

binary = partial(elementwise, spelled="input, other")
"""One operation for each element of two inputs, broadcast together."""

predicate = partial(step, dtype_rule=bool_dtype, mutates=())
comparison = partial(binary, dtype_rule=bool_dtype, backward=CONSTANT)

register(
    unary("exp"),
    unary("log", positive=("input",)),
    unary("sqrt", positive=("input",)),
    unary("rsqrt", positive=("input",)),
    unary("square"),
    unary("tanh", functions=f"{PLAIN} F.tanh"),
    unary("sigmoid", functions=f"{PLAIN} F.sigmoid special.expit"),
    unary(
        "neg", backward=LINEAR, functions=f"{PLAIN} Tensor.__neg__ torch.negative Tensor.negative"
    ),
    unary_dense("positive", backward=LINEAR, functions=f"{PLAIN} Tensor.__pos__"),
    unary_dense(
        "abs",
        dtype_rule=real_dtype,
        functions=f"{PLAIN} Tensor.__abs__ torch.absolute Tensor.absolute",
    ),
    unary_dense("angle", dtype_rule=real_dtype),
    unary_dense("asin", functions=f"{PLAIN} torch.arcsin"),
    unary_dense("acos", functions=f"{PLAIN} torch.arccos"),
    unary_dense("atan", functions=f"{PLAIN} torch.arctan"),
    unary_dense("bitwise_not", functions=f"{PLAIN} Tensor.__invert__"),
    step("trunc", functions=f"{PLAIN} torch.fix"),
    step("logical_not", dtype_rule=bool_dtype),
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
        dtype_rule=quotient_dtype,
        nonzero_rule=goes_on,
        functions="torch.div Tensor.div Tensor.__truediv__ Tensor.__div__ Tensor.div_! "
        "Tensor.__itruediv__! Tensor.__idiv__! torch.divide Tensor.divide Tensor.divide_! "
        "torch.true_divide Tensor.true_divide Tensor.true_divide_!",
    ),
    binary(
        "rtruediv",
        dtype_rule=quotient_dtype,
        functions="Tensor.__rtruediv__ Tensor.__rdiv__",
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
    *map(
        binary,
        ("fmod", "maximum", "minimum", "fmax", "fmin", "hypot", "logaddexp", "copysign"),
    ),
    binary("atan2", functions=f"{PLAIN} torch.arctan2"),
    binary("xlogy", positive=("input",)),
    binary(
        "bitwise_and",
        functions=f"{PLAIN} Tensor.__and__ Tensor.__rand__~ Tensor.__iand__!",
    ),
    binary(
        "bitwise_or",
        functions=f"{PLAIN} Tensor.__or__ Tensor.__ror__~ Tensor.__ior__!",
    ),
    binary(
        "bitwise_xor",
        functions=f"{PLAIN} Tensor.__xor__ Tensor.__rxor__~ Tensor.__ixor__!",
    ),
    binary(
        "bitwise_left_shift",
        functions=f"{PLAIN} Tensor.__lshift__ Tensor.__ilshift__!",
    ),
    binary(
        "bitwise_right_shift",
        functions=f"{PLAIN} Tensor.__rshift__ Tensor.__irshift__!",
    ),
)

register(
    elementwise("addcmul", "input, tensor1, tensor2, *, value=1", flops_rule=_two_flops),
    elementwise("addcdiv", "input, tensor1, tensor2, *, value=1", flops_rule=_two_flops),
    elementwise("lerp", "input, end, weight", flops_rule=_two_flops, probabilities=("weight",)),
    elementwise(
        "clamp",
        "input, min=None, max=None",
        dtype_rule=input_dtype,
        nonzero_rule=between(lambda view: (bound(view["min"], -inf), bound(view["max"], inf))),
        functions="torch.clamp Tensor.clamp Tensor.clamp_! torch.clamp_! torch.clip Tensor.clip "
        "Tensor.clip_! torch.clamp_min(input, min) Tensor.clamp_min(input, min) "
        "Tensor.clamp_min_(input, min)! torch.clamp_max(input, max) Tensor.clamp_max(input, max) "
        "Tensor.clamp_max_(input, max)!",
    ),
    elementwise("nan_to_num", "input, nan=0.0, posinf=None, neginf=None"),
    elementwise("round", "input, *, decimals=0", dtype_rule=input_dtype, backward=CONSTANT),
    elementwise(
        "logit", "input, eps=None", dtype_rule=input_dtype, functions=f"{PLAIN} special.logit"
    ),
    broadcasting("heaviside", "input, values", backward=CONSTANT),
    broadcasting("polar", "abs, angle", dtype_rule=complex_dtype),
    broadcasting("complex", "real, imag", dtype_rule=complex_dtype),
    broadcasting(
        "cross",
        "input, other, dim=None",
        flops_rule=lambda view: 5 * view.output_elements,
        functions=f"{PLAIN} linalg.cross(input, other, *, dim=-1)",
    ),
    broadcasting(
        "isin",
        "elements, test_elements",
        shapes_rule=input_shape,
        dtype_rule=bool_dtype,
        backward=CONSTANT,
    ),
    moved("where", "condition, input, other", functions=NO_FUNCTION),
    moved("masked_fill", "input, mask, value", dtype_rule=input_dtype, mutates=("input",)),
)
