"""Counts of measurements of convolutions that were forced to take an algorithm."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from opdb.records import ALGORITHM_SETTING, Outcome
from opdb.store import reading, schema


@dataclass(frozen=True)
class Forced:
    """How many configurations ended so under an algorithm; `reason` says why, none where good."""

    algorithm: str
    outcome: Outcome
    reason: str | None
    configurations: int


def forced(connection: Connection, device: str) -> list[Forced]:
    """Return how forced convolutions ended on a device (slug), by algorithm and outcome."""
    tally = schema.tally
    good = (
        select(tally.c.setting, func.count(tally.c.configuration_id.distinct()))
        .where(tally.c.device == device, tally.c.role == "measurement", tally.c.access == "model")
        .where(~reading.unforced(tally), tally.c.outcome == "ok")
        .group_by(tally.c.setting)
    )
    found = [
        Forced(_algorithm(setting), "ok", None, count)
        for setting, count in connection.execute(good)
    ]
    found += _failed(connection, device)
    return sorted(found, key=lambda each: (each.algorithm, each.outcome, each.reason or ""))


def _failed(connection: Connection, device: str) -> list[Forced]:
    tally, visit, campaign = schema.tally, schema.visit, schema.campaign
    any_failed = (
        select(tally.c.configuration_id)
        .where(tally.c.device == device, ~reading.unforced(tally), tally.c.outcome != "ok")
        .limit(1)
    )
    if connection.execute(any_failed).first() is None:
        return []  # the visits need not be gone through
    query = (
        select(visit.c.setting, visit.c.outcome, visit.c.reason)
        .add_columns(func.count(visit.c.configuration_id.distinct()))
        .join(campaign, visit.c.campaign == campaign.c.id)
        .where(campaign.c.device == device, visit.c.role == "measurement")
        .where(~reading.unforced(visit), visit.c.outcome != "ok", visit.c.access == "model")
        .group_by(visit.c.setting, visit.c.outcome, visit.c.reason)
    )
    return [
        Forced(_algorithm(setting), outcome, reason, count)
        for setting, outcome, reason, count in connection.execute(query)
    ]


def _algorithm(setting: str) -> str:
    return str(json.loads(setting)[ALGORITHM_SETTING])
