"""Model runs of several workloads in one campaign, each saved as soon as it is done."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias, get_args

from opdb.bench.harvests import harvest_each
from opdb.bench.model import RunOptions, measure
from opdb.bench.modes import CUDA_ONLY, check_switches
from opdb.bench.platform import Platform, detect
from opdb.bench.run import campaign
from opdb.bench.session import Session
from opdb.errors import CannotMeasureError, InputError, OpdbError
from opdb.memory import memory_of
from opdb.models import ModelRequest
from opdb.records import Harvest, Mode, ModelRun, Stored, Workload
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.progress import Progress
from opdb.runs.table import RunTable, Spec
from opdb.runs.work import Here, Make, Maker, Work, execute
from opdb.store import Claims, RunState, Store


def check_modes(modes: Collection[Mode], device: str | None) -> None:
    """Check that models can be measured in these modes on a device.

    Raises:
        CannotMeasureError: there is no such device, it lacks a mode, or the environment switches
            one off.
    """
    for mode in modes:
        check_switches(mode)
    platform = detect(device)
    lacking = [mode for mode in modes if mode in CUDA_ONLY]
    if lacking and platform.device.type != "cuda":
        raise CannotMeasureError(
            f"mode {lacking[0]!r} needs a CUDA device; {platform.device.name} is none: use "
            "another mode, such as eager"
        )


def modes_of(platform: Platform) -> tuple[Mode, ...]:
    """Return the modes that a platform has."""
    return tuple(m for m in get_args(Mode) if platform.device.type == "cuda" or m not in CUDA_ONLY)


Tell: TypeAlias = Callable[[Harvest, int], None]
"""Hears of a workload stored, and how many runs of it stand against other calls now."""


def harvested(
    store: Store,
    requests: Iterable[ModelRequest],
    errors: list[OpdbError] | None = None,
    tell: Tell | None = None,
) -> dict[str, Workload]:
    """Harvest and save each request that does not stand; return the workloads by its `repr`.

    With `errors`, why one cannot be harvested is appended there, and it is left out. `tell` hears
    of each, saved now or before.

    Raises:
        InputError: a model cannot be harvested, and no `errors` are given.
    """
    workloads: dict[str, Workload] = {}
    for key, stored in harvest_each(store, requests).items():
        if isinstance(stored, Stored):
            workloads[key] = stored.workload
            if tell is not None:
                tell(stored.found, stored.stale)
        elif errors is None:
            raise stored
        else:
            errors.append(stored)
    return workloads


class CampaignWork(Work[Spec]):
    """Runs that this process measures itself, all in one campaign."""

    @abstractmethod
    def measurer(self, session: Session, store: Store) -> Callable[[Spec], ModelRun | InputError]:
        """Return what measures one run: it returns the run, or why there can be none."""

    @contextmanager
    def opened(
        self, store: Store, device: str | None, workers: int
    ) -> Iterator[tuple[str, str, Make[Spec]]]:
        """Open a campaign on a device; see `Work.opened`."""
        flags = (f"{workers} workers measured on this host at once",) if workers > 1 else ()
        with campaign(device, store, workers) as session:
            measure_one = self.measurer(session, store)

            def make(spec: Spec, claims: Claims) -> ModelRun | InputError:
                run = measure_one(spec)
                if isinstance(run, ModelRun):
                    run = replace(run, flags=(*run.flags, *flags))
                    store.save_model_run(run, claims.claim(spec.key))
                return run

            yield session.platform.device.slug, session.platform.board.uuid, make


@dataclass(frozen=True)
class ModelWork(CampaignWork[ModelSpec]):
    """Runs of models in a mode."""

    options: RunOptions = field(default_factory=RunOptions)

    def measurer(self, session: Session, store: Store) -> Callable[[ModelSpec], ModelRun]:
        """Return what measures one run."""

        def measure_one(spec: ModelSpec) -> ModelRun:
            found = store.workloads_by_key([spec.workload])
            device = session.platform.device
            memory = memory_of(found[0], device) if found else None
            options = replace(self.options, memory=memory)
            return measure(session, spec.request, spec.workload, spec.mode, options)

        return measure_one


@dataclass(frozen=True)
class AlikeRuns(ModelPolicy):
    """Count only runs that were measured as these options ask for."""

    options: RunOptions = field(default_factory=RunOptions)

    def runs(self, store: Store, spec: ModelSpec | None = None) -> list[RunState]:
        """Return the runs that count, oldest first; of one spec, or all."""
        found = super().runs(store, spec)
        alike = {
            run.id
            for key in {run.workload for run in found}
            for run in store.model_runs(key)
            if len(run.repeats) >= self.options.repeats
            and (run.layers is not None) == self.options.layers
        }
        return [run for run in found if run.id in alike]


def here(store: Store, device: str | None) -> Here:
    """Return this process as the one that makes runs on a device.

    Raises:
        CannotMeasureError: there is no such device.
    """
    return Here(store, device, (detect(device).board,))


def measure_models(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Workload, Mode]],
    options: RunOptions,
    on: Maker,
    shown: Progress | None = None,
    name: Callable[[Workload, Mode], str] = lambda workload, mode: f"{workload.name} {mode}",
) -> Iterator[tuple[Workload, ModelRun]]:
    """Measure each request, its workload stored, in its mode; yield workload and run once saved.

    A model that fails does not stop the others: its run carries the outcome. What another process
    measures on the same boards at the same time is yielded when that has stored it.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
    """
    boards = tuple(board.uuid for board in on.boards)
    specs = {
        spec.key: spec
        for request, workload, mode in jobs
        for spec in [ModelSpec(request, workload.key, mode, boards)]
    }
    workloads = {workload.key: workload for _, workload, _ in jobs}
    devices = tuple(dict.fromkeys(board.device for board in on.boards))
    policy = AlikeRuns(devices, boards, options=options).without_stored(store)
    work = ModelWork(policy, options=options)
    names = {key: name(workloads[spec.workload], spec.mode) for key, spec in specs.items()}
    of_others = dict(specs)
    for spec, _, run in execute(
        on, work, [*specs.values()], shown or Progress(), lambda s: names[s.key]
    ):
        del of_others[spec.key]
        yield workloads[spec.workload], run
    table = RunTable(work.policy, work.policy.runs(store))
    for spec in of_others.values():
        state = table.run(spec)
        if state is not None:
            [run] = [r for r in store.model_runs(spec.workload) if r.id == state.id]
            yield workloads[spec.workload], run
