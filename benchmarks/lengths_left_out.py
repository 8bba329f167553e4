"""How right passes of generations are at lengths that are left out of their ladder.

Run it anywhere, with measured decoding steps in the database; it measures nothing:

    python -m benchmarks.lengths_left_out [--db FILE] [--json]

Of each model and board, all passes of one cache length (of prefills: one prompt) that lies between
others are left out. Their calls and costs are then made of the rest, as `opdb generate` does it.
The CUDA graph so predicted is held against the prediction from the passes' own operators, and
against the run, where there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from opdb.compose.ladder import between
from opdb.errors import OpdbError
from opdb.growth import sizes_of
from opdb.lookup.words import short_board
from opdb.predict import Answer, Predictor, predictor_for
from opdb.records import Workload
from opdb.store import open_store
from opdb.tables import RATIO, Column, Table

DEVICE = "nvidia-h200"


@dataclass(frozen=True)
class Row:
    """A pass that was left out: its prediction, and what the rest of the ladder makes of it.

    `longer_s` and `more_j` are what the interpolated calls take more than those that were measured.
    """

    length: int
    own: Answer
    longer_s: float
    more_j: float

    @property
    def time(self) -> float | None:
        """The interpolated time over the run's."""
        run, own_s = self.own.measured, self.own.prediction.time_s
        return (own_s + self.longer_s) / run.time_s.mean if run and own_s else None

    @property
    def energy(self) -> float | None:
        """The interpolated energy over the run's."""
        run, own_j = self.own.measured, self.own.prediction.energy_j
        return (own_j + self.more_j) / run.energy_j.mean if run and run.energy_j and own_j else None

    @property
    def own_time(self) -> float:
        """The interpolated time over that of the pass's own operators."""
        return 1 + self.longer_s / (self.own.prediction.time_s or math.inf)

    @property
    def own_energy(self) -> float:
        """The interpolated energy over that of the pass's own operators."""
        return 1 + self.more_j / (self.own.prediction.energy_j or math.inf)


RATIOS = {
    "own_time": "time / own",
    "time": "measured",
    "own_energy": "energy / own",
    "energy": "measured",
}

ROWS: Table[Row] = Table(
    Column("model", lambda row: row.own.prediction.workload.name, title="model"),
    Column("phase", lambda row: row.own.prediction.workload.phase, title="phase"),
    Column("board", lambda r: short_board(r.own.prediction.board), title="board"),
    Column("batch_size", lambda row: row.own.prediction.workload.batch_size, title="batch"),
    Column("length", lambda row: row.length, title="left out"),
    *(Column(name, attrgetter(name), title=title, unit=RATIO) for name, title in RATIOS.items()),
)


def length_of(workload: Workload) -> int:
    """Return the length that a pass is left out with: of its prompt, its cache, else the filled."""
    sizes = sizes_of(workload)
    return sizes.get("prompt") or sizes.get("length") or sizes["context"]


def rows_of(predictor: Predictor, board: str, passes: Sequence[Workload]) -> Iterator[Row]:
    """Yield the passes of one model and phase that lie between others of a board's ladder."""
    costs = predictor.costs_on(board, {c for each in passes for c in each.occurrences()})
    base_w = predictor.base_power_w(board) or 0.0
    measured = [each for each in passes if all(c.key in costs for c in each.occurrences())]
    for length in sorted({length_of(each) for each in measured})[1:-1]:
        rest = [each for each in passes if length_of(each) != length]
        for left_out in (each for each in passes if length_of(each) == length):
            own = predictor.answer(left_out, "graph", board)
            if own.brought or own.prediction.estimated or not own.prediction.complete:
                continue
            found = between(rest, costs, sizes_of(left_out))
            if found is None or own.measured is None:
                continue
            longer_s = more_j = 0.0
            counts = {c.key: n for c, n in left_out.occurrences().items()}
            for key, cost in found[1].costs.items():
                mine = costs[key]
                if cost.time_s and mine.time_s:
                    call_s = counts[key] * (cost.time_s.mean - mine.time_s.mean)
                    longer_s, more_j = longer_s + call_s, more_j + base_w * call_s
                if cost.dynamic_energy_j and mine.dynamic_energy_j:
                    dynamic_j = cost.dynamic_energy_j.mean - mine.dynamic_energy_j.mean
                    more_j += counts[key] * dynamic_j
            yield Row(length, own, longer_s, more_j)


def compare(predictor: Predictor, workloads: Sequence[Workload]) -> list[Row]:
    """Return a row for each pass of a generation that can be left out."""
    ladders: dict[tuple[str, ...], list[Workload]] = defaultdict(list)
    for workload in workloads:
        if workload.phase in ("prefill", "decode"):
            asked = {**workload.inputs["generation"], "context": None, "cache_length": None}
            kind = json.dumps(asked, sort_keys=True)
            ladders[workload.name, workload.phase, workload.dtype, kind].append(workload)
    return [
        row
        for passes in ladders.values()
        for board in predictor.boards
        for row in rows_of(predictor, board, passes)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", metavar="URL")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        with open_store(options.db, create=False) as store:
            predictor = predictor_for(store, DEVICE)
            rows = compare(predictor, store.workloads())
    except OpdbError as error:
        print(f"lengths_left_out: {error}", file=sys.stderr)
        return error.exit_status
    if options.json:
        print(json.dumps(ROWS.documents(rows)))
        return 0
    print(*ROWS.lines(rows), sep="\n")
    for name in RATIOS:
        errors = [abs(ratio - 1) for row in rows if (ratio := getattr(row, name)) is not None]
        if errors:
            print(f"{name}: {len(errors)} passes, median error {statistics.median(errors):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
