"""Which modules make a workload's calls: recorded by a harvest, not stored with what is published.

Importing this module imports no torch: only a harvest does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from opdb.models import checked, missing_library
from opdb.records import Call, Workload
from opdb.spec import ModelSpec


@dataclass(frozen=True)
class Located:
    """Calls with their modules' paths; `harvest_s` is what harvesting them anew took, if that."""

    calls: Sequence[Call]
    harvest_s: float | None = None


def located(workload: Workload, request: ModelSpec) -> Located:
    """Return a workload's calls with their modules' paths, harvested anew where it has none.

    Nobody says that these are the same calls: whoever joins them to what is stored compares them.
    """
    if all(call.path is not None for call in workload.calls):
        return Located(workload.calls)
    started_s = time.monotonic()
    try:
        from opdb.harvest.passes import harvest_in_both
    except ModuleNotFoundError as error:
        raise missing_library(error, f"to find the layers of {request.name!r}") from error
    found = harvest_in_both(checked(request))
    here = found.captured if workload.captured and found.captured else found.workload
    return Located(here.calls, time.monotonic() - started_s)
