"""One training step of a model: forward pass, loss, backward pass, optimizer step."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from opdb.models import LoadedModel, ModelRequest
from opdb.models.loss import Loss
from opdb.operators import dtype_of, make_optimizer


class TrainingStep:
    """A training step that runs again and again when it is called, and returns its loss.

    Gradients are let go of after the step, as `zero_grad` does by default. It trains on the model's
    example inputs and on random targets.
    """

    def __init__(self, loaded: LoadedModel, request: ModelRequest) -> None:
        self._module = loaded.module
        self._args, self._kwargs = loaded.args, loaded.kwargs
        self._batches = request.accumulation
        self._autocast = request.autocast
        self._device = next(loaded.module.parameters()).device.type
        self._optimizer = make_optimizer(request.optimizer, loaded.module.parameters())
        self._loss: Loss | None = None

    def __call__(self) -> Tensor:
        """Run one step; the loss returned is that of its last batch.

        A step that fails leaves no gradients: those of one that was being captured hold nothing.
        """
        try:
            for _ in range(self._batches):
                loss = self.backward(self.forward())
            self.update()
        except RuntimeError:
            self._optimizer.zero_grad()
            raise
        return loss

    def forward(self) -> Tensor:
        """Run the forward pass of one batch and return its loss."""
        with self._casting():
            outputs: Any = self._module(*self._args, **self._kwargs)
            self._loss = self._loss or Loss.of(outputs)
            loss = self._loss(outputs)
        return loss / self._batches if self._batches > 1 else loss

    @property
    def classes(self) -> int:
        """The number of the model's classes, once it has run; 0 where it has its own loss."""
        return 0 if self._loss is None else self._loss.classes

    def feed(self, images: Tensor, classes: Tensor) -> None:
        """Train the next batches on these images and classes."""
        self._args = (images,)
        self._loss = Loss(classes, self.classes)

    def backward(self, loss: Tensor) -> Tensor:
        """Run the backward pass of a loss and return the loss without its graph."""
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        """Make the optimizer's step and let go of the gradients."""
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _casting(self) -> AbstractContextManager[Any]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._device, dtype=dtype_of(self._autocast))
