"""Throughput, energy and money by the sample, as people read them of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opdb.units import rounded, show

if TYPE_CHECKING:
    from opdb.api.predictions import Predicted
    from opdb.predict.figures import Amount, Figures

_PREFIXED = ("J", "g")

Row = tuple[str, str, str, str]
"""A quantity's name, its predicted value, its interval, and its measured value."""


def rows(found: Predicted) -> list[Row]:
    """Return the rows that a person is shown, each with what was measured.

    Where a part of the work has no cost, a pass takes longer than predicted: the throughput is at
    most what is predicted, and all else at least.
    """
    from opdb.predict.figures import Figures

    figures, measured_run = found.figures, found.answer.measured
    complete = found.prediction.complete
    predicted = lines(figures)
    measured = lines(Figures.measured(figures.workload, measured_run, figures.rates))
    return [
        (
            name,
            ("" if complete or amount is None else _bound(unit)) + _shown(amount, unit),
            _spread(amount, unit) if complete or amount is None else _no_spread(unit),
            _shown(truth, unit),
        )
        for (name, amount, unit), (_, truth, _) in zip(predicted, measured, strict=True)
    ]


def _bound(unit: str) -> str:
    return "at most " if unit.endswith("/s") else "at least "


def _no_spread(unit: str) -> str:
    return "none: an upper bound" if unit.endswith("/s") else "none: a lower bound"


def lines(figures: Figures) -> list[tuple[str, Amount | None, str]]:
    """Return each figure that is asked for with its unit, what is not known included."""
    sample, rates = figures.sample, figures.rates
    many = f"1M {sample}s"
    lines = [
        ("throughput", figures.samples_per_s, f"{sample}s/s"),
        (f"energy, 1 {sample}", figures.energy_per_sample_j, "J"),
        (f"energy, {many}", figures.energy_per_million_samples_kwh, "kWh"),
    ]
    if figures.tokens is not None:
        lines.insert(1, ("", figures.tokens_per_s, "tokens/s"))
    if rates.price_per_gpu_hour is not None:
        lines.append((f"rent, {many}", figures.rent_per_million_samples, ""))
    if rates.electricity_price_per_kwh is not None:
        lines.append((f"electricity, {many}", figures.electricity_per_million_samples, ""))
    if rates.carbon_g_per_kwh is not None:
        lines.append((f"CO2, {many}", figures.co2_per_million_samples_g, "g"))
    return lines


def _shown(amount: Amount | None, unit: str) -> str:
    return "" if amount is None else shown_value(amount.value, unit)


def _spread(amount: Amount | None, unit: str) -> str:
    if amount is None or amount.interval is None:
        return ""
    low, high = amount.interval
    if unit in _PREFIXED:
        return f"{show(low, unit)} to {show(high, unit)}"
    return f"{rounded(low, 4)} to {shown_value(high, unit)}"


def shown_value(value: float, unit: str) -> str:
    """Show a value, with a prefix to its unit where that is one of SI alone."""
    return show(value, unit) if unit in _PREFIXED else f"{rounded(value, 4)} {unit}".rstrip()
