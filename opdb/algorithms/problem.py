"""One two-dimensional convolution as numbers: what a plan is made for, and kept by. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from opdb.errors import RefusedError

Pair: TypeAlias = tuple[int, ...]
Four: TypeAlias = tuple[int, ...]
"""Shapes and steps: tuples of two or four numbers, which cuDNN itself checks."""


@dataclass(frozen=True)
class Convolution:
    """A convolution's shapes and steps.

    `input` is (images, channels, height, width), `weight` (channels out, channels in of a group,
    height, width), whatever the layout in memory. `tf32` says whether float32 may be rounded to
    TF32 inside, which the other types ignore.
    """

    input: Four
    weight: Four
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    dtype: str
    channels_last: bool
    tf32: bool

    @property
    def output(self) -> Four:
        """The output's shape, an axis being floor((n + 2 p - d (k - 1) - 1) / s) + 1."""
        images, _, *sizes = self.input
        high, wide = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                sizes, self.padding, self.dilation, self.weight[2:], self.stride, strict=True
            )
        )
        return images, self.weight[0], high, wide

    def check(self) -> None:
        """Check that this is a convolution at all.

        Raises:
            RefusedError: channels and groups do not fit, or there is no output.
        """
        channels, groups = self.input[1], self.groups
        if groups < 1 or self.weight[1] * groups != channels or self.weight[0] % groups:
            raise RefusedError(
                f"a convolution of {channels} channels with weights {list(self.weight)} in "
                f"{groups} groups: they do not fit"
            )
        if min(self.input) < 1 or min(self.output) < 1:
            raise RefusedError(
                f"a convolution of {list(self.input)} with weights {list(self.weight)} has no "
                f"output: {list(self.output)}"
            )


def padding_of(padding: str | tuple[int, ...], kernel: Pair, dilation: Pair) -> Pair:
    """Return the padding at each side of both axes, spelled as torch does.

    Raises:
        RefusedError: `same` asks for more on one side than on the other.
    """
    if padding == "valid":
        return 0, 0
    if padding != "same":
        high, wide = (int(p) for p in padding)
        return high, wide
    around = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(total % 2 for total in around):
        raise RefusedError(
            f"padding 'same' of a {kernel[0]}x{kernel[1]} kernel with dilation {dilation[0]}, "
            f"{dilation[1]} is not the same on both sides; cuDNN and opdb's direct "
            "convolution pad both sides alike"
        )
    return around[0] // 2, around[1] // 2
