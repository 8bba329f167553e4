"""Models of a user's own, each written as what its forward computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Built = tuple[Any, ...]
Builder = Callable[[], Built]


def model(*inputs: Any, **parts: Callable[[], Any]) -> Callable[[Callable[..., Any]], Builder]:
    """Make a forward the builder of a module and its inputs, as the python source takes it.

    An input is a shape, of random numbers, or what makes it. A part is what makes it: a module, a
    parameter, a tensor to be a buffer, or any other value.
    """

    def of(forward: Callable[..., Any]) -> Builder:
        kind = type(forward.__name__.title().replace("_", ""), (nn.Module,), {"forward": forward})

        def build() -> Built:
            module: Any = kind()
            for name, make in parts.items():
                part = make()
                if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                    module.register_buffer(name, part)
                else:
                    setattr(module, name, part)
            given = (each() if callable(each) else torch.randn(each) for each in inputs)
            return module, tuple(given)

        return build

    return of
