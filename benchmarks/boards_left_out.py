"""What some boards measured, held against estimates and predictions of the rest.

Run it anywhere, with a database that holds both; it measures nothing:

    python -m benchmarks.boards_left_out DATABASE BOARD... [--json]

All that these boards (UUIDs, or beginnings of such) measured is deleted from a copy of DATABASE,
an SQLite file, and estimates are learned anew from what is left. Held against them are the
operators that nobody else measured, by what their estimates rest on and by sort; and the boards'
CUDA graphs of which at least 20 % of the time is estimated, predicted from what is left.

Errors are |ln(estimate / measured)| of the time, on the board that estimates were learned for;
`95 %` and `interval` are ratios (the latter the median upper end over the estimate), `bias` is the
median estimate over measured.
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

from benchmarks.families_left_out import LEAST_ESTIMATED
from benchmarks.intervals import score
from opdb.errors import OpdbError
from opdb.estimates.features import Features, features
from opdb.learning import learn
from opdb.lookup.words import short_board
from opdb.predict import Answer, Predictor, predictor_for
from opdb.records.cost import OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE
from opdb.store import Store, open_store
from opdb.studies.accuracy import MEASURES, Measure, attribution, errors_of, inside
from opdb.tables import RATIO, SHARE, Column, Table

ALIKE = "operators like it"
RESTS = (ROOFLINE_ALONE, OTHER_KINDS, OTHER_DTYPE)
"""What an estimate can rest on."""


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

    @property
    def median(self) -> float:
        """The median error, as a share."""
        return math.expm1(statistics.median(abs(each.error) for each in self.operators))

    @property
    def percentile_95(self) -> float:
        """The ratio that 95 % of the estimates are not farther off than."""
        errors = sorted(abs(each.error) for each in self.operators)
        return math.exp(errors[math.ceil(0.95 * len(errors)) - 1])

    @property
    def bias(self) -> float:
        """The median estimate over measured."""
        return math.exp(statistics.median(each.error for each in self.operators))

    @property
    def inside(self) -> float:
        """The share inside the intervals."""
        return statistics.fmean(abs(each.error) <= each.half_width for each in self.operators)

    @property
    def width(self) -> float:
        """The median ratio of an interval's upper end to the estimate."""
        return math.exp(statistics.median(each.half_width for each in self.operators))


GROUPS: Table[Group] = Table(
    Column("group", lambda each: each.name, title="operators"),
    Column("dtype", lambda each: each.dtype, title="dtype"),
    Column("number", lambda each: len(each.operators), title="number"),
    Column("median_error", lambda each: each.median, title="median error", unit=SHARE),
    Column("percentile_95", lambda each: each.percentile_95, title="95 %", unit=RATIO),
    Column("bias", lambda each: each.bias, title="bias", unit=RATIO),
    Column("inside", lambda each: each.inside, title="inside", unit=SHARE),
    Column("width", lambda each: each.width, title="interval", unit=RATIO),
)

GRAPHS: Table[Answer] = Table(
    Column("model", lambda each: each.prediction.workload.name, title="model"),
    Column("batch_size", lambda each: each.prediction.workload.batch_size, title="batch"),
    Column("dtype", lambda each: each.prediction.workload.dtype, title="dtype"),
    Column("board", lambda each: short_board(each.prediction.board), title="predicted for"),
    Column("measured", lambda a: a.prediction.coverage_time, title="measured", unit=SHARE),
    Column("time", lambda each: each.attribution_time, title="time", unit=RATIO),
    Column("time_inside", lambda each: inside(each, "time"), title="inside"),
    Column("energy", lambda each: each.attribution_energy, title="energy", unit=RATIO),
    Column("energy_inside", lambda each: inside(each, "energy"), title="inside"),
)


def without(database: Path, boards: Sequence[str], path: Path) -> None:
    """Copy a database to a path, without what these boards measured, and without estimates."""
    shutil.copy(database, path)
    marks = ", ".join("?" * len(boards))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for table in ("campaign", "cost"):
            connection.execute(f"DELETE FROM {table} WHERE board IN ({marks})", boards)
        connection.execute("DELETE FROM learned")


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


def main() -> int:
    """Print a row for each group of operators and each graph, and what these come to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("boards", nargs="+", metavar="BOARD")
    parser.add_argument("--device", help="of the boards; by default the one with the most costs")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            open_store(str(asked.database), create=False) as store,
        ):
            full = predictor_for(store, asked.device, estimates=False)
            boards = [full.board(each) for each in asked.boards]
            path = Path(folder, "rest.sqlite")
            without(asked.database, boards, path)
            with open_store(str(path), create=False) as known:
                rest = predictor_for(known, full.device)
                found = groups(list(operators_of(known, rest, full)))
                graphs = list(graphs_of(predictor_for(known, full.device), full, boards))
    except OpdbError as error:
        print(f"boards_left_out: {error}", file=sys.stderr)
        return error.exit_status
    if asked.json:
        tables = {"operators": GROUPS.documents(found), "graphs": GRAPHS.documents(graphs)}
        print(json.dumps(tables))
        return 0
    print(*GROUPS.lines(found), "", *GRAPHS.lines(graphs), "", sep="\n")
    for measure in MEASURES:
        errors = errors_of(graphs, measure)
        if errors is not None and errors.inside_interval is not None:
            scored, best = scores(graphs, measure)
            print(
                f"{measure}: {errors.count} graphs, median {errors.median:.1%}, 95 % "
                f"{errors.percentile_95:.1%}, largest {errors.largest:.1%}; "
                f"{errors.inside_interval:.1%} inside, interval score {scored:.2f}, of the "
                f"best constant width {best:.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
