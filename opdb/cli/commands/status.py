"""`opdb status`: what is in the database, what is measured, what is pending, what failed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.api.model_status import model_status
from opdb.api.status import jobs as api_jobs
from opdb.api.status import status
from opdb.cli.support import options
from opdb.cli.support.console import show
from opdb.errors import InputError
from opdb.garbage import gc_off_to_the_end


@gc_off_to_the_end()
def run(
    device: options.EveryDevice = None,
    jobs: Annotated[
        Path | None,
        typer.Option("--jobs", metavar="FOLDER", help="The jobs that opdb submit left there."),
    ] = None,
    models: Annotated[
        bool,
        typer.Option("--models", help="Each model: how much is measured, how right it was."),
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what is measured, pending and failed.

    A configuration is pending on a device until a visit measured it or found that it cannot be.
    With --jobs, what became of each job of a cluster. With --models, what can be predicted now
    on a device, and how right that was where models were measured whole.
    """
    if jobs is not None and models:
        raise InputError("--jobs and --models: one at a time")
    if models:
        show(model_status(device=device, db=db), as_json=as_json)
    else:
        show(status(device=device, db=db) if jobs is None else api_jobs(jobs), as_json=as_json)
