"""`opdb status`: what is in the database, what is measured, what is pending, what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opdb.cli import options
from opdb.cli.console import print_json, print_table
from opdb.cli.selection import describe, identity
from opdb.derive.rejection import COUNTED, REASONS, REJECTED
from opdb.errors import InputError, UnknownNameError
from opdb.records import Device, Json, Outcome, Workload
from opdb.units import show, show_share

if TYPE_CHECKING:
    from opdb.store import Failure, Store


@dataclass(frozen=True)
class DeviceStatus:
    """What was measured on a device."""

    device: Device
    boards: list[str]
    campaigns: int
    visits: int
    duplicates: int
    anchors: int
    rejected: dict[str, int]
    measured: frozenset[str]
    failures: list[Failure]
    runs: Counter[str]


def run(
    device: options.DeviceName = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what is measured, pending and failed.

    A configuration is pending on a device until a visit measured it or found that it cannot be.
    """
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        devices = _devices(store, device)
        workloads = store.workloads()
        kinds = _called_kinds(workloads)
        size = store.path.stat().st_size if store.path is not None else None
        location = store.location
    if as_json:
        print_json(
            {
                "database": {"location": location, "size_bytes": size},
                "devices": [_device_document(each, kinds) for each in devices],
                "workloads": [_workload_document(each, devices) for each in workloads],
            }
        )
        return
    print(f"database {location}" + (f", {show(size, 'B', digits=3)}" if size else ""))
    for each in devices:
        _print_device(each, kinds)
    if not devices:
        print("no device was measured yet")
    _print_workloads(workloads, devices)


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
    outcomes = store.visit_outcomes(device.slug)
    runs = store.model_runs(device=device.slug)
    return DeviceStatus(
        device=device,
        boards=[board.uuid for board in store.boards(device.slug)],
        campaigns=len(store.campaigns(device.slug)),
        visits=_total(outcomes),
        duplicates=_total(store.visit_outcomes(device.slug, role="duplicate")),
        anchors=_total(store.visit_outcomes(device.slug, role="anchor")),
        rejected=_rejected(store, device.slug),
        measured=frozenset(key for (key, _), counts in outcomes.items() if counts["ok"]),
        failures=store.failures(device.slug),
        runs=Counter(run.workload for run in runs if run.outcome == "ok"),
    )


def _total(outcomes: Mapping[tuple[str, str], Counter[Outcome]]) -> int:
    return sum(counts.total() for counts in outcomes.values())


def _rejected(store: Store, device: str) -> dict[str, int]:
    """Count the rejected visits of a device by why, in words."""
    counts = {
        why: sum(
            _total(store.visit_outcomes(device, role=role, flag=REJECTED + why)) for role in COUNTED
        )
        for why in dict.fromkeys(REASONS.values())
    }
    return {why: count for why, count in counts.items() if count}


def _called_kinds(workloads: list[Workload]) -> dict[str, str]:
    """Return the kind of every configuration that a workload calls, by key."""
    return {
        configuration.key: configuration.kind
        for workload in workloads
        for configuration in workload.occurrences()
    }


def _pending(status: DeviceStatus, kinds: dict[str, str]) -> dict[str, int]:
    """Count the configurations that were neither measured nor given up, by kind."""
    settled = status.measured | {failure.configuration for failure in status.failures}
    return dict(sorted(Counter(kind for key, kind in kinds.items() if key not in settled).items()))


def _of_no_workload(status: DeviceStatus, kinds: dict[str, str]) -> int:
    """Count what was measured and no workload calls: the combinations of grids."""
    return len(status.measured - kinds.keys())


def _measured_calls(workload: Workload, status: DeviceStatus) -> int:
    return sum(call.configuration.key in status.measured for call in workload.calls)


def _device_document(status: DeviceStatus, kinds: dict[str, str]) -> Json:
    return {
        "device": status.device.slug,
        "name": status.device.name,
        "boards": status.boards,
        "campaigns": status.campaigns,
        "visits": status.visits,
        "duplicates": status.duplicates,
        "anchors": status.anchors,
        "rejected": status.rejected,
        "measured": len(status.measured),
        "measured_of_no_workload": _of_no_workload(status, kinds),
        "pending": _pending(status, kinds),
        "failed": [
            {
                "kind": failure.kind,
                "configuration": failure.configuration,
                "outcome": failure.outcome,
                "reason": failure.reason,
                "attempts": failure.attempts,
            }
            for failure in status.failures
        ],
        "model_runs": sum(status.runs.values()),
    }


def _workload_document(workload: Workload, devices: list[DeviceStatus]) -> Json:
    return {
        **identity(workload),
        "calls": len(workload.calls),
        "configurations": len(workload.occurrences()),
        "devices": {
            status.device.slug: {
                "measured_calls": _measured_calls(workload, status),
                "model_runs": status.runs[workload.key],
            }
            for status in devices
        },
    }


def _print_device(status: DeviceStatus, kinds: dict[str, str]) -> None:
    pending = _pending(status, kinds)
    grids = _of_no_workload(status, kinds)
    print(
        f"\n{status.device.slug} ({status.device.name}): {len(status.boards)} boards, "
        f"{status.campaigns} campaigns, {status.visits} visits, {len(status.measured)} "
        f"configurations measured{f' ({grids} of no workload)' if grids else ''}, "
        f"{sum(status.runs.values())} model runs"
    )
    if status.rejected:
        said = ", ".join(f"{count} as {why}" for why, count in status.rejected.items())
        print(f"  rejected, kept and not counted: {said}")
    if status.duplicates:
        print(f"  {status.duplicates} blind duplicate visits: opdb validate --duplicates")
    if pending:
        said = ", ".join(f"{kind} {count}" for kind, count in pending.items())
        print(f"  pending: {sum(pending.values())} configurations ({said})")
    for failure in status.failures:
        print(
            f"  failed: {failure.kind} {failure.configuration[:12]}: "
            f"{failure.outcome}: {failure.reason or 'no reason given'}"
        )


def _print_workloads(workloads: list[Workload], devices: list[DeviceStatus]) -> None:
    if not workloads:
        print("\nno workload yet; opdb harvest adds them")
        return
    print()
    rows = []
    for workload in workloads:
        calls = len(workload.calls)
        shares = [_measured_calls(workload, each) / calls if calls else None for each in devices]
        runs = sum(each.runs[workload.key] for each in devices)
        rows.append((workload.name, describe(workload), calls, *map(show_share, shares), runs))
    covered = [f"measured on {each.device.slug}" for each in devices]
    print_table(("model", "workload", "calls", *covered, "model runs"), rows)
