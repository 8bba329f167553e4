"""Objects that a pass leaves in a model: a table of positions, a cache that the first call fills.

A model is measured pass after pass, so calls of its first pass alone are not part of it.
"""

from __future__ import annotations

from torch import nn

_BY_VALUE = (int, float, str)


def held(model: nn.Module) -> list[object]:
    """Return what the attributes of a model's modules hold, with what their containers hold.

    While the list is kept, no object that is made later can be taken for one of these.
    """
    found: list[object] = []
    for module in model.modules():
        for value in vars(module).values():
            found.append(value)
            if isinstance(value, dict):
                found += (*value, *value.values())
            elif isinstance(value, (list, tuple, set)):
                found += value
    return found


def differ(before: list[object], after: list[object]) -> bool:
    """Whether two times a model held other objects; numbers and texts count by their value."""
    return len(before) != len(after) or not all(map(_same, before, after))


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    # of one type: a tensor in the place of a number has no answer to whether it equals it
    return type(one) is type(other) and isinstance(one, _BY_VALUE) and one == other
