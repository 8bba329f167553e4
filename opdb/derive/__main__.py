"""`python -m opdb.derive`: costs derived anew from the raw visits."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.cli import main, options
from opdb.cli.console import Terminal, show
from opdb.errors import CheckError
from opdb.predict.predictor import choose_device
from opdb.records import Board
from opdb.store import open_store
from opdb.store.costs import derived
from opdb.tables import Column, Listing, Rows, Table

BOARDS: Table[tuple[Board, int, int]] = Table(
    Column("board", lambda row: row[0].uuid, title="board"),
    Column("device", lambda row: row[0].device, title="device"),
    Column("costs", lambda row: row[1], title="costs"),
    Column("changed", lambda row: row[2], title="changed"),
)


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
        with Terminal(quiet=quiet).progress(len(boards), "derive") as shown:
            for board in boards:
                shown.doing(board.uuid)
                costs, changed = derived(store, board.uuid)
                if not check:
                    store.replace_costs(board.uuid, costs)
                found.append((board, len(costs), changed))
                shown.done()
    show(Listing(BOARDS.documents(found), [Rows(BOARDS, found)]), as_json=as_json)
    differing = [board.uuid for board, _, changed in found if changed]
    if check and differing:
        raise CheckError(
            f"the stored costs of {', '.join(differing)} are not what the visits say; "
            "python -m opdb.derive puts that right"
        )


if __name__ == "__main__":
    raise SystemExit(main(name="python -m opdb.derive", run=run))
