"""`opdb measure`: whole models run and stored, the truth for predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args

import typer

from opdb.api.measures import Measured, MeasureOptions, measure_all
from opdb.api.trainings import Trainings, train_all
from opdb.cli.support import completing, options
from opdb.cli.support.console import Terminal, show
from opdb.cli.support.driving import TrainingArguments
from opdb.cli.support.selection import batch_sizes_among
from opdb.errors import InputError
from opdb.lookup.options import parse_mode
from opdb.lookup.requests import requests_named
from opdb.records import Mode

if TYPE_CHECKING:
    from opdb.models import ModelRequest


Modes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        autocompletion=completing.one_of(*get_args(Mode)),
        help="eager, graph, compile, compile:reduce-overhead, compile:max-autotune, dynamo or "
        "trace; may be repeated.  [default: eager]",
    ),
]

Repeats: TypeAlias = Annotated[
    int,
    typer.Option(
        "--repeats",
        "--repeat",
        metavar="N",
        min=1,
        help="Stretches to measure: of 1 s, in training of --iters.",
    ),
]


def run(
    models: Annotated[
        list[str],
        options.models("Model names or summary files."),
    ],
    modes: Modes = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Time each leaf module in place as well.")
    ] = False,
    repeats: Repeats = 3,
    batch_sizes: options.BatchSizes = None,
    said: options.MeasuredModelAtSizes = options.ModelArguments(),
    training: TrainingArguments = TrainingArguments(),
    device: options.MeasuredDevice = None,
    devices: options.Devices = None,
    out: options.Output = options.Output(),
) -> None:
    """Run whole models on this device and store time, power and energy of a pass.

    Random weights; batch-norm statistics calibrated by one pass. A summary file runs all of its
    batch sizes and variants, unless others are given here. Training (--phase training) runs a fixed
    number of iterations, on the model's example inputs or on a folder of images, and tells data
    loading and compute apart.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    of_models = training.with_layout(said.options).at_sizes(sizes)
    chosen = tuple(parse_mode(mode) for mode in modes or ["eager"])
    from opdb.store import check_openable

    check_openable(out.db)  # to load models takes seconds
    requests = [each for name in names for one in of_models for each in requests_named(name, one)]
    training.check(requests)
    display = Terminal(quiet=out.quiet)
    found: Trainings | Measured
    if _is_driven(requests, chosen, devices, layers):
        how = training.options(repeats, device)
        found = train_all(requests, how, db=out.db, display=display)
    else:
        if given := training.given():
            raise InputError(f"{given[0]} is for training runs in mode eager, on one device")
        asked = MeasureOptions(chosen, device, devices, repeats, layers)
        found = measure_all(requests, asked, db=out.db, display=display)
    if out.as_json or found.runs:
        show(found, as_json=out.as_json)
    found.check()


def _is_driven(
    requests: Sequence[ModelRequest], modes: Sequence[Mode], devices: str | None, layers: bool
) -> bool:
    """Whether requests are run as trainings are: all of them, eagerly, on one device."""
    training = all(request.training is not None for request in requests)
    return training and modes == ("eager",) and not devices and not layers
