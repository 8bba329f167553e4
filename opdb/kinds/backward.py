"""What the backward pass of one call costs, by the same rules as its forward pass.

FLOPs: a product gives each of its factors a gradient by one product more, of as many FLOPs as the
forward one: a convolution or linear layer costs two forwards, one where its input needs no
gradient (an image, say). Recurrent and attention layers are such products; what a fused kernel
computes once more instead of keeping it is not counted. A norm costs two forwards, everything
else that computes costs one, as it counts one for each output forward.

Bytes: the output's gradient read, what the call was given read, each gradient written, all once.
What is linear in its input needs no input, only the indices or conditions that it was given. An
addition's gradient is its inputs' as it stands, parts of one that was concatenated are views.

What needs no gradient says so (`gradient`: false). What adds up gradients, where a tensor was used
more than once, and what puts those of a tensor's parts together are no part of a call; nor is the
optimizer.
"""

from __future__ import annotations

from opdb.kinds.linear import einsum_steps
from opdb.kinds.registry import KINDS, PassRules, register_pass
from opdb.kinds.view import View, numel, spec_bytes
from opdb.records import Configuration, Json

_PRODUCTS: dict[str, tuple[str, ...]] = {
    **{f"conv{rank}d": ("input", "weight") for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": ("input", "weight") for rank in (1, 2, 3)},
    "linear": ("input", "weight"),
    "matmul": ("input", "other"),
    "mm": ("input", "mat2"),
    "bmm": ("input", "mat2"),
    "grouped_mm": ("input", "mat2"),
    "outer": ("input", "vec2"),
    "deform_conv2d": ("input", "weight"),
    "mv": ("input", "vec"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "addmv": ("mat", "vec"),
    "mul": ("input", "other"),
}
"""Products of two factors, and the arguments that hold them."""

_GATES = {"lstm": 4, "gru": 3, "rnn": 1, "lstm_cell": 4, "gru_cell": 3, "rnn_cell": 1}
_TWICE = frozenset(
    (
        *("bilinear", "scaled_dot_product_attention", "multi_head_attention_forward"),
        *("multi_head_attention", "transformer_encoder_layer", "transformer_decoder_layer"),
        *("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"),
        *("local_response_norm", "normalize", "weight_norm"),
        *_GATES,
    )
)
_PASSED_ON = frozenset(("add", "cat", "stack", "hstack", "vstack", "sum", "clone", "contiguous"))
"""The output's gradient, or a view of it, is the inputs': work where an input was broadcast."""

_LINEAR = frozenset(
    (
        *("neg", "positive", "sub", "rsub", "mean", "pad", "roll", "flip", "rot90", "to"),
        *("repeat", "repeat_interleave", "tile", "triu", "tril", "reshape", "flatten"),
        *("interpolate", "unfold", "fold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
        *(f"{name}_pool{rank}d" for name in ("avg", "adaptive_avg") for rank in (1, 2, 3)),
        *("embedding", "embedding_bag", "getitem", "index_select", "gather", "take"),
        *("take_along_dim", "masked_select", "masked_fill", "where"),
    )
)
"""Linear in the input: its gradient is made of the output's, and of indices and conditions."""

_CONSTANT = frozenset(
    (
        *("floor", "ceil", "round", "trunc", "sign", "sgn", "floor_divide", "rfloordiv"),
        *("logical_not", "isin", "heaviside", "bernoulli", "multinomial", "detach"),
        *("zero", "fill", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like"),
        *("randn_like", "new_zeros", "new_ones", "new_empty", "new_full", "setitem", "normal"),
        *("uniform",),
    )
)
"""Nothing of the inputs' gradients is in the output."""

_SPREAD = frozenset(
    (
        *("getitem", "narrow", "select", "split", "chunk", "tensor_split", "unbind", "diagonal"),
        *("expand", "expand_as", "broadcast_to", "unfold_view", "as_strided"),
    )
)
"""Views of another size than their input: its gradient is put together, or summed, anew."""

_STATISTICS = ("running_mean", "running_var")


def backward_flops(configuration: Configuration) -> int:
    """Return the floating point operations of one call's backward pass; a multiply-add counts 2."""
    kind = KINDS[configuration.kind]
    view = kind.view(configuration)
    if not _is_differentiable(view):
        return 0
    forward = kind.flops(configuration)
    if configuration.kind in _PASSED_ON:
        return numel(kind.output_shapes(configuration)[0]) * len(_broadcast(view))
    if configuration.kind in _PRODUCTS:
        factors = [t for name in _PRODUCTS[configuration.kind] for t in view.specs(name)]
        return forward * sum(_needs(t) for t in factors)
    if configuration.kind == "einsum" and len(view.specs("operands")) > 1:
        needs = [_needs(t) for t in view.specs("operands")]
        joins = enumerate(einsum_steps(view), 1)  # of all before an operand with it
        return sum(flops * (any(needs[:n]) + needs[n]) for n, flops in joins)
    if configuration.kind in _TWICE:
        return 2 * forward - _spared(view)
    return forward


def backward_bytes(configuration: Configuration) -> int:
    """Return the bytes that one call's backward pass moves: each read and written once."""
    kind = KINDS[configuration.kind]
    view = kind.view(configuration)
    if not _is_differentiable(view):
        return 0
    outgoing = kind.output_bytes(configuration)
    written = _needing(view)
    if not kind.launches(configuration):
        spreads = configuration.kind in _SPREAD
        return outgoing + sum(spec_bytes(t) for t in written) if spreads else 0
    if configuration.kind in _PASSED_ON:
        written = _broadcast(view)
        return sum(outgoing + spec_bytes(t) for t in written)
    gradients = sum(spec_bytes(t) for t in written) + _implied_weight_bytes(view)
    if configuration.kind in _LINEAR:
        given = [t for t in view.unique if not _is_floating(t["dtype"])]
        return outgoing + sum(spec_bytes(t) for t in given) + gradients
    return kind.bytes_moved(configuration) + gradients


def _is_differentiable(view: View) -> bool:
    kind = KINDS[view.configuration.kind]
    dtype = kind.dtype_rule(view.with_outputs(kind.shapes_rule(view)))
    if view.configuration.kind in _CONSTANT or not _is_floating(dtype):
        return False
    return bool(_needing(view)) or _implied_weight_bytes(view) > 0


def _needing(view: View) -> list[dict[str, Json]]:
    statistics = {id(t) for name in _STATISTICS for t in view.specs(name)}  # equal to a weight's
    return [t for t in view.unique if _needs(t) and id(t) not in statistics]


def _broadcast(view: View) -> list[dict[str, Json]]:
    """Return the inputs of an addition whose gradients are sums over the output's."""
    if view.configuration.kind != "add":
        return []
    shape = KINDS["add"].shapes_rule(view)[0]
    return [t for t in _needing(view) if list(t["shape"]) != shape]


def _needs(spec: Json) -> bool:
    return bool(spec.get("gradient", True)) and _is_floating(spec["dtype"])


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _implied_weight_bytes(view: View) -> int:
    """Return the bytes of weights that a layer has and does not name: recurrent, attention."""
    configuration = view.configuration
    if "weight_dtype" not in view.signature.parameters:
        return 0
    named = sum(spec_bytes(t) for t in view.unique if t.get("role") == "weight")
    return KINDS[configuration.kind].weight_bytes(configuration) - named


def _spared(view: View) -> int:
    """Return the FLOPs of the products that a layer is spared for inputs that need no gradient."""
    kind = view.configuration.kind
    if kind in _GATES:
        rate = (2 if view["bidirectional"] else 1) * _GATES[kind] * int(view["hidden_size"])
        return 2 * rate * _rows_spared(view, "input") * int(view["input_size"])
    if kind in ("transformer_encoder_layer", "transformer_decoder_layer"):
        # a norm that comes first has weights: what follows it needs its gradient all the same
        own = 0 if view["norm_first"] else 3 * _rows_spared(view, "src", "tgt")
        return 2 * (own + 2 * _rows_spared(view, "memory")) * int(view["d_model"]) ** 2
    if kind == "multi_head_attention":
        width = int(view["embed_dim"])
        entries = (("query", width), ("key", view["kdim"]), ("value", view["vdim"]))
        return sum(2 * width * _rows_spared(view, n) * int(size or width) for n, size in entries)
    return 0


def _rows_spared(view: View, *names: str) -> int:
    """Return the rows of the inputs of these names that need no gradient."""
    found = [t for name in names for t in view.specs(name) if not _needs(t)]
    return sum(numel(t["shape"][:-1]) for t in found)


register_pass(
    "backward",
    PassRules(
        flops=lambda configuration: backward_flops(configuration.forward),
        bytes_moved=lambda configuration: backward_bytes(configuration.forward),
    ),
)
