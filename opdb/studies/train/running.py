"""The trainings of a matrix, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opdb.bench.driver import tell_cublas, train, why_no_amp, why_no_mps
from opdb.bench.run import campaign
from opdb.bench.session import detect
from opdb.errors import CannotMeasureError, ClaimLostError, DatabaseError, InputError, OpdbError
from opdb.processes import DiedError, done_apart
from opdb.records import Outcome
from opdb.runs import DriverOptions
from opdb.spec import ModelSpec
from opdb.store import Claims, Store, open_store
from opdb.store.connecting import Claim
from opdb.studies.train.rows import BackendDevice, TrainingSpec
from opdb.workers import Make, Work, cuda_devices


@dataclass(frozen=True)
class Training:
    """A training to run on a device ("cuda", "cpu"), its workload (key) stored, and its claim."""

    request: ModelSpec
    workload: str
    device: str
    options: DriverOptions
    claim: Claim


@dataclass(frozen=True)
class Trained:
    """The result of a training whose run is stored."""

    outcome: Outcome
    reason: str | None


@dataclass(frozen=True)
class MatrixWork(Work[TrainingSpec]):
    """Trainings of a matrix at one place, each in a process of its own.

    `workload_of` returns the key of what a request trains, harvested and stored. A training that
    cannot be made or stored ends with the error.
    """

    place: BackendDevice = field(kw_only=True)
    request_of: Callable[[TrainingSpec], ModelSpec] = field(kw_only=True)
    workload_of: Callable[[ModelSpec], str] = field(kw_only=True)

    @contextmanager
    def opened(
        self, store: Store, device: str | None, workers: int
    ) -> Iterator[tuple[str, str, Make[TrainingSpec]]]:
        """Open nothing: a GPU belongs to the process that trains; see `Work.opened`."""

        def make(spec: TrainingSpec, claims: Claims) -> Trained | OpdbError:
            try:
                request = self.request_of(spec)
                workload, claim = self.workload_of(request), claims.claim(spec.key)
                backend = spec.place.backend
                training = Training(request, workload, backend, spec.options, claim)
                return train_alone(training, store.url, claims.renew_when_due)
            except DatabaseError:
                raise
            except (InputError, DiedError, ClaimLostError) as error:
                return error

        yield self.place.device, self.place.board, make


def places(backends: Collection[str]) -> dict[str, BackendDevice]:
    """Say of each backend's name where it is trained; a GPU is looked at in another process.

    A process that has looked at a GPU holds memory of it, and would be another process on the
    board to every training.
    """
    names = {name: _resolved(name) for name in backends}
    found = {name: _place(name) for name in set(names.values()) if not _is_gpu(name)}
    if any(map(_is_gpu, names.values())):
        try:
            found["cuda"] = done_apart(_place, "cuda")
        except DiedError as error:
            raise CannotMeasureError(f"the GPU cannot be looked at: {error}") from error
    return {name: found[backend] for name, backend in names.items()}


def _resolved(backend: str) -> str:
    if backend != "auto":
        return backend
    return "cuda" if cuda_devices() else "cpu"


def _is_gpu(backend: str) -> bool:
    return backend == "cuda" and cuda_devices() > 0


def _place(backend: str) -> BackendDevice:
    if backend == "mps":
        return BackendDevice(backend, why_not=why_no_mps())
    try:
        platform = detect(backend)
    except CannotMeasureError as error:
        return BackendDevice(backend, why_not=str(error))
    no_amp = why_no_amp(platform.torch_device)
    return BackendDevice(backend, platform.device.slug, platform.board.uuid, why_no_amp=no_amp)


def train_alone(training: Training, url: str, meanwhile: Callable[[], None]) -> Trained:
    """Run a training in a process of its own; its run is stored in the database of the URL.

    `meanwhile` is called every now and then. Ctrl-C ends the process before it goes on its way.
    """
    trained: Trained = done_apart(_train, training, url, meanwhile=meanwhile)
    return trained


def _train(training: Training, url: str) -> Trained:
    tell_cublas(training.options)  # before the calibration, which multiplies matrices
    with open_store(url, create=False) as store, campaign(training.device, store) as session:
        run = train(
            session, training.request, training.workload, training.options, keep_errors=True
        )
        store.save_model_run(run, training.claim)
    return Trained(run.outcome, run.reason)
