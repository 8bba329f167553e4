"""What follows from what the store has of a device: costs, prices of visits and runs, failures."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from opdb.derive.costs import cost_in
from opdb.predict import Predictor
from opdb.records import Configuration, Cost, Device, Json, Mode
from opdb.records.cost import ROOFLINE_ALONE
from opdb.settings import relevant_setting
from opdb.store import Store

NOMINAL_SECONDS = 0.8
"""GPU-seconds of a configuration's visits where none were made: the median on an H200."""

NOMINAL_RUN_SECONDS = 8.0
"""Seconds of a model run where none was made."""

LEAST_OF_KIND = 5
"""Visited configurations of a kind from which its own median is taken, else that of all."""


@dataclass(frozen=True)
class Prices:
    """GPU-seconds that the visits of a configuration take, and what that rests on.

    `of_kind` are medians of the kinds with visits enough, `usual` that of all; `rests_on` counts
    the configurations visited.
    """

    usual: float
    of_kind: Mapping[str, float]
    rests_on: int

    def of(self, configuration: Configuration) -> float:
        """Return what measuring a configuration is likely to take, in GPU-seconds."""
        return self.of_kind.get(configuration.kind, self.usual)


def prices(store: Store, device: str, kinds: Collection[str] | None = None) -> Prices:
    """Return what the visits of a configuration took on a device (slug), on each board alone.

    With `kinds`, those of these kinds alone count.
    """
    of_kind: dict[str, list[float]] = defaultdict(list)
    for each in store.spent(device, kinds=kinds):
        of_kind[each.kind].append(each.seconds)
    return prices_of(of_kind)


def prices_of(of_kind: Mapping[str, Collection[float]]) -> Prices:
    """Return the prices that the GPU-seconds of visited configurations, kind by kind, suggest."""
    everything = [seconds for some in of_kind.values() for seconds in some]
    if not everything:
        return Prices(NOMINAL_SECONDS, {}, 0)
    medians = {k: statistics.median(v) for k, v in of_kind.items() if len(v) >= LEAST_OF_KIND}
    return Prices(statistics.median(everything), medians, len(everything))


def costs_on(
    store: Store,
    device: str,
    configurations: Iterable[Configuration],
    settings: Mapping[str, Json],
    board: str | None = None,
) -> dict[str, Cost]:
    """Return what any board of a device measured of configurations, by key; timed ones alone.

    Where several boards did, it is the cost of `board` (UUID), else of any one of them, and as
    measured: a prediction brings it over by factors, but the board may have no campaign yet.
    """
    kinds = {c.key: c.kind for c in configurations}
    found: dict[str, Cost] = {}
    boards = sorted((b.uuid for b in store.boards(device)), key=lambda uuid: uuid == board)
    timed = store.timed_on(kinds)
    for uuid in reversed(boards):
        missing = [key for key in timed if key not in found and uuid in timed[key]]
        for key, costs in store.costs(uuid, missing).items():
            cost = cost_in(costs, relevant_setting(kinds[key], settings))
            if cost is not None:
                found[key] = cost
    return found


def failed_on(
    store: Store, device: str, settings: Mapping[str, Json], kinds: Mapping[str, str]
) -> dict[str, str]:
    """Return why configurations (keys with their kinds) cannot be measured on a device."""
    return {
        failure.configuration: f"{failure.outcome}: {failure.reason or 'no reason given'}"
        for failure in store.failures(device)
        if failure.configuration in kinds
        and failure.setting == relevant_setting(kinds[failure.configuration], settings)
    }


def run_seconds(store: Store, device: str, mode: Mode) -> float:
    """Return the median seconds of a model run on a device in a mode; nominal where none was made.

    Compiling takes minutes at times: what runs in other modes took says nothing.
    """
    found = store.run_seconds(device, mode)
    return statistics.median(found) if found else NOMINAL_RUN_SECONDS


def base_power_w(store: Store, device: str) -> float:
    """Return the base power of a device's latest calibrated campaign; 0 where none is known."""
    known = [
        watts
        for campaign in store.campaigns(device)
        if (watts := campaign.calibration.base_power_w) is not None
    ]
    return known[-1] if known else 0.0


def has_energy(costs: Collection[Cost]) -> bool:
    """Whether any of these costs has an energy."""
    return any(cost.dynamic_energy_j is not None for cost in costs)


class Estimated:
    """What `opdb learn` estimates of configurations on a device, each estimated once.

    Estimates that rest on a roofline alone are left out: what was measured alike says more.
    """

    def __init__(self, store: Store, device: Device) -> None:
        self._predictor = Predictor(store, device)
        self._known: dict[str, Cost | None] = {}

    def of(self, configurations: Iterable[Configuration]) -> dict[str, Cost]:
        """Return estimates of configurations, by key; of those that have one.

        Raises:
            InputError: what was learned is damaged.
        """
        asked = {each.key: each for each in configurations}
        new = [each for key, each in asked.items() if key not in self._known]
        found = self._predictor.estimated(new)
        self._known |= {each.key: found.get(each.key) for each in new}
        return {
            key: cost
            for key in asked
            if (cost := self._known[key]) is not None and ROOFLINE_ALONE not in cost.flags
        }
