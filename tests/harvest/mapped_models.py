"""Models that run torch.vmap, hold sparse tensors, or were exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, randn, vmap

Built = tuple[nn.Module, tuple[Tensor, ...]]


class Applied(nn.Module):
    """Computes by a function of itself and its inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, *given: Tensor) -> Any:
        return self.function(self, *given)


def linear() -> Built:
    return Applied(lambda s, x: vmap(s.part)(x), part=nn.Linear(8, 4)), (randn(3, 2, 8),)


def by_keyword() -> Built:
    part = nn.Linear(8, 4)
    return Applied(lambda s, x: vmap(lambda row: s.part(input=row))(x), part=part), (
        randn(3, 2, 8),
    )


def nested() -> Built:
    return Applied(lambda s, x: vmap(vmap(s.part))(x), part=nn.Linear(8, 4)), (randn(5, 3, 2, 8),)


def along_another() -> Built:
    part = nn.Linear(8, 4)
    return Applied(lambda s, x: vmap(s.part, in_dims=1, out_dims=1)(x), part=part), (
        randn(2, 3, 8),
    )


def matvec() -> Built:
    return Applied(lambda s, x: vmap(lambda v: s.w @ v)(x), w=randn(4, 8)), (randn(2, 8),)


def ensemble() -> Built:
    def together(s: Any, x: Tensor) -> Tensor:
        weights, buffers = torch.func.stack_module_state(list(s.part))

        def one(w: Any, b: Any, x: Tensor) -> Any:
            return torch.func.functional_call(s.part[0], (w, b), (x,))

        made: Tensor = vmap(one, in_dims=(0, 0, None))(weights, buffers, x)
        return made

    return Applied(together, part=nn.ModuleList(nn.Linear(8, 4) for _ in range(3))), (randn(2, 8),)


def convolution() -> Built:
    part = nn.Conv2d(3, 8, 3, padding=1)
    return Applied(lambda s, x: vmap(s.part)(x), part=part), (randn(5, 2, 3, 9, 9),)


def weights_apart() -> Built:
    convolved = nn.functional.conv2d
    applied = Applied(lambda s, x: vmap(lambda w: convolved(x, w))(s.w), w=randn(4, 8, 3, 3, 3))
    return applied, (randn(2, 3, 9, 9),)


def norm() -> Built:
    return Applied(lambda s, x: vmap(s.part)(x), part=nn.LayerNorm(8)), (randn(5, 2, 8),)


def drawn_apart() -> Built:
    def noisy(row: Tensor) -> Tensor:
        return row + torch.randn(8, device=row.device)

    return Applied(lambda s, x: vmap(noisy, randomness="different")(x)), (randn(5, 8),)


def drawn_once() -> Built:
    def noisy(row: Tensor) -> Tensor:
        return row + torch.randn(8, device=row.device)

    return Applied(lambda s, x: vmap(noisy, randomness="same")(x)), (randn(5, 8),)


def dropped() -> Built:
    drop = vmap(lambda row: nn.functional.dropout(row, 0.5), randomness="different")
    return Applied(lambda s, x: drop(x)), (randn(5, 2, 8),)


def jacobian() -> Built:
    return Applied(lambda s, x: torch.func.jacrev(s.part)(x), part=nn.Linear(8, 4)), (randn(2, 8),)


class Sparse(nn.Module):
    """Multiplies what a linear layer gives by a sparse matrix that it holds."""

    def __init__(self, matrix: Tensor, *, used: bool = True, learned: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.used = used
        if learned:
            self.matrix = nn.Parameter(matrix)
        else:
            self.register_buffer("matrix", matrix)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear(x)
        return torch.sparse.mm(self.matrix, made) if self.used else made


def sparse_buffer() -> Built:
    return Sparse(torch.eye(50).to_sparse()), (randn(50, 8),)


def sparse_parameter() -> Built:
    return Sparse(torch.eye(50).to_sparse(), learned=True), (randn(50, 8),)


def sparse_rows() -> Built:
    return Sparse(torch.eye(50).to_sparse_csr()), (randn(50, 8),)


def sparse_blocks() -> Built:
    return Sparse(torch.eye(50).to_sparse_bsr((5, 5))), (randn(50, 8),)


def sparse_unused() -> Built:
    return Sparse(torch.eye(50).to_sparse(), used=False), (randn(50, 8),)


def sparse_input() -> Built:
    part = nn.Linear(8, 4)
    return Applied(lambda s, a, x: torch.sparse.mm(a, s.part(x)), part=part), (
        torch.eye(50).to_sparse(),
        randn(50, 8),
    )


def sparse_input_of_rows() -> Built:
    part = nn.Linear(8, 4)
    return Applied(lambda s, a, x: torch.sparse.mm(a, s.part(x)), part=part), (
        torch.eye(50).to_sparse_csr(),
        randn(50, 8),
    )


def _exported(plain: nn.Module, *given: Tensor) -> Built:
    return torch.export.export(plain.eval(), given).module(), given


def exported() -> Built:
    return _exported(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), randn(2, 8))


def exported_within() -> Built:
    module, given = exported()
    return nn.Sequential(module, nn.Dropout(0.5)), given


def exported_decomposed() -> Built:
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 5))
    given = (randn(2, 3, 5, 5),)
    return torch.export.export(plain.eval(), given).run_decompositions().module(), given
