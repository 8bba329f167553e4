"""How far predictions are from measured runs, and how many their intervals hold: by regime."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from opdb.predict import Answer
from opdb.predict.regimes import BATCHES, FAMILIES, Regime, regime_of
from opdb.records import Quantity

Measure = Literal["time", "energy"]
Origin = Literal["own", "borrowed"]

MEASURES: tuple[Measure, ...] = ("time", "energy")
ORIGINS: tuple[Origin, ...] = ("own", "borrowed")
"""Whether a run's board measured all its operators, or costs of other boards stand in for some."""


@dataclass(frozen=True)
class Held:
    """A prediction against its run, for time or energy: relative error, interval (relative).

    `model_error_share` is the share of the squared width that other models' errors make.
    """

    error: float
    inside: bool | None = None
    half_width: float | None = None
    model_error_share: float | None = None


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors of `count` predictions, the share of runs that intervals hold.

    `median_half_width` is relative to the prediction, `model_error_share` the median share of the
    squared width that other models' errors make. All are None where there is no interval.
    """

    count: int
    median: float
    percentile_95: float
    largest: float
    inside_interval: float | None
    median_half_width: float | None
    model_error_share: float | None


@dataclass(frozen=True)
class Group:
    """Runs of one regime, alike in whose operators they rest on, and their errors."""

    regime: Regime
    operators: Origin
    runs: int
    errors: dict[Measure, Errors | None]


def is_whole(answer: Answer) -> bool:
    """Return whether every call of a run is described, and measured."""
    return not (answer.prediction.missing or answer.prediction.workload.unsupported)


def origin_of(answer: Answer) -> Origin:
    """Return whether a run's board measured all its operators."""
    return "borrowed" if answer.brought else "own"


def held(answer: Answer, measure: Measure) -> Held | None:
    """Hold a prediction against its run; None where either is not known."""
    found, measured = answer.prediction, answer.measured
    if measured is None:
        return None
    truth: Quantity | None = measured.time_s
    value, interval = found.time_s, found.time_interval_s
    if measure == "energy":
        truth, value, interval = measured.energy_j, found.energy_j, found.energy_interval_j
    if truth is None or not truth.mean or value is None:
        return None
    error = abs(value / truth.mean - 1)
    if interval is None or not value or not interval[0]:
        return Held(error)
    low, high = interval
    widths = found.widths_time if measure == "time" else found.widths_energy
    either = sum(width**2 for width in widths) / 2
    share = 1 - either / (math.log(high / low) / 2) ** 2
    return Held(error, low <= truth.mean <= high, (high - low) / 2 / value, share)


def inside(answer: Answer, measure: Measure) -> bool | None:
    """Return whether the interval holds what was measured; None where either is not known."""
    found = held(answer, measure)
    return found.inside if found else None


def attribution(answer: Answer, measure: Measure) -> float | None:
    """Return predicted / measured; None where either is not known."""
    return answer.attribution_time if measure == "time" else answer.attribution_energy


def errors_of(answers: Iterable[Answer], measure: Measure) -> Errors | None:
    """Return how far predictions are off, and how often their intervals hold; None of none."""
    found = [each for answer in answers if (each := held(answer, measure)) is not None]
    if not found:
        return None
    ordered = sorted(each.error for each in found)
    holds = [each.inside for each in found if each.inside is not None]
    widths = [each.half_width for each in found if each.half_width is not None]
    shares = [each.model_error_share for each in found if each.model_error_share is not None]
    return Errors(
        count=len(ordered),
        median=statistics.median(ordered),
        percentile_95=statistics.quantiles(ordered, n=20, method="inclusive")[-1]
        if len(ordered) > 1
        else ordered[0],
        largest=ordered[-1],
        inside_interval=statistics.fmean(holds) if holds else None,
        median_half_width=statistics.median(widths) if widths else None,
        model_error_share=statistics.median(shares) if shares else None,
    )


def both(answers: Sequence[Answer]) -> dict[Measure, Errors | None]:
    """Return the errors of time and of energy."""
    return {measure: errors_of(answers, measure) for measure in MEASURES}


def groups(answers: Iterable[Answer]) -> list[Group]:
    """Return answers by whose operators they rest on and by regime, as far as there are any."""
    by_place: dict[tuple[Origin, Regime], list[Answer]] = {}
    for answer in answers:
        regime = regime_of(answer.prediction.workload, answer.prediction.mode)
        by_place.setdefault((origin_of(answer), regime), []).append(answer)
    places = [(o, Regime(f, b)) for o in ORIGINS for f in FAMILIES for b in BATCHES]
    return [
        Group(regime, origin, len(found), both(found))
        for origin, regime in places
        if (found := by_place.get((origin, regime)))
    ]
