"""What estimates are worth on a GPU of which little is known yet: after 60, 300, 1,200 GPU-seconds.

Run it anywhere; it reads the published set and measures nothing:

    python -m benchmarks.new_gpu

The published device is taken for a new one. Its configurations are measured once more on paper,
the most informative first, each for the GPU-seconds that its visits took, until a budget is spent;
estimates are learned from these alone. Printed are their errors on the operators that were not
measured, and on the measured runs of whole models (CUDA graphs): measured costs where there are
any, estimates for the rest, and how many runs have more than 2 % of their time refused.

The most informative configuration is the one that leaves least open of what the models' time hangs
on: each time the one with the largest variance under the prior process, times its share of the
models' time by operations and bytes, for a GPU-second. Nothing measured is used to choose.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage_growth import visit_seconds
from opdb.compose.sizes import shares_of, sizes_of
from opdb.estimates.features import features
from opdb.estimates.process import Kernel
from opdb.estimates.training import Example, placed, train
from opdb.estimates.tuning import TYPICAL_LENGTH
from opdb.learning import examples_of
from opdb.predict import Predictor, predictor_for
from opdb.records import Configuration, Workload
from opdb.store import Store, open_store
from opdb.store.exchange import import_set

ROOT = Path(__file__).resolve().parents[1]
DEVICE = "nvidia-h200"
BUDGETS_S = (60.0, 300.0, 1200.0)
MOST_REFUSED = 0.02


@dataclass(frozen=True)
class Found:
    """What estimates are worth after a budget: errors are medians, shares of the truth."""

    gpu_seconds: float
    configurations: int
    unmeasured: int
    refused: int
    operators: float | None
    inside: float | None
    runs: int
    refused_runs: int
    time: float | None
    energy: float | None


def weights_of(workloads: Sequence[Workload]) -> dict[str, float]:
    """Return each configuration's mean share of the workloads' time, by operations and bytes."""
    weights: dict[str, float] = defaultdict(float)
    for workload in workloads:
        counts = {c.key: n for c, n in workload.occurrences().items()}
        shares = shares_of(counts, sizes_of(workload.occurrences(), {}), 0.0)
        assert shares is not None  # published workloads have no kind that this version lacks
        for key, (time, _) in shares.items():
            weights[key] += time / len(workloads)
    return weights


def informative(
    configurations: Sequence[Configuration],
    weights: Mapping[str, float],
    seconds: Mapping[str, float],
    most_s: float = math.inf,
) -> list[Configuration]:
    """Return configurations in the order in which they tell most for a GPU-second.

    At least those that `most_s` GPU-seconds are enough for, perhaps not all of the others.
    """
    families: dict[str, list[Configuration]] = defaultdict(list)
    for configuration in configurations:
        families[features(configuration).family].append(configuration)
    gains: list[tuple[float, Configuration]] = []
    for members in families.values():
        *_, places = placed([features(each) for each in members])
        gains += _in_family(members, np.array(places), weights, seconds, most_s)
    return [configuration for _, configuration in sorted(gains, key=lambda g: -g[0])]


def _in_family(
    members: Sequence[Configuration],
    places: Any,
    weights: Mapping[str, float],
    seconds: Mapping[str, float],
    most_s: float,
) -> list[tuple[float, Configuration]]:
    """Choose greedily: what each tells of the others is a column of a pivoted Cholesky factor."""
    kernel = Kernel(1.0, (TYPICAL_LENGTH,) * places.shape[1], 0.01)
    unexplained = kernel.between(places, places)
    weight = np.array([weights.get(c.key, 0.0) for c in members])
    price = np.array([seconds[c.key] for c in members])
    order, left = [], np.ones(len(members), bool)
    for _ in members:
        known = np.diag(unexplained) + kernel.noise
        gain = (unexplained**2 / known[:, None]) @ weight / price
        best = int(np.argmax(np.where(left, gain, -1.0)))
        left[best] = False
        order.append((float(gain[best]), members[best]))
        most_s -= price[best]
        if most_s < 0:
            break
        told = unexplained[:, best]
        unexplained = unexplained - np.outer(told, told) / known[best]
    return order


def after(
    budget_s: float,
    order: Sequence[Configuration],
    examples: Mapping[str, Example],
    seconds: Mapping[str, float],
    predictor: Predictor,
    board: str,
) -> Found:
    """Return what estimates are worth when a budget (GPU-seconds) was spent in an order."""
    chosen: dict[str, Example] = {}
    spent_s = 0.0
    for configuration in order:
        if spent_s + seconds[configuration.key] > budget_s:
            break
        spent_s += seconds[configuration.key]
        chosen[configuration.key] = examples[configuration.key]
    estimator = train(chosen.values(), device=DEVICE, board=board, trained_at="")
    rest = [e for key, e in examples.items() if key not in chosen and e.cost.kernels]
    missing = [e.configuration for key, e in examples.items() if key not in chosen]
    estimates = estimator.estimate(missing, alike_only=True)
    pairs = [
        (estimate, truth)
        for e in rest
        if (found := estimates.costs.get(e.configuration.key)) is not None
        and (estimate := found.time_s) is not None
        and (truth := e.cost.time_s) is not None
    ]
    runs = []
    for workload, _ in predictor.measured_workloads("graph"):
        parts = predictor.answer(workload, "graph").prediction.parts
        refused = math.fsum(p.share_time for p in parts if p.configuration.key in estimates.refused)
        gone = {c.key for c in missing}
        answer = predictor.without(workload, "graph", gone, estimates)
        runs.append((refused, answer.attribution_time, answer.attribution_energy))
    counted = [run for run in runs if run[0] <= MOST_REFUSED]
    return Found(
        gpu_seconds=spent_s,
        configurations=len(chosen),
        unmeasured=len(rest),
        refused=sum(e.configuration.key in estimates.refused for e in rest),
        operators=_median([abs(math.log(e.mean / t.mean)) for e, t in pairs]),
        inside=statistics.fmean((e.low or 0) <= t.mean <= (e.high or 0) for e, t in pairs)
        if pairs
        else None,
        runs=len(counted),
        refused_runs=len(runs) - len(counted),
        time=_median([abs(run[1] - 1) for run in counted if run[1] is not None]),
        energy=_median([abs(run[2] - 1) for run in counted if run[2] is not None]),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def study(store: Store, budgets_s: Sequence[float]) -> list[Found]:
    """Return what estimates are worth after each budget."""
    predictor = predictor_for(store, DEVICE, estimates=False)
    board = predictor.most_measured()
    examples = {e.configuration.key: e for e in examples_of(store, predictor, board)}
    taken_s = visit_seconds(store, DEVICE)
    usual_s = statistics.median(taken_s.values())
    seconds = {key: taken_s.get(key, usual_s) for key in examples}
    workloads = [w for w, _ in predictor.measured_workloads("graph")]
    launching = [e.configuration for e in examples.values() if e.cost.kernels]
    order = informative(launching, weights_of(workloads), seconds, max(budgets_s))
    return [after(b, order, examples, seconds, predictor, board) for b in budgets_s]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the errors after each budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS_S, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/new.sqlite") as store:
        import_set(store, ROOT / "db" / DEVICE)
        found = study(store, asked.budgets)
    if asked.json:
        print(json.dumps([vars(each) for each in found]))
        return 0
    for budget_s, each in zip(asked.budgets, found, strict=True):
        print(
            f"{budget_s:.0f} GPU-seconds ({each.gpu_seconds:.0f} spent): {each.configurations} "
            f"configurations; of {each.unmeasured} others {each.refused} refused, median error "
            f"{_shown(each.operators)}, inside {_shown(each.inside)}; {each.runs} runs: time "
            f"{_shown(each.time)}, energy {_shown(each.energy)}; {each.refused_runs} partly refused"
        )
    return 0


def _shown(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
