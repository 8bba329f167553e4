"""Visits counted by sort as they are stored, so that no question of how many reads them all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from opdb.store import schema
from opdb.store.rows import NewRow
from opdb.store.writing import execute_many, in_parts, insert_into

REJECTED = "rejected: "
"""How the flag of a rejected visit begins, after which the words of why follow."""


def why_rejected(flags: Iterable[str]) -> str:
    """Return the words of why a visit was rejected; empty for one that was not."""
    said = (flag.removeprefix(REJECTED) for flag in flags if flag.startswith(REJECTED))
    return next(said, "")


def count_visit(connection: Connection, row: NewRow) -> None:
    """Count one visit, given as it is stored."""
    campaign, tally = schema.campaign, schema.tally
    query = select(campaign.c.device, campaign.c.board).where(campaign.c.id == row["campaign"])
    place = connection.execute(query).mappings().one()
    same = ("configuration_id", "setting", "role", "access", "weights", "outcome")
    rejected = why_rejected(json.loads(row["flags"]))
    new = {**place, **{name: row[name] for name in same}, "rejected": rejected, "visits": 1}
    statement: Any = insert_into(connection, tally)
    statement = statement.on_conflict_do_update(
        index_elements=[column.name for column in tally.primary_key],
        set_={"visits": tally.c.visits + 1},
    )
    connection.execute(statement, new)


def recount(connection: Connection, configurations: Iterable[int]) -> None:
    """Count the visits of these configurations (row numbers) anew, on every board."""
    tally, visit, campaign = schema.tally, schema.visit, schema.campaign
    columns = [
        *(campaign.c.device, visit.c.configuration_id, campaign.c.board),
        *(visit.c.setting, visit.c.role, visit.c.access, visit.c.weights, visit.c.outcome),
    ]
    names = [*(column.name for column in columns), "rejected"]
    rejected: dict[str, str] = {}  # flags, most of which are said by many visits
    for some in in_parts(configurations):
        connection.execute(delete(tally).where(tally.c.configuration_id.in_(some)))
        query = (
            select(*columns, visit.c.flags, func.count())
            .join(campaign, visit.c.campaign == campaign.c.id)
            .where(visit.c.configuration_id.in_(some))
            .group_by(*columns, visit.c.flags)
        )
        counts: Counter[tuple[Any, ...]] = Counter()
        for *sort, flags, visits in connection.execute(query):
            if flags not in rejected:
                rejected[flags] = why_rejected(json.loads(flags))
            counts[*sort, rejected[flags]] += visits
        new = [{**dict(zip(names, sort, strict=True)), "visits": n} for sort, n in counts.items()]
        if new:
            execute_many(connection, insert(tally), new)
