"""Matrix products, convolutions, and layers of products: attention, transformers, recurrent layers.

The weights of such a layer are implied by what its constructor is given. A packed sequence is the
rows of all steps in one tensor, and how many sequences each step has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    NO_FUNCTION,
    ONCE,
    PLAIN,
    broadcasting,
    chain,
    dense,
    drop,
    drop_unless,
    product_of,
    rows_spared,
    spread,
    steps_of,
    twice,
)
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import CountRule, Shape, View
from opdb.records import ALGORITHM_SETTING, Json


def product_shape(view: View, *factors: str) -> Shape:
    first, second = map(view.shape, factors)
    rows = first[-2:-1] if len(first) > 1 else []
    columns = second[-1:] if len(second) > 1 else []
    return [*v.broadcast([first[:-2], second[:-2]]), *rows, *columns]


def einsum_shapes(view: View) -> list[Shape]:
    terms, output = _einsum_terms(view)
    sizes = _joint_sizes(terms)
    return [[sizes[label] for label in output]]


def _einsum_terms(view: View) -> tuple[list[dict[str | int, int]], list[str | int]]:
    """Return the sizes of each operand by label, and the output's labels.

    A label is a letter; the dimensions of an ellipsis are numbered -1, -2 … from its end.
    """
    spelled, arrow, output = str(view["equation"]).replace(" ", "").partition("->")
    operands: list[dict[str | int, int]] = []
    for term, spec in zip(spelled.split(","), view.specs("operands"), strict=True):
        before, dotted, after = term.partition("...")
        dots = len(spec["shape"]) - len(before) - len(after) if dotted else 0
        labels = [*before, *range(-dots, 0), *after]
        operands.append(dict(zip(labels, spec["shape"], strict=True)))
    if not arrow:
        letters = spelled.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    before, dotted, after = output.partition("...")
    dots = -min((n for term in operands for n in term if isinstance(n, int)), default=0)
    return operands, [*before, *range(-dots if dotted else 0, 0), *after]


def _joint_sizes(terms: Sequence[Mapping[str | int, int]]) -> dict[str | int, int]:
    sizes: dict[str | int, int] = {}
    for label, size in (item for term in terms for item in term.items()):
        sizes[label] = sizes.get(label, 1) if size == 1 else size
    return sizes


def _einsum_steps(view: View) -> Iterator[tuple[int, int]]:
    """Yield the FLOPs of each step's sums and of its product.

    Operands join from the left, two at a time, as in torch. What one side alone has and nothing
    needs later is summed before, an operation an element of that side. Then a step that contracts
    something is a product, of a multiply-add (2) for each joint index; else it multiplies (1).
    """
    terms, output = _einsum_terms(view)
    sizes = _joint_sizes(terms)
    left = _wide(terms[0])
    for place, term in enumerate(terms[1:], 1):
        right = _wide(term)
        later = {*output}.union(*map(_wide, terms[place + 1 :]))
        kept, contracted = (left | right) & later, (left & right) - later
        joint = v.numel([sizes[label] for label in kept | contracted])
        wider = (side for side in (left, right) if side - kept - contracted)
        summed = sum(v.numel([sizes[label] for label in side]) for side in wider)
        yield summed, 2 * joint if contracted else joint
        left = kept


def _wide(term: Mapping[str | int, int]) -> set[str | int]:
    return {label for label, size in term.items() if size != 1}


def einsum_flops(view: View) -> int:
    """Count each step; of one operand alone, an operation an element where some are summed.

    An operand with a letter twice is its diagonal.
    """
    terms, output = _einsum_terms(view)
    if len(terms) > 1:
        return sum(sums + product for sums, product in _einsum_steps(view))
    return 0 if terms[0].keys() <= {*output} else v.numel([*terms[0].values()])


def bilinear_flops(view: View) -> int:
    out, first, second = view.shape("weight")
    rows = v.numel(view.shape("input1")[:-1])
    return 2 * rows * out * first * second + 2 * rows * out * second


def _grouped_shape(view: View) -> list[Shape]:
    """Give each group's product in its place: groups are slices of rows, columns or both."""
    first, second = view.shape(), view.shape("mat2")
    rows, columns = first[-2], second[-1]
    if len(first) == len(second):
        groups = view.shape("offs")[0] if len(first) == 2 else first[0]
        return [[groups, rows, columns]]
    return [[rows, columns]]


def _grouped_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element of its group and each of its features."""
    first, second = view.shape(), view.shape("mat2")
    groups = first[0] if len(first) == len(second) == 3 else 1
    return 2 * groups * first[-2] * first[-1] * second[-1]


def active_groups(groups: int, rows: int, imbalance: float = 0.0) -> float:
    """Return how many of the groups get a row, on average, where a router draws each row's group.

    All groups are as likely at an imbalance of 0; else the i-th busiest as i to the minus that.
    """
    weights = [rank**-imbalance for rank in range(1, groups + 1)]
    whole = sum(weights)
    return float(sum(1 - (1 - weight / whole) ** rows for weight in weights))


def imbalance_of(view: View) -> float:
    values = (view["offs"] or {}).get("values")
    return float(values["imbalance"]) if isinstance(values, dict) and "imbalance" in values else 0.0


def _grouped_bytes(view: View) -> int:
    """Count inputs and outputs; of groups of rows, the factors of those that get one."""
    first, second = view.shape(), view.shape("mat2")
    if not (len(first) == 2 and len(second) == 3 and view["offs"]):
        return v.inputs_and_outputs(view)
    idle = second[0] - active_groups(second[0], first[0], imbalance_of(view))
    return v.inputs_and_outputs(view) - round(idle * v.spec_bytes(view["mat2"]) / second[0])


def _scaled_dtype(view: View) -> str:
    given = view["out_dtype"]
    return str(given["dtype"]) if isinstance(given, dict) else str(view["input"]["dtype"])


# A matrix product; each member says what its factors are.
product = partial(
    Kind,
    # a multiply-add (2) for each output element and each feature of the input
    flops_rule=lambda view: 2 * view.output_elements * view.shape()[-1],
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=lambda view: [product_shape(view, *list(view.signature.parameters)[:2])],
    dtype_rule=v.promoted_dtype,
    nonzero_rule=dense,
    functions=PLAIN,
    settings=("tf32_matmul",),
)


def added(name: str, first: str, second: str, reduce: bool = False) -> Kind:
    """Return the kind of a product that is added to an input; `reduce` sums it over a batch."""
    return product(
        name,
        f"input, {first}, {second}, *, beta=1, alpha=1",
        flops_rule=lambda view: (
            2 * v.numel(product_shape(view, first, second)) * view.shape(first)[-1]
        ),
        shapes_rule=lambda view: [product_shape(view, first, second)[int(reduce) :]],
        arithmetic_rule=lambda view: view.dtype(first),
        backward=product_of(first, second),
        mutates=("input",),
    )


register(
    product(
        "matmul",
        "input, other",
        backward=product_of("input", "other"),
        functions="torch.matmul Tensor.matmul Tensor.__matmul__ Tensor.__rmatmul__~ linalg.matmul",
    ),
    product("mm", "input, mat2", backward=product_of("input", "mat2")),
    product("bmm", "input, mat2", backward=product_of("input", "mat2")),
    product("mv", "input, vec", backward=product_of("input", "vec")),
    product("dot", "input, other", backward=ONCE),
    added("addmm", "mat1", "mat2"),
    added("baddbmm", "batch1", "batch2"),
    added("addbmm", "batch1", "batch2", reduce=True),
    added("addmv", "mat", "vec"),
    product(
        "linear",
        "input, weight, bias=None",
        shapes_rule=lambda view: [[*view.shape()[:-1], *view.shape("weight")[:-1]]],
        backward=product_of("input", "weight"),
        functions="F.linear",
    ),
    # groups are filled as by a router that draws each row's (`active_groups`)
    product(
        "grouped_mm",
        "input, mat2, offs=None, bias=None, out_dtype=None",
        flops_rule=_grouped_flops,
        bytes_rule=_grouped_bytes,
        shapes_rule=_grouped_shape,
        backward=product_of("input", "mat2"),
        functions="torch._grouped_mm",
    ),
    # float8 factors, each with a scale for the whole or for each row (column) of it
    product(
        "scaled_mm",
        "input, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, "
        "use_fast_accum=False",
        dtype_rule=_scaled_dtype,
        arithmetic_rule=View.dtype,
        backward=CONSTANT,
        functions="torch._scaled_mm",
        positive=("scale_a", "scale_b"),
    ),
    product(
        "bilinear",
        "input1, input2, weight, bias=None",
        flops_rule=bilinear_flops,
        shapes_rule=lambda view: [[*view.shape("input1")[:-1], view.shape("weight")[0]]],
        backward=twice(),
        functions=f"{PLAIN} F.bilinear",
    ),
    product(
        "einsum",
        "equation, *operands",
        flops_rule=einsum_flops,
        shapes_rule=einsum_shapes,
        backward=steps_of("operands", lambda view: [product for _, product in _einsum_steps(view)]),
    ),
    broadcasting(
        "outer",
        "input, vec2",
        shapes_rule=lambda view: [[*view.shape(), *view.shape("vec2")]],
        backward=product_of("input", "vec2"),
        functions="torch.outer Tensor.outer torch.ger Tensor.ger",
    ),
)


# convolutions


SETTINGS = ("tf32_convolution", "cudnn_benchmark")


def convolution_shape(view: View) -> list[Shape]:
    image, weight, padding = view.shape(), view.shape("weight"), view["padding"]
    rank = len(weight) - 2
    axes = image[-rank:]
    if padding != "same":
        around = 0 if padding == "valid" else padding
        steps = (v.entries(n, rank) for n in (view["stride"], around, view["dilation"]))
        axes = v.slid(axes, weight[2:], *steps)
    return [[*image[: -rank - 1], weight[0], *axes]]


def transposed_shape(view: View) -> list[Shape]:
    """Give (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 an axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    names = ("stride", "padding", "dilation", "output_padding")
    each = zip(image[-rank:], weight[2:], *(v.entries(view[n], rank) for n in names), strict=True)
    axes = [(n - 1) * s - 2 * p + d * (k - 1) + added + 1 for n, k, s, p, d, added in each]
    return [[*image[: -rank - 1], weight[1] * int(view["groups"]), *axes]]


def _canonical(rank: int, **more: Json) -> Canonical:
    spreading = partial(spread, rank=rank, stride=1, padding=0, dilation=1, **more)
    return chain(spreading, drop("padding", "valid"))


convolution = partial(
    Kind,
    spelled="input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, "
    "padding_mode='zeros'",
    # a multiply-add (2) for each output element and each weight that makes it
    flops_rule=lambda view: 2 * view.output_elements * v.numel(view.shape("weight")[1:]),
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=convolution_shape,
    dtype_rule=v.promoted_dtype,
    backward=product_of("input", "weight"),
    nonzero_rule=dense,
    functions="F.{0} torch.{0}",
    settings=SETTINGS,
)
transposed = partial(
    convolution,
    spelled="input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
    # a multiply-add (2) for each input element and each weight that spreads it
    flops_rule=lambda view: 2 * v.numel(view.shape()) * v.numel(view.shape("weight")[1:]),
    shapes_rule=transposed_shape,
)
register(
    convolution("conv1d", canonical=_canonical(1)),
    convolution("conv2d", canonical=_canonical(2), settings=(*SETTINGS, ALGORITHM_SETTING)),
    convolution("conv3d", canonical=_canonical(3)),
    *(
        transposed(f"conv_transpose{rank}d", canonical=_canonical(rank, output_padding=0))
        for rank in (1, 2, 3)
    ),
)


# attention, and layers of it


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


def _attention(
    batch: int, target: int, source: int, width: int, *, given: int | None = None, added: int = 0
) -> int:
    """Count projections of query, key, value and output, and the two products between.

    `given` are the features of key and value together, `added` the keys that it adds.
    """
    columns = 2 * width if given is None else given
    projections = 2 * batch * width * (2 * target * width + source * columns)
    return projections + 4 * batch * target * (source + added) * width


def mha_flops(view: View) -> int:
    width = int(view["embed_dim"] or view["embed_dim_to_check"])
    given = view.shape("key")[-1] + view.shape("value")[-1]
    lengths = _lengths(view, "query", "key")
    return _attention(*lengths, width, given=given, added=_added(view))


def _added(view: View) -> int:
    has_bias = bool(view["add_bias_kv"]) or view["bias_k"] is not None
    return int(has_bias) + int(bool(view["add_zero_attn"]))


def _mha_shapes(view: View) -> list[Shape]:
    out = [*view.shape("query")[:-1], int(view["embed_dim"] or view["embed_dim_to_check"])]
    if not view["need_weights"]:
        return [out]
    batch, target, source = _lengths(view, "query", "key")
    heads = 1 if view["average_attn_weights"] else int(view["num_heads"])
    return [out, [batch, heads, target, source + _added(view)]]


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
    rate = (2 if view["bidirectional"] else 1) * _GATES[view.configuration.kind]
    rows = rows_spared(view, "input")
    return 2 * rate * int(view["hidden_size"]) * rows * int(view["input_size"])


# Gates' products, for each step of each sequence.
recurrent = partial(
    Kind,
    # a multiply-add (2) for each weight and each step of each sequence
    flops_rule=lambda view: 2 * v.numel(view.shape()[:-1]) * _matrices(view)[0],
    bytes_rule=_weights_too(lambda view: sum(_matrices(view))),
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
