"""Kinds whose call is spelled otherwise than one torch function with the kind's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from opdb.errors import UnsupportedError


def _getitem(input: Tensor, index: Any, **_: Any) -> Any:
    return input[index]


def _setitem(input: Tensor, index: Any, value: Any, **_: Any) -> None:
    input[index] = value


def _to(input: Tensor, dtype: Any, copy: bool, memory_format: Any, device: str, **_: Any) -> Tensor:
    if memory_format is None:
        return input.to(device=device, dtype=dtype, copy=copy)
    return input.to(device=device, dtype=dtype, copy=copy, memory_format=memory_format)


def _contiguous(input: Tensor, memory_format: Any, **_: Any) -> Tensor:
    if memory_format is None:
        return input.contiguous()
    return input.contiguous(memory_format=memory_format)


def _where(condition: Tensor, input: Any, other: Any, **_: Any) -> Tensor:
    return torch.where(condition, input, other)


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str, **_: Any) -> Tensor:
    if len(shape) > 4 or torch.Size(shape).numel() > 1_000_000:
        raise UnsupportedError(f"a constant of shape {shape} is too large to spell")
    data: Any = 1
    for size in reversed(shape):
        data = [data] * size
    return torch.tensor(data, dtype=dtype, device=device)


def _extreme(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def call(input: Tensor, dim: int | None, keepdim: bool, **_: Any) -> Any:
        return function(input) if dim is None else function(input, dim, keepdim)

    return call


def _reduction(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def call(input: Tensor, dim: Any, keepdim: bool, **rest: Any) -> Any:
        more = {"dtype": rest["dtype"]} if rest.get("dtype") is not None else {}
        if dim is None:
            return function(input, **more)
        return function(input, dim, keepdim, **more)

    return call


def _squeeze(input: Tensor, dim: Any, **_: Any) -> Tensor:
    return input.squeeze() if dim is None else input.squeeze(dim)


def _sort(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def call(input: Tensor, dim: int, descending: bool, stable: bool, **_: Any) -> Any:
        if stable:
            return function(input, dim=dim, descending=descending, stable=True)
        return function(input, dim, descending)

    return call


def _round(input: Tensor, decimals: int, inplace: bool, **_: Any) -> Tensor:
    function = torch.round_ if inplace else torch.round
    return function(input, decimals=decimals) if decimals else function(input)


def _identity(input: Any, **_: Any) -> Any:
    return input


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float, **_: Any) -> Any:
    return _vision("nms")(boxes, scores, iou_threshold)


def _roi_align(input: Tensor, boxes: Tensor, **rest: Any) -> Any:
    height, width = rest["output_size"]
    return _vision("roi_align")(
        input,
        boxes,
        rest["spatial_scale"],
        height,
        width,
        rest["sampling_ratio"],
        rest["aligned"],
    )


def _deform(input: Tensor, offset: Tensor, weight: Tensor, **rest: Any) -> Any:
    import torchvision

    return torchvision.ops.deform_conv2d(
        input,
        offset,
        weight,
        rest["bias"],
        rest["stride"],
        rest["padding"],
        rest["dilation"],
        rest["mask"],
    )


def _vision(name: str) -> Callable[..., Any]:
    # torchvision's operators exist once it is imported, which takes a second
    import torchvision  # noqa: F401

    return getattr(torch.ops.torchvision, name)  # type: ignore[no-any-return]


SPECIAL: Mapping[str, Callable[..., Any]] = {
    "getitem": _getitem,
    "setitem": _setitem,
    "to": _to,
    "contiguous": _contiguous,
    "where": _where,
    "tensor": _tensor,
    "squeeze": _squeeze,
    "round": _round,
    "identity": _identity,
    **{name: _extreme(name) for name in ("max", "min", "median", "mode")},
    **{name: _reduction(name) for name in ("any", "all", "sum", "mean", "prod")},
    **{name: _sort(name) for name in ("sort", "argsort")},
    "nms": _nms,
    "roi_align": _roi_align,
    "deform_conv2d": _deform,
}
