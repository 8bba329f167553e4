"""Quantities and memory as plain data, under the names that every command uses, in SI units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opdb.records import Json, Quantity

if TYPE_CHECKING:
    from opdb.memory import Memory


def quantity_document(quantity: Quantity | None) -> Json:
    """Return a quantity with its 95 % interval as JSON; None where there is none."""
    if quantity is None:
        return None
    return {"mean": quantity.mean, "interval": [quantity.low, quantity.high]}


def memory_document(memory: Memory) -> Json:
    """Return a workload's memory as JSON; of bounds, `needed_bytes` is the lower one."""
    seen = memory.seen
    return {
        "weight_bytes": seen.weight_bytes,
        "input_bytes": seen.input_bytes,
        "activation_bytes": seen.activation_bytes,
        "gradient_bytes": seen.gradient_bytes,
        "optimizer_bytes": memory.optimizer.state_bytes,
        "needed_bytes": memory.needed_bytes,
        "at_most_bytes": memory.at_most_bytes,
        "device_bytes": memory.device_bytes,
        "largest_batch": memory.largest_batch,
        "bounds": memory.reason,
    }
