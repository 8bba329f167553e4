"""`python -m opdb.estimates`: what unmeasured operators cost, learned from the measured ones."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.cli import main, options
from opdb.cli.console import note, show
from opdb.estimates.estimator import Estimator
from opdb.learning import learn
from opdb.predict.predictor import predictor_for
from opdb.records import Json
from opdb.store import open_store
from opdb.tables import Listing
from opdb.units import plural


def _listing(estimator: Estimator) -> Listing:
    families: dict[str, Json] = {
        name: {
            "points": len(learned.time.points),
            "kinds": sorted(learned.levels),
            "dtypes": sorted(learned.dtypes),
        }
        for name, learned in sorted(estimator.families.items())
    }
    document = {
        "device": estimator.device,
        "board": estimator.board,
        "trained_at": estimator.trained_at,
        "configurations": estimator.configurations,
        "families": families,
    }
    lines = [
        f"{name}: {family['points']} of {plural(len(family['kinds']), 'kind')}, "
        f"in {', '.join(family['dtypes'])}"
        for name, family in families.items()
    ]
    first = (
        f"{estimator.device}: learned from {estimator.configurations} configurations, as board "
        f"{estimator.board} has them"
    )
    return Listing(document, [first, *lines])


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
    some minutes for seven thousand configurations. benchmarks/left_out.py says how well it goes.
    """
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        chosen = None if board is None else predictor.board(board)
        note("learning from thousands of configurations takes some minutes", quiet=quiet)
        estimator = learn(store, predictor, chosen)
    show(_listing(estimator), as_json=as_json)


if __name__ == "__main__":
    raise SystemExit(main(name="python -m opdb.estimates", run=run))
