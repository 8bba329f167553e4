"""Other models that were measured: their runs show how far a sum may be off."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from opdb.compose import PeerRatio, PeerRatios, Prediction, compose_pass
from opdb.predict.bases import Bases
from opdb.predict.boards import Boards
from opdb.predict.measured_runs import MeasuredRuns
from opdb.predict.regimes import batch_of
from opdb.predict.snapshot import Snapshot
from opdb.records import Configuration, Mode, RunRatio, RunRatios, Workload
from opdb.store import Measured

MOST_PEERS = 12
"""Other models that an interval rests on, one run of each: those most like the workload."""

SAME = 0.4
"""Models are one where they share this share of the smaller one's calls that have weights: BERT
under two names, the sizes of ResNet, a ViT of two libraries."""


@dataclass(frozen=True)
class Evidence:
    """What other models' runs showed of sums, and of hosts that passes wait for.

    `host_ratios` are predicted / measured times of passes that wait for their host.
    """

    ratios: PeerRatios
    host_ratios: tuple[float, ...]


class Peers:
    """The measured workloads of other models, told from a workload's own by their operators.

    `as_learned`: what their runs showed when that was last learned need not be computed again.
    """

    def __init__(
        self,
        runs: MeasuredRuns,
        snapshot: Snapshot,
        boards: Boards,
        bases: Bases,
        *,
        as_learned: bool,
    ) -> None:
        self._runs = runs
        self._snapshot = snapshot
        self._boards = boards
        self._bases = bases
        self._as_learned = as_learned
        self._weighted_calls = cache(weighted_calls)
        self._predicted = cache(self._predict)
        self._read: set[tuple[str, str]] = set()

    def evidence(self, workload: Workload, mode: Mode) -> Evidence:
        """Compare predictions of the other models most like a workload with their measured runs.

        In all of these runs torch chose the algorithms. A model of which a part is missing or not
        described says nothing of a sum. A pass that waits for its host says nothing of the device's
        time; of energy it shows how far the sum is off, had the pass taken the measured time.
        """
        others = self.of(workload, mode)
        known = self._learned(others, mode)
        known |= self._compared([each for each in others if each.key not in known], mode)
        shown = [found for each in others if (found := known[each.key]) is not None]
        time = [PeerRatio(each.time, each.kernel_s) for each in shown if not each.waits]
        energy = [PeerRatio(e.energy, e.kernel_s) for e in shown if e.energy is not None]
        host = [each.time for each in shown if each.waits]
        return Evidence(PeerRatios(tuple(time), tuple(energy)), tuple(host))

    def ratios(self, modes: Iterable[Mode]) -> RunRatios:
        """Return what every measured run in some modes shows, one of each workload."""
        found: dict[str, dict[str, dict[str, RunRatio | None]]] = {}
        for mode in modes:
            measured = self._runs.measured(mode)
            for key, shown in self._compared(list(measured.values()), mode).items():
                of_board = found.setdefault(mode, {}).setdefault(measured[key].board, {})
                of_board[key] = shown
        return found

    def _learned(self, others: Iterable[Measured], mode: Mode) -> dict[str, RunRatio | None]:
        """Return what is stored of measured workloads (keys) since it was last learned."""
        if not self._as_learned:
            return {}
        stored = ((each.key, self._snapshot.run_ratios(mode, each.board)) for each in others)
        return {key: of_board[key] for key, of_board in stored if key in of_board}

    def _compared(self, others: Sequence[Measured], mode: Mode) -> dict[str, RunRatio | None]:
        """Compare measured workloads (keys) with their runs; None of what says nothing of a sum."""
        workloads = self._runs.workloads_of([each.key for each in others])
        self._read_costs(workloads, [each.board for each in others])
        return {
            each.key: self._compare(workload, mode, each.board)
            for workload, each in zip(workloads, others, strict=True)
        }

    def _compare(self, workload: Workload, mode: Mode, board: str) -> RunRatio | None:
        found = self._predicted(workload, mode, board)
        if not found.time_s or found.missing or workload.unsupported:
            return None
        measured = self._runs.cost(workload, mode, board)
        if measured is None:
            return None
        # A processor is its own host.
        waits = found.host_bound and found.device.type != "cpu"
        energy = None
        if measured.energy_j is not None and found.energy_j is not None:
            base_w = self._snapshot.calibration(board).base_power_w or 0.0
            excess_s = found.time_s - measured.time_s.mean if waits else 0.0
            energy = (found.energy_j - base_w * excess_s) / measured.energy_j.mean
            energy = energy if energy > 0 else None  # all of it is base power
        kernel_s = found.kernel_s or None  # a host issues views, which no kernel runs
        return RunRatio(found.time_s / measured.time_s.mean, energy, kernel_s, waits)

    def _read_costs(self, workloads: Sequence[Workload], boards: Sequence[str]) -> None:
        """Read the costs of workloads on their boards, all those of one board at once."""
        called: dict[str, set[str]] = {}
        for workload, board in zip(workloads, boards, strict=True):
            if (workload.key, board) not in self._read:
                self._read.add((workload.key, board))
                called.setdefault(board, set()).update(c.key for c in workload.occurrences())
        for board, keys in called.items():
            self._snapshot.costs(board, keys)
        self._snapshot.read_others(set().union(*called.values()))

    def _predict(self, workload: Workload, mode: Mode, board: str) -> Prediction:
        """Predict a measured workload for its board, without what other models showed."""
        basis = self._bases.of(workload, board)
        return compose_pass(basis.pass_, mode, basis.inputs)

    def of(self, workload: Workload, mode: Mode) -> list[Measured]:
        """Return the nearest measured workload of each other model, of the `MOST_PEERS` nearest.

        The nearest is of the same phase and range of batch sizes, of the same dtype, and has the
        batch size that is least apart.
        """
        nearest: dict[str, Measured] = {}
        for other in sorted(
            self._runs.measured(mode).values(), key=lambda other: _unlikeness(other, workload)
        ):
            if other.name != workload.name:
                nearest.setdefault(other.name, other)
        candidates = list(nearest.values())[:MOST_PEERS]
        found = self._runs.workloads_of([other.key for other in candidates])
        plain = self._runs.workloads_of([other.model_key for other in found])
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
        shapes = _weight_shapes(configuration)
        if shapes:
            what = [configuration.kind, dict(configuration.parameters), shapes]
            counts[json.dumps(what, sort_keys=True)] += count
    return counts


def is_same_model(one: Counter[str], other: Counter[str]) -> bool:
    """Return whether two models, by their calls with weights, are one under two names or sizes."""
    smaller = min(one.total(), other.total())
    return smaller > 0 and (one & other).total() >= SAME * smaller


def _weight_shapes(configuration: Configuration) -> dict[str, object]:
    return {
        name: each["shape"]
        for name, each in configuration.inputs.items()
        if isinstance(each, dict) and each.get("role") == "weight"
    }


def _unlikeness(other: Measured, workload: Workload) -> tuple[bool, bool, bool, float]:
    return (
        other.phase != workload.phase,
        batch_of(other.batch_size) != batch_of(workload.batch_size),
        other.dtype != workload.dtype,
        _apart(other.batch_size, workload.batch_size),
    )


def _apart(one: int, other: int) -> float:
    """Return how far two batch sizes are apart, as the logarithm of their ratio; empty: far."""
    return abs(math.log(one / other)) if one and other else math.inf
