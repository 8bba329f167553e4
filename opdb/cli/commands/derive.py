"""`opdb derive`: costs derived anew from the raw visits."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.cli import options
from opdb.cli.console import progress, show

PANEL = "data"


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
    from opdb.predict.predictor import choose_device
    from opdb.store import open_store
    from opdb.store.deriving import derived
    from opdb.studies.derivation import Derivation

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
