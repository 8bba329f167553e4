"""`opdb export`: a device's measurements as a set of CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.api.sets import export as api_export
from opdb.cli.support import options
from opdb.cli.support.console import show


def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write the set into.")],
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="A device as opdb status names it.  [default: the only one]",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write a device's measurements as CSV files.

    The set holds the device's campaigns with all they saw, and every workload of which something
    was measured. Rows are in an order that keeps the difference between two versions small.
    """
    found = api_export(folder, device=device, db=db)
    show(found, as_json=as_json)
