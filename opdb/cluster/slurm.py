"""Jobs given to Slurm, through submitit: arrays, requeued when preempted or out of time."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from opdb.cluster.job import Job, read_state, states_in, write_state
from opdb.distribution import install
from opdb.errors import CannotMeasureError, InputError
from opdb.records import Json

WAITING = ("submitted", "running", "stopped")
"""States in which a job may still be Slurm's."""

WARNED_S = 120
"""A job is told so long before its time is up; it is then requeued."""

_SQUEUE_WITHIN_S = 30.0


@dataclass(frozen=True)
class Resources:
    """What is asked of Slurm for each job; None leaves it to the cluster."""

    time_min: int
    partition: str | None = None
    constraint: str | None = None
    gres: str | None = None
    mem: str | None = None
    cpus: int | None = None
    account: str | None = None
    qos: str | None = None
    setup: tuple[str, ...] = ()
    requeues: int = 20
    at_once: int = 256

    def parameters(self, name: str) -> dict[str, object]:
        """Return these by submitit's names, those that were not said left out."""
        asked = {
            "job_name": name,
            "time": self.time_min,
            "partition": self.partition,
            "constraint": self.constraint,
            "gres": self.gres,
            "mem": self.mem,
            "cpus_per_task": self.cpus,
            "account": self.account,
            "qos": self.qos,
            "setup": list(self.setup) or None,
            "signal_delay_s": WARNED_S,
            "array_parallelism": self.at_once,
        }
        return {key: value for key, value in asked.items() if value is not None}


def minutes(text: str) -> int:
    """Read a time as Slurm writes it: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Raises:
        InputError: the text is none, or no time at all.
    """
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
    """Raise where Slurm cannot be reached from here.

    Raises:
        CannotMeasureError: its commands or submitit are not here.
    """
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
    """Copy a database, consistent though others may write it; None where there is none.

    Raises:
        InputError: it cannot be copied.
    """
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


def submit(jobs: Sequence[Job], resources: Resources, name: str) -> list[str]:
    """Give jobs to Slurm, several as one array; return their ids.

    Raises:
        InputError: one of them is at work already, or Slurm refuses them.
        CannotMeasureError: Slurm cannot be reached from here.
    """
    check_slurm()
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    folder = Path(jobs[0].folder)
    known = {job: state for job in jobs if (state := read_state(job.files.state))}
    others = [job.name for job, state in known.items() if state["command"] != [*job.command]]
    if others:
        raise InputError(
            f"{', '.join(others)}: {folder} holds a job of that name with another command; give "
            "another --folder"
        )
    waiting = queue() if known else None
    at_work = [state["name"] for state in known.values() if _is_at_work(state, waiting)]
    if at_work:
        raise InputError(
            f"{', '.join(at_work)}: still at work (opdb status --jobs {folder}); wait for it, "
            "cancel it with scancel, or give another --folder"
        )
    executor = submitit.SlurmExecutor(folder / "submitit", max_num_timeout=resources.requeues)
    executor.update_parameters(**resources.parameters(name))
    for job in jobs:
        write_state(job.files.state, _submitted(job, None))
    try:
        with _private(folder / "submitit"), executor.batch():
            given = [executor.submit(job) for job in jobs]
    except (FailedJobError, FailedSubmissionError) as error:
        for job in jobs:
            job.files.state.unlink()
        why = next(reversed(str(error).strip().splitlines()), "it does not say why")
        raise InputError(f"sbatch refuses the jobs: {why}") from error
    ids = [str(each.job_id) for each in given]
    for job, number in zip(jobs, ids, strict=True):
        state = read_state(job.files.state)
        if state["state"] == "submitted":  # else it has begun, and knows its number itself
            write_state(job.files.state, state | {"job": number})
    return ids


def _submitted(job: Job, number: str | None) -> dict[str, Json]:
    return {
        "name": job.name,
        "state": "submitted",
        "job": number,
        "command": list(job.command),
        "log": str(job.files.log),
        "shard": str(job.files.shard) if _has_shard(job) else None,
        "runs": 0,
        "exit_status": None,
    }


def _has_shard(job: Job) -> bool:
    return job.database is not None and job.database.endswith(str(job.files.shard))


@contextmanager
def _private(folder: Path) -> Iterator[None]:
    """Make a folder, and what is written in it inside the block, for this user alone.

    A job is written there with its database, whose URL may hold a password.

    Raises:
        InputError: the folder cannot be made.
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


def _is_at_work(state: dict[str, Json], found: dict[str, str] | None) -> bool:
    return state["state"] in WAITING and (found is None or state["job"] in found)


def jobs_in(folder: Path) -> list[dict[str, Json]]:
    """Return the jobs of a folder with what Slurm says of them, as `slurm`, None where it does not.

    One that Slurm does not have any more though it never ended is `lost`: killed for its memory or
    its time, cancelled, or its node failed.

    Raises:
        InputError: the folder holds no job.
    """
    found = queue()
    jobs = []
    for state in states_in(folder):
        said = None if found is None else found.get(str(state["job"]))
        if found is not None and said is None and state["state"] in ("submitted", "running"):
            state = state | {"state": "lost"}
        jobs.append(state | {"slurm": said})
    return jobs
