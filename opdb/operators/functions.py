"""From a torch callable to its kind and named arguments, and back, by the kinds' declarations.

The callables of a kind are in its declaration (`opdb.kinds.registry.Kind.functions`). Here is what
no kind names: operators of the dispatcher, functions whose overloads one signature cannot tell
apart, and callables that are not operators.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS, Kind
from opdb.kinds.fused import words
from opdb.kinds.registry import parse_signature

# functions whose overloads one signature cannot tell apart


Bound: TypeAlias = tuple[str, dict[str, Any]]


def _extreme(kind: str, pairwise: str, input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    other = kwargs.get("other", args[0] if args else None)
    if isinstance(other, Tensor):
        return pairwise, {"input": input, "other": other}
    dim = kwargs.pop("dim", kwargs.pop("axis", args[0] if args else None))
    keepdim = kwargs.pop("keepdim", args[1] if len(args) > 1 else False)
    _nothing_left(kind, kwargs)
    return kind, {"input": input, "dim": dim, "keepdim": keepdim}


def _nothing_left(kind: str, kwargs: Mapping[str, Any]) -> None:
    if kwargs:
        raise UnsupportedError(f"{kind}: unexpected arguments {sorted(kwargs)}")


def _deviation(kind: str, input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    values = list(args)
    dim = kwargs.pop("dim", None)
    unbiased = kwargs.pop("unbiased", True)
    if values and not isinstance(values[0], bool):
        dim = values.pop(0)
    if values:
        unbiased = values.pop(0)
    keepdim = kwargs.pop("keepdim", values.pop(0) if values else False)
    correction = kwargs.pop("correction", int(unbiased))
    _nothing_left(kind, kwargs)
    return kind, {"input": input, "dim": dim, "correction": correction, "keepdim": keepdim}


def _to(input: Tensor, *args: Any, **kwargs: Any) -> Bound:
    dtype, copy = kwargs.get("dtype"), kwargs.get("copy", False)
    flags = []
    for value in (*args, kwargs.get("other")):
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, Tensor):
            dtype = value.dtype
        elif isinstance(value, bool):
            flags.append(value)
    # positionally: non_blocking, copy
    copy = flags[1] if len(flags) > 1 else copy
    arguments = {"input": input, "dtype": dtype, "copy": copy}
    return "to", arguments | {"memory_format": kwargs.get("memory_format")}


def _type(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Bound:
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        dtype = getattr(torch, name, None)
        dtype = getattr(dtype, "dtype", None)
    return "to", {"input": input, "dtype": dtype}


def _items(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _getitem(input: Tensor, index: Any) -> Bound:
    return "getitem", {"input": input, "index": _items(index)}


def _setitem(input: Tensor, index: Any, value: Any) -> Bound:
    arguments = {"input": input, "index": _items(index), "value": value}
    return "setitem", arguments | {"inplace": True}


def _where(condition: Tensor, *args: Any, **kwargs: Any) -> Bound:
    if not args and not kwargs:
        return "nonzero", {"input": condition, "as_tuple": True}
    values = [*args, *(kwargs[n] for n in ("input", "self", "x", "other", "y") if n in kwargs)]
    first, second = values
    return "where", {"condition": condition, "input": first, "other": second}


def _arange(*args: Any, **kwargs: Any) -> Bound:
    start, end, step = kwargs.get("start", 0), kwargs.get("end"), kwargs.get("step", 1)
    if len(args) == 1 and end is None:
        end = args[0]
    elif args:
        start, end, step = (*args, *(end, step)[len(args) - 1 :]) if len(args) < 3 else args
    return "arange", {"start": start, "end": end, "step": step, "dtype": kwargs.get("dtype")}


def _randint(*args: Any, **kwargs: Any) -> Bound:
    values = list(args)
    size = kwargs.get("size") or values.pop()
    low = kwargs.get("low", values.pop(0) if len(values) > 1 else 0)
    high = kwargs.get("high", values.pop(0) if values else None)
    arguments = {"low": low, "high": high, "size": size}
    return "randint", arguments | {"dtype": kwargs.get("dtype")}


def _constant(data: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Bound:
    if isinstance(data, Tensor):
        return "to", {"input": data, "dtype": dtype, "copy": True}
    shape, sample = [], data
    while isinstance(sample, list | tuple | range):
        shape.append(len(sample))
        sample = sample[0] if len(sample) else 0.0
    if dtype is None:
        kinds = {bool: torch.bool, int: torch.int64, complex: torch.complex64}
        dtype = kinds.get(type(sample), torch.get_default_dtype())
    return "tensor", {"shape": shape, "dtype": dtype}


def _as_tensor(data: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Bound:
    if isinstance(data, Tensor):
        return "to", {"input": data, "dtype": dtype}
    return _constant(data, dtype)


def _norm(input: Tensor, ord: Any = None, dim: Any = None, **kwargs: Any) -> Bound:
    """Bind torch.linalg.norm: over two dimensions an order means a matrix's norm, not a vector's.

    The Frobenius norm is the vector's of all elements.
    """
    over_two = input.dim() == 2 if dim is None else isinstance(dim, list | tuple) and len(dim) == 2
    if ord is not None and ord != "fro" and over_two:
        raise UnsupportedError(f"a matrix norm of order {ord!r}")
    keepdim, dtype = kwargs.pop("keepdim", False), kwargs.pop("dtype", None)
    _nothing_left("vector_norm", kwargs)
    arguments = {"input": input, "ord": 2 if ord in (None, "fro") else ord, "dim": dim}
    return "vector_norm", arguments | {"keepdim": keepdim, "dtype": dtype}


def _sequences(kind: str, input: Tensor, sizes: Tensor, *rest: Any) -> Bound:
    return kind, dict(zip(SEQUENCES[kind], (input, sizes.tolist(), *rest), strict=True))


# torch takes the second, how many steps or sequences, as a tensor on the CPU
SEQUENCES = {
    "pack_padded_sequence": ("input", "lengths", "batch_first"),
    "pad_packed_sequence": (
        *("input", "batch_sizes", "batch_first", "padding_value", "total_length"),
    ),
}
_CASTS = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "char": torch.int8,
    "byte": torch.uint8,
    "bool": torch.bool,
    "cfloat": torch.complex64,
}
OVERLOADS: Mapping[Callable[..., Any], Callable[..., Bound]] = {
    **{getattr(Tensor, name): partial(_to, dtype=dtype) for name, dtype in _CASTS.items()},
    **dict.fromkeys((Tensor.cuda, Tensor.cpu, Tensor.type_as), _to),
    **{f: partial(_extreme, "max", "maximum") for f in (torch.max, Tensor.max)},
    **{f: partial(_extreme, "min", "minimum") for f in (torch.min, Tensor.min)},
    **{f: partial(_deviation, "std") for f in (torch.std, Tensor.std)},
    **{f: partial(_deviation, "var") for f in (torch.var, Tensor.var)},
    torch.std_mean: partial(_deviation, "std_mean"),
    torch.var_mean: partial(_deviation, "var_mean"),
    torch.linalg.norm: _norm,
    **{getattr(torch, f"_{kind}"): partial(_sequences, kind) for kind in SEQUENCES},
    Tensor.to: _to,
    Tensor.type: _type,
    Tensor.__getitem__: _getitem,
    Tensor.__setitem__: _setitem,
    torch.where: _where,
    torch.arange: _arange,
    torch.randint: _randint,
    torch.tensor: _constant,
    torch.as_tensor: _as_tensor,
    torch.scalar_tensor: _constant,
    torch.asarray: _as_tensor,
}


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None, *windows: Any) -> Bound:
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    given: dict[str, Any] = dict(zip(names, windows, strict=False))
    kind = "conv_transpose" if given.pop("transposed") else "conv"
    return f"{kind}{weight.dim() - 2}d", {"input": input, "weight": weight, "bias": bias, **given}


def _slice(input: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Bound:
    ends = start or None, None if end is None or end >= 2**62 else end
    index = [slice(None)] * (dim % input.dim()) + [slice(*ends, None if step == 1 else step)]
    return _getitem(input, tuple(index))


def _taken(input: Tensor, indices: Any) -> Bound:
    return _getitem(input, tuple(slice(None) if i is None else i for i in indices))


def _put(input: Tensor, indices: Any, value: Tensor, *_: Any, **__: Any) -> Bound:
    return _setitem(input, _taken(input, indices)[1]["index"], value)


def _resized(mode: str, antialias: bool, input: Tensor, size: Any, *rest: Any) -> Bound:
    """Bind an interpolation to a size, or of the overload "vec" by factors.

    All modes but the nearest are told first how the corners lie.
    """
    values = (None, *rest) if mode.startswith("nearest") else rest
    aligned, factors, *_ = *values, None
    given = {"input": input, "size": size, "scale_factor": factors if size is None else None}
    return "interpolate", {**given, "mode": mode, "align_corners": aligned, "antialias": antialias}


# Operators of the dispatcher that take what no signature can rename.
DISPATCHED: Mapping[str, Callable[..., Bound]] = {
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::slice": _slice,
    "aten::index": _taken,
    "aten::_unsafe_index": _taken,
    "aten::index_put_": _put,
    "aten::_index_put_impl_": _put,
    **{
        f"aten::{before}upsample_{mode.replace('-', '_')}{rank}d{after}": partial(
            _resized, mode, bool(after)
        )
        for rank, modes in (
            (1, ("nearest", "nearest-exact", "linear")),
            (2, ("nearest", "nearest-exact", "bilinear", "bicubic")),
            (3, ("nearest", "nearest-exact", "trilinear")),
        )
        for mode in modes
        for before, after in (("", ""), ("_", ""), ("_", "_aa"))
    },
}


# operators of the dispatcher, and callables that are not operators


_CUSTOM = """
_local_scalar_dense = item(input)
torchvision::nms = nms(boxes, scores, iou_threshold)
torchvision::roi_align = roi_align(input, boxes, spatial_scale, output_size_h, output_size_w,
    sampling_ratio, aligned)
torchvision::deform_conv2d = deform_conv2d(input, weight, offset, mask, bias, stride_h, stride_w,
    padding_h, padding_w, dilation_h, dilation_w, _groups, _offset_groups, use_mask)
alias detach_ lift_fresh = detach(input)
lift_fresh_copy = clone(input)
_unsafe_view _reshape_alias = view(input, shape, _stride=None)
_prelu_kernel = prelu(input, weight)
elu = elu(input, alpha=1.0, _scale=1, _input_scale=1)
native_dropout = dropout(input, p, training)
_safe_softmax = softmax(input, dim, dtype=None)
_softmax = softmax(input, dim, _half_to_float)
_log_softmax = log_softmax(input, dim, _half_to_float)
_to_copy = to(input, *, dtype=None, copy=True, memory_format=None)
_cdist_forward = cdist(x1, x2, p, _mode=None)
_weight_norm_interface = weight_norm(input, magnitude, dim=0)
native_layer_norm = layer_norm(input, normalized_shape, weight, bias, eps)
_fused_rms_norm = rms_norm(input, normalized_shape, weight, eps)
native_group_norm = group_norm(input, weight, bias, _n, _c, _hw, num_groups, eps)
native_batch_norm cudnn_batch_norm _native_batch_norm_legit = batch_norm(input, weight, bias,
    running_mean, running_var, training, momentum, eps)
_native_batch_norm_legit_no_training _batch_norm_no_update = batch_norm(input, weight, bias,
    running_mean, running_var, momentum, eps)
instance_norm = instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
    momentum, eps, _cudnn)
_adaptive_avg_pool2d = adaptive_avg_pool2d(input, output_size)
_adaptive_avg_pool3d = adaptive_avg_pool3d(input, output_size)
im2col = unfold(input, kernel_size, dilation, padding, stride)
col2im = fold(input, output_size, kernel_size, dilation, padding, stride)
affine_grid_generator = affine_grid(theta, size, align_corners)
grid_sampler grid_sampler_2d grid_sampler_3d = grid_sample(input, grid, mode, padding_mode,
    align_corners)
embedding_bag _embedding_bag _embedding_bag_forward_only = embedding_bag(weight, input, offsets,
    scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
    include_last_offset=False, padding_idx=None)
mse_loss = mse_loss(input, target, reduction=1)
l1_loss = l1_loss(input, target, reduction=1)
smooth_l1_loss = smooth_l1_loss(input, target, reduction=1, beta=1.0)
nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward = nll_loss(input, target,
    weight=None, reduction=1, ignore_index=-100)
cross_entropy_loss = cross_entropy(input, target, weight=None, reduction=1, ignore_index=-100,
    label_smoothing=0.0)
binary_cross_entropy_with_logits = binary_cross_entropy_with_logits(input, target, weight=None,
    pos_weight=None, reduction=1)
_scaled_dot_product_attention_math = scaled_dot_product_attention(query, key, value,
    attn_mask=None, dropout_p=0.0, is_causal=False, _dropped=None, *, scale=None,
    enable_gqa=False)
_scaled_dot_product_cudnn_attention = scaled_dot_product_attention(query, key, value, attn_mask,
    _sums, dropout_p=0.0, is_causal=False, _debug=False, *, scale=None)
_scaled_dot_product_efficient_attention = scaled_dot_product_attention(query, key, value,
    attn_mask, _sums, dropout_p=0.0, is_causal=False, *, scale=None)
_scaled_dot_product_flash_attention = scaled_dot_product_attention(query, key, value,
    dropout_p=0.0, is_causal=False, _debug=False, *, scale=None)
_scaled_dot_product_flash_attention_for_cpu = scaled_dot_product_attention(query, key, value,
    dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None)
"""
# The kind of an operator of the dispatcher, and its arguments in order, by the kind's names.
CUSTOM: Mapping[str, tuple[str, str]] = {
    name if "::" in name else f"aten::{name}": (kind, signature)
    for names, kind, signature in re.findall(r"([\w: ]+) = (\w+)\(([^)]*)\)", _CUSTOM)
    for name in names.split()
}

# the words of a kind's argument, in the order of the numbers that operators of aten take
WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("embedding_bag", "mode"): ("sum", "mean", "max"),
    ("grid_sample", "mode"): ("bilinear", "nearest", "bicubic"),
    ("grid_sample", "padding_mode"): ("zeros", "border", "reflection"),
    **{
        (loss, "reduction"): ("none", "mean", "sum")
        for loss in (
            *("mse_loss", "l1_loss", "smooth_l1_loss", "nll_loss", "cross_entropy"),
            "binary_cross_entropy_with_logits",
        )
    },
}
METADATA = """
Tensor.size Tensor.dim Tensor.stride Tensor.numel Tensor.nelement Tensor.ndimension
Tensor.is_contiguous Tensor.is_floating_point Tensor.is_complex Tensor.is_signed Tensor.is_conj
Tensor.is_neg Tensor.is_inference Tensor.is_pinned Tensor.is_shared Tensor.is_same_size
Tensor.is_set_to Tensor.element_size Tensor.get_device Tensor.storage_offset Tensor.untyped_storage
Tensor.storage Tensor.data_ptr Tensor.__len__ Tensor.__repr__ Tensor.__format__ Tensor.__str__
Tensor.__hash__ Tensor.__dir__ Tensor.requires_grad_ Tensor.has_names Tensor.retain_grad
Tensor.is_coalesced Tensor.is_distributed Tensor.dim_order Tensor.dense_dim Tensor.sparse_dim
Tensor.register_hook Tensor.__deepcopy__ Tensor.rename_ Tensor.align_to Tensor.refine_names
torch.numel torch.is_floating_point torch.is_complex torch.is_conj torch.is_neg torch.is_signed
torch.is_inference torch.is_same_size torch.result_type torch.can_cast torch.promote_types
torch.is_tensor torch.is_storage torch.broadcast_shapes torch._assert torch.get_device
torch.is_distributed torch.get_default_dtype torch.set_default_dtype torch.is_grad_enabled
torch.set_grad_enabled torch.get_default_device torch._is_functional_tensor
torch.device C._set_grad_enabled C._set_deterministic amp._enter_autocast amp._exit_autocast
torch.is_autocast_enabled torch.get_autocast_gpu_dtype torch._has_compatible_shallow_copy_type
"""
METADATA_GETTERS = """
shape dtype device layout requires_grad grad grad_fn is_leaf ndim names itemsize nbytes is_cuda
is_cpu is_meta is_mps is_xpu is_xla is_ipu is_hpu is_mtia is_maia is_vulkan is_ort is_sparse
is_sparse_csr is_quantized is_nested is_mkldnn name output_nr retains_grad _version _base volatile
_grad _backward_hooks is_conj _grad_fn grad_dtype __cuda_array_interface__
"""
METADATA_SETTERS = "requires_grad grad names _grad grad_dtype _backward_hooks"


# binding by the kinds' declarations


_SPACES: Mapping[str, Any] = {
    "torch": torch,
    "Tensor": Tensor,
    "F": torch.nn.functional,
    "linalg": torch.linalg,
    "special": torch.special,
    "fft": torch.fft,
    "C": torch._C,
    "_nn": torch._C._nn,
    "amp": torch.amp.autocast_mode,
}
# where what a user calls has the names of operators of aten: "linalg_vector_norm", "add_"
_HOMES: tuple[Any, ...] = (
    *(torch, Tensor, torch._C._nn, torch._C._linalg, torch._C._special, torch._C._fft),  # type: ignore[attr-defined]
    torch.nn.functional,
)
# where a tensor lives and how autograd sees it are not the call's: they are the campaign's
_IGNORED = words(
    "device pin_memory requires_grad generator non_blocking out layout names _stacklevel "
    "sparse_grad"
)
# other spellings of an argument's name, the first that the signature knows is taken
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "axis": ("dim", "dims"),
    "dims": ("dim",),
    "keepdims": ("keepdim",),
    "self": ("input",),
    "x": ("input",),
    "A": ("input",),
    "train": ("training",),
    "size": ("shape",),
    "sizes": ("size",),
    "shape": ("size",),
    "axis0": ("dim0",),
    "axis1": ("dim1",),
    "split_size": ("split_size_or_sections",),
    "split_sizes": ("split_size_or_sections",),
    "indices": ("indices_or_sections", "index"),
    "sections": ("indices_or_sections",),
    "tensor": ("other", "input"),
    "tensors": ("operands",),
    "exponent": ("other",),
}
_ENTRY = re.compile(r"([\w.:]+)(\([^()]*(?:\([^()]*\))?[^()]*\))?([!~@]?)")


@dataclass(frozen=True)
class FunctionForm:
    function: Callable[..., Any]
    kind: str
    signature: inspect.Signature
    inplace: bool = False
    swapped: bool = False

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        if self.swapped and len(args) == 2:
            args = (args[1], args[0])
        arguments = bind(self.signature, args, kwargs, self.kind)
        if self.inplace:
            arguments["inplace"] = True
        return self.kind, arguments


def bind(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Bind a call to a signature; a sequence given to a `*name` is that name's items."""
    if kwargs.get("out") is not None:
        raise UnsupportedError(f"{what}: an out= argument has no description")
    variadic = next(
        (p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None
    )
    given: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in signature.parameters or name == "inplace":
            given[name] = value
        elif name not in _IGNORED:
            known = [n for n in _ALIASES.get(name, ()) if n in signature.parameters]
            given[known[0] if known else name] = value
    if variadic in given:
        value = given.pop(variadic)
        before = list(signature.parameters)[len(args) : list(signature.parameters).index(variadic)]
        args = (*args, *(given.pop(name) for name in before if name in given))
        args = (*args, *(value if isinstance(value, list | tuple) else (value,)))
    try:
        bound = signature.bind(*args, **given)
    except TypeError as error:
        raise UnsupportedError(f"{what}: {error}") from error
    bound.apply_defaults()
    if variadic is not None:
        items = bound.arguments[variadic]
        if len(items) == 1 and isinstance(items[0], list | tuple):
            bound.arguments[variadic] = tuple(items[0])
    return {n: v for n, v in bound.arguments.items() if not n.startswith("_") and n != "out"}


def _resolve(name: str, getter: bool) -> Any:
    space, _, attribute = name.partition(".")
    found = getattr(_SPACES[space], attribute, None)
    return getattr(found, "__get__", None) if getter else found


def declared(kind: Kind) -> Iterator[tuple[str, str, str]]:
    for match in _ENTRY.finditer(kind.functions.format(kind.name)):
        name, signature, flag = match.groups()
        yield name, (signature or "")[1:-1], flag


@cache
def function_forms() -> Mapping[str, Mapping[str, FunctionForm]]:
    """Return each kind's functions by their names in the table, the one that `build` calls first.

    Getters are among them, and functions that no user calls ("C._pad").
    """
    table: dict[str, dict[str, FunctionForm]] = {}
    for kind in KINDS.values():
        forms = table[kind.name] = {}
        for name, signature, flag in declared(kind):
            function = None if name.startswith("nn.") else _resolve(name, flag == "@")
            if function is not None:
                spelled = parse_signature(signature) if signature else kind.signature
                forms[name] = FunctionForm(function, kind.name, spelled, flag == "!", flag == "~")
    return table


@cache
def forms_by_name() -> Mapping[str, FunctionForm]:
    """Return each callable by its name in the table, "torch.cat"; getters are not calls."""
    return {
        name: form
        for forms in function_forms().values()
        for name, form in forms.items()
        if not name.startswith("C.") and callable(form.function)
    }


@cache
def forms_by_function() -> Mapping[Callable[..., Any], FunctionForm]:
    found: dict[Callable[..., Any], FunctionForm] = {}
    for forms in function_forms().values():
        for form in forms.values():
            earlier = found.setdefault(form.function, form)
            if earlier.kind != form.kind:
                raise ValueError(f"{form.function} is both {earlier.kind} and {form.kind}")
    return found


@cache
def metadata_functions() -> frozenset[Callable[..., Any]]:
    found = {_resolve(name, False) for name in METADATA.split()}
    for name in METADATA_GETTERS.split():
        found.add(getattr(getattr(Tensor, name, None), "__get__", None))
    for name in METADATA_SETTERS.split():
        found.add(getattr(getattr(Tensor, name, None), "__set__", None))
        found.add(getattr(getattr(Tensor, name, None), "__delete__", None))
    return frozenset(f for f in found if f is not None)


def bind_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Bound:
    custom = custom_name(function)
    overload = OVERLOADS.get(function) if custom is None else DISPATCHED.get(custom)
    if overload is not None:
        try:
            return overload(*args, **{k: v for k, v in kwargs.items() if k not in _IGNORED})
        except (TypeError, LookupError) as error:
            raise UnsupportedError(f"{function_name(function)}: {error}") from error
    if custom is not None:
        return _bind_custom(custom, args, kwargs)
    form = forms_by_function().get(function)
    if form is None:
        raise UnsupportedError(f"no registered operator for {function_name(function)}")
    return form.bind(args, kwargs)


def function_name(function: Callable[..., Any]) -> str:
    owner = getattr(function, "__module__", None) or getattr(function, "__objclass__", None)
    named = getattr(function, "__qualname__", None) or getattr(function, "__name__", "function")
    name = str(named)
    name = name.removeprefix("_VariableFunctionsClass.").removeprefix("TensorBase.")
    module = owner if isinstance(owner, str) else "torch.Tensor"
    # torch._C._sparse._sparse_mm is torch.sparse.mm
    return re.sub(r"^torch\._C\._(\w+)\._?\1_", r"torch.\1.", f"{module}.{name}")


def custom_name(function: Callable[..., Any]) -> str | None:
    """Return the name of a custom operator ("torchvision::nms"), None for anything else."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        return str(function._qualified_op_name)
    if isinstance(function, torch._ops.OpOverload):
        return str(function._schema.name)
    return None


@cache
def _public_functions(name: str) -> tuple[tuple[Callable[..., Any], Mapping[str, bool]], ...]:
    """Return what a user may call to reach an operator ("aten::add_"), and what it is told besides.

    All take the operator's arguments in its order, but for some of torch.nn.functional, which come
    last: `CUSTOM` has those operators. Where nothing else works in place, F.silu does.
    """
    library, _, called = name.partition("::")
    tried: list[tuple[str, dict[str, bool]]] = [(called, {})] if library == "aten" else []
    if called.endswith("_"):
        tried.append((called.removesuffix("_"), {"inplace": True}))
    found = [(getattr(home, each, None), more) for each, more in tried for home in _HOMES]
    return tuple((function, more) for function, more in found if callable(function))


def _bind_custom(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    if name not in CUSTOM:
        for function, more in _public_functions(name):
            with suppress(UnsupportedError):
                return bind_function(function, args, {**kwargs, **more})
        raise UnsupportedError(f"no registered operator for {name}")
    kind, spelled = CUSTOM[name]
    arguments = bind(parse_signature(spelled), args, kwargs, kind)
    for argument, value in arguments.items():
        if type(value) is int and (kind, argument) in WORDS:
            arguments[argument] = WORDS[kind, argument][value]
    for name in [each.removesuffix("_h") for each in arguments if each.endswith("_h")]:
        arguments[name] = (arguments.pop(f"{name}_h"), arguments.pop(f"{name}_w"))
    if not arguments.pop("use_mask", True):
        arguments["mask"] = None  # the given argument is a placeholder
    return kind, arguments
