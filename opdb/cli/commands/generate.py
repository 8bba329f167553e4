"""`opdb generate`: time and energy of whole generations, by the token."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer

from opdb.api.generation_parts import Amounts
from opdb.api.generations import GenerationQuestion, generated
from opdb.api.predictions import Conditions
from opdb.cli.support import options
from opdb.cli.support.completing import one_of
from opdb.cli.support.console import note, show
from opdb.cli.support.records import Without
from opdb.garbage import gc_paused

_NOT_OF_IT = ("input_size", "memory_format", "phase", "optimizer", "grad_accum_steps", "autocast")


@gc_paused()
def run(
    model: Annotated[str, options.models("A causal decoder, or a summary file of one.")],
    prompt: Annotated[
        int, typer.Option("--prompt", metavar="N", help="Tokens of each sequence's prompt.")
    ],
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", help="New tokens of each sequence.")
    ],
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            autocompletion=one_of("graph", "eager"),
            help="How work is issued: graph or eager; may be repeated.  [default: both]",
        ),
    ] = None,
    said: Annotated[
        options.ModelArguments, Without(*_NOT_OF_IT, "context")
    ] = options.ModelArguments(),
    device: options.DeviceName = None,
    board: options.Board = None,
    estimates: options.Estimates = True,
    no_harvest: options.NoHarvest = False,
    out: options.Output = options.Output(),
) -> None:
    """Predict what a generation takes: time to first token, time and joules per token.

    One prefill reads the prompt and gives the first token; a step gives each further one. A step
    with a static cache depends on the cache's length alone; with a dynamic one on the length that
    is filled, so that steps at several lengths are predicted and interpolated in between.
    """
    conditions = Conditions(device, board, estimates, harvest=not no_harvest)
    modes = options.parse_modes(mode)
    with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
        asked = GenerationQuestion(model, said.options, Amounts(prompt, tokens), modes)
        found = generated(asked, conditions, db=out.db, tell=partial(note, quiet=out.quiet))
    show(found, as_json=out.as_json)
