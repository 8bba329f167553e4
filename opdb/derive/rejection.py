"""Reasons to reject a visit: the one list of flags for which it is made again.

A rejected visit is kept with its flags; it does not count where a better one exists.
"""

from __future__ import annotations

from collections.abc import Iterable

from opdb.records import Device, Role

REJECTED = "rejected: "
"""The beginning of the flag of a rejected visit; the words of the reason follow."""

FOREIGN_PROCESS = "another process is on the board"
MOVING_CLOCK = "the clock moved"
WAITED = "the device waited for the host"
"""The beginnings of flags that are set here and in the bench."""

REASONS = {
    "clock held back: hardware slowdown": "the hardware held the clock back",
    "clock held back: hardware power brake": "the hardware's power brake held the clock back",
    "clock held back: hardware thermal slowdown": "heat held the clock back",
    "clock held back: software thermal slowdown": "heat held the clock back",
    FOREIGN_PROCESS: "another process was on the board",
    "clock below its highest": "the clock was low, and not for the power limit",
    MOVING_CLOCK: "the clock moved during the visit",
    WAITED: "the host was too slow to keep the device busy",
    "time: median and 3σ-mean differ": "median and mean of its times are too far apart",
    "power: median and 3σ-mean differ": "median and mean of its power are too far apart",
}
"""The beginning of each flag that rejects a visit, with the reason in words.

The power limit is not among them: visits that it slows down have a role of their own, `limited`."""

ON_A_PROCESSOR = (FOREIGN_PROCESS,)
"""On a CPU other work always runs beside, and times always have a tail: that stays a flag."""


COUNTED: tuple[Role, ...] = ("measurement", "duplicate")
"""The roles in which a visit can be rejected."""


def rejection(flags: Iterable[str], device: Device) -> str | None:
    """Return in words why a visit with these flags is worthless; None where it is not."""
    prefixes = tuple(REASONS) if device.type == "cuda" else ON_A_PROCESSOR
    for flag in flags:
        for prefix in prefixes:
            if flag.startswith(prefix):
                return REASONS[prefix]
    return None
