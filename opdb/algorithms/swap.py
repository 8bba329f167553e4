"""A model's convolutions run by a named algorithm, for a while.

Each `nn.Conv2d` of the model gets another `_conv_forward`, which is taken away again at the end:
nothing else of the model changes. A layer that the algorithm cannot run keeps torch's own, and that
is written down, never done in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from opdb.algorithms.convolution import ForcedCall, run
from opdb.algorithms.names import DEFAULT, Algorithm
from opdb.algorithms.plans import forget_plans
from opdb.algorithms.problem import padding_of
from opdb.errors import RefusedError

OWN_FORWARD = "its class computes the convolution in a way of its own"


@dataclass
class Layer:
    """One convolution layer in a model whose convolutions are forced.

    `ran` names what runs, by the shape of the input: an algorithm, `default` where it was refused.
    `calls` counts the calls so far.
    """

    path: str
    module: nn.Conv2d
    algorithm: str
    ran: dict[tuple[int, ...], str] = field(default_factory=dict)
    refusals: dict[tuple[int, ...], RefusedError] = field(default_factory=dict)
    calls: int = 0

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Take the place of the module's `_conv_forward`."""
        self.calls += 1
        shape = tuple(input.shape)
        if shape in self.refusals:
            return self._own(input, weight, bias)
        try:
            call = self._call(input, weight, bias)
            output = run(*call)
        except RefusedError as error:
            self.refusals[shape], self.ran[shape] = error, DEFAULT
            return self._own(input, weight, bias)
        if shape not in self.ran:
            self.ran[shape] = call.ran()
        return output if input.dim() == 4 else output.squeeze(0)

    def _own(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output: Tensor = nn.Conv2d._conv_forward(self.module, input, weight, bias)
        return output

    def _call(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> ForcedCall:
        module = self.module
        padding = padding_of(module.padding, _pair(module.kernel_size), _pair(module.dilation))
        if module.padding_mode != "zeros":
            around = module._reversed_padding_repeated_twice
            input = nn.functional.pad(input, around, mode=module.padding_mode)
            padding = (0, 0)
        images = input if input.dim() == 4 else input.unsqueeze(0)
        return ForcedCall(
            images,
            weight,
            bias,
            module.stride,
            padding,
            module.dilation,
            module.groups,
            self.algorithm,
        )


@dataclass(frozen=True)
class Swap:
    """The convolution layers of a model that were swapped, by path, and those left, with why."""

    algorithm: Algorithm
    layers: dict[str, Layer]
    left: dict[str, str]

    @property
    def forced(self) -> list[str]:
        """The layers (paths) that run by the algorithm, in all the shapes in which they ran."""
        return [path for path, layer in self.layers.items() if layer.ran and not layer.refusals]

    @property
    def refused(self) -> dict[str, str]:
        """The layers (paths) that do not, and what was said of each."""
        said = {
            path: str(next(iter(layer.refusals.values())))
            for path, layer in self.layers.items()
            if layer.refusals
        }
        return said | self.left


def _pair(value: tuple[int, ...]) -> tuple[int, int]:
    high, wide = value
    return high, wide


def _is_plain(module: nn.Conv2d) -> bool:
    """Whether a module computes as `nn.Conv2d` does; a subclass may do something else."""
    kind = type(module)
    plain = nn.Conv2d
    return kind.forward is plain.forward and kind._conv_forward is plain._conv_forward


@contextmanager
def swapped(model: nn.Module, algorithm: Algorithm) -> Iterator[Swap]:
    """Run a model's convolutions by an algorithm inside the block; afterwards all is as before.

    The first pass probes every layer. `default` swaps nothing. Memory that plans took is given back
    at the end, so no graph captured inside may be replayed outside.
    """
    layers: dict[str, Layer] = {}
    left: dict[str, str] = {}
    try:
        for path, module in model.named_modules():
            if not isinstance(module, nn.Conv2d) or not algorithm.is_forced:
                continue
            if "_conv_forward" in module.__dict__ or not _is_plain(module):
                left[path] = OWN_FORWARD
                continue
            layers[path] = Layer(path, module, algorithm.name)
            module._conv_forward = layers[path]  # type: ignore[method-assign]
        yield Swap(algorithm, layers, left)
    finally:
        for layer in layers.values():
            del layer.module._conv_forward
        if layers and torch.cuda.is_available():
            forget_plans()
