"""The loss that a model is trained on: its own where it computes one, else cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from opdb.errors import InputError
from opdb.models.inputs import tensors


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
