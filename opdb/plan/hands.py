"""Who measures for a build: this process on one device, or workers on several of one kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from opdb.bench.measure import check_modes
from opdb.bench.platform import Platform, detect
from opdb.bench.request import BenchRequest
from opdb.bench.rounds import Progress
from opdb.bench.run import BenchResult, bench
from opdb.cluster.crew import Crew
from opdb.cluster.devices import WorkerDevice
from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.records import Mode, Workload
from opdb.runs.work import Here, Maker
from opdb.store import Store


@dataclass(frozen=True)
class BuildModel:
    """A workload to bring to the target, as its model calls it, and the request that loads that."""

    request: ModelRequest
    workload: Workload

    @property
    def ran(self) -> str:
        """The key under which the model's runs are stored."""
        return self.workload.model_key


class Hands(Protocol):
    """What a build has at its disposal."""

    @property
    def platforms(self) -> Sequence[Platform]:
        """What there is to measure on: boards of one device."""

    @property
    def runs(self) -> Maker:
        """Who runs models."""

    def bench(self, request: BenchRequest, progress: Progress) -> Sequence[BenchResult]:
        """Bench what is pending; return what each board did."""


class Alone:
    """This process, on one device."""

    platforms: Sequence[Platform]
    runs: Maker

    def __init__(self, store: Store, device: str | None, mode: Mode) -> None:
        """Take a device.

        Raises:
            CannotMeasureError: there is no such device, or it lacks the mode.
        """
        check_modes([mode], device)
        self._store, self._device = store, device
        self.platforms = (detect(device),)
        self.runs = Here(store, device, (self.platforms[0].board,))

    def bench(self, request: BenchRequest, progress: Progress) -> Sequence[BenchResult]:
        """Bench here."""
        return [bench(self._store, replace(request, device=self._device), progress)]


class Several:
    """Workers on several boards."""

    def __init__(self, crew: Crew, mode: Mode) -> None:
        """Take a crew.

        Raises:
            InputError: its boards are of several devices, which share no costs.
            CannotMeasureError: the device lacks the mode.
        """
        self.runs = crew
        self.platforms = tuple(crew.platforms)
        kinds = {platform.device.slug for platform in self.platforms}
        if len(kinds) > 1:
            raise InputError(
                f"--devices: boards of several kinds ({', '.join(sorted(kinds))}); what one "
                "measures says nothing of the other, so build for one kind at a time"
            )
        if self.platforms[0].device.type == "cpu":
            check_modes([mode], "cpu")

    def bench(self, request: BenchRequest, progress: Progress) -> Sequence[BenchResult]:
        """Bench on all boards, each configuration on one of them."""
        return self.runs.bench(request, progress)


@contextmanager
def hands_at(
    store: Store, device: str | None, places: Sequence[WorkerDevice], mode: Mode
) -> Iterator[Hands]:
    """Yield who measures: this process on a device, or workers at several places.

    Raises:
        InputError: the places are of several devices, which share no costs.
        CannotMeasureError: there is no such device, or it lacks the mode.
    """
    if not places:
        yield Alone(store, device, mode)
        return
    with Crew(places, store.url) as crew:
        yield Several(crew, mode)
