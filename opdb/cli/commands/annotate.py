"""`opdb annotate`: a profile of torch's profiler, with the energy of its operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.api.annotations import annotate
from opdb.cli.support import options
from opdb.cli.support.console import show
from opdb.cli.support.files import save
from opdb.files import check_writable


def run(
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE", help="A trace of torch's profiler; also .gz.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The annotated trace, or in .gz."),
    ] = None,
    device: options.DeviceName = None,
    board: options.Board = None,
    out: options.Output = options.Output(),
) -> None:
    """Give the operators of a profile the energy that the database knows.

    The profile is made by torch.profiler with record_shapes=True on a GPU, and exported as Chrome
    trace JSON. Operators are found by name, shapes, dtypes and constants, else by the names of
    their kernels. The answer says what share of the device time is known, by which way, and the
    energy of it and of the whole.
    """
    if output is not None:
        check_writable(output)
    found = annotate(profile, device=device, board=board, db=out.db)
    if output is not None:
        save(output, found.to_bytes(compressed=output.suffix == ".gz"), quiet=out.quiet)
    show(found, as_json=out.as_json)
