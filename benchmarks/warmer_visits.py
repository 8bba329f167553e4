"""How much more power do operators draw when the chip is warmer?

Run it anywhere, with a database that has the raw samples of visits; it measures nothing:

    python -m benchmarks.warmer_visits DATABASE BOARD... [--json]

Of each configuration that a board (UUID, or the beginning of one) visited twice or more, the first
and the last visit are compared, but for visits whose clock was held back: times, energies, and the
power of one against the other over the difference of the chip's temperatures, by least squares
through 0, as a share of the power a kelvin. Pairs that are less than `LEAST_K` apart count in the
medians alone.
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
from itertools import pairwise
from pathlib import Path

from opdb.derive.costs import visit_cost
from opdb.derive.review import is_rejected
from opdb.errors import OpdbError
from opdb.lookup.words import short_board
from opdb.predict import predictor_for
from opdb.records import Visit
from opdb.store import Store, open_store
from opdb.tables import MISSING, RATIO, Column, Table

HELD_BACK = "clock held back"
"""The beginning of a visit's flag: the power limit keeps its power from rising."""

LEAST_K = 2.0
"""Temperatures are read as whole degrees."""

BANDS_W = (0.0, 250.0, 350.0, 450.0, 550.0, math.inf)

LEAST_PAIRS = 5


@dataclass(frozen=True)
class Pair:
    """Two visits of one configuration: the later over the earlier, and how much warmer it was.

    `power_w` is the power of the earlier one, base power included.
    """

    warmer_k: float
    power_w: float
    power: float
    time: float


@dataclass(frozen=True)
class Warmer:
    """Pairs of one board whose power lies between two bounds."""

    board: str
    pairs: Sequence[Pair]

    @property
    def power_w(self) -> float:
        """The median power of the earlier visits."""
        return statistics.median(each.power_w for each in self.pairs)

    @property
    def warmer_k(self) -> float:
        """By how much the later visits were warmer, at the median."""
        return statistics.median(each.warmer_k for each in self.pairs)

    @property
    def time(self) -> float:
        """The later time over the earlier, at the median."""
        return statistics.median(each.time for each in self.pairs)

    @property
    def energy(self) -> float:
        """The later energy over the earlier, at the median."""
        return statistics.median(each.time * each.power for each in self.pairs)

    @property
    def a_kelvin(self) -> float | None:
        """By which share power rises a kelvin; None where too few pairs are apart."""
        apart = [each for each in self.pairs if abs(each.warmer_k) >= LEAST_K]
        if len(apart) < LEAST_PAIRS:
            return None
        rising = math.fsum(each.warmer_k * math.log(each.power) for each in apart)
        return rising / math.fsum(each.warmer_k**2 for each in apart)


def _a_kelvin(each: Warmer) -> str:
    return MISSING if each.a_kelvin is None else f"{each.a_kelvin:+.2%}"


PAIRS: Table[Warmer] = Table(
    Column("board", title="board", get=lambda each: short_board(each.board)),
    Column("pairs", title="pairs", get=lambda each: len(each.pairs)),
    Column("power_w", title="power", unit="W", get=lambda each: each.power_w),
    Column("warmer_k", title="warmer", unit="K", get=lambda each: each.warmer_k),
    Column("time", title="time", unit=RATIO, get=lambda each: each.time),
    Column("energy", title="energy", unit=RATIO, get=lambda each: each.energy),
    Column(
        "power_a_kelvin", title="power a kelvin", get=lambda each: each.a_kelvin, text=_a_kelvin
    ),
)


def pairs_of(store: Store, board: str) -> Iterator[Pair]:
    """Yield a pair for each configuration that a board (UUID) visited twice in the same way."""
    calibrations = {each.id: each.calibration for each in store.campaigns(board=board)}
    visits: dict[tuple[str, str, str], list[Visit]] = defaultdict(list)
    for visit in store.visits(board, role="measurement"):
        stretch = visit.stretch
        if stretch is None or stretch.temperature_c is None or stretch.busy_share < 1:
            continue
        if not is_rejected(visit) and not any(each.startswith(HELD_BACK) for each in visit.flags):
            alike = visit.configuration, visit.setting, visit.access
            visits[alike].append(visit)
    for seen in visits.values():
        ends = seen[0], seen[-1]
        first, last = (visit_cost(each, calibrations[each.campaign]) for each in ends)
        cold, warm = (each.stretch.temperature_c or 0.0 for each in ends if each.stretch)
        if len(seen) > 1 and first and last and first.power_w and last.power_w:
            power, time = last.power_w / first.power_w, last.time_s / first.time_s
            yield Pair(warm - cold, first.power_w, power, time)


def by_power(board: str, pairs: Sequence[Pair]) -> Iterator[Warmer]:
    """Yield all pairs of a board, and those between each two bounds of the power."""
    if pairs:
        yield Warmer(board, pairs)
    for low, high in pairwise(BANDS_W):
        some = [each for each in pairs if low <= each.power_w < high]
        if len(some) >= LEAST_PAIRS:
            yield Warmer(board, some)


def main() -> int:
    """Print by how much boards drew more power when they were warmer; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("boards", nargs="+", metavar="BOARD")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        with open_store(str(asked.database), create=False) as store:
            predictor = predictor_for(store, None, estimates=False)
            boards = [predictor.board(each) for each in asked.boards]
            found = [each for b in boards for each in by_power(b, list(pairs_of(store, b)))]
    except OpdbError as error:
        print(f"warmer_visits: {error}", file=sys.stderr)
        return error.exit_status
    print(json.dumps(PAIRS.documents(found)) if asked.json else "\n".join(PAIRS.lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
