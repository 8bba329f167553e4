"""Kinds of operators: names, arguments, FLOPs, bytes, traits, relevant settings. No torch.

Every quantity is a pure function of a configuration. FLOPs count a multiply-add as 2; bytes are
those that must move at least: each distinct input and weight read once, each output written once.

A kind is declared once, as a `Kind` or through its family (`families.py`, and at the end of each
file): everything that is known of it is there, its torch callables as text. To add an element-wise
function, add its line to `elementwise.py`; `opdb.operators` says how a call finds its kind.
"""

from __future__ import annotations

from opdb.kinds import (  # noqa: F401  (each module registers its kinds)
    elementwise,
    fused,
    indexing,
    movement,
    products,
    reduction,
    vision,
)
from opdb.kinds.registry import KINDS, Kind, get_kind, register
from opdb.kinds.view import View, is_spec, item_bytes, numel

__all__ = ["KINDS", "Kind", "View", "get_kind", "is_spec", "item_bytes", "numel", "register"]
