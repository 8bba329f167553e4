"""Charts of answers: where a pass goes, predictions beside each other, costs of operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opdb.errors import InputError
from opdb.lookup.words import describe
from opdb.records import Quantity
from opdb.studies.charts import Bar, Panel, draw_bars

if TYPE_CHECKING:
    from opdb.api.predicted import Predicted
    from opdb.api.showing import Shown
    from opdb.studies.drawing import Drawing

MOST = 12
"""Bars of a chart; the rest of a pass is one more."""


def pass_chart(found: Predicted) -> Drawing:
    """Draw the shares of a pass's time and energy by kind, the largest first."""
    panels = []
    for title, of in (("time", "share_time"), ("energy", "share_energy")):
        shares: dict[str, float] = defaultdict(float)
        for part in found.prediction.parts:
            shares[part.configuration.title] += 100 * getattr(part, of)
        panels.append(Panel(title, "%", list(_largest(shares))))
    return draw_bars(panels, _title(found))


def _largest(shares: dict[str, float]) -> Iterator[Bar]:
    ordered = sorted(((k, v) for k, v in shares.items() if v > 0), key=lambda each: -each[1])
    yield from (Bar(*each) for each in ordered[:MOST])
    if len(ordered) > MOST:
        yield Bar("others", sum(share for _, share in ordered[MOST:]))


def predictions_chart(found: Sequence[Predicted]) -> Drawing:
    """Draw the predicted time and energy of a pass of each, with intervals.

    Raises:
        InputError: none has a time.
    """
    timed = [each for each in found if each.time_s is not None]
    if not timed:
        raise InputError("no prediction has a time, so there is nothing to draw")
    times = [Bar(_title(p), p.time_s or 0.0, p.prediction.time_interval_s) for p in timed]
    energies = [
        Bar(_title(each), each.energy_j, each.prediction.energy_interval_j)
        for each in timed
        if each.energy_j is not None
    ]
    panels = [Panel("time, 1 pass", "s", times)]
    panels += [Panel("energy, 1 pass", "J", energies)] if energies else []
    return draw_bars(panels, "predicted, with 95 % intervals")


def costs_chart(rows: Sequence[Shown], title: str) -> Drawing:
    """Draw the time and energy of one call of each operator, in the order of the rows."""
    panels = [
        Panel(
            name, unit, [_bar(row, held) for row in rows[:MOST] if (held := getattr(row.cost, of))]
        )
        for name, unit, of in (("time, 1 call", "s", "time_s"), ("energy, 1 call", "J", "energy_j"))
    ]
    return draw_bars([panel for panel in panels if panel.bars], title)


def _bar(row: Shown, held: Quantity) -> Bar:
    ends = None if held.low is None or held.high is None else (held.low, held.high)
    return Bar(f"{row.configuration.title} {row.configuration.key[:6]}", held.mean, ends)


def _title(found: Predicted) -> str:
    workload = found.prediction.workload
    return f"{workload.name}, {describe(workload)}, {found.prediction.mode}"
