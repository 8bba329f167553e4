"""Peak rates of a device: measured on a board, of the data sheet, from a user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opdb.errors import InputError, shown
from opdb.files import parse_json, read_text
from opdb.kinds import KINDS
from opdb.kinds.view import category
from opdb.meters.ncu import UNITS
from opdb.records import BoardCalibration, Configuration, Json

MEMORY = "memory"

_PRODUCT_SETTINGS = {"tf32_convolution", "tf32_matmul"}
_PLAIN = {
    **dict.fromkeys(("float16", "bfloat16", "float32", "complex64", "complex32"), "float32"),
    **dict.fromkeys(("float64", "complex128"), "float64_vector"),
}


@dataclass(frozen=True)
class Peaks:
    """Rates by unit and by memory level; an unknown rate is left out, and `notes` say why.

    `flops_per_j` and `bytes_per_j` count the energy above `base_power_w`, which a board always
    draws; with a base power of 0, all energy. Without base power there is no roof for energy.
    """

    source: str
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    flops_per_j: Mapping[str, float] = field(default_factory=dict)
    bytes_per_j: Mapping[str, float] = field(default_factory=dict)
    base_power_w: float | None = None
    notes: tuple[str, ...] = ()


def unit_of(configuration: Configuration, settings: Mapping[str, Json]) -> str | None:
    """Return the unit that an operator computes on; None for whole numbers and unknown kinds.

    Products go by the dtype of their factors, and in float32 by whether the backend may use TF32;
    what is no product computes in float32 or float64. A dtype that is none of `UNITS`, such as
    float8, is a unit of its own, of which no peak is known.
    """
    kind = KINDS.get(configuration.kind)
    if kind is None:
        return None
    dtype = kind.arithmetic_rule(kind.view(configuration))
    switches = _PRODUCT_SETTINGS & set(kind.settings)
    if not switches:
        return _PLAIN.get(dtype)
    if configuration.autocast is not None and dtype == "float32":
        dtype = configuration.autocast
    if dtype != "float32":
        return dtype if category(dtype) > 1 else None
    # cuDNN runs recurrent layers, which both settings touch
    first = "tf32_convolution" if "tf32_convolution" in switches else "tf32_matmul"
    return "tf32" if settings.get(first) else "float32"


# Measured


def measured_peaks(
    calibrations: Sequence[BoardCalibration],
    board: str,
    power_limit_w: float | None,
    base_power_w: float | None,
) -> Peaks:
    """Return the rates that a board (UUID) reached, as last calibrated under its power limit.

    `calibrations` are those of all boards of the device, oldest first: where the board itself has
    none, another's stand in, and a note says so.
    """
    fitting = [c for c in calibrations if c.power_limit_w == power_limit_w]
    own = [c for c in fitting if c.board.uuid == board]
    if not fitting:
        note = (
            "no board of this device has measured peaks; opdb doctor --calibrate measures them "
            "there"
        )
        return Peaks("measured", base_power_w=base_power_w, notes=(note,))
    chosen = (own or fitting)[-1]
    notes = [] if own else [f"the peaks are those of board {chosen.board.uuid}: this one has none"]
    flops = {unit: chosen.facts.get(f"matmul_{unit}_flops_per_s") for unit in UNITS}
    copied = chosen.facts.get("copy_bytes_per_s")
    notes.append(
        "no cache was measured for its rate: what comes from the L2 can be above the memory's roof"
    )
    return Peaks(
        f"measured on {chosen.board.uuid}, {chosen.measured_at[:10]}",
        {unit: rate for unit, rate in flops.items() if rate},
        {MEMORY: copied} if copied else {},
        base_power_w=base_power_w,
        notes=tuple(notes),
    )


# The vendor's


@dataclass(frozen=True)
class DataSheet:
    """What a vendor states of a device: dense FLOP/s by unit, memory's rate, power."""

    flops_per_s: Mapping[str, float]
    memory_bytes_per_s: float
    power_w: float
    source: str


_HOPPER = {
    "float64_vector": 34e12,
    "float64": 67e12,
    "float32": 67e12,
    "tf32": 494.5e12,
    "float16": 989.5e12,
    "bfloat16": 989.5e12,
}
_AMPERE = {
    "float64_vector": 9.7e12,
    "float64": 19.5e12,
    "float32": 19.5e12,
    "tf32": 156e12,
    "float16": 312e12,
    "bfloat16": 312e12,
}
_HALVED = "rates of tensor cores are stated with sparsity there and halved here"

DATA_SHEETS: Mapping[str, DataSheet] = {
    "NVIDIA H200": DataSheet(
        _HOPPER, 4.8e12, 700, f"NVIDIA H200 Tensor Core GPU data sheet, H200 SXM; {_HALVED}"
    ),
    "NVIDIA H100 80GB HBM3": DataSheet(
        _HOPPER, 3.35e12, 700, f"NVIDIA H100 Tensor Core GPU data sheet, H100 SXM; {_HALVED}"
    ),
    "NVIDIA A100-SXM4-80GB": DataSheet(
        _AMPERE, 2.039e12, 400, "NVIDIA A100 Tensor Core GPU data sheet, A100 80GB SXM"
    ),
    "NVIDIA A100-SXM4-40GB": DataSheet(
        _AMPERE, 1.555e12, 400, "NVIDIA A100 Tensor Core GPU data sheet, A100 40GB SXM"
    ),
}
"""Reviewed by hand, by the name that the driver gives the device."""


def vendor_peaks(device: str) -> Peaks:
    """Return the data sheet's rates of a device, by the driver's name of it.

    A data sheet states no energy of an operation: its roof for energy is its rate at its power.
    """
    sheet = DATA_SHEETS.get(device)
    if sheet is None:
        return Peaks("data sheet", notes=(f"opdb has no data sheet of {device}",))
    return Peaks(
        sheet.source,
        sheet.flops_per_s,
        {MEMORY: sheet.memory_bytes_per_s},
        {unit: rate / sheet.power_w for unit, rate in sheet.flops_per_s.items()},
        {MEMORY: sheet.memory_bytes_per_s / sheet.power_w},
        base_power_w=0.0,
    )


# A user's

_NAMES: Mapping[str, tuple[str, ...]] = {
    "flops_per_s": UNITS,
    "bytes_per_s": (MEMORY,),
    "flops_per_j": UNITS,
    "bytes_per_j": (MEMORY,),
}
_KEYS = ("source", "base_power_w", *_NAMES)


def read_peaks(path: Path, base_power_w: float | None) -> Peaks:
    """Read a user's peaks (JSON); each rate is a mapping of units, or of memory, to numbers.

    `base_power_w` is taken where the file says none.

    Raises:
        InputError: it cannot be read, or something in it is no peak; all of it is said at once.
    """
    from opdb.summary import unknown_key

    document = parse_json(path, read_text(path, "a peaks file"))
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {shown(document)}; expected a mapping: {', '.join(_KEYS)}")
    problems = [unknown_key(key, _KEYS) for key in document if key not in _KEYS]
    rates: dict[str, Any] = {key: document.get(key, {}) for key in _NAMES}
    base_w = document.get("base_power_w", base_power_w)
    numbers = {} if base_w is None else {"base_power_w": base_w}
    for key, valid in _NAMES.items():
        if not isinstance(rates[key], dict):
            problems.append(f"{key}: found {shown(rates[key])}; allowed: {', '.join(valid)}")
            continue
        problems += [
            unknown_key(name, valid, f"{key}.") for name in rates[key] if name not in valid
        ]
        numbers |= {f"{key}.{name}": rate for name, rate in rates[key].items()}
    problems += [
        f"{name}: found {shown(value)}; allowed: a number of 0 or more, such as 4.3e12"
        for name, value in numbers.items()
        if not _is_number(value)
    ]
    source = document.get("source", path)
    if not problems and not (rates["flops_per_s"] or rates["bytes_per_s"]):
        problems.append("it gives no rate; give flops_per_s and bytes_per_s")
    if problems:
        raise InputError(f"{path}: " + "; ".join(problems))
    return Peaks(str(source), **rates, base_power_w=base_w)


def _is_number(value: object) -> bool:
    # the upper bound also refuses what JSON spells Infinity and NaN
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e30
