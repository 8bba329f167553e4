"""How right estimates are of model families that they were not learned from.

Run it anywhere, with the published estimates in the database; it measures nothing:

    python -m benchmarks.families_left_out [--db FILE] [--json]

Every model whose name begins with one word (all ResNets) is left out with all that it alone calls,
and estimated from the rest; its measured CUDA graphs are then held against predictions in which
these estimates stand in. Families of which less than 20 % of a graph's time is estimated do not
count. The stored estimates' own points are left out by blocks of the inverse of their covariance,
so that nothing is learned anew: their kernels (some thirty lengths) and levels did see all models.
`opdb validate --estimates family` learns from nothing but the rest, in hours.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opdb.estimates.document import from_document
from opdb.estimates.estimator import Estimates, Estimator, Learned, _Asked, _Block
from opdb.estimates.features import features
from opdb.estimates.process import Process, with_noise
from opdb.estimates.training import Example, usable
from opdb.learning import examples_of, first_word
from opdb.predict import Answer, Predictor, predictor_for
from opdb.records import Workload
from opdb.store import Store, open_store
from opdb.studies.accuracy import inside

DEVICE = "nvidia-h200"
LEAST_ESTIMATED = 0.2
MISSED = 2 / 0.05
"""What an interval score adds for each unit that a truth lies outside (Gneiting and Raftery)."""


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
class _Family:
    """A family of kinds: its examples in the order of the learned points, and both inverses."""

    learned: Learned
    examples: Sequence[Example]
    time: tuple[Any, Any]
    power: tuple[Any, Any] | None


def _inverse(process: Process) -> tuple[Any, Any]:
    """Return the inverse of the points' covariance and the weights of their values."""
    return np.linalg.inv(with_noise(process.kernel, process.points)), process.weights


def _families(estimator: Estimator, examples: Sequence[Example]) -> dict[str, _Family]:
    """Join learned points to their examples.

    Raises:
        SystemExit: the database is not the one that the estimates were learned from.
    """
    by_family: dict[str, list[Example]] = defaultdict(list)
    for example in sorted(examples, key=lambda e: e.configuration.key):
        if usable(example):
            by_family[features(example.configuration).family].append(example)
    found = {}
    for name, learned in estimator.families.items():
        of = by_family[name]
        if len(of) != len(learned.time.points):
            sys.exit(f"{name}: {len(of)} examples, {len(learned.time.points)} points; opdb learn")
        power = None if learned.power is None else _inverse(learned.power)
        found[name] = _Family(learned, of, _inverse(learned.time), power)
    return found


def _without(inverse: Any, weights: Any, rows: Sequence[int]) -> tuple[Any, Any]:
    """Return by how much rows are estimated too high when left out, and their covariance."""
    covariance = np.linalg.inv(inverse[np.ix_(rows, rows)])
    return -covariance @ weights[rows], covariance


def estimates_without(
    estimator: Estimator, families: Mapping[str, _Family], out: set[str]
) -> Estimates:
    """Estimate configurations (keys) as if none of them had been measured."""
    found = Estimates(estimator.board)
    for family in families.values():
        rows = [i for i, e in enumerate(family.examples) if e.configuration.key in out]
        if not rows:
            continue
        learned = family.learned
        asked = [
            _Asked(e.configuration, features(e.configuration), None)
            for e in (family.examples[i] for i in rows)
        ]
        above, covariance = _without(*family.time, rows)
        slower = [
            math.log(_seconds(family.examples[i]) / estimator.roofline.time_s(each.of))
            - learned.levels[each.of.kind]
            + off
            for i, each, off in zip(rows, asked, above, strict=True)
        ]
        watts, of_power = None, None
        if learned.power is not None and family.power is not None:
            metered = [learned.metered.index(i) for i in rows if i in set(learned.metered)]
            watts, of_power = learned.power.at([learned.scaled(each.of) for each in asked])
            off, block = _without(*family.power, metered)
            at = [k for k, i in enumerate(rows) if i in set(learned.metered)]
            for place, row, error in zip(at, (rows[k] for k in at), off, strict=True):
                watts[place] = math.log(_watts(family.examples[row])) + error
            of_power[np.ix_(at, at)] = block
        kept = _Block([a.configuration.key for a in asked], covariance, of_power, learned.reach)
        estimator._add(learned, asked, (slower, watts), kept, found)
    return found


def _seconds(example: Example) -> float:
    assert example.cost.time_s is not None
    return example.cost.time_s.mean


def _watts(example: Example) -> float:
    assert example.cost.dynamic_energy_j is not None
    return example.cost.dynamic_energy_j.mean / _seconds(example)


def study(store: Store) -> list[Held]:
    """Return every measured graph of every family, the family left out."""
    predictor = predictor_for(store, DEVICE, estimates=False)
    [estimator] = [from_document(d) for d in store.learned(DEVICE).values()]
    examples = examples_of(store, predictor, estimator.board)
    families = _families(estimator, examples)
    users = {e.configuration.key: e.models for e in examples}
    learned = {e.configuration.key for f in families.values() for e in f.examples}
    graphs: dict[str, list[Workload]] = defaultdict(list)
    for workload, _ in predictor.measured_workloads("graph"):
        graphs[first_word(workload.name)].append(workload)
    found = []
    for word, workloads in sorted(graphs.items()):
        out = {key for key in learned if users[key] == {word}}
        estimates = estimates_without(estimator, families, out)
        for workload in workloads:
            found += _held(predictor, word, workload, out, estimates)
    return found


def _held(
    predictor: Predictor, word: str, workload: Workload, out: set[str], estimates: Estimates
) -> list[Held]:
    measured = predictor.answer(workload, "graph").prediction
    share = sum(p.share_time for p in measured.parts if p.configuration.key in out)
    if share < LEAST_ESTIMATED or measured.coverage_calls < 1:
        return []
    return [Held(word, workload, share, predictor.without(workload, "graph", out, estimates))]


def summary(found: Sequence[Held], what: str) -> dict[str, float]:
    """Return errors and what the intervals are worth, for time or energy."""
    known = [
        (error, width)
        for each in found
        if (error := each.error(what)) is not None and (width := each.half_width(what)) is not None
    ]
    errors = sorted(abs(error) for error, _ in known)
    held = [inside(each.answer, what) for each in found]  # type: ignore[arg-type]
    constant = [2 * w + MISSED * sum(max(0.0, e - w) for e in errors) / len(errors) for w in errors]
    return {
        "runs": len(errors),
        "models": len({each.workload.name for each in found}),
        "families": len({each.family for each in found}),
        "median": statistics.median(errors),
        "percentile_95": errors[math.ceil(0.95 * len(errors)) - 1],
        "worst": errors[-1],
        "inside": sum(map(bool, held)) / len(held),
        "half_width": statistics.median(width for _, width in known),
        "score": statistics.fmean(2 * w + MISSED * max(0.0, abs(e) - w) for e, w in known),
        "best_constant_score": min(constant),
    }


def main() -> None:
    """Print a line for each run and the summaries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", default=None)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with open_store(asked.db, create=False) as store:
        found = study(store)
    summaries = {what: summary(found, what) for what in ("time", "energy")}
    if asked.json:
        print(json.dumps(summaries))
        return
    for each in found:
        errors = ", ".join(
            f"{what} {100 * (each.error(what) or 0):+.1f} % "
            f"(± {100 * (each.half_width(what) or 0):.0f})"
            for what in summaries
        )
        w = each.workload
        print(
            f"{w.name} {w.batch_size} {w.dtype}: {100 * each.estimated:.0f} % estimated, {errors}"
        )
    for what, numbers in summaries.items():
        print(what, ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))


if __name__ == "__main__":
    main()
