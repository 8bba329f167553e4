"""Harvests for all that measures: a stored one counts where it has the digest of today's code.

All that reads takes any stored workload instead: see `opdb.lookup.workloads`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from opdb.bench.around import Known, with_around
from opdb.bench.platform import Platform
from opdb.errors import OpdbError
from opdb.harvest import fingerprint, harvest_compiled
from opdb.lookup.harvesting import harvests_of
from opdb.lookup.words import note_harvest
from opdb.models import ModelRequest
from opdb.records import Harvest, Stored
from opdb.runs.progress import Progress
from opdb.store import Store

__all__ = ["Stored", "compile_into", "harvest_each", "harvest_into", "standing"]


def standing(store: Store, request: ModelRequest) -> Harvest | None:
    """Return what is stored of a request where a harvest would find just that, else None."""
    known = fingerprint(request)
    found = None if known is None else store.harvested(known)
    return None if found is None else Harvest(*found, fingerprint=known)


def harvest_into(
    store: Store,
    request: ModelRequest,
    *,
    anew: bool = False,
    swept: bool = False,
    around: Known | None = None,
) -> Stored:
    """Harvest a request and save what is found, unless it stands; with `anew` all the same.

    What only sweeps ask for (`swept`) calls nothing that `opdb bench` takes for pending. `around`
    is what was timed for requests before, and is added to.

    Raises:
        InputError: the model cannot be harvested.
    """
    saving = _Saving(store, Progress(), swept, {} if around is None else around)
    [stored] = _saved_each(saving, [request], anew, processes=1).values()
    if isinstance(stored, OpdbError):
        raise stored
    return stored


def harvest_each(
    store: Store,
    requests: Iterable[ModelRequest],
    shown: Progress | None = None,
    *,
    anew: bool = False,
    swept: bool = False,
    processes: int | None = 1,
) -> dict[str, Stored | OpdbError]:
    """Harvest each request and save what is found, unless it stands, as `harvest_into` does.

    Python around the calls is timed here, one model after the other, but not for sweeps.

    Returns what is stored of each request, or why nothing is, by the request's `repr`. `shown`
    hears of each request, and what is unusual about a workload. With `processes` None the models
    are harvested in several processes where that pays.
    """
    saving = _Saving(store, shown or Progress(), swept, {})
    return _saved_each(saving, requests, anew, processes)


@dataclass(frozen=True)
class _Saving:
    """Saves harvests; `around` is what is known of the Python around the calls."""

    store: Store
    shown: Progress
    swept: bool
    around: Known

    def saved(self, request: ModelRequest, found: Harvest, harvest_s: float | None) -> Stored:
        """Save a harvest that took some seconds; one that stands took None, and is asked for."""
        stale = 0
        if harvest_s is not None:
            found = found if self.swept else with_around(request, found, self.around)
            stale = self.store.save_workload(
                found.workload, found.captured, swept=self.swept, fingerprint=found.fingerprint
            )
            note_harvest(self.shown.note, found, stale)
        elif not self.swept:
            self.store.ask_for(found.workload)
        return Stored(found, stale, harvest_s)


def _saved_each(
    saving: _Saving, requests: Iterable[ModelRequest], anew: bool, processes: int | None
) -> dict[str, Stored | OpdbError]:
    def look(request: ModelRequest) -> Harvest | None:
        return None if anew else standing(saving.store, request)

    stored: dict[str, Stored | OpdbError] = {}
    for request, found, harvest_s in harvests_of(requests, look, saving.shown, processes):
        stored[repr(request)] = (
            found if isinstance(found, OpdbError) else saving.saved(request, found, harvest_s)
        )
    return stored


def compile_into(
    store: Store, request: ModelRequest, plain: Stored, platform: Platform, *, anew: bool = False
) -> Stored:
    """Compile what is stored of a request for a platform's device, unless that stands; save it.

    Raises:
        InputError: the model cannot be compiled, or is no inference without autocast.
        NotCompiledError: dynamo captures no graph of it.
        CannotMeasureError: this version of torch does not show what inductor makes.
    """
    known, slug = fingerprint(request), platform.device.slug
    found = None if anew or known is None else store.harvested(known, compiled_for=slug)
    started_s = time.monotonic()
    if found is not None:
        workload = found[0]
    else:
        device = platform.torch_device
        workload = harvest_compiled(request, plain.workload, device, slug)
        # Asked again: the pass may have imported what was not installed.
        store.save_workload(workload, fingerprint=fingerprint(request))
    compiled = Harvest(workload, failure=plain.found.failure)
    harvest_s = time.monotonic() - started_s if found is None else None
    return replace(plain, found=compiled, harvest_s=harvest_s)
