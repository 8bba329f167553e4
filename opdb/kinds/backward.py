"""The cost of a call's backward pass, by the same rules as that of its forward pass.

FLOPs: a product gives each of its factors a gradient by one product more, of as many FLOPs as the
forward one: a convolution or linear layer costs two forwards, one where its input needs no
gradient (an image, say). Recurrent and attention layers are such products; what a fused kernel
computes once more instead of keeping it is not counted. A norm costs two forwards, everything
else that computes costs one, as it counts one for each output forward.

Bytes: the output's gradient read, what the call was given read, each gradient written, all once. An
operator that is linear in its input does not read the input, only the indices or conditions that it
was given. An addition's gradient is its inputs' as it stands, parts of one that was concatenated
are views.

An input that needs no gradient says so (`gradient`: false). Not part of a call are the sums of
gradients of a tensor that was used more than once, the joining of the gradients of a tensor's
parts, and the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable

from opdb.kinds.registry import Backward, Kind
from opdb.kinds.view import View, is_floating, needs_gradient, numel, spec_bytes
from opdb.records import Json


def _nothing(kind: Kind, view: View) -> int:
    return 0


def _as_forward(kind: Kind, view: View) -> int:
    return kind.flops(view.configuration)


def _reads_all(kind: Kind, view: View) -> int:
    """Count the forward pass's bytes, the outputs' as their gradient's, and each gradient."""
    return kind.bytes_moved(view.configuration) + _gradients(kind, view)


def _reads_indices(kind: Kind, view: View) -> int:
    """Count the output's gradient, indices and conditions read, and each gradient written."""
    given = sum(spec_bytes(t) for t in view.unique if not is_floating(t["dtype"]))
    return kind.output_bytes(view.configuration) + given + _gradients(kind, view)


def _gradients(kind: Kind, view: View) -> int:
    written = sum(spec_bytes(t) for t in view.needing_gradient)
    return written + kind.implied_weight_bytes(view)


def _broadcast_inputs(kind: Kind, view: View) -> list[dict[str, Json]]:
    """Return the inputs whose gradients are sums over the output's."""
    shape = kind.shapes_rule(view)[0]
    return [t for t in view.needing_gradient if list(t["shape"]) != shape]


def _sums(kind: Kind, view: View) -> int:
    """Count an operation for each element that is summed for an input that was broadcast."""
    return numel(kind.shapes_rule(view)[0]) * len(_broadcast_inputs(kind, view))


def _sums_bytes(kind: Kind, view: View) -> int:
    outgoing = kind.output_bytes(view.configuration)
    return sum(outgoing + spec_bytes(t) for t in _broadcast_inputs(kind, view))


ONCE = Backward(_as_forward, _reads_all)
"""As many operations as the forward pass, on what it was given and the output's gradient."""

LINEAR = Backward(_as_forward, _reads_indices)
"""Linear in the input: its gradient is made of the output's, and of indices and conditions."""

LINEAR_OR_VIEW = Backward(_as_forward, _reads_indices, spreads=True)
"""As `LINEAR`; where the call is a view, its gradient is put together anew."""

PASSED_ON = Backward(_nothing, _nothing)
"""The output's gradient, or a view of it, is the inputs'."""

PASSED_ON_OR_SUMMED = Backward(_sums, _sums_bytes)
"""The output's gradient is the inputs'; summed where an input was broadcast: an addition."""

SPREAD = Backward(_nothing, _nothing, spreads=True)
"""A view of another size than its input: its gradient is put together, or summed, anew."""

CONSTANT = Backward(_nothing, _nothing, has_gradient=False)
"""Nothing of the inputs' gradients is in the output."""


def twice(spared: Callable[[View], int] | None = None) -> Backward:
    """Return the rule of two forward passes, less the operations that are `spared`."""

    def flops(kind: Kind, view: View) -> int:
        saved = 0 if spared is None else spared(view)
        return 2 * kind.flops(view.configuration) - saved

    return Backward(flops, _reads_all)


def product_of(*factors: str) -> Backward:
    """Return the rule of a product: a forward pass more for each factor that needs a gradient."""

    def flops(kind: Kind, view: View) -> int:
        needing = [needs_gradient(t) for name in factors for t in view.specs(name)]
        return kind.flops(view.configuration) * sum(needing)

    return Backward(flops, _reads_all)


def steps_of(name: str, steps: Callable[[View], list[int]]) -> Backward:
    """Return the rule of tensors of an argument that join one after another, `steps` of FLOPs each.

    A join gives a gradient to what was joined before, where that needs one, and to what joins.
    """

    def flops(kind: Kind, view: View) -> int:
        needs = [needs_gradient(t) for t in view.specs(name)]
        if len(needs) < 2:
            return kind.flops(view.configuration)
        joins = enumerate(steps(view), 1)
        return sum(count * (any(needs[:n]) + needs[n]) for n, count in joins)

    return Backward(flops, _reads_all)


def rows_spared(view: View, *names: str) -> int:
    """Return the rows of the inputs of these names that need no gradient."""
    found = [t for name in names for t in view.specs(name) if not needs_gradient(t)]
    return sum(numel(t["shape"][:-1]) for t in found)
