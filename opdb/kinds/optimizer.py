"""Optimizer steps: one call updates all parameters of a model. Their pass is `update`.

A configuration holds the parameters as a sorted list, so that equal multisets are equal text; the
learning rate is a value, which no kernel depends on.
"""

from __future__ import annotations

from functools import partial

from opdb.kinds.families import NO_FUNCTION, ONCE, Arguments, dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import View, numel, promoted_dtype, spec_bytes
from opdb.records import canonical_json


def _sorted(parameters: Arguments, inputs: Arguments) -> None:
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
