"""What one pass of a workload touches, and whether its weights stay in the L2 until the next.

Weights are read once a pass. Where all that a pass touches fits into the part of the L2 that keeps
data from one pass to the next, they are found there again, hot; else each comes from memory, cold.
"""

from __future__ import annotations

from functools import cache

from opdb.kinds import KINDS, get_kind
from opdb.records import Configuration, Device, Workload

# Share of the L2 that keeps data from pass to pass: one of two halves, each of which keeps its own
# copy, keeps half. Reading kernels see more, models do not (docs/measuring.md).
RESIDENT_SHARE = 0.5

# Up to this share of the L2 a part of the weights may be found there (docs/measuring.md).
PARTLY_RESIDENT_SHARE = 0.75


def weight_bytes(configuration: Configuration) -> int:
    return _traffic(configuration)[1] if configuration.kind in KINDS else 0


def bytes_moved(configuration: Configuration) -> int:
    return _traffic(configuration)[0]


def _activation_bytes(configuration: Configuration) -> int:
    if configuration.kind not in KINDS:
        return 0
    moved, weights = _traffic(configuration)
    return moved - weights


@cache
def _traffic(configuration: Configuration) -> tuple[int, int]:
    return get_kind(configuration.kind).traffic(configuration)


def touched_bytes(workload: Workload) -> int:
    """Return the bytes that one pass touches.

    Each call's weights once, and the inputs and outputs of the largest call: the memory of
    activations is used over and over. A training step keeps those of all calls.
    """
    counts = workload.occurrences()
    weights = sum(count * weight_bytes(c) for c, count in counts.items())
    if workload.phase == "training":
        kept = (count * _activation_bytes(c) for c, count in counts.items())
        return weights + sum(kept)
    return weights + max((_activation_bytes(c) for c in counts), default=0)


def resident_bytes(device: Device) -> float | None:
    """Return how much the device's L2 keeps from one pass to the next; None where it is unknown."""
    return None if device.l2_bytes is None else RESIDENT_SHARE * device.l2_bytes


def may_be_kept_in_part(touched: int, resident: float | None) -> bool:
    """Whether the L2 may keep a part of what a pass touches, which is more than it keeps surely."""
    if resident is None:
        return False
    return resident < touched <= resident * PARTLY_RESIDENT_SHARE / RESIDENT_SHARE


def is_kept(touched: int, resident: float | None) -> bool:
    """Whether the L2, of which `resident` bytes keep their data, keeps what a pass touches."""
    return resident is not None and touched <= resident
