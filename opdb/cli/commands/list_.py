"""`opdb list`: the names that other commands can be asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from opdb.api.listings import listing
from opdb.cli.support import options
from opdb.cli.support.console import note, show


def run(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="models, workloads, devices, kinds or algorithms.  [default: how many of each]",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="FILTER", help="Part of a name, or a pattern for all of it as in 'resnet*'."
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """List the names that can be asked for.

    models: what harvest, predict and others build by name. workloads: what was harvested, which
    predict answers without torch. devices: what was measured, with its boards. kinds: the kinds of
    operators that bench measures. algorithms: ways to convolve, for --algorithm.

    Neither torch nor a GPU is needed; workloads and devices are those of the database.
    """
    found = listing(what, pattern, db=db)
    show(found, as_json=as_json)
    for line in found.notes:
        note(line, quiet=quiet or as_json)
