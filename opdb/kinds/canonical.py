"""Rewrite arguments so that equal calls become equal text."""

from __future__ import annotations

from opdb.kinds.registry import Canonical
from opdb.kinds.view import is_spec
from opdb.records import Json

Arguments = dict[str, Json]


def spread(rank: int, **defaults: Json) -> Canonical:
    """Return a rewriter that spreads numbers to `rank` entries and drops them at the default.

    A default of None spreads without dropping.
    """

    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        spread_now(parameters, rank, **defaults)

    return rewrite


def spread_now(parameters: Arguments, rank: int, **defaults: Json) -> None:
    """Spread numbers to `rank` entries and drop them at the default."""
    for name, default in defaults.items():
        value = parameters.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = [value] * rank
        if value is None:
            continue
        parameters[name] = value
        if default is not None and value == [default] * rank:
            del parameters[name]


def count_dims(extra: int = 0, of: str = "input", **defaults: Json) -> Canonical:
    """Return a rewriter that counts dimensions from the start: the last of four is 3.

    A dimension at its default is dropped, however it was counted. `extra` is 1 where the output
    has one more dimension than the input (stack, unsqueeze).
    """

    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        value = inputs.get(of)
        first = value[0] if isinstance(value, list) and value else value
        if not is_spec(first):
            return
        rank = len(first["shape"]) + extra
        for name, default in defaults.items():
            if name not in parameters:
                continue
            parameters[name] = _nonnegative(parameters[name], rank)
            if default is not None and parameters[name] == _nonnegative(default, rank):
                del parameters[name]

    return rewrite


def _nonnegative(value: Json, rank: int) -> Json:
    if isinstance(value, list):
        return [_nonnegative(item, rank) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return value + rank
    return value


def chain(*steps: Canonical) -> Canonical:
    """Return a rewriter that takes the steps in order."""

    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        for step in steps:
            step(parameters, inputs)

    return rewrite


def drop_unless(condition: str, *names: str) -> Canonical:
    """Return a rewriter that drops parameters without effect where `condition` is false."""

    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        if not parameters.get(condition):
            for name in names:
                parameters.pop(name, None)

    return rewrite


def drop(name: str, value: Json) -> Canonical:
    """Return a rewriter that drops a parameter at a value that means its default."""

    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        if name in parameters and repr(parameters[name]) == repr(value):
            del parameters[name]

    return rewrite


def listed(name: str) -> Canonical:
    """Return a rewriter that makes a whole number a list of one."""

    def rewrite(parameters: Arguments, inputs: Arguments) -> None:
        if isinstance(parameters.get(name), int):
            parameters[name] = [parameters[name]]

    return rewrite
