"""Hosts held against each other: one at two moments, and one against another. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opdb.derive.costs import HELD_UP
from opdb.derive.quiet import CallForm, quiet_time_s
from opdb.records import Call, Form, HostVisit

LEAST_SHARE = 0.5
"""The share of the time of all calls that those which two hosts have in common take at least."""


@dataclass(frozen=True)
class HostFactor:
    """How many times as long as another host one takes to issue the same calls.

    `calls` counts the distinct calls that were compared, which take `share` of the time of all.
    """

    factor: float
    calls: int
    share: float


def host_factor(
    here_s: Mapping[CallForm, float],
    there_s: Mapping[CallForm, float],
    counts: Mapping[CallForm, int],
) -> HostFactor | None:
    """Return Σ n · here / Σ n · there over the calls whose quiet times on both hosts are known.

    Times are in seconds; n (`counts`) is how often models make a call, so that the factor is that
    of the host's part of their passes. None where these calls take less than `LEAST_SHARE` of the
    time that all calls of `here_s` take.
    """
    common = [call for call in here_s if there_s.get(call)]
    all_s = math.fsum(counts[call] * time_s for call, time_s in here_s.items())
    both_s = math.fsum(counts[call] * here_s[call] for call in common)
    if not both_s or both_s < LEAST_SHARE * all_s:
        return None
    other_s = math.fsum(counts[call] * there_s[call] for call in common)
    return HostFactor(both_s / other_s, len(common), both_s / all_s)


def is_settled(visits: Iterable[HostVisit], calls: Iterable[Call]) -> bool:
    """Return whether the two moments at which the host was fastest in these calls agree.

    Other work can only slow a host down: where the two fastest agree, neither was slowed down.
    """
    seen = _by_call(visits)
    slower = []
    for call in calls:
        times_s = sorted(quiet_time_s(visit.times_s) for visit in seen[_place(call)])
        if len(times_s) > 1 and times_s[0]:
            slower.append(times_s[1] / times_s[0])
    return not slower or statistics.median(slower) <= 1 + HELD_UP


def _by_call(visits: Iterable[HostVisit]) -> dict[tuple[str, Form], list[HostVisit]]:
    found: dict[tuple[str, Form], list[HostVisit]] = defaultdict(list)
    for visit in visits:
        found[visit.configuration, visit.form].append(visit)
    return found


def _place(call: Call) -> tuple[str, Form]:
    return call.configuration.key, call.form
