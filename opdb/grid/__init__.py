"""Grids: one operator and ranges of all that it is called with, benched without any model."""

from __future__ import annotations

from opdb.grid.calls import MOST, Dropped, Expansion, expand, steps
from opdb.grid.file import Grid, load_grids

__all__ = ["MOST", "Dropped", "Expansion", "Grid", "expand", "load_grids", "steps"]
