"""Harvests for all that measures: a stored one counts where it has the digest of today's code.

All that reads takes any stored workload instead: see `opdb.lookup.workloads`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opdb.bench.platform import Platform
from opdb.harvest import Harvest, fingerprint, harvest_compiled, harvest_in_both
from opdb.models import ModelRequest
from opdb.store import Store


@dataclass(frozen=True)
class Stored:
    """A harvest that is stored, and how many runs of it were made when it called other things.

    `stood` says that it was stored before, and that nothing can have changed since.
    """

    found: Harvest
    stale: int = 0
    stood: bool = False


def standing(store: Store, request: ModelRequest) -> Harvest | None:
    """Return what is stored of a request where a harvest would find just that, else None."""
    known = fingerprint(request)
    found = None if known is None else store.harvested(known)
    return None if found is None else Harvest(*found, fingerprint=known)


def harvest_into(
    store: Store, request: ModelRequest, *, anew: bool = False, swept: bool = False
) -> Stored:
    """Harvest a request and save what is found, unless it stands; with `anew` all the same.

    What only sweeps ask for (`swept`) calls nothing that `opdb bench` takes for pending.

    Raises:
        InputError: the model cannot be harvested.
    """
    found = None if anew else standing(store, request)
    if found is not None:
        if not swept:
            store.ask_for(found.workload)
        return Stored(found, stood=True)
    found = harvest_in_both(request)
    stale = store.save_workload(
        found.workload, found.captured, swept=swept, fingerprint=found.fingerprint
    )
    return Stored(found, stale)


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
    if found is not None:
        workload = found[0]
    else:
        device = platform.torch_device
        workload = harvest_compiled(request, plain.found.workload, device, slug)
        # Asked again: the pass may have imported what was not installed.
        store.save_workload(workload, fingerprint=fingerprint(request))
    compiled = Harvest(workload, failure=plain.found.failure)
    return replace(plain, found=compiled, stood=found is not None)
