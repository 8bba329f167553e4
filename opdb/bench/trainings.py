"""Trainings of several models in one campaign, each saved as soon as it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from opdb.bench.driver import train
from opdb.bench.measure import CampaignWork, here
from opdb.bench.options import DriverOptions
from opdb.bench.session import Session
from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.records import ModelRun, Workload
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.progress import Progress
from opdb.runs.work import execute
from opdb.store import Store


@dataclass(frozen=True)
class DriverSpec(ModelSpec):
    """One training of a model with the driver's options."""

    options: DriverOptions = field(default_factory=DriverOptions)

    @property
    def key(self) -> str:
        """The text that identifies the training; a claim of it has this name."""
        options = hashlib.sha256(repr(self.options).encode()).hexdigest()
        return f"train {options[:12]} {super().key}"


@dataclass(frozen=True)
class DriverWork(CampaignWork[ModelSpec]):
    """Trainings with the driver's options."""

    options: DriverOptions = field(default_factory=DriverOptions)

    def measurer(
        self, session: Session, store: Store
    ) -> Callable[[ModelSpec], ModelRun | InputError]:
        """Return what trains one model; the error says that its images do not fit, say."""

        def measure(spec: ModelSpec) -> ModelRun | InputError:
            try:
                return train(session, spec.request, spec.workload, self.options)
            except InputError as error:
                return error

        return measure


def train_models(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Workload]],
    options: DriverOptions,
    device: str | None,
    shown: Progress,
    names: Sequence[str],
) -> Iterator[tuple[Workload, ModelRun | InputError]]:
    """Train each request, its workload stored; yield workload and run as soon as that is saved.

    `names` are those of the jobs in the progress display. In place of the run of a training that
    cannot be made comes the reason. What another process trains in the same way at the same time
    is left to it.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
    """
    on = here(store, device)
    [board] = on.boards
    specs = [
        DriverSpec(request, workload.key, "eager", (board.uuid,), options)
        for request, workload in jobs
    ]
    told = {"label": options.label, "iters": options.iters, "warmup_iters": options.warmup_iters}
    policy = ModelPolicy(
        (board.device,), (board.uuid,), setting=options.setting, facts=told
    ).without_stored(store)
    of = {id(s): (job[1], name) for s, job, name in zip(specs, jobs, names, strict=True)}
    work = DriverWork(policy, options=options)
    for spec, _, run in execute(on, work, specs, shown, lambda spec: of[id(spec)][1]):
        yield of[id(spec)][0], run
