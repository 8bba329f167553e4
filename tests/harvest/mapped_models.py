"""Models that run torch.vmap, hold sparse tensors, or were exported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn, randn, vmap

from tests.own import model

LINEAR = {"part": lambda: nn.Linear(8, 4)}

linear = model((3, 2, 8), **LINEAR)(lambda m, x: vmap(m.part)(x))
by_keyword = model((3, 2, 8), **LINEAR)(lambda m, x: vmap(lambda row: m.part(input=row))(x))
nested = model((5, 3, 2, 8), **LINEAR)(lambda m, x: vmap(vmap(m.part))(x))
along_another = model((2, 3, 8), **LINEAR)(lambda m, x: vmap(m.part, in_dims=1, out_dims=1)(x))
matvec = model((2, 8), w=lambda: nn.Parameter(randn(4, 8)))(lambda m, x: vmap(lambda v: m.w @ v)(x))
convolution = model((5, 2, 3, 9, 9), part=lambda: nn.Conv2d(3, 8, 3, padding=1))(
    lambda m, x: vmap(m.part)(x)
)
weights_apart = model((2, 3, 9, 9), w=lambda: nn.Parameter(randn(4, 8, 3, 3, 3)))(
    lambda m, x: vmap(lambda w: nn.functional.conv2d(x, w))(m.w)
)
norm = model((5, 2, 8), part=lambda: nn.LayerNorm(8))(lambda m, x: vmap(m.part)(x))


@model((2, 8), part=lambda: nn.ModuleList(nn.Linear(8, 4) for _ in range(3)))
def ensemble(m: Any, x: Tensor) -> Any:
    weights, buffers = torch.func.stack_module_state(list(m.part))

    def one(w: Any, b: Any, x: Tensor) -> Any:
        return torch.func.functional_call(m.part[0], (w, b), (x,))

    return vmap(one, in_dims=(0, 0, None))(weights, buffers, x)


def _noisy(row: Tensor) -> Tensor:
    return row + torch.randn(8, device=row.device)


drawn_apart = model((5, 8))(lambda m, x: vmap(_noisy, randomness="different")(x))
drawn_once = model((5, 8))(lambda m, x: vmap(_noisy, randomness="same")(x))


def _multiplies(m: Any, x: Tensor) -> Any:
    """Multiply what a linear layer gives by a sparse matrix that the model holds."""
    return torch.sparse.mm(m.matrix, m.part(x))


sparse_buffer = model((50, 8), **LINEAR, matrix=lambda: torch.eye(50).to_sparse())(_multiplies)
sparse_parameter = model((50, 8), **LINEAR, matrix=lambda: nn.Parameter(torch.eye(50).to_sparse()))(
    _multiplies
)
sparse_rows = model((50, 8), **LINEAR, matrix=lambda: torch.eye(50).to_sparse_csr())(_multiplies)
sparse_blocks = model((50, 8), **LINEAR, matrix=lambda: torch.eye(50).to_sparse_bsr((5, 5)))(
    _multiplies
)
sparse_unused = model((50, 8), **LINEAR, matrix=lambda: torch.eye(50).to_sparse())(
    lambda m, x: m.part(x)
)
sparse_input = model(lambda: torch.eye(50).to_sparse(), (50, 8), **LINEAR)(
    lambda m, a, x: torch.sparse.mm(a, m.part(x))
)
sparse_input_of_rows = model(lambda: torch.eye(50).to_sparse_csr(), (50, 8), **LINEAR)(
    lambda m, a, x: torch.sparse.mm(a, m.part(x))
)
