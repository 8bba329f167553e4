"""Statistics of batch norms, as a model with random weights needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from opdb.models import LoadedModel


def calibrate_batch_norms(loaded: LoadedModel) -> None:
    """Set batch-norm statistics by one training-mode pass, so that activations stay finite.

    With random weights the default statistics (mean 0, variance 1) let activations grow layer by
    layer until they overflow; what follows would then be measured on infinities.
    """
    norms = [m for m in loaded.module.modules() if isinstance(m, _BatchNorm)]
    norms = [m for m in norms if m.track_running_stats]
    if not norms:
        return
    with _training(norms), torch.no_grad():
        loaded.module(*_widened(loaded.args), **loaded.kwargs)


def _widened(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Repeat a batch of one: the statistics of a single value cannot be taken.

    A batch is a tensor, or a list with one tensor for each image.
    """
    return tuple(map(_twofold, args))


def _twofold(given: Any) -> Any:
    if isinstance(given, list) and len(given) == 1 and _has_values(given[0]) and len(given[0]) > 1:
        return [given[0], torch.randn_like(given[0])]
    if _has_values(given) and len(given) == 1:
        return torch.cat([given, torch.randn_like(given)])
    return given


def _has_values(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.is_floating_point() and given.dim() > 1


@contextmanager
def _training(norms: list[_BatchNorm]) -> Iterator[None]:
    """Let batch norms take over the statistics of one pass, then put their state back."""
    before = [(m, m.training, m.momentum) for m in norms]
    try:
        for m in norms:
            m.train()
            m.momentum = 1.0
        yield
    finally:
        for m, training, momentum in before:
            m.train(training)
            m.momentum = momentum
