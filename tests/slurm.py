"""A Slurm of the tests' own: one node on this machine, its daemons started and stopped here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opdb.packaging import install

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "srun")
SBIN = "/usr/sbin"

CONFIGURATION = """
ClusterName=opdbtest
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={first}
SlurmdPort={second}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
KillWait=5
MinJobAge=300
MpiDefault=none
PlugStackConfig=/dev/null
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=2000 Feature=small State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing() -> str | None:
    """Return why no Slurm can be started here; None where one can."""
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root here"
    lacking = [name for name in NEEDED if shutil.which(name, path=search_path()) is None]
    if lacking:
        return (
            f"Slurm is not installed ({', '.join(lacking)} missing): "
            "apt install munge slurmctld slurmd slurm-client"
        )
    try:
        import submitit  # noqa: F401
    except ImportError:
        return f"submitit is not installed ({install('slurm')})"
    return None


def search_path() -> str:
    """Return the PATH with the folder of daemons, which a user's often lacks."""
    return f"{os.environ['PATH']}{os.pathsep}{SBIN}"


@dataclass
class Slurm:
    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        ends = [path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(ends)

    def states(self) -> list[str]:
        return self.run("squeue", "--all", "--noheader", "--format=%T").split()

    def wait_until_empty(self, seconds: float = 120.0) -> None:
        """Wait until no job waits or runs any more."""
        until_s = time.monotonic() + seconds
        while found := self.run("squeue", "--noheader"):
            assert time.monotonic() < until_s, f"{found}\n{self.logs()}"
            time.sleep(0.2)


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Start munged, slurmctld and slurmd; stop them, and whatever still runs, at the end."""
    folder = Path(tempfile.mkdtemp(prefix="opdb-slurm-"))
    host = socket.gethostname().partition(".")[0]
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    first, second = _free_ports()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(host=host, folder=folder, first=first, second=second)
    )
    path = search_path()
    environment = {**os.environ, "SLURM_CONF": str(configuration), "PATH": path}
    running = Slurm(folder, environment)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        options = (f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed"))
        munged = ["munged", "--foreground", "--force", f"--key-file={key}", *options]
        munged += [f"--socket={folder}/munge.socket"]
        for command in (
            munged,
            ["slurmctld", "-D", "-i", "-f", str(configuration)],
            ["slurmd", "-D", "-f", str(configuration), "-N", host],
        ):
            log = (folder / f"{command[0]}.out").open("wb")
            daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            _wait_for(running, daemons[-1], command[0])
        yield running
        running.run("scancel", "--signal=KILL", "--full", "--partition=main")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(running: Slurm, daemon: subprocess.Popen[bytes], name: str) -> None:
    until_s = time.monotonic() + 30
    while not _answers(running, name):
        said = (running.folder / f"{name}.out").read_text()
        assert daemon.poll() is None and time.monotonic() < until_s, (
            f"{name}: {said}{running.logs()}"
        )
        time.sleep(0.1)


def _answers(running: Slurm, name: str) -> bool:
    if name == "munged":
        return (running.folder / "munge.socket").exists()
    command = ["scontrol", "ping"] if name == "slurmctld" else ["sinfo", "--noheader", "-o", "%T"]
    done = subprocess.run(
        command, env=running.environment, capture_output=True, text=True, check=False
    )
    return ("UP" in done.stdout) if name == "slurmctld" else ("idle" in done.stdout)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
