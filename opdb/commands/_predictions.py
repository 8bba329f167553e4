"""What several commands show of a prediction: figures, memory, shares of operators, charts."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Generic, TypeAlias

from opdb.commands import _lazy as lazy
from opdb.errors import InputError
from opdb.memory import Memory
from opdb.packaging import install
from opdb.predict.compose import Prediction, Share
from opdb.predict.figures import Amount, Figures, Layer, Layers
from opdb.records import Configuration, Cost, Json, Workload
from opdb.tables import (
    SHARE,
    Column,
    Row,
    Rows,
    Table,
    interval,
    quantity,
    quantity_document,
)
from opdb.units import plural, rounded, show, show_ratio


def memory_document(memory: Memory) -> Json:
    """Return a workload's memory as JSON."""
    if memory.reason is not None:
        return {"device_bytes": memory.device_bytes, "reason": memory.reason}
    seen = memory.seen
    return {
        "weight_bytes": memory.weight_bytes,
        "cache_bytes": memory.cache_bytes,
        "input_bytes": seen.input_bytes,
        "activation_bytes": seen.activation_bytes,
        "gradient_bytes": seen.gradient_bytes,
        "optimizer_bytes": memory.optimizer_bytes,
        "needed_bytes": memory.needed_bytes,
        "device_bytes": memory.device_bytes,
        "largest_batch": memory.largest_batch,
    }


def memory_line(memory: Memory) -> str:
    """Return in one line what a workload needs, what the device has, and what fits."""
    if memory.reason is not None:
        return f"memory: not known ({memory.reason})"
    has = f"the device has {_shown(memory.device_bytes)}"
    if memory.device_bytes is None:
        has = "of a device whose memory is not known"
    fits = "does not fit" if memory.fits is False else "memory"
    parts = {
        "weights": memory.weight_bytes,
        "cache": memory.cache_bytes,
        "activations": memory.seen.activation_bytes,
        "gradients": memory.seen.gradient_bytes,
        "optimizer": memory.optimizer_bytes,
    }
    of = ", ".join(f"{name} {_shown(size)}" for name, size in parts.items() if size)
    return (
        f"{fits}: needs about {_shown(memory.needed_bytes)}, {has} ({of})"
        f"{largest(memory.largest_batch)}"
    )


ENGINES = "these are transformers' kernels, serving engines have others"


def largest(batch: int | None) -> str:
    """Return what ends a sentence on memory: the largest batch that fits, if that is known."""
    if batch is None:
        return ""
    return f"; largest batch about {batch:,}" if batch else "; no batch fits"


def _shown(size: int | None) -> str:
    return show(size, "B", digits=3)


@dataclass(frozen=True)
class Figure(Generic[Row]):
    """A quantity of a pass or a generation: a line of text, and a column of JSON and CSV."""

    name: str
    title: str
    unit: str
    get: Callable[[Row], Amount | None]
    in_table: bool = True

    def column(self, of: Callable[[Any], Row]) -> Column[Any]:
        """Return its column, `of` what a row of the table holds."""
        return quantity(
            self.name,
            self.unit,
            lambda row: self.get(of(row)),
            title=self.title if self.in_table else None,
            text=lambda row: bounded(self.get(of(row)), self.unit),
        )


TOKENS = ("prompt", "new", "input")
"""What tokens of a pass are: a prompt's, those that a decoder generates, any other model's."""

FIGURES: tuple[Figure[Figures], ...] = (
    Figure("time_s", "time", "s", lambda of: of.time_s),
    Figure("energy_j", "energy", "J", lambda of: of.energy_j),
    Figure("throughput_samples_per_s", "throughput", "samples/s", lambda of: of.samples_per_s),
    *(
        Figure(
            f"throughput_{what}_tokens_per_s",
            "",
            f"{what} tokens/s",
            partial(Figures.tokens_per_s, what=what),
            in_table=False,
        )
        for what in TOKENS
    ),
    Figure("energy_per_sample_j", "energy, 1 sample", "J", lambda of: of.energy_per_sample_j),
    Figure(
        "energy_per_million_samples_kwh",
        "energy, 1M samples",
        "kWh",
        lambda of: of.energy_per_million_samples_kwh,
        in_table=False,
    ),
    Figure(
        "rent_per_million_samples",
        "rent, 1M samples",
        "",
        lambda of: of.rent_per_million_samples,
    ),
    Figure(
        "electricity_per_million_samples",
        "electricity, 1M samples",
        "",
        lambda of: of.electricity_per_million_samples,
    ),
    Figure(
        "co2_per_million_samples_g",
        "CO2, 1M samples",
        "g",
        lambda of: of.co2_per_million_samples_g,
    ),
)
"""What is shown of a pass. A sample is what the model takes."""


def shown_amount(amount: Amount | float | None, unit: str) -> str:
    """Show a value, with a prefix to its unit where that is one of SI alone."""
    value = amount.value if isinstance(amount, Amount) else amount
    if value is None or unit in ("s", "J", "W", "g"):
        return show(value, unit)
    return f"{rounded(value, 4)} {unit}".rstrip()


def bounded(amount: Amount | None, unit: str) -> str:
    """Show an amount; without an interval a part of it has no cost, and it is a bound."""
    if amount is None or amount.interval:
        return shown_amount(amount, unit)
    return f"at {'most' if unit.endswith('/s') else 'least'} {shown_amount(amount, unit)}"


Line: TypeAlias = tuple[str, str, str, str, str]
"""A figure as people read it: its name, predicted, the interval, measured, and their ratio."""

LINES: Table[Line] = Table(
    Column(title="", text=itemgetter(0)),
    Column(title="predicted", text=itemgetter(1)),
    Column(title="95 % interval", text=itemgetter(2)),
    Column(title="measured", text=itemgetter(3)),
    Column(title="predicted / measured", text=itemgetter(4)),
)
ALONE = LINES.without("measured", "predicted / measured")


def line(
    name: str,
    unit: str,
    predicted: Amount | None,
    measured: Amount | None = None,
    ratio: str = "",
) -> Line:
    within = () if predicted is None else predicted.interval or ()
    spread = " to ".join(shown_amount(end, unit) for end in within)
    seen = "" if measured is None else shown_amount(measured, unit)
    return name, bounded(predicted, unit), spread, seen, ratio


def prediction_lines(answer: lazy.predictor.Answer, figures: Figures) -> list[Line]:
    """Return what people read of a prediction: time, energy, power, then what they come to."""
    run = answer.measured
    truth = figures.measured(run)
    ratios = {
        "time_s": show_ratio(answer.attribution_time, answer.inside_time),
        "energy_j": show_ratio(answer.attribution_energy, answer.inside_energy),
    }
    lines = []
    for each in FIGURES:
        predicted, measured = each.get(figures), each.get(truth)
        if predicted is not None or measured is not None:
            ratio = ratios.get(each.name, "")
            lines.append(line(each.title, each.unit, predicted, measured, ratio))
    power_w = show(answer.prediction.power_w, "W")
    lines.insert(2, ("power", power_w, "", "" if run is None else show(run.power_w, "W"), ""))
    return lines


SHOWN = 12
"""Rows of a list that a person is shown; --json has all."""


_CALLED: tuple[Column[Any], ...] = (
    Column(
        "kind",
        lambda row: row.configuration.kind,
        title="kind",
        text=lambda row: row.configuration.title,
    ),
    Column("pass", lambda row: row.configuration.pass_name),
    Column("configuration", lambda row: row.configuration.key),
)

SHARES: Table[Share] = Table(
    *_CALLED,
    Column("count", lambda share: share.count, title="calls"),
    Column("share_time", lambda share: share.share_time, title="share of time", unit=SHARE),
    Column("share_energy", lambda share: share.share_energy, title="share of energy", unit=SHARE),
)


def _cost(share: Share) -> Cost:
    assert share.cost is not None
    return share.cost


def _rests_on(share: Share) -> str:
    return next((flag for flag in _cost(share).flags if flag != "estimated"), "alike")


ESTIMATED: Table[Share] = Table(
    *SHARES.columns,
    Column("rests_on", _rests_on),
    quantity("time_s", "s", lambda share: _cost(share).time_s),
    replace(interval("s", lambda share: _cost(share).time_s), title="time of a call"),
    quantity("dynamic_energy_j", "J", lambda share: _cost(share).dynamic_energy_j),
    Column(
        "host_time_s",
        lambda share: {
            form: quantity_document(time_s, "s")
            for form, time_s in _cost(share).host_time_s.items()
        },
    ),
)


def in_words(configuration: Configuration) -> str:
    """Return a configuration in a few words: shapes, dtypes, parameters."""
    said = [
        f"{name} {'x'.join(map(str, spec['shape']))} {spec['dtype']} {spec.get('layout', '')}"
        for name, spec in configuration.inputs.items()
        if isinstance(spec, dict) and "shape" in spec and name != "bias"
    ]
    said += [f"{name} {value}" for name, value in configuration.parameters.items()]
    return ", ".join(each.strip() for each in said[:5])[:90]


def coverage(found: Prediction) -> dict[str, float | None]:
    return {
        "calls": found.coverage_calls,
        "time": found.coverage_time,
        "energy": found.coverage_energy,
    }


def misses(
    workload: Workload,
    coverages: Mapping[str, float | None],
    ratios: Mapping[str, float | None],
    target: float,
) -> list[str]:
    """Say what keeps a workload from a target: coverage, or predicted / measured, by quantity."""
    undescribed = ["the model makes calls that no operator describes"]
    return [
        *(undescribed if workload.unsupported else []),
        *(
            f"coverage of {name} is {share:.3f}"
            for name, share in coverages.items()
            if share is not None and share < target
        ),
        *(
            f"attribution of {name} is {ratio:.3f}"
            for name, ratio in ratios.items()
            if ratio is not None and abs(ratio - 1) > 1 - target
        ),
    ]


def first_rows(
    table: Table[Row], rows: Sequence[Row], what: str = "configuration"
) -> Iterator[str | Rows[Any]]:
    """Yield the first rows of a list of configurations, and how many more there are."""
    yield Rows(table, rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"… and {plural(len(rows) - SHOWN, f'more {what}')} (all with --json)"


_COSTS: tuple[Column[Any], ...] = (
    Column("time_s", lambda row: row.time_s, title="time", unit="s"),
    Column("share_time", lambda row: row.share_time, title="share of time", unit=SHARE),
    Column("energy_j", lambda row: row.energy_j, title="energy", unit="J"),
)

LAYERS: Table[Any] = Table(
    Column("path", lambda row: row.path, title="module", text=lambda row: row.path or "(model)"),
    *_CALLED,
    Column(
        "shape",
        lambda row: row.shape,
        title="shape",
        text=lambda row: "x".join(map(str, row.shape or ())),
    ),
    Column("status", lambda row: row.status, title="cost"),
    Column("count", lambda row: row.count, title="calls"),
    *_COSTS,
    Column("dynamic_energy_j", lambda row: row.dynamic_energy_j),
)

REST: Table[Layer] = Table(Column("what", lambda part: part.path, title="all else"), *_COSTS)
"""What a pass takes beside its layers."""


def layers_blocks(found: Layers, top: int | None) -> Iterator[str | Rows[Any]]:
    """Yield the layers in their order, what a pass takes beside them, and the sum."""
    shown = found.longest(top)
    hidden = [each for each in found.layers if all(each is not other for other in shown)]
    others = [found.together(f"{len(hidden)} other layers", hidden)] if hidden else []
    yield f"the {len(shown)} layers that take longest:" if others else "layer by layer:"
    yield Rows(LAYERS, shown)
    yield Rows(REST, [*others, *found.rest, found.together("sum", [*found.layers, *found.rest])])


# Figures of matplotlib, which is imported when one is drawn; it is saved the same every time.

DPI = 120


def png_of(figure: Any) -> bytes:
    """Return a figure of matplotlib as PNG: the same bytes every time."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    return png.getvalue()


def blank_figure(width_in: float, height_in: float) -> Any:
    """Return an empty figure of matplotlib; where that is not installed, say how to install it."""
    try:
        from matplotlib import figure
    except ImportError as error:
        raise InputError(
            f"a figure needs matplotlib, which is not installed; {install('plots')}"
        ) from error
    return figure.Figure(figsize=(width_in, height_in), layout="constrained")
