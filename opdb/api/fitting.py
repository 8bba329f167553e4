"""How a workload's memory is shown: one line."""

from __future__ import annotations

from opdb.memory import Memory
from opdb.units import show


def memory_line(memory: Memory) -> str:
    """Return in one line what a workload needs, what the device has, and what fits.

    It begins with "does not fit", or "may not fit", where that is so.
    """
    has = "of a device whose memory is not known"
    if memory.device_bytes is not None:
        has = f"the device has {_shown(memory.device_bytes)}"
    if memory.reason is not None:
        needs = f"{_shown(memory.needed_bytes)} to {_shown(memory.at_most_bytes)}"
        of = "bounds from its calls" if memory.fits else f"bounds from its calls: {memory.reason}"
    else:
        needs, of = f"about {_shown(memory.needed_bytes)}", _parts(memory)
    said = f"needs {needs}, {has} ({of})"
    if memory.fits is False:
        said = f"does not fit: {said}"
    elif memory.fits is None and memory.device_bytes is not None:
        said = f"may not fit: {said}"
    else:
        said = f"memory: {said}"
    return said + largest(memory.largest_batch)


def _parts(memory: Memory) -> str:
    seen = memory.seen
    parts = {
        "weights": seen.weight_bytes,
        "activations": seen.activation_bytes,
        "gradients": seen.gradient_bytes,
        "optimizer": memory.optimizer.state_bytes,
    }
    return ", ".join(f"{name} {_shown(size)}" for name, size in parts.items() if size)


def largest(batch: int | None) -> str:
    """Return what ends a sentence on memory: the largest batch that fits, if that is known."""
    if batch is None:
        return ""
    return f"; largest batch about {batch:,}" if batch else "; no batch fits"


def _shown(size: int) -> str:
    return show(size, "B", digits=3)
