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

LEAST_SHARE = 0.8
"""A pass counts where calls that the other host was timed in, too, take this share of its time."""


@dataclass(frozen=True)
class HostFactor:
    """How many times as long as another host one takes to issue the same calls.

    `calls` counts the distinct calls that were compared, `passes` the passes that make them.
    """

    factor: float
    calls: int
    passes: int


def host_factor(
    here_s: Mapping[CallForm, float],
    there_s: Mapping[CallForm, float],
    passes: Iterable[Mapping[CallForm, int]],
) -> HostFactor | None:
    """Return Σ n · here / Σ n · there over the calls whose quiet times on both hosts are known.

    Times are in seconds; n is how often a pass makes a call. Passes of which the other host knows
    less than `LEAST_SHARE` are left out; None where all are.
    """
    totals_s = [0.0, 0.0]
    compared: set[CallForm] = set()
    count = 0
    for calls in passes:
        both = [call for call in calls if call in here_s and there_s.get(call)]
        all_s = math.fsum(n * here_s.get(call, 0.0) for call, n in calls.items())
        both_s = math.fsum(calls[call] * here_s[call] for call in both)
        if both_s and both_s >= LEAST_SHARE * all_s:
            totals_s[0] += both_s
            totals_s[1] += math.fsum(calls[call] * there_s[call] for call in both)
            compared.update(both)
            count += 1
    return HostFactor(totals_s[0] / totals_s[1], len(compared), count) if count else None


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
