"""`opdb calibrate`: what this board's meters are worth, and what the board reaches at most."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from opdb.api.calibrations import calibrate
from opdb.cli.support import options
from opdb.cli.support.console import note, show


def run(
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cuda or cuda:N.  [default: cuda]"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Test anew what is stored for this board.")
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Test the power meters of this GPU, and measure what its board reaches at most.

    Stored for the board, its driver and its power limit, and shown from there the next time. A
    meter that fails a test is not used. Exit status 1 if one failed.
    """
    found = calibrate(device, again=again, db=db, tell=partial(note, quiet=quiet))
    show(found, as_json=as_json)
    found.check()
