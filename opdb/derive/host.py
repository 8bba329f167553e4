"""How evenly a board's host issues calls: what it took at one moment against another. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from opdb.derive.costs import HELD_UP
from opdb.records import Call, Form, HostVisit

FEWEST_CALLS = 8
"""Two moments tell of the host where so many calls were timed at both; fewer tell of themselves."""


def moment_ratios(visits: Iterable[HostVisit]) -> tuple[float, ...]:
    """Return how many times as long calls took the host at each moment as at the moment before.

    A moment is when a workload's calls were timed among each other, over a second or more. Of two
    moments it is the median over the calls that were timed at both, one after the other.
    """
    seen = _by_call(sorted(visits, key=lambda visit: visit.started_at))
    between: dict[tuple[str, str], list[float]] = defaultdict(list)
    for of_one_call in seen.values():
        for earlier, later in pairwise(of_one_call):
            before_s, after_s = statistics.median(earlier.times_s), statistics.median(later.times_s)
            if before_s and after_s:
                between[earlier.started_at, later.started_at].append(after_s / before_s)
    return tuple(statistics.median(r) for r in between.values() if len(r) >= FEWEST_CALLS)


def is_settled(visits: Iterable[HostVisit], calls: Iterable[Call]) -> bool:
    """Return whether the two moments at which the host was fastest in these calls agree.

    Other work can only hold a host up: where the fastest two are as fast, neither was.
    """
    seen = _by_call(visits)
    slower = []
    for call in calls:
        times_s = sorted(statistics.median(visit.times_s) for visit in seen[_place(call)])
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
