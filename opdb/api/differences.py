"""Differences between two sides, as people and machines read them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opdb.api.deciding import shown_amount
from opdb.records import Configuration, Json
from opdb.tables import MISSING, Column, Rows, Table
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.predict.changes import Change, OperatorChange
    from opdb.predict.figures import Amount

SHOWN = 12
"""Operators that a person is shown; --json has all."""

_MOVED = {True: "yes", False: "no", None: MISSING}


@dataclass(frozen=True)
class Quantity:
    """A quantity of a pass before and after, as `opdb predict` names it; `unit` may be empty."""

    name: str
    unit: str
    change: Change


@dataclass(frozen=True)
class Difference:
    """What moved between two sides, each told in words, and the operators that carry it.

    `judged` are the time and the energy of a sample, by which a regression is told. Of two
    databases without models there are operators alone, and `only` counts the configurations that
    just one of them has. Operators of passes of unequal size are those of a sample (`by_sample`).
    """

    before: str
    after: str
    quantities: Sequence[Quantity]
    operators: Sequence[OperatorChange]
    judged: Sequence[Quantity] = ()
    only: tuple[int, int] = (0, 0)
    by_sample: bool = False

    def regressions(self, within: float) -> list[str]:
        """Return in words what takes more than a share more, beyond the joint interval."""
        operators = [
            Quantity(f"{name} of {each.operator}", "", change)
            for each in (() if self.judged else self.operators)
            for name, change in (("time", each.time_s), ("energy", each.energy_j))
        ]
        found = []
        for each in (*self.judged, *operators):
            ratio, change = each.change.ratio, each.change
            if ratio is not None and ratio > 1 + within and change.moved is not False:
                unsure = "" if change.moved else " (no interval)"
                found.append(f"{each.name} is {ratio:.3f} times as large{unsure}")
        return found


def _percent(change: Change) -> str:
    ratio = change.ratio
    return MISSING if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _intervals(change: Change) -> str:
    return MISSING if change.intervals is None else f"{change.intervals:.2f}"


def _interval(amount: Amount | None) -> list[float] | None:
    return None if amount is None or amount.interval is None else list(amount.interval)


CHANGE: Table[Quantity] = Table(
    Column(
        "before",
        lambda row: row.change.before and row.change.before.value,
        title="before",
        text=lambda row: shown_amount(row.change.before, row.unit),
    ),
    Column(
        "after",
        lambda row: row.change.after and row.change.after.value,
        title="after",
        text=lambda row: shown_amount(row.change.after, row.unit),
    ),
    Column("before_interval", lambda row: _interval(row.change.before)),
    Column("after_interval", lambda row: _interval(row.change.after)),
    Column("difference", lambda row: row.change.difference),
    Column(
        "ratio",
        lambda row: row.change.ratio,
        title="change",
        text=lambda row: _percent(row.change),
    ),
    Column(
        "intervals",
        lambda row: row.change.intervals,
        title="intervals",
        text=lambda row: _intervals(row.change),
    ),
    Column(
        "moved",
        lambda row: row.change.moved,
        title="moved",
        text=lambda row: _MOVED[row.change.moved],
    ),
)
"""A quantity before and after, without its name."""

QUANTITIES: Table[Quantity] = Table(
    Column("quantity", lambda row: row.name, title=""),
    Column("unit", lambda row: row.unit),
    *CHANGE.columns,
)
"""A quantity of a pass before and after."""

OPERATORS: Table[OperatorChange] = Table(
    Column("operator", lambda row: row.operator, title="operator"),
    Column(
        "configuration",
        lambda row: row.configuration and row.configuration.key,
        title="input",
        text=lambda row: _shape(row.configuration),
    ),
    Column("calls", lambda row: list(row.calls), title="calls", text=lambda row: _calls(row.calls)),
    Column("time_s", lambda row: CHANGE.document(Quantity("time", "s", row.time_s))),
    Column(title="time before", text=lambda row: shown_amount(row.time_s.before, "s")),
    Column(title="after", text=lambda row: shown_amount(row.time_s.after, "s")),
    Column(title="difference", text=lambda row: show(row.time_s.difference, "s")),
    Column(title="change", text=lambda row: _percent(row.time_s)),
    Column(title="intervals", text=lambda row: _intervals(row.time_s)),
    Column(title="moved", text=lambda row: _MOVED[row.time_s.moved]),
    Column(
        "energy_j",
        lambda row: CHANGE.document(Quantity("energy", "J", row.energy_j)),
        title="energy",
        text=lambda row: show(row.energy_j.difference, "J"),
    ),
)
"""What the calls of an operator take, before and after."""


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
        "quantities": QUANTITIES.documents((*found.quantities, *found.judged)),
        "operators": OPERATORS.documents(found.operators),
        "operators_of": "sample" if found.by_sample else "pass" if found.quantities else "call",
        "only": list(found.only),
    }
