"""Jobs of a Slurm cluster, through submitit: an opdb command for each model and algorithm.

What a job leaves is named after it, in one folder: a state, a log, and, without a server, a
database of its own, its shard. A job that is preempted or runs out of time is requeued, and the
command goes on where it was by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opdb.distribution import install
from opdb.errors import CannotMeasureError, InputError
from opdb.files import read_text
from opdb.records import Json
from opdb.store.database import as_url, default_url, file_of

STOPPED_WITHIN_S = 60.0
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
        """The job's own database, where there is no server."""
        return Path(self.folder, f"{self.name}.sqlite")

    def __call__(self) -> int:
        if self.database is None and not os.environ.get("OPDB_DB"):
            raise InputError("OPDB_DB is not set here as it was for opdb submit; give it --db URL")
        state = read_state(self.state) | {"state": "running", "host": socket.gethostname()}
        state |= {"runs": state.get("runs", 0) + 1, "since": _now(), "exit_status": None}
        state |= {"name": self.name, "job": _number(), "log": str(self.log)}
        write_state(self.state, state)
        if self.base is not None and not self.shard.exists():
            aside = self.shard.with_suffix(".part")
            shutil.copyfile(self.base, aside)
            aside.replace(self.shard)
        status: int | None = None
        try:
            status = self._run(self.log)
        finally:
            said = {0: "done", None: "stopped", INTERRUPTED: "stopped"}.get(status, "failed")
            write_state(self.state, state | {"state": said, "exit_status": status, "since": _now()})
        if said == "failed":
            raise InputError(f"opdb ended with exit status {status}; see {self.log}")
        return int(status or 0)

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
        told = threading.Event()  # to stop, before there is a command to be told
        signal.signal(signal.SIGTERM, lambda *_: told.set())
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
            if told.is_set():
                running.terminate()
            try:
                return running.wait()
            finally:
                # Also where a time-out or a preemption ends this process to have it requeued.
                if running.poll() is None:
                    running.terminate()
                    try:
                        running.wait(STOPPED_WITHIN_S)
                    except subprocess.TimeoutExpired:
                        running.kill()
                        running.wait()


def _ignore_warnings() -> None:
    """Let this process survive the warnings that Slurm sends to all of a job's processes.

    Ignored signals stay ignored by what it executes. The job itself hears them, and says SIGTERM.
    """
    for warning in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(warning, signal.SIG_IGN)


def read_state(path: Path) -> dict[str, Json]:
    if not path.exists():
        return {}
    try:
        document = json.loads(read_text(path, "a job's state"))
    except ValueError as error:
        raise InputError(f"{path} is not a job's state: {error}") from error
    if not isinstance(document, dict) or "state" not in document:
        raise InputError(f"{path} is not a job's state")
    return document


def write_state(path: Path, state: dict[str, Json]) -> None:
    aside = path.with_suffix(".part.json")
    aside.write_text(json.dumps(state, indent=1) + "\n")
    aside.replace(path)


def states_in(folder: Path) -> list[dict[str, Json]]:
    paths = sorted(path for path in folder.glob("*.json") if not path.name.endswith(".part.json"))
    if not paths:
        raise InputError(f"{folder} holds no job; opdb submit makes them there")
    return [read_state(path) for path in paths]


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# From a command to jobs: one for each model and each algorithm that it names.


def jobs_of(
    commands: Sequence[tuple[str, ...]], folder: Path, db: str | None, *, make: bool
) -> list[Job]:
    """Return a job for each command, with its database; `make` says to make what they need."""
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

WAITING = ("submitted", "running", "stopped")
"""States in which a job may still be Slurm's."""

WARNED_S = 120
"""A job is told so long before its time is up; it is then requeued."""

_SQUEUE_WITHIN_S = 30.0


def minutes(text: str) -> int:
    """Read a time as Slurm writes it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        raise InputError(f"--time {text}: give minutes, H:M:S or D-H:M:S, as in 24:00:00")
    days, *parts = (None if part is None else int(part) for part in found.groups())
    given = [part for part in parts if part is not None]
    if days is not None:
        hours, mins, seconds = [*given, 0, 0][:3]
        total_s = days * 86_400 + hours * 3600 + mins * 60 + seconds
    elif len(given) == 3:
        total_s = given[0] * 3600 + given[1] * 60 + given[2]
    else:
        total_s = given[0] * 60 + (given[1] if len(given) > 1 else 0)
    if total_s <= 0:
        raise InputError(f"--time {text}: a job needs some time")
    return -(-total_s // 60)


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
    known = {job: state for job in jobs if (state := read_state(job.state))}
    others = [job.name for job, state in known.items() if state["command"] != [*job.command]]
    if others:
        raise InputError(
            f"{', '.join(others)}: {folder} holds a job of that name with another command; give "
            "another --folder"
        )
    waiting = queue() if known else None
    at_work = [
        state["name"]
        for state in known.values()
        if state["state"] in WAITING and (waiting is None or state["job"] in waiting)
    ]
    if at_work:
        raise InputError(
            f"{', '.join(at_work)}: still at work (opdb show jobs {folder}); wait for it, "
            "cancel it with scancel, or give another --folder"
        )
    executor = submitit.SlurmExecutor(folder / "submitit", max_num_timeout=requeues)
    executor.update_parameters(**parameters)
    for job in jobs:
        has_shard = job.database is not None and job.database.endswith(str(job.shard))
        submitted: dict[str, Json] = {
            "name": job.name,
            "state": "submitted",
            "job": None,
            "command": list(job.command),
            "log": str(job.log),
            "shard": str(job.shard) if has_shard else None,
            "runs": 0,
            "exit_status": None,
        }
        write_state(job.state, submitted)
    try:
        with _private(folder / "submitit"), executor.batch():
            given = [executor.submit(job) for job in jobs]
    except (FailedJobError, FailedSubmissionError) as error:
        for job in jobs:
            job.state.unlink()
        why = next(reversed(str(error).strip().splitlines()), "it does not say why")
        raise InputError(f"sbatch refuses the jobs: {why}") from error
    ids = [str(each.job_id) for each in given]
    for job, number in zip(jobs, ids, strict=True):
        state = read_state(job.state)
        if state["state"] == "submitted":  # else it has begun, and knows its number itself
            write_state(job.state, state | {"job": number})
    return ids


@contextmanager
def _private(folder: Path) -> Iterator[None]:
    """Make a folder, and what is written in it inside the block, for this user alone.

    A job is written there with its database, whose URL may hold a password.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def queue() -> dict[str, str] | None:
    """Return Slurm's state of each job and array task in its queue; None where it does not say."""
    command = ["squeue", "--noheader", "--array", "--format=%i %T"]
    if shutil.which("squeue") is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SQUEUE_WITHIN_S, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return None
    lines = (line.split() for line in done.stdout.splitlines())
    return {line[0]: line[1].lower() for line in lines if len(line) == 2}


def jobs_in(folder: Path) -> list[dict[str, Json]]:
    """Return the jobs of a folder with what Slurm says of them, as `slurm`, None where it does not.

    One that Slurm does not have any more though it never ended is `lost`: killed for its memory or
    its time, cancelled, or its node failed.
    """
    found = queue()
    jobs = []
    for state in states_in(folder):
        said = None if found is None else found.get(str(state["job"]))
        if found is not None and said is None and state["state"] in ("submitted", "running"):
            state = state | {"state": "lost"}
        jobs.append(state | {"slurm": said})
    return jobs
