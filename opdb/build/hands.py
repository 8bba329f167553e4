"""Who measures for a build: this process on one device, or workers on several of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from opdb.bench.measure import check_modes, measure_each
from opdb.bench.model import RunOptions
from opdb.bench.platform import Platform, detect
from opdb.bench.rounds import Progress
from opdb.bench.run import BenchRequest, BenchResult, bench
from opdb.cluster import messages
from opdb.cluster.crew import Crew
from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.records import Mode, ModelRun, Workload
from opdb.store import Store


@dataclass(frozen=True)
class Job:
    """A workload to bring to the target, as its model calls it, and the request that loads that."""

    request: ModelRequest
    workload: Workload

    @property
    def ran(self) -> str:
        """The key under which the model's runs are stored."""
        return self.workload.model_key


Begins: TypeAlias = Callable[[Job, str], bool]
"""Hears that a model is to be run on a device (empty: the only one); says whether it shall."""


class Hands(Protocol):
    """What a build has at its disposal."""

    @property
    def platforms(self) -> Sequence[Platform]:
        """What there is to measure on: boards of one device."""

    @property
    def failures(self) -> Sequence[str]:
        """Why each device that failed did, named first."""

    def bench(self, request: BenchRequest, progress: Progress) -> Sequence[BenchResult]:
        """Bench what is pending; return what each board did."""

    def measure(self, jobs: Sequence[Job], mode: Mode, begins: Begins) -> Iterator[ModelRun]:
        """Run models, each once; yield each run once it is saved, until one may not begin."""


class Alone:
    """This process, on one device."""

    platforms: Sequence[Platform]
    failures: Sequence[str]

    def __init__(self, store: Store, device: str | None, mode: Mode) -> None:
        """Take a device.

        Raises:
            CannotMeasureError: there is no such device, or it lacks the mode.
        """
        check_modes([mode], device)
        self._store, self._device = store, device
        self.platforms = (detect(device),)
        self.failures = ()

    def bench(self, request: BenchRequest, progress: Progress) -> Sequence[BenchResult]:
        """Bench here."""
        return [bench(self._store, replace(request, device=self._device), progress)]

    def measure(self, jobs: Sequence[Job], mode: Mode, begins: Begins) -> Iterator[ModelRun]:
        """Run the models one after another, in one campaign."""

        def each() -> Iterator[tuple[ModelRequest, str, Mode]]:
            for job in jobs:
                if not begins(job, ""):
                    return
                yield job.request, job.ran, mode

        yield from measure_each(self._store, each(), RunOptions(), device=self._device)


class Several:
    """Workers on several boards."""

    def __init__(self, crew: Crew, mode: Mode) -> None:
        """Take a crew.

        Raises:
            InputError: its boards are of several devices, which share no costs.
            CannotMeasureError: the device lacks the mode.
        """
        self._crew = crew
        self.platforms = tuple(crew.platforms)
        kinds = {platform.device.slug for platform in self.platforms}
        if len(kinds) > 1:
            raise InputError(
                f"--devices: boards of several kinds ({', '.join(sorted(kinds))}); what one "
                "measures says nothing of the other, so build for one kind at a time"
            )
        if self.platforms[0].device.type == "cpu":
            check_modes([mode], "cpu")

    @property
    def failures(self) -> Sequence[str]:
        """Why each worker that failed did."""
        return self._crew.failures

    def bench(self, request: BenchRequest, progress: Progress) -> Sequence[BenchResult]:
        """Bench on all boards, each configuration on one of them."""
        return self._crew.bench(request, progress)

    def measure(self, jobs: Sequence[Job], mode: Mode, begins: Begins) -> Iterator[ModelRun]:
        """Run each model on whichever board is free."""
        handed = [messages.Job(job.request, job.ran, mode) for job in jobs]
        back = {id(given): job for given, job in zip(handed, jobs, strict=True)}

        def tell(given: messages.Job, device: str) -> bool:
            return begins(back[id(given)], device)

        for _, run in self._crew.measure(handed, RunOptions(), tell):
            yield run
