"""`opdb trace`: a predicted pass as a trace that Perfetto and profilers' tools open."""

from __future__ import annotations

import gzip
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from opdb.api.predicted import Conditions, Question
from opdb.api.predictions import mode_for
from opdb.api.traces import traced
from opdb.cli.support import options
from opdb.cli.support.console import note, show
from opdb.cli.support.files import save
from opdb.errors import InputError
from opdb.files import check_writable


def run(
    model: Annotated[
        str,
        options.models("A model, or a summary file."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The trace; .gz compresses it.")
    ] = Path("trace.json"),
    inductor: Annotated[
        bool,
        typer.Option("--inductor", help="Write what Inductor's profile-guided estimates read."),
    ] = False,
    chakra: Annotated[
        bool,
        typer.Option("--chakra", help="Write a Chakra execution trace (MLCommons) instead."),
    ] = False,
    mode: options.PredictedMode = "eager",
    said: options.ModelArguments = options.ModelArguments(),
    device: options.DeviceName = None,
    board: options.Board = None,
    estimates: options.Estimates = True,
    no_harvest: options.NoHarvest = False,
    out: options.Output = options.Output(),
) -> None:
    """Write the predicted pass of a model as Chrome trace JSON.

    It opens in Perfetto (ui.perfetto.dev) and in tools that read traces of torch's profiler. One
    track holds the host's queue, one the device's, one the power of the board. Each slice of the
    device has its operator, cost, interval, FLOPs and bytes. They add up to the prediction.
    """
    check_writable(output)
    compressed = output.suffix == ".gz"
    if inductor and chakra:
        raise InputError("give --inductor or --chakra, not both")
    if inductor and compressed:
        raise InputError(f"{output}: Inductor reads profiles that are not compressed")
    conditions = Conditions(device, board, estimates, harvest=not no_harvest)
    question = Question(model, said.options, mode_for(mode, conditions))
    with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
        found = traced(question, conditions, db=out.db, tell=partial(note, quiet=out.quiet))
        written = found.inductor() if inductor else None
    if written is not None:
        save(output, written.to_bytes(), quiet=out.quiet)
        note(written.said, quiet=out.quiet)
    elif chakra:
        content = found.chakra()
        save(output, gzip.compress(content, mtime=0) if compressed else content, quiet=out.quiet)
    else:
        save(output, found.to_bytes(compressed=compressed), quiet=out.quiet)
    show(found, as_json=out.as_json)
