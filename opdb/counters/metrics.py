"""Which of Nsight Compute's metrics make which quantity, and what a profile comes to by them.

A quantity is a weighted sum of metrics over all kernels of a call. Metrics are kept raw with the
definition that they were collected for, so that nothing has to be believed afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from opdb.errors import InputError, UnknownNameError
from opdb.records import Json, Profile

Definition: TypeAlias = Mapping[str, Mapping[str, float]]
"""Quantity → metric → weight."""

UNITS = ("float32", "tf32", "float16", "bfloat16", "float64", "float64_vector")
LEVELS = ("memory", "l2", "l1")
OTHER = "other"
"""Metrics that are in no quantity and are kept all the same."""

QUANTITIES = ("time_s", *(f"{n}_bytes" for n in LEVELS), *(f"{n}_flops" for n in UNITS), OTHER)

_THREADS = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"
_TENSOR = "sm__ops_path_tensor_src_{}.sum"


def _threads(letter: str) -> dict[str, float]:
    """Count one operation an addition or product, two a fused one; of the threads that ran it."""
    weights = (("add", 1.0), ("mul", 1.0), ("fma", 2.0))
    return {_THREADS.format(letter + name): weight for name, weight in weights}


def _tensor(*names: str) -> dict[str, float]:
    """Take the operations of tensor cores, which the counters count already."""
    return {_TENSOR.format(name): 1.0 for name in names}


_USUAL: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "time_s": ({"gpu__time_duration.sum": 1.0},),
    "memory_bytes": (
        {"dram__bytes.sum": 1.0},
        {"dram__bytes_read.sum": 1.0, "dram__bytes_write.sum": 1.0},
    ),
    "l2_bytes": ({"lts__t_bytes.sum": 1.0},),
    "l1_bytes": ({"l1tex__t_bytes.sum": 1.0},),
    "float32_flops": (_threads("f"),),
    "tf32_flops": (_tensor("tf32_dst_fp32"),),
    "float16_flops": (_tensor("fp16"), _tensor("fp16_dst_fp16", "fp16_dst_fp32")),
    "bfloat16_flops": (_tensor("bf16_dst_fp32"),),
    "float64_flops": (_tensor("fp64"),),
    "float64_vector_flops": (_threads("d"),),
    # how many operations one of these is depends on whether it works on pairs: in no sum
    OTHER: (_threads("h"),),
}
"""Each quantity's definitions, the first that a GPU has the metrics of is taken."""

_METRIC = re.compile(r"[A-Za-z_]\w*(\.\w+)+")


@dataclass(frozen=True)
class Counters:
    """What hardware counters saw of one call; None where a metric was missing.

    `bytes` are by memory level; `flops` by unit, those alone that this GPU has metrics of.
    `time_s` is the kernels' time under the profiler.
    """

    time_s: float | None
    bytes: Mapping[str, float | None]
    flops: Mapping[str, float | None]
    kernels: int

    @property
    def all_flops(self) -> float | None:
        """The operations on all units; None where those of one are missing."""
        known = [value for value in self.flops.values() if value is not None]
        return sum(known) if known and len(known) == len(self.flops) else None

    @property
    def unit(self) -> str | None:
        """The unit that did most of them; None where none did any."""
        most = max(((value or 0.0, unit) for unit, value in self.flops.items()), default=(0.0, ""))
        return most[1] if most[0] else None


def counters_of(profile: Profile) -> Counters:
    """Return what a profile comes to by the definition that it was collected for."""

    def of(quantity: str) -> float | None:
        weights = profile.definition.get(quantity)
        if not weights:
            return None
        total = 0.0
        for kernel in profile.kernels:
            for metric, weight in weights.items():
                value = kernel.values.get(metric)
                if value is None:
                    return None
                total += weight * value
        return total

    return Counters(
        of("time_s"),
        {level: of(f"{level}_bytes") for level in LEVELS},
        {unit: of(f"{unit}_flops") for unit in UNITS if f"{unit}_flops" in profile.definition},
        len(profile.kernels),
    )


def definition(known: Collection[str], own: Definition | None = None) -> Definition:
    """Choose each quantity's metrics among those that are known: full names, or without suffix.

    A user's own go first. A quantity of which none of the usual metrics is known is left out.

    Raises:
        UnknownNameError: a metric of the user's own is not known.
    """
    chosen: dict[str, Mapping[str, float]] = {}
    for quantity in QUANTITIES:
        if own is not None and quantity in own:
            for metric in own[quantity]:
                if not _is_known(metric, known):
                    hint = "(ncu --query-metrics lists what this ncu knows here)"
                    raise UnknownNameError("metric", metric, known, hint=hint)
            chosen[quantity] = own[quantity]
            continue
        fitting = (
            usual for usual in _USUAL[quantity] if all(_is_known(metric, known) for metric in usual)
        )
        if (first := next(fitting, None)) is not None:
            chosen[quantity] = first
    return chosen


def metrics_in(chosen: Definition) -> list[str]:
    """Return every metric that a definition needs, each once."""
    return list(dict.fromkeys(metric for weights in chosen.values() for metric in weights))


def _is_known(metric: str, known: Collection[str]) -> bool:
    return metric in known or metric.partition(".")[0] in known


def read_metrics(path: Path) -> Definition:
    """Read a user's own metric names from a JSON file: quantities, each with its metrics.

    A quantity's value is a metric, a list of metrics to add up, or a mapping of metrics to weights.

    Raises:
        InputError: it cannot be read or does not hold metrics; all of its mistakes at once.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(document, dict) or not document:
        allowed = ", ".join(QUANTITIES)
        raise InputError(f"{path}: a metrics file is one mapping of quantities: {allowed}")
    problems: list[str] = []
    found = {}
    for quantity, value in document.items():
        if quantity not in QUANTITIES:
            problems.append(str(UnknownNameError("quantity", quantity, QUANTITIES)))
        elif (weights := _weights(value)) is None:
            problems.append(
                f"{quantity}: found {str(value)[:60]!r}; give a metric such as "
                "'dram__bytes.sum', a list of them, or a mapping of them to weights"
            )
        else:
            found[quantity] = weights
    if problems:
        raise InputError(f"{path}: " + "; ".join(problems))
    return found


def _weights(value: Json) -> dict[str, float] | None:
    """Return a quantity's metrics with their weights; None where the value is none."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value), 1.0)
    if not isinstance(value, dict) or not value:
        return None
    names = all(_METRIC.fullmatch(name) for name in value)
    numbers = all(
        isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < 1e12
        for n in value.values()
    )
    return {name: float(n) for name, n in value.items()} if names and numbers else None
