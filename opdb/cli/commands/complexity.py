"""`opdb complexity`: what models hold and do, counted: parameters, activations, FLOPs, bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli.support import options
from opdb.cli.support.console import progress, show
from opdb.cli.support.files import save
from opdb.cli.support.selection import batch_sizes_among
from opdb.errors import OpdbError, raise_all
from opdb.files import check_writable
from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import checked_request, requests_in, summary_files
from opdb.lookup.words import describe

if TYPE_CHECKING:
    from opdb.models import ModelRequest
    from opdb.studies.complexity import Complexities


def run(
    models: Annotated[
        list[str],
        options.models("Summary files, folders of them, or model names."),
    ],
    batch_sizes: options.BatchSizes = None,
    said: options.PhaseModelAtSizes = options.ModelArguments(),
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write a row for each configuration, and one of kind 'all' for each workload.",
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Nothing is read from it: models are counted."),
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Count what models hold and do: parameters, activation bytes, FLOPs, bytes moved.

    Nothing is measured, and neither weights nor a GPU are needed. FLOPs count a multiply-add as
    2. Bytes are those that must move at least: each input and weight of a call read once, each
    output written once. Activations are the outputs that room is made for.

    Training is the forward and the backward pass. The backward pass of a convolution or a matrix
    product costs two forwards (one where its input needs no gradient, as an image), that of a norm
    two, that of anything else that computes one. Adding up gradients where a tensor is used more
    than once is not counted, nor is the optimizer.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    requests = [request for name in names for request in _requests(name, sizes, said.options)]
    if csv_file is not None:
        check_writable(csv_file)
    found, errors = _count(requests, quiet=quiet)
    if csv_file is not None:
        save(csv_file, found.csv(), quiet=quiet or as_json)
    show(found, as_json=as_json)
    raise_all(errors, "shown")


def _count(requests: list[ModelRequest], *, quiet: bool) -> tuple[Complexities, list[OpdbError]]:
    """Count every workload; the errors of those that fail are kept for the end."""
    from opdb.studies.complexity import Complexities, complexity

    found = []
    errors: list[OpdbError] = []
    with progress(len(requests), "count", quiet=quiet) as shown:
        for request in requests:
            shown.doing(f"{request.name} {describe(request)}")
            try:
                found.append(complexity(request))
            except OpdbError as error:
                errors.append(error)
            shown.done()
    return Complexities(found), errors


def _requests(name: str, sizes: list[int], said: ModelOptions) -> list[ModelRequest]:
    wanted = said.at_sizes(sizes)
    files = summary_files(name)
    if files:
        requests = [each for file in files for one in wanted for each in requests_in(file, one)]
    else:
        requests = [checked_request(name, one) for one in wanted]
    return [request.checked() for request in requests]
