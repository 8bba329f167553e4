"""`opdb export`: a device's measurements as files that others can use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.api.sets import export as api_export
from opdb.cli import options
from opdb.cli.console import show

PANEL = "data"


def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write the set into.")],
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="A device, such as nvidia-h200, 'NVIDIA H200' or h200.  [default: the only one]",
        ),
    ] = None,
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
    found = api_export(folder, device=device, licence=licence, db=db)
    show(found, as_json=as_json)
