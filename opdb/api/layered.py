"""A prediction layer by layer: its tables, and what people read of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opdb.predict.layers import Layer, Layers, Part
from opdb.records import Json
from opdb.tables import SHARE, Column, Rows, Table

_COSTS: tuple[Column[Any], ...] = (
    Column("time_s", lambda row: row.time_s, title="time", unit="s"),
    Column("share_time", lambda row: row.share_time, title="share of time", unit=SHARE),
    Column("energy_j", lambda row: row.energy_j, title="energy", unit="J"),
)


def _module(row: Layer | Part) -> str:
    return (row.path or "(model)") if isinstance(row, Layer) else row.what


LAYERS: Table[Any] = Table(
    Column("path", lambda row: row.path, title="module", text=_module),
    Column(
        "kind",
        lambda row: row.configuration.kind,
        title="kind",
        text=lambda row: row.configuration.title if isinstance(row, Layer) else "",
    ),
    Column("pass", lambda row: row.configuration.pass_name),
    Column("configuration", lambda row: row.configuration.key),
    Column(
        "shape",
        lambda row: row.shape,
        title="shape",
        text=lambda row: "x".join(map(str, row.shape or ())) if isinstance(row, Layer) else "",
    ),
    Column(
        "status",
        lambda row: row.status,
        title="cost",
        text=lambda row: row.status if isinstance(row, Layer) else "",
    ),
    Column(
        "count",
        lambda row: row.count,
        title="calls",
        text=lambda row: "" if row.count is None else row.count,
    ),
    *_COSTS,
    Column("dynamic_energy_j", lambda row: row.dynamic_energy_j),
)
"""A layer; people read other parts of the pass below the layers, and their sum."""

REST: Table[Part] = Table(Column("what", lambda part: part.what), *_COSTS)
"""A part of a pass beside its calls."""


def layers_document(found: Layers) -> dict[str, Json]:
    """Return the layers, and the rest of the pass, as JSON."""
    return {"layers": LAYERS.documents(found.layers), "rest": REST.documents(found.rest)}


def layers_blocks(found: Layers, top: int | None) -> Iterator[str | Rows[Any]]:
    """Yield the layers in their order, what a pass takes beside them, and the sum."""
    shown = found.longest(top)
    rows: list[Layer | Part] = [*shown]
    kept = {id(each) for each in shown}
    if hidden := [each for each in found.layers if id(each) not in kept]:
        rows.append(found.together(f"{len(hidden)} other layers", hidden))
    rows += [each for each in found.rest if each.time_s]
    rows.append(found.together("sum", [*found.layers, *found.rest]))
    yield "layer by layer:"
    yield Rows(LAYERS, rows)
