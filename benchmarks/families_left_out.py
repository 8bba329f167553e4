"""How right estimates are of model families that they were not learned from.

Run it anywhere, with the published estimates in the database; it measures nothing:

    python -m benchmarks.families_left_out [--db FILE] [--json]

Every model whose name begins with one word (all ResNets) is left out with all that it alone calls,
and estimated from the rest; its measured CUDA graphs are then held against predictions in which
these estimates stand in. Families of which less than 20 % of a graph's time is estimated do not
count. The stored estimates' own points are left out by blocks of the inverse of their covariance,
so that nothing is learned anew: their kernels (some thirty lengths) and levels did see all models.
How wide sums are is learned anew for each family, from the sums of all others.
`opdb validate --estimates family` learns from nothing but the rest, in hours.

Beside the graphs stand the sums that widths are learned from: of every stored workload, what its
family alone calls, estimated and as the operators were measured. They are more and odder models.
`inside_low` to `inside_high` is the binomial interval of the share inside, by as many independent
graphs or sums as there are, by the variance between models (of sums: families;
benchmarks/intervals.py).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.intervals import binomial_interval, effective, score
from opdb.errors import OpdbError
from opdb.estimates.document import from_document
from opdb.estimates.estimator import Estimates
from opdb.estimates.left_out import PointsLeftOut
from opdb.estimates.sums import SumError, errors_of, width_of
from opdb.estimates.widths import unit_of
from opdb.learning import examples_of, first_word, works_of
from opdb.predict import Answer, Predictor, predictor_for
from opdb.predict.regimes import BATCHES, batch_of
from opdb.records import Workload
from opdb.store import Store, open_store
from opdb.studies.accuracy import MEASURES, Measure, inside

DEVICE = "nvidia-h200"
LEAST_ESTIMATED = 0.2


@dataclass(frozen=True)
class Held:
    """A measured graph, predicted with what its family alone calls estimated."""

    family: str
    workload: Workload
    estimated: float
    answer: Answer

    def error(self, what: str) -> float | None:
        """Return predicted over measured, less 1, of time or energy."""
        ratio = getattr(self.answer, f"attribution_{what}")
        return None if ratio is None else float(ratio) - 1

    def half_width(self, what: str) -> float | None:
        """Return half the interval, relative to the prediction."""
        found = self.answer.prediction
        interval = found.time_interval_s if what == "time" else found.energy_interval_j
        value = found.time_s if what == "time" else found.energy_j
        return None if interval is None or not value else (interval[1] - interval[0]) / 2 / value


@dataclass(frozen=True)
class Seen:
    """An error of a model, held against half of its interval, both relative."""

    model: str
    error: float
    half_width: float
    inside: bool


@dataclass(frozen=True)
class Study:
    """What was found: graphs, and the sums of workloads by what is estimated (time, energy)."""

    graphs: list[Held]
    sums: dict[str, list[Seen]]


def study(store: Store) -> Study:
    """Return every measured graph and every sum of every family, the family left out."""
    predictor = predictor_for(store, DEVICE, estimates=False)
    [estimator] = [from_document(d) for d in store.learned(DEVICE).values()]
    examples = examples_of(store, predictor, estimator.board)
    rest = PointsLeftOut(estimator, examples)
    errors = errors_of(rest, examples, works_of(store), predictor.base_power_w(estimator.board))
    graphs: dict[str, list[Workload]] = defaultdict(list)
    for workload, _ in predictor.measured_workloads("graph"):
        graphs[first_word(workload.name)].append(workload)
    found = []
    for word, workloads in sorted(graphs.items()):
        out = rest.of(word)
        sums = errors.without(word).given_to(estimator).sums
        estimates = replace(rest.estimates(out), sums=sums)
        for workload in workloads:
            found += _held(predictor, word, workload, out, estimates)
    return Study(found, {"time": _seen(errors.times), "energy": _seen(errors.energies)})


def _seen(errors: Sequence[SumError]) -> list[Seen]:
    """Hold each sum against the width that all other families give it."""
    found = []
    for family in sorted({each.family for each in errors}):
        width = width_of([each for each in errors if each.family != family])
        if width is None:
            sys.exit("too few families of models to learn widths of sums from")
        for each in errors:
            if each.family == family:
                half = width * unit_of(each.deviation)
                within = abs(each.error) <= half
                found.append(Seen(family, math.expm1(each.error), math.sinh(half), within))
    return found


def _held(
    predictor: Predictor, word: str, workload: Workload, out: set[str], estimates: Estimates
) -> list[Held]:
    measured = predictor.answer(workload, "graph").prediction
    share = sum(p.share_time for p in measured.parts if p.configuration.key in out)
    if share < LEAST_ESTIMATED or measured.coverage_calls < 1:
        return []
    return [Held(word, workload, share, predictor.without(workload, "graph", out, estimates))]


def by_batch(graphs: Sequence[Held]) -> dict[str, list[Held]]:
    """Return all graphs, and those of each range of batch sizes, by name."""
    found = {"graphs": list(graphs)}
    for batch in BATCHES:
        found[f"graphs of batch {batch}"] = [
            each for each in graphs if batch_of(each.workload.batch_size) == batch
        ]
    return {name: those for name, those in found.items() if those}


def seen_of(graphs: Sequence[Held], measure: Measure) -> list[Seen]:
    """Return what is known of the graphs' time or energy."""
    return [
        Seen(each.workload.name, error, width, bool(inside(each.answer, measure)))
        for each in graphs
        if (error := each.error(measure)) is not None
        and (width := each.half_width(measure)) is not None
    ]


def summary(seen: Sequence[Seen]) -> dict[str, float]:
    """Return errors and what the intervals are worth."""
    errors = sorted(abs(each.error) for each in seen)
    constant = [statistics.fmean(score(each, width) for each in errors) for width in errors]
    by_model: dict[str, list[float]] = defaultdict(list)
    for each in seen:
        by_model[each.model].append(float(each.inside))
    share = statistics.fmean(each.inside for each in seen)
    low, high = binomial_interval(share, effective(by_model))
    return {
        "number": len(seen),
        "models": len(by_model),
        "median": statistics.median(errors),
        "percentile_95": errors[math.ceil(0.95 * len(errors)) - 1],
        "worst": errors[-1],
        "inside": share,
        "inside_low": low,
        "inside_high": high,
        "half_width": statistics.median(each.half_width for each in seen),
        "score": statistics.fmean(score(each.error, each.half_width) for each in seen),
        "best_constant_score": min(constant),
    }


def main() -> None:
    """Print a line for each run and the summaries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", default=None)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        with open_store(asked.db, create=False) as store:
            found = study(store)
    except OpdbError as error:
        sys.exit(f"families_left_out: {error}")
    summaries = {
        f"{name}, {m}": summary(seen_of(graphs, m))
        for name, graphs in by_batch(found.graphs).items()
        for m in MEASURES
    }
    summaries |= {f"sums, {m}": summary(found.sums[m]) for m in MEASURES}
    if asked.json:
        print(json.dumps(summaries))
        return
    for each in found.graphs:
        errors = ", ".join(
            f"{m} {100 * (each.error(m) or 0):+.1f} % (± {100 * (each.half_width(m) or 0):.0f})"
            for m in MEASURES
        )
        w = each.workload
        print(
            f"{w.name} {w.batch_size} {w.dtype}: {100 * each.estimated:.0f} % estimated, {errors}"
        )
    for what, numbers in summaries.items():
        print(f"{what}:", ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
