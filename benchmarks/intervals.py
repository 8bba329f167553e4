"""Do the 95 % intervals hold, model by model, and are they as narrow as they can be?

Run it where a database holds measured runs and their operators; without --db it is the published
sets, of which 275 runs are of models whose calls are all measured:

    python -m benchmarks.intervals

Models are one where their calls with weights say so (`opdb.predict.predictor.is_same_model`),
joined through a third model, too: ResNets and VGGs are one, and all sizes of BERT. Each is left out
in turn: how sums err (`TIME_ERROR`, `ENERGY_ERROR` of `opdb.predict.compose`) is fitted to the
runs of all others, and the model's own runs are held against the intervals that follow. What other
models' runs showed (peers) never includes the model itself.

Printed is, by regime, the share of runs inside; whether 95 % lies in the binomial interval (Clopper
& Pearson 1934) of what is seen, for as many runs as there are independent ones, by the
variance between models (Kish's design effect); the |error| / half width that two thirds of the runs
do not exceed (0.49 for a normal law, 0.40 for Student's t with four degrees); and the mean
interval score, which is the width, and 2 / 0.05 times how far an error lies outside (Gneiting &
Raftery 2007, doi:10.1198/016214506000001437). Beside it stands the score of one constant width for
each regime, fitted to the other models' runs in the same way, and of the best constant width there
is, which only he can choose who knows the errors.

The fit: least mean score, runs of a model weighing 1 / √n each, on a grid; widened by Student's t
over the normal quantile, because the models are few. `--json` prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from opdb.commands.validate import MEASURES, Measure, attribution, is_whole
from opdb.derive.statistics import t95
from opdb.errors import OpdbError
from opdb.predict.compose import ENERGY_ERROR, TIME_ERROR, ModelError
from opdb.predict.predictor import Answer, is_same_model, predictor_for, regime_of, weighted_calls
from opdb.records import Workload
from opdb.store import Store, open_store

LEVEL = 0.95
Z95 = 1.959964
MISS = 2 / (1 - LEVEL)
MAY_WAIT = 0.01
"""Where a host may lengthen a pass by more than this share, the pass may wait for it."""
RELATIVE = [0.01 * 1.15**step for step in range(16)]
KERNEL_S = [0.0, *(2e-8 * 1.3**step for step in range(14))]
SHIPPED = {"time": TIME_ERROR, "energy": ENERGY_ERROR}


@dataclass(frozen=True)
class Case:
    """One run held against its prediction: the error and half widths on logarithms.

    `own` is the half width of all but models' errors, `scale` by how much peers widened these.
    `waits`: it waits for its host, or its interval reaches to where it does.
    """

    model: str
    regime: str
    waits: bool
    error: float
    own: float
    scale: float
    kernel_s: float | None
    half_width: float

    def by(self, expected: ModelError) -> float:
        """Return the half width that another expectation of models' errors gives."""
        return math.hypot(self.own, self.scale * expected.half_width(self.kernel_s))


@dataclass(frozen=True)
class Row:
    """What is seen of one regime; `binomial` is the interval of the share inside."""

    regime: str
    measure: Measure
    runs: int
    models: int
    inside: float
    binomial: tuple[float, float]
    half_width: float
    error_over_half_width: float
    score: float
    constant_score: float
    best_constant_score: float
    shipped_inside: float

    @property
    def holds(self) -> bool:
        """Whether 95 % lies in the binomial interval, and at least 90 % inside."""
        return self.binomial[0] <= LEVEL <= self.binomial[1] and self.inside >= 0.9


# runs


def cases_of(store: Store, device: str | None) -> dict[Measure, list[Case]]:
    """Return the whole runs of a device beside their predictions."""
    predictor = predictor_for(store, device, estimates=False)
    answers = [answer for answer in predictor.answers([]) if is_whole(answer)]
    keys = {answer.prediction.workload.model_key for answer in answers}
    models = clusters(store.workloads_by_key(sorted(keys)))
    found: dict[Measure, list[Case]] = {}
    for measure in MEASURES:
        cases = (case_of(answer, measure, models) for answer in answers)
        found[measure] = [case for case in cases if case is not None]
    return found


def case_of(answer: Answer, measure: Measure, models: Mapping[str, str]) -> Case | None:
    """Return a run's case; None where there is no interval."""
    found, sum_, ratio = answer.prediction, answer.prediction.total, attribution(answer, measure)
    in_time = measure == "time"
    interval = found.time_interval_s if in_time else found.energy_interval_j
    if ratio is None or interval is None or ratio <= 0:
        return None
    value = found.time_s if in_time else found.energy_j
    assert value is not None
    widths = sum_.widths_time if in_time else sum_.widths_energy
    side = int(ratio <= 1)  # predicted too high: the measured value lies below
    reach = math.log(value / interval[0]) if side == 0 else math.log(interval[1] / value)
    learned = math.sqrt(max(reach**2 - widths[side] ** 2, 0.0))
    regime = regime_of(found.workload, found.mode)
    return Case(
        model=models[found.workload.model_key],
        regime=f"{regime.family}, {regime.batch}",
        waits=found.host_bound or sum_.widths_time[1] > sum_.widths_time[0] + MAY_WAIT,
        error=math.log(ratio),
        own=widths[side],
        scale=learned / SHIPPED[measure].half_width(sum_.kernel_s),
        kernel_s=sum_.kernel_s,
        half_width=reach,
    )


def clusters(workloads: Sequence[Workload]) -> dict[str, str]:
    """Return the model of each workload (keys): the first name of those that are one model."""
    calls = {w.key: weighted_calls(w) for w in workloads}
    names = {w.key: w.name for w in workloads}
    found: list[list[str]] = []
    for key in sorted(calls, key=lambda key: (names[key], key)):
        alike = [
            group for group in found if any(is_same_model(calls[key], calls[o]) for o in group)
        ]
        found = [group for group in found if group not in alike]
        found.append([*(other for group in alike for other in group), key])
    return {key: min(names[other] for other in group) for group in found for key in group}


# fits and scores


def score(error: float, half_width: float) -> float:
    """Return the interval score of a 95 % interval (half width and error on logarithms)."""
    return 2 * half_width + MISS * max(0.0, abs(error) - half_width)


def weights(cases: Sequence[Case]) -> list[float]:
    """Return each run's weight: those of a model weigh √n together, so that none decides."""
    runs = Counter(case.model for case in cases)
    return [runs[case.model] ** -0.5 for case in cases]


def few(cases: Sequence[Case]) -> float:
    """Return by how much widths learned from so few models are widened."""
    return t95(max(1, len({case.model for case in cases}) - 1)) / Z95


def fitted(cases: Sequence[Case]) -> ModelError:
    """Return the expectation of least mean score over runs that wait for no host."""
    known = [case for case in cases if not case.waits]
    each = weights(known)

    def loss(expected: ModelError) -> float:
        return math.fsum(
            w * score(case.error, math.hypot(case.own, expected.half_width(case.kernel_s)))
            for w, case in zip(each, known, strict=True)
        )

    best = min((ModelError(r, k) for r in RELATIVE for k in KERNEL_S), key=loss)
    return ModelError(best.relative * few(known), best.kernel_s * few(known))


def constant(cases: Sequence[Case], each: Sequence[float]) -> float:
    """Return the one half width of least mean score; it is one of the errors."""
    widths = sorted(abs(case.error) for case in cases)

    def loss(width: float) -> float:
        scores = (w * score(case.error, width) for w, case in zip(each, cases, strict=True))
        return math.fsum(scores)

    return min(widths, key=loss)


def left_out(cases: Sequence[Case]) -> tuple[list[Case], dict[str, ModelError]]:
    """Return the runs with the half widths that the other models give, and these fits."""
    fits = {}
    for model in sorted({case.model for case in cases}):
        fits[model] = fitted([case for case in cases if case.model != model])
    return [replace(case, half_width=case.by(fits[case.model])) for case in cases], fits


def constants(cases: Sequence[Case]) -> list[float]:
    """Return for each run of a regime the constant width that the other models' runs give."""
    found = {}
    for model in {case.model for case in cases}:
        others = [case for case in cases if case.model != model]
        found[model] = constant(others, weights(others)) * few(others) if others else math.nan
    return [found[case.model] for case in cases]


# shares


def binomial_interval(inside: float, runs: float) -> tuple[float, float]:
    """Return the 95 % interval of a share of so many independent runs (Clopper & Pearson)."""
    count = inside * runs

    def solve(shape: Callable[[float], float]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if shape(middle) < 0 else (low, middle)
        return (low + high) / 2

    least = 0.0 if count <= 0 else solve(lambda p: _tail(count, runs, p) - 0.025)
    most = 1.0 if count >= runs else solve(lambda p: 0.025 - (1 - _tail(count + 1, runs, p)))
    return least, most


def _tail(count: float, runs: float, share: float) -> float:
    """Return the probability of `count` or more of `runs`, by the incomplete beta function.

    It takes counts between whole numbers, as an effective number of runs has.
    """
    from scipy.special import betainc

    return float(betainc(count, runs - count + 1, share))


def independent(cases: Sequence[Case]) -> float:
    """Return as how many independent runs these count."""
    groups: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        groups[case.model].append(float(abs(case.error) <= case.half_width))
    return effective(groups)


def effective(groups: Mapping[str, Sequence[float]]) -> float:
    """Return as how many independent runs these count, by model: Kish's design effect.

    Runs inside are 1, others 0. The correlation of runs of one model is estimated by the analysis
    of variance; where all or none are inside it cannot be, and each model counts once.
    """
    every = [each for group in groups.values() for each in group]
    n, k = len(every), len(groups)
    if k < 2 or n == k or len(set(every)) == 1:
        return float(k)
    mean = statistics.fmean(every)
    between = sum(len(g) * (statistics.fmean(g) - mean) ** 2 for g in groups.values()) / (k - 1)
    within = sum((e - statistics.fmean(g)) ** 2 for g in groups.values() for e in g) / (n - k)
    size = (n - sum(len(g) ** 2 for g in groups.values()) / n) / (k - 1)
    total = between + (size - 1) * within
    alike = min(1.0, max(0.0, (between - within) / total)) if total else 1.0
    return n / (1 + alike * (sum(len(g) ** 2 for g in groups.values()) / n - 1))


def rows_of(measure: Measure, cases: Sequence[Case]) -> tuple[list[Row], dict[str, ModelError]]:
    """Return what is seen of each regime, each model left out, and the fits."""
    found, fits = left_out(cases)
    shipped = {id(new): old for new, old in zip(found, cases, strict=True)}
    by_regime: dict[str, list[Case]] = defaultdict(list)
    for case in found:
        by_regime[case.regime].append(case)
        by_regime["all"].append(case)
        if not case.waits:
            by_regime["all that wait for no host"].append(case)
    rows = []
    for regime, those in sorted(by_regime.items()):
        inside = share(those)
        best = constant(those, [1.0] * len(those))
        rows.append(
            Row(
                regime=regime,
                measure=measure,
                runs=len(those),
                models=len({case.model for case in those}),
                inside=inside,
                binomial=binomial_interval(inside, independent(those)),
                half_width=statistics.median(case.half_width for case in those),
                error_over_half_width=two_thirds(abs(c.error) / c.half_width for c in those),
                score=statistics.fmean(score(c.error, c.half_width) for c in those),
                constant_score=statistics.fmean(
                    score(case.error, width)
                    for case, width in zip(those, constants(those), strict=True)
                ),
                best_constant_score=statistics.fmean(score(c.error, best) for c in those),
                shipped_inside=share(shipped[id(case)] for case in those),
            )
        )
    return rows, fits


def two_thirds(values: Iterable[float]) -> float:
    """Return what two thirds of values do not exceed."""
    known = sorted(values)
    return known[0] if len(known) == 1 else statistics.quantiles(known, n=3, method="inclusive")[1]


def share(cases: Iterable[Case]) -> float:
    """Return the share of runs inside their intervals."""
    return statistics.fmean(abs(case.error) <= case.half_width for case in cases)


def show(rows: Sequence[Row]) -> None:
    """Print the regimes."""
    print(
        f"{'':6} {'regime':26} {'runs':>4} {'models':>6} {'inside':>7} {'of it 95 %':>16} "
        f"{'±':>7} {'|e|/±':>5} {'score':>7} {'constant':>8} {'best c.':>7} {'shipped':>7}"
    )
    for r in rows:
        low, high = (f"{100 * end:.1f}" for end in r.binomial)
        print(
            f"{r.measure:6} {r.regime:26} {r.runs:4} {r.models:6} {100 * r.inside:6.1f}% "
            f"{low:>6} to {high:>5}% {100 * r.half_width:6.2f}% {r.error_over_half_width:5.2f} "
            f"{r.score:7.4f} {r.constant_score:8.4f} {r.best_constant_score:7.4f} "
            f"{100 * r.shipped_inside:6.1f}%{'' if r.holds else '  misses'}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", metavar="URL")
    parser.add_argument("--device", metavar="SLUG")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        with open_store(options.db, create=False) as store:
            cases = cases_of(store, options.device)
    except OpdbError as error:
        print(f"intervals: {error}", file=sys.stderr)
        return error.exit_status
    if min(len({case.model for case in each}) for each in cases.values()) < 3:
        print("intervals: fewer than three models were run: none can be left out", file=sys.stderr)
        return 2
    document: list[object] = []
    for measure, those in cases.items():
        rows, fits = rows_of(measure, those)
        document += [asdict(row) for row in rows]
        if not options.json:
            show(rows)
            print(
                f"{measure}, all models: {told(fitted(those))}; shipped: {told(SHIPPED[measure])}"
            )
            ends = [fit.relative for fit in fits.values()], [fit.kernel_s for fit in fits.values()]
            low, high = (ModelError(end(ends[0]), end(ends[1])) for end in (min, max))
            print(f"{measure}, one model left out: from {told(low)} to {told(high)}")
    if options.json:
        print(json.dumps(document))
    return 0


def told(found: ModelError) -> str:
    """Say in words how models err."""
    return f"{100 * found.relative:.2f} %, {1e9 * found.kernel_s:.0f} ns a kernel"


if __name__ == "__main__":
    sys.exit(main())
