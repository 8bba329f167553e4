"""One job of a cluster: an opdb command that is run, and run again after it was requeued.

What it leaves is named after it, in one folder: a state, a log, and, without a server, a database
of its own, its shard. opdb goes on where it was by itself: a job that is run again loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opdb.errors import InputError
from opdb.records import Json

STOPPED_WITHIN_S = 60.0
"""So long a command that was told to stop may take to store what is derived."""

INTERRUPTED = 130

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Files:
    """Every path that a job of this name writes."""

    folder: Path
    name: str

    @property
    def state(self) -> Path:
        """What became of the job, as JSON, always whole."""
        return self.folder / f"{self.name}.json"

    @property
    def log(self) -> Path:
        """What the command printed, over all its runs."""
        return self.folder / f"{self.name}.log"

    @property
    def shard(self) -> Path:
        """The job's own database, where there is no server."""
        return self.folder / f"{self.name}.sqlite"


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
    def files(self) -> Files:
        """The paths that it writes."""
        return Files(Path(self.folder), self.name)

    def __call__(self) -> int:
        """Run the command to its end and return its exit status.

        Raises:
            InputError: it failed, so that the cluster counts the job as failed.
        """
        if self.database is None and not os.environ.get("OPDB_DB"):
            raise InputError("OPDB_DB is not set here as it was for opdb submit; give it --db URL")
        files = self.files
        state = read_state(files.state) | {"state": "running", "host": socket.gethostname()}
        state |= {"runs": state.get("runs", 0) + 1, "since": _now(), "exit_status": None}
        state |= {"name": self.name, "job": _number(), "log": str(files.log)}
        write_state(files.state, state)
        if self.base is not None and not files.shard.exists():
            aside = files.shard.with_suffix(".part")
            shutil.copyfile(self.base, aside)
            aside.replace(files.shard)
        status: int | None = None
        try:
            status = self._run(files.log)
        finally:
            said = {0: "done", None: "stopped", INTERRUPTED: "stopped"}.get(status, "failed")
            write_state(
                files.state, state | {"state": said, "exit_status": status, "since": _now()}
            )
        if said == "failed":
            raise InputError(f"opdb ended with exit status {status}; see {files.log}")
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
    """Return a job's state; empty where it has none yet.

    Raises:
        InputError: the file holds something else.
    """
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a job's state: {error}") from error
    if not isinstance(document, dict) or "state" not in document:
        raise InputError(f"{path} is not a job's state")
    return document


def write_state(path: Path, state: dict[str, Json]) -> None:
    """Put a job's state in place of the one before, whole."""
    aside = path.with_suffix(".part.json")
    aside.write_text(json.dumps(state, indent=1) + "\n")
    aside.replace(path)


def states_in(folder: Path) -> list[dict[str, Json]]:
    """Return the state of every job of a folder, by name.

    Raises:
        InputError: the folder holds no job.
    """
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
    """Return the number by which Slurm knows the job that this process is."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
