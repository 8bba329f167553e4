"""Columns that hold a JSON document: what it is in a record, and what it may be in a set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

from opdb.records import (
    AfterOthers,
    Calibration,
    Json,
    KernelCounts,
    MeterTest,
    OperatingPoint,
    PassMemory,
    Quantity,
    RunRatio,
    RunRatios,
    canonical_json,
)
from opdb.store.fields import COLLATED, Field
from opdb.store.ranges import DIFFERENCE_S, DURATION_S, POSITIVE_COUNT

_POINT = {field.name for field in fields(OperatingPoint)}
_AFTER = {field.name for field in fields(AfterOthers)}


def read_json(text: str) -> Json:
    """Read a JSON column."""
    # Most columns say nothing most of the time.
    return {} if text == "{}" else [] if text == "[]" else json.loads(text)


def _read_object(text: str) -> dict[str, Json]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object: {text[:80]!r}")
    return found


def _read_counts(text: str) -> dict[str, int]:
    found: dict[str, int] = _read_object(text)
    if not all(isinstance(count, int) for count in found.values()):
        raise TypeError(f"{text[:80]!r} holds something else than counts")
    return found


def quantity(name: str, parts: Mapping[str, Any]) -> Quantity:
    """Return a quantity of these parts.

    Raises:
        TypeError: one is not a number; the message names it.
    """
    for part, value in parts.items():
        if part in ("low", "high") and value is None:
            continue  # there is no interval
        if not isinstance(value, float | int):
            raise TypeError(f"{name}_{part} is {value!r}, no number")
    return Quantity(**parts)


def _document(
    decode: Callable[[str], Any],
    *,
    check: Callable[[str], object] | None = None,
    encode: Callable[[Any], Json] = asdict,
) -> Field:
    """Return the field of a document; `check` is `decode` unless given, `encode` makes its JSON."""
    return Field(
        COLLATED,
        check=check or decode,
        encode=lambda value: canonical_json(encode(value)),
        decode=decode,
    )


def _read_words(text: str) -> tuple[str, ...]:
    words = read_json(text)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("not a JSON list of strings")
    return tuple(words)


def _read_memory(text: str) -> PassMemory:
    sizes = _read_object(text)
    for name, value in sizes.items():
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"{name} is {value!r}; expected a whole number of bytes")
    return PassMemory(**sizes)


def _read_calibration(text: str) -> Calibration:
    values = json.loads(text)
    base_w = values.get("base_power_w")
    if base_w is not None and not 0 <= base_w < math.inf:
        raise ValueError(f"base power of {base_w} W")
    interval = values.get("base_power_interval_w")
    values["base_power_interval_w"] = None if interval is None else tuple(interval)
    values["notes"] = tuple(values.get("notes", ()))
    return Calibration(**values)


def _read_meter_tests(text: str) -> tuple[MeterTest, ...]:
    return tuple(MeterTest(**test) for test in read_json(text))


def _read_definition(text: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = read_json(text)
    if not isinstance(found, dict):
        raise TypeError("not a mapping of quantities")
    for weights in found.values():
        _check_numbers(weights, nullable=False)
    return found


def _read_kernel_counts(text: str) -> tuple[KernelCounts, ...]:
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


def _read_operating_point(text: str) -> OperatingPoint:
    document = read_json(text)
    if not isinstance(document, dict) or document.keys() != _POINT:
        raise ValueError(f"not an operating point: {text[:80]!r}")
    return OperatingPoint(**document)


def _read_after_others(text: str) -> AfterOthers:
    document = read_json(text)
    if not isinstance(document, dict) or document.keys() != _AFTER:
        raise ValueError(f"not what a call takes longer after others: {text[:80]!r}")
    DIFFERENCE_S.check(document["code_s"])
    if document["stream_s"] is not None:
        DIFFERENCE_S.check(document["stream_s"])
    return AfterOthers(**document)


def read_run_ratios(text: str) -> RunRatios:
    """Read what runs showed of sums."""
    return {
        mode: {
            board: {key: _run_ratio(shown) for key, shown in of_board.items()}
            for board, of_board in of_mode.items()
        }
        for mode, of_mode in _read_object(text).items()
    }


def _run_ratio(shown: Json) -> RunRatio | None:
    if shown is None:
        return None
    found = RunRatio(*shown)
    for name, value in (("time", found.time), ("energy", found.energy), ("kernel", found.kernel_s)):
        if value is None and name != "time":
            continue
        if not isinstance(value, float | int) or not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; expected a number above 0")
    if not isinstance(found.waits, bool):
        raise TypeError(f"waits is {found.waits!r}; expected true or false")
    return found


def run_ratios_as_json(ratios: RunRatios) -> Json:
    """Return what runs showed of sums as a JSON value."""
    return {
        mode: {
            board: {key: shown and list(astuple(shown)) for key, shown in of_board.items()}
            for board, of_board in of_mode.items()
        }
        for mode, of_mode in ratios.items()
    }


def _read_host_times(text: str) -> dict[str, Quantity]:
    times = _read_object(text)
    return {form: quantity(f"host_time_s.{form}", parts) for form, parts in times.items()}


def _check_host_times(text: str) -> None:
    for form, found in _read_host_times(text).items():
        if type(found.count) is not int:
            raise TypeError(f"{form}: count is {found.count!r}, no whole number")
        POSITIVE_COUNT.check(found.count)
        for time_s in (found.median, found.mean, found.low, found.high):
            if time_s is not None:
                DURATION_S.check(time_s)


OBJECT = _document(_read_object, encode=dict)
WORDS = _document(_read_words, encode=list)
KERNELS = Field(COLLATED, check=_read_counts, encode=OBJECT.encode, decode=_read_counts)
"""Counts of kernels by name."""

MEMORY = _document(
    _read_memory,
    encode=lambda memory: {n: size for n, size in asdict(memory).items() if size is not None},
)
CALIBRATION = _document(_read_calibration)
METER_TESTS = _document(_read_meter_tests, encode=lambda tests: list(map(asdict, tests)))
DEFINITION = _document(
    _read_definition, encode=lambda found: {name: dict(each) for name, each in found.items()}
)
KERNEL_COUNTS = _document(
    _read_kernel_counts, encode=lambda found: [[each.name, dict(each.values)] for each in found]
)
OPERATING_POINT = _document(_read_operating_point)
AFTER_OTHERS = _document(_read_after_others)
HOST_TIMES = _document(
    _read_host_times,
    check=_check_host_times,
    encode=lambda times: {form: asdict(each) for form, each in times.items()},
)
RUN_RATIOS = _document(read_run_ratios, encode=run_ratios_as_json)
