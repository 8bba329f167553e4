"""Element-wise arithmetic, comparisons and logic."""

from __future__ import annotations

from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    View,
    bool_dtype,
    complex_dtype,
    input_dtype,
    input_shape,
    no_flops,
    promoted_dtype,
    quotient_dtype,
    real_dtype,
)

_UNARY = (
    "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin "
    "acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv ceil floor trunc frac sign "
    "sgn positive lgamma digamma i0 logical_not bitwise_not angle conj_physical deg2rad rad2deg "
    "sinc"
)
_PREDICATES = "isnan isinf isfinite isposinf isneginf signbit"
_COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor isclose"
_BINARY = {
    "add": "input, other, *, alpha=1",
    "sub": "input, other, *, alpha=1",
    "rsub": "input, other, *, alpha=1",
    "mul": "input, other",
    "div": "input, other, *, rounding_mode=None",
    "rtruediv": "input, other",
    "floor_divide": "input, other",
    "rfloordiv": "input, other",
    "remainder": "input, other",
    "fmod": "input, other",
    "pow": "input, exponent",
    "maximum": "input, other",
    "minimum": "input, other",
    "fmax": "input, other",
    "fmin": "input, other",
    "atan2": "input, other",
    "hypot": "input, other",
    "logaddexp": "input, other",
    "xlogy": "input, other",
    "copysign": "input, other",
    "bitwise_and": "input, other",
    "bitwise_or": "input, other",
    "bitwise_xor": "input, other",
    "bitwise_left_shift": "input, other",
    "bitwise_right_shift": "input, other",
    "float_power": "input, exponent",
}


_OF_ANOTHER_DTYPE = {"abs": real_dtype, "angle": real_dtype, "logical_not": bool_dtype}


def _two_flops(view: View) -> int:
    return 2 * view.output_elements


for _name in _UNARY.split():
    _rule = _OF_ANOTHER_DTYPE.get(_name, input_dtype)
    register(Kind(_name, "input", dtype_rule=_rule, mutates=("input",)))
for _name in _PREDICATES.split():
    register(Kind(_name, "input", dtype_rule=bool_dtype))
for _name in _COMPARISONS.split():
    _more = ", rtol=1e-05, atol=1e-08, equal_nan=False" if _name == "isclose" else ""
    register(Kind(_name, f"input, other{_more}", dtype_rule=bool_dtype, mutates=("input",)))
for _name, _signature in _BINARY.items():
    _rule = quotient_dtype if _name in ("div", "rtruediv") else promoted_dtype
    register(Kind(_name, _signature, dtype_rule=_rule, mutates=("input",)))

register(
    Kind(
        "addcmul", "input, tensor1, tensor2, *, value=1", flops_rule=_two_flops, mutates=("input",)
    ),
    Kind(
        "addcdiv", "input, tensor1, tensor2, *, value=1", flops_rule=_two_flops, mutates=("input",)
    ),
    Kind("lerp", "input, end, weight", flops_rule=_two_flops, mutates=("input",)),
    Kind("clamp", "input, min=None, max=None", dtype_rule=input_dtype, mutates=("input",)),
    Kind("nan_to_num", "input, nan=0.0, posinf=None, neginf=None", mutates=("input",)),
    Kind("round", "input, *, decimals=0", dtype_rule=input_dtype, mutates=("input",)),
    Kind("logit", "input, eps=None", dtype_rule=input_dtype, mutates=("input",)),
    Kind("where", "condition, input, other", flops_rule=no_flops),
    Kind(
        "masked_fill",
        "input, mask, value",
        flops_rule=no_flops,
        dtype_rule=input_dtype,
        mutates=("input",),
    ),
    Kind(
        "isin",
        "elements, test_elements",
        shapes_rule=input_shape,
        dtype_rule=bool_dtype,
    ),
    Kind("heaviside", "input, values"),
    Kind("polar", "abs, angle", dtype_rule=complex_dtype),
    Kind("complex", "real, imag", dtype_rule=complex_dtype),
    Kind("cross", "input, other, dim=None", flops_rule=lambda view: 5 * view.output_elements),
)
