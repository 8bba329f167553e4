"""What a pass of a built model needs besides: statistics of batch norms, and a loss to train on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from opdb.errors import InputError
from opdb.models import LoadedModel
from opdb.models.inputs import tensors


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


@dataclass(frozen=True)
class Loss:
    """The loss that a training step minimises, as a function of the model's outputs.

    A model's own loss is any scalar that it returns in train mode. Any other model is a
    classifier: the classes are dimension 1 of its first output, the last one of a sequence's
    (three dimensions). Outputs of the same shape as the first, which are auxiliary classifiers,
    have the same `targets`.
    """

    targets: Tensor | None
    classes: int

    @classmethod
    def of(cls, outputs: Any) -> Loss:
        """Return the loss that fits a model's outputs; targets are drawn at random.

        Raises:
            InputError: no output can be trained on.
        """
        if _own(outputs):
            return cls(None, 0)
        logits = _logits(outputs)
        if not logits:
            raise InputError(
                "cannot be trained: it returns neither a loss nor class scores that depend on its "
                "parameters (give a callable whose module returns its loss)"
            )
        shape = logits[0].shape
        classes = int(shape[-1] if len(shape) == 3 else shape[1])
        wanted = (shape[0] * shape[1],) if len(shape) == 3 else (shape[0], *shape[2:])
        targets = torch.randint(0, classes, wanted, device=logits[0].device)
        return cls(targets, classes)

    def __call__(self, outputs: Any) -> Tensor:
        """Return the loss of a model's outputs, a scalar."""
        if self.targets is None:
            own, *others = _own(outputs)
            return sum(others, own)
        terms = []
        for logits in _logits(outputs):
            flat = logits.flatten(0, 1) if logits.dim() == 3 else logits
            terms.append(functional.cross_entropy(flat, self.targets))
        return sum(terms[1:], terms[0])


def _own(outputs: Any) -> list[Tensor]:
    """Return the losses that a model computed itself: `loss`, or the scalars it returns."""
    if isinstance(outputs, Mapping) and isinstance(outputs.get("loss"), Tensor):
        return [outputs["loss"]]
    return [t for t in tensors(outputs) if t.dim() == 0 and t.requires_grad]


def _logits(outputs: Any) -> list[Tensor]:
    """Return the outputs to be trained: the first that can be, and others of its shape."""
    found = [t for t in tensors(outputs) if t.dim() > 1 and t.requires_grad]
    return [t for t in found if t.shape == found[0].shape]
