"""`opdb derive`: costs derived anew from the raw visits."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.cli import options
from opdb.cli.console import print_json, print_table, progress
from opdb.errors import CheckError
from opdb.units import show_share


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
    from opdb.predict import choose_device
    from opdb.store import open_store
    from opdb.store.deriving import derived

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
    if as_json:
        print_json(
            [
                {
                    "device": board.device,
                    "board": one.board,
                    "costs": len(one.costs),
                    "new": one.new,
                    "gone": one.gone,
                    "changed": one.changed,
                    "largest_change": {"time": one.time, "energy": one.energy},
                }
                for board, one in found
            ]
        )
    else:
        print_table(
            ("board", "device", "costs", "new", "gone", "changed", "time by", "energy by"),
            [
                (
                    *(one.board, board.device, len(one.costs), one.new, one.gone, one.changed),
                    *(show_share(one.time), show_share(one.energy)),
                )
                for board, one in found
            ],
        )
    differing = [one.board for _, one in found if not one.is_as_stored]
    if check and differing:
        raise CheckError(
            f"the stored costs of {', '.join(differing)} are not what the visits say; "
            "opdb derive puts that right"
        )
