"""From a call that is about to run to its configuration; operators by the names that users give."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from opdb.errors import UnknownNameError, UnsupportedError
from opdb.kinds import KINDS
from opdb.kinds.fused import words
from opdb.kinds.registry import parse_signature
from opdb.kinds.view import never, walk
from opdb.models.inputs import tensors
from opdb.operators.encoding import Encoder, TensorNotes, encode_constant
from opdb.operators.functions import (
    Bound,
    bind,
    bind_function,
    declared,
    forms_by_name,
    metadata_functions,
)
from opdb.records import Configuration, Form, Json, canonical_json

# torch.nn classes as forms of kinds: attributes that are arguments, and how to construct one.

Arguments = Mapping[str, Any]

# what a packed sequence holds beside its rows: here arguments of their own, and no user's
PACKED = ("batch_sizes", "sorted_indices", "unsorted_indices")

_NOT_CONSTRUCTED = {"self", "device", "dtype", "training", "weight_dtype"}

# Arguments that any module has: its mode, its tensors' dtype, and whether it works in place.
_OF_ANY = ("inplace", "training", "weight_dtype")


@dataclass(frozen=True)
class ModuleForm:
    """One torch.nn class as a form of a kind.

    `call` is its forward's signature in the kind's names. Every other argument of the kind is the
    module's attribute of that name; `attributes` says where that is not so. `construct` gives the
    constructor's arguments that are not the kind's. `matches` says which configurations the class
    can be built for; `opaque` that the weights are implied.
    """

    module: type[nn.Module]
    kind: str
    call: str = "input"
    attributes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    construct: Callable[[Arguments], dict[str, Any]] | None = None
    matches: Callable[[Arguments], bool] = lambda arguments: True
    opaque: bool = False

    def bind(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        arguments = bind(parse_signature(self.call), args, kwargs, self.module.__name__)
        packed = arguments.get("input")
        if isinstance(packed, PackedSequence):
            arguments |= {
                "input": packed.data,
                **dict(zip(PACKED, packed[1:], strict=True)),
                "batch_sizes": packed.batch_sizes.tolist(),
                "batch_first": False,  # rows lie step after step, whatever the layer is told
            }
        for name, parameter in KINDS[self.kind].signature.parameters.items():
            if name in arguments or name == "weight_dtype":
                continue
            if name in self.attributes:
                arguments[name] = self.attributes[name](module)
            elif hasattr(module, name):
                arguments[name] = getattr(module, name)
            elif parameter.default is inspect.Parameter.empty:
                raise UnsupportedError(f"{self.module.__name__} has no {name!r}")
            if any(t.dim() == 0 for t in tensors(arguments.get(name))):
                raise UnsupportedError(f"{name!r} of {self.module.__name__} is a tensor, no number")
        if self.opaque:
            weight = next(module.parameters(), None)
            first = next((a for a in arguments.values() if isinstance(a, Tensor)), None)
            if weight is not None and first is not None and weight.dtype != first.dtype:
                arguments["weight_dtype"] = weight.dtype
        return self.kind, arguments

    def takes(self, names: Iterable[str]) -> bool:
        """Return whether the class or its forward has arguments of these names.

        A function may have more: `nn.Softmax` has no `dtype`, which softmax has.
        """
        of_call = parse_signature(self.call).parameters
        return {*of_call, *self.constructed(), *self.attributes, *_OF_ANY}.issuperset(names)

    def constructed(self) -> dict[str, inspect.Parameter]:
        """Return what the class is constructed with; recurrent layers hand it to their base."""
        parameters = inspect.signature(self.module.__init__).parameters
        if "kwargs" in parameters:
            parameters = KINDS[self.kind].signature.parameters
        without = _NOT_CONSTRUCTED | parse_signature(self.call).parameters.keys()
        return {name: p for name, p in parameters.items() if name not in without}

    def constructor_arguments(self, arguments: Arguments) -> dict[str, Any]:
        names = self.constructed()
        found = {n: arguments[n] for n in names if n in arguments and n not in ("weight", "bias")}
        bias = arguments.get("bias")
        if "bias" in names:
            found["bias"] = bias if isinstance(bias, bool) else bias is not None
        return found | (self.construct(arguments) if self.construct else {})


# attributes that a subclass may define without changing its computation
_HARMLESS = words(
    "__init__ __module__ __doc__ __qualname__ __annotations__ __firstlineno__ __constants__ "
    "__static_attributes__ __annotate__ __annotate_func__ __parameters__ extra_repr __repr__ "
    "reset_parameters _reset_parameters init_weights _init_weights"
)


def _norm_sizes(arguments: Arguments) -> dict[str, Any]:
    return {
        "num_features": arguments["input"].shape[1],
        "affine": arguments.get("weight") is not None,
        "track_running_stats": arguments.get("running_mean") is not None,
    }


def _running(name: str) -> Callable[[Any], Any]:
    return lambda m: getattr(m, name) if not m.training or m.track_running_stats else None


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
_PADS = {
    "Constant": "constant",
    "Reflection": "reflect",
    "Replication": "replicate",
    "Circular": "circular",
    "Zero": "constant",
}


def _ranked_forms(n: int) -> Iterator[ModuleForm]:
    def sizes(arguments: Arguments, transposed: bool = False) -> dict[str, Any]:
        first, second, *kernel = arguments["weight"].shape
        second *= arguments["groups"]
        channels = (first, second) if transposed else (second, first)
        names = ("in_channels", "out_channels", "kernel_size")
        return dict(zip(names, (*channels, tuple(kernel)), strict=True))

    yield ModuleForm(getattr(nn, f"Conv{n}d"), f"conv{n}d", construct=sizes)
    transposed = partial(sizes, transposed=True)
    yield ModuleForm(getattr(nn, f"ConvTranspose{n}d"), f"conv_transpose{n}d", construct=transposed)
    ranks = (2, 3) if n == 1 else (n + 2,)
    yield ModuleForm(
        getattr(nn, f"BatchNorm{n}d"),
        "batch_norm",
        attributes={
            "training": lambda m: bool(
                m.training or (m.running_mean is None and m.running_var is None)
            ),
            "running_mean": _running("running_mean"),
            "running_var": _running("running_var"),
        },
        construct=_norm_sizes,
        matches=lambda arguments: arguments["input"].dim() in ranks,
    )
    yield ModuleForm(
        getattr(nn, f"InstanceNorm{n}d"),
        "instance_norm",
        attributes={"use_input_stats": lambda m: m.training or not m.track_running_stats},
        construct=_norm_sizes,
        matches=lambda arguments: arguments["input"].dim() == n + 2,
    )
    yield from (
        _pad(n, name, mode) for name, mode in _PADS.items() if hasattr(nn, f"{name}Pad{n}d")
    )


def _pad(n: int, name: str, mode: str) -> ModuleForm:
    return ModuleForm(
        getattr(nn, f"{name}Pad{n}d"),
        "pad",
        attributes={
            "pad": lambda m: m.padding,
            "mode": lambda m: mode,
            "value": lambda m: getattr(m, "value", None),
        },
        construct=lambda a: (
            {"padding": tuple(a["pad"])}
            | ({"value": a.get("value") or 0.0} if mode == "constant" else {})
        ),
        matches=lambda a: a["mode"] == mode and len(a["pad"]) == 2 * n,
    )


def _named_sizes(*names: str) -> Callable[[Arguments], dict[str, Any]]:
    return lambda arguments: dict(zip(names, arguments["weight"].shape, strict=True))


def _plain_forms() -> Iterator[ModuleForm]:
    for kind in KINDS.values():
        for name, signature, _ in declared(kind):
            if name.startswith("nn.") and hasattr(nn, name[3:]):
                yield ModuleForm(getattr(nn, name[3:]), kind.name, signature or "input")
    yield ModuleForm(nn.Linear, "linear", construct=_named_sizes("out_features", "in_features"))
    yield ModuleForm(
        nn.Bilinear,
        "bilinear",
        "input1, input2",
        construct=_named_sizes("out_features", "in1_features", "in2_features"),
    )
    for module, norm in ((nn.LayerNorm, "layer_norm"), (nn.RMSNorm, "rms_norm")):
        yield ModuleForm(
            module, norm, construct=lambda a: {"elementwise_affine": a.get("weight") is not None}
        )
    yield ModuleForm(
        nn.GroupNorm,
        "group_norm",
        construct=lambda a: {
            "num_channels": a["input"].shape[1],
            "affine": a.get("weight") is not None,
        },
    )
    yield ModuleForm(nn.PReLU, "prelu", construct=lambda a: {"num_parameters": a["weight"].numel()})
    yield ModuleForm(nn.Softmax2d, "softmax", attributes={"dim": lambda m: -3}, matches=never)
    yield ModuleForm(
        nn.Unflatten,
        "unflatten",
        attributes={"sizes": lambda m: m.unflattened_size},
        construct=lambda a: {"unflattened_size": a["sizes"]},
    )
    yield ModuleForm(
        nn.PairwiseDistance, "pairwise_distance", "x1, x2", attributes={"p": lambda m: m.norm}
    )
    yield ModuleForm(nn.Upsample, "interpolate")
    yield ModuleForm(nn.UpsamplingNearest2d, "interpolate", matches=never)
    yield ModuleForm(nn.UpsamplingBilinear2d, "interpolate", matches=never)
    table = _named_sizes("num_embeddings", "embedding_dim")
    yield ModuleForm(nn.Embedding, "embedding", construct=table)
    yield ModuleForm(
        nn.EmbeddingBag,
        "embedding_bag",
        "input, offsets=None, per_sample_weights=None",
        construct=table,
    )


def _opaque_forms() -> Iterator[ModuleForm]:
    packed = f"input, hx=None, *, {'=None, '.join(PACKED)}=None"
    dropout = {"dropout": lambda m: m.dropout if m.training else 0.0}
    for kind, layer, cell in (
        ("lstm", nn.LSTM, nn.LSTMCell),
        ("gru", nn.GRU, nn.GRUCell),
        ("rnn", nn.RNN, nn.RNNCell),
    ):
        yield ModuleForm(layer, kind, packed, attributes=dropout, opaque=True)
        yield ModuleForm(cell, f"{kind}_cell", "input, hx=None", opaque=True)
    attention = {
        "bias": lambda m: m.in_proj_bias is not None,
        "add_bias_kv": lambda m: m.bias_k is not None,
        "kdim": lambda m: None if m.kdim == m.embed_dim else m.kdim,
        "vdim": lambda m: None if m.vdim == m.embed_dim else m.vdim,
    }
    for module, kind, attributes in (
        (nn.MultiheadAttention, "multi_head_attention", attention),
        (nn.TransformerEncoderLayer, "transformer_encoder_layer", _LAYER),
        (nn.TransformerDecoderLayer, "transformer_decoder_layer", _LAYER),
    ):
        # the forward's arguments stand before the `*` of the kind's, the constructor's behind it
        call = KINDS[kind].spelled.partition(", *, ")[0]
        yield ModuleForm(module, kind, call, attributes=attributes, opaque=True)


FORMS = [*(form for n in (1, 2, 3) for form in _ranked_forms(n)), *_plain_forms(), *_opaque_forms()]
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


def is_operator_module(module: nn.Module) -> bool:
    """Return whether a module's call is one operator: a torch.nn class that opdb can rebuild.

    A subclass counts where it adds nothing that computes; a module with hooks, a parametrisation
    or a forward of its own does not.
    """
    return module_form(module) is not None and is_plain(module)


def is_metadata(function: Callable[..., Any]) -> bool:
    return function in metadata_functions()


def describe_module(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], notes: TensorNotes
) -> Configuration:
    """Describe a module's call; autocast is the caller's to add."""
    with torch._C.DisableTorchFunction():
        form = module_form(module)
        if form is None or not is_plain(module):
            raise UnsupportedError(f"no registered operator for {type(module).__name__}")
        kind, arguments = form.bind(module, args, kwargs)
        own = {id(t) for t in module.parameters()} | {id(t) for t in module.buffers()}
        encoder = Encoder(notes, frozenset(own))
        # the weights that the configuration of an opaque module does not spell need gradients, too
        implied = {notes.needs_gradient(p) for p in module.parameters()} if form.opaque else set()
        encoder.needing = implied == {True}
        configuration = _configuration(kind, arguments, encoder)
        if False in implied and (True in implied or configuration.gradient):
            name = type(module).__name__
            raise UnsupportedError(f"{name} with frozen weights has no description")
        return configuration


def describe_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    notes: TensorNotes,
) -> Configuration:
    with torch._C.DisableTorchFunction():
        kind, arguments = bind_function(function, args, kwargs)
        return _configuration(kind, arguments, Encoder(notes))


def _configuration(name: str, arguments: Mapping[str, Any], encoder: Encoder) -> Configuration:
    kind = KINDS[name]
    parameters: dict[str, Json] = {}
    inputs: dict[str, Json] = {}
    order = [n for n in kind.signature.parameters if n in arguments]
    for argument in [*order, *(n for n in arguments if n not in order)]:
        value = arguments[argument]
        parameter = kind.signature.parameters.get(argument)
        if parameter is None and argument != "inplace":
            continue
        encoded = encoder.encode(value)
        if any(True for _ in walk(encoded)):
            inputs[argument] = encoded
        elif not _is_default(encoded, parameter):
            parameters[argument] = encoded
    if kind.canonical is not None:
        kind.canonical(parameters, inputs)
    for argument, encoded in inputs.items():
        # nothing differentiates by running statistics: to mark them would only lengthen the text
        if not encoder.needing or argument.startswith("running_"):
            for spec in walk(encoded):
                spec.pop("gradient", None)
    return Configuration(name, parameters, inputs, gradient=encoder.needing)


def _is_default(encoded: Json, parameter: inspect.Parameter | None) -> bool:
    if parameter is None:
        return encoded is False
    if parameter.kind is parameter.VAR_POSITIONAL:
        return bool(encoded == [])
    if parameter.default is inspect.Parameter.empty:
        return False
    default: Any = parameter.default
    if _is_number(encoded) and _is_number(default):
        return bool(encoded == default)  # 1 and 1.0 are one default
    spelled = list(default) if isinstance(default, tuple) else encode_constant(default)
    return canonical_json(encoded) == canonical_json(spelled)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# operators by name, from the reviewed table alone
#
# `nn.Conv2d`, `torch.nn.Conv2d` and `Conv2d` are one class; `F.conv2d` and
# `torch.nn.functional.conv2d` one function.


_PREFIXES = {
    "torch.nn.functional.": "F.",
    "nn.functional.": "F.",
    "torch.nn.": "nn.",
    "torch.Tensor.": "Tensor.",
    "torch.linalg.": "linalg.",
    "torch.special.": "special.",
    "torch.fft.": "fft.",
}


@dataclass(frozen=True)
class NamedOperator:
    """A reviewed operator: what is called, and the names of what it takes.

    `constructed` is what a module is constructed with, `taken` what the call takes; each says
    whether a name must be given. A function is not constructed.
    """

    name: str
    form: Form
    called: Callable[..., Any]
    constructed: Mapping[str, bool]
    taken: Mapping[str, bool]


def find_operator(name: str) -> NamedOperator:
    prefix = next((old for old in _PREFIXES if name.startswith(old)), "")
    spelled = _PREFIXES.get(prefix, "") + name.removeprefix(prefix)
    modules = {f"nn.{form.module.__name__}": form for form in FORMS}
    functions = forms_by_name()
    if spelled in functions:
        function = functions[spelled]
        needed = _needed(function.signature.parameters)
        taken = {n: must for n, must in needed.items() if not n.startswith("_") and n != "out"}
        return NamedOperator(spelled, "function", function.function, {}, taken)
    spelled = spelled if spelled in modules else f"nn.{spelled}"
    if spelled not in modules:
        raise UnknownNameError("operator", name, [*modules, *functions])
    form = modules[spelled]
    taken = _needed(parse_signature(form.call).parameters)
    taken = {n: must for n, must in taken.items() if n not in PACKED}
    return NamedOperator(spelled, "module", form.module, _needed(form.constructed()), taken)


def _needed(parameters: Mapping[str, inspect.Parameter]) -> dict[str, bool]:
    return {
        name: p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        for name, p in parameters.items()
    }


# calls as torch's profiler recorded them: shapes, types, constants


# Types of C++, as the profiler spells those of tensors' elements.
ELEMENT_TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "long int": torch.int64,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "signed char": torch.int8,
    "unsigned char": torch.uint8,
    "bool": torch.bool,
}

# Arguments that the profiler records as a number of torch's own.
_CODES = frozenset(["dtype", "memory_format", "layout"])

_SCALARS = frozenset(["Scalar", "ScalarList"])


# What making a call of a record raises that does not fit: torch refuses some of its shapes.
_NO_RECORD = (ValueError, SyntaxError, IndexError, TypeError, RuntimeError, MemoryError)


def describe_profiled(name: str, args: Mapping[str, Json]) -> tuple[Configuration, frozenset[str]]:
    """Describe the call of an event named "aten::conv2d" with these `args`.

    Returned with it are parameters that the profile does not tell, such as texts. The values of
    tensors, and which are weights, are not in a profile either.
    """
    library, _, function = name.partition("::")
    if library != "aten" or not function or "Input Dims" not in args:
        raise UnsupportedError(f"no registered operator for {name} with recorded shapes")
    for schema in torch._C._jit_get_schemas_for_operator(name):
        with suppress(UnsupportedError, AttributeError, *_NO_RECORD):
            positional, keywords, unknown = _recorded(schema.arguments, args)
            operator = getattr(torch.ops.aten, function)
            notes = TensorNotes()
            return describe_function(operator, positional, keywords, notes), unknown
    raise UnsupportedError(f"no registered operator for {name}")


def _recorded(
    schema: Sequence[Any], args: Mapping[str, Json]
) -> tuple[tuple[Any, ...], dict[str, Any], frozenset[str]]:
    types, dims = args.get("Input type", ()), args["Input Dims"]
    strides, constants = args.get("Input Strides"), args.get("Concrete Inputs")
    if constants is None or not len(types) == len(dims) == len(constants) <= len(schema):
        raise ValueError("another overload")
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    unknown: set[str] = set()
    needed = 0
    for place, (argument, kind) in enumerate(zip(schema, types, strict=False)):
        is_tensor = "Tensor" in str(argument.type)
        if kind in ELEMENT_TYPES and is_tensor:
            value: Any = _empty(dims[place], strides[place] if strides else None, kind)
        elif kind == "TensorList" and is_tensor:
            raise ValueError("the dtypes of a list of tensors are not recorded")
        elif kind in _SCALARS and not is_tensor:
            value = ast.literal_eval(constants[place])
            if argument.name in _CODES:
                raise ValueError(f"{argument.name} is a number in the record")
        elif kind == "" and not is_tensor and "str" in str(argument.type):
            unknown.add(argument.name)
            continue
        elif kind == "":
            value = None
        else:
            raise ValueError("another overload")
        is_default = argument.has_default_value() and value == argument.default_value
        if argument.kwarg_only:
            if not is_default:
                keywords[argument.name] = value
            continue
        positional.append(value)
        if not is_default:
            needed = len(positional)
    return tuple(positional[:needed]), keywords, frozenset(unknown)


def _empty(shape: Sequence[int], strides: Sequence[int] | None, kind: str) -> Tensor:
    if strides is None or len(strides) != len(shape):
        return torch.empty(shape, dtype=ELEMENT_TYPES[kind], device="meta")
    return torch.empty_strided(shape, strides, dtype=ELEMENT_TYPES[kind], device="meta")
