"""Kinds whose call is spelled otherwise than one torch function with the kind's arguments.

Each lays the call out beforehand, so that nothing but torch's own function runs when it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from opdb.errors import UnsupportedError

Prepared: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _getitem(input: Tensor, index: Any, **_: Any) -> Prepared:
    return Tensor.__getitem__, (input, _single(index)), {}


def _setitem(input: Tensor, index: Any, value: Any, **_: Any) -> Prepared:
    return Tensor.__setitem__, (input, _single(index), value), {}


def _single(index: tuple[Any, ...]) -> Any:
    # x[0] rather than x[0,]: as it is mostly written
    alone = len(index) == 1 and not isinstance(index[0], tuple)
    return index[0] if alone else index


def _to(input: Tensor, dtype: Any, copy: bool, memory_format: Any, **rest: Any) -> Prepared:
    more: dict[str, Any] = {"copy": True} if copy else {}
    if memory_format is not None:
        more["memory_format"] = memory_format
    if dtype is None:
        return Tensor.to, (input, rest["device"]), more
    return Tensor.to, (input, dtype), more


def _contiguous(input: Tensor, memory_format: Any, **_: Any) -> Prepared:
    more = {} if memory_format is None else {"memory_format": memory_format}
    return Tensor.contiguous, (input,), more


def _where(condition: Tensor, input: Any, other: Any, **_: Any) -> Prepared:
    return torch.where, (condition, input, other), {}


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str, **_: Any) -> Prepared:
    if len(shape) > 4 or torch.Size(shape).numel() > 1_000_000:
        raise UnsupportedError(f"a constant of shape {shape} is too large to spell")
    data: Any = 1
    for size in reversed(shape):
        data = [data] * size
    return torch.tensor, (data,), {"dtype": dtype, "device": device}


def _reduction(
    name: str, input: Tensor, dim: Any, keepdim: bool, dtype: Any = None, **_: Any
) -> Prepared:
    more = {} if dtype is None else {"dtype": dtype}
    args = (input,) if dim is None else (input, dim, keepdim) if keepdim else (input, dim)
    return getattr(torch, name), args, more


def _squeeze(input: Tensor, dim: Any, **_: Any) -> Prepared:
    return Tensor.squeeze, (input,) if dim is None else (input, dim), {}


def _sort(name: str, input: Tensor, dim: int, descending: bool, stable: bool, **_: Any) -> Prepared:
    function = getattr(torch, name)
    if stable:
        return function, (input,), {"dim": dim, "descending": descending, "stable": True}
    return function, (input, dim, descending), {}


def _round(input: Tensor, decimals: int, inplace: bool, **_: Any) -> Prepared:
    function = torch.round_ if inplace else torch.round
    return function, (input,), {"decimals": decimals} if decimals else {}


def _same(input: Any) -> Any:
    return input


def _identity(input: Any, **_: Any) -> Prepared:
    return _same, (input,), {}


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float, **_: Any) -> Prepared:
    return _vision("nms"), (boxes, scores, iou_threshold), {}


def _roi_align(input: Tensor, boxes: Tensor, **rest: Any) -> Prepared:
    height, width = rest["output_size"]
    more = (rest["spatial_scale"], height, width, rest["sampling_ratio"], rest["aligned"])
    return _vision("roi_align"), (input, boxes, *more), {}


def _deform(input: Tensor, offset: Tensor, weight: Tensor, **rest: Any) -> Prepared:
    mask, bias = rest["mask"], rest["bias"]
    if mask is None:
        mask = torch.zeros((input.shape[0], 1), device=input.device, dtype=input.dtype)
    if bias is None:
        bias = torch.zeros(weight.shape[0], device=input.device, dtype=input.dtype)
    height, width = weight.shape[-2:]
    groups = input.shape[1] // weight.shape[1]
    offset_groups = offset.shape[1] // (2 * height * width)
    windows = (*rest["stride"], *rest["padding"], *rest["dilation"])
    counts = (groups, offset_groups, rest["mask"] is not None)
    return _vision("deform_conv2d"), (input, weight, offset, mask, bias, *windows, *counts), {}


def _vision(name: str) -> Callable[..., Any]:
    # torchvision's operators exist once it is imported, which takes a second
    import torchvision  # noqa: F401

    return getattr(torch.ops.torchvision, name)  # type: ignore[no-any-return]


_REDUCTIONS = ("max", "min", "median", "mode", "any", "all", "sum", "mean", "prod")
SPECIAL: Mapping[str, Callable[..., Prepared]] = {
    "getitem": _getitem,
    "setitem": _setitem,
    "to": _to,
    "contiguous": _contiguous,
    "where": _where,
    "tensor": _tensor,
    "squeeze": _squeeze,
    "round": _round,
    "identity": _identity,
    **{name: partial(_reduction, name) for name in _REDUCTIONS},
    **{name: partial(_sort, name) for name in ("sort", "argsort")},
    "nms": _nms,
    "roi_align": _roi_align,
    "deform_conv2d": _deform,
}
