"""What the run of one cell says: one row of a sweep's files, and its layers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opdb.algorithms.names import DEFAULT, GUESS
from opdb.derive.runs import agreeing, run_cost
from opdb.records import ELSEWHERE, Json, ModelRun
from opdb.sweep.cells import Cell, State, state_of
from opdb.units import MILLI

OVERALL = (
    "model",
    "algorithm",
    "input_size",
    "mean_ms",
    "std_ms",
    "min_ms",
    "max_ms",
    "power_mean_w",
    "energy_per_inference_j",
    "mean_low_ms",
    "mean_high_ms",
    "energy_low_j",
    "energy_high_j",
    "iterations",
    "state",
    "convolutions",
    "forced",
    "elsewhere",
    "elsewhere_ran",
    "share_elsewhere",
    "same_kernels_as",
    "predicted_ms",
    "predicted_energy_j",
    "mode",
    "batch_size",
    "dtype",
    "board",
    "reason",
)
"""The columns of a sweep's file of cells; the first nine are those that people's scripts read."""

LAYERS = (
    "input_size",
    "layer",
    "in_channels",
    "out_channels",
    "kernel_size",
    "mean_ms",
    "percentage",
    "algorithm",
    "energy_j",
)
"""The columns of a sweep's file of convolution layers."""


LONGEST_GAP_S = 2.2e-6
"""Seconds that a launch and the events around a layer add at most in place, where nothing waits.

In 522 of 534 runs on an H200 they added 0.6 to 1.85 µs a kernel and layer, in 12 that waited 2.4 to
10.4 µs.
"""


@dataclass(frozen=True)
class Predicted:
    """What operators say of a cell: time (s) and energy (J) of a pass, where they are measured."""

    time_s: float | None = None
    energy_j: float | None = None


@dataclass(frozen=True)
class LayerFacts:
    """What a convolution layer is, whatever the input's size: its path, channels and kernel."""

    path: str
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One cell with its run, its board (UUID), and what was predicted of it.

    `same_as` is the first algorithm that ran the very same kernels at this size, where one did.
    `energies_j` are those of one call of its convolution layers, by path, where they are measured.
    """

    cell: Cell
    run: ModelRun
    board: str
    predicted: Predicted
    same_as: str | None
    energies_j: Mapping[str, float]

    @property
    def state(self) -> State:
        """The state of the cell."""
        return state_of(self.run.outcome, self.run.facts)

    @property
    def iteration_s(self) -> list[float]:
        """The times of the measured passes of the stretches that agree."""
        if self.run.outcome != "ok":
            return []
        return [t for stretch in agreeing(self.run.repeats) for t in stretch.replay_times_s]

    def overall(self) -> dict[str, Json]:
        """Return the row of the file of cells; what is not known is None."""
        run, facts = self.run, self.run.facts
        elsewhere: Mapping[str, Json] = facts.get(ELSEWHERE, {})
        return {
            **dict.fromkeys(OVERALL),
            "model": self.cell.request.name,
            "algorithm": self.cell.algorithm.name,
            "input_size": self.cell.size,
            **self._times(),
            **self._energies(),
            "state": self.state if self.state != "failed" else run.outcome,
            "convolutions": facts.get("convolutions"),
            "forced": facts.get("forced"),
            "elsewhere": len(elsewhere) if self.cell.algorithm.is_forced and facts else None,
            "elsewhere_ran": "; ".join(sorted({e["ran"] for e in elsewhere.values()})) or None,
            "share_elsewhere": facts.get("share_elsewhere"),
            "same_kernels_as": self.same_as,
            "predicted_ms": _milli(self.predicted.time_s),
            "predicted_energy_j": self._an_inference(self.predicted.energy_j),
            "mode": run.mode,
            "batch_size": self.cell.request.batch_size,
            "dtype": self.cell.request.dtype,
            "board": self.board,
            "reason": self._reason(elsewhere),
        }

    def _times(self) -> dict[str, Json]:
        times, cost = self.iteration_s, run_cost([self.run])
        if cost is None or not times:
            return {}
        return {
            "mean_ms": _milli(cost.time_s.mean),
            "std_ms": _milli(statistics.stdev(times) if len(times) > 1 else None),
            "min_ms": _milli(min(times)),
            "max_ms": _milli(max(times)),
            "mean_low_ms": _milli(cost.time_s.low),
            "mean_high_ms": _milli(cost.time_s.high),
            "iterations": len(times),
        }

    def _energies(self) -> dict[str, Json]:
        cost = run_cost([self.run])
        if cost is None or cost.energy_j is None:
            return {}
        energy = cost.energy_j
        return {
            "power_mean_w": cost.power_w,
            "energy_per_inference_j": self._an_inference(energy.mean),
            "energy_low_j": self._an_inference(energy.low),
            "energy_high_j": self._an_inference(energy.high),
        }

    def _an_inference(self, pass_j: float | None) -> float | None:
        return None if pass_j is None else pass_j / self.cell.request.batch_size

    def _reason(self, elsewhere: Mapping[str, Json]) -> str | None:
        whole = self.run.reason or ""
        said = [whole] if whole else []
        said += sorted({each["why"] for each in elsewhere.values() if each["why"] not in whole})
        passes = self._passes_waited
        if passes is not None:
            told = f"layers in place add up to {passes:.1f} passes"
            said.append(f"{told}: they most likely waited for the host")
        said += [flag for flag in self.run.flags if flag.startswith("no power")]
        return "; ".join(said) or None

    @property
    def _passes_waited(self) -> float | None:
        """How many passes the layers in place add up to, where their device waited for the host.

        A pass in a CUDA graph never waits. None where the layers did not either, as far as told.
        """
        cost, kernels = run_cost([self.run]), self.run.kernels
        if self.run.mode != "graph" or cost is None or not self.run.layers or not kernels:
            return None
        in_place_s = sum(self.run.layers.values())
        gaps = sum(kernels.values()) + len(self.run.layers)
        waited = in_place_s > cost.time_s.mean + gaps * LONGEST_GAP_S
        return in_place_s / cost.time_s.mean if waited else None

    def layers(self, layers: Sequence[LayerFacts]) -> list[dict[str, Json]]:
        """Return the rows of the file of layers, of those that were timed in place.

        The percentage is that of the time of all leaf modules, convolutions or not.
        """
        times = self.run.layers
        if self.run.outcome != "ok" or not times:
            return []
        total_s = sum(times.values())
        return [
            {
                "input_size": self.cell.size,
                "layer": layer.path,
                "in_channels": layer.in_channels,
                "out_channels": layer.out_channels,
                "kernel_size": str(layer.kernel_size),
                "mean_ms": _milli(times[layer.path]),
                "percentage": 100 * times[layer.path] / total_s,
                "algorithm": self.ran(layer.path),
                "energy_j": self.energies_j.get(layer.path),
            }
            for layer in layers
            if layer.path in times
        ]

    def ran(self, path: str) -> str:
        """Return the algorithm by which a layer ran: cuDNN's guess where it was to guess."""
        if path in self.run.facts.get(ELSEWHERE, {}):
            return DEFAULT
        if self.cell.algorithm.name == GUESS:
            guessed = self.run.facts.get("guessed", {}).get(path)
            return " and ".join(guessed) if guessed else GUESS
        return self.cell.algorithm.name


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / MILLI


def same_kernels(runs: Sequence[tuple[str, ModelRun]]) -> dict[str, str]:
    """Return, of algorithms at one size, each that ran the kernels of an earlier one, and which.

    Runs whose kernels could not be seen are like no other.
    """
    found: dict[str, str] = {}
    first: dict[tuple[tuple[str, int], ...], str] = {}
    for algorithm, run in runs:
        if run.outcome != "ok" or not run.kernels:
            continue
        kernels = tuple(sorted(run.kernels.items()))
        if kernels in first:
            found[algorithm] = first[kernels]
        else:
            first[kernels] = algorithm
    return found
