"""How long a sequence of calls takes, issued eagerly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One call: device time and host time in seconds, and whether it waits for the device."""

    device_s: float
    host_s: float
    synchronises: bool = False


def eager_time_s(steps: Iterable[Step]) -> float:
    """Return the steady time of an eager pass, from the host's queue and the device's.

    H_i = H_{i-1} + h_i and F_i = max(H_i, F_{i-1}) + g_i, where g is the device's time of an
    eager call, the gaps between kernels included; a call that synchronises sets H_i = F_i. A model
    that is called again and again settles at the increment of one pass, which without
    synchronising calls is max(Σ h, Σ g).
    """
    sequence = list(steps)
    synchronising = [place for place, step in enumerate(sequence) if step.synchronises]
    if not synchronising:
        return max(sum(s.host_s for s in sequence), sum(s.device_s for s in sequence))
    # Behind such a call neither has anything left to do: from there to there again is a pass.
    behind = synchronising[-1] + 1
    host_s = device_s = 0.0
    for step in (*sequence[behind:], *sequence[:behind]):
        host_s += step.host_s
        if step.device_s:
            device_s = max(host_s, device_s) + step.device_s
        if step.synchronises:
            host_s = max(host_s, device_s)
    return host_s


@dataclass(frozen=True)
class Span:
    """When one call is issued by the host, and when the device runs it (seconds).

    A call without device time has a device span of no length.
    """

    host_start_s: float
    host_end_s: float
    device_start_s: float
    device_end_s: float


@dataclass(frozen=True)
class SteadyPass:
    """One of many equal eager passes: a span for each call, and the pass on the device.

    The host's first call begins at 0. The device's pass lasts from `start_s` to `end_s`, which is
    the time of a pass, gaps in which it waits for the host included.
    """

    spans: tuple[Span, ...]
    start_s: float
    end_s: float


def steady_pass(steps: Iterable[Step]) -> SteadyPass:
    """Return the pass whose time is `eager_time_s`, call by call, none run before it is issued.

    A device that never waits within a pass begins as soon as it can run through without waiting.
    Otherwise the pass before keeps it busy for as long as it lags behind the host at the end.
    """
    sequence = list(steps)
    waits = any(step.synchronises for step in sequence)
    spans, host_s, device_s = _played(sequence, 0.0)
    time_s = host_s if waits else max(host_s, sum(step.device_s for step in sequence))
    start_s = max(device_s - time_s, 0.0)
    if start_s:
        spans, host_s, _ = _played(sequence, start_s)
    return SteadyPass(tuple(spans), start_s, start_s + (host_s if waits else time_s))


def _played(sequence: Sequence[Step], before_s: float) -> tuple[list[Span], float, float]:
    """Play a pass; return its spans and when host and device are done with it.

    The device is busy with something else until `before_s`.
    """
    host_s, device_s = 0.0, before_s
    spans = []
    for step in sequence:
        issued_s = host_s
        host_s = host_end_s = host_s + step.host_s
        start_s = max(host_s, device_s)
        if step.device_s:
            device_s = start_s + step.device_s
        if step.synchronises:
            host_s = max(host_s, device_s)
        spans.append(Span(issued_s, host_end_s, start_s, start_s + step.device_s))
    return spans, host_s, device_s
