"""Entering a compiled graph: the guards on a model's modules and weights, its inputs and outputs.

A stand-in is entered, of as many weights as the model's graph: blocks of a norm, a linear layer,
an activation and a dropout. What a model's own code makes dynamo guard beyond that is not known.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from opdb.compile import inductor
from opdb.errors import UnsupportedError
from opdb.operators.call import BuiltCall
from opdb.records import Configuration

WEIGHTS_A_BLOCK = 4
MOST_WEIGHTS = 10_000
"""Compiling a stand-in takes some 10 ms a weight; a stranger might ask for any number."""


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(2), nn.Linear(2, 2)
        self.activation, self.dropout = nn.GELU(), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.dropout(self.activation(self.linear(self.norm(x))))
        return y


class _Blocks(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block() for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x + 1


def build_entry(configuration: Configuration, device: str) -> BuiltCall:
    """Build the call that enters a compiled graph of a number of weights, and runs nothing in it.

    Raises:
        UnsupportedError: it says no such number.
    """
    weights = configuration.parameters.get("weights")
    if not isinstance(weights, int) or not 0 <= weights <= MOST_WEIGHTS:
        raise UnsupportedError(f"a graph of {weights!r} weights cannot be entered")
    given = torch.ones(2, 2, device=device)
    module = _Blocks(round(weights / WEIGHTS_A_BLOCK)).to(device).eval()
    module.forward = _own(_Blocks.forward).__get__(module)  # type: ignore[method-assign]
    run: Any = module if given.is_meta else inductor.entered(module, given)
    return BuiltCall(configuration, "function", [given], [], (), None, run, (given,), {}, device)


def _own(function: Any) -> Any:
    """Return a function with code of its own: of each code, dynamo compiles a few variants only."""
    return FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
