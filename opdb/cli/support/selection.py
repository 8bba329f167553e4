"""What commands say of the models that they are given: notes of harvests, batch sizes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from opdb.cli.support.console import note
from opdb.cli.support.options import parse_batch_sizes
from opdb.errors import InputError
from opdb.lookup.options import ModelOptions
from opdb.lookup.words import lookup_notes
from opdb.lookup.workloads import find_workload
from opdb.records import Mode, Stored

if TYPE_CHECKING:
    from opdb.store import Store

NUMBERS = re.compile(r"[+-]?[\d.,]+")


def found_workload(
    store: Store, name: str, options: ModelOptions, mode: Mode, *, harvest: bool, quiet: bool
) -> Stored:
    """Return what `find_workload` finds; say on stderr what was harvested.

    Raises:
        InputError: it is not known, cannot be harvested, or is not stored and not to be harvested.
    """
    with redirect_stdout(sys.stderr):  # models print: stdout is for what a command says
        found = find_workload(store, name, options, mode, harvest=harvest)
    for line in lookup_notes(found, store.location):
        note(line, quiet=quiet)
    return found


def check_named(store: Store, device: str | None, board: str | None) -> None:
    """Check that there is such a device and board, before a harvest takes its time.

    Raises:
        InputError: there is none.
    """
    from opdb.predict import predictor_for

    predictor = predictor_for(store, device)
    if board is not None:
        predictor.board(board)


def batch_sizes_among(
    models: Sequence[str], given: Sequence[str] | None, *, needed: bool = True
) -> tuple[list[str], list[int]]:
    """Return models and batch sizes: numbers among the models follow a first batch size.

    Raises:
        InputError: a batch size is no whole number of 1 or more, or a needed model is missing.
    """
    if needed and not models:
        raise InputError("no model is named")
    if given is None:
        return list(models), []
    names = [name for name in models if not NUMBERS.fullmatch(name)]
    sizes = parse_batch_sizes([*given, *(each for each in models if each not in names)])
    if needed and not names:
        raise InputError("no model is named, only batch sizes")
    return names, sizes
