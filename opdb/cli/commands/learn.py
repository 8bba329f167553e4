"""`opdb learn`: estimates of unmeasured operators, learned from the measured ones."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.cli import options
from opdb.cli.console import note, show

PANEL = "data"


def run(
    device: options.DeviceName = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="UUID",
            help="Learn as this board has it; the beginning of its UUID will do.  [default: the "
            "one with the most costs]",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Learn from the measured operators what others cost, for predictions of other models.

    All costs of the device count, those of other boards brought to this one. It takes
    some minutes for seven thousand configurations. opdb validate --estimates says how well it goes.
    """
    from opdb.learning import Lesson, learn
    from opdb.predict.predictor import predictor_for
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        chosen = None if board is None else predictor.board(board)
        note("learning from thousands of configurations takes some minutes", quiet=quiet)
        estimator = learn(store, predictor, chosen)
    show(Lesson(estimator), as_json=as_json)
