"""`opdb report`: one HTML page of what the database knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.api.reports import report
from opdb.cli.support import options
from opdb.cli.support.console import show
from opdb.cli.support.files import save
from opdb.files import check_writable
from opdb.garbage import gc_off_to_the_end


@gc_off_to_the_end()
def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Models of the database.  [default: all]"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    device: options.DeviceName = None,
    out: options.Output = options.Output(),
) -> None:
    """Write one HTML page of what the database knows: it opens from disk, without a network.

    It has predictions beside measured runs, where the time and energy of each run go, rooflines,
    coverage and what is missing. Tables can be sorted, filtered and saved as CSV, figures as SVG.
    """
    check_writable(output)
    found = report(*(models or []), device=device, db=out.db)
    save(output, found.html, quiet=out.quiet or out.as_json)
    show(found, as_json=out.as_json)
