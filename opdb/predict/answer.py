"""The answer for a workload: its prediction, and the measured run beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from opdb.compose import Prediction
from opdb.derive.boards import Factors
from opdb.derive.runs import RunCost
from opdb.memory import Memory, memory_of
from opdb.records import Json


@dataclass(frozen=True)
class Answer:
    """A prediction, and the measured run of the same board beside it where there is one.

    `refused` says why the forced algorithm cannot run some convolutions (keys). `brought` counts
    the calls that the board did not measure: they have another board's cost, scaled by factors.
    """

    prediction: Prediction
    measured: RunCost | None
    setting: Mapping[str, Json]
    refused: Mapping[str, str] = field(default_factory=dict)
    brought: int = 0

    @cached_property
    def memory(self) -> Memory:
        """The device memory that the workload needs, and whether it fits."""
        return memory_of(self.prediction.workload, self.prediction.device)

    @property
    def attribution_time(self) -> float | None:
        """Predicted over measured time."""
        if self.measured is None or self.prediction.time_s is None:
            return None
        return self.prediction.time_s / self.measured.time_s.mean

    @property
    def attribution_energy(self) -> float | None:
        """Predicted over measured energy."""
        if self.measured is None or self.measured.energy_j is None:
            return None
        if self.prediction.energy_j is None:
            return None
        return self.prediction.energy_j / self.measured.energy_j.mean

    @property
    def order(self) -> tuple[str, str, str, int, str]:
        """The key by which answers are sorted: model, mode, dtype, batch size and board."""
        found, workload = self.prediction, self.prediction.workload
        return workload.name, found.mode, workload.dtype, workload.batch_size, found.board

    def meets(self, target: float) -> bool:
        """Whether coverage reaches the target and attribution lies within 1 ± (1 - target).

        Both for time and for energy; an attribution that is not known does not count, a device
        without power readings is held to its time alone.
        """
        prediction = self.prediction
        if prediction.workload.unsupported or min(prediction.coverages.values()) < target:
            return False
        known = [a for a in (self.attribution_time, self.attribution_energy) if a is not None]
        return all(abs(a - 1) <= 1 - target + 1e-12 for a in known)


@dataclass(frozen=True)
class Transfer:
    """A measured run predicted from another board's costs: unchanged, and scaled by factors."""

    origin: str
    factors: Factors
    raw: Answer
    brought: Answer
