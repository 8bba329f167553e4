"""`python -m opdb.derive`: costs derived anew from the raw visits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from opdb.cli import main, options
from opdb.cli.console import progress, show
from opdb.errors import CheckError
from opdb.predict.predictor import choose_device
from opdb.records import Board, Json
from opdb.store import open_store
from opdb.store.deriving import Derived, derived
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
        """Check that the stored costs are what the visits say."""
        differing = [found.board for _, found in self.boards if not found.is_as_stored]
        if differing:
            raise CheckError(
                f"the stored costs of {', '.join(differing)} are not what the visits say; "
                "python -m opdb.derive puts that right"
            )

    def to_dict(self) -> Json:
        return BOARDS.documents(self.boards)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield Rows(BOARDS, self.boards)


def run(
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit 1 where what is stored is not the same."),
    ] = False,
    device: options.EveryDevice = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Derive every cost anew from the visits behind it: the raw samples are kept.

    A bench does so at its end. This is for a version of opdb that derives costs in a better way,
    and for whoever wants to see that stored costs are what the samples say (--check).
    """
    with open_store(db, create=False) as store:
        slug = None if device is None else choose_device(store, device).slug
        boards = store.boards(slug)
        found = []
        with progress(len(boards), "derive", quiet=quiet) as shown:
            for board in boards:
                shown.doing(board.uuid)
                one = derived(store, board.uuid)
                if not check:
                    store.replace_costs(board.uuid, one.costs)
                found.append((board, one))
                shown.done()
    derivation = Derivation(found)
    show(derivation, as_json=as_json)
    if check:
        derivation.check()


if __name__ == "__main__":
    raise SystemExit(main(name="python -m opdb.derive", run=run))
