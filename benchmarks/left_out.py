"""How right estimates are of what they were not learned from: other boards, other model families.

Run it anywhere; it measures nothing, and reads a database (an SQLite file; boards are UUIDs or
beginnings of such):

    python -m benchmarks.left_out DATABASE families [--json]
    python -m benchmarks.left_out DATABASE boards BOARD... [--json]
    python -m benchmarks.left_out DATABASE borrowed [BOARD...]

`families`: each family of models (names that begin with the same word: all ResNets) is left out
with all that it alone calls and estimated from the rest. Its measured CUDA graphs, of which at
least 20 % of the time is estimated, are compared with predictions that use these estimates. The
stored estimates' own points are left out by blocks of the inverse of their covariance, so nothing
is learned again: the kernels' some thirty lengths and levels did see all models
(`opdb validate --estimates family` learns from the rest alone, in hours). The widths of sums are
learned from all other families. `sums` are what the family alone calls, estimated and as measured,
for every stored workload. `inside_low` to `inside_high` is the binomial interval of the share
inside, for as many independent graphs or sums as there are (benchmarks/intervals.py).

`boards`: all that these boards measured is deleted from a copy of the database, and estimates are
learned from what is left. Compared are the operators that no other board measured, grouped by what
their estimates rest on and by sort of operator, and the boards' CUDA graphs of which at least 20 %
of the time is estimated. Errors of operators are |ln(estimate / measured)| of the time; `95 %` and
`interval` are ratios, `bias` is the median of estimate over measured.

`borrowed`: each board in turn is treated as if it had run its models and measured no operator, with
its anchors (which scale other boards' costs) and without. Compared are its CUDA graphs whose calls
other boards' costs all cover.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks.intervals import binomial_interval, effective, score
from opdb.commands.validate import MEASURES, Measure, attribution, inside, is_whole
from opdb.commands.validate import errors_of as errors_between
from opdb.errors import OpdbError
from opdb.estimates.estimator import Estimates, from_document, unit_of
from opdb.estimates.features import Features, features
from opdb.estimates.training import PointsLeftOut, SumError, errors_of, width_of
from opdb.learning import examples_with_users, first_word, learn, works_of
from opdb.predict.predictor import BATCHES, Answer, Predictor, batch_of, predictor_for
from opdb.records import Workload
from opdb.records.measurement import OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE
from opdb.store import Store, open_store

DEVICE = "nvidia-h200"
LEAST_ESTIMATED = 0.2
ALIKE = "operators like it"
RESTS = (ROOFLINE_ALONE, OTHER_KINDS, OTHER_DTYPE)
"""What an estimate can rest on."""


# families


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
    examples = [e for e, _ in examples_with_users(store, predictor, estimator.board)]
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


# boards


@dataclass(frozen=True)
class Operator:
    """An operator that was measured after it had been estimated.

    `error` is the logarithm of its estimated over its measured time, `half_width` half the
    interval's; `rests_on` is what its estimate rested on.
    """

    sort: str
    dtype: str
    error: float
    half_width: float
    rests_on: str


@dataclass(frozen=True)
class Group:
    """The operators of a dtype that are of one sort, or whose estimates rest on the same."""

    name: str
    dtype: str
    operators: Sequence[Operator]

    def numbers(self) -> dict[str, Any]:
        """Return the group's errors and intervals.

        `percentile_95` is the ratio that 95 % of the estimates do not exceed, `bias` the median of
        estimate over measured, `width` the median ratio of an interval's upper end to the estimate.
        """
        errors = sorted(abs(each.error) for each in self.operators)
        return {
            "group": self.name,
            "dtype": self.dtype,
            "number": len(errors),
            "median_error": math.expm1(statistics.median(errors)),
            "percentile_95": math.exp(errors[math.ceil(0.95 * len(errors)) - 1]),
            "bias": math.exp(statistics.median(each.error for each in self.operators)),
            "inside": statistics.fmean(abs(e.error) <= e.half_width for e in self.operators),
            "width": math.exp(statistics.median(each.half_width for each in self.operators)),
        }


def without(database: Path, boards: Sequence[str], path: Path) -> None:
    """Copy a database to a path, without what these boards measured, and without estimates."""
    shutil.copy(database, path)
    marks = ", ".join("?" * len(boards))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for table in ("campaign", "cost"):
            connection.execute(f"DELETE FROM {table} WHERE board IN ({marks})", boards)
        connection.execute("DELETE FROM learned")


def without_operators(database: Path, board: str, path: Path, *, anchored: bool) -> bool:
    """Copy a database to a path, with a board's runs alone of all it measured, and its anchors.

    Return whether it has anchors then.
    """
    shutil.copy(database, path)
    kept = "role != 'anchor'" if anchored else "TRUE"
    with closing(sqlite3.connect(path)) as connection, connection:
        of_board = "campaign IN (SELECT id FROM campaign WHERE board = ?)"
        connection.execute(f"DELETE FROM visit WHERE {of_board} AND {kept}", [board])
        connection.execute("DELETE FROM cost WHERE board = ?", [board])
        left = connection.execute(f"SELECT * FROM visit WHERE {of_board} LIMIT 1", [board])
        return left.fetchone() is not None


def borrowed(
    database: Path, full: Predictor, boards: Collection[str], *, anchored: bool
) -> Iterator[Answer]:
    """Yield the graphs of these boards as predicted from what all others measured alone.

    Where they are to be anchored, of those that have anchors.
    """
    of_board: dict[str, list[Workload]] = defaultdict(list)
    for each in full.answers([], ["graph"]):
        if each.prediction.board in boards:
            of_board[each.prediction.board].append(each.prediction.workload)
    with tempfile.TemporaryDirectory() as folder:
        for board, workloads in of_board.items():
            path = Path(folder, f"{board}.sqlite")
            if without_operators(database, board, path, anchored=anchored) != anchored:
                continue
            with open_store(str(path), create=False) as store:
                rest = predictor_for(store, full.device, estimates=False)
                yield from filter(is_whole, (rest.answer(w, "graph", board) for w in workloads))
            path.unlink()


def sort_of(of: Features) -> str:
    """Return what sort of operator a call is: a kind, convolutions by window and groups."""
    if not of.family.startswith("convolution"):
        return of.kind
    if of.numbers["depthwise"]:
        return f"{of.kind} depthwise"
    if of.numbers["grouped"]:
        return f"{of.kind} in groups"
    return f"{of.kind} 1×1" if of.numbers["window"] == 0 else f"{of.kind} of windows"


def operators_of(known: Store, rest: Predictor, full: Predictor) -> Iterator[Operator]:
    """Yield the operators that were measured on the boards left out alone."""
    estimator = learn(known, rest)
    configurations = known.configurations()
    before = rest.costs_on(estimator.board, configurations)
    missing = [each for each in configurations if each.key not in before]
    measured = full.costs_on(estimator.board, missing)
    estimates = estimator.estimate(c for c in missing if c.key in measured).costs
    for each in missing:
        cost, estimated = measured.get(each.key), estimates.get(each.key)
        if cost is None or estimated is None or not (cost.time_s and estimated.time_s):
            continue
        of = features(each)
        if of.launches and cost.time_s.mean:
            assert estimated.time_s.high is not None
            yield Operator(
                sort=sort_of(of),
                dtype=of.dtype,
                error=math.log(estimated.time_s.mean / cost.time_s.mean),
                half_width=math.log(estimated.time_s.high / estimated.time_s.mean),
                rests_on=next((f for f in estimated.flags if f in RESTS), ALIKE),
            )


def graphs_of(rest: Predictor, full: Predictor, boards: Collection[str]) -> Iterator[Answer]:
    """Yield the predictions of what these boards ran as CUDA graphs, beside their runs."""
    for workload, board in full.measured_workloads("graph"):
        if board in boards:
            answer = rest.answer(workload, "graph")
            if (answer.prediction.coverage_time or 0.0) <= 1 - LEAST_ESTIMATED:
                yield replace(answer, measured=full.answer(workload, "graph", board).measured)


def groups(operators: Sequence[Operator]) -> list[Group]:
    """Return all operators, then what estimates rest on and sorts, the most first; then dtypes."""
    found = [Group("all", "all", operators)]
    for name in ("rests_on", "sort"):
        for dtype in (lambda _: "all", attrgetter("dtype")):
            members: dict[tuple[str, str], list[Operator]] = defaultdict(list)
            for each in operators:
                members[getattr(each, name), dtype(each)].append(each)
            of_name = [Group(*named, those) for named, those in members.items()]
            found += sorted(of_name, key=lambda each: (-len(each.operators), each.name, each.dtype))
    return found


def scores(graphs: Sequence[Answer], measure: Measure) -> tuple[float, float]:
    """Return the mean interval score on logarithms, and that of the best constant width."""
    errors, halves = [], []
    for each in graphs:
        found, ratio = each.prediction, attribution(each, measure)
        interval = found.time_interval_s if measure == "time" else found.energy_interval_j
        if ratio is not None and interval is not None:
            errors.append(abs(math.log(ratio)))
            halves.append(math.log(interval[1] / interval[0]) / 2)
    constant = [statistics.fmean(score(error, half) for error in errors) for half in errors]
    return statistics.fmean(map(score, errors, halves)), min(constant)


def summarise(graphs: Sequence[Answer]) -> None:
    """Print how far graphs are off, how many their intervals hold, and how wide these are."""
    for measure in MEASURES:
        errors = errors_between(graphs, measure)
        if errors is not None and errors.inside_interval is not None:
            scored, best = scores(graphs, measure)
            print(
                f"{measure}: {errors.count} graphs, median {errors.median:.1%}, 95 % "
                f"{errors.percentile_95:.1%}, largest {errors.largest:.1%}; "
                f"{errors.inside_interval:.1%} inside, ± {errors.median_half_width:.1%} at the "
                f"median, interval score {scored:.2f}, of the "
                f"best constant width {best:.2f}"
            )


def print_families(database: Path, *, as_json: bool) -> None:
    """Print a line for each graph, and the summaries."""
    with open_store(str(database), create=False) as store:
        found = study(store)
    summaries = {
        f"{name}, {m}": summary(seen_of(graphs, m))
        for name, graphs in by_batch(found.graphs).items()
        for m in MEASURES
    }
    summaries |= {f"sums, {m}": summary(found.sums[m]) for m in MEASURES}
    if as_json:
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


def print_boards(database: Path, full: Predictor, boards: Sequence[str], *, as_json: bool) -> None:
    """Print a line for each group of operators and each graph, and what these come to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rest.sqlite")
        without(database, boards, path)
        with open_store(str(path), create=False) as known:
            rest = predictor_for(known, full.device)
            found = groups(list(operators_of(known, rest, full)))
            graphs = list(graphs_of(predictor_for(known, full.device), full, boards))
    rows = [each.numbers() for each in found]
    ran = [
        {
            "model": f"{w.name} {w.batch_size} {w.dtype}",
            "board": each.prediction.board,
            "measured": each.prediction.coverage_time,
            **{m: attribution(each, m) for m in MEASURES},
            **{f"{m}_inside": inside(each, m) for m in MEASURES},
        }
        for each in graphs
        for w in [each.prediction.workload]
    ]
    if as_json:
        print(json.dumps({"operators": rows, "graphs": ran}))
        return
    for row in [*rows, *ran]:
        told = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print(", ".join(told))
    summarise(graphs)


def print_borrowed(database: Path, full: Predictor, boards: Sequence[str]) -> None:
    """Print how right predictions from other boards' costs are, with anchors and without."""
    for anchored in (True, False):
        print("with anchors" if anchored else "without anchors")
        summarise(list(borrowed(database, full, boards, anchored=anchored)))


def main() -> int:
    """Run one of the three checks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("check", choices=("families", "boards", "borrowed"))
    parser.add_argument("boards", nargs="*", metavar="BOARD")
    parser.add_argument("--device", help="of the boards; by default the one with the most costs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.check == "boards" and not options.boards:
        parser.error("name the boards that are left out")
    try:
        if options.check == "families":
            print_families(options.database, as_json=options.json)
            return 0
        with open_store(str(options.database), create=False) as store:
            full = predictor_for(store, options.device, estimates=False)
            boards = [full.board(each) for each in options.boards] or full.boards
            if options.check == "borrowed":
                print_borrowed(options.database, full, boards)
            else:
                print_boards(options.database, full, boards, as_json=options.json)
    except OpdbError as error:
        print(f"left_out: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
