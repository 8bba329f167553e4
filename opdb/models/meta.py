"""Kernels on the meta device beside PyTorch's own, for the layouts of a device.

Here, too, is what replaces parts of torch while a pass runs on meta: recurrent layers, and the
casts of autocast on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import _VF, Tensor, nn
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch.amp.autocast_mode import autocast
from torch.overrides import TorchFunctionMode, has_torch_function
from torch.utils import backend_registration

from opdb.errors import UnsupportedError
from opdb.models.inputs import tensors

F = nn.functional


def on_meta(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a dispatcher operator returns, laid out on meta as on a device."""
    if operator in _FUSED and args[0].is_meta:
        return _FUSED[operator](args, kwargs)
    if operator is _GROUPED_MM and args[0].is_meta and args[0].dtype in _NOT_ON_META:
        return _grouped_product(*args, **kwargs)
    if operator in _ALIKE:
        _check_alike(args)
    output = operator(*args, **kwargs)
    is_known = all(map(_is_plain, tensors((args, kwargs))))
    return _laid_out(operator, output, args) if is_known else output


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one on meta and nothing else, whose strides say how it lies."""
    strided = tensor.layout == torch.strided and not tensor.dtype.is_complex
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.is_meta and strided


_ALIKE = frozenset(
    getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "mv", "addmv", "convolution")
)
"""Products whose factors have one dtype on every device; their meta kernels do not look."""


def _check_alike(args: Any) -> None:
    given = [t for t in args if isinstance(t, torch.Tensor)]
    if all(t.is_meta for t in given) and len({t.dtype for t in given}) > 1:
        dtypes = ", ".join(str(t.dtype).removeprefix("torch.") for t in given)
        raise RuntimeError(f"a product of tensors whose dtypes differ: {dtypes}")


_GROUPED_MM = torch.ops.aten._grouped_mm.default
_NOT_ON_META = (torch.float32, torch.float16)
"""Dtypes that the meta kernel of a grouped product refuses, up to torch 2.14 and where torch was
built without the library for it; devices take them."""


def _grouped_product(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, *rest: Any, **others: Any
) -> torch.Tensor:
    """Return the output of a grouped product, contiguous."""
    _check_alike((a, b))
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"a product of shapes that do not fit: {a.shape}, {b.shape}")
    groups = a.shape[:1] if a.dim() == b.dim() == 3 else ()
    if a.dim() == b.dim() == 2 and offs is not None:
        groups = offs.shape
    return a.new_empty((*groups, a.shape[-2], b.shape[-1]))


def _laid_out(operator: Any, output: Any, args: Any) -> Any:
    if operator is torch.ops.aten.convolution.default:
        return _convolved(output, *args[:2])
    if operator is torch.ops.aten.convolution_backward.default:
        of_input, of_weight, of_bias = output
        given = args[1:3]
        kept = [t if t is None else _convolved(t, *given) for t in (of_input, of_weight)]
        return (*kept, of_bias)
    if operator is torch.ops.aten.native_layer_norm_backward.default:
        # contiguous on a device, whatever came (native/cuda/layer_norm_kernel.cu)
        of_input, *of_weights = output
        return (None if of_input is None else of_input.contiguous(), *of_weights)
    if operator is torch.ops.aten.native_batch_norm_backward.default:
        # laid out as the input, whatever came (native/cudnn/BatchNorm.cpp, native/cuda)
        of_input, *of_weights = output
        if of_input is not None:
            layout = suggest_memory_format(args[1])
            of_input = torch.empty_like(of_input, memory_format=layout)
        return (of_input, *of_weights)
    if operator in _BY_GRADIENT:
        strides = compute_elementwise_output_strides(*args[:2])
        return torch.empty_strided(output.shape, strides, dtype=output.dtype, device=output.device)
    if torch.Tag.pointwise in operator.tags and isinstance(output, torch.Tensor):
        return _pointwise(output, args)
    return output


_BY_GRADIENT = frozenset(
    getattr(torch.ops.aten, f"{name}_backward").default
    for name in ("hardsigmoid", "hardswish", "hardtanh", "mish")
)
"""Whose meta kernels lay gradients out as their input; a device first looks at what came."""


def _convolved(output: torch.Tensor, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Lay out a convolution's output, or the gradient of its input or its weight.

    The meta kernel knows no device and leaves the output contiguous (in older versions of torch
    it follows the input alone); cuDNN and oneDNN work in channels_last when either the input or
    the weight has it (`cudnn_conv_suggest_memory_format` in ATen/native/ConvUtils.h).
    """
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(output.dim())
    either = last in (suggest_memory_format(input), suggest_memory_format(weight))
    chosen = last if last and either and output.dtype != torch.float64 else None
    return torch.empty_like(output, memory_format=chosen or torch.contiguous_format)


def _pointwise(output: torch.Tensor, args: Any) -> torch.Tensor:
    """Lay out a point-wise operator's output.

    Where tensors of one shape are all contiguous, so is the output on a device, also where they
    could pass for channels_last: 2x16x1x1 (`compute_fast_setup_type` in ATen/TensorIterator.cpp).
    """
    given = tensors(args)
    numbers = any(isinstance(value, int | float) for value in args[1:2])
    alike = all(t.shape == output.shape and t.is_contiguous() for t in given) and not numbers
    if not alike or any(output is tensor for tensor in given):
        return output
    return torch.empty_like(output, memory_format=torch.contiguous_format)


_ATTENTION = frozenset(
    (
        F.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
    )
)
"""Attention as a user calls it, and as an exported module does."""


class _Attention(torch.autograd.Function):
    """Attention as a device's fused kernels train it: each gradient is laid out as its tensor.

    On meta it is put together from products, whose gradients are laid out otherwise. A bias that is
    learned is a mask that needs a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *bias: torch.Tensor
    ) -> Any:
        ctx.save_for_backward(query, key, value, *bias)
        return query.new_empty((*query.shape[:-1], value.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        with torch._C.DisableTorchFunction():  # whoever watches functions is to see nothing of it
            return tuple(torch.empty_like(t) for t in ctx.saved_tensors)


def attention_on_meta(
    function: Any,
    args: Any,
    kwargs: dict[str, Any],
    cast: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> torch.Tensor | None:
    """Return the output of attention that is trained on meta; None of any other call.

    `cast` is what autocast does to each tensor that it is given.
    """
    if function not in _ATTENTION or not torch.is_grad_enabled():
        return None
    query, key, value, mask = _attending(args, kwargs)
    if not query.is_meta or not any(t.requires_grad for t in (query, key, value)):
        return None
    query, key, value = (cast(t) for t in (query, key, value))
    mask = None if mask is None else cast(mask)
    if not _has_fused_kernel(query, key, value, mask, dtype=query.dtype):
        return None
    learned = () if mask is None or not mask.requires_grad else (mask,)
    output: torch.Tensor = _Attention.apply(query, key, value, *learned)
    return output


def laid_out_as_on_device(function: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """Return a torch function's output on meta with the strides that it has on a device."""
    if function not in _ATTENTION or not output.is_meta:
        return output
    query, key, value, mask = _attending(args, kwargs)
    if not _has_fused_kernel(query, key, value, mask, dtype=output.dtype):
        return output
    return _attended(output, query, mask)


def is_one_kernel(function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a GPU has one kernel for a call that meta puts together from others."""
    if function not in _ATTENTION:
        return False
    query, key, value, mask = _attending(args, kwargs)
    return _has_fused_kernel(query, key, value, mask, dtype=query.dtype)


def _attending(
    args: Any, kwargs: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    given = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs
    return given["query"], given["key"], given["value"], given.get("attn_mask")


_FLASH_WIDTH = 256  # the widest heads of flash attention
_ROW_BYTES = 16  # of which the memory-efficient kernel wants whole ones in a row


def _has_fused_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    dtype: torch.dtype,
) -> bool:
    """Whether a GPU has a kernel for this attention, in this dtype; else products make it up.

    There is none in float64, nor for other than four axes, nor where batches differ and one is
    broadcast, nor where the last axis of a tensor is not dense: that of a mask which is expanded
    along it, for one. The memory-efficient kernel wants rows of whole 16 bytes; flash attention,
    for halves without a mask, fills them up (ATen/native/transformers/sdp_utils_cpp.h and
    cuda/sdp_utils.cpp).
    """
    given = (query, key, value)
    if dtype == torch.float64 or any(t.dim() != 4 for t in given):
        return False
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        return False
    dense = query.shape[-1] == 1 or all(t.stride(-1) == 1 for t in given)
    if not dense or (mask is not None and mask.stride(-1) != 1):
        return False
    widths = {t.shape[-1] for t in given}
    halves = dtype in (torch.float16, torch.bfloat16)
    if halves and mask is None and len(widths) == 1 and max(widths) <= _FLASH_WIDTH:
        return True
    return not any(width * dtype.itemsize % _ROW_BYTES for width in widths)


def _attended(output: torch.Tensor, query: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Lay out what a fused kernel gives, of shape (batch, heads, length, width).

    On meta attention is put together from products, and contiguous. The memory-efficient kernel
    writes (batch, length, heads, width); flash attention and cuDNN follow the query's order
    (ATen/native/transformers/cuda/attention.cu). Without a mask, halves take one of the latter.
    """
    halves = output.dtype in (torch.float16, torch.bfloat16)
    by_heads = bool(query.stride(1) >= query.stride(2))
    if halves and mask is None and by_heads:
        return output.contiguous()
    return output.transpose(1, 2).contiguous().transpose(1, 2)


@contextmanager
def fused_attention_on_meta() -> Iterator[None]:
    """Let attention modules take their fused path on meta where they would take it on a GPU.

    Their output is contiguous then, which it is not on the other path. Among all that decides, the
    modules ask whether the device is a CPU, a GPU or the one that a third party has registered.
    """
    registered = backend_registration._privateuse1_backend_name
    backend_registration._privateuse1_backend_name = "meta"
    try:
        yield
    finally:
        backend_registration._privateuse1_backend_name = registered


def _fused_attention(args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
    names = ("mask", "need_weights", "average_attn_weights")
    given = dict(zip(names, args[9:12], strict=False)) | kwargs
    query, key, heads = args[0], args[1], args[4]
    weights = None
    if given.get("need_weights", True):
        averaged = given.get("average_attn_weights", True)
        shape = [query.shape[0], *([] if averaged else [heads]), query.shape[1], key.shape[1]]
        weights = query.new_empty(shape)
    return query.new_empty(query.shape), weights


def _fused_layer(args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    layer: torch.Tensor = args[0].new_empty(args[0].shape)
    return layer


_FUSED = {
    torch.ops.aten._native_multi_head_attention.default: _fused_attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: _fused_layer,
}
"""What has no meta kernel: the inference paths of attention modules."""


_NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextmanager
def recurrent_on_meta() -> Iterator[None]:
    """Let recurrent modules make their outputs on meta at once, until the block ends.

    Step by step a layer of 4,096 tokens takes minutes. Where gradients are recorded it is left so,
    and where the layer is no part of a recorded module: whoever watches functions is to see it.
    """
    functions: Any = _VF
    for name in _NAMES:
        setattr(functions, name, partial(_layer, getattr(functions, name)))
    try:
        yield
    finally:
        for name in _NAMES:
            delattr(functions, name)  # what was set hid the module's own


def _layer(
    original: Callable[..., Any], input: Tensor, state: Any, weights: Any, *rest: Any
) -> Any:
    if not input.is_meta or torch.is_grad_enabled() or has_torch_function((input,)):
        return original(input, state, weights, *rest)
    # a packed sequence has its batch sizes for a state, and all else one place later
    packed = not isinstance(weights, list)
    state, (_bias, layers, *others) = (weights, rest[1:]) if packed else (state, rest)
    batch_first = not packed and others[-1]
    states = list(state) if isinstance(state, (tuple, list)) else [state]
    width = states[0].shape[0] // layers * states[0].shape[-1]
    rows = input.transpose(0, 1) if batch_first else input
    output = input.new_empty((*rows.shape[:-1], width))
    made = [each.new_empty(each.shape) for each in states]
    return (output.transpose(0, 1) if batch_first else output, *made)


_LOWERED = frozenset(
    f"aten::{name}"
    for name in (
        *("convolution", "addmm", "mm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "addr"),
        *("linear", "_prelu_kernel", "dot"),
    )
)
"""Operators whose floating arguments become halves."""

_LOWERED_BACKWARD = _LOWERED | {"aten::convolution_backward", "aten::_prelu_kernel_backward"}

_RAISED = frozenset(
    f"aten::{name}"
    for name in (
        *("native_layer_norm", "native_group_norm", "_softmax", "_log_softmax", "softplus"),
        *("nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "l1_loss"),
        *("binary_cross_entropy_with_logits", "exp", "expm1", "log", "log10", "log2", "log1p"),
        *("pow", "prod", "reciprocal", "rsqrt", "sinh", "cosh", "tan", "acos", "asin", "erfinv"),
        *("cumsum", "cumprod", "sum", "linalg_vector_norm", "norm", "renorm", "_cdist_forward"),
    )
)
"""Operators whose halves become float32."""

_CONVOLUTIONS = frozenset(
    getattr(torch, f"{name}{rank}d") for name in ("conv", "conv_transpose") for rank in (1, 2, 3)
)

_SINGLE = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that are cast: doubles stay as they are."""


class CastingKernels:
    """Run dispatcher operators on meta with the dtypes that they have under autocast.

    `cast` hears of every operator that is given other dtypes than it was called with; `in_backward`
    says whether a backward pass runs, where nothing is cast but what the forward pass had cast.
    """

    def __init__(
        self, dtype: torch.dtype, cast: Callable[[], None], in_backward: Callable[[], bool]
    ) -> None:
        self._dtype, self._cast, self._in_backward = dtype, cast, in_backward

    def __call__(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what the operator returns under autocast."""
        target = self._target(operator._schema.name, args)
        if target is not None:
            changed = tuple(_as(value, target) for value in args)
            if any(new is not old for new, old in zip(changed, args, strict=True)):
                self._cast()
                args = changed
        return on_meta(operator, args, kwargs)

    def _target(self, name: str, args: Any) -> torch.dtype | None:
        """Return the dtype that an operator's floating arguments get; None where they are left."""
        halves = any(_is_tensor(value) and value.dtype == self._dtype for value in args)
        if self._in_backward():
            return self._dtype if halves and name in _LOWERED_BACKWARD else None
        if name in _LOWERED:
            return self._dtype
        return torch.float32 if halves and name in _RAISED else None


class Convolutions(TorchFunctionMode):
    """Cast the arguments of convolutions as they are called: they refuse dtypes that differ."""

    def __init__(self, dtype: torch.dtype, cast: Callable[[], None]) -> None:
        super().__init__()
        self._dtype, self._cast = dtype, cast

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS:
            self._cast()
            args = tuple(self._lowered(value) for value in args)
            kwargs = {name: self._lowered(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _lowered(self, value: Any) -> Any:
        castable = _is_tensor(value) and value.dtype in _SINGLE
        return value.to(self._dtype) if castable else value


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _as(value: Any, dtype: torch.dtype) -> Any:
    if not _is_tensor(value) or value.dtype not in _SINGLE or value.dtype == dtype:
        return value
    return torch.empty_like(value, dtype=dtype)


@contextmanager
def autocast_refused(model: str) -> Iterator[None]:
    """Refuse a model that enters autocast by itself, until the block ends.

    Without a GPU torch switches autocast for CUDA off as soon as it is made, and says so in a
    warning alone: so it is refused where it is made. A context made earlier is refused where it is
    entered. Blocks of several threads must not overlap: the class itself is changed.

    Raises:
        UnsupportedError: inside the block, where autocast is switched on.
    """
    made, entered = autocast.__init__, autocast.__enter__

    def init(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        *rest: Any,
        **named: Any,
    ) -> None:
        _check(model, enabled)
        made(self, device_type, dtype, enabled, *rest, **named)

    def enter(self: Any) -> Any:
        _check(model, self._enabled)
        return entered(self)  # type: ignore[no-untyped-call]

    autocast.__init__, autocast.__enter__ = init, enter  # type: ignore[method-assign]
    try:
        yield
    finally:
        autocast.__init__, autocast.__enter__ = made, entered  # type: ignore[method-assign]


def _check(model: str, enabled: bool) -> None:
    if enabled:
        raise UnsupportedError(
            f"{model!r} enters autocast by itself and cannot be harvested: autocast casts on the "
            "device itself; take it out, and give the dtype instead"
        )
