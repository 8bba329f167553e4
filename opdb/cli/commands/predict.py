"""`opdb predict`: time and energy of a model from the costs of its operators."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from opdb.api.predicted import Compared, Conditions, Predicted
from opdb.api.predictions import ask_all, ask_one, mode_for
from opdb.cli.support import completing, deciding, forcing, layering, options
from opdb.cli.support.comparing import questions
from opdb.cli.support.console import note, print_json, show
from opdb.errors import CheckError, InputError
from opdb.garbage import gc_off_to_the_end
from opdb.lookup.words import describe

if TYPE_CHECKING:
    from opdb.predict import Answer


Modes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="MODE…",
        autocompletion=completing.predicted_modes,
        help="How work is issued: eager, graph, compile or compile:reduce-overhead.  "
        "[default: eager; graph where --algorithm forces one]",
    ),
]


@gc_off_to_the_end()
def run(
    models: Annotated[
        list[str],
        options.models("Names of models, or summary files of one."),
    ],
    target: options.Target = None,
    algorithm: options.OneAlgorithm = None,
    mode: Modes = None,
    batch_sizes: options.BatchSizes = None,
    said: options.ModelAtSizes = options.ModelArguments(),
    device: options.DeviceName = None,
    board: options.Board = None,
    estimates: options.Estimates = True,
    no_harvest: options.NoHarvest = False,
    layers: layering.LayersFlag = False,
    top: layering.Top = None,
    prices: deciding.Prices = deciding.Prices(),
    out: options.Output = options.Output(),
) -> None:
    """Predict time and energy of one pass of a model, with interval, coverage and what is missing.

    Where the model was measured on the same board, the measured truth stands beside it. A model
    that is not in the database is harvested first, which takes some seconds and needs torch.

    Several models, modes (--mode eager graph) or batch sizes (-b 1 32) come in one table; one that
    fails does not stop the others, and the exit status is then 2.

    With --algorithm convolutions cost what opdb bench conv2d --algorithm measured, each is shown,
    and what opdb sweep ran under that algorithm is the truth. What it cannot run is missing.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # estimates multiply small matrices
    check_share("--target", target)
    layering.check_top(top, layers=layers)
    by = forcing.one_algorithm(algorithm)
    conditions = Conditions(device, board, estimates, by, not no_harvest, layers, top, prices.rates)
    asked = questions(
        models, mode, batch_sizes, said.options, lambda text: mode_for(text, conditions)
    )
    if layers and len(asked) > 1:
        raise InputError(
            f"--layers is of one prediction, not of {len(asked)}: name one model, mode and batch "
            "size"
        )
    tell = partial(note, quiet=out.quiet)
    with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
        if len(asked) == 1:
            one = ask_one(asked[0], conditions, db=out.db, tell=tell)
        else:
            several = ask_all(asked, conditions, db=out.db, tell=tell)
    if len(asked) == 1:
        _show(one, target, as_json=out.as_json)
    else:
        _show_all(several, target, as_json=out.as_json)


def _show(found: Predicted, target: float | None, *, as_json: bool) -> None:
    """Print one prediction, and check it.

    Raises:
        CheckError: it misses the target.
    """
    if as_json:
        print_json(found.to_dict(target))
    else:
        show(found, as_json=False)
    if target is None:
        return
    if not found.answer.meets(target):
        raise CheckError(_why_missed(found.answer, target))
    if not as_json:
        print(f"target {target:g}: met")


def _show_all(found: Compared, target: float | None, *, as_json: bool) -> None:
    """Print the answers to several questions, and raise where some have none, or miss the target.

    Raises:
        InputError: a question failed.
        CheckError: an answer misses the target.
    """
    if as_json:
        print_json(found.to_dict(target))
    else:
        show(found, as_json=False)
    found.check()
    answers = [each.answer for each in found.predicted]
    missed = [a for a in answers if target is not None and not a.meets(target)]
    if target is not None and missed:
        raise CheckError("; ".join(_name_missed(answer, target) for answer in missed))


def _name_missed(answer: Answer, target: float) -> str:
    workload, mode = answer.prediction.workload, answer.prediction.mode
    return f"{workload.name}, {describe(workload)}, {mode}: {_why_missed(answer, target)}"


def check_share(option: str, value: float | None) -> None:
    """Check a share that an option gives.

    Raises:
        InputError: it is not between 0 and 1.
    """
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"{option} {value:g}: give a share between 0 and 1, such as 0.9")


def _why_missed(answer: Answer, target: float) -> str:
    prediction = answer.prediction
    why = []
    if prediction.workload.unsupported:
        why.append("the model makes calls that no operator describes")
    for name, share in prediction.coverages.items():
        if share < target:
            why.append(f"coverage of {name} is {share:.3f}")
    for name, ratio in (("time", answer.attribution_time), ("energy", answer.attribution_energy)):
        if ratio is not None and abs(ratio - 1) > 1 - target:
            why.append(f"attribution of {name} is {ratio:.3f}")
    return f"target {target:g} missed: " + ", ".join(why)
