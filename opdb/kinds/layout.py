"""Layouts of tensors as strides, in elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opdb.kinds.view import Shape
from opdb.records import Json


def packed_strides(shape: Sequence[int], order: Iterable[int]) -> list[int]:
    """Return the strides of a tensor without gaps; `order` has its axes, the densest first."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


def contiguous_strides(shape: Shape) -> list[int]:
    """Return the strides of a contiguous tensor."""
    return packed_strides(shape, reversed(range(len(shape))))


def channels_last_strides(shape: Shape) -> list[int]:
    """Return the strides of a channels-last tensor of 4 or 5 dimensions."""
    return packed_strides(shape, [1, *range(len(shape) - 1, 1, -1), 0])


def same_strides(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether strides are the same for a shape, axes of one element left out."""
    pairs = zip(shape, one, other, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def strides_of(spec: Json) -> list[int]:
    """Return a spec's strides, in elements."""
    shape, layout = list(spec["shape"]), spec.get("layout")
    if isinstance(layout, list):
        return layout
    if layout == "channels_last":
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def is_viewable(spec: Json, shape: Shape) -> bool:
    """Return whether a tensor can be viewed as another shape without a copy.

    As in ATen's computeStride: each run of dimensions that lie together in memory must be cut
    into whole dimensions of the new shape.
    """
    old = [(n, s) for n, s in zip(spec["shape"], strides_of(spec), strict=True) if n != 1]
    runs: list[int] = []
    for index, (size, stride) in enumerate(old):
        if index and old[index - 1][1] == size * stride:
            runs[-1] *= size
        else:
            runs.append(size)
    new = [n for n in shape if n != 1]
    for run in runs:
        product = 1
        while product < run and new:
            product *= new.pop(0)
        if product != run:
            return False
    return not new
