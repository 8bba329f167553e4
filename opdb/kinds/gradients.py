"""Zeros in gradients: the share of an output's gradient that ends in each input's.

A GPU draws less power where many of what it multiplies are zero, and in a backward pass
many are: a ReLU lets half of a gradient through, a max pool gives all but the largest of a window
zero, dropout as many as it dropped. Products and norms that follow make all of it other than zero
again. What is not zero is taken to lie anywhere, and values to be normal.

Each rule takes a call's forward pass, its outputs' shapes filled in, and the share of its outputs'
gradients that is not zero; it gives that of its inputs' gradients, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt

from opdb.kinds.registry import NonzeroRule
from opdb.kinds.view import View, numel


def dense(view: View, given: float) -> float:
    """Give a gradient without zeros: products, norms, and kinds that are not followed further."""
    return 1.0


def unchanged(view: View, given: float) -> float:
    """Give the outputs' share."""
    return given


def goes_on(view: View, given: float) -> float:
    """Give each element of the output's gradient to one of the input's, the largest of them."""
    return _spread(view, given, max((numel(s) for s in _input_shapes(view)), default=0))


def taken_apart(view: View, given: float) -> float:
    """Give each element of the output's gradient to one of all inputs together: a concatenation."""
    return _spread(view, given, sum(numel(s) for s in _input_shapes(view)))


def averaged(rank: int) -> NonzeroRule:
    """Return the rule of a pool of `rank` dimensions: an output's gradient fills its window."""

    def rule(view: View, given: float) -> float:
        kernel = view["kernel_size"]
        window = numel(kernel) if isinstance(kernel, list) else int(kernel) ** rank
        return goes_on(view, given * window)

    return rule


def dropped(view: View, given: float) -> float:
    """Give zeros for what was dropped."""
    return given * (1 - float(view["p"])) if view["training"] else given


def between(bounds: Callable[[View], tuple[float, float]]) -> NonzeroRule:
    """Return the rule of what lets a gradient pass between two values, normal values given."""

    def rule(view: View, given: float) -> float:
        low, high = bounds(view)
        return given * max(0.0, _below(high) - _below(low))

    return rule


def bound(value: object, otherwise: float) -> float:
    """Return a bound that may be left out, or be a tensor."""
    return float(value) if isinstance(value, int | float) else otherwise


def _below(value: float) -> float:
    """Return the share of normal values below one."""
    return (1 + erf(value / sqrt(2))) / 2


def _input_shapes(view: View) -> list[list[int]]:
    return [t["shape"] for t in view.occurrences if t.get("role") != "weight"]


def _spread(view: View, given: float, inputs: int) -> float:
    """Give the share of `inputs` elements that the outputs' nonzero elements are."""
    outputs_an_input = sum(numel(shape) for shape in view.outputs) / inputs if inputs else 1.0
    return min(1.0, given * outputs_an_input)
