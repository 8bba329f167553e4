"""Records to rows and back: one pair of small functions a record."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, Protocol, TypeAlias, TypeVar

from opdb.records import (
    Board,
    BoardCalibration,
    Calibration,
    Call,
    Campaign,
    Configuration,
    Cost,
    Device,
    Host,
    HostVisit,
    Json,
    KernelCounts,
    MeterTest,
    ModelRun,
    OperatingPoint,
    Profile,
    Quantity,
    Visit,
    Workload,
    canonical_json,
)
from opdb.store.raw import (
    decode_layers,
    decode_neighbours,
    decode_stretch,
    decode_stretches,
    decode_times,
    encode_layers,
    encode_neighbours,
    encode_stretch,
    encode_stretches,
    encode_times,
)
from opdb.store.schema import QUANTITIES, QUANTITY_PARTS

NewRow: TypeAlias = dict[str, Any]

Given = TypeVar("Given")
Made = TypeVar("Made")


class Row(Protocol):
    """A row that was read: values by column name."""

    def __getitem__(self, name: str, /) -> Any: ...


def _if_any(function: Callable[[Given], Made], value: Given | None) -> Made | None:
    """Return what a function makes of a value; None stays None."""
    return None if value is None else function(value)


def read_json(text: str | None) -> Json:
    """Read a JSON column; NULL stays None."""
    if text is None:
        return None
    # Most columns say nothing most of the time.
    return {} if text == "{}" else [] if text == "[]" else json.loads(text)


def configuration_row(configuration: Configuration) -> NewRow:
    """Return a configuration's row."""
    return {
        "key": configuration.key,
        "kind": configuration.kind,
        "json": configuration.json,
    }


def workload_row(workload: Workload) -> NewRow:
    """Return a workload's row, without its calls."""
    return {
        "key": workload.key,
        "name": workload.name,
        "source": workload.source,
        "source_version": workload.source_version,
        "batch_size": workload.batch_size,
        "dtype": workload.dtype,
        "memory_format": workload.memory_format,
        "phase": workload.phase,
        "gradient": workload.gradient,
        "autocast": workload.autocast,
        "inputs": canonical_json(dict(workload.inputs)),
        "containers": workload.containers,
        "foreign_leaves": canonical_json(dict(workload.foreign_leaves)),
        "unsupported": canonical_json(dict(workload.unsupported)),
        "compiled_for": workload.compiled_for,
        "captured": workload.captured,
    }


def read_workload(row: Row, calls: tuple[Call, ...] = ()) -> Workload:
    """Read a workload back, with the calls given."""
    return Workload(
        name=row["name"],
        source=row["source"],
        source_version=row["source_version"],
        inputs=read_json(row["inputs"]),
        batch_size=row["batch_size"],
        dtype=row["dtype"],
        memory_format=row["memory_format"],
        phase=row["phase"],
        gradient=bool(row["gradient"]),
        autocast=row["autocast"],
        calls=calls,
        containers=row["containers"],
        foreign_leaves=read_json(row["foreign_leaves"]),
        unsupported=read_json(row["unsupported"]),
        compiled_for=row["compiled_for"],
        captured=bool(row["captured"]),
    )


def device_row(device: Device) -> NewRow:
    """Return a device's row."""
    return asdict(device)


def read_device(row: Row) -> Device:
    """Read a device back."""
    return Device(**{name: row[name] for name in Device.__dataclass_fields__})


def read_board(row: Row) -> Board:
    """Read a board back."""
    return Board(uuid=row["uuid"], device=row["device"])


def host_row(host: Host) -> NewRow:
    """Return a host's row."""
    return asdict(host)


def read_host(row: Row) -> Host:
    """Read a host back."""
    return Host(**{name: row[name] for name in Host.__dataclass_fields__})


def campaign_row(campaign: Campaign) -> NewRow:
    """Return a campaign's row, without its board, device and host."""
    return {
        "id": campaign.id,
        "board": campaign.board.uuid,
        "device": campaign.device.slug,
        "host": campaign.host.id,
        "started_at": campaign.started_at,
        "environment": canonical_json(dict(campaign.environment)),
        "settings": canonical_json(dict(campaign.settings)),
        "calibration": canonical_json(asdict(campaign.calibration)),
    }


def read_campaign(row: Row, device: Device, host: Host) -> Campaign:
    """Read a campaign back, with its device and host."""
    return Campaign(
        id=row["id"],
        board=Board(uuid=row["board"], device=row["device"]),
        device=device,
        host=host,
        started_at=row["started_at"],
        environment=read_json(row["environment"]),
        settings=read_json(row["settings"]),
        calibration=read_calibration(row["calibration"]),
    )


def read_calibration(text: str) -> Calibration:
    """Read a calibration back from its JSON.

    Raises:
        TypeError: a member is missing or unknown.
        ValueError: no board draws such a power.
    """
    values = json.loads(text)
    base_w = values.get("base_power_w")
    if base_w is not None and not 0 <= base_w < math.inf:
        raise ValueError(f"base power of {base_w} W")
    interval = values.get("base_power_interval_w")
    values["base_power_interval_w"] = None if interval is None else tuple(interval)
    values["notes"] = tuple(values.get("notes", ()))
    return Calibration(**values)


def board_calibration_row(calibration: BoardCalibration) -> NewRow:
    """Return a board calibration's row."""
    return {
        "id": calibration.id,
        "board": calibration.board.uuid,
        "device": calibration.board.device,
        "driver": calibration.driver,
        "power_limit_w": calibration.power_limit_w,
        "measured_at": calibration.measured_at,
        "environment": canonical_json(dict(calibration.environment)),
        "cost_s": calibration.cost_s,
        "facts": canonical_json(dict(calibration.facts)),
        "tests": canonical_json([asdict(test) for test in calibration.tests]),
        "notes": canonical_json(list(calibration.notes)),
    }


def read_board_calibration(row: Row) -> BoardCalibration:
    """Read a board calibration back."""
    return BoardCalibration(
        id=row["id"],
        board=Board(uuid=row["board"], device=row["device"]),
        driver=row["driver"],
        power_limit_w=row["power_limit_w"],
        measured_at=row["measured_at"],
        environment=read_json(row["environment"]),
        cost_s=row["cost_s"],
        facts=read_json(row["facts"]),
        tests=read_meter_tests(row["tests"]),
        notes=tuple(read_json(row["notes"])),
    )


def profile_row(profile: Profile) -> NewRow:
    """Return a profile's row, `configuration` (a key) still to be turned into its number."""
    return {
        "id": profile.id,
        "board": profile.board.uuid,
        "device": profile.board.device,
        "configuration": profile.configuration,
        "setting": profile.setting,
        "measured_at": profile.measured_at,
        "environment": canonical_json(dict(profile.environment)),
        "definition": canonical_json({k: dict(v) for k, v in profile.definition.items()}),
        "counts": canonical_json([[each.name, dict(each.values)] for each in profile.kernels]),
    }


def read_profile(row: Row) -> Profile:
    """Read a profile back."""
    return Profile(
        id=row["id"],
        board=Board(uuid=row["board"], device=row["device"]),
        configuration=row["configuration"],
        setting=row["setting"],
        measured_at=row["measured_at"],
        environment=read_json(row["environment"]),
        definition=read_definition(row["definition"]),
        kernels=read_kernel_counts(row["counts"]),
    )


def read_definition(text: str) -> dict[str, dict[str, float]]:
    """Read back which metrics were collected for which quantity.

    Raises:
        TypeError: it is no mapping of mappings to numbers.
    """
    found: dict[str, dict[str, float]] = read_json(text)
    if not isinstance(found, dict):
        raise TypeError("not a mapping of quantities")
    for weights in found.values():
        _check_numbers(weights, nullable=False)
    return found


def read_kernel_counts(text: str) -> tuple[KernelCounts, ...]:
    """Read the metrics of a call's kernels back from their JSON.

    Raises:
        TypeError: it is no list of names with mappings to numbers.
        ValueError: a kernel is no pair.
    """
    found = []
    for name, values in read_json(text):
        if not isinstance(name, str):
            raise TypeError("a kernel without a name")
        _check_numbers(values, nullable=True)
        found.append(KernelCounts(name, values))
    return tuple(found)


def _check_numbers(values: Json, *, nullable: bool) -> None:
    if not isinstance(values, dict):
        raise TypeError("not a mapping of metrics to numbers")
    for name, value in values.items():
        if value is None and nullable:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise TypeError(f"{name} is no number")


def read_meter_tests(text: str) -> tuple[MeterTest, ...]:
    """Read meter tests back from their JSON.

    Raises:
        TypeError: a member is missing or unknown.
    """
    return tuple(MeterTest(**test) for test in read_json(text))


def visit_row(visit: Visit) -> NewRow:
    """Return a visit's row, `configuration` (a key) still to be turned into `configuration_id`."""
    return {
        "id": visit.id,
        "campaign": visit.campaign,
        "configuration": visit.configuration,
        "setting": visit.setting,
        "role": visit.role,
        "outcome": visit.outcome,
        "reason": visit.reason,
        "started_at": visit.started_at,
        "cost_s": visit.cost_s,
        "issue": visit.issue,
        "weights": visit.weights,
        "copies": visit.copies,
        "stretch": _if_any(encode_stretch, visit.stretch),
        "restore": _if_any(encode_stretch, visit.restore),
        "kernels": None if visit.kernels is None else canonical_json(dict(visit.kernels)),
        "flags": canonical_json(list(visit.flags)),
        "access": visit.access,
        "neighbours": _if_any(encode_neighbours, visit.neighbours),
        "outputs": visit.outputs,
    }


def read_visit(row: Row) -> Visit:
    """Read a visit back from a row that holds `configuration`, a key."""
    return Visit(
        id=row["id"],
        campaign=row["campaign"],
        configuration=row["configuration"],
        setting=row["setting"],
        role=row["role"],
        outcome=row["outcome"],
        reason=row["reason"],
        started_at=row["started_at"],
        cost_s=row["cost_s"],
        issue=row["issue"],
        weights=row["weights"],
        copies=row["copies"],
        stretch=_if_any(decode_stretch, row["stretch"]),
        restore=_if_any(decode_stretch, row["restore"]),
        kernels=read_json(row["kernels"]),
        flags=tuple(read_json(row["flags"])),
        access=row["access"],
        neighbours=_if_any(decode_neighbours, row["neighbours"]),
        outputs=row["outputs"],
    )


def host_visit_row(visit: HostVisit) -> NewRow:
    """Return a host visit's row, `configuration` still a key."""
    return {
        "id": visit.id,
        "campaign": visit.campaign,
        "configuration": visit.configuration,
        "form": visit.form,
        "started_at": visit.started_at,
        "times": encode_times(visit.times_s),
        "flags": canonical_json(list(visit.flags)),
    }


def read_host_visit(row: Row) -> HostVisit:
    """Read a host visit back from a row that holds `configuration`, a key."""
    return HostVisit(
        id=row["id"],
        campaign=row["campaign"],
        configuration=row["configuration"],
        form=row["form"],
        started_at=row["started_at"],
        times_s=decode_times(row["times"]),
        flags=tuple(read_json(row["flags"])),
    )


def model_run_row(run: ModelRun) -> NewRow:
    """Return a model run's row, `workload` (a key) still to be turned into `workload_id`."""
    return {
        "id": run.id,
        "campaign": run.campaign,
        "workload": run.workload,
        "mode": run.mode,
        "outcome": run.outcome,
        "reason": run.reason,
        "started_at": run.started_at,
        "cost_s": run.cost_s,
        "repeats": encode_stretches(run.repeats),
        "peak_memory_bytes": run.peak_memory_bytes,
        "kernels": None if run.kernels is None else canonical_json(dict(run.kernels)),
        "layers": _if_any(encode_layers, run.layers),
        "flags": canonical_json(list(run.flags)),
        "setting": canonical_json(dict(run.setting)),
        "facts": canonical_json(dict(run.facts)),
    }


def read_model_run(row: Row) -> ModelRun:
    """Read a model run back from a row that holds `workload`, a key."""
    return ModelRun(
        id=row["id"],
        campaign=row["campaign"],
        workload=row["workload"],
        mode=row["mode"],
        outcome=row["outcome"],
        reason=row["reason"],
        started_at=row["started_at"],
        cost_s=row["cost_s"],
        repeats=decode_stretches(row["repeats"]),
        peak_memory_bytes=row["peak_memory_bytes"],
        kernels=read_json(row["kernels"]),
        layers=_if_any(decode_layers, row["layers"]),
        flags=tuple(read_json(row["flags"])),
        setting=read_json(row["setting"]),
        facts=read_json(row["facts"]),
    )


def cost_row(cost: Cost) -> NewRow:
    """Return a cost's row, `configuration` (a key) still to be turned into `configuration_id`."""
    row: NewRow = {
        "board": cost.board,
        "configuration": cost.configuration,
        "setting": cost.setting,
        "estimator": cost.estimator,
        "visits": cost.visits,
        "kernels": cost.kernels,
        "host_time_s": canonical_json(
            {form: asdict(quantity) for form, quantity in cost.host_time_s.items()}
        ),
        "clock_hz": cost.clock_hz,
        "limited": None if cost.limited is None else canonical_json(asdict(cost.limited)),
        "reasons": canonical_json(dict(cost.reasons)),
        "flags": canonical_json(list(cost.flags)),
        "hot": None if cost.hot is None else canonical_json(asdict(cost.hot)),
    }
    for name in QUANTITIES:
        quantity: Quantity | None = getattr(cost, name)
        for part in QUANTITY_PARTS:
            row[f"{name}_{part}"] = None if quantity is None else getattr(quantity, part)
    return row


_POINT = {field.name for field in fields(OperatingPoint)}


def read_operating_point(text: str) -> OperatingPoint:
    """Read an operating point back from its JSON.

    Raises:
        ValueError: the text is none.
    """
    document = read_json(text)
    if not isinstance(document, dict) or document.keys() != _POINT:
        raise ValueError(f"not an operating point: {text[:80]!r}")
    return OperatingPoint(**document)


_COLUMNS_OF = {name: {part: f"{name}_{part}" for part in QUANTITY_PARTS} for name in QUANTITIES}
"""The columns of a quantity's parts, by the quantity's name."""


def read_cost(row: Row) -> Cost:
    """Read a cost back from a row that holds `configuration`, a key."""
    host_times = read_json(row["host_time_s"])
    return Cost(
        configuration=row["configuration"],
        board=row["board"],
        setting=row["setting"],
        estimator=row["estimator"],
        visits=row["visits"],
        kernels=row["kernels"],
        host_time_s={
            form: _quantity(f"host_time_s.{form}", parts) for form, parts in host_times.items()
        },
        clock_hz=row["clock_hz"],
        limited=None if row["limited"] is None else read_operating_point(row["limited"]),
        hot=None if row["hot"] is None else read_operating_point(row["hot"]),
        reasons=read_json(row["reasons"]),
        flags=tuple(read_json(row["flags"])),
        **{name: _read_quantity(row, name) for name in QUANTITIES},
    )


def _read_quantity(row: Row, name: str) -> Quantity | None:
    columns = _COLUMNS_OF[name]
    if row[columns["median"]] is None:
        return None
    return _quantity(name, {part: row[column] for part, column in columns.items()})


def _quantity(name: str, parts: dict[str, Any]) -> Quantity:
    """Return a quantity of these parts; its name is told with one that is no number."""
    for part, value in parts.items():
        if part in ("low", "high") and value is None:
            continue  # there is no interval
        if not isinstance(value, float | int):
            raise TypeError(f"{name}_{part} is {value!r}, no number")
    return Quantity(**parts)
