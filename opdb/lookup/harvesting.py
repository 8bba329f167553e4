"""The harvests of many requests: what is known of them already, and the rest harvested now.

Importing it imports no torch; only a harvest does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from opdb.errors import DatabaseError, OpdbError
from opdb.lookup.words import describe
from opdb.models import ModelRequest, missing_library
from opdb.records import Harvest
from opdb.runs.progress import Progress


def harvests_of(
    requests: Iterable[ModelRequest],
    look: Callable[[ModelRequest], Harvest | None],
    shown: Progress | None = None,
    processes: int | None = 1,
) -> Iterator[tuple[ModelRequest, Harvest | OpdbError, float | None]]:
    """Yield each request once, with its harvest or why there is none, and what that took.

    That is in seconds, None of a harvest that `look` found. A request that fails does not stop the
    others. `shown` hears of each. With `processes` None, models are harvested in several processes
    where that pays.

    Raises:
        DatabaseError: `look` cannot read the database.
        OpdbError: torch, with which models are harvested, is not installed.
    """
    shown = shown or Progress()
    distinct = list({repr(request): request for request in requests}.values())
    known = [_looked_up(look, request) for request in distinct]
    lacking = [request for request, found in zip(distinct, known, strict=True) if found is None]
    harvests = _gathered(lacking, processes)
    for request, found in zip(distinct, known, strict=True):
        shown.doing(f"{request.name} {describe(request)}")
        started_s = time.monotonic()
        if found is None:
            yield request, next(harvests), time.monotonic() - started_s
        else:
            yield request, found, None
        shown.done()


def _looked_up(
    look: Callable[[ModelRequest], Harvest | None], request: ModelRequest
) -> Harvest | OpdbError | None:
    try:
        return look(request)
    except DatabaseError:
        raise
    except OpdbError as error:
        return error


def _gathered(
    requests: Sequence[ModelRequest], processes: int | None
) -> Iterator[Harvest | OpdbError]:
    if not requests:
        return iter(())
    try:
        from opdb.harvest.gather import gather
    except ModuleNotFoundError as error:
        raise missing_library(error, f"to harvest {requests[0].name!r}") from error
    return gather(requests, processes)
