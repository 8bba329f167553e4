"""What a person should know of a prediction, in words."""

from __future__ import annotations

import math

from opdb.compose.calls import HostTimes, Pass, is_one_graph
from opdb.compose.grounds import Grounds, Known
from opdb.compose.shares import NEARLY_ALL, Share, Shares
from opdb.derive.costs import HOT_ALONE
from opdb.footprint import is_kept, may_be_kept_in_part
from opdb.records import Mode
from opdb.units import counted, show

PRIOR = (
    "no other model was measured on this device in this mode: the interval rests "
    "on a prior of 2 % for the error of a sum"
)

UNEVEN = 0.05
"""An interval that the host alone makes wider than this share of the time, either way, is told."""


def notes(made: Pass, mode: Mode, grounds: Grounds, clock_share: float) -> tuple[str, ...]:
    """Say what stands in for what, and what is left out; `clock_share` of the highest clock."""
    return (
        *grounds.notes,
        *_weight_notes(made, grounds),
        *_cache_notes(made, grounds),
        *_clock_notes(grounds, clock_share),
        *(_host_notes(made, grounds) if _waits(mode, grounds) else ()),
        *_foreign_notes(made, grounds),
        *_unsupported_notes(made),
    )


def _waits(mode: Mode, grounds: Grounds) -> bool:
    """Whether a pass may wait for the host."""
    return grounds.device.type != "cpu" and not is_one_graph(mode)


def notes_of_parts(parts: Shares, missing: tuple[Share, ...], grounds: Grounds) -> tuple[str, ...]:
    """Say which parts rest on less than time and energy that were measured."""
    return (
        *_missing_notes(missing),
        *_dark_notes(parts),
        *_estimate_notes(parts, missing, grounds),
    )


def notes_of_host(share: float, grounds: Grounds) -> tuple[str, ...]:
    """Say when an uneven host makes a time unsure, by this share of it."""
    if share < UNEVEN:
        return ()
    errors = [abs(math.log(ratio)) for ratio in grounds.host_ratios]
    apart = 100 * math.expm1(math.sqrt(math.fsum(e * e for e in errors) / len(errors)))
    return (
        f"the board's host took {apart:.0f} % more or less for the same calls from one moment to "
        "another: so unsure is the time of a pass that waits for it",
    )


def notes_of_known(known: Known) -> tuple[str, ...]:
    """Say when no other model's error is known."""
    return () if known.time else (PRIOR,)


def _weight_notes(made: Pass, grounds: Grounds) -> list[str]:
    """Say for how many configurations the weights' state in this pass was not measured."""
    hot = is_kept(made.touched_bytes, grounds.resident_bytes)
    costs = [grounds.costs.get(c.key) for c in made.weighted]
    other = [
        cost
        for cost in costs
        if cost is not None
        and not cost.is_estimated
        and (cost.hot is None if hot else HOT_ALONE in cost.flags)
    ]
    if not other:
        return []
    measured, found = ("cold", "hot") if hot else ("hot", "cold")
    return [
        f"measured with {measured} weights alone, where this pass finds them {found}: "
        f"{counted(len(other), 'configuration')}"
    ]


def _cache_notes(made: Pass, grounds: Grounds) -> list[str]:
    """Say where a pass touches little more than the L2 keeps."""
    if not made.weighted or not may_be_kept_in_part(made.touched_bytes, grounds.resident_bytes):
        return []
    return [
        f"this pass touches {show(made.touched_bytes, 'B')}, little more than the L2 surely keeps: "
        "it takes less where a part of its weights is found there"
    ]


def _clock_notes(grounds: Grounds, share: float) -> list[str]:
    if share == 1:
        return []
    return [
        f"the power limit, kept at {grounds.limit_w:.0f} W, lowers the clock to "
        f"{100 * share:.1f} % of its highest"
    ]


def _host_notes(made: Pass, grounds: Grounds) -> list[str]:
    host = HostTimes(made, grounds)
    usual = unheard = 0
    for call, times in zip(made.calls, made.times, strict=True):
        if not host.is_own(call):
            heard = host.of(call) is not None
            usual += times * heard
            unheard += times * (not heard)
    found = []
    if usual:
        found.append(
            f"no host time of its own, so the usual of its kind is taken: {counted(usual, 'call')}"
        )
    if unheard:
        found.append(
            "no host time, so a pass that waits for the host takes longer: "
            f"{counted(unheard, 'call')}"
        )
    return found


def _foreign_notes(made: Pass, grounds: Grounds) -> list[str]:
    costs = (grounds.costs.get(key) for key in made.configurations)
    foreign = sum(cost is not None and cost.board != grounds.board for cost in costs)
    if not foreign:
        return []
    return [
        "measured on another board of the device alone, costs taken as they are: "
        f"{counted(foreign, 'configuration')}"
    ]


def _unsupported_notes(made: Pass) -> list[str]:
    unsupported = made.workload.unsupported
    if not unsupported:
        return []
    names = ", ".join(f"{name} ×{count}" for name, count in unsupported.items())
    return [
        f"calls that no operator describes: {names}; what they take is not known, so time, energy "
        "and their coverage leave them out"
    ]


def _missing_notes(missing: tuple[Share, ...]) -> list[str]:
    """Say how much the sums lack; not where they lack everything and are no sums."""
    share = math.fsum(s.share_time for s in missing)
    if not 0.0005 < share < NEARLY_ALL:
        return []
    return [
        "time, energy and their intervals leave out what is missing, "
        f"some {100 * share:.1f} % of the time: the whole pass takes more"
    ]


def _dark_notes(parts: Shares) -> list[str]:
    if not parts.dark:
        return []
    kinds = ", ".join(dict.fromkeys(share.configuration.title for share in parts.dark))
    return [
        f"of {counted(len(parts.dark), 'configuration')} ({kinds}) only the time is measured, "
        "not the energy"
    ]


def _estimate_notes(parts: Shares, missing: tuple[Share, ...], grounds: Grounds) -> list[str]:
    found = []
    if parts.estimated:
        share = math.fsum(s.share_time for s in parts.estimated)
        found.append(
            "never measured, costs estimated: "
            f"{counted(len(parts.estimated), 'configuration')} ({100 * share:.1f} % of the time)"
        )
    refused = grounds.estimates.refused if grounds.estimates is not None else {}
    reasons = dict.fromkeys(
        why for s in missing if (why := refused.get(s.configuration.key)) is not None
    )
    if reasons:
        found.append(f"not estimated: {'; '.join(reasons)}")
    return found
