"""`opdb export`: a device's measurements as files that others can use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.api.sets import FORMS
from opdb.api.sets import export as api_export
from opdb.cli.support import completing, options
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
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=completing.one_of(*FORMS),
            help="csv: a set, which opdb import takes. parquet: flat tables with a card, for data "
            "hubs. sqlite: flat tables with views, for Datasette.",
        ),
    ] = "csv",
    licence: Annotated[
        str | None,
        typer.Option(
            "--licence",
            metavar="NAME",
            help="The licence to state, as in CC-BY-4.0.  [default: that of the sets that the "
            "measurements came from]",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write a device's measurements as files, with a manifest.

    The set holds the device's campaigns with all they saw, and every workload of which something
    was measured. Rows are in an order that keeps the difference between two versions small. The
    manifest has the checksum of each file, the licence, and what was measured with; opdb import
    holds the files against it.
    """
    found = api_export(folder, device=device, form=form, licence=licence, db=db)
    show(found, as_json=as_json)
