"""Other models that were measured: their runs show how far a sum may be off."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

from opdb.predict.board_data import BoardData
from opdb.predict.compose import compose_pass
from opdb.predict.intervals import PeerRatio
from opdb.predict.timeline import PeerRatios
from opdb.records import CAPTURED_MODE, Mode, RunRatio, RunRatios, Workload
from opdb.store import Measured

# The regimes in which sums of operators err in different ways: how work is issued × batch size.


Family = Literal["graph", "eager", "compiled", "training"]
Batch = Literal["1", "2–16", "over 16"]

FAMILIES: tuple[Family, ...] = ("graph", "eager", "compiled", "training")
BATCHES: tuple[Batch, ...] = ("1", "2–16", "over 16")

LARGEST_SMALL_BATCH = 16


class Regime(NamedTuple):
    family: Family
    batch: Batch


def batch_of(batch_size: int) -> Batch:
    if batch_size <= 1:
        return "1"
    return "2–16" if batch_size <= LARGEST_SMALL_BATCH else "over 16"


def regime_of(workload: Workload, mode: Mode) -> Regime:
    issued: Mapping[Mode, Family] = {CAPTURED_MODE: "graph", "eager": "eager"}
    family = "training" if workload.phase == "training" else issued.get(mode, "compiled")
    return Regime(family, batch_of(workload.batch_size))


# Other models that were measured: their runs show how far a sum may be off.


MOST_PEERS = 12
"""Other models that an interval rests on, one run of each: those most like the workload."""

SAME = 0.4
"""Models are one where they share this share of the smaller one's calls that have weights: BERT
under two names, the sizes of ResNet, a ViT of two libraries."""


class Peers:
    """The measured workloads of other models, told from a workload's own by their operators.

    `as_learned`: what their runs showed when that was last learned need not be computed again. In
    all of these runs torch chose the algorithms.
    """

    def __init__(self, data: BoardData, *, as_learned: bool) -> None:
        self._data = data
        self._as_learned = as_learned
        self._weighted_calls = cache(weighted_calls)
        self._read: set[tuple[str, str]] = set()

    def evidence(self, workload: Workload, mode: Mode) -> tuple[PeerRatios, tuple[float, ...]]:
        """Compare predictions of the other models most like a workload with their measured runs.

        Returns what they showed of sums, and predicted / measured times of passes that wait for
        their host. A model of which a part is missing or not described says nothing of a sum. A
        pass that waits for its host says nothing of the device's time; of energy it shows how far
        the sum is off, had the pass taken the measured time.
        """
        others = self.of(workload, mode)
        known: dict[str, RunRatio | None] = {}
        for each in others if self._as_learned else ():
            stored = self._data.stored_ratios(mode, each.board)
            if each.key in stored:
                known[each.key] = stored[each.key]
        known |= self._compared([each for each in others if each.key not in known], mode)
        shown = [found for each in others if (found := known[each.key]) is not None]
        time = [PeerRatio(each.time, each.kernel_s) for each in shown if not each.waits]
        energy = [PeerRatio(e.energy, e.kernel_s) for e in shown if e.energy is not None]
        host = [each.time for each in shown if each.waits]
        return PeerRatios(tuple(time), tuple(energy)), tuple(host)

    def ratios(self, modes: Iterable[Mode]) -> RunRatios:
        """Return what every measured run in some modes shows, one of each workload."""
        found: dict[str, dict[str, dict[str, RunRatio | None]]] = {}
        for mode in modes:
            measured = self._data.measured_in(mode)
            for key, shown in self._compared(list(measured.values()), mode).items():
                of_board = found.setdefault(mode, {}).setdefault(measured[key].board, {})
                of_board[key] = shown
        return found

    def _compared(self, others: Sequence[Measured], mode: Mode) -> dict[str, RunRatio | None]:
        workloads = self._data.workloads_of([each.key for each in others])
        called: dict[str, set[str]] = {}
        for workload, each in zip(workloads, others, strict=True):
            if (workload.key, each.board) not in self._read:
                self._read.add((workload.key, each.board))
                keys = (c.key for c in workload.occurrences())
                called.setdefault(each.board, set()).update(keys)
        self._data.read_costs_on(called)
        return {
            each.key: self._compare(workload, mode, each.board)
            for workload, each in zip(workloads, others, strict=True)
        }

    def _compare(self, workload: Workload, mode: Mode, board: str) -> RunRatio | None:
        basis = self._data.basis(workload, board)
        found = compose_pass(basis.pass_, mode, basis.inputs)
        if not found.time_s or found.missing or workload.unsupported:
            return None
        measured = self._data.run_cost(workload, mode, board)
        if measured is None:
            return None
        # A processor is its own host.
        waits = found.host_bound and found.device.type != "cpu"
        energy = None
        if measured.energy_j is not None and found.energy_j is not None:
            base_w = self._data.base_power_w(board) or 0.0
            excess_s = found.time_s - measured.time_s.mean if waits else 0.0
            energy = (found.energy_j - base_w * excess_s) / measured.energy_j.mean
            energy = energy if energy > 0 else None  # all of it is base power
        kernel_s = found.kernel_s or None  # a host issues views, which no kernel runs
        return RunRatio(found.time_s / measured.time_s.mean, energy, kernel_s, waits)

    def of(self, workload: Workload, mode: Mode) -> list[Measured]:
        """Return the nearest measured workload of each other model, of the `MOST_PEERS` nearest.

        The nearest is of the same phase and range of batch sizes, of the same dtype, and has the
        batch size that is least apart.
        """
        nearest: dict[str, Measured] = {}
        for other in sorted(
            self._data.measured_in(mode).values(), key=lambda other: _unlikeness(other, workload)
        ):
            if other.name != workload.name:
                nearest.setdefault(other.name, other)
        candidates = list(nearest.values())[:MOST_PEERS]
        found = self._data.workloads_of([other.key for other in candidates])
        plain = self._data.workloads_of([other.model_key for other in found])
        own = self._weighted_calls(workload)
        return [
            other
            for other, as_called in zip(candidates, plain, strict=True)
            if not is_same_model(own, self._weighted_calls(as_called))
        ]


def weighted_calls(workload: Workload) -> Counter[str]:
    """Count a workload's calls with weights, by what no batch size, dtype or mode changes."""
    counts: Counter[str] = Counter()
    for configuration, count in workload.occurrences().items():
        shapes = {
            name: each["shape"]
            for name, each in configuration.inputs.items()
            if isinstance(each, dict) and each.get("role") == "weight"
        }
        if shapes:
            what = [configuration.kind, dict(configuration.parameters), shapes]
            counts[json.dumps(what, sort_keys=True)] += count
    return counts


def is_same_model(one: Counter[str], other: Counter[str]) -> bool:
    """Return whether two models, by their calls with weights, are one under two names or sizes."""
    smaller = min(one.total(), other.total())
    return smaller > 0 and (one & other).total() >= SAME * smaller


def _unlikeness(other: Measured, workload: Workload) -> tuple[bool, bool, bool, float]:
    apart = math.inf  # of an empty batch
    if other.batch_size and workload.batch_size:
        apart = abs(math.log(other.batch_size / workload.batch_size))
    return (
        other.phase != workload.phase,
        batch_of(other.batch_size) != batch_of(workload.batch_size),
        other.dtype != workload.dtype,
        apart,
    )
