"""Visits looked over before costs are derived from them, and the costs of a board."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from opdb.derive.costs import AT_THE_LIMIT, Deriver, host_quantities, no_time, stretch_flags
from opdb.derive.drift import drift_flags
from opdb.derive.rejection import COUNTED, MOVING_CLOCK, REJECTED, rejection
from opdb.derive.statistics import typical_on
from opdb.records import Campaign, Cost, Device, HostVisit, Stretch, Visit, is_forced

DIGITS = 10
"""Significant digits of the numbers of a cost: they are within what `opdb.store.deriving.ROUNDING`
allows of the exact ones."""

CLOCK_BOUND = 0.03
"""A clock whose lowest twentieth lies this share below its highest moved."""


def clock_flags(stretch: Stretch, flags: Iterable[str]) -> list[str]:
    """Say that the clock moved within a stretch; at the power limit it always does."""
    clocks = sorted(stretch.clock_samples_hz)
    if not clocks or any(flag.startswith(AT_THE_LIMIT) for flag in flags):
        return []
    low, high = clocks[len(clocks) // 20], clocks[-1]
    if low >= (1 - CLOCK_BOUND) * high:
        return []
    return [f"{MOVING_CLOCK}: {low / 1e6:.0f} to {high / 1e6:.0f} MHz"]


def why_rejected(visit: Visit, device: Device) -> str | None:
    """Return why a visit is rejected, in words; None where it is not, or has another role."""
    if visit.role not in COUNTED or visit.outcome != "ok":
        return None
    flags = list(visit.flags)
    if visit.stretch is not None:
        flags += stretch_flags(visit.stretch) + clock_flags(visit.stretch, flags)
    return rejection(flags, device) or no_time(visit, typical_on(device))


def marked(visit: Visit, device: Device) -> Visit:
    """Return a visit with the flag that says why it is rejected; as it is where it is not."""
    why = why_rejected(visit, device)
    return visit if why is None else replace(visit, flags=(*visit.flags, REJECTED + why))


def is_rejected(visit: Visit) -> bool:
    """Return whether a visit carries the flag of a rejected one."""
    return any(flag.startswith(REJECTED) for flag in visit.flags)


def reviewed(campaigns: Sequence[Campaign], visits: Sequence[Visit]) -> list[Visit]:
    """Return the visits that costs may rest on, flagged where the board drifted around them.

    Rejected visits are left out where a better one of the same configuration, setting, role and
    state of the caches exists.
    """
    devices = {campaign.id: campaign.device for campaign in campaigns}
    drifted = drift_flags(campaigns, visits)
    good: dict[tuple[str, ...], bool] = defaultdict(bool)
    rejected = set()
    for visit in visits:
        if visit.outcome != "ok":
            continue
        if is_rejected(visit) or why_rejected(visit, devices[visit.campaign]):
            rejected.add(visit.id)
        else:
            good[_what(visit)] = True
    return [
        replace(visit, flags=(*visit.flags, drifted[visit.id])) if visit.id in drifted else visit
        for visit in visits
        if visit.id not in rejected or not good[_what(visit)]
    ]


def _what(visit: Visit) -> tuple[str, ...]:
    return visit.configuration, visit.setting, visit.role, visit.weights, visit.access


def board_costs(
    campaigns: Sequence[Campaign], visits: Sequence[Visit], host_visits: Iterable[HostVisit]
) -> list[Cost]:
    """Derive the costs of one board from all that was seen of it.

    Convolutions that were forced to take an algorithm share no spread with the usual visits, and
    the host's times are none of theirs: they are issued in another way. Numbers are rounded to
    `DIGITS`: further ones say nothing, and are a third of what a published cost takes.
    """
    found = reviewed(campaigns, visits)
    forced = [visit for visit in found if is_forced(visit.setting)]
    usual = [visit for visit in found if not is_forced(visit.setting)]
    costs = Deriver(campaigns, usual).costs(host_quantities(host_visits))
    costs += Deriver(campaigns, forced).costs({}) if forced else []
    return [_rounded(cost) for cost in costs]


def _rounded(value: Any) -> Any:
    """Return a cost, or a value in it, with its numbers rounded."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rounded(getattr(value, f.name)) for f in fields(value)})
    return value
