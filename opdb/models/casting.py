"""The casts of autocast on an NVIDIA GPU, on meta, where PyTorch's own autocast does nothing.

PyTorch casts the arguments of certain operators as they are called ("CUDA Ops that can autocast to
float16" and "to float32" in its documentation of torch.amp). Here the same is done to what these
operators come down to: enough for every shape, dtype and layout, with nothing computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from opdb.models.meta import MetaKernels

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


class CastingKernels(MetaKernels):
    """Run dispatcher operators on meta with the dtypes that they have under autocast.

    `cast` hears of every operator that is given other dtypes than it was called with; `in_backward`
    says whether a backward pass runs, where nothing is cast but what the forward pass had cast.
    """

    def __init__(
        self, dtype: torch.dtype, cast: Callable[[], None], in_backward: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._dtype, self._cast, self._in_backward = dtype, cast, in_backward

    def __call__(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what the operator returns under autocast."""
        target = self._target(operator._schema.name, args)
        if target is not None:
            changed = tuple(_as(value, target) for value in args)
            if any(new is not old for new, old in zip(changed, args, strict=True)):
                self._cast()
                args = changed
        return super().__call__(operator, args, kwargs)

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
