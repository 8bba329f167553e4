"""Stages of a sweep, and the input sizes of each."""

from __future__ import annotations

from collections.abc import Sequence

from opdb.errors import InputError, UnknownNameError

FIRST, LAST = 224, 512
"""The smallest and the largest input size (pixels a side) of a stage."""

STAGES = {"sanity": 1, "quick": 10, "full": 100}
"""How many sizes each stage has. Each stage's sizes are among those of the next."""

MOST_SIZES = LAST - FIRST + 1


def check_stage(stage: str) -> None:
    """Check a stage's name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if stage not in STAGES:
        raise UnknownNameError("--stage", stage, STAGES)


def spread_sizes(count: int) -> list[int]:
    """Return so many sizes from `FIRST` to `LAST`: 224 + int(i·288 / (count - 1)).

    Raises:
        InputError: there are not so many.
    """
    if not 1 <= count <= MOST_SIZES:
        raise InputError(
            f"--num-sizes {count}: from {FIRST} to {LAST} pixels there are 1 to {MOST_SIZES} sizes"
        )
    if count == 1:
        return [FIRST]
    return [FIRST + int(i * (LAST - FIRST) / (count - 1)) for i in range(count)]


def parse_sizes(text: str) -> list[int]:
    """Read sizes such as 224,256,288: each once, in the order given.

    Raises:
        InputError: one of them is no size.
    """
    found = []
    for part in text.split(","):
        size = part.strip()
        if not size.isdecimal() or not 0 < int(size) < 2**20:
            raise InputError(f"--sizes {text!r}: {size!r} is no size; give pixels, as in 224,256")
        found.append(int(size))
    return list(dict.fromkeys(found))


def sizes_of(stage: str, count: int | None, sizes: Sequence[int] | None) -> list[int]:
    """Return the sizes of a stage, or so many, or those given, in their stead.

    Raises:
        InputError: both are given, or there are not so many.
        UnknownNameError: there is no such stage.
    """
    check_stage(stage)
    if count is not None and sizes is not None:
        raise InputError("--num-sizes and --sizes: give one of them")
    if sizes is not None:
        return list(sizes)
    return spread_sizes(STAGES[stage] if count is None else count)
