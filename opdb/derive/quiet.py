"""Quiet time: what calls and passes take while nothing slows the host down. Pure.

On a machine that others share, the host takes 1 to 2.4 times as long from one half second to the
next, so a pass that waits for it has no single time. What repeats is its time in quiet moments. A
block is some rounds of all calls of a workload, or some of its passes, that last as long; blocks
are ranked by their totals. A sum of each call's own lowest times would be too short: not all calls
are at their fastest at once. In quiet times hosts are compared, too.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from opdb.records import Call, Form, HostVisit

QUIET_SHARE = 0.1
"""Share of the blocks that count: those with the lowest totals."""

LEAST_BLOCKS = 50
"""Blocks below which a tenth of them is too few to tell quiet moments from chance."""

BLOCK_S = 0.02
"""A block lasts so long at least, and holds one round or pass at least. The shorter blocks are, the
further below their median the lowest tenth lies, so those of calls and of passes last as long."""

HELD_UP = 0.15
"""Host visits whose median is above the fastest's by more than this share found the host busy."""

_ROUNDING = 1e-9


def quietest(totals_s: Sequence[float]) -> list[int]:
    """Return the places of the lowest tenth of blocks (rounded up) by totals, lowest first."""
    if not totals_s:
        raise ValueError("no block, so none is the quietest")
    count = math.ceil(QUIET_SHARE * len(totals_s) - _ROUNDING)
    return sorted(range(len(totals_s)), key=totals_s.__getitem__)[:count]


def quiet_time_s(blocks_s: Sequence[float]) -> float:
    return statistics.fmean(blocks_s[place] for place in quietest(blocks_s))


def blocks_s(passes_s: Sequence[float]) -> list[float]:
    """Join passes that followed each other (seconds) into blocks; return the mean pass of each.

    Passes at the end that make no whole block are left out.
    """
    found: list[float] = []
    start, block_s = 0, 0.0
    for place, pass_s in enumerate(passes_s, 1):
        block_s += pass_s
        if block_s >= BLOCK_S:
            found.append(block_s / (place - start))
            start, block_s = place, 0.0
    return found


CallForm: TypeAlias = tuple[str, Form]


def _groups(
    visits: Iterable[HostVisit],
) -> Iterator[tuple[tuple[CallForm, ...], list[tuple[float, ...]]]]:
    """Yield the calls of each group that was timed, and their times (seconds) in each block.

    The visits of a group's calls have one campaign and start, and as many times: those of the same
    blocks of rounds. Moments of one group in a campaign are one sample. A moment of fewer than
    `LEAST_BLOCKS` does not count: older versions kept the fastest rounds alone, 40 of them.
    """
    moments: dict[tuple[str, str, int], dict[CallForm, HostVisit]] = defaultdict(dict)
    for visit in visits:
        if (rounds := len(visit.times_s)) >= LEAST_BLOCKS:
            moment = visit.campaign, visit.started_at, rounds
            moments[moment][visit.configuration, visit.form] = visit
    groups: dict[tuple[str, tuple[CallForm, ...]], list[tuple[float, ...]]] = defaultdict(list)
    for (campaign, _, _), together in moments.items():
        calls = tuple(sorted(together))
        times = [together[call].times_s for call in calls]
        groups[campaign, calls] += zip(*times, strict=True)
    for (_, calls), rounds_s in groups.items():
        yield calls, rounds_s


def quiet_rounds_s(visits: Iterable[HostVisit]) -> dict[CallForm, list[tuple[float, ...]]]:
    """Return each call's times (seconds) in the quietest blocks of each group it was timed in."""
    found: dict[CallForm, list[tuple[float, ...]]] = defaultdict(list)
    for calls, rounds_s in _groups(visits):
        quiet = [rounds_s[place] for place in quietest([math.fsum(each) for each in rounds_s])]
        for call, times_s in zip(calls, zip(*quiet, strict=True), strict=True):
            found[call].append(times_s)
    return dict(found)


def host_slowdown(blocks_s: Sequence[float]) -> float | None:
    """The median of blocks over that in quiet moments; None below `LEAST_BLOCKS`."""
    if len(blocks_s) < LEAST_BLOCKS:
        return None
    return statistics.median(blocks_s) / quiet_time_s(blocks_s)


def is_settled(visits: Iterable[HostVisit], calls: Iterable[Call]) -> bool:
    """Return whether the two moments at which the host was fastest in these calls agree.

    Other work can only slow a host down: where the two fastest agree, neither was slowed down.
    """
    seen: dict[CallForm, list[HostVisit]] = defaultdict(list)
    for visit in visits:
        seen[visit.configuration, visit.form].append(visit)
    slower = []
    for call in calls:
        of_call = seen[call.configuration.key, call.form]
        times_s = sorted(quiet_time_s(visit.times_s) for visit in of_call)
        if len(times_s) > 1 and times_s[0]:
            slower.append(times_s[1] / times_s[0])
    return not slower or statistics.median(slower) <= 1 + HELD_UP
