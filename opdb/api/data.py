"""The data that predictions rest on: which sets, from where, under which licence, how old."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opdb.records import Json
from opdb.tables import Column, Report, Rows, Table
from opdb.units import show

if TYPE_CHECKING:
    from opdb.store.origins import Origin

DATE = slice(0, 10)
"""The day in a moment of ISO 8601."""


def _samples(origin: Origin) -> str:
    """Return of how many visits the raw samples are there, in words."""
    if not origin.sampled + origin.left_out:
        return "–"
    if not origin.left_out:
        return "all"
    return f"of {origin.sampled} visits" if origin.sampled else "none"


def _span(origin: Origin) -> str:
    """Return the days of the first and last campaign."""
    if origin.first is None or origin.last is None:
        return "–"
    days = dict.fromkeys((origin.first[DATE], origin.last[DATE]))
    return " to ".join(days)


def _versions(origin: Origin) -> str:
    """Return what the set was measured with, in words."""
    said = (f"{name} {' and '.join(found)}" for name, found in origin.versions.items() if found)
    return ", ".join(said) or "–"


def _size(origin: Origin) -> str:
    size = origin.size_bytes
    return "–" if size is None else show(size, "B", digits=3)


SETS: Table[Origin] = Table(
    Column("name", lambda origin: origin.name, title="set"),
    Column("from", lambda origin: origin.place, title="from"),
    Column("folder", lambda origin: None if origin.folder is None else str(origin.folder)),
    Column("taken_in", lambda origin: origin.taken_in),
    Column("licence", lambda origin: origin.licence, title="licence"),
    Column("devices", lambda origin: list(origin.devices)),
    Column(title="device", text=lambda origin: ", ".join(origin.devices) or "–"),
    Column("boards", lambda origin: list(origin.boards)),
    Column(title="boards", text=lambda origin: len(origin.boards)),
    Column("campaigns", lambda origin: origin.campaigns),
    Column("workloads", lambda origin: origin.workloads, title="workloads"),
    Column("configurations", lambda origin: origin.configurations, title="configurations"),
    Column("visits", lambda origin: origin.visits, title="visits"),
    Column("model_runs", lambda origin: origin.model_runs, title="model runs"),
    Column("visits_with_samples", lambda origin: origin.sampled),
    Column("visits_without_samples", lambda origin: origin.left_out),
    Column(title="raw samples", text=_samples),
    Column("measured_from", lambda origin: origin.first),
    Column("measured_to", lambda origin: origin.last),
    Column(title="measured", text=_span),
    Column("versions", lambda origin: {k: list(v) for k, v in origin.versions.items()}),
    Column(title="with", text=_versions),
    Column("size_bytes", lambda origin: origin.size_bytes),
    Column(title="size", text=_size),
)
"""A set and where it came from."""


@dataclass(frozen=True, repr=False)
class Data(Report):
    """The sets that a database's measurements came from, and those that it can take in."""

    location: str
    size_bytes: int | None
    sets: Sequence[Origin]

    def to_dict(self) -> Json:
        """Return what `opdb data --json` prints."""
        place: Json = {"location": self.location, "size_bytes": self.size_bytes}
        return {"database": place, "sets": SETS.documents(self.sets)}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the database, a row a set, and what there is to say of some."""
        size = "" if self.size_bytes is None else f", {show(self.size_bytes, 'B', digits=3)}"
        yield f"database {self.location}{size}"
        if not self.sets:
            yield "no measurements; opdb import or opdb bench brings them"
            return
        yield Rows(SETS, self.sets)
        if waiting := [each.name for each in self.sets if not each.taken_in]:
            yield (
                "not in the database until a command asks for sweeps, or names their device: "
                + ", ".join(waiting)
            )
        if any(each.left_out for each in self.sets):
            yield (
                "raw samples that an installed opdb leaves out are in the folder db/ of a clone; "
                "opdb derive and opdb export need them, predictions do not"
            )


def data(*, db: str | None = None) -> Data:
    """Say which sets a database holds, from where, under which licence, how old.

    Raises:
        InputError: the database cannot be opened.
    """
    from opdb.store import open_store
    from opdb.store.origins import origins

    is_default = db is None and not os.environ.get("OPDB_DB")
    with open_store(db, create=False) as store:
        found = origins(store, waiting=is_default)
        size = store.path.stat().st_size if store.path is not None else None
        return Data(store.location, size, found)
