"""Make the tensors that a configuration describes."""

from __future__ import annotations

from math import prod, sqrt

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS
from opdb.kinds.layout import strides_of
from opdb.kinds.linear import imbalance_of
from opdb.kinds.view import View
from opdb.operators.encoding import dtype_of
from opdb.records import Json


def generator_on(device: torch.device | str, seed: int) -> torch.Generator | None:
    """Return a seeded generator on a device; None on meta, where no values are drawn."""
    on_meta = torch.device(device).type == "meta"
    return None if on_meta else torch.Generator(device).manual_seed(seed)


def materialize(
    spec: Json,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Make a tensor by its spec: shape, dtype, strides, value class; weights are small.

    Raises:
        UnsupportedError: the dtype or the value class is unknown here.
    """
    shape, strides = list(spec["shape"]), strides_of(spec)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n)
    size = 0 if 0 in shape else reach
    buffer = _fill(spec, size, torch.device(device), generator)
    return torch.as_strided(buffer, shape, strides)


def _fill(spec: Json, size: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    dtype, values = dtype_of(spec["dtype"]), spec.get("values")
    if dtype is torch.bool:
        density = values.get("density", 0.5) if isinstance(values, dict) else 0.5
        density = 0.9 if values == "mask" else density
        return torch.rand(size, device=device, generator=generator) < density
    if not (dtype.is_floating_point or dtype.is_complex):
        low, high = values["range"] if isinstance(values, dict) and "range" in values else (0, 2)
        high = max(int(high), int(low) + 1)
        kept = torch.randint(int(low), high, (size,), device=device, generator=generator)
        return kept.to(dtype)
    direct = dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    made = dtype if direct or dtype.is_complex else torch.float32
    noise = torch.empty(size, dtype=made, device=device)
    if device.type != "meta":  # there normal_ draws nothing, in a millisecond of Python
        noise.normal_(generator=generator)
    if isinstance(values, dict) and "zeros" in values and spec.get("role") != "weight":
        return _with_zeros(noise, values["zeros"], generator).to(dtype)
    if values is None and spec["dtype"].startswith("float8"):  # scaled numbers fill their range
        largest = torch.finfo(dtype).max
        return noise.mul_(largest / 4).clamp_(-largest, largest).to(dtype)
    return _shaped(noise, spec, values).to(dtype)


def _with_zeros(noise: Tensor, share: Json, generator: torch.Generator | None) -> Tensor:
    """Set a share of the values to zero, each by a draw of its own; the others stay normal."""
    number = isinstance(share, int | float) and not isinstance(share, bool)
    if not number or not 0 <= share <= 1:
        raise UnsupportedError(f"a share of zeros is from 0 to 1, not {share!r}")
    kept = torch.empty_like(noise, dtype=torch.bool).bernoulli_(1 - share, generator=generator)
    return noise.mul_(kept)


def _shaped(noise: Tensor, spec: Json, values: Json) -> Tensor:
    if spec.get("role") == "weight" and len(spec["shape"]) > 1:
        return noise.div_(sqrt(max(prod(spec["shape"][1:]), 1)))
    if values is None:
        return noise
    if values == "rectified":
        # a handful of numbers could all be negative
        return noise.relu_() if noise.numel() > 16 else noise.abs_()
    if values == "mask":
        # an additive mask: 0 where kept, the most negative number elsewhere
        return noise.gt(1.28).to(noise.dtype).mul_(torch.finfo(noise.dtype).min)
    if isinstance(values, dict) and "range" in values:
        low, high = values["range"]
        return noise.sigmoid_().mul_(high - low).add_(low)
    raise UnsupportedError(f"unknown value class {values!r}")


def adjusted_spec(view: View, name: str, spec: Json) -> Json:
    """Return a spec with a range for indices that declare none, so that they stay in bounds."""
    whole = not spec["dtype"].startswith(("float", "bfloat", "complex", "bool"))
    if not whole:
        return spec
    bound = KINDS[view.configuration.kind].bound_rule(view, name)
    if bound is None:
        return spec
    values = spec.get("values")
    low, high = values["range"] if isinstance(values, dict) and "range" in values else (0, bound)
    return {**spec, "values": {"range": [max(0, min(low, bound - 1)), max(1, min(high, bound))]}}


def tame(view: View, name: str, tensor: Tensor) -> Tensor:
    """Change the values of arguments that must obey a rule; returns the tensor.

    Variances and arguments of logarithms are positive; boxes have their corners in order; groups
    end one after the other, the last where what they divide ends, and are filled as by a router
    that draws the group of each row.
    """
    kind = KINDS[view.configuration.kind]
    if (kind.name, name) == ("grouped_mm", "offs"):
        return _ends(tensor, view)
    floating = tensor.is_floating_point() and tensor.numel() > 0
    if not floating:
        return tensor
    if name == "running_var" or name in kind.positive:
        return tensor.abs_().add_(0.5)
    if name in kind.probabilities:
        return tensor.sigmoid_()
    if kind.name in ("nms", "roi_align") and name == "boxes" and tensor.dim() == 2:
        return _boxes(tensor, 64.0)
    return tensor


def _ends(tensor: Tensor, view: View) -> Tensor:
    first, second = view.shape(), view.shape("mat2")
    divided = first[-2] if len(second) == 3 else first[-1] if len(first) == 2 else second[-1]
    if not tensor.numel():
        return tensor
    ranks = torch.arange(1, tensor.numel() + 1, dtype=torch.float64)
    drawn = torch.multinomial(ranks ** -imbalance_of(view), divided, replacement=True)
    return tensor.copy_(torch.bincount(drawn, minlength=tensor.numel()).cumsum(0))


def _boxes(tensor: Tensor, extent: float) -> Tensor:
    corners = tensor[:, -4:]
    corners.sigmoid_().mul_(extent)
    corners[:, 2:].add_(corners[:, :2])
    if tensor.shape[1] == 5:
        tensor[:, 0] = 0  # the image's index in the batch
    return tensor
