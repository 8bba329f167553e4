"""Convolutions of many sorts, small: what an algorithm is held against torch with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from opdb.algorithms.convolution import ForcedCall


@dataclass(frozen=True)
class Case:
    """One convolution, without its numbers."""

    name: str
    input: tuple[int, ...] = (2, 6, 9, 8)
    channels_out: int = 8
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    bias: bool = True
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def call(self, algorithm: str, device: str = "cpu") -> ForcedCall:
        generator = torch.Generator().manual_seed(0)
        weight = (self.channels_out, self.input[1] // self.groups, *self.kernel)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format

        def made(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(device, self.dtype)

        return ForcedCall(
            made(*self.input).contiguous(memory_format=layout),
            made(*weight).contiguous(memory_format=layout),
            made(self.channels_out) if self.bias else None,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            algorithm,
        )


CASES = (
    Case("plain"),
    Case("without bias", bias=False),
    Case("one by one", kernel=(1, 1), padding=(0, 0)),
    Case("stride and no padding", stride=(2, 3), padding=(0, 0)),
    Case("padding wider than the kernel", padding=(4, 2)),
    Case("oblong kernel", kernel=(1, 5), padding=(0, 2)),
    Case("dilation", dilation=(2, 1), padding=(2, 1)),
    Case("groups", groups=2),
    Case("depthwise", groups=6, channels_out=12),
    Case("more channels than a block", input=(1, 4, 5, 5), channels_out=70),
    Case("channels last", channels_last=True),
    Case("channels last, groups", channels_last=True, groups=2, stride=(2, 2)),
    Case("float16", dtype=torch.float16),
    Case("bfloat16", dtype=torch.bfloat16, channels_last=True),
)

EPSILONS = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Half the distance between numbers near 1, about; float32's with room for another order."""


def error(output: Tensor, call: ForcedCall) -> float:
    """Return the largest error against float64, as a share of the largest output."""
    bias = None if call.bias is None else call.bias.double()
    wanted = functional.conv2d(call.input.double(), call.weight.double(), bias, *call[3:-1])
    return float((output.double() - wanted).abs().max() / wanted.abs().max())
