"""Families of kinds, and the rules that their members share beyond those of `view`.

A family is `Kind` with some of its fields filled in; a member may decide each of them anew. Those
of a single file (products, norms, pools …) are declared there.

Zeros in gradients: a GPU draws less power where many of what it multiplies are zero, and in a
backward pass many are: a ReLU lets half of a gradient through, a max pool gives all but the largest
of a window zero, dropout as many as it dropped. Products and norms that follow make all of it other
than zero again. What is not zero is taken to lie anywhere, and values to be normal. Each rule takes
a call's forward pass, its outputs' shapes filled in, and the share of its outputs' gradients that
is not zero; it gives that of its inputs' gradients, from 0 to 1.

FLOPs of a backward pass: a product gives each of its factors a gradient by one product more, of as
many FLOPs as the forward one: a convolution or linear layer costs two forwards, one where its input
needs no gradient (an image, say). Recurrent and attention layers are such products; what a fused
kernel computes once more instead of keeping it is not counted. A norm costs two forwards,
everything else that computes costs one, as it counts one for each output forward.

Bytes of a backward pass: the output's gradient read, what the call was given read, each gradient
written, all once. An operator that is linear in its input does not read the input, only the indices
or conditions that it was given. An addition's gradient is its inputs' as it stands, parts of one
that was concatenated are views. An input that needs no gradient says so (`gradient`: false). Not
part of a call are the sums of gradients of a tensor that was used more than once, the joining of
the gradients of a tensor's parts, and the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import erf, sqrt

from opdb.kinds import view as v
from opdb.kinds.registry import Backward, Canonical, Kind, NonzeroRule
from opdb.kinds.view import View
from opdb.records import Json

# zeros in gradients


def dense(view: View, given: float) -> float:
    """Give a gradient without zeros: products, norms, and kinds that are not followed further."""
    return 1.0


def unchanged(view: View, given: float) -> float:
    return given


def goes_on(view: View, given: float) -> float:
    """Give each element of the output's gradient to one of the input's, the largest of them."""
    return _share_of(view, given, max((v.numel(s) for s in _input_shapes(view)), default=0))


def taken_apart(view: View, given: float) -> float:
    """Give each element of the output's gradient to one of all inputs together: a concatenation."""
    return _share_of(view, given, sum(v.numel(s) for s in _input_shapes(view)))


def averaged(view: View, given: float) -> float:
    """Give the share of a pool's gradient: that of an output fills its window."""
    kernel = view["kernel_size"]
    return goes_on(view, given * (v.numel(kernel) if isinstance(kernel, list) else kernel))


def dropped(view: View, given: float) -> float:
    return given * (1 - float(view["p"])) if view["training"] else given


def between(bounds: Callable[[View], tuple[float, float]]) -> NonzeroRule:
    """Return the rule of what lets a gradient pass between two values, normal values given."""

    def rule(view: View, given: float) -> float:
        low, high = bounds(view)
        return given * max(0.0, _below(high) - _below(low))

    return rule


def bound(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else otherwise


def _below(value: float) -> float:
    return (1 + erf(value / sqrt(2))) / 2


def _input_shapes(view: View) -> list[list[int]]:
    return [t["shape"] for t in view.occurrences if t.get("role") != "weight"]


def _share_of(view: View, given: float, inputs: int) -> float:
    """Give the share of `inputs` elements that the outputs' nonzero elements are."""
    outputs_an_input = sum(v.numel(shape) for shape in view.outputs) / inputs if inputs else 1.0
    return min(1.0, given * outputs_an_input)


# backward passes


def _reads_all(view: View) -> int:
    """Count the forward pass's bytes, the outputs' as their gradient's, and each gradient."""
    return view.traffic()[0] + view.gradient_bytes


def _reads_indices(view: View) -> int:
    """Count the output's gradient, indices and conditions read, and each gradient written."""
    given = sum(v.spec_bytes(t) for t in view.unique if not v.is_floating(t["dtype"]))
    return view.output_bytes + given + view.gradient_bytes


def _broadcast_inputs(view: View) -> list[dict[str, Json]]:
    return [t for t in view.needing_gradient if list(t["shape"]) != view.outputs[0]]


def _sums(view: View) -> int:
    """Count an operation for each element that is summed for an input that was broadcast."""
    return v.numel(view.outputs[0]) * len(_broadcast_inputs(view))


def _sums_bytes(view: View) -> int:
    return sum(view.output_bytes + v.spec_bytes(t) for t in _broadcast_inputs(view))


# As many operations as the forward pass, on what it was given and the output's gradient.
ONCE = Backward(View.flops, _reads_all)

# Linear in the input: its gradient is made of the output's, and of indices and conditions.
LINEAR = Backward(View.flops, _reads_indices)

# As `LINEAR`; where the call is a view, its gradient is put together anew.
LINEAR_OR_VIEW = Backward(View.flops, _reads_indices, spreads=True)

# The output's gradient, or a view of it, is the inputs'.
PASSED_ON = Backward(v.no_flops, v.no_flops)

# The output's gradient is the inputs'; summed where an input was broadcast: an addition.
PASSED_ON_OR_SUMMED = Backward(_sums, _sums_bytes)

# A view of another size than its input: its gradient is put together, or summed, anew.
SPREAD = Backward(v.no_flops, v.no_flops, spreads=True)

# Nothing of the inputs' gradients is in the output.
CONSTANT = Backward(v.no_flops, v.no_flops, has_gradient=False)


def twice(spared: Callable[[View], int] | None = None) -> Backward:

    def flops(view: View) -> int:
        saved = 0 if spared is None else spared(view)
        return 2 * view.flops() - saved

    return Backward(flops, _reads_all)


def product_of(*factors: str) -> Backward:
    """Return the rule of a product: a forward pass more for each factor that needs a gradient."""

    def flops(view: View) -> int:
        needing = [v.needs_gradient(t) for name in factors for t in view.specs(name)]
        return view.flops() * sum(needing)

    return Backward(flops, _reads_all)


def steps_of(name: str, steps: Callable[[View], list[int]]) -> Backward:
    """Return the rule of tensors of an argument that join one after another, `steps` of FLOPs each.

    A join gives a gradient to what was joined before, where that needs one, and to what joins.
    """

    def flops(view: View) -> int:
        needs = [v.needs_gradient(t) for t in view.specs(name)]
        if len(needs) < 2:
            return view.flops()
        joins = enumerate(steps(view), 1)
        return sum(count * (any(needs[:n]) + needs[n]) for n, count in joins)

    return Backward(flops, _reads_all)


def rows_spared(view: View, *names: str) -> int:
    found = [t for name in names for t in view.specs(name) if not v.needs_gradient(t)]
    return sum(v.numel(t["shape"][:-1]) for t in found)


# equal calls as equal text


JsonArguments = dict[str, Json]


def spread(
    parameters: JsonArguments, inputs: JsonArguments, *, rank: int, **defaults: Json
) -> None:
    """Spread numbers to `rank` entries, and drop them at a default that is not None."""
    for name, default in defaults.items():
        value = parameters.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = [value] * rank
        if value is None:
            continue
        parameters[name] = value
        if default is not None and value == [default] * rank:
            del parameters[name]


def count_dims(extra: int = 0, of: str = "input", **defaults: Json) -> Canonical:
    """Return a rewriter that counts dimensions from the start: the last of four is 3.

    A dimension at its default is dropped, however it was counted. `extra` is 1 where the output
    has one more dimension than the input (stack, unsqueeze).
    """

    def rewrite(parameters: JsonArguments, inputs: JsonArguments) -> None:
        value = inputs.get(of)
        first = value[0] if isinstance(value, list) and value else value
        if not v.is_spec(first):
            return
        rank = len(first["shape"]) + extra
        for name, default in defaults.items():
            if name not in parameters:
                continue
            parameters[name] = _nonnegative(parameters[name], rank)
            if default is not None and parameters[name] == _nonnegative(default, rank):
                del parameters[name]

    return rewrite


def _nonnegative(value: Json, rank: int) -> Json:
    if isinstance(value, list):
        return [_nonnegative(item, rank) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return value + rank
    return value


def chain(*steps: Canonical) -> Canonical:

    def rewrite(parameters: JsonArguments, inputs: JsonArguments) -> None:
        for step in steps:
            step(parameters, inputs)

    return rewrite


def drop_unless(condition: str, *names: str) -> Canonical:
    def rewrite(parameters: JsonArguments, inputs: JsonArguments) -> None:
        if not parameters.get(condition):
            for name in names:
                parameters.pop(name, None)

    return rewrite


def drop(name: str, value: Json) -> Canonical:
    """Return a rewriter that drops a parameter at a value that means its default."""

    def rewrite(parameters: JsonArguments, inputs: JsonArguments) -> None:
        if name in parameters and repr(parameters[name]) == repr(value):
            del parameters[name]

    return rewrite


def listed(name: str) -> Canonical:
    """Return a rewriter that makes a whole number a list of one."""

    def rewrite(parameters: JsonArguments, inputs: JsonArguments) -> None:
        if isinstance(parameters.get(name), int):
            parameters[name] = [parameters[name]]

    return rewrite


# families


# The callables of a kind that torch has as function, method and in place, by the kind's name.
PLAIN = "torch.{0} Tensor.{0} Tensor.{0}_! torch.{0}_! special.{0}"

# No callable computes it alone: a module does, or `opdb.operators.functions` tells it apart.
NO_FUNCTION = ""

# One operation for each output element, of all inputs broadcast together.
broadcasting = partial(
    Kind,
    flops_rule=v.one_flop_an_output,
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=lambda view: [v.broadcast([t["shape"] for t in view.occurrences])],
    dtype_rule=v.promoted_dtype,
    backward=ONCE,
    nonzero_rule=dense,
    functions=PLAIN,
)

# As `broadcasting`, with a method in place.
elementwise = partial(broadcasting, mutates=("input",))

# One operation for each element of one input, in its dtype.
unary = partial(elementwise, spelled="input", dtype_rule=v.input_dtype, nonzero_rule=goes_on)

# Data moved, nothing computed.
moved = partial(broadcasting, flops_rule=v.no_flops, backward=LINEAR)

# Another view of the same data: no work. Of its shape nothing counts but its elements, all of them.
view_of = partial(
    moved,
    shapes_rule=v.input_shape,
    dtype_rule=v.input_dtype,
    backward=PASSED_ON,
    nonzero_rule=goes_on,
    launches_rule=v.never,
    values_rule=v.same_values,
)

# A view of another size than its input, whose gradient is written anew.
part_of = partial(view_of, backward=SPREAD)

# A tensor written over in place.
filled = partial(
    moved,
    bytes_rule=v.written_over,
    shapes_rule=v.input_shape,
    dtype_rule=v.input_dtype,
    backward=CONSTANT,
    mutates=("input",),
)
