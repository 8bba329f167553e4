"""The results of a matrix's runs, alone and with the repeats of a combination joined."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from opdb.derive.costs import quantity_of, stretch_power_w
from opdb.matrix.specs import TrainingSpec
from opdb.records import Campaign, ModelRun, Quantity
from opdb.runs.table import State

if TYPE_CHECKING:
    pass

_NAMED = 3
"""The most combinations that a remark names; of more it gives the number."""


@dataclass(frozen=True)
class MatrixRun:
    """A run of a matrix as far as it was made; `run` and its campaign None where it was not."""

    cell: TrainingSpec
    state: State
    run: ModelRun | None = None
    campaign: Campaign | None = None

    @cached_property
    def figures(self) -> Figures | None:
        """The result, where it ended well."""
        return None if self.run is None else figures([self.run])

    @property
    def images_per_s(self) -> float | None:
        """The images that it trains on in a second."""
        images = self.cell.combination.images_per_step
        return None if self.figures is None else images / self.figures.time_s.mean

    @property
    def reason(self) -> str | None:
        """Why it has no figures, where that is known."""
        if self.run is not None:
            return self.run.reason
        return self.cell.why_not if self.state == "not here" else None


@dataclass(frozen=True)
class Figures:
    """The cost of a step, over one run or several: times and energy with intervals.

    Each of several runs is one value, so their interval includes differences between processes. The
    interval of one run alone is that of its stretches. Times are means of all iterations timed,
    slow ones too. `waits` is the share of a step in which the device waited for data.
    """

    time_s: Quantity
    energy_j: Quantity | None
    energy_reason: str | None
    power_w: float | None
    data_time_s: float
    compute_time_s: float

    @property
    def waits(self) -> float:
        """The share of a step in which the device was idle and the host waited."""
        idle_s = max(0.0, self.time_s.mean - self.compute_time_s)
        return min(self.data_time_s, idle_s) / self.time_s.mean


def figures(runs: Sequence[ModelRun]) -> Figures | None:
    """Return the joined result of one combination's good runs; None where there is none."""
    good = [run for run in runs if run.outcome == "ok"]
    if not good:
        return None
    times = [[statistics.fmean(r.replay_times_s) for r in run.repeats] for run in good]
    powers = [[stretch_power_w(r) for r in run.repeats] for run in good]
    known = [p for some in powers for p in some if p is not None]
    energies = []
    if len(known) == sum(map(len, powers)):
        energies = [
            [p * t for p, t in zip(some, each, strict=True) if p is not None]
            for some, each in zip(powers, times, strict=True)
        ]
    facts = [run.facts for run in good]
    return Figures(
        time_s=_joined(times),
        energy_j=_joined(energies) if energies else None,
        energy_reason=None if energies else _no_energy(good),
        power_w=statistics.fmean(known) if energies else None,
        data_time_s=statistics.fmean(each["data_time_s"] for each in facts),
        compute_time_s=statistics.fmean(each["compute_time_s"] for each in facts),
    )


def _joined(values: Sequence[Sequence[float]]) -> Quantity:
    """Join the values of each run's stretches: by run where there are several."""
    return quantity_of(values[0] if len(values) == 1 else list(map(statistics.fmean, values)), None)


def _no_energy(runs: Iterable[ModelRun]) -> str:
    said = [flag for run in runs for flag in run.flags if flag.startswith("no power")]
    return said[0] if said else "no power was read"


@dataclass(frozen=True)
class Line:
    """The repeats of one combination, joined."""

    runs: tuple[MatrixRun, ...]

    @property
    def cell(self) -> TrainingSpec:
        """The first of them, which represents all."""
        return self.runs[0].cell

    @cached_property
    def figures(self) -> Figures | None:
        """The joined result of the good ones."""
        return figures([made.run for made in self.runs if made.run is not None])

    @property
    def done(self) -> list[ModelRun]:
        """The good ones."""
        return [m.run for m in self.runs if m.run is not None and m.run.outcome == "ok"]

    @property
    def images_per_step(self) -> int:
        """The number of images of a step."""
        return self.cell.combination.images_per_step

    def remarks(self) -> list[str]:
        """Return what must be known beside the figures, or why there are none."""
        said = [
            made.state if made.reason is None else f"{made.state}: {made.reason}"
            for made in self.runs
            if made.state != "done"
        ]
        found = self.figures
        if found is not None and found.energy_reason is not None:
            said.append(found.energy_reason)
        flags = [flag for made in self.runs if made.run is not None for flag in made.run.flags]
        said += [flag for flag in flags if not flag.startswith("no power")]
        return list(dict.fromkeys(said))


def lines_of(made: Iterable[MatrixRun]) -> list[Line]:
    """Return a line for each combination, its repeats joined, in the order of the file."""
    found: dict[str, list[MatrixRun]] = {}
    for each in made:
        found.setdefault(each.cell.group, []).append(each)
    return [Line(tuple(some)) for some in found.values()]


def remarks_of(lines: Sequence[Line]) -> list[str]:
    """Return all remarks, each said once with the combinations that it concerns."""
    concerned: dict[str, list[str]] = {}
    for line in lines:
        for remark in line.remarks():
            concerned.setdefault(remark, []).append(line.cell.group)
    return [
        f"{', '.join(whom) if len(whom) <= _NAMED else f'{len(whom)} of {len(lines)}'}: {remark}"
        for remark, whom in concerned.items()
    ]


def mixed(made: Iterable[MatrixRun]) -> list[str]:
    """Say where figures of one table come from several boards, hosts or versions of torch."""
    campaigns = [each.campaign for each in made if each.campaign is not None]
    kinds = (
        ("boards", {c.board.uuid for c in campaigns}),
        ("hosts", {c.host.id for c in campaigns}),
        ("versions of torch", {str(c.environment.get("torch")) for c in campaigns}),
    )
    return [
        f"runs come from {len(found)} {what}: {', '.join(sorted(found))}"
        for what, found in kinds
        if len(found) > 1
    ]
