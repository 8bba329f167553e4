"""One training in a process of its own, which ends with the one that started it.

The next training would inherit the state of the process: cuBLAS reads its workspace's size once,
cuDNN remembers which algorithms were fast, the allocator keeps its blocks, and the most memory that
a process held only grows. A process that is killed takes its own training along and no other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opdb.bench.driver import tell_cublas, train, why_no_amp, why_no_mps
from opdb.bench.options import DriverOptions
from opdb.bench.platform import cuda_devices, detect
from opdb.bench.run import campaign
from opdb.cluster.messages import Failed
from opdb.cluster.worker import Pipe, uninterrupted
from opdb.errors import CannotMeasureError, ClaimLostError, DatabaseError, InputError, OpdbError
from opdb.matrix.specs import BackendDevice, TrainingSpec
from opdb.models import ModelRequest
from opdb.records import Outcome
from opdb.runs.work import Make, Work
from opdb.store import Claims, Store, open_store
from opdb.store.lease import Claim

START = "spawn"
"""How the process is started: afresh, so that it shares no state of CUDA with this one."""

STOPPED_WITHIN_S = 30.0
"""How long a process that was told to stop may take; then it is killed."""

LISTENED_S = 20.0
"""How often to check whether the claim must be renewed, while a training runs."""


@dataclass(frozen=True)
class Training:
    """A training to run on a device ("cuda", "cpu"), its workload (key) stored, and its claim."""

    request: ModelRequest
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
    request_of: Callable[[TrainingSpec], ModelRequest] = field(kw_only=True)
    workload_of: Callable[[ModelRequest], str] = field(kw_only=True)

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


class DiedError(OpdbError):
    """A training's process ended by itself; nothing of it is stored."""


def places(backends: Collection[str]) -> dict[str, BackendDevice]:
    """Say of each backend's name where it is trained; a GPU is looked at in another process.

    A process that has looked at a GPU holds memory of it, and would be another process on the
    board to every training.

    Raises:
        CannotMeasureError: the process that looks ended by itself.
    """
    names = {name: _resolved(name) for name in backends}
    found = {name: _place(name) for name in set(names.values()) if not _is_gpu(name)}
    if any(map(_is_gpu, names.values())):
        looked = _heard(_started(_look, "cuda"), lambda: None)
        if not isinstance(looked, BackendDevice):
            raise CannotMeasureError(f"the GPU cannot be looked at: {looked}")
        found["cuda"] = looked
    return {name: found[backend] for name, backend in names.items()}


def _resolved(backend: str) -> str:
    if backend != "auto":
        return backend
    return "cuda" if cuda_devices() else "cpu"


def _is_gpu(backend: str) -> bool:
    return backend == "cuda" and cuda_devices() > 0


def _look(backend: str, pipe: Pipe) -> None:
    pipe.send(_place(backend))


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

    Raises:
        DiedError: the process was killed, or crashed.
        ClaimLostError: another worker took the claim over.
        OpdbError: the training could not be stored, or the device stopped answering.
    """
    said = _heard(_started(_train, training, url), meanwhile)
    if isinstance(said, Failed):
        kind = {3: CannotMeasureError}.get(said.exit_status, OpdbError)
        raise ClaimLostError(said.message) if said.claim_lost else kind(said.message)
    if isinstance(said, Trained):
        return said
    raise DiedError(str(said))


def _train(training: Training, url: str, pipe: Pipe) -> None:
    tell_cublas(training.options)  # before the calibration, which multiplies matrices
    try:
        with open_store(url, create=False) as store, campaign(training.device, store) as session:
            run = train(
                session, training.request, training.workload, training.options, keep_errors=True
            )
            store.save_model_run(run, training.claim)
        pipe.send(Trained(run.outcome, run.reason))
    except OpdbError as error:
        pipe.send(Failed(str(error), error.exit_status, isinstance(error, ClaimLostError)))


# The process


def _started(work: Callable[..., None], *given: object) -> tuple[Any, Pipe]:
    context: Any = multiprocessing.get_context(START)
    here, there = context.Pipe()
    process = context.Process(target=begin, args=(work, given, there), name="opdb matrix")
    with uninterrupted():
        process.start()
    there.close()  # so that the pipe ends when the process does
    return process, here


def begin(work: Callable[..., None], given: tuple[object, ...], pipe: Pipe) -> None:
    """Do some work with a pipe; what runs in the process.

    Ctrl-C reaches every process of a terminal; this one leaves it to the one that started it, and
    ends by SIGTERM, or when the other end of the pipe is gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    os.dup2(2, 1)  # models print; stdout is for results
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    try:
        work(*given, pipe)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)
    except BrokenPipeError:
        pass  # nobody listens any more


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what follows tidies up
    raise KeyboardInterrupt


def _end_with(pipe: Pipe) -> None:
    """End this process when the other end of its pipe is gone."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOPPED_WITHIN_S)
        os._exit(128 + signal.SIGTERM)


def _heard(started: tuple[Any, Pipe], meanwhile: Callable[[], None]) -> object:
    """Return what a process says before it ends, or in words how it ended without a word."""
    process, pipe = started
    try:
        while not pipe.poll(LISTENED_S):
            meanwhile()
        said: object = pipe.recv()
    except EOFError:
        said = None
    except BaseException:
        process.terminate()
        raise
    finally:
        process.join(STOPPED_WITHIN_S)
        if process.is_alive():
            process.kill()
        process.join()
        pipe.close()  # not before: the process would take it for this one's end
    return _how(process.exitcode) if said is None else said


def _how(status: int) -> str:
    if status >= 0:
        return f"its process ended by itself (exit status {status})"
    return f"its process was ended by {signal.Signals(-status).name}"
