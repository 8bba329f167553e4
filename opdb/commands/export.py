"""`opdb export`: a device's measurements as a set for others, or as plain tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.cli import options
from opdb.errors import InputError
from opdb.tables import Column, Listing, Rows, Table

PANEL = "data"

TABLES: Table[tuple[str, int]] = Table(
    Column("table", lambda row: row[0], title="table"),
    Column("rows", lambda row: row[1], title="rows"),
)


def export(
    folder: str | Path,
    *,
    device: str | None = None,
    licence: str | None = None,
    csv: bool = False,
    db: str | None = None,
) -> Listing:
    """Write a device's measurements into a folder, as `opdb export FOLDER` does.

    `device` may be left out where the database holds only one. `licence` is stated in the manifest;
    when None, that of the sets that the measurements came from. With `csv` the folder gets one flat
    file a table, for pandas and for people, which nothing reads back.
    """
    from opdb.predict.predictor import choose_device
    from opdb.store import open_store
    from opdb.store.opening import about_set
    from opdb.store.sets import export_csv, export_set

    folder = Path(folder)
    with open_store(db, create=False) as store:
        known = [found.slug for found in store.devices()]
        if device is None and len(known) > 1:
            raise InputError(
                f"{store.location} holds {len(known)} devices ({', '.join(known)}); name one "
                "with --device"
            )
        device = choose_device(store, device).slug
        if csv:
            counts = export_csv(store, folder, device=device)
        else:
            about = about_set(store, device, licence)
            counts = export_set(store, folder, device=device, about=about)
    document = {"folder": str(folder), "device": device, "rows": counts}
    return Listing(document, [f"{device} written to {folder}", Rows(TABLES, list(counts.items()))])


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
    csv: Annotated[
        bool, typer.Option("--csv", help="Write flat CSV tables for other programs, and no set.")
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """Write a device's measurements as a set that others can import, or as CSV.

    A set holds the device's campaigns with all they saw, and every workload of which something was
    measured: a database (set.sqlite.xz), the raw samples beside it, and a manifest with checksums,
    the licence, and what was measured with; opdb import holds the files against it.
    """
    out.answer(export(folder, device=device, licence=licence, csv=csv, db=out.db))
