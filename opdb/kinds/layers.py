"""Layers whose weights their constructor implies: attention, transformers, recurrent layers.

A packed sequence is the rows of all steps in one tensor, and how many sequences each step has.
"""

from __future__ import annotations

from functools import partial

from opdb.kinds import view as v
from opdb.kinds.families import NO_FUNCTION, dense, drop_unless, rows_spared, twice
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import CountRule, Shape, View


def sdpa_flops(view: View) -> int:
    """Count the two matrix products of softmax(Q K^T) V, a multiply-add as 2; the mask is full."""
    query, value = view.shape("query"), view.shape("value")
    keys = view.shape("key")[-2]
    return 2 * v.numel(query[:-1]) * keys * (query[-1] + value[-1])


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
        dtype = view["weight_dtype"] or v.input_dtype(view)
        return v.inputs_and_outputs(view) + int(elements(view)) * v.item_bytes(str(dtype))

    return rule


def encoder_flops(view: View) -> int:
    width, hidden = int(view["d_model"]), int(view["dim_feedforward"])
    batch, length, _ = _lengths(view, "src", "src")
    return _attention(batch, length, length, width) + 4 * batch * length * width * hidden


def decoder_flops(view: View) -> int:
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


# Matrix products with a softmax between.
attention = partial(
    Kind,
    bytes_rule=v.inputs_and_outputs,
    dtype_rule=v.input_dtype,
    backward=twice(),
    nonzero_rule=dense,
    functions="F.{0}",
    settings=("tf32_matmul",),
)

# A layer whose weights its constructor's arguments imply.
attention_layer = partial(
    attention, functions=NO_FUNCTION, settings=("tf32_matmul", "mha_fastpath")
)

transformer_layer = partial(
    attention_layer, shapes_rule=v.input_shape, backward=twice(_spared_by_layer), raised=True
)

_TRANSFORMER = (
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
        f"src, src_mask=None, src_key_padding_mask=None, is_causal=False, *, {_TRANSFORMER}",
        flops_rule=encoder_flops,
        bytes_rule=_weights_too(_layer_weights(1)),
    ),
    transformer_layer(
        "transformer_decoder_layer",
        "tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, "
        "memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False, *, "
        + _TRANSFORMER,
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


# recurrent layers and their cells


_GATES = {"lstm": 4, "gru": 3, "rnn": 1, "lstm_cell": 4, "gru_cell": 3, "rnn_cell": 1}


def _matrices(view: View) -> tuple[int, int]:
    """Return the entries of all weight matrices, and of all biases."""
    gates, hidden = _GATES[view.configuration.kind], int(view["hidden_size"])
    projected = int(view["proj_size"] or hidden)
    directions = 2 if view["bidirectional"] else 1
    entries, width = 0, int(view["input_size"])
    for _ in range(int(view["num_layers"] or 1)):
        entries += directions * gates * hidden * (width + projected)
        if view["proj_size"]:
            entries += directions * hidden * projected
        width = directions * projected
    layers = int(view["num_layers"] or 1)
    return entries, 2 * layers * directions * gates * hidden if view["bias"] else 0


def _steps(view: View) -> int:
    """Return the length of the sequences times the layers; both directions run at once."""
    shape, packed = view.shape(), view["batch_sizes"]
    length = shape[1] if len(shape) == 3 and view["batch_first"] else shape[0]
    return int(len(packed) if packed else length) * int(view["num_layers"])


def _bytes(view: View) -> int:
    dtype = view["weight_dtype"] or v.input_dtype(view)
    return v.inputs_and_outputs(view) + sum(_matrices(view)) * v.item_bytes(str(dtype))


def _sequence_shapes(view: View) -> list[Shape]:
    shape, packed = view.shape(), view["batch_sizes"]
    hidden = int(view["hidden_size"])
    width = int(view["proj_size"] or hidden)
    directions = 2 if view["bidirectional"] else 1
    batch = shape[0 if view["batch_first"] else 1 :][:1] if len(shape) > 2 else (packed or [])[:1]
    layers = directions * int(view["num_layers"])
    shapes = [[*shape[:-1], directions * width], [layers, *batch, width]]
    if view.configuration.kind == "lstm":
        shapes.append([layers, *batch, hidden])
    return shapes


def _cell_shapes(view: View) -> list[Shape]:
    shape = [*view.shape()[:-1], int(view["hidden_size"])]
    return [shape, shape] if view.configuration.kind == "lstm_cell" else [shape]


def _spared(view: View) -> int:
    """Return the operations of the products spared for an input that needs no gradient."""
    rate = (2 if view["bidirectional"] else 1) * _GATES[view.configuration.kind]
    rows = rows_spared(view, "input")
    return 2 * rate * int(view["hidden_size"]) * rows * int(view["input_size"])


# Gates' products, for each step of each sequence.
recurrent = partial(
    Kind,
    # a multiply-add (2) for each weight and each step of each sequence
    flops_rule=lambda view: 2 * v.numel(view.shape()[:-1]) * _matrices(view)[0],
    bytes_rule=_bytes,
    dtype_rule=v.input_dtype,
    backward=twice(_spared),
    nonzero_rule=dense,
    functions=NO_FUNCTION,
)


# cuDNN runs these: its TF32 switch is the convolutions'
layer = partial(
    recurrent,
    shapes_rule=_sequence_shapes,
    steps_rule=_steps,
    canonical=drop_unless("training", "dropout"),
    bound_rule=lambda view, name: view["batch_sizes"][0] if name.endswith("_indices") else None,
    settings=("tf32_convolution", "tf32_matmul"),
)
cell = partial(recurrent, shapes_rule=_cell_shapes, settings=("tf32_matmul",))

_RECURRENT = (
    "input, hx=None, *, batch_sizes=None, sorted_indices=None, unsorted_indices=None, "
    "input_size, hidden_size, num_layers=1, bias=True, batch_first=False, "
    "dropout=0.0, bidirectional=False, training=False, weight_dtype=None"
)
_CELL = "input, hx=None, *, input_size, hidden_size, bias=True, weight_dtype=None"
register(
    layer("lstm", f"{_RECURRENT}, proj_size=0"),
    layer("gru", _RECURRENT),
    layer("rnn", f"{_RECURRENT}, nonlinearity='tanh'"),
    cell("lstm_cell", _CELL),
    cell("gru_cell", _CELL),
    cell("rnn_cell", f"{_CELL}, nonlinearity='tanh'"),
)
