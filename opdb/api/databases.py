"""Two databases compared: a driver, torch or board before and after a change."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.api.differences import Difference
from opdb.errors import InputError

if TYPE_CHECKING:
    from opdb.predict import Predictor


@contextmanager
def sets_as_databases(*named: str | None) -> Iterator[list[str | None]]:
    """Yield databases in place of those named that are folders of published sets.

    They are there until the block ends, in temporary files.

    Raises:
        InputError: a folder is not a set.
    """
    from opdb.store import open_store
    from opdb.store.exchange import import_set

    with ExitStack() as undo:
        found: list[str | None] = []
        for name in named:
            if name is not None and Path(name).is_dir():
                above = undo.enter_context(tempfile.TemporaryDirectory(prefix="opdb-"))
                place = str(Path(above, f"{Path(name).resolve().name}.sqlite"))
                with open_store(place) as store:
                    import_set(store, Path(name))
                name = place
            found.append(name)
        yield found


def common_device(db: str | None, against: str, named: Sequence[str]) -> str:
    """Return the device that both databases are compared on: the one named, else the first's.

    Raises:
        InputError: several are named, or one of the databases has nothing of it.
    """
    from opdb.predict import choose_device
    from opdb.store import open_store

    if len(set(named)) > 1:
        raise InputError("--against compares databases on one device: give --device once")
    with open_store(db, create=False) as store:
        slug = choose_device(store, named[0] if named else None).slug
        first = store.location
    with open_store(against, create=False) as store:
        known = [device.slug for device in store.devices()]
        if slug not in known:
            has = f"only {', '.join(known)}" if known else "and of no other one"
            raise InputError(
                f"--against {store.location} holds nothing of {slug!r}, which {first} is about, "
                f"{has}; --device names another one"
            )
    return slug


def database_difference(
    db: str | None, against: str, device: str, boards: Sequence[str]
) -> Difference:
    """Return what a call of each operator costs in both databases.

    Of each database it is the board named (of two `boards` one each), else one that both have, else
    the one that measured most; what only other boards measured is brought over by factors.

    Raises:
        InputError: nothing was measured in one of them, or both have no operator in common.
    """
    from opdb.lookup.words import short_board
    from opdb.predict import predictor_for
    from opdb.predict.changes import cost_changes
    from opdb.store import open_store

    with open_store(db, create=False) as old, open_store(against, create=False) as new:
        stores = (old, new)
        predictors = [predictor_for(store, device, estimates=False) for store in stores]
        chosen = _boards(predictors, boards)
        measured = []
        for store, predictor, board in zip(stores, predictors, chosen, strict=True):
            every = {each.key: each for each in store.configurations()}
            costs = predictor.costs_on(board, list(every.values()))
            measured.append({key: (every[key], cost) for key, cost in costs.items()})
        places = [
            f"{store.location}, on {short_board(board)}"
            for store, board in zip(stores, chosen, strict=True)
        ]
    both = [configuration for key, (configuration, _) in measured[0].items() if key in measured[1]]
    if not both:
        raise InputError(f"{places[0]} and {places[1]} have no measured operator in common")
    before, after = ({key: cost for key, (_, cost) in each.items()} for each in measured)
    only = len(before.keys() - after.keys()), len(after.keys() - before.keys())
    return Difference(places[0], places[1], (), cost_changes(both, before, after), only=only)


def _boards(predictors: Sequence[Predictor], named: Sequence[str]) -> list[str]:
    """Return a board for each database.

    Raises:
        InputError: one is named that is not there.
        NothingMeasuredError: nothing was measured in one of them.
    """
    if named:
        return [p.board(name) for p, name in zip(predictors, [named[0], named[-1]], strict=True)]
    chosen = [predictor.most_measured() for predictor in predictors]
    for predictor, board in zip(predictors, reversed(chosen), strict=True):
        if board in predictor.boards:
            return [board, board]
    return chosen
