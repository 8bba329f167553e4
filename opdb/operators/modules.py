"""The table of modules: which attributes are which arguments, and how to construct one again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from opdb.errors import UnsupportedError
from opdb.operators.module_form import Arguments, ModuleForm

# attributes that a subclass may define without changing its computation
_HARMLESS = frozenset(
    [
        "__init__",
        "__module__",
        "__doc__",
        "__qualname__",
        "__annotations__",
        "__firstlineno__",
        "__constants__",
        "__static_attributes__",
        "__annotate__",
        "__annotate_func__",
        "__parameters__",
        "extra_repr",
        "reset_parameters",
        "_reset_parameters",
        "init_weights",
        "_init_weights",
        "__repr__",
    ]
)


def _convolution(arguments: Arguments) -> dict[str, Any]:
    weight = arguments["weight"].shape
    return {
        "in_channels": weight[1] * arguments["groups"],
        "out_channels": weight[0],
        "kernel_size": tuple(weight[2:]),
    }


def _transposed(arguments: Arguments) -> dict[str, Any]:
    weight = arguments["weight"].shape
    return {
        "in_channels": weight[0],
        "out_channels": weight[1] * arguments["groups"],
        "kernel_size": tuple(weight[2:]),
    }


def _linear(arguments: Arguments) -> dict[str, Any]:
    rows, columns = arguments["weight"].shape
    return {"in_features": columns, "out_features": rows}


def _bilinear(arguments: Arguments) -> dict[str, Any]:
    out, first, second = arguments["weight"].shape
    return {"out_features": out, "in1_features": first, "in2_features": second}


def _statistics(arguments: Arguments) -> dict[str, Any]:
    return {
        "num_features": arguments["input"].shape[1],
        "affine": arguments.get("weight") is not None,
        "track_running_stats": arguments.get("running_mean") is not None,
    }


def _affine(arguments: Arguments) -> dict[str, Any]:
    given = {"elementwise_affine": arguments.get("weight") is not None}
    if "num_groups" in arguments:
        return {"num_channels": arguments["input"].shape[1], "affine": given["elementwise_affine"]}
    return given


def _table(arguments: Arguments) -> dict[str, Any]:
    rows, width = arguments["weight"].shape
    return {"num_embeddings": rows, "embedding_dim": width}


def _rank(rank: int) -> Callable[[Arguments], bool]:
    return lambda arguments: arguments["input"].dim() == rank


def _batch_statistics(module: Any) -> bool:
    return bool(module.training or (module.running_mean is None and module.running_var is None))


def _running(name: str) -> Callable[[Any], Any]:
    def read(module: Any) -> Any:
        kept = not module.training or module.track_running_stats
        return getattr(module, name) if kept else None

    return read


def _activation_name(module: Any) -> str:
    function = module.activation
    name = getattr(function, "__name__", type(function).__name__.lower())
    if name not in ("relu", "gelu"):
        raise UnsupportedError(f"activation {name!r} has no name that the layer can be built with")
    if isinstance(function, nn.GELU) and function.approximate != "none":
        raise UnsupportedError("a tanh GELU cannot be given to the layer by name")
    return name


_LAYER: Mapping[str, Callable[[Any], Any]] = {
    "d_model": lambda m: m.self_attn.embed_dim,
    "nhead": lambda m: m.self_attn.num_heads,
    "dim_feedforward": lambda m: m.linear1.out_features,
    "dropout": lambda m: m.dropout.p,
    "activation": _activation_name,
    "layer_norm_eps": lambda m: m.norm1.eps,
    "batch_first": lambda m: m.self_attn.batch_first,
    "bias": lambda m: m.linear1.bias is not None,
}


def _forms() -> list[ModuleForm]:
    ranked = (form for n in (1, 2, 3) for form in _ranked_forms(n))
    return [*ranked, *_plain_forms(), *_opaque_forms()]


def _ranked(text: str, rank: int) -> type[nn.Module] | None:
    return getattr(nn, text.format(rank), None)


def _ranked_forms(n: int) -> list[ModuleForm]:
    batch = {
        "training": _batch_statistics,
        "running_mean": _running("running_mean"),
        "running_var": _running("running_var"),
    }
    instance = {"use_input_stats": lambda m: m.training or not m.track_running_stats}
    return [
        ModuleForm(getattr(nn, f"Conv{n}d"), f"conv{n}d", construct=_convolution),
        ModuleForm(getattr(nn, f"ConvTranspose{n}d"), f"conv_transpose{n}d", construct=_transposed),
        *(
            ModuleForm(
                getattr(nn, f"BatchNorm{n}d"),
                "batch_norm",
                attributes=batch,
                construct=_statistics,
                matches=_rank(rank),
            )
            for rank in ((2, 3) if n == 1 else (n + 2,))
        ),
        ModuleForm(
            getattr(nn, f"InstanceNorm{n}d"),
            "instance_norm",
            attributes=instance,
            construct=_statistics,
            matches=_rank(n + 2),
        ),
        ModuleForm(getattr(nn, f"Dropout{n}d"), f"dropout{n}d"),
        *_pools(n),
        *_pads(n),
    ]


def _pools(n: int) -> list[ModuleForm]:
    kinds = {
        "Max": "max",
        "Avg": "avg",
        "AdaptiveAvg": "adaptive_avg",
        "AdaptiveMax": "adaptive_max",
        "LP": "lp",
    }
    found = ((_ranked(f"{name}Pool{{}}d", n), kind) for name, kind in kinds.items())
    return [ModuleForm(module, f"{kind}_pool{n}d") for module, kind in found if module]


def _pads(n: int) -> list[ModuleForm]:
    modes = {
        "Constant": "constant",
        "Reflection": "reflect",
        "Replication": "replicate",
        "Circular": "circular",
        "Zero": "constant",
    }
    found = ((_ranked(f"{name}Pad{{}}d", n), mode) for name, mode in modes.items())
    return [
        ModuleForm(
            module,
            "pad",
            attributes={
                "pad": lambda m: m.padding,
                "mode": _fixed(mode),
                "value": lambda m: getattr(m, "value", None),
            },
            construct=_padding,
            matches=_pad_matches(n, mode),
        )
        for module, mode in found
        if module
    ]


def _padding(arguments: Arguments) -> dict[str, Any]:
    given = {"padding": tuple(arguments["pad"])}
    return given | {"value": arguments.get("value") or 0.0} if _is_constant(arguments) else given


def _is_constant(arguments: Arguments) -> bool:
    return bool(arguments["mode"] == "constant")


def _fixed(value: Any) -> Callable[[Any], Any]:
    return lambda module: value


def _pad_matches(n: int, mode: str) -> Callable[[Arguments], bool]:
    return lambda arguments: arguments["mode"] == mode and len(arguments["pad"]) == 2 * n


_SIMPLE: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "celu": nn.CELU,
    "leaky_relu": nn.LeakyReLU,
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
    "hardtanh": nn.Hardtanh,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "threshold": nn.Threshold,
    "rrelu": nn.RReLU,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "tanhshrink": nn.Tanhshrink,
    "hardshrink": nn.Hardshrink,
    "softshrink": nn.Softshrink,
    "logsigmoid": nn.LogSigmoid,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "glu": nn.GLU,
    "softmax": nn.Softmax,
    "log_softmax": nn.LogSoftmax,
    "softmin": nn.Softmin,
    "dropout": nn.Dropout,
    "alpha_dropout": nn.AlphaDropout,
    "feature_alpha_dropout": nn.FeatureAlphaDropout,
    "local_response_norm": nn.LocalResponseNorm,
    "flatten": nn.Flatten,
    "pixel_shuffle": nn.PixelShuffle,
    "pixel_unshuffle": nn.PixelUnshuffle,
    "channel_shuffle": nn.ChannelShuffle,
    "unfold": nn.Unfold,
    "fold": nn.Fold,
    "identity": nn.Identity,
}


def _plain_forms() -> list[ModuleForm]:
    return [
        *(ModuleForm(module, kind) for kind, module in _SIMPLE.items()),
        ModuleForm(nn.Linear, "linear", construct=_linear),
        ModuleForm(nn.Bilinear, "bilinear", call="input1, input2", construct=_bilinear),
        ModuleForm(nn.LayerNorm, "layer_norm", construct=_affine),
        ModuleForm(nn.RMSNorm, "rms_norm", construct=_affine),
        ModuleForm(nn.GroupNorm, "group_norm", construct=_affine),
        ModuleForm(nn.PReLU, "prelu", construct=lambda a: {"num_parameters": a["weight"].numel()}),
        ModuleForm(
            nn.Softmax2d,
            "softmax",
            attributes={"dim": lambda m: -3},
            matches=lambda arguments: False,
        ),
        ModuleForm(
            nn.Unflatten,
            "unflatten",
            attributes={"sizes": lambda m: m.unflattened_size},
            construct=lambda a: {"unflattened_size": a["sizes"]},
        ),
        ModuleForm(nn.CosineSimilarity, "cosine_similarity", call="x1, x2"),
        ModuleForm(
            nn.PairwiseDistance,
            "pairwise_distance",
            call="x1, x2",
            attributes={"p": lambda m: m.norm},
        ),
        ModuleForm(nn.Upsample, "interpolate"),
        ModuleForm(nn.UpsamplingNearest2d, "interpolate", matches=lambda arguments: False),
        ModuleForm(nn.UpsamplingBilinear2d, "interpolate", matches=lambda arguments: False),
        ModuleForm(nn.Embedding, "embedding", construct=_table),
        ModuleForm(
            nn.EmbeddingBag,
            "embedding_bag",
            call="input, offsets=None, per_sample_weights=None",
            construct=_table,
        ),
    ]


def _opaque_forms() -> list[ModuleForm]:
    sequence = {"dropout": lambda m: m.dropout if m.training else 0.0}
    layers = [
        ModuleForm(module, kind, "input, hx=None", attributes=sequence, opaque=True)
        for kind, module in (("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN))
    ]
    cells = [
        ModuleForm(module, kind, "input, hx=None", opaque=True)
        for kind, module in (
            ("lstm_cell", nn.LSTMCell),
            ("gru_cell", nn.GRUCell),
            ("rnn_cell", nn.RNNCell),
        )
    ]
    attention = ModuleForm(
        nn.MultiheadAttention,
        "multi_head_attention",
        "query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, "
        "average_attn_weights=True, is_causal=False",
        attributes={
            "bias": lambda m: m.in_proj_bias is not None,
            "add_bias_kv": lambda m: m.bias_k is not None,
            "kdim": lambda m: None if m.kdim == m.embed_dim else m.kdim,
            "vdim": lambda m: None if m.vdim == m.embed_dim else m.vdim,
        },
        opaque=True,
    )
    encoder = ModuleForm(
        nn.TransformerEncoderLayer,
        "transformer_encoder_layer",
        "src, src_mask=None, src_key_padding_mask=None, is_causal=False",
        attributes=_LAYER,
        opaque=True,
    )
    decoder = ModuleForm(
        nn.TransformerDecoderLayer,
        "transformer_decoder_layer",
        "tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, "
        "memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False",
        attributes=_LAYER,
        opaque=True,
    )
    return [*layers, *cells, attention, encoder, decoder]


FORMS = _forms()
_BY_CLASS: dict[type, ModuleForm] = {form.module: form for form in reversed(FORMS)}


def module_form(module: nn.Module) -> ModuleForm | None:
    """Return the form of a module's class, None where it computes something of its own."""
    for cls in type(module).__mro__:
        if cls in _BY_CLASS:
            return _BY_CLASS[cls]
        if not vars(cls).keys() <= _HARMLESS:
            return None
    return None


def is_plain(module: nn.Module) -> bool:
    """Return whether nothing was attached to the module that could compute besides its class."""
    if "forward" in vars(module) or parametrize.is_parametrized(module):
        return False
    return not (module._forward_hooks or module._forward_pre_hooks)


def forms_of_kind(kind: str) -> list[ModuleForm]:
    """Return the module forms of a kind."""
    return [form for form in FORMS if form.kind == kind]
