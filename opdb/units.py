"""Units at the edge: storage is base SI, people read milliseconds and millijoules."""

from __future__ import annotations

from datetime import timedelta

MILLI = 1e-3
MICRO = 1e-6
MEGA = 1e6

_PREFIXES = (
    *((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")),
    *((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")),
)


def show(value: float | None, unit: str, *, digits: int = 4) -> str:
    """Format a base-SI value with the SI prefix that suits it, e.g. ``show(0.00123, "s")``.

    A missing value is shown as an en dash, never as 0.
    """
    if value is None:
        return "–"
    if value == 0:
        return f"0 {unit}"
    scale, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), (1.0, ""))
    return f"{rounded(value / scale, digits)} {prefix}{unit}"


def rounded(value: float, digits: int) -> str:
    """Return a number of so many digits that count, spelled out: 250, not 2.5e+02."""
    return f"{float(f'{value:.{digits}g}'):g}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return a number before its noun, ``1 board`` or ``2 boards``.

    `many` is the plural where it is not `one` + s.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def show_share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def show_duration(seconds: float) -> str:
    """Format a waiting time as hours, minutes and seconds: ``0:03:05``."""
    return str(timedelta(seconds=round(seconds)))


def show_ratio(ratio: float | None, inside: bool | None) -> str:
    """Return predicted / measured as people read it, and that the interval misses what was."""
    return "–" if ratio is None else f"{ratio:.3f}{', outside' if inside is False else ''}"


def short_board(uuid: str) -> str:
    """Return the beginning of a board's UUID, which tells it from most others."""
    return uuid[:12]
