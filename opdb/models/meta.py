"""Kernels on the meta device beside PyTorch's own, for the layouts of a device.

Here, too, is what replaces parts of torch while a pass runs on meta: recurrent layers, the casts of
autocast on an NVIDIA GPU, and the import of dynamo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import _VF, Tensor, nn
from torch._ops import HigherOrderOperator
from torch._prims_common import compute_elementwise_output_strides, suggest_memory_format
from torch.amp.autocast_mode import autocast
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, has_torch_function
from torch.utils import _pytree as pytree
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.errors import UnsupportedError
from opdb.models.inputs import dtype_of, is_index, make, seeded, tensors
from opdb.records import Json

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


Attention: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Query, key, value and mask of a call."""


def attending(function: Any, args: Any, kwargs: dict[str, Any]) -> Attention | None:
    """Return what a call of attention is given; None of any other call."""
    if function not in _ATTENTION:
        return None
    given = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs
    return given["query"], given["key"], given["value"], given.get("attn_mask")


def trained_attention(
    attention: Attention, cast: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor | None:
    """Return the output of attention that is trained on meta by a fused kernel, else None.

    `cast` is what autocast does to each tensor that it is given.
    """
    query, key, value, mask = attention
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if not query.is_meta or not learns:
        return None
    query, key, value = (cast(t) for t in (query, key, value))
    mask = None if mask is None else cast(mask)
    if not has_fused_kernel((query, key, value, mask), query.dtype):
        return None
    learned = () if mask is None or not mask.requires_grad else (mask,)
    output: torch.Tensor = _Attention.apply(query, key, value, *learned)
    return output


_FLASH_WIDTH = 256  # the widest heads of flash attention
_ROW_BYTES = 16  # of which the memory-efficient kernel wants whole ones in a row


def has_fused_kernel(attention: Attention, dtype: torch.dtype) -> bool:
    """Whether a GPU has a kernel for this attention, in this dtype; else products make it up.

    There is none in float64, nor for other than four axes, nor where batches differ and one is
    broadcast, nor where the last axis of a tensor is not dense: that of a mask which is expanded
    along it, for one. The memory-efficient kernel wants rows of whole 16 bytes; flash attention,
    for halves without a mask, fills them up (ATen/native/transformers/sdp_utils_cpp.h and
    cuda/sdp_utils.cpp).
    """
    query, key, value, mask = attention
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


def attended(output: torch.Tensor, attention: Attention) -> torch.Tensor:
    """Lay out what attention gives, of shape (batch, heads, length, width), as on a device.

    On meta attention is put together from products, and contiguous. The memory-efficient kernel
    writes (batch, length, heads, width); flash attention and cuDNN follow the query's order
    (ATen/native/transformers/cuda/attention.cu). Without a mask, halves take one of the latter.
    """
    if not output.is_meta or not has_fused_kernel(attention, output.dtype):
        return output
    query, *_, mask = attention
    halves = output.dtype in (torch.float16, torch.bfloat16)
    if halves and mask is None and bool(query.stride(1) >= query.stride(2)):
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

_CONVOLUTIONS = frozenset(
    getattr(torch, f"{name}{rank}d") for name in ("conv", "conv_transpose") for rank in (1, 2, 3)
)

_SINGLE = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that are cast: doubles stay as they are."""


class Autocast:
    """Runs dispatcher operators on meta with the dtypes that they have under autocast.

    `name` is the dtype that it casts to, None where there is no autocast. `has_cast` says that an
    operator was given other dtypes than it was called with. `in_backward` says whether a backward
    pass runs, where nothing is cast but what the forward pass had cast.
    """

    def __init__(self, name: str | None, in_backward: Callable[[], bool]) -> None:
        self.name, self._in_backward = name, in_backward
        self.has_cast = False

    def __call__(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        target = None if self.name is None else self._target(operator._schema.name, args)
        if target is not None:
            args = tuple(self._cast(value, target) for value in args)
        return on_meta(operator, args, kwargs)

    def _target(self, name: str, args: Any) -> torch.dtype | None:
        """Return the dtype that an operator's floating arguments get; None where they are left."""
        lowered = dtype_of(str(self.name))
        halves = any(_is_tensor(value) and value.dtype == lowered for value in args)
        if self._in_backward():
            return lowered if halves and name in _LOWERED_BACKWARD else None
        if name in _LOWERED:
            return lowered
        return torch.float32 if halves and name in _RAISED else None

    def attended(self, given: torch.Tensor) -> torch.Tensor:
        if self.name is None or given.dtype == torch.float64 or not given.is_floating_point():
            return given
        dtype = dtype_of(self.name)
        self.has_cast |= given.dtype != dtype
        return given.to(dtype)

    def convolutions(self) -> _Convolutions | None:
        return None if self.name is None else _Convolutions(self, dtype_of(self.name))

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if not _is_tensor(value) or value.dtype not in _SINGLE or value.dtype == dtype:
            return value
        self.has_cast = True
        return torch.empty_like(value, dtype=dtype)


class _Convolutions(TorchFunctionMode):
    """Casts the arguments of convolutions as they are called: they refuse dtypes that differ."""

    def __init__(self, autocast: Autocast, dtype: torch.dtype) -> None:
        super().__init__()
        self._autocast, self._dtype = autocast, dtype

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS:
            self._autocast.has_cast = True
            args = tuple(self._lowered(value) for value in args)
            kwargs = {name: self._lowered(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _lowered(self, value: Any) -> Any:
        castable = _is_tensor(value) and value.dtype in _SINGLE
        return value.to(self._dtype) if castable else value


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@contextmanager
def autocast_refused(model: str) -> Iterator[None]:
    """Refuse a model that enters an autocast of its own, until the block ends.

    Without a GPU torch switches autocast for CUDA off as soon as it is made, and says so in a
    warning alone: so it is refused where it is made, and one made earlier where it is entered.
    Blocks of several threads must not overlap: the class itself is changed.

    Raises:
        UnsupportedError: inside the block, where autocast is switched on.
    """
    made, entered = autocast.__init__, autocast.__enter__

    def check(enabled: bool) -> None:
        if enabled:
            raise UnsupportedError(
                f"{model!r} enters autocast by itself and cannot be harvested: autocast casts on "
                "the device itself; take it out, and give the dtype instead"
            )

    def init(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        check(enabled)
        made(self, device_type, dtype, enabled, cache_enabled)

    def enter(self: Any) -> Any:
        check(self._enabled)
        return entered(self)  # type: ignore[no-untyped-call]

    autocast.__init__, autocast.__enter__ = init, enter  # type: ignore[method-assign]
    try:
        yield
    finally:
        autocast.__init__, autocast.__enter__ = made, entered  # type: ignore[method-assign]


_DYNAMO, _UTILS = "torch._dynamo", "torch._dynamo.utils"


class _Deferred(ModuleType):
    """Stands for a module of dynamo, and imports it when asked for what it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and (self.__name__, name) != (_DYNAMO, "__path__"):
            raise AttributeError(name)
        _forget_deferred()
        return getattr(import_module(self.__name__), name)


def _forget_deferred() -> None:
    for name in (_DYNAMO, _UTILS):
        if isinstance(sys.modules.get(name), _Deferred):
            del sys.modules[name]


def _is_compile_supported(device_type: str) -> Any:
    _forget_deferred()
    return import_module(_UTILS).is_compile_supported(device_type)


@contextmanager
def dynamo_deferred() -> Iterator[None]:
    """Keep dynamo from being imported, until the block ends, where nothing is compiled.

    It takes half as long as torch. PyTorch imports it to have its own Python functions left alone
    when something is compiled, torchvision for a question that it asks later.
    """
    if _DYNAMO in sys.modules:
        yield
        return
    left: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        left.append(function)
        return function

    dynamo, utils = _Deferred(_DYNAMO), _Deferred(_UTILS)
    vars(dynamo)["disable"], vars(utils)["is_compile_supported"] = disable, _is_compile_supported
    sys.modules.update({_DYNAMO: dynamo, _UTILS: utils})
    try:
        yield
    finally:
        _forget_deferred()
        for function in left:
            vars(function).pop("__dynamo_disable", None)


# Which tensors of a pass on meta have values: small ones of indices and masks, and no large one.
#
# A constructor may ask for one parameter of 30 GB (the experts of a mixture), for tables and for
# masks. On meta only their shapes count, so large tensors are on meta from the start.

LARGE_BYTES = 2**27
"""Larger tensors are made on meta. Smaller ones are not: a tensor that outlives the constructor,
such as a cached function's table, needs its values."""

MOST_KNOWN_BYTES = 2**22
"""The largest memory whose values a pass on meta knows (see `KnownValues`)."""

_SMALL_BYTES = 2**13
"""Outputs of operators on less are not looked at: an outer product of it has 16 MB."""


class LargeOnMeta(TorchDispatchMode):
    """Runs dispatcher operators; what they make that is larger than `LARGE_BYTES` is on meta.

    What computes with such a tensor is on meta, too. `largest_bytes` is what the largest of all
    that was made on meta would have taken.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors((args, kwargs))
        if any(t.is_meta for t in given):
            if any(not t.is_meta for t in written(func, args, kwargs)):
                raise RuntimeError(f"{func} writes what is on meta into a tensor on the CPU")
            return on_meta(func, _on_meta(args), _on_meta(kwargs))
        if func.is_view or func._schema.is_mutable:
            return func(*args, **kwargs)
        if given and sum(t.nbytes for t in given if _owns_bytes(t)) <= _SMALL_BYTES:
            return func(*args, **kwargs)
        large = _made_on_meta(func, args, kwargs)
        made_bytes = sum(t.nbytes for t in tensors(large) if _owns_bytes(t))
        if made_bytes <= LARGE_BYTES:
            return func(*args, **kwargs)
        self.largest_bytes = max(self.largest_bytes, made_bytes)
        return large


def written(operator: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    if not operator._schema.is_mutable:
        return []
    named = {a.name: v for a, v in zip(operator._schema.arguments, args, strict=False)} | kwargs
    names = [a.name for a in operator._schema.arguments if a.alias_info and a.alias_info.is_write]
    return tensors([named[name] for name in names if name in named])


def _made_on_meta(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what an operator on the CPU would make, on meta; None where that is not known."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return None
    kwargs = _on_meta(kwargs)
    if any(argument.name == "device" for argument in operator._schema.arguments):
        kwargs["device"] = torch.device("meta")
    try:
        return operator(*_on_meta(args), **kwargs)
    except (RuntimeError, NotImplementedError):  # it asks for values, or has no meta kernel
        return None


def _on_meta(given: Any) -> Any:
    """Return arguments with their tensors, and the device that is asked for, on meta.

    A tensor that is one number may stay on the CPU: operators take it on any device.
    """
    if isinstance(given, torch.device):
        return torch.device("meta")
    if isinstance(given, Tensor):
        return given.to("meta") if given.dim() and given.device.type == "cpu" else given
    if type(given) in (tuple, list):
        return type(given)([_on_meta(each) for each in given])
    return {n: _on_meta(each) for n, each in given.items()} if type(given) is dict else given


def _owns_bytes(tensor: Tensor) -> bool:
    """Return whether a tensor's bytes are its own: it is neither sparse nor a wrapper."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided


MOST_ELEMENTS = 2**18
"""Values of larger tensors are not kept: a pass on meta stays fast, and needs no memory."""

MOST_HELD = 512
"""At this many tensors, and each time they have doubled, those that nothing holds are dropped."""

_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
_ALLOCATIONS = ("empty", "new_empty")
_ASKING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

Run = Callable[[Any, Any, dict[str, Any]], Any]


class KnownValues:
    """Runs dispatcher operators on meta, and beside them on the CPU where all values are known.

    Known are buffers and inputs that hold no floating-point numbers: as the model was built with
    them, or given as an example, else drawn as the model's inputs are described; and whatever is
    made of known values alone. So a model that asks whether a mask is full, or at which places an
    index stands, gets its answer without any of its weights. Values are kept for the storages of
    meta tensors: views share them, and operators in place change them. A copy of known values to
    the CPU has them. Memory of such a type that nothing was written to yet holds zeros: a model
    that reads it would find anything.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[StorageWeakRef, torch.UntypedStorage]] = {}
        self._most_held = MOST_HELD

    def declare(self, described: Json, given: Tensor) -> None:
        """Draw the values of a model's input on meta as it is described, each time the same.

        Of one whose values are known already, these stay; of one that is too large to be kept,
        none are drawn.
        """
        if is_index(given.dtype) and _is_small(given) and self.value(given) is None:
            with seeded("cpu"):
                self.keep(given, make(described, "cpu"))

    def value(self, tensor: Tensor) -> Tensor | None:
        """Return a tensor's values on the CPU; None where they are not known."""
        if not tensor.is_meta:
            return tensor if tensor.device.type == "cpu" else None
        found = self._held.get(tensor.untyped_storage()._cdata)
        if found is None or tensor.numel() > MOST_ELEMENTS:
            return None
        if tensor.untyped_storage().nbytes() != found[1].nbytes():
            return None  # it was resized
        values = torch.empty(0, dtype=tensor.dtype)
        return values.set_(found[1], tensor.storage_offset(), tensor.shape, tensor.stride())

    def run(self, operator: Any, args: Any, kwargs: dict[str, Any], run: Run) -> Any:
        """Return what `run` returns of an operator, or what its arguments' values say."""
        if isinstance(operator, HigherOrderOperator):
            return operator(*args, **kwargs)
        if operator.is_view:
            return run(operator, args, kwargs)
        if operator is torch.ops.aten._pack_padded_sequence.default:
            given, lengths, *rest = args  # the lengths lie on the CPU, wherever the rows are
            known = self.value(lengths)
            args = args if known is None else (given, known, *rest)
        if _leaves_meta(operator, args, kwargs):
            found = self._on_cpu(operator, args, kwargs)
            return run(operator, args, kwargs) if found is None else found[0]
        if _ASKING.intersection(operator.tags):
            found = self._on_cpu(operator, args, kwargs)
            if found is None:
                return run(operator, self._with_masks(operator, args), kwargs)
            output = pytree.tree_map_only(
                Tensor,
                lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta"),
                found[0],
            )
        else:
            output = run(operator, args, kwargs)
            small = all(t.numel() <= MOST_ELEMENTS for t in tensors(output))
            found = self._on_cpu(operator, args, kwargs) if small else None
        if operator._schema.is_mutable:
            if found is None:
                self._forget(written(operator, args, kwargs))
        elif found is not None:
            for tensor, value in zip(tensors(output), tensors(found[0]), strict=True):
                self.keep(tensor, value)
        elif _allocates(operator):
            for tensor in tensors(output):
                if is_index(tensor.dtype):
                    self.keep(tensor, torch.zeros((), dtype=tensor.dtype))
        return output

    def shown(self, function: Any, args: Any) -> Any:
        """Return a function's arguments, with the values of what it gives to NumPy."""
        if function not in (Tensor.numpy, Tensor.__array__) or not args[0].is_meta:
            return args
        values = self.value(args[0])
        return args if values is None else (values, *args[1:])

    def made(self, function: Any, args: Any, output: Any) -> None:
        """Keep the values of a tensor that a function made on meta of lists or NumPy's arrays."""
        if function in _FROM_DATA and isinstance(output, Tensor) and output.is_meta:
            data = args[-1:] if function is Tensor.new_tensor else args[:1]
            if not tensors(data):
                for given in data:
                    self.keep(output, torch.tensor(given, dtype=output.dtype))

    def _on_cpu(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any] | None:
        """Run an operator on its arguments' values; None where one of them is not known."""
        values = self._values(operator, args, kwargs)
        if values is None:
            return None
        try:
            return (operator(*values[0], **values[1]),)
        except (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError):
            return None  # the call is wrong, and fails on meta too, or the CPU lacks the operator

    def _with_masks(self, operator: Any, args: Any) -> Any:
        """Return the arguments of an indexing with its known masks: they decide the shape."""
        if operator is not torch.ops.aten.index.Tensor:
            return args
        masks = [i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]]
        known = [self.value(i) if m else None for i, m in zip(args[1], masks, strict=True)]
        return args[0], [i if v is None else v for i, v in zip(args[1], known, strict=True)]

    def _values(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the arguments with the values of their tensors; None where one is not known."""
        if torch.Tag.nondeterministic_seeded in operator.tags or _allocates(operator):
            return None
        given = tensors((args, kwargs))
        if not any(tensor.is_meta for tensor in given) and not _makes_on_meta(kwargs):
            return None
        known = {id(tensor): self.value(tensor) for tensor in given}
        if any(value is None for value in known.values()):
            return None
        args, kwargs = pytree.tree_map_only(Tensor, lambda t: known[id(t)], (args, kwargs))
        return args, {**kwargs, "device": "cpu"} if _makes_on_meta(kwargs) else kwargs

    def keep(self, tensor: Tensor, values: Tensor) -> None:
        """Keep the values of a tensor on meta, unless they are many or known already."""
        if not _is_small(tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self._held or storage.nbytes() > MOST_KNOWN_BYTES:
            return
        if len(self._held) >= self._most_held:
            self._held = {k: v for k, v in self._held.items() if not v[0].expired()}
            self._most_held = max(MOST_HELD, 2 * len(self._held))
        self._held[storage._cdata] = StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes())
        held = self.value(tensor)
        assert held is not None
        held.copy_(values)

    def _forget(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if tensor.is_meta:
                self._held.pop(tensor.untyped_storage()._cdata, None)


def _is_small(tensor: Tensor) -> bool:
    return tensor.is_meta and tensor.numel() <= MOST_ELEMENTS


def with_index_known(function: Any, args: Any) -> Any:
    """Lists in an index become tensors that keep their values: on meta, PyTorch drops them."""
    if function not in (Tensor.__getitem__, Tensor.__setitem__) or not args[0].is_meta:
        return args
    tensor, index, *rest = args
    parts = index if isinstance(index, tuple) else (index,)
    listed = [
        isinstance(part, list) and part != [] and all(isinstance(each, int) for each in part)
        for part in parts
    ]
    made = tuple(torch.tensor(p) if a else p for p, a in zip(parts, listed, strict=True))
    return tensor, made if isinstance(index, tuple) else made[0], *rest


def _allocates(operator: Any) -> bool:
    name: str = operator._schema.name
    return name.removeprefix("aten::").startswith(_ALLOCATIONS)


def _leaves_meta(operator: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    if operator is torch.ops.aten._to_copy.default:
        device = kwargs.get("device")
        return args[0].is_meta and device is not None and torch.device(device).type == "cpu"
    return operator is torch.ops.aten.copy_.default and args[1].is_meta and not args[0].is_meta


def _makes_on_meta(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "meta"
