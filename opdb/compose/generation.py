"""From the passes of a generation to the whole: one prefill, and a step for each further token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opdb.compose.composer import Interval, Prediction
from opdb.records import Configuration


def weights(knots: Sequence[int], first: int, last: int) -> list[float]:
    """Return how many steps each knot stands for, of one step at each length from first to last.

    A step between two knots counts to both, by its distance: steps are interpolated linearly. No
    step lies beyond the last knot.
    """
    if len(knots) == 1:
        return [float(last - first + 1)]
    found = [0.0] * len(knots)
    at = 0
    for length in range(first, last + 1):
        while length > knots[at + 1]:
            at += 1
        share = (length - knots[at]) / (knots[at + 1] - knots[at])
        found[at] += 1 - share
        found[at + 1] += share
    return found


@dataclass(frozen=True)
class Total:
    """Time and energy of several passes with their 95 % intervals.

    An interval is None where one pass has none, an energy where one pass has none. The errors of
    the passes are taken for common to all: they rest on the same operators of one board.
    """

    time_s: float | None
    time_interval_s: Interval | None
    energy_j: float | None
    energy_interval_j: Interval | None

    @classmethod
    def of(cls, parts: Sequence[tuple[float, Prediction]]) -> Total:
        """Return the sum of predictions, each so many times."""
        return cls(
            _sum([(n, each.time_s) for n, each in parts]),
            _interval([(n, each.time_interval_s) for n, each in parts]),
            _sum([(n, each.energy_j) for n, each in parts]),
            _interval([(n, each.energy_interval_j) for n, each in parts]),
        )


def _sum(parts: Sequence[tuple[float, float | None]]) -> float | None:
    if any(value is None for _, value in parts):
        return None
    return math.fsum(count * value for count, value in parts if value is not None)


def _interval(parts: Sequence[tuple[float, Interval | None]]) -> Interval | None:
    known = [(count, *found) for count, found in parts if found is not None]
    if len(known) < len(parts):
        return None
    return math.fsum(n * low for n, low, _ in known), math.fsum(n * high for n, _, high in known)


PRODUCTS = frozenset(
    ("linear", "conv1d", "addmm", "matmul", "mm", "bmm", "baddbmm", "grouped_mm", "scaled_mm")
)
"""The kinds that multiply by weights, where one of their inputs is one."""

ATTENTION = frozenset(("scaled_dot_product_attention", "multi_head_attention"))
"""The kinds that are a whole attention."""

WORK = ("weights", "attention", "rest")
"""What a decoder's time goes to: products with weights, attention, and all else."""


def work_shares(parts: Sequence[tuple[float, Prediction]]) -> dict[str, float]:
    """Return the shares of the device's time of passes, by `WORK`; each pass so many times."""
    found = dict.fromkeys(WORK, 0.0)
    for count, each in parts:
        gathered = any(map(gathers_experts, each.workload.occurrences()))
        for share in (*each.parts, *each.estimated, *each.missing):
            configuration = share.configuration
            what = "rest"
            if configuration.kind in ATTENTION or _attends_by_parts(configuration):
                what = "attention"
            elif (
                (configuration.kind in PRODUCTS and _has_weight(dict(configuration.inputs)))
                or gathers_experts(configuration)
                or (gathered and configuration.kind == "bmm")
            ):
                what = "weights"
            found[what] += count * (each.time_s or 0.0) * share.share_time
    whole = math.fsum(found.values())
    return {name: value / whole if whole else 0.0 for name, value in found.items()}


def _attends_by_parts(call: Configuration) -> bool:
    """Return whether a call is a part of an attention that the model writes out.

    That is a product of two computed tensors, or a softmax, of (batch, heads, rows, columns).
    """
    if call.kind not in {"matmul", "softmax"} or _has_weight(dict(call.inputs)):
        return False
    return all(isinstance(x, dict) and len(x["shape"]) == 4 for x in call.inputs.values())


def gathers_experts(call: Configuration) -> bool:
    """Return whether a call gathers the weights of experts, one for each row, for a `bmm`."""
    if call.kind != "getitem":
        return False
    source, index = call.inputs["input"], call.inputs.get("index")
    weights = source.get("role") == "weight" and len(source["shape"]) == 3
    return weights and isinstance(index, list) and len(index[0].get("shape", ())) == 1


def _has_weight(inputs: object) -> bool:
    if isinstance(inputs, dict):
        return inputs.get("role") == "weight" or any(map(_has_weight, inputs.values()))
    return isinstance(inputs, list) and any(map(_has_weight, inputs))
