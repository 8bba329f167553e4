"""How long a sequence of calls takes, issued eagerly or as one graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PASSES = 4
"""Passes played through the two queues until the increment of one pass is steady."""


@dataclass(frozen=True)
class Step:
    """One call: device time and host time in seconds, and whether it waits for the device."""

    device_s: float
    host_s: float
    synchronises: bool = False


def graph_time_s(steps: Iterable[Step]) -> float:
    """Return the time of a pass that was captured as one graph: T = Σ g."""
    return sum(step.device_s for step in steps)


def eager_time_s(steps: Iterable[Step]) -> float:
    """Return the steady time of an eager pass, from the host's queue and the device's.

    H_i = H_{i-1} + h_i and F_i = max(H_i, F_{i-1}) + g_i, where g is the device's time of an
    eager call, the gaps between kernels included; a call that synchronises sets H_i = F_i. A model
    that is called again and again settles at the increment of one pass, which without
    synchronising calls is max(Σ h, Σ g).
    """
    sequence = list(steps)
    host_s = device_s = before_s = after_s = 0.0
    for _ in range(PASSES):
        before_s = after_s
        for step in sequence:
            host_s += step.host_s
            if step.device_s:
                device_s = max(host_s, device_s) + step.device_s
            if step.synchronises:
                host_s = max(host_s, device_s)
        after_s = max(host_s, device_s)
    return after_s - before_s
