"""Options that come together: one parameter of a command stands for several options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Without:
    """In the annotation of a record of options: the fields that a command does not have."""

    def __init__(self, *names: str) -> None:
        self.names = names


def taken_apart(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are records of options are single options.

    A record is a dataclass whose fields are annotated as a command's parameters are; the command
    gets it made of what the user gave. Where it is annotated with `Without`, the fields named there
    are no options and keep their defaults.
    """
    hints = get_type_hints(run, include_extras=True)
    records: dict[str, tuple[Any, list[str]]] = {}
    parameters = []
    for each in signature(run).parameters.values():
        hint = hints[each.name]
        record, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if not is_dataclass(record):
            parameters.append(_parameter(each.name, each.default, hint))
            continue
        left_out = {name for extra in extras for name in extra.names}
        chosen = [one for one in fields(record) if one.name not in left_out]
        records[each.name] = record, [one.name for one in chosen]
        types = get_type_hints(record, include_extras=True)
        parameters += [_parameter(one.name, one.default, types[one.name]) for one in chosen]

    def called(**given: Any) -> None:
        for name, (record, chosen) in records.items():
            given[name] = record(**{one: given.pop(one) for one in chosen})
        run(**given)

    called.__doc__ = run.__doc__
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


def _parameter(name: str, default: Any, hint: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
