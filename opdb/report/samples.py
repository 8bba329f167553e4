"""The raw samples behind a report: visits of the configurations that carry most of the energy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opdb.derive.costs import VisitCost, visit_cost
from opdb.layout import escaped
from opdb.lookup.words import short_board
from opdb.predict import Answer
from opdb.predict.layers import first_shape
from opdb.records import Campaign, Configuration, Json, Visit
from opdb.store import Store

SHOWN = 20
"""Configurations on a board whose visits are shown."""


@dataclass(frozen=True)
class Sampled:
    """A visit with its campaign, its configuration, and what it says of one call."""

    visit: Visit
    campaign: Campaign
    configuration: Configuration

    @property
    def cost(self) -> VisitCost | None:
        """The visit's result for one call; None where it gives no time."""
        return visit_cost(self.visit, self.campaign.calibration)

    @property
    def flags(self) -> list[str]:
        """The visit's flags, in words."""
        cost = self.cost
        return list(dict.fromkeys((*self.visit.flags, *(cost.flags if cost else ()))))

    @property
    def title(self) -> str:
        """The title of the visit for readers."""
        shape = "×".join(map(str, first_shape(self.configuration) or ()))
        operator = f"{self.configuration.title} {shape}".strip()
        board = short_board(self.campaign.board.uuid)
        return escaped(f"{operator}, {board}, {self.visit.started_at}, {self.visit.role}")

    @property
    def document(self) -> Json:
        """The visit as data: raw samples, flags, and what is derived for one call."""
        visit, cost = self.visit, self.cost
        stretch = visit.stretch
        return {
            "title": self.title,
            "id": visit.id,
            "configuration": self.configuration.key,
            "board": self.campaign.board.uuid,
            "role": visit.role,
            "outcome": visit.outcome,
            "reason": visit.reason,
            "weights": visit.weights,
            "flags": self.flags,
            "base_power_w": self.campaign.calibration.base_power_w,
            "time_s": cost and cost.time_s,
            "power_w": cost and cost.power_w,
            "dynamic_energy_j": cost and cost.dynamic_energy_j,
            "calls_per_replay": stretch and stretch.calls_per_replay,
            "replay_times_s": [] if stretch is None else list(stretch.replay_times_s),
            "power_samples": [] if stretch is None else list(map(list, stretch.power_samples)),
            "clock_samples_hz": [] if stretch is None else list(stretch.clock_samples_hz),
        }


def sampled(store: Store, device: str, answers: Sequence[Answer]) -> list[Sampled]:
    """Return the visits of the configurations that carry most of the runs' energy, each on a board.

    `device` is its slug. A configuration that its board did not measure has no visit there.
    """
    weights: dict[tuple[str, str], float] = defaultdict(float)
    configurations: dict[str, Configuration] = {}
    for answer in answers:
        for share in answer.prediction.parts:
            key = share.configuration.key
            configurations[key] = share.configuration
            weights[key, answer.prediction.board] += share.share_energy
    by_board: dict[str, list[str]] = defaultdict(list)
    for key, board in sorted(weights, key=lambda each: weights[each], reverse=True)[:SHOWN]:
        by_board[board].append(key)
    campaigns = {campaign.id: campaign for campaign in store.campaigns(device)}
    return [
        Sampled(visit, campaigns[visit.campaign], configurations[visit.configuration])
        for visit in _visits(store, by_board)
        if visit.campaign in campaigns
    ]


def _visits(store: Store, by_board: dict[str, list[str]]) -> Iterator[Visit]:
    for board, keys in by_board.items():
        place = {key: number for number, key in enumerate(keys)}
        found = store.visits(board, keys)
        yield from sorted(found, key=lambda visit: place[visit.configuration])
