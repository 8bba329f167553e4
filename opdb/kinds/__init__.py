"""Kinds of operators: names, arguments, FLOPs, bytes, traits, relevant settings. No torch.

Every quantity is a pure function of a configuration. FLOPs count a multiply-add as 2; bytes are
those that must move at least: each distinct input and weight read once, each output written once.
"""

from __future__ import annotations

from opdb.kinds import (  # noqa: F401  (each module registers its kinds)
    activation,
    attention,
    convolution,
    creation,
    elementwise,
    embedding,
    fused,
    indexing,
    linear,
    loss,
    movement,
    norm,
    optimizer,
    pooling,
    recurrent,
    reduction,
    shape,
    vision,
)
from opdb.kinds.backward import backward_bytes, backward_flops
from opdb.kinds.registry import KINDS, Kind, get_kind, register
from opdb.kinds.view import View, is_spec, item_bytes, numel

__all__ = [
    "KINDS",
    "Kind",
    "View",
    "backward_bytes",
    "backward_flops",
    "get_kind",
    "is_spec",
    "item_bytes",
    "numel",
    "register",
]
