"""`opdb compare`: what moved between models, modes, dtypes, batch sizes, boards or databases."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated, Any, TypeAlias

import typer

from opdb.api.comparisons import Choices, compared
from opdb.api.predicted import Conditions
from opdb.cli.support import completing, deciding, options
from opdb.cli.support.comparing import split, words_among
from opdb.cli.support.console import note, show
from opdb.cli.support.records import Without
from opdb.errors import InputError
from opdb.garbage import gc_off_to_the_end
from opdb.models import DTYPES


def _several(option: str, metavar: str, text: str, completed: Any = None) -> Any:
    """Return an option that takes several values; a shell completes those that are listed."""
    text = f"{text}; several with commas between them."
    return typer.Option(option, metavar=metavar, autocompletion=completed, help=text)


Modes: TypeAlias = Annotated[
    list[str] | None,
    _several(
        "--mode", "MODE…", "How work is issued, as in eager graph", completing.predicted_modes
    ),
]

Dtypes: TypeAlias = Annotated[
    list[str] | None,
    _several("--dtype", "DTYPE…", "Dtypes, as in float32,bfloat16", completing.one_of(*DTYPES)),
]

Within: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--within",
        metavar="SHARE",
        help="Exit 1 if time or energy of a sample grow by more, beyond the joint interval.",
    ),
]

Against: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="URL",
        help="Another database to compare with --db; both may be folders of published sets.",
    ),
]


@gc_off_to_the_end()
def run(
    models: Annotated[
        list[str] | None,
        options.models("Models; none to compare two databases."),
    ] = None,
    mode: Modes = None,
    batch_sizes: options.BatchSizes = None,
    dtype: Dtypes = None,
    algorithm: Annotated[
        list[str] | None, _several("--algorithm", "NAME…", "Algorithms of convolutions")
    ] = None,
    board: Annotated[
        list[str] | None, _several("--board", "UUID…", "Boards, by the beginning of their UUID")
    ] = None,
    device: Annotated[
        list[str] | None, _several("--device", "DEVICE…", "Devices, as opdb status names them")
    ] = None,
    against: Against = None,
    within: Within = None,
    said: Annotated[
        options.ModelArguments, Without("dtype", "batch_size")
    ] = options.ModelArguments(),
    estimates: options.Estimates = True,
    no_harvest: options.NoHarvest = False,
    prices: deciding.Prices = deciding.Prices(),
    out: options.Output = options.Output(),
) -> None:
    """Say what moved between two sides, by how many intervals, and which operators carry it.

    The first of models, modes, dtypes, batch sizes, algorithms, boards and devices that has several
    values is compared: its first value with each other one. With --against it is two databases, as
    before and after an upgrade; without a model, all operators that both measured.

    A quantity moved where it changed by more than both 95 % intervals together.
    """
    if within is not None and not within >= 0:
        raise InputError(f"--within {within:g}: give a share of 0 or more, such as 0.05")
    conditions = Conditions(estimates=estimates, harvest=not no_harvest, rates=prices.rates)
    named, modes, sizes = words_among(models or (), mode, batch_sizes)
    others = (split(dtype), sizes, split(algorithm), split(board), split(device))
    choices = Choices(named, modes, *others, against)
    choices.check_sides(said.options, conditions)
    with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
        tell = partial(note, quiet=out.quiet)
        found = compared(choices, said.options, conditions, db=out.db, tell=tell)
    show(found, as_json=out.as_json)
    found.check()
    if within is not None:
        found.check_within(within)
