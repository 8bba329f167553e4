"""What a database holds: what is measured, what is pending, what failed; and the jobs of Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.derive.rejection import COUNTED, REASONS
from opdb.errors import InputError
from opdb.lookup.coverage import FAILED, Covered
from opdb.lookup.words import workload_columns
from opdb.records import Device, Json, Role
from opdb.tables import SHARE, Column, Report, Rows, Table
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.store import Head, Standing


JOBS: Table[Json] = Table(
    Column("name", lambda job: job["name"], title="name"),
    Column("job", lambda job: job["job"], title="job"),
    Column(
        "state",
        lambda job: job["state"],
        title="state",
        text=lambda job: f"exit {job['exit_status']}" if job["exit_status"] else job["state"],
    ),
    Column("slurm", lambda job: job["slurm"], title="in Slurm"),
    Column("runs", lambda job: job["runs"], title="runs"),
    Column("host", lambda job: job.get("host"), title="host"),
    Column("since", lambda job: job.get("since"), title="since"),
)
"""A job of a cluster."""

MEASURED: Table[Covered] = Table(
    Column("measured_calls", lambda covered: covered.measured_calls),
    Column("model_runs", lambda covered: covered.runs),
)
"""What was measured of a workload on a device."""


@dataclass(frozen=True)
class DeviceStatus:
    """What was measured on a device."""

    device: Device
    boards: list[str]
    standing: Standing

    @property
    def of_no_workload(self) -> int:
        """How many configurations were measured that no workload calls: those of grids."""
        return self.standing.measured - self.standing.measured_called

    def visits(self, role: Role) -> int:
        """Count the visits in a role."""
        return sum(count for (each, _), count in self.standing.visits.items() if each == role)

    @property
    def rejected(self) -> dict[str, int]:
        """The rejected visits counted by why, in words."""
        counts = self.standing.visits
        found = {
            why: sum(counts.get((role, why), 0) for role in COUNTED)
            for why in dict.fromkeys(REASONS.values())
        }
        return {why: count for why, count in found.items() if count}

    @property
    def document(self) -> Json:
        """The device as JSON."""
        standing = self.standing
        return {
            "device": self.device.slug,
            "name": self.device.name,
            "boards": self.boards,
            "campaigns": standing.campaigns,
            "visits": self.visits("measurement"),
            "duplicates": self.visits("duplicate"),
            "anchors": self.visits("anchor"),
            "rejected": self.rejected,
            "measured": standing.measured,
            "measured_of_no_workload": self.of_no_workload,
            "compiled_workloads": standing.compiled,
            "pending": dict(standing.pending),
            "failed": FAILED.documents(standing.failures),
            "forced": [asdict(each) for each in standing.forced],
            "model_runs": standing.runs.total(),
            "profiles": standing.profiles,
            "profiled": standing.profiled,
        }

    def lines(self) -> Iterator[str]:
        """Yield the device as people read it."""
        standing, grids = self.standing, self.of_no_workload
        yield (
            f"{self.device.slug} ({self.device.name}): {plural(len(self.boards), 'board')}, "
            f"{plural(standing.campaigns, 'campaign')}, "
            f"{plural(self.visits('measurement'), 'visit')}, "
            f"{plural(standing.measured, 'configuration')} measured"
            f"{f' ({grids} of no workload)' if grids else ''}, "
            f"{plural(standing.runs.total(), 'model run')}"
        )
        if self.rejected:
            said = ", ".join(f"{count} as {why}" for why, count in self.rejected.items())
            yield f"  rejected, kept and not counted: {said}"
        if duplicates := self.visits("duplicate"):
            yield f"  {plural(duplicates, 'blind duplicate visit')}: opdb validate --duplicates"
        if standing.profiles:
            yield (
                f"  {plural(standing.profiles, 'profile')} by hardware counters, of "
                f"{plural(standing.profiled, 'configuration')}: opdb roofline MODEL --counters"
            )
        if standing.compiled:
            yield (
                f"  compiled for it: {plural(standing.compiled, 'workload')}: "
                "opdb predict MODEL --mode compile"
            )
        if standing.pending:
            said = ", ".join(f"{kind} {count}" for kind, count in standing.pending.items())
            pending = plural(sum(standing.pending.values()), "configuration")
            yield f"  pending: {pending} ({said})"
        yield from self._failures()

    def _failures(self) -> Iterator[str]:
        """Yield what could not be measured, and what came of forced convolutions."""
        for failure in self.standing.failures:
            yield (
                f"  failed: {failure.kind} {failure.configuration[:12]}: "
                f"{failure.outcome}: {failure.reason or 'no reason given'}"
            )
        for each in self.standing.forced:
            said = "measured" if each.outcome == "ok" else f"{each.outcome}: {each.reason}"
            yield f"  convolutions by {each.algorithm}: {each.configurations} {said}"
        if any(each.outcome == "ok" for each in self.standing.forced):
            yield "  a model by one of these: opdb predict MODEL --algorithm NAME"


def workloads_on(devices: Sequence[DeviceStatus]) -> Table[Head]:
    """Return the table of workloads, with how much of each was measured on these devices."""

    def share(on: DeviceStatus) -> Column[Head]:
        return Column(
            title=f"measured on {on.device.slug}",
            get=lambda head: Covered.of(head, on.standing).share,
            unit=SHARE,
        )

    return Table(
        *workload_columns(lambda head: head.workload),
        Column("calls", lambda head: head.calls, title="calls"),
        Column("configurations", lambda head: head.configurations),
        *map(share, devices),
        Column(
            "devices",
            lambda head: {
                on.device.slug: MEASURED.document(Covered.of(head, on.standing)) for on in devices
            },
        ),
        Column(
            title="model runs",
            get=lambda head: sum(Covered.of(head, on.standing).runs for on in devices),
        ),
    )


@dataclass(frozen=True, repr=False)
class Status(Report):
    """What a database holds; `swept` counts the workloads that only sweeps asked for.

    `size_bytes` is the size of its file, None of one that is no file.
    """

    location: str
    size_bytes: int | None
    devices: Sequence[DeviceStatus]
    workloads: Sequence[Head]
    swept: int

    def to_dict(self) -> Json:
        """Return what `opdb status --json` prints."""
        return {
            "database": {"location": self.location, "size_bytes": self.size_bytes},
            "devices": [each.document for each in self.devices],
            "workloads": workloads_on(self.devices).documents(self.workloads),
            "swept_workloads": self.swept,
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the database, its devices, and a row a workload."""
        size = f", {show(self.size_bytes, 'B', digits=3)}" if self.size_bytes else ""
        yield f"database {self.location}{size}"
        for each in self.devices:
            yield ""
            yield from each.lines()
        if not self.devices:
            yield "no device was measured yet"
        yield ""
        if self.workloads:
            yield Rows(workloads_on(self.devices), self.workloads)
        else:
            yield "no workload yet; opdb harvest adds them"
        if self.swept:
            swept = plural(self.swept, "workload")
            yield f"and {swept} that only sweeps asked for: opdb sweep --status"


@dataclass(frozen=True, repr=False)
class Jobs(Report):
    """The jobs that `opdb submit` left in a folder, each as its state file and Slurm have it."""

    jobs: Sequence[dict[str, Json]]

    def to_dict(self) -> Json:
        """Return what `opdb status --jobs FOLDER --json` prints."""
        return list(self.jobs)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a row a job, how many are in each state, and where failed ones say why."""
        yield Rows(JOBS, self.jobs)
        counts = Counter(job["state"] for job in self.jobs)
        yield ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        for job in self.jobs:
            if job["state"] in ("failed", "lost"):
                log = Path(job["log"])
                if not log.exists():  # it ended before its command began: Slurm's own output tells
                    log = log.parent / "submitit" / f"{job['job']}_*"
                yield f"{job['name']}: {job['state']}; see {log}"


def status(*, device: str | None = None, db: str | None = None) -> Status:
    """Say what is measured, pending and failed, as `opdb status` does.

    `device` is one device, as the status names it; without it all of them are told.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: one is named and none was measured, or the database cannot be opened.
    """
    from opdb.predict import choose_device
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        if device is not None:
            if not store.devices():
                raise InputError(
                    f"device {device!r}: {store.location} holds no device yet; opdb bench adds it"
                )
            choose_device(store, device)
        known = {each.slug: each for each in store.devices()}
        devices = [
            DeviceStatus(each, [b.uuid for b in store.boards(slug)], store.standing(slug))
            for slug, each in known.items()
            if device in (None, slug)
        ]
        heads = store.heads()
        asked_for = [head for head in heads if not head.swept]
        size = store.path.stat().st_size if store.path is not None else None
        return Status(store.location, size, devices, asked_for, len(heads) - len(asked_for))


def jobs(folder: Path) -> Jobs:
    """Say what became of the jobs that `opdb submit` left in a folder.

    Raises:
        InputError: the folder holds no job.
    """
    from opdb.cluster.slurm import jobs_in

    return Jobs(jobs_in(folder))
