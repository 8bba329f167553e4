"""Optimizer steps: one call updates all parameters of a model. Their pass is `update`.

A configuration holds the parameters as a sorted list, so that equal multisets are equal text; the
learning rate is a value, which no kernel depends on.
"""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import ONCE
from opdb.kinds.canonical import Arguments
from opdb.kinds.families import NO_FUNCTION
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import Shape, View, numel, promoted_dtype, spec_bytes
from opdb.records import canonical_json


def _sorted(parameters: Arguments, inputs: Arguments) -> None:
    inputs["params"] = sorted(inputs["params"], key=canonical_json)


def _elements(view: View) -> int:
    return sum(numel(spec["shape"]) for spec in view.specs("params"))


def _bytes(view: View) -> int:
    return sum(spec_bytes(spec) for spec in view.specs("params"))


def _shapes(view: View) -> list[Shape]:
    return [list(spec["shape"]) for spec in view.specs("params")]


def _sgd_flops(view: View) -> int:
    """Count a multiply-add (2) each for the step, the momentum and the weight decay."""
    parts = 1 + bool(view["momentum"]) + bool(view["weight_decay"]) + bool(view["nesterov"])
    return 2 * parts * _elements(view)


def _sgd_bytes(view: View) -> int:
    """Count parameter and gradient read, the parameter written; the momentum read and written."""
    return (3 + 2 * bool(view["momentum"])) * _bytes(view)


def _adam_flops(view: View) -> int:
    """Count 3 and 4 for the two averages, 5 for the quotient and step, 1 for the decay."""
    return (13 + 2 * bool(view["amsgrad"])) * _elements(view)


def _adam_bytes(view: View) -> int:
    """Count parameter, gradient and two averages read, all but the gradient written."""
    return (7 + 2 * bool(view["amsgrad"])) * _bytes(view)


optimizer = partial(
    Kind,
    shapes_rule=_shapes,
    dtype_rule=promoted_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    kernels="generated",
    functions=NO_FUNCTION,
    canonical=_sorted,
)
register(
    optimizer(
        "sgd",
        "params, *, momentum=0.0, weight_decay=0.0, nesterov=False",
        flops_rule=_sgd_flops,
        bytes_rule=_sgd_bytes,
    ),
    optimizer(
        "adamw",
        "params, *, weight_decay=0.01, amsgrad=False",
        flops_rule=_adam_flops,
        bytes_rule=_adam_bytes,
    ),
)
