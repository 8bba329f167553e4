"""A sentence that says what a prediction leaves out, to be shown before its figures."""

from __future__ import annotations

import math

from opdb.compose.composer import Prediction
from opdb.units import plural, show, show_share

NO_CALLS = "makes no operator calls: nothing to predict"


def shortfall(found: Prediction) -> str | None:
    """Say that a prediction is a lower bound, and why; None where nothing is left out."""
    if not found.workload.calls and not found.workload.unsupported:
        return NO_CALLS
    if found.complete:
        return None
    if found.time_s is None:
        bound = "time and energy are not known"
    elif not found.time_complete:
        bound = f"at least {show(found.time_s, 's')}"
    else:
        bound = f"at least {show(found.energy_j, 'J')}"
    return "; ".join((bound, *_reasons(found)))


def _reasons(found: Prediction) -> list[str]:
    said, calls = [], len(found.workload.calls)
    if found.lacking:
        share = math.fsum(each.share_time for each in found.lacking)
        lacking = sum(each.count for each in found.lacking)
        said.append(
            f"{lacking} of {plural(calls, 'call')} ({_estimated(share)} of the time) "
            f"{_are(lacking)} neither measured nor estimated"
        )
    if unsupported := sum(found.workload.unsupported.values()):
        said.append(
            f"{plural(unsupported, 'further call')} {_are(unsupported)} described by no operator"
        )
    if found.energy_j is not None and (dark := sum(each.count for each in found.dark)):
        said.append(f"the energy of {dark} of {plural(calls, 'call')} is not measured")
    return said


def _estimated(share: float) -> str:
    return "less than 0.1 %" if share < 0.001 else f"an estimated {show_share(share)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
