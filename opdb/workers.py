"""Who measures: one process a device, claiming its work from the database; jobs of Slurm.

A command given several devices starts a process for each, waits, shows what they say, and sums up
from the database. Nothing is handed out: a worker claims what it comes to, and what one leaves that
fails or dies is free for the others (`opdb.store.claims`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from opdb.errors import CannotMeasureError, ClaimLostError, InputError, OpdbError
from opdb.files import parse_json, read_text
from opdb.packaging import install
from opdb.processes import Pipe, Said, all_apart, begin
from opdb.progress import Display, Progress
from opdb.records import Json
from opdb.runs import Policy, RunTable, Spec
from opdb.store import Claims, Store
from opdb.store.database import as_url, default_url, file_of
from opdb.units import plural


@dataclass(frozen=True)
class WorkerDevice:
    """A worker's device: its name here, and all of CUDA's devices that its process is to see.

    A GPU's worker sees its own GPU alone, so that it can leave nothing on another's board.
    """

    name: str
    visible: str | None

    @property
    def device(self) -> str:
        return "cpu" if self.name == "cpu" else "cuda"


def cuda_devices() -> int:
    """Return how many CUDA devices this process may see; none of them is touched."""
    import torch

    return torch.cuda.device_count()


def places(text: str) -> list[WorkerDevice]:
    """Read "all", or devices such as "0,1,3"; the processor may be named, even twice, to try it."""
    count = cuda_devices()
    if text == "all":
        names = [f"cuda:{index}" for index in range(count)]
        if not names:
            raise CannotMeasureError(
                "--devices all: this machine has no CUDA device; run on a machine with NVIDIA GPUs"
            )
    else:
        names = [_named(part.strip(), text) for part in text.split(",")]
    twice = [name for name, times in Counter(names).items() if times > 1 and name != "cpu"]
    if twice:
        raise InputError(
            f"--devices {text}: {twice[0]} is named twice; two workers on one GPU would each "
            "measure the other"
        )
    # What is visible here already may be chosen and reordered; the index counts within that.
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    found = []
    for name in names:
        index = None if name == "cpu" else int(name.removeprefix("cuda:"))
        if index is not None and index >= count:
            raise CannotMeasureError(
                f"--devices {text}: no device {name}; this machine has "
                f"{plural(count, 'CUDA device')}"
            )
        sees = None if index is None else visible[index] if visible != [""] else str(index)
        found.append(WorkerDevice(name, sees))
    return found


def _named(part: str, text: str) -> str:
    found = re.fullmatch(r"(?:cuda:)?(\d{1,4})", part)
    if part == "cpu":
        return part
    if not found:
        raise InputError(f"--devices {text}: {part!r} is no device; give all, or as in 0,1,3")
    return f"cuda:{int(found[1])}"


class Crew:
    """The workers of one command on this host, as each of them sees it; by default it is alone.

    All that measure hold a lock together, and who takes host times has it alone. The locks are the
    kernel's on files of a `folder`: a process that dies holds none.
    """

    def __init__(self, workers: int = 1, folder: Path | None = None) -> None:
        self.workers, self._folder = workers, folder

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure beside the others, but never while one of them has the host alone."""
        self._enter(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._leave()

    def make_way(self) -> None:
        """Let a worker that waits for it have the host alone; called between measurements."""
        self._leave()
        self._enter(fcntl.LOCK_SH)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the host alone inside `measuring`: all others wait."""
        self._leave()
        self._enter(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self.make_way()

    @cached_property
    def _locks(self) -> tuple[IO[str], IO[str]]:
        assert self._folder is not None
        return (self._folder / "gate").open("a"), (self._folder / "host").open("a")

    def _enter(self, how: int) -> None:
        if self._folder is None:
            return
        gate, host = self._locks
        fcntl.flock(gate, fcntl.LOCK_EX)  # who waits for the host keeps others from entering
        fcntl.flock(host, how)
        if how == fcntl.LOCK_SH:
            fcntl.flock(gate, fcntl.LOCK_UN)

    def _leave(self) -> None:
        if self._folder is not None:
            for lock in reversed(self._locks):
                fcntl.flock(lock, fcntl.LOCK_UN)


ALONE = Crew()


def serve(
    work: Callable[..., object],
    given: tuple[object, ...],
    place: WorkerDevice,
    crew: Crew,
    pipe: Pipe,
) -> None:
    if place.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = place.visible  # read when CUDA is first used
    display = Display(lambda text: pipe.send(Said(text)))
    begin(work, (place.device, display, crew, *given), pipe)


def on_each(
    places: Sequence[WorkerDevice],
    work: Callable[..., Any],
    given: tuple[object, ...],
    display: Display,
) -> tuple[list[Any], list[str]]:
    """Call `work(device, display, crew, *given)` in a process for each place, and wait for all.

    All of it must be picklable. Returns what the calls returned, and of each worker that failed its
    device and why; that stops no other.

    Raises:
        CannotMeasureError: all have failed.
    """
    with TemporaryDirectory(prefix="opdb-") as folder:
        crew = Crew(len(places), Path(folder))
        jobs = [(serve, (work, given, place, crew)) for place in places]
        found = all_apart(
            jobs, hear=lambda number, said: display.note(f"{places[number].name}: {said}")
        )
    failures = [
        f"{place.name}: {each}"
        for place, each in zip(places, found, strict=True)
        if isinstance(each, OpdbError)
    ]
    if len(failures) == len(places):
        raise CannotMeasureError("; ".join(failures))
    return [each for each in found if not isinstance(each, OpdbError)], failures


# Runs of models, each claimed, made by one process, and stored


def runs_made(
    store: Store,
    claims: Claims,
    policy: Policy[Spec],
    specs: Sequence[Spec],
    make: Callable[[Spec], Any],
    shown: Progress,
    *,
    retry: bool = False,
    again: bool = False,
    crew: Crew = ALONE,
) -> Iterator[tuple[Spec, Any]]:
    """Make runs, each claimed when its turn comes; yield each spec with its run once it is stored.

    `make` makes a run and stores it under its claim. A run that another process has claimed, or has
    made meanwhile, is left out. With `retry` runs are made that failed before, with `again` even
    those that are done.
    """
    for spec in specs:
        if not claims.take(spec.key):
            continue
        run = None
        table = RunTable(policy, policy.runs(store))
        if table.pending([spec], retry=retry, again=again):
            shown.doing(spec.label)
            with suppress(ClaimLostError), crew.measuring():
                run = make(spec)
        if run is not None:
            yield spec, run
            shown.done()
        claims.give_back([spec.key])


# Jobs of a Slurm cluster, through submitit: an opdb command for each model and algorithm.
#
# What a job leaves is named after it, in one folder: a state, a log, and, without a server, a
# database of its own, its shard. A job that is preempted or runs out of time is requeued, and the
# command goes on where it was by itself.

COMMAND_STOPPED_WITHIN_S = 60.0
"""So long a command that was told to stop may take to store what is derived."""

INTERRUPTED = 130

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Job:
    """A command to run: its arguments, and the database of its own or of all.

    `base` is the database that a new shard begins as. Without a `database` it is the one that
    OPDB_DB names on the node too: its URL, which may hold a password, is then written nowhere.
    Called on a node, possibly several times.
    """

    name: str
    command: tuple[str, ...]
    folder: str
    database: str | None
    base: str | None = None

    @property
    def state(self) -> Path:
        return Path(self.folder, f"{self.name}.json")

    @property
    def log(self) -> Path:
        return Path(self.folder, f"{self.name}.log")

    @property
    def shard(self) -> Path:
        return Path(self.folder, f"{self.name}.sqlite")

    def __call__(self) -> int:
        if self.database is None and not os.environ.get("OPDB_DB"):
            raise InputError("OPDB_DB is not set here as it was for opdb submit; give it --db URL")
        if self.base is not None and not self.shard.exists():
            aside = self.shard.with_suffix(".part")
            shutil.copyfile(self.base, aside)
            aside.replace(self.shard)
        status = self._run(self.log)
        self.write_state(_number(), status)
        if status not in (0, INTERRUPTED):
            raise InputError(f"opdb ended with exit status {status}; see {self.log}")
        return status

    def write_state(self, number: str | None, exit_status: int | None = None) -> None:
        state = {
            "name": self.name,
            "job": number,
            "command": list(self.command),
            "log": str(self.log),
            "exit_status": exit_status,
        }
        aside = self.state.with_suffix(".json.part")
        aside.write_text(json.dumps(state, indent=1) + "\n")
        aside.replace(self.state)

    def checkpoint(self, *_: Any) -> Any:
        """Return what is to be run when the job is requeued: the same, which goes on by itself."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _run(self, log: Path) -> int:
        """Run the command in a session of its own, so that this process alone is signalled."""
        command = [sys.executable, "-m", "opdb", *self.command]
        environment = dict(os.environ)
        if self.database is not None:
            environment["OPDB_DB"] = self.database
        with log.open("ab") as stream:
            running = subprocess.Popen(
                command,
                env=environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                preexec_fn=_ignore_warnings,
            )
            # A job that is preempted or cancelled is told so, and killed a little later.
            signal.signal(signal.SIGTERM, lambda *_: running.terminate())
            try:
                return running.wait()
            finally:
                # Also where a time-out or a preemption ends this process to have it requeued.
                running.terminate()
                running.wait(COMMAND_STOPPED_WITHIN_S)


def _ignore_warnings() -> None:
    """Let this process survive the warnings that Slurm sends to all of a job's processes.

    Ignored signals stay ignored by what it executes. The job itself hears them, and says SIGTERM.
    """
    for warning in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(warning, signal.SIG_IGN)


def read_state(path: Path) -> dict[str, Json]:
    document = parse_json(path, read_text(path, "a job's state"))
    if not isinstance(document, dict) or "exit_status" not in document:
        raise InputError(f"{path} is not a job's state")
    return document


def name_of(command: Sequence[str]) -> str:
    """Return a job's name for a command: what it names, in letters that a file's name may have.

    What a long name leaves out is in its last eight digits.
    """
    words = "-".join(word.lstrip("-") for word in command)
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in words).strip("._-")
    if len(plain) > _LONGEST_NAME:
        digest = hashlib.sha256("\0".join(command).encode()).hexdigest()[:8]
        plain = f"{plain[: _LONGEST_NAME - 9]}-{digest}"
    return plain or "job"


def _number() -> str | None:
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


# From a command to jobs: one for each model and each algorithm that it names.


def jobs_of(
    commands: Sequence[tuple[str, ...]], folder: Path, db: str | None, *, make: bool
) -> list[Job]:
    url = as_url(db) if db else default_url()
    file, base = file_of(url), None
    names = [name_of(command) for command in commands]
    if len(set(names)) < len(names):
        raise InputError(
            "two jobs would have one name; submit them one by one, each to a --folder of its own"
        )
    if make:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--folder {folder}: {error.strerror}") from error
        base = None if file is None else snapshot(file, folder)
    return [
        Job(
            name,
            command,
            str(folder),
            (url if db else None) if file is None else as_url(str(folder / f"{name}.sqlite")),
            None if base is None else str(base),
        )
        for name, command in zip(names, commands, strict=True)
    ]


# Jobs given to Slurm: arrays, requeued when preempted or out of time.

WARNED_S = 120
"""A job is told so long before its time is up; it is then requeued."""

_SQUEUE_WITHIN_S = 30.0


def minutes(text: str) -> int:
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)??(\d+)(?::(\d+))?", text)
    if found is None:
        raise InputError(f"--time {text}: give minutes, H:M:S or D-H:M:S, as in 24:00:00")
    days, hours, mins, seconds = (int(part or 0) for part in found.groups())
    whole = days * 1440 + hours * 60 + mins + (seconds > 0)
    if not whole:
        raise InputError(f"--time {text}: a job needs some time")
    return whole


def check_slurm() -> None:
    lacking = [name for name in ("sbatch", "srun") if shutil.which(name) is None]
    if lacking:
        raise CannotMeasureError(
            f"{' and '.join(lacking)} not found: this machine is no part of a Slurm cluster; run "
            "opdb submit where sbatch works"
        )
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise CannotMeasureError(f"opdb submit needs submitit: {install('slurm')}") from error


def snapshot(database: Path, folder: Path) -> Path | None:
    """Copy a database, consistent though others may write it; None where there is none."""
    if not database.exists() or not database.stat().st_size:
        return None
    target, aside = folder / "base.db", folder / "base.part"
    try:
        aside.unlink(missing_ok=True)
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(aside)) as copy:
            source.backup(copy)
        aside.replace(target)
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"cannot copy {database} to {target}: {error}") from error
    return target


def submit(jobs: Sequence[Job], parameters: Mapping[str, object], requeues: int) -> list[str]:
    """Give jobs to Slurm, several as one array; return their ids.

    `parameters` are submitit's for each job, `requeues` how often one may run out of time.
    """
    check_slurm()
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    folder = Path(jobs[0].folder)
    states = [job.state for job in jobs if job.state.exists()]
    if at_work := [each["name"] for each in read_jobs(states) if each["state"] not in ENDED]:
        raise InputError(
            f"{', '.join(at_work)}: still at work (opdb show jobs {folder}); wait for it, "
            "cancel it with scancel, or give another --folder"
        )
    private = folder / "submitit"  # holds jobs with their databases, whose URLs may hold passwords
    private.mkdir(parents=True, exist_ok=True)
    private.chmod(0o700)
    executor = submitit.SlurmExecutor(private, max_num_timeout=requeues)
    executor.update_parameters(**parameters)
    for job in jobs:
        job.state.unlink(missing_ok=True)
    try:
        with executor.batch():
            given = [executor.submit(job) for job in jobs]
    except (FailedJobError, FailedSubmissionError) as error:
        why = next(reversed(str(error).strip().splitlines()), "it does not say why")
        raise InputError(f"sbatch refuses the jobs: {why}") from error
    ids = [str(each.job_id) for each in given]
    for job, number in zip(jobs, ids, strict=True):
        if not job.state.exists():  # else it has ended already
            job.write_state(number)
    return ids


def queue() -> dict[str, str] | None:
    """Return Slurm's state of each job and array task in its queue; None where it does not say."""
    command = ["squeue", "--noheader", "--array", "--format=%i %T"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SQUEUE_WITHIN_S, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return None
    lines = (line.split() for line in done.stdout.splitlines())
    return {line[0]: line[1].lower() for line in lines if len(line) == 2}


ENDED = ("done", "failed", "stopped", "lost")
"""States of jobs that Slurm does not have any more."""


def read_jobs(states: Iterable[Path]) -> list[dict[str, Json]]:
    """Return jobs by their files, each with its `state`: Slurm's word, or how its command ended.

    One that Slurm does not have any more though it never ended is `lost`: killed for its memory or
    its time, cancelled, or its node failed. Where Slurm does not say, it is `submitted`.
    """
    words = queue()
    jobs = []
    for state in map(read_state, states):
        status = state["exit_status"]
        ended = {0: "done", INTERRUPTED: "stopped", None: "lost"}.get(status, "failed")
        if words is None and status is None:
            ended = "submitted"
        jobs.append(state | {"state": (words or {}).get(str(state["job"]), ended)})
    return jobs
