"""How much of a gradient is not zero once a call's backward pass has made it.

A matrix product draws less power where many of what it multiplies are zero, and in a backward pass
many are: a ReLU lets half of a gradient through, a max pool gives all but the largest of a window
zero, dropout as many as it dropped. Products and norms that follow make all of it other than zero
again. What is not zero is taken to lie anywhere, and values to be normal.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, inf, sqrt

from opdb.kinds.registry import KINDS
from opdb.kinds.view import View, numel
from opdb.records import Configuration

_EACH_GOES_ON = frozenset(
    (
        # views, and data moved
        *("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "permute"),
        *("transpose", "t", "mT", "movedim", "squeeze", "unsqueeze", "identity", "real", "imag"),
        *("narrow", "select", "split", "chunk", "tensor_split", "unbind", "diagonal", "as_strided"),
        *("expand", "expand_as", "broadcast_to", "contiguous", "clone", "to", "roll", "flip"),
        *("rot90", "cat", "stack", "pad", "repeat", "tile", "getitem"),
        *("index_select", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle"),
        *(f"{name}_pool{rank}d" for name in ("max", "adaptive_max") for rank in (1, 2, 3)),
        # one element by one
        *("add", "sub", "rsub", "neg", "mul", "div", "square", "exp", "log", "sqrt", "rsqrt"),
        *("tanh", "sigmoid", "gelu", "silu", "mish", "elu", "selu", "celu", "leaky_relu", "prelu"),
        *("softplus", "hardsigmoid", "hardswish"),
    )
)
"""Where each element of the output's gradient ends in one of the input's."""

_AVERAGES = frozenset(f"avg_pool{rank}d" for rank in (1, 2, 3))
_ADAPTIVE_AVERAGES = frozenset(f"adaptive_avg_pool{rank}d" for rank in (1, 2, 3))
_DROPOUTS = frozenset(("dropout", "dropout1d", "dropout2d", "dropout3d"))


def _bound(value: object, otherwise: float) -> float:
    """Return a bound that may be left out, or be a tensor."""
    return float(value) if isinstance(value, int | float) else otherwise


_LETS_THROUGH: dict[str, Callable[[View], tuple[float, float]]] = {
    "relu": lambda view: (0.0, inf),
    "relu6": lambda view: (0.0, 6.0),
    "threshold": lambda view: (_bound(view["threshold"], -inf), inf),
    "hardtanh": lambda view: (float(view["min_val"]), float(view["max_val"])),
    "clamp": lambda view: (_bound(view["min"], -inf), _bound(view["max"], inf)),
}
"""Between which values a gradient passes."""


def nonzero_share(configuration: Configuration, given: float) -> float:
    """Return the share of an input's gradient that is not zero, from 0 to 1.

    `configuration` is the call's forward pass, `given` that share of its outputs' gradients.
    """
    kind = configuration.kind
    view = KINDS[kind].view(configuration)
    if kind in _LETS_THROUGH:
        low, high = _LETS_THROUGH[kind](view)
        return given * max(0.0, _below(high) - _below(low))
    if kind in _DROPOUTS:
        return given * (1 - float(view["p"])) if view["training"] else given
    if kind in _ADAPTIVE_AVERAGES:
        return given
    if kind in _AVERAGES:
        return min(1.0, given * _window(view) * _outputs_an_input(view))
    if kind in _EACH_GOES_ON:
        return min(1.0, given * _outputs_an_input(view))
    return 1.0


def _below(value: float) -> float:
    """Return the share of normal values below one."""
    return (1 + erf(value / sqrt(2))) / 2


def _window(view: View) -> int:
    kernel = view["kernel_size"]
    rank = int(view.configuration.kind[-2])
    return numel(kernel) if isinstance(kernel, list) else int(kernel) ** rank


def _outputs_an_input(view: View) -> float:
    """Return how many outputs there are for each element of the inputs."""
    outputs = KINDS[view.configuration.kind].output_shapes(view.configuration)
    shapes = [t["shape"] for t in view.occurrences if t.get("role") != "weight"]
    inputs = max((numel(shape) for shape in shapes), default=0)
    if view.configuration.kind in ("cat", "stack"):
        inputs = sum(numel(shape) for shape in shapes)
    return sum(numel(shape) for shape in outputs) / inputs if inputs else 1.0
