"""Differences between two sides, as people and machines read them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opdb.api.deciding import shown_value
from opdb.records import Configuration, Json
from opdb.tables import MISSING, Column, Rows, Table
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.api.comparisons import Difference, Quantity
    from opdb.predict.changes import Change, OperatorChange
    from opdb.predict.figures import Amount

SHOWN = 12
"""Operators that a person is shown; --json has all."""

_MOVED = {True: "yes", False: "no", None: MISSING}


def _value(amount: Amount | None, unit: str) -> str:
    if amount is None:
        return MISSING
    return show(amount.value, unit) if unit == "s" else shown_value(amount.value, unit)


def _percent(change: Change) -> str:
    ratio = change.ratio
    return MISSING if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _intervals(change: Change) -> str:
    return MISSING if change.intervals is None else f"{change.intervals:.2f}"


QUANTITIES: Table[Quantity] = Table(
    Column(title="", text=lambda row: row.name),
    Column(title="before", text=lambda row: _value(row.change.before, row.unit)),
    Column(title="after", text=lambda row: _value(row.change.after, row.unit)),
    Column(title="change", text=lambda row: _percent(row.change)),
    Column(title="intervals", text=lambda row: _intervals(row.change)),
    Column(title="moved", text=lambda row: _MOVED[row.change.moved]),
)

OPERATORS: Table[OperatorChange] = Table(
    Column(title="operator", text=lambda row: row.operator),
    Column(title="input", text=lambda row: _shape(row.configuration)),
    Column(title="calls", text=lambda row: _calls(row.calls)),
    Column(title="time before", text=lambda row: _value(row.time_s.before, "s")),
    Column(title="after", text=lambda row: _value(row.time_s.after, "s")),
    Column(title="difference", text=lambda row: show(row.time_s.difference, "s")),
    Column(title="change", text=lambda row: _percent(row.time_s)),
    Column(title="intervals", text=lambda row: _intervals(row.time_s)),
    Column(title="moved", text=lambda row: _MOVED[row.time_s.moved]),
    Column(title="energy", text=lambda row: show(row.energy_j.difference, "J")),
)


def difference_blocks(found: Difference) -> Iterator[str | Rows[Any]]:
    """Yield what people read of a difference."""
    yield f"{found.before} → {found.after}:"
    if found.quantities:
        yield Rows(QUANTITIES, list(found.quantities))
    if not any(row.time_s.difference or row.energy_j.difference for row in found.operators):
        yield f"nothing moved: {plural(len(found.operators), 'operator')} compared"
    elif found.quantities:
        of = "a sample" if found.by_sample else "a pass"
        yield f"operators that carry the difference, of {of}:"
        yield from _first(OPERATORS, found.operators)
    else:
        yield from _summary(found.operators)
        moved = [row for row in found.operators if row.time_s.moved or row.energy_j.moved]
        yield from _first(OPERATORS.without("calls"), moved)
    for count, where in zip(found.only, (found.before, found.after), strict=True):
        if count:
            yield f"only in {where}: {plural(count, 'configuration')}"


def _summary(rows: Sequence[OperatorChange]) -> Iterator[str]:
    """Say how many operators moved, and how far the usual one did."""
    for name, changes in (
        ("time", [row.time_s for row in rows]),
        ("energy", [row.energy_j for row in rows]),
    ):
        ratios = [change.ratio for change in changes if change.ratio is not None]
        if not ratios:
            continue
        more = sum(1 for c in changes if c.moved and (c.ratio or 1) > 1)
        less = sum(1 for c in changes if c.moved and (c.ratio or 1) < 1)
        yield (
            f"{name}: of {plural(len(ratios), 'operator')} {more} take more and {less} take less, "
            f"beyond the joint interval; median ratio {statistics.median(ratios):.3f}"
        )


def _first(
    table: Table[OperatorChange], rows: Sequence[OperatorChange]
) -> Iterator[str | Rows[Any]]:
    if rows:
        yield Rows(table, rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"… and {plural(len(rows) - SHOWN, 'more row')} (all with --json)"


def _shape(configuration: Configuration | None) -> str:
    first = None if configuration is None else next(iter(configuration.inputs.values()), None)
    while isinstance(first, list):
        first = first[0] if first else None
    return "x".join(map(str, first.get("shape", ()))) if isinstance(first, dict) else ""


def _calls(calls: tuple[int, int]) -> str:
    before, after = calls
    return str(before or "") if before == after else f"{before} → {after}"


def difference_document(found: Difference) -> dict[str, Json]:
    """Return a difference as JSON."""
    return {
        "before": found.before,
        "after": found.after,
        "quantities": [
            {"quantity": each.name, "unit": each.unit, **_changed(each.change)}
            for each in (*found.quantities, *found.judged)
        ],
        "operators": [
            {
                "operator": each.operator,
                "configuration": each.configuration and each.configuration.key,
                "calls": list(each.calls),
                "time_s": _changed(each.time_s),
                "energy_j": _changed(each.energy_j),
            }
            for each in found.operators
        ],
        "operators_of": "sample" if found.by_sample else "pass" if found.quantities else "call",
        "only": list(found.only),
    }


def _changed(change: Change) -> dict[str, Json]:
    parts = {"before": change.before, "after": change.after}
    values = {name: None if part is None else part.value for name, part in parts.items()}
    intervals = {
        f"{name}_interval": None if part is None or part.interval is None else list(part.interval)
        for name, part in parts.items()
    }
    return {
        **values,
        **intervals,
        "difference": change.difference,
        "ratio": change.ratio,
        "intervals": change.intervals,
        "moved": change.moved,
    }
