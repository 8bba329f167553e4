"""Attention and the transformer layers."""

from __future__ import annotations

from functools import partial

from opdb.kinds.backward import rows_spared, twice
from opdb.kinds.families import NO_FUNCTION
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    CountRule,
    Shape,
    View,
    input_dtype,
    input_shape,
    inputs_and_outputs,
    item_bytes,
    numel,
)


def sdpa_flops(view: View) -> int:
    """Count the two matrix products of softmax(Q K^T) V, a multiply-add as 2; the mask is full."""
    query, value = view.shape("query"), view.shape("value")
    keys = view.shape("key")[-2]
    return 2 * numel(query[:-1]) * keys * (query[-1] + value[-1])


def _lengths(view: View, first: str, second: str) -> tuple[int, int, int]:
    """Return batch, target length and source length of a layer's inputs."""
    target, source = view.shape(first), view.shape(second)
    if len(target) == 2:
        return 1, target[0], source[0]
    if view["batch_first"]:
        return target[0], target[1], source[1]
    return target[1], target[0], source[0]


def _attention(batch: int, target: int, source: int, width: int) -> int:
    """Count four projections and two products of one attention of `width` features."""
    projections = 2 * batch * width * width * (2 * target + 2 * source)
    return projections + 4 * batch * target * source * width


def mha_flops(view: View) -> int:
    """Count projections of query, key, value and output, and the two products between."""
    width = int(view["embed_dim"] or view["embed_dim_to_check"])
    key, value = view.shape("key")[-1], view.shape("value")[-1]
    batch, target, source = _lengths(view, "query", "key")
    projections = 2 * batch * width * (2 * target * width + source * (key + value))
    return projections + 4 * batch * target * (source + _added(view)) * width


def _added(view: View) -> int:
    """Return how many keys attention adds to those that it is given."""
    has_bias = bool(view["add_bias_kv"]) or view["bias_k"] is not None
    return int(has_bias) + int(bool(view["add_zero_attn"]))


def _mha_shapes(view: View) -> list[Shape]:
    out = [*view.shape("query")[:-1], int(view["embed_dim"] or view["embed_dim_to_check"])]
    if not view["need_weights"]:
        return [out]
    batch, target, source = _lengths(view, "query", "key")
    batched = [batch] if len(out) == 3 else []
    heads = [] if view["average_attn_weights"] else [int(view["num_heads"])]
    return [out, [*batched, *heads, target, source + _added(view)]]


def _weights_too(elements: CountRule) -> CountRule:
    def rule(view: View) -> int:
        dtype = view["weight_dtype"] or input_dtype(view)
        return inputs_and_outputs(view) + int(elements(view)) * item_bytes(str(dtype))

    return rule


def encoder_flops(view: View) -> int:
    """Count self-attention and the two linear layers."""
    width, hidden = int(view["d_model"]), int(view["dim_feedforward"])
    batch, length, _ = _lengths(view, "src", "src")
    return _attention(batch, length, length, width) + 4 * batch * length * width * hidden


def decoder_flops(view: View) -> int:
    """Count self-attention, attention to the memory and the two linear layers."""
    width, hidden = int(view["d_model"]), int(view["dim_feedforward"])
    batch, target, source = _lengths(view, "tgt", "memory")
    both = _attention(batch, target, target, width) + _attention(batch, target, source, width)
    return both + 4 * batch * target * width * hidden


def _mha_weights(view: View) -> int:
    width = int(view["embed_dim"])
    columns = 2 * width + int(view["kdim"] or width) + int(view["vdim"] or width)
    return width * (columns + 4 * bool(view["bias"]) + 2 * bool(view["add_bias_kv"]))


def _layer_weights(attentions: int) -> CountRule:
    """Count each attention with a norm, and two linear layers with one."""

    def rule(view: View) -> int:
        width, hidden, bias = int(view["d_model"]), int(view["dim_feedforward"]), bool(view["bias"])
        attention = 4 * width * (width + bias)
        linear = 2 * width * hidden + bias * (hidden + width)
        return attentions * attention + linear + (attentions + 1) * width * (1 + bias)

    return rule


def _spared_by_layer(view: View) -> int:
    """Return the operations of the products spared for inputs that need no gradient."""
    # a norm that comes first has weights: what follows it needs its gradient all the same
    own = 0 if view["norm_first"] else 3 * rows_spared(view, "src", "tgt")
    return 2 * (own + 2 * rows_spared(view, "memory")) * int(view["d_model"]) ** 2


def _spared_by_attention(view: View) -> int:
    width = int(view["embed_dim"])
    entries = (("query", width), ("key", view["kdim"]), ("value", view["vdim"]))
    return sum(2 * width * rows_spared(view, n) * int(size or width) for n, size in entries)


attention = partial(
    Kind,
    bytes_rule=inputs_and_outputs,
    dtype_rule=input_dtype,
    backward=twice(),
    nonzero_rule=dense,
    kernels="attention",
    functions="F.{0}",
    settings=("tf32_matmul",),
)
"""Matrix products with a softmax between."""

attention_layer = partial(
    attention, functions=NO_FUNCTION, settings=("tf32_matmul", "mha_fastpath")
)
"""A layer whose weights its constructor's arguments imply."""

transformer_layer = partial(
    attention_layer,
    shapes_rule=input_shape,
    backward=twice(_spared_by_layer),
    raised=True,
)

_LAYER = (
    "d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-05, "
    "batch_first=False, norm_first=False, bias=True, training=False, weight_dtype=None"
)
register(
    attention(
        "scaled_dot_product_attention",
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, "
        "enable_gqa=False",
        flops_rule=sdpa_flops,
        shapes_rule=lambda view: [[*view.shape("query")[:-1], view.shape("value")[-1]]],
    ),
    attention_layer(
        "multi_head_attention",
        "query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, "
        "average_attn_weights=True, is_causal=False, *, embed_dim, num_heads, dropout=0.0, "
        "bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None, "
        "batch_first=False, training=False, weight_dtype=None",
        flops_rule=mha_flops,
        bytes_rule=_weights_too(_mha_weights),
        shapes_rule=_mha_shapes,
        backward=twice(_spared_by_attention),
    ),
    transformer_layer(
        "transformer_encoder_layer",
        f"src, src_mask=None, src_key_padding_mask=None, is_causal=False, *, {_LAYER}",
        flops_rule=encoder_flops,
        bytes_rule=_weights_too(_layer_weights(1)),
    ),
    transformer_layer(
        "transformer_decoder_layer",
        "tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, "
        "memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False, *, " + _LAYER,
        flops_rule=decoder_flops,
        bytes_rule=_weights_too(_layer_weights(2)),
    ),
    attention(
        "multi_head_attention_forward",
        "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, "
        "bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, "
        "key_padding_mask=None, need_weights=True, attn_mask=None, "
        "use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, "
        "v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, "
        "is_causal=False",
        flops_rule=mha_flops,
        shapes_rule=_mha_shapes,
    ),
)
