"""Watch torch functions as a model makes them, describing each before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from opdb.operators import TensorNotes, describe_function, is_metadata
from opdb.records import Configuration, Json


class Weights(TensorNotes):
    """Know these tensors as weights, and the value classes of those."""

    def __init__(self, weights: list[Tensor], classes: dict[int, Json] | None = None) -> None:
        self.weights = {id(w) for w in weights}
        self.classes = classes or {}

    def values(self, tensor: Tensor) -> Json | None:
        return self.classes.get(id(tensor))

    def is_weight(self, tensor: Tensor) -> bool:
        return id(tensor) in self.weights or isinstance(tensor, nn.Parameter)


class Watcher(TorchFunctionMode):
    """Keep the configuration of each outermost torch function called."""

    def __init__(self, notes: TensorNotes) -> None:
        super().__init__()
        self.notes = notes
        self.seen: list[Configuration] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if not is_metadata(func):
            self.seen.append(describe_function(func, args, kwargs or {}, self.notes))
        return func(*args, **(kwargs or {}))


def watch(call: Callable[[], Any], notes: TensorNotes | None = None) -> list[Configuration]:
    """Run a call and return the configurations of the functions it called."""
    watcher = Watcher(notes or TensorNotes())
    with torch.no_grad(), watcher:
        call()
    return watcher.seen
