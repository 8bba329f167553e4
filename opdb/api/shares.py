"""Shares of a prediction: tables of its configurations, measured, estimated or without a cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from opdb.api.documents import quantity_document
from opdb.records import Configuration, Json, Quantity
from opdb.tables import SHARE, Column, Row, Rows, Table
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.compose import EstimatedShare, Prediction, Share

SHOWN = 12
"""Rows of a list that a person is shown; --json has all."""


def share_columns(of: Callable[[Row], Share]) -> tuple[Column[Row], ...]:
    """Return the columns of a configuration's share of a prediction, its kind first."""

    def configuration(row: Row) -> Configuration:
        return of(row).configuration

    return (
        Column(
            "kind",
            lambda row: configuration(row).kind,
            title="kind",
            text=lambda row: configuration(row).title,
        ),
        Column("pass", lambda row: configuration(row).pass_name),
        Column("configuration", lambda row: configuration(row).key),
        Column("count", lambda row: of(row).count, title="calls"),
        Column("share_time", lambda row: of(row).share_time, title="share of time", unit=SHARE),
        Column(
            "share_energy", lambda row: of(row).share_energy, title="share of energy", unit=SHARE
        ),
    )


def _spread(quantity: Quantity | None) -> str:
    if quantity is None or quantity.low is None or quantity.high is None:
        return show(None, "s")
    return f"{show(quantity.low, 's')} to {show(quantity.high, 's')}"


def _share_of(row: tuple[Share, str | None]) -> Share:
    return row[0]


SHARES: Table[Share] = Table(*share_columns(lambda share: share))
"""A configuration's share of a prediction."""

REFUSED: Table[tuple[Share, str | None]] = Table(
    *share_columns(_share_of), Column("reason", itemgetter(1))
)
"""A share without a cost, and why a forced algorithm cannot run it."""

OPERATORS: Table[tuple[Share, str | None]] = Table(
    *share_columns(_share_of),
    Column("what", lambda row: row[0].configuration.title),
    Column("status", itemgetter(1)),
)
"""A share, and whether its cost is measured, estimated or missing."""


def _estimated(share: EstimatedShare) -> Share:
    return share


def _rests_on(share: EstimatedShare) -> str:
    return next((flag for flag in share.cost.flags if flag != "estimated"), "alike")


def _host_times(share: EstimatedShare) -> dict[str, Json]:
    return {form: quantity_document(time_s) for form, time_s in share.cost.host_time_s.items()}


ESTIMATED: Table[EstimatedShare] = Table(
    *share_columns(_estimated),
    Column("rests_on", _rests_on),
    Column(
        "time_s",
        lambda share: quantity_document(share.cost.time_s),
        title="time of a call",
        text=lambda share: _spread(share.cost.time_s),
    ),
    Column("dynamic_energy_j", lambda share: quantity_document(share.cost.dynamic_energy_j)),
    Column("host_time_s", _host_times),
)
"""A share that rests on an estimate, and the estimate."""


def with_status(found: Prediction) -> list[tuple[Share, str | None]]:
    """Return each share of a prediction with the status of its cost, the longest first."""
    status = dict.fromkeys((s.configuration.key for s in found.estimated), "estimated")
    status |= dict.fromkeys((s.configuration.key for s in found.missing), "missing")
    every = {s.configuration.key: s for s in (*found.parts, *found.estimated, *found.missing)}
    ranked = sorted(every.values(), key=lambda share: share.share_time, reverse=True)
    return [(share, status.get(share.configuration.key, "measured")) for share in ranked]


def with_reasons(
    missing: Sequence[Share], refused: Mapping[str, str]
) -> list[tuple[Share, str | None]]:
    """Return each share without a cost with why an algorithm refuses it; None where it does not."""
    return [(share, refused.get(share.configuration.key)) for share in missing]


def estimated_blocks(estimated: Sequence[EstimatedShare]) -> Iterator[str | Rows[Any]]:
    """Yield what rests on estimates, the largest shares first; nothing where nothing does."""
    if estimated:
        yield "estimated from operators that were measured:"
        yield from first_rows(ESTIMATED, estimated)


def missing_blocks(missing: Sequence[Share]) -> Iterator[str | Rows[Any]]:
    """Yield what has no cost, the largest shares first; nothing where all has one."""
    if missing:
        yield "not measured and not estimated (shares from FLOPs and bytes):"
        yield from first_rows(SHARES, missing)


def first_rows(table: Table[Row], rows: Sequence[Row]) -> Iterator[str | Rows[Any]]:
    """Yield the first rows of a list of configurations, and how many more there are."""
    yield Rows(table, rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"… and {plural(len(rows) - SHOWN, 'more configuration')} (all with --json)"
