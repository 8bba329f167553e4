"""The parts of a prediction that were not measured, as people read them: estimated or missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opdb.records import Quantity
from opdb.tables import Rows, of_cells
from opdb.units import plural, show, show_share

if TYPE_CHECKING:
    from opdb.compose import EstimatedShare, Share

SHOWN = 12
"""Rows of a list that a person is shown; --json has all."""

_SHARES = ("kind", "calls", "share of time", "share of energy")


def estimated_blocks(estimated: Sequence[EstimatedShare]) -> Iterator[str | Rows[Any]]:
    """Yield what rests on estimates, the largest shares first; nothing where nothing does."""
    if estimated:
        yield "estimated from operators that were measured:"
        rows = [(*_share_row(share), _spread(share.cost.time_s)) for share in estimated]
        yield from first_rows((*_SHARES, "time of a call"), rows)


def missing_blocks(missing: Sequence[Share]) -> Iterator[str | Rows[Any]]:
    """Yield what has no cost, the largest shares first; nothing where all has one."""
    if missing:
        yield "not measured and not estimated (shares from FLOPs and bytes):"
        yield from first_rows(_SHARES, [_share_row(share) for share in missing])


def first_rows(
    header: Sequence[str], rows: Sequence[Sequence[object]]
) -> Iterator[str | Rows[Any]]:
    """Yield the first rows of a list of configurations, and how many more there are."""
    yield Rows(of_cells(*header), rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"… and {plural(len(rows) - SHOWN, 'more configuration')} (all with --json)"


def _spread(quantity: Quantity | None) -> str:
    if quantity is None or quantity.low is None or quantity.high is None:
        return show(None, "s")
    return f"{show(quantity.low, 's')} to {show(quantity.high, 's')}"


def _share_row(share: Share) -> tuple[str, int, str, str]:
    return (
        share.configuration.title,
        share.count,
        show_share(share.share_time),
        show_share(share.share_energy),
    )
