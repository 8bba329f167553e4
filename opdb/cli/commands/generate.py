"""`opdb generate`: time and energy of whole generations, by the token."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from opdb.api.generation_curves import GenerationCurves, curves
from opdb.api.generation_parts import FIGURES, Amounts
from opdb.api.generations import MODES, GenerationQuestion, generated
from opdb.api.predicted import Conditions
from opdb.cli.support import options
from opdb.cli.support.comparing import split
from opdb.cli.support.completing import one_of
from opdb.cli.support.console import note, show
from opdb.cli.support.files import save, typed_command
from opdb.cli.support.records import Without
from opdb.errors import InputError
from opdb.files import check_writable
from opdb.garbage import gc_off_to_the_end
from opdb.lookup.options import ModelOptions

_NOT_OF_IT = ("input_size", "memory_format", "phase", "optimizer", "grad_accum_steps", "autocast")


@dataclass(frozen=True)
class CurveFiles:
    """The files that are written, where they are asked for."""

    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write a row for each point and mode."),
    ] = None
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="FILE", help="Draw time and joules per token, as PNG."),
    ] = None
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="The same figure as SVG."),
    ] = None

    def check(self) -> None:
        """Check before the work that the files can be written.

        Raises:
            InputError: one cannot.
        """
        for path in filter(None, (self.csv, self.png, self.svg)):
            check_writable(path)

    def write(self, found: GenerationCurves, *, quiet: bool) -> None:
        """Write those that are asked for; a figure of nothing is left out.

        Raises:
            InputError: one cannot be written, or matplotlib is not installed.
        """
        if self.csv is not None:
            save(self.csv, found.csv(), quiet=quiet)
        if (self.png or self.svg) and found.generations:
            from opdb.studies.generation_figure import draw

            drawing = draw(_lines(found), f"{found.model}, {found.dtype}", typed_command())
            for path, content in ((self.png, drawing.png), (self.svg, drawing.svg)):
                if path is not None:
                    save(path, content, quiet=quiet)


def _lines(found: GenerationCurves) -> dict[str, list[tuple[int, float | None, float | None]]]:
    """Return, of each prompt and mode, batch sizes with seconds and joules of an output token."""
    figures = {figure.name: figure for figure in FIGURES}
    time = figures["time_per_output_token_s"]
    energy = figures["energy_per_output_token_j"]
    lines: dict[str, list[tuple[int, float | None, float | None]]] = {}
    for each in found.generations:
        point = (each.batch_size, time.value(each)[0], energy.value(each)[0])
        lines.setdefault(f"prompt {each.amounts.prompt}, {each.mode}", []).append(point)
    return lines


Prompts: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--prompt",
        metavar="N…",
        help="Tokens of each sequence's prompt; several as in 128,512.",
    ),
]
Tokens: TypeAlias = Annotated[
    int, typer.Option("--tokens", metavar="N", help="New tokens of each sequence.")
]
Modes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="MODE…",
        autocompletion=one_of("graph", "eager"),
        help="How work is issued: graph or eager; may be repeated.  [default: both]",
    ),
]


@gc_off_to_the_end()
def run(
    model: Annotated[str, options.models("A causal decoder, or a summary file of one.")],
    prompt: Prompts,
    tokens: Tokens,
    batch_sizes: options.BatchSizes = None,
    mode: Modes = None,
    said: Annotated[
        options.ModelArguments, Without("batch_size", *_NOT_OF_IT, "context", "max_new_tokens")
    ] = options.ModelArguments(),
    device: options.DeviceName = None,
    board: options.Board = None,
    estimates: options.Estimates = True,
    no_harvest: options.NoHarvest = False,
    files: CurveFiles = CurveFiles(),
    out: options.Output = options.Output(),
) -> None:
    """Predict what a generation takes: time to first token, time and joules per token.

    One prefill reads the prompt and gives the first token; a step gives each further one. A step
    with a static cache depends on the cache's length alone; with a dynamic one on the length that
    is filled, so that steps at several lengths are predicted and interpolated in between.

    Several batch sizes or prompts come in one table, which --csv, --png and --svg write; a point
    that has no answer does not stop the others, and the exit status is then 2.
    """
    conditions = Conditions(device, board, estimates, harvest=not no_harvest)
    modes = options.parse_modes(mode) or MODES
    prompts = _prompts(prompt)
    batches = options.parse_batch_sizes(batch_sizes)
    files.check()
    first = replace(said.options, batch_size=batches[0] if batches else None)
    asked = GenerationQuestion(model, first, Amounts(prompts[0], tokens), modes)
    several = len(prompts) > 1 or len(batches) > 1 or files != CurveFiles()
    tell = partial(note, quiet=out.quiet)
    if not several:
        with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
            one = generated(asked, conditions, db=out.db, tell=tell)
        show(one, as_json=out.as_json)
        _say_dtype(one.dtype, first, quiet=out.quiet)
        return
    for each in prompts:
        Amounts(each, tokens).check()
    with redirect_stdout(sys.stderr):
        found = curves(asked, batches, prompts, conditions, db=out.db, tell=tell)
    files.write(found, quiet=out.quiet or out.as_json)
    show(found, as_json=out.as_json)
    _say_dtype(found.dtype, first, quiet=out.quiet)
    found.check()


def _say_dtype(taken: str, said: ModelOptions, *, quiet: bool) -> None:
    """Say that the default of all models was taken, where decoders seldom run in it."""
    if said.dtype is None and taken == "float32":
        note(
            "this is float32, the default; to ask for what most run: --dtype bfloat16", quiet=quiet
        )


def _prompts(given: list[str]) -> list[int]:
    """Read the lengths of prompts, each option's separated by commas.

    Raises:
        InputError: one is no whole number.
    """
    found = []
    for text in split(given):
        if not re.fullmatch(r"-?[0-9]{1,10}", text):
            raise InputError(f"--prompt {text!r}: give whole numbers, as in 128 or 128,512")
        found.append(int(text))
    return list(dict.fromkeys(found))
