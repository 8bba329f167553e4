"""What is pending on a device, in which order, and what it will cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opdb.records import Board, Configuration, Json, Outcome
from opdb.settings import relevant_setting
from opdb.store import Store

ROUNDS = 2
"""Visits wanted of each configuration: two in different random rounds beat one long one."""

FINAL_OUTCOMES: tuple[Outcome, ...] = ("unsupported", "out_of_memory", "error")
"""Outcomes that a repetition would not change; `retry` asks for it all the same."""


@dataclass(frozen=True)
class Plan:
    """Visits to make: rounds of configurations, each round in its own order."""

    rounds: tuple[tuple[Configuration, ...], ...]

    @property
    def visits(self) -> int:
        """How many visits the plan holds."""
        return sum(len(r) for r in self.rounds)


def visits_wanted(
    outcomes: Mapping[tuple[str, str], Counter[Outcome]],
    configuration: Configuration,
    settings: Mapping[str, Json],
    *,
    retry: bool = False,
) -> int:
    """Return how many visits of a configuration are still wanted on a device."""
    setting = relevant_setting(configuration.kind, settings)
    seen = outcomes.get((configuration.key, setting), Counter[Outcome]())
    if not retry and any(seen[outcome] for outcome in FINAL_OUTCOMES):
        return 0
    return max(0, ROUNDS - seen["ok"])


def plan(
    store: Store,
    where: str | Board,
    settings: Mapping[str, Json],
    kinds: Collection[str] | None = None,
    *,
    seed: int,
    retry: bool = False,
) -> Plan:
    """Order what is pending: each round in random order, the second the first's reverse.

    `where` is a device's slug, or a board for what that board lacks, whatever others have.
    Reversing makes a slow drift fall on both visits of a configuration alike.
    """
    if isinstance(where, Board):
        outcomes = store.visit_outcomes(where.device, board=where.uuid)
    else:
        outcomes = store.visit_outcomes(where)
    called = store.usage()
    wanted = {
        configuration: visits_wanted(outcomes, configuration, settings, retry=retry)
        for configuration in store.configurations(kinds)
        if configuration.key in called
    }
    order = [configuration for configuration, count in wanted.items() if count]
    random.Random(seed).shuffle(order)
    first = tuple(c for c in order if wanted[c] >= ROUNDS)
    return Plan((first, tuple(reversed(order))))
