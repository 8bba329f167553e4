"""`opdb export`: a device's measurements as a set of CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.cli import options
from opdb.cli.console import print_json, print_table
from opdb.errors import InputError


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
    from opdb.predict import choose_device
    from opdb.store import open_store
    from opdb.store.exchange import export_set

    with open_store(db, create=False) as store:
        if device is None:
            known = [found.slug for found in store.devices()]
            if len(known) > 1:
                listed = ", ".join(known)
                raise InputError(
                    f"{store.location} holds {len(known)} devices ({listed}); name one with "
                    "--device"
                )
            device = choose_device(store, None).slug
        rows = export_set(store, folder, device=device)
    if as_json:
        print_json({"folder": str(folder), "device": device, "rows": rows})
    else:
        print(f"{device} written to {folder}")
        print_table(("file", "rows"), [(f"{name}.csv", count) for name, count in rows.items()])
