"""`opdb fx`: the FX graphs that dynamo captures, each node with its operator's measured cost."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli.support import options
from opdb.cli.support.console import show
from opdb.cli.support.files import save
from opdb.cli.support.selection import check_named
from opdb.errors import InputError, NoDatabaseError
from opdb.files import check_writable
from opdb.lookup.requests import checked_request

if TYPE_CHECKING:
    from opdb.harvest.graphs import ModelGraphs
    from opdb.models import ModelRequest
    from opdb.studies.fx import FxGraphs


def run(
    model: Annotated[
        str,
        options.models("A model's name or summary file."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the graphs to a file."),
    ] = None,
    said: options.InferenceModel = options.ModelArguments(),
    device: options.DeviceName = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="UUID",
            help="Costs of this board; the beginning of its UUID will do.  [default: the one that "
            "has most of them]",
        ),
    ] = None,
    out: options.Output = options.Output(),
) -> None:
    """Show the graphs that torch.compile's dynamo captures from a model, as text.

    Each line that calls an operator ends with its kind and what one call takes on the device, as
    far as it was measured. Where dynamo breaks off, why and at which line of code. Captured
    without weights and without a GPU, on the meta device, or on the CPU where values decide.
    """
    request = checked_request(model, said.options)
    if request.phase != "inference":
        raise InputError(f"graphs of {request.name!r} are those of inference; this is training")
    if output is not None:
        check_writable(output)
    report = _report(request, out.db, device, board)
    if output is not None:
        save(output, report.text(), quiet=out.quiet or out.as_json)
    if out.as_json or output is not None:
        show(report, as_json=out.as_json)
    else:
        print(report.text(), end="")


def _report(
    request: ModelRequest, db: str | None, device: str | None, board: str | None
) -> FxGraphs:
    """Capture a model's graphs, with costs where there is a database.

    Raises:
        InputError: the model cannot be captured, or there is no such device or board.
        NoDatabaseError: a database, a device or a board is named, and there is none.
    """
    from opdb.store import open_store
    from opdb.studies.fx import Costs, FxGraphs, costs_of

    try:
        store = open_store(db, create=False)
    except NoDatabaseError as error:
        if any(named is not None for named in (db, device, board)):
            raise
        found, costs = _captured(request), Costs(reason=str(error))
    else:
        with store:
            if device is not None or board is not None:
                check_named(store, device, board)
            found = _captured(request)
            costs = costs_of(store, found, device, board)
    return FxGraphs(replace(request, batch_size=found.batch_size), found, costs)


def _captured(request: ModelRequest) -> ModelGraphs:
    """Capture a model's graphs; what it prints goes to stderr, for stdout is for the text."""
    from opdb.harvest.graphs import model_graphs

    with redirect_stdout(sys.stderr):
        return model_graphs(request)
