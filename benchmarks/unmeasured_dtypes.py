"""How right estimates are of operators in a dtype, or of a kind, that nothing learned had.

Run it anywhere, with a database of which estimates were learned and a set that they were not
learned from; it measures nothing:

    python -m benchmarks.unmeasured_dtypes DATABASE KNOWN

DATABASE holds what is compared with, KNOWN the database that the estimates are taken from. Every
operator that only DATABASE has a cost of is estimated, as if on the board of the estimates; a line
for each dtype and for what the estimates rest on has the median |ln(estimate / measured)| of the
time, the median ln, and the share inside the stated 95 % interval.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict

from opdb.estimates.document import from_document
from opdb.estimates.features import features
from opdb.predict import predictor_for
from opdb.store import open_store

DEVICE = "nvidia-h200"


def main() -> None:
    """Print a line for each dtype and flag."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("known")
    asked = parser.parse_args()
    with open_store(asked.known, create=False) as store:
        before = predictor_for(store, DEVICE)
        estimator = from_document(list(store.learned(DEVICE).values())[-1])
        known = set(before.costs_on(estimator.board, store.configurations()))
    with open_store(asked.database, create=False) as store:
        predictor = predictor_for(store, DEVICE)
        new = [
            c
            for c in store.configurations()
            if c.key not in known and c.pass_name == "forward" and c.kind != "fused"
        ]
        costs = predictor.costs_on(estimator.board, new)
    found = estimator.estimate(c for c in new if c.key in costs)
    groups: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for each in new:
        cost, estimated = costs.get(each.key), found.costs.get(each.key)
        if cost is None or cost.time_s is None or not cost.kernels or estimated is None:
            continue
        time = estimated.time_s
        if time is None or time.low is None or time.high is None or not time.mean:
            continue
        rests_on = next((f for f in estimated.flags if f != "estimated"), "alike")
        measured_s = cost.time_s.mean
        error = math.log(time.mean / measured_s)
        groups[features(each).dtype, rests_on].append((error, time.low <= measured_s <= time.high))
    for (dtype, rests_on), errors in sorted(groups.items()):
        absolute = statistics.median(abs(e) for e, _ in errors)
        middle = statistics.median(e for e, _ in errors)
        inside = sum(held for _, held in errors) / len(errors)
        print(
            f"{dtype:10} {rests_on:15} {len(errors):5} operators, error {100 * absolute:.1f} %, "
            f"median {100 * middle:+.1f} %, inside {100 * inside:.1f} %"
        )


if __name__ == "__main__":
    main()
