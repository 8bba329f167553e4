"""The names that can be asked for: models, workloads, devices, kinds of operators, algorithms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter, contains
from typing import TYPE_CHECKING, Any

from opdb.errors import UnknownNameError
from opdb.lookup.words import workload_columns
from opdb.records import Board, Device, Json
from opdb.tables import Column, Report, Rows, Table

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.kinds import Kind
    from opdb.models.catalogue import CatalogueModel
    from opdb.store import Head


ListedBoard = tuple[Device, Board, int]
"""A device, one of its boards, and how many configurations that board measured."""

MODELS: Table[CatalogueModel] = Table(
    Column("model", attrgetter("name"), title="model"),
    Column("source", attrgetter("source"), title="source"),
    Column("what", attrgetter("what"), title="what it is"),
)

WORKLOADS: Table[Head] = Table(
    *workload_columns(lambda head: head.workload),
    Column(title="source", get=lambda head: head.workload.source),
    Column("calls", lambda head: head.calls, title="calls"),
    Column("configurations", lambda head: head.configurations, title="configurations"),
)

DEVICES: Table[ListedBoard] = Table(
    Column("device", lambda row: row[0].slug, title="device"),
    Column("name", lambda row: row[0].name, title="name"),
    Column("type", lambda row: row[0].type),
    Column("power_limit_w", lambda row: row[0].power_limit_w, title="power limit", unit="W"),
    Column("memory_bytes", lambda row: row[0].memory_bytes),
    Column("board", lambda row: row[1].uuid, title="board"),
    Column("configurations_measured", lambda row: row[2], title="configurations measured"),
)

KINDS: Table[Kind] = Table(
    Column("kind", attrgetter("name"), title="kind"),
    Column("arguments", attrgetter("spelled"), title="arguments"),
)

ALGORITHMS: Table[Algorithm] = Table(
    Column("algorithm", attrgetter("name"), title="algorithm"),
    Column("what", attrgetter("words"), title="what it is"),
)

SUBJECTS: Table[tuple[str, int]] = Table(
    Column("what", lambda row: row[0], title="what"),
    Column("entries", lambda row: row[1], title="entries"),
    Column(title="to see them", text=lambda row: f"opdb list {row[0]}"),
)
"""What can be listed, and how many entries it has."""


@dataclass(frozen=True, repr=False)
class Listing(Report):
    """The names found by subject; `what` is the subject that was asked for, None for all."""

    found: Mapping[str, Rows[Any]]
    what: str | None = None

    @property
    def notes(self) -> list[str]:
        """Where the names of models come from, and which packages would bring more."""
        from opdb.models.catalogue import not_installed

        if "models" not in self.found:
            return []
        counts = Counter(model.source for model in self.found["models"].rows)
        said = ", ".join(f"{count} from {source}" for source, count in counts.items()) or "none"
        return [
            f"models: {said}; a model of your own is named by its import path, as in "
            "mypackage.models:build",
            *(
                f"{each} is not installed here: install it for more names"
                for each in not_installed()
            ),
        ]

    def to_dict(self) -> Json:
        """Return what `opdb list --json` prints: a list of entries, or one a subject."""
        every = {what: found.table.documents(found.rows) for what, found in self.found.items()}
        return every if self.what is None else every[self.what]

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the entries of the subject asked for; of all, how many each has."""
        if self.what is not None:
            yield self.found[self.what]
        else:
            yield Rows(SUBJECTS, [(what, len(found.rows)) for what, found in self.found.items()])


def listing(
    what: str | None = None, pattern: str | None = None, *, db: str | None = None
) -> Listing:
    """List the names that can be asked for, as `opdb list` does; it needs no torch.

    `what` is models, workloads, devices, kinds or algorithms, None all of them. `pattern` is a part
    of a name, in any case, or has wildcards (* ? [) for the whole.

    Raises:
        UnknownNameError: there is no such subject, or nothing matches the pattern.
        InputError: the database cannot be opened.
    """
    if what is not None and what not in LISTED:
        raise UnknownNameError("subject of a list", what, LISTED)
    every = {each: LISTED[each](db) for each in LISTED if what in (None, each)}
    if pattern is None:
        return Listing(every, what)
    found = {each: _matching(rows, pattern.lower()) for each, rows in every.items()}
    if not any(rows.rows for rows in found.values()):
        known = {rows.table.cells(row)[0] for rows in every.values() for row in rows.rows}
        raise UnknownNameError("name" if what is None else what.removesuffix("s"), pattern, known)
    return Listing(found, what)


def _matching(every: Rows[Any], pattern: str) -> Rows[Any]:
    """Return the rows of which one of the first two cells matches a pattern in lower case."""
    matches = fnmatchcase if any(sign in pattern for sign in "*?[") else contains
    cells = [(row, every.table.cells(row)[:2]) for row in every.rows]
    kept = [row for row, texts in cells if any(matches(text.lower(), pattern) for text in texts)]
    return Rows(every.table, kept)


def _models(db: str | None) -> Rows[CatalogueModel]:
    from opdb.models.catalogue import catalogue

    return Rows(MODELS, catalogue())


def _workloads(db: str | None) -> Rows[Head]:
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        return Rows(WORKLOADS, [head for head in store.heads() if not head.swept])


def _devices(db: str | None) -> Rows[ListedBoard]:
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        measured = store.cost_counts()
        found = [(each, board) for each in store.devices() for board in store.boards(each.slug)]
    return Rows(DEVICES, [(each, board, measured.get(board.uuid, 0)) for each, board in found])


def _kinds(db: str | None) -> Rows[Kind]:
    from opdb import kinds

    return Rows(KINDS, sorted(kinds.KINDS.values(), key=attrgetter("name")))


def _algorithms(db: str | None) -> Rows[Algorithm]:
    from opdb.algorithms import names

    return Rows(ALGORITHMS, list(names.ALGORITHMS.values()))


LISTED: dict[str, Callable[[str | None], Rows[Any]]] = {
    "models": _models,
    "workloads": _workloads,
    "devices": _devices,
    "kinds": _kinds,
    "algorithms": _algorithms,
}
"""What can be listed, each from a database (URL) where it needs one."""
