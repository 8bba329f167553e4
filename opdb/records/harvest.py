"""The result of a harvest, and the parts of it that are stored."""

from __future__ import annotations

from dataclasses import dataclass

from opdb.records.words import CAPTURED_MODE, Mode
from opdb.records.workload import Workload


@dataclass(frozen=True)
class Harvest:
    """The calls of a model, and those while a CUDA graph captures it, where they differ.

    `failure` says why the latter is not known of a model that asks whether it is captured.
    A harvest of the same `fingerprint` finds the same; None where that is not known. `notes` say
    in words what else is unusual about how it was found.
    """

    workload: Workload
    captured: Workload | None = None
    failure: str | None = None
    fingerprint: str | None = None
    notes: tuple[str, ...] = ()

    def in_mode(self, mode: Mode) -> Workload:
        """Return what the model calls in a mode."""
        captured = self.captured if mode == CAPTURED_MODE else None
        return captured or self.workload


@dataclass(frozen=True)
class Stored:
    """A harvest and how it came to be known: from the database, or by harvesting just now.

    `harvest_s` is what the harvest took, in seconds; None of one that was stored before. `stale`
    counts the runs that were measured when the model made other calls. `unsaved` says why a harvest
    is not stored, where it is not.
    """

    found: Harvest
    stale: int = 0
    harvest_s: float | None = None
    unsaved: str | None = None

    @property
    def workload(self) -> Workload:
        """The calls of the model."""
        return self.found.workload

    @property
    def stood(self) -> bool:
        """Whether it was stored before."""
        return self.harvest_s is None

    def in_mode(self, mode: Mode) -> Workload:
        """Return what the model calls in a mode, as far as it is not stored beside the workload."""
        return self.found.in_mode(mode)
