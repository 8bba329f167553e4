"""Boards' costs derived anew from their visits, beside what was stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opdb.errors import CheckError
from opdb.records import Board, Json
from opdb.store.deriving import Derived
from opdb.tables import SHARE, Column, Report, Rows, Table

BOARDS: Table[tuple[Board, Derived]] = Table(
    Column("board", lambda row: row[1].board, title="board"),
    Column("device", lambda row: row[0].device, title="device"),
    Column("costs", lambda row: len(row[1].costs), title="costs"),
    Column("new", lambda row: row[1].new, title="new"),
    Column("gone", lambda row: row[1].gone, title="gone"),
    Column("changed", lambda row: row[1].changed, title="changed"),
    Column("largest_change", lambda row: {"time": row[1].time, "energy": row[1].energy}),
    Column(title="time by", get=lambda row: row[1].time, unit=SHARE),
    Column(title="energy by", get=lambda row: row[1].energy, unit=SHARE),
)
"""A board, and how far its derived costs are from the stored ones."""


@dataclass(frozen=True)
class Derivation(Report):
    """Some boards' costs, derived anew."""

    boards: Sequence[tuple[Board, Derived]]

    def check(self) -> None:
        """Check that the stored costs are what the visits say.

        Raises:
            CheckError: those of a board are not.
        """
        differing = [found.board for _, found in self.boards if not found.is_as_stored]
        if differing:
            raise CheckError(
                f"the stored costs of {', '.join(differing)} are not what the visits say; "
                "opdb derive puts that right"
            )

    def to_dict(self) -> Json:
        """Return each board with its changes."""
        return BOARDS.documents(self.boards)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the boards."""
        yield Rows(BOARDS, self.boards)
