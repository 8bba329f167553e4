"""What `opdb predict` and `opdb compare` are asked of several models, modes and batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

from opdb.api.predicted import Question
from opdb.cli.support.selection import batch_sizes_among
from opdb.lookup.options import ModelOptions
from opdb.records import Mode

if TYPE_CHECKING:
    pass


def questions(
    given: Sequence[str],
    modes: Sequence[str] | None,
    batch_sizes: Sequence[str] | None,
    said: ModelOptions,
    parse: Callable[[str | None], Mode],
) -> list[Question]:
    """Return each model in each mode at each batch size.

    Modes and batch sizes among the models follow a first one that was given: `--mode eager graph`.

    Raises:
        InputError: there is no such mode, a batch size is none, or no model is named.
    """
    named, texts, sizes = words_among(given, modes, batch_sizes)
    chosen = dict.fromkeys(map(parse, texts)) or {parse(None): None}
    return [
        Question(model, of_model, mode)
        for model in dict.fromkeys(named)
        for mode in chosen
        for of_model in said.at_sizes(sizes)
    ]


def words_among(
    given: Sequence[str], modes: Sequence[str] | None, batch_sizes: Sequence[str] | None
) -> tuple[list[str], list[str], list[int]]:
    """Return models, modes and batch sizes: such words among the models follow a first one.

    Raises:
        InputError: a batch size is none, or no model is named beside it.
    """
    following = [each for each in given if modes and each in get_args(Mode)]
    left = [m for m in given if m not in following]
    named, sizes = batch_sizes_among(left, batch_sizes, needed=bool(given))
    return named, split(modes, following), sizes


def split(given: Sequence[str] | None, following: Sequence[str] = ()) -> list[str]:
    """Return the values of an option that takes several, separated by commas or given again."""
    return [text.strip() for each in (*(given or ()), *following) for text in each.split(",")]
