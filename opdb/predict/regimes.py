"""The regimes in which sums of operators err in different ways: how work is issued × batch size."""

from __future__ import annotations

from typing import Literal, NamedTuple

from opdb.records import CAPTURED_MODE, Mode, Workload

Family = Literal["graph", "eager", "compiled", "training"]
Batch = Literal["1", "2–16", "over 16"]

FAMILIES: tuple[Family, ...] = ("graph", "eager", "compiled", "training")
BATCHES: tuple[Batch, ...] = ("1", "2–16", "over 16")

LARGEST_SMALL_BATCH = 16


class Regime(NamedTuple):
    """How a pass's work is issued, and how large its batch is."""

    family: Family
    batch: Batch


def family_of(workload: Workload, mode: Mode) -> Family:
    """Return how a pass's work is issued; for a training step the phase alone decides."""
    if workload.phase == "training":
        return "training"
    if mode == CAPTURED_MODE:
        return "graph"
    return "eager" if mode == "eager" else "compiled"


def batch_of(batch_size: int) -> Batch:
    """Return the range that a batch size lies in."""
    if batch_size <= 1:
        return "1"
    return "2–16" if batch_size <= LARGEST_SMALL_BATCH else "over 16"


def regime_of(workload: Workload, mode: Mode) -> Regime:
    """Return a pass's regime."""
    return Regime(family_of(workload, mode), batch_of(workload.batch_size))
