"""A claim's row, and whether its worker still has it when something is saved under it."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from opdb.errors import ClaimLostError
from opdb.store import schema

LEASE_S = 900.0
"""Time without a sign of its holder after which a claim is free; longer than one visit takes."""


class Claim(NamedTuple):
    """One claim: which list, what of it, and the worker who has it."""

    scope: str
    task: str
    worker: str


def check_held(connection: Connection, claim: Claim) -> None:
    """Check that a worker still has its claim; until the transaction ends nobody takes it.

    Raises:
        ClaimLostError: it was taken over.
    """
    table = schema.claim
    query = select(table.c.worker).where(table.c.scope == claim.scope, table.c.task == claim.task)
    if connection.execute(query.with_for_update()).scalar() != claim.worker:
        raise ClaimLostError(
            f"another worker took {claim.task.rpartition(' ')[2][:12]} over, as this one gave no "
            f"sign for {LEASE_S:.0f} s; what it measured of it just now is not stored"
        )
