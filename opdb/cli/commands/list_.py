"""`opdb list`: the names that other commands can be asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli.support import options
from opdb.cli.support.console import note, print_json, print_table
from opdb.errors import UnknownNameError
from opdb.lookup.words import describe, identity
from opdb.records import Json
from opdb.units import show

if TYPE_CHECKING:
    from opdb.store import Store


@dataclass(frozen=True)
class Listing:
    """Rows of one subject: a document each for JSON, and the cells of a table."""

    header: tuple[str, ...]
    documents: Sequence[dict[str, Json]]
    cells: Sequence[tuple[object, ...]]

    def matching(self, pattern: str | None) -> Listing:
        """Return the rows of which one of the first two cells matches a pattern, None all.

        A pattern is a part of the text, in any case, or has wildcards (* ? [) for the whole.
        """
        if pattern is None:
            return self
        wanted = pattern.lower()
        wildcards = any(sign in wanted for sign in "*?[")

        def matches(row: Sequence[object]) -> bool:
            texts = [str(cell).lower() for cell in row[:2]]
            if wildcards:
                return any(fnmatchcase(text, wanted) for text in texts)
            return any(wanted in text for text in texts)

        kept = [number for number, row in enumerate(self.cells) if matches(row)]
        return Listing(
            self.header, [self.documents[n] for n in kept], [self.cells[n] for n in kept]
        )


def run(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="models, workloads, devices, kinds or algorithms.  [default: how many of each]",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="FILTER", help="Part of a name, or a pattern for all of it as in 'resnet*'."
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """List the names that can be asked for.

    models: what harvest, predict and others build by name. workloads: what was harvested, which
    predict answers without torch. devices: what was measured, with its boards. kinds: the kinds of
    operators that bench measures. algorithms: ways to convolve, for --algorithm.

    Neither torch nor a GPU is needed; workloads and devices are those of the database.
    """
    if what is not None and what not in LISTINGS:
        raise UnknownNameError("subject of a list", what, LISTINGS)
    asked = [what] if what is not None else list(LISTINGS)
    every = {each: LISTINGS[each](db) for each in asked}
    found = {each: listing.matching(pattern) for each, listing in every.items()}
    if pattern is not None and not any(listing.cells for listing in found.values()):
        known = {str(row[0]) for listing in every.values() for row in listing.cells}
        raise UnknownNameError("name" if what is None else what.removesuffix("s"), pattern, known)
    if as_json:
        documents: dict[str, Json] = {each: list(found[each].documents) for each in asked}
        print_json(documents if what is None else documents[what])
    elif what is not None:
        print_table(found[what].header, found[what].cells)
    else:
        rows = [(each, len(found[each].cells), f"opdb list {each}") for each in asked]
        print_table(("what", "entries", "to see them"), rows)
    if "models" in found:
        _note_models(found["models"], quiet=quiet or as_json)


def _note_models(listed: Listing, *, quiet: bool) -> None:
    """Say how many names come from where, and which packages would bring more."""
    from opdb.models.catalogue import not_installed

    counts = Counter(str(document["source"]) for document in listed.documents)
    said = ", ".join(f"{count} from {source}" for source, count in counts.items())
    note(
        f"models: {said or 'none'}; a model of your own is named by its import path, as in "
        "mypackage.models:build",
        quiet=quiet,
    )
    for package in not_installed():
        note(f"{package} is not installed here: install it for more names", quiet=quiet)


def _models(db: str | None) -> Listing:
    from opdb.models.catalogue import catalogue

    models = catalogue()
    return Listing(
        ("model", "source", "what it is"),
        [{"model": each.name, "source": each.source, "what": each.what} for each in models],
        [(each.name, each.source, each.what) for each in models],
    )


def _workloads(db: str | None) -> Listing:
    with _opened(db) as store:
        heads = [head for head in store.heads() if not head.swept]
    return Listing(
        ("model", "workload", "source", "calls", "configurations"),
        [
            {
                **identity(head.workload),
                "calls": head.calls,
                "configurations": head.configurations,
            }
            for head in heads
        ],
        [
            (w.name, describe(w), w.source, head.calls, head.configurations)
            for head in heads
            for w in [head.workload]
        ],
    )


def _devices(db: str | None) -> Listing:
    with _opened(db) as store:
        measured = store.cost_counts()
        found = [(each, board) for each in store.devices() for board in store.boards(each.slug)]
    return Listing(
        ("device", "name", "power limit", "board", "configurations measured"),
        [
            {
                "device": device.slug,
                "name": device.name,
                "type": device.type,
                "power_limit_w": device.power_limit_w,
                "memory_bytes": device.memory_bytes,
                "board": board.uuid,
                "configurations_measured": measured.get(board.uuid, 0),
            }
            for device, board in found
        ],
        [
            (
                device.slug,
                device.name,
                show(device.power_limit_w, "W"),
                board.uuid,
                measured.get(board.uuid, 0),
            )
            for device, board in found
        ],
    )


def _kinds(db: str | None) -> Listing:
    from opdb.kinds import KINDS

    kinds = sorted(KINDS.values(), key=lambda kind: kind.name)
    return Listing(
        ("kind", "arguments"),
        [{"kind": each.name, "arguments": each.spelled} for each in kinds],
        [(each.name, each.spelled) for each in kinds],
    )


def _algorithms(db: str | None) -> Listing:
    from opdb.algorithms.names import ALGORITHMS

    return Listing(
        ("algorithm", "what it is"),
        [{"algorithm": each.name, "what": each.words} for each in ALGORITHMS.values()],
        [(each.name, each.words) for each in ALGORITHMS.values()],
    )


def _opened(db: str | None) -> Store:
    from opdb.store import open_store

    return open_store(db, create=False)


LISTINGS: dict[str, Callable[[str | None], Listing]] = {
    "models": _models,
    "workloads": _workloads,
    "devices": _devices,
    "kinds": _kinds,
    "algorithms": _algorithms,
}
"""What can be listed, each from a database (URL) where it needs one."""
