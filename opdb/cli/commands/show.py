"""`opdb show`: what the configurations of a kind or a model cost, or a single one."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer

from opdb.api.predicted import Conditions, Question
from opdb.api.predictions import mode_for
from opdb.api.showing import SIGNS, SORTS, Look, shown
from opdb.cli.support import options
from opdb.cli.support.completing import one_of
from opdb.cli.support.console import note, show


def run(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A kind, a model, or a configuration's key.")
    ],
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="COLUMN",
            autocompletion=one_of(*SORTS),
            help=f"{', '.join(SORTS)}; the largest first.  [default: time]",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Rows to print; 0 for all.")
    ] = 20,
    mode: options.PredictedMode = "eager",
    said: options.ModelArguments = options.ModelArguments(),
    device: options.DeviceName = None,
    board: options.Board = None,
    no_harvest: options.NoHarvest = False,
    out: options.Output = options.Output(),
) -> None:
    """Show what operators cost: of a kind, of a model, or of one configuration.

    Each row is a configuration with its time, energy and power on one board, with intervals. A
    model's rows are its top consumers. A key is that of `opdb show KIND`, or its beginning.

    On a terminal that shows Unicode a small chart stands beside each row.
    """
    conditions = Conditions(device, board, harvest=not no_harvest)
    question = Question(what, said.options, mode_for(mode, conditions))
    look = Look(sort, top or None, sparklines=_draws_blocks())
    with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
        tell = partial(note, quiet=out.quiet)
        found = shown(question, conditions, look, db=out.db, tell=tell)
    show(found, as_json=out.as_json)


def _draws_blocks() -> bool:
    """Return whether stdout is a terminal whose encoding has block elements."""
    if not sys.stdout.isatty():
        return False
    try:
        SIGNS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
