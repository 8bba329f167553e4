"""`opdb learn`: estimates of unmeasured operators, learned from the measured ones."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.cli import options
from opdb.cli.console import note, print_json
from opdb.records import Json
from opdb.units import counted


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

    All costs of the device count, those of other boards brought to this one. It takes a minute or
    two for three thousand configurations and needs scikit-learn; predict then needs neither. opdb
    validate --estimates says how well it goes.
    """
    from opdb.learning import learn
    from opdb.predict import Predictor, choose_device
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        predictor = Predictor(store, choose_device(store, device))
        chosen = None if board is None else predictor.board(board)
        note("learning from thousands of configurations takes a minute or two", quiet=quiet)
        estimator = learn(store, predictor, chosen)
    families: dict[str, Json] = {
        name: {
            "points": len(learned.time.points),
            "kinds": learned.kinds,
            "dtypes": sorted(learned.dtypes),
        }
        for name, learned in sorted(estimator.families.items())
    }
    if as_json:
        print_json(
            {
                "device": estimator.device,
                "board": estimator.board,
                "trained_at": estimator.trained_at,
                "configurations": estimator.configurations,
                "families": families,
            }
        )
        return
    print(
        f"{estimator.device}: learned from {estimator.configurations} configurations, as board "
        f"{estimator.board} has them"
    )
    for name, family in families.items():
        print(
            f"{name}: {family['points']} of {counted(len(family['kinds']), 'kind')}, "
            f"in {', '.join(family['dtypes'])}"
        )
