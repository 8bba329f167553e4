"""`opdb status`: what is in the database, what is measured, what is pending, what failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli.support import options
from opdb.cli.support.console import print_json, print_rows, print_table
from opdb.derive.rejection import COUNTED, REASONS
from opdb.errors import InputError, UnknownNameError
from opdb.lookup.words import describe, identity
from opdb.records import Device, Json, Role
from opdb.tables import MISSING, Column, Table
from opdb.units import plural, show, show_share

if TYPE_CHECKING:
    from opdb.store import Head, Standing, Store
    from opdb.store.forced import Forced
    from opdb.store.reading import Failure


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

    def measured_calls(self, head: Head) -> int:
        """Count the calls of a workload whose configuration was measured."""
        return head.calls - self.standing.unmeasured_calls.get(head.workload.key, 0)


def _ended(job: Json) -> str:
    failed = job["exit_status"] not in (None, 0)
    return f"exit {job['exit_status']}" if failed else str(job["state"])


JOBS: Table[Json] = Table(
    Column(title="name", text=lambda job: job["name"]),
    Column(title="job", text=lambda job: job["job"] or MISSING),
    Column(title="state", text=_ended),
    Column(title="in Slurm", text=lambda job: job["slurm"] or MISSING),
    Column(title="runs", text=lambda job: job["runs"]),
    Column(title="host", text=lambda job: job.get("host", MISSING)),
    Column(title="since", text=lambda job: job.get("since", MISSING)),
)
"""The jobs of a cluster, as people read them."""

FAILURES: Table[Failure] = Table(
    Column("kind", lambda each: each.kind),
    Column("configuration", lambda each: each.configuration),
    Column("outcome", lambda each: each.outcome),
    Column("reason", lambda each: each.reason),
    Column("attempts", lambda each: each.attempts),
)
"""Configurations that could not be measured."""

FORCED: Table[Forced] = Table(
    Column("algorithm", lambda each: each.algorithm),
    Column("outcome", lambda each: each.outcome),
    Column("reason", lambda each: each.reason),
    Column("configurations", lambda each: each.configurations),
)
"""Convolutions that were forced to take an algorithm."""


def run(
    device: options.EveryDevice = None,
    jobs: Annotated[
        Path | None,
        typer.Option("--jobs", metavar="FOLDER", help="The jobs that opdb submit left there."),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what is measured, pending and failed.

    A configuration is pending on a device until a visit measured it or found that it cannot be.
    With --jobs, what became of each job of a cluster.
    """
    if jobs is not None:
        _show_jobs(jobs, as_json=as_json)
        return
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        devices = _devices(store, device)
        heads = store.heads()
        asked_for = [head for head in heads if not head.swept]
        size = store.path.stat().st_size if store.path is not None else None
        location = store.location
    swept = len(heads) - len(asked_for)
    if as_json:
        database = {"location": location, "size_bytes": size}
        print_json(_document(database, devices, asked_for, swept))
        return
    print(f"database {location}" + (f", {show(size, 'B', digits=3)}" if size else ""))
    for each in devices:
        _print_device(each)
    if not devices:
        print("no device was measured yet")
    _print_workloads(asked_for, devices)
    if swept:
        print(f"and {plural(swept, 'workload')} that only sweeps asked for: opdb sweep --status")


def _document(database: Json, devices: list[DeviceStatus], heads: list[Head], swept: int) -> Json:
    return {
        "database": database,
        "devices": [_device_document(each) for each in devices],
        "workloads": [_workload_document(each, devices) for each in heads],
        "swept_workloads": swept,
    }


def _show_jobs(folder: Path, *, as_json: bool) -> None:
    from opdb.cluster.slurm import jobs_in

    jobs = jobs_in(folder)
    if as_json:
        print_json(jobs)
        return
    print_rows(JOBS, jobs)
    counts = Counter(job["state"] for job in jobs)
    print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    for job in jobs:
        if job["state"] in ("failed", "lost"):
            log = Path(job["log"])
            if not log.exists():  # it ended before its command began: Slurm's own output tells
                log = log.parent / "submitit" / f"{job['job']}_*"
            print(f"{job['name']}: {job['state']}; see {log}")


def _devices(store: Store, slug: str | None) -> list[DeviceStatus]:
    """Return the state of every device, or of the one named.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: one is named and none was measured.
    """
    known = {device.slug: device for device in store.devices()}
    if slug is not None and not known:
        raise InputError(
            f"device {slug!r}: {store.location} holds no device yet; opdb bench adds it"
        )
    if slug is not None and slug not in known:
        raise UnknownNameError("device", slug, known)
    return [_device(store, known[each]) for each in known if slug in (None, each)]


def _device(store: Store, device: Device) -> DeviceStatus:
    boards = [board.uuid for board in store.boards(device.slug)]
    return DeviceStatus(device, boards, store.standing(device.slug))


def _device_document(status: DeviceStatus) -> Json:
    standing = status.standing
    return {
        "device": status.device.slug,
        "name": status.device.name,
        "boards": status.boards,
        "campaigns": standing.campaigns,
        "visits": status.visits("measurement"),
        "duplicates": status.visits("duplicate"),
        "anchors": status.visits("anchor"),
        "rejected": status.rejected,
        "measured": standing.measured,
        "measured_of_no_workload": status.of_no_workload,
        "compiled_workloads": standing.compiled,
        "pending": dict(standing.pending),
        "failed": FAILURES.documents(standing.failures),
        "forced": FORCED.documents(standing.forced),
        "model_runs": standing.runs.total(),
        "profiles": standing.profiles,
        "profiled": standing.profiled,
    }


def _workload_document(head: Head, devices: list[DeviceStatus]) -> Json:
    return {
        **identity(head.workload),
        "calls": head.calls,
        "configurations": head.configurations,
        "devices": {
            status.device.slug: {
                "measured_calls": status.measured_calls(head),
                "model_runs": status.standing.runs[head.workload.key],
            }
            for status in devices
        },
    }


def _print_device(status: DeviceStatus) -> None:
    standing, grids = status.standing, status.of_no_workload
    print(
        f"\n{status.device.slug} ({status.device.name}): {plural(len(status.boards), 'board')}, "
        f"{plural(standing.campaigns, 'campaign')}, "
        f"{plural(status.visits('measurement'), 'visit')}, "
        f"{plural(standing.measured, 'configuration')} measured"
        f"{f' ({grids} of no workload)' if grids else ''}, "
        f"{plural(standing.runs.total(), 'model run')}"
    )
    if status.rejected:
        said = ", ".join(f"{count} as {why}" for why, count in status.rejected.items())
        print(f"  rejected, kept and not counted: {said}")
    if duplicates := status.visits("duplicate"):
        print(f"  {plural(duplicates, 'blind duplicate visit')}: opdb validate --duplicates")
    if standing.profiles:
        print(
            f"  {plural(standing.profiles, 'profile')} by hardware counters, of "
            f"{plural(standing.profiled, 'configuration')}: opdb roofline MODEL --counters"
        )
    if standing.compiled:
        print(
            f"  compiled for it: {plural(standing.compiled, 'workload')}: "
            "opdb predict MODEL --mode compile"
        )
    if standing.pending:
        said = ", ".join(f"{kind} {count}" for kind, count in standing.pending.items())
        pending = plural(sum(standing.pending.values()), "configuration")
        print(f"  pending: {pending} ({said})")
    _print_failures(standing)


def _print_failures(standing: Standing) -> None:
    for failure in standing.failures:
        print(
            f"  failed: {failure.kind} {failure.configuration[:12]}: "
            f"{failure.outcome}: {failure.reason or 'no reason given'}"
        )
    for each in standing.forced:
        said = "measured" if each.outcome == "ok" else f"{each.outcome}: {each.reason}"
        print(f"  convolutions by {each.algorithm}: {each.configurations} {said}")
    if any(each.outcome == "ok" for each in standing.forced):
        print("  a model by one of these: opdb predict MODEL --algorithm NAME")


def _print_workloads(heads: list[Head], devices: list[DeviceStatus]) -> None:
    if not heads:
        print("\nno workload yet; opdb harvest adds them")
        return
    print()
    rows = []
    for head in heads:
        workload, calls = head.workload, head.calls
        shares = [each.measured_calls(head) / calls if calls else None for each in devices]
        runs = sum(each.standing.runs[workload.key] for each in devices)
        rows.append((workload.name, describe(workload), calls, *map(show_share, shares), runs))
    covered = [f"measured on {each.device.slug}" for each in devices]
    print_table(("model", "workload", "calls", *covered, "model runs"), rows)
