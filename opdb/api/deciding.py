"""Throughput, energy and money by the sample, as data and as people read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opdb.tables import MISSING, Column, Row, Table
from opdb.units import rounded, show

if TYPE_CHECKING:
    from opdb.predict import Answer
    from opdb.predict.figures import Amount, Figures

_PREFIXED = ("s", "J", "W", "g")


def figure_columns(of: Callable[[Row], Figures]) -> tuple[Column[Row], ...]:
    """Return the columns of a pass's figures; a comparison shows those that decide."""

    def amount(
        name: str,
        unit: str,
        get: Callable[[Figures], Amount | None],
        title: str | None = None,
        shown_unit: Callable[[Figures], str] = lambda figures: "",
    ) -> tuple[Column[Row], Column[Row]]:
        ending = f"_{unit}" if unit else ""

        def text(row: Row) -> str:
            figures = of(row)
            return bounded(figures, get(figures), shown_unit(figures))

        return (
            Column(
                name + ending,
                lambda row: None if (found := get(of(row))) is None else found.value,
                title=title,
                text=text,
            ),
            Column(f"{name}_interval{ending}", lambda row: interval_document(get(of(row)))),
        )

    return (
        Column("samples", lambda row: of(row).samples),
        Column("tokens", lambda row: of(row).tokens),
        *amount(
            "throughput",
            "samples_per_s",
            lambda figures: figures.samples_per_s,
            "throughput",
            lambda figures: f"{figures.sample}s/s",
        ),
        *amount("throughput", "tokens_per_s", lambda figures: figures.tokens_per_s),
        *amount(
            "energy_per_sample",
            "j",
            lambda figures: figures.energy_per_sample_j,
            "energy a sample",
            lambda figures: "J",
        ),
        *amount(
            "energy_per_million_samples",
            "kwh",
            lambda figures: figures.energy_per_million_samples_kwh,
        ),
        Column("price_per_gpu_hour", lambda row: of(row).rates.price_per_gpu_hour),
        Column("electricity_price_per_kwh", lambda row: of(row).rates.electricity_price_per_kwh),
        Column("carbon_g_per_kwh", lambda row: of(row).rates.carbon_g_per_kwh),
        *amount(
            "rent_per_million_samples",
            "",
            lambda figures: figures.rent_per_million_samples,
            "rent, 1M samples",
        ),
        *amount(
            "electricity_per_million_samples",
            "",
            lambda figures: figures.electricity_per_million_samples,
            "electricity, 1M samples",
        ),
        *amount(
            "co2_per_million_samples",
            "g",
            lambda figures: figures.co2_per_million_samples_g,
            "g CO2, 1M samples",
        ),
    )


def interval_document(amount: Amount | None) -> list[float] | None:
    """Return an amount's interval as JSON: [low, high]; None where there is none."""
    return None if amount is None or amount.interval is None else list(amount.interval)


def shown_value(value: float, unit: str) -> str:
    """Show a value, with a prefix to its unit where that is one of SI alone."""
    return show(value, unit) if unit in _PREFIXED else f"{rounded(value, 4)} {unit}".rstrip()


def shown_amount(amount: Amount | None, unit: str) -> str:
    """Return an amount as people read it; a dash where it is not known."""
    return MISSING if amount is None else shown_value(amount.value, unit)


def bounded(figures: Figures, amount: Amount | None, unit: str) -> str:
    """Return an amount of a pass, as a bound where a part of the pass has no cost."""
    is_bound = amount is not None and not figures.complete
    return f"{_bound(unit) if is_bound else ''}{shown_amount(amount, unit)}"


def _bound(unit: str) -> str:
    return "at most " if unit.endswith("/s") else "at least "


@dataclass(frozen=True)
class Line:
    """A quantity of one prediction, what was measured of it, and predicted over measured.

    Where a part of the work has no cost, it is a bound: a pass takes longer than predicted, so the
    throughput is at most what is predicted, and all else at least. `missing` is shown in place of
    a value that is not known.
    """

    name: str
    unit: str
    predicted: Amount | None
    measured: float | None
    ratio: float | None = None
    is_bound: bool = False
    missing: str = MISSING

    @property
    def value(self) -> str:
        """The predicted value as people read it."""
        if self.predicted is None:
            return self.missing
        bound = _bound(self.unit) if self.is_bound else ""
        return bound + shown_value(self.predicted.value, self.unit)

    @property
    def spread(self) -> str:
        """The interval as people read it; of a bound, which one it is."""
        if self.is_bound:
            side = "an upper" if self.unit.endswith("/s") else "a lower"
            return f"none: {side} bound"
        if self.predicted is None or self.predicted.interval is None:
            return ""
        low, high = self.predicted.interval
        start = show(low, self.unit) if self.unit in _PREFIXED else rounded(low, 4)
        return f"{start} to {shown_value(high, self.unit)}"


LINES: Table[Line] = Table(
    Column(title="", get=lambda line: line.name),
    Column(title="predicted", get=lambda line: line.value),
    Column(title="95 % interval", get=lambda line: line.spread),
    Column(
        title="measured",
        text=lambda line: (
            line.missing if line.measured is None else shown_value(line.measured, line.unit)
        ),
    ),
    Column(
        title="predicted / measured",
        text=lambda line: "" if line.ratio is None else f"{line.ratio:.3f}",
    ),
)
"""A quantity of one prediction."""


def prediction_lines(answer: Answer, figures: Figures) -> list[Line]:
    """Return what people read of a prediction: time, energy, power, then what they come to."""
    from opdb.predict.figures import Amount, Figures

    run = answer.measured
    truth = Figures.measured(figures.workload, run, figures.rates)
    run_j = None if truth.energy_j is None else truth.energy_j.value
    time_s, energy_j = figures.time_s, figures.energy_j
    return [
        Line(
            "time",
            "s",
            time_s,
            None if run is None else run.time_s.mean,
            answer.attribution_time,
            is_bound=time_s is not None and time_s.interval is None,
        ),
        Line(
            "energy",
            "J",
            energy_j,
            run_j,
            answer.attribution_energy,
            is_bound=energy_j is not None and energy_j.interval is None,
        ),
        Line(
            "power",
            "W",
            Amount.of(answer.prediction.power_w, None),
            None if run is None else run.power_w,
        ),
        *(
            Line(
                name,
                unit,
                amount,
                None if was is None else was.value,
                is_bound=amount is not None and not figures.complete,
                missing="",
            )
            for (name, amount, unit), (_, was, _) in zip(lines(figures), lines(truth), strict=True)
        ),
    ]


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
