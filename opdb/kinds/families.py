"""Families of kinds: what their members have in common, decided once.

A family is `Kind` with some of its fields filled in; a member may decide each of them anew. Those
of a single file (products, norms, pools …) are declared there.
"""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import CONSTANT, LINEAR, ONCE, PASSED_ON, SPREAD
from opdb.kinds.gradients import dense, goes_on
from opdb.kinds.registry import Kind
from opdb.kinds.view import (
    broadcast_output,
    input_dtype,
    input_shape,
    inputs_and_outputs,
    never,
    no_flops,
    one_flop_an_output,
    promoted_dtype,
    same_values,
    written_over,
)

PLAIN = "torch.{0} Tensor.{0} Tensor.{0}_! torch.{0}_! special.{0}"
"""The callables of a kind that torch has as function, method and in place, by the kind's name."""

NO_FUNCTION = ""
"""No callable computes it alone: a module does, or `opdb.operators.overloads` tells it apart."""

broadcasting = partial(
    Kind,
    flops_rule=one_flop_an_output,
    bytes_rule=inputs_and_outputs,
    shapes_rule=broadcast_output,
    dtype_rule=promoted_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    kernels="generated",
    functions=PLAIN,
)
"""One operation for each output element, of all inputs broadcast together."""

elementwise = partial(broadcasting, mutates=("input",))
"""As `broadcasting`, with a method in place."""

unary = partial(elementwise, spelled="input", dtype_rule=input_dtype, nonzero_rule=goes_on)
"""One operation for each element of one input, in its dtype."""

moved = partial(broadcasting, flops_rule=no_flops, backward=LINEAR)
"""Data moved, nothing computed."""

view_of = partial(
    moved,
    bytes_rule=inputs_and_outputs,
    dtype_rule=input_dtype,
    backward=PASSED_ON,
    nonzero_rule=goes_on,
    launches_rule=never,
    values_rule=same_values,
)
"""Another view of the same data: no work."""

part_of = partial(view_of, backward=SPREAD)
"""A view of another size than its input, whose gradient is written anew."""

filled = partial(
    moved,
    bytes_rule=written_over,
    shapes_rule=input_shape,
    dtype_rule=input_dtype,
    backward=CONSTANT,
    mutates=("input",),
)
"""A tensor written over in place."""
