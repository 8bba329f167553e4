"""What the run of one cell says: one row of a sweep's files, and its layers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from opdb.algorithms.names import DEFAULT, GUESS
from opdb.derive.runs import RunCost, agreeing, run_cost
from opdb.records import ELSEWHERE, Json, ModelRun, Quantity
from opdb.runs.table import State
from opdb.sweep.specs import SweepSpec, state_of
from opdb.tables import Column, Table
from opdb.units import MILLI, show, show_share

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

    cell: SweepSpec
    run: ModelRun
    board: str
    predicted: Predicted
    same_as: str | None
    energies_j: Mapping[str, float]

    @property
    def state(self) -> State:
        """The state of the cell."""
        return state_of(self.run.outcome, self.run.facts)

    @cached_property
    def iteration_s(self) -> list[float]:
        """The times of the measured passes of the stretches that agree."""
        if self.run.outcome != "ok":
            return []
        return [t for stretch in agreeing(self.run.repeats) for t in stretch.replay_times_s]

    @cached_property
    def cost(self) -> RunCost | None:
        """What a pass took; None where the run gave no figures."""
        return run_cost([self.run])

    @property
    def time_s(self) -> Quantity | None:
        """The time of a pass."""
        return self.cost.time_s if self.cost and self.iteration_s else None

    @property
    def energy_j(self) -> Quantity | None:
        """The energy of a pass."""
        return self.cost.energy_j if self.cost else None

    @property
    def elsewhere(self) -> Mapping[str, Json]:
        """Why convolutions ran by another algorithm than the one named, and by which, by layer."""
        found: Mapping[str, Json] = self.run.facts.get(ELSEWHERE, {})
        return found

    def an_inference(self, pass_j: float | None) -> float | None:
        """Return the energy of one image of a pass."""
        return None if pass_j is None else pass_j / self.cell.request.batch_size

    @cached_property
    def reason(self) -> str | None:
        """Why there are no figures, or what must be known beside them."""
        whole = self.run.reason or ""
        said = [whole] if whole else []
        elsewhere = self.elsewhere.values()
        said += sorted({each["why"] for each in elsewhere if each["why"] not in whole})
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
        cost, kernels = self.cost, self.run.kernels
        if self.run.mode != "graph" or cost is None or not self.run.layers or not kernels:
            return None
        in_place_s = sum(self.run.layers.values())
        gaps = sum(kernels.values()) + len(self.run.layers)
        waited = in_place_s > cost.time_s.mean + gaps * LONGEST_GAP_S
        return in_place_s / cost.time_s.mean if waited else None

    def layers(self, layers: Sequence[LayerFacts]) -> list[LayerTime]:
        """Return the layers that were timed in place."""
        times = self.run.layers
        if self.run.outcome != "ok" or not times:
            return []
        total_s = sum(times.values())
        timed = [layer for layer in layers if layer.path in times]
        return [LayerTime(self, each, times[each.path], total_s) for each in timed]

    def ran(self, path: str) -> str:
        """Return the algorithm by which a layer ran: cuDNN's guess where it was to guess."""
        if path in self.run.facts.get(ELSEWHERE, {}):
            return DEFAULT
        if self.cell.algorithm.name == GUESS:
            guessed = self.run.facts.get("guessed", {}).get(path)
            return " and ".join(guessed) if guessed else GUESS
        return self.cell.algorithm.name


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


@dataclass(frozen=True)
class LayerTime:
    """A convolution layer's time in place, and that of all leaf modules of the pass (seconds)."""

    row: Row
    layer: LayerFacts
    time_s: float
    total_s: float


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / MILLI


def _time(name: str, of: Callable[[list[float]], float]) -> Column[Row]:
    return Column(name, lambda row: _milli(of(row.iteration_s)) if row.time_s else None)


def _time_bound(side: str) -> Column[Row]:
    return Column(
        f"mean_{side}_ms", lambda row: _milli(getattr(row.time_s, side)) if row.time_s else None
    )


def _energy_bound(side: str) -> Column[Row]:
    return Column(
        f"energy_{side}_j",
        lambda row: row.an_inference(getattr(row.energy_j, side)) if row.energy_j else None,
    )


def _fact(name: str) -> Column[Row]:
    return Column(name, lambda row: row.run.facts.get(name))


def _state(row: Row) -> str:
    return row.run.outcome if row.state == "failed" else row.state


def _state_words(row: Row) -> str:
    share = row.run.facts.get("share_elsewhere")
    return _state(row) + (f", {show_share(share)} elsewhere" if share else "")


OVERALL: Table[Row] = Table(
    Column("model", lambda row: row.cell.request.name, "model"),
    Column("algorithm", lambda row: row.cell.algorithm.name, "algorithm"),
    Column("input_size", lambda row: row.cell.size, "size"),
    Column(
        "mean_ms",
        lambda row: _milli(row.time_s.mean) if row.time_s else None,
        "time",
        text=lambda row: show(row.time_s.mean if row.time_s else None, "s"),
    ),
    Column(
        "std_ms",
        lambda row: (
            _milli(statistics.stdev(row.iteration_s))
            if row.time_s and len(row.iteration_s) > 1
            else None
        ),
    ),
    _time("min_ms", min),
    _time("max_ms", max),
    Column("power_mean_w", lambda row: row.cost.power_w if row.cost and row.energy_j else None),
    Column(
        "energy_per_inference_j",
        lambda row: row.an_inference(row.energy_j.mean) if row.energy_j else None,
        "energy",
        "J",
    ),
    *map(_time_bound, ("low", "high")),
    *map(_energy_bound, ("low", "high")),
    Column("iterations", lambda row: len(row.iteration_s) if row.time_s else None),
    Column("state", _state, "state", text=_state_words),
    *map(_fact, ("convolutions", "forced")),
    Column(
        "elsewhere",
        lambda row: len(row.elsewhere) if row.cell.algorithm.is_forced and row.run.facts else None,
    ),
    Column(
        "elsewhere_ran",
        lambda row: "; ".join(sorted({e["ran"] for e in row.elsewhere.values()})) or None,
    ),
    _fact("share_elsewhere"),
    Column(
        "same_kernels_as",
        lambda row: row.same_as,
        "same kernels as",
        text=lambda r: r.same_as or "",
    ),
    Column("predicted_ms", lambda row: _milli(row.predicted.time_s)),
    Column("predicted_energy_j", lambda row: row.an_inference(row.predicted.energy_j)),
    Column("mode", lambda row: row.run.mode),
    Column("batch_size", lambda row: row.cell.request.batch_size),
    Column("dtype", lambda row: row.cell.request.dtype),
    Column("board", lambda row: row.board),
    Column("reason", lambda row: row.reason, "why", text=lambda row: row.reason or ""),
)
"""The rows of a sweep's file of cells; people's scripts read the first nine columns."""

LAYERS: Table[LayerTime] = Table(
    Column("input_size", lambda each: each.row.cell.size),
    Column("layer", lambda each: each.layer.path),
    Column("in_channels", lambda each: each.layer.in_channels),
    Column("out_channels", lambda each: each.layer.out_channels),
    Column("kernel_size", lambda each: str(each.layer.kernel_size)),
    Column("mean_ms", lambda each: _milli(each.time_s)),
    Column("percentage", lambda each: 100 * each.time_s / each.total_s),
    Column("algorithm", lambda each: each.row.ran(each.layer.path)),
    Column("energy_j", lambda each: each.row.energies_j.get(each.layer.path)),
)
"""The rows of a sweep's file of convolution layers; percentages are of all leaf modules' time."""
