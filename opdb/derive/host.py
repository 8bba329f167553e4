"""Whether a board's host is settled: host times of calls at one moment against another. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from opdb.derive.costs import HELD_UP
from opdb.derive.quiet import quiet_time_s
from opdb.records import Call, Form, HostVisit


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
