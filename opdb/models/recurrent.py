"""Recurrent layers on meta: one call, where PyTorch spells out every step of the sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import _VF, Tensor
from torch.overrides import has_torch_function

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
    # a packed sequence has its batch sizes for a state, and a state for weights
    packed = not isinstance(weights, list)
    if packed or not input.is_meta or torch.is_grad_enabled() or has_torch_function((input,)):
        return original(input, state, weights, *rest)
    batch_first = rest[-1]
    states = list(state) if isinstance(state, tuple) else [state]
    _bias, layers, *_others = rest
    width = states[0].shape[0] // layers * states[0].shape[-1]
    length, batch = input.shape[:2] if not batch_first else (input.shape[1], input.shape[0])
    output = input.new_empty((length, batch, width))
    made = [each.new_empty(each.shape) for each in states]
    return (output.transpose(0, 1) if batch_first else output, *made)
