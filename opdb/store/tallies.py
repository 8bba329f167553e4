"""Visits counted by sort as they are stored, so that no count has to read them all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, select

from opdb.store import schema
from opdb.store.rows import NewRow
from opdb.store.writing import in_parts, insert_columns, insert_into

_SORT = ("configuration_id", "setting", "role", "access", "weights", "outcome")
"""Columns of a visit that, with its board and reason of rejection, define its sort."""

REJECTED = "rejected: "
"""The beginning of the flag of a rejected visit; the words of the reason follow."""


def why_rejected(flags: Iterable[str]) -> str:
    """Return the words of why a visit was rejected; empty for one that was not."""
    said = (flag.removeprefix(REJECTED) for flag in flags if flag.startswith(REJECTED))
    return next(said, "")


def count_visit(connection: Connection, row: NewRow) -> None:
    """Count one visit, given as it is stored."""
    campaign = schema.campaign
    query = select(campaign.c.device, campaign.c.board).where(campaign.c.id == row["campaign"])
    place = connection.execute(query).mappings().one()
    rejected = why_rejected(json.loads(row["flags"]))
    new = {**place, **{name: row[name] for name in _SORT}, "rejected": rejected, "visits": 1}
    connection.execute(_adding(connection), new)


def recount(connection: Connection, configurations: Iterable[int]) -> None:
    """Count the visits of these configurations (row numbers) anew, on every board."""
    tally, visit, campaign = schema.tally, schema.visit, schema.campaign
    columns = [
        *(campaign.c.device, campaign.c.board),
        *(visit.c[name] for name in (*_SORT, "flags")),
    ]
    for some in in_parts(configurations):
        connection.execute(delete(tally).where(tally.c.configuration_id.in_(some)))
        query = (
            select(*columns, func.count())
            .join(campaign, visit.c.campaign == campaign.c.id)
            .where(visit.c.configuration_id.in_(some))
            .group_by(*columns)
        )
        found = connection.execute(query).all()
        reasons = _reasons([row.flags for row in found])
        counts: Counter[tuple[Any, ...]] = Counter()
        for (*sort, _, visits), reason in zip(found, reasons, strict=True):
            counts[*sort, reason] += visits
        _add(connection, counts)


def count_new(connection: Connection, visits: Mapping[str, Sequence[Any]]) -> None:
    """Count visits that were just stored, given by column as they are: they are not read back."""
    campaign = schema.campaign
    query = select(campaign.c.id, campaign.c.device, campaign.c.board)
    places = {name: place for name, *place in connection.execute(query)}
    at = [places[name] for name in visits["campaign"]]
    sorts = [visits[name] for name in _SORT]
    reasons = _reasons(visits["flags"])
    _add(connection, Counter(zip(*zip(*at, strict=True), *sorts, reasons, strict=True)))


def _reasons(flags: Sequence[str]) -> list[str]:
    """Return why each visit was rejected, by its flags, which many visits share."""
    known = {each: why_rejected(json.loads(each)) for each in set(flags)}
    return list(map(known.__getitem__, flags))


def _add(connection: Connection, counts: Mapping[tuple[Any, ...], int]) -> None:
    """Add the counts of visits by device, board, what tells sorts apart, and reason."""
    names = ("device", "board", *_SORT, "rejected")
    columns = dict(zip(names, zip(*counts, strict=True), strict=False))  # of no count: none
    insert_columns(connection, _adding(connection), {**columns, "visits": list(counts.values())})


def _adding(connection: Connection) -> Any:
    """Return the insert that adds its number of visits to those of the same sort."""
    statement, tally = insert_into(connection, schema.tally), schema.tally
    return statement.on_conflict_do_update(
        index_elements=[column.name for column in tally.primary_key],
        set_={"visits": tally.c.visits + statement.excluded.visits},
    )
