"""What several commands show of a prediction: figures, memory, shares of operators, charts."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeAlias

from opdb.commands import _lazy as lazy
from opdb.distribution import install
from opdb.errors import InputError
from opdb.kinds import View, get_kind
from opdb.memory import Memory
from opdb.predict.compose import Prediction, Share
from opdb.predict.figures import Amount, Figures, Layer, Layers
from opdb.records import Configuration, Cost, Json, Workload
from opdb.tables import (
    MISSING,
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
        "optimizer_bytes": memory.optimizer.state_bytes,
        "needed_bytes": memory.needed_bytes,
        "device_bytes": memory.device_bytes,
        "largest_batch": memory.largest_batch,
    }


def memory_line(memory: Memory) -> str:
    """Return in one line what a workload needs, what the device has, and what fits."""
    if memory.reason is not None:
        return f"memory: not known ({memory.reason})"
    has = f"the device has {show(memory.device_bytes, 'B', digits=3)}"
    if memory.device_bytes is None:
        has = "of a device whose memory is not known"
    fits = "does not fit" if memory.fits is False else "memory"
    needs = f"about {_shown(memory.needed_bytes)}"
    return f"{fits}: needs {needs}, {has} ({_parts(memory)}){largest(memory.largest_batch)}"


def _parts(memory: Memory) -> str:
    parts = {
        "weights": memory.weight_bytes,
        "cache": memory.cache_bytes,
        "activations": memory.seen.activation_bytes,
        "gradients": memory.seen.gradient_bytes,
        "optimizer": memory.optimizer.state_bytes,
    }
    return ", ".join(f"{name} {_shown(size)}" for name, size in parts.items() if size)


ENGINES = (
    "these are transformers' kernels, serving engines have others; bandwidth bound (each step "
    "reads weights and cache once, at the measured copy rate)"
)


def engines_line(rate: float | None, bound_s: float | None) -> str:
    """Return in one line that serving engines differ, and how soon memory could be read.

    `rate` (bytes/s) is that of a copy, `bound_s` the time of a pass or a token at that rate.
    """
    if rate is None or bound_s is None:
        return f"{ENGINES}: not known, for no copy rate was measured"
    return f"{ENGINES}: {show(bound_s, 's')} at {show(rate, 'B/s', digits=3)}"


def largest(batch: int | None) -> str:
    """Return what ends a sentence on memory: the largest batch that fits, if that is known."""
    if batch is None:
        return ""
    return f"; largest batch about {batch:,}" if batch else "; no batch fits"


def _shown(size: int) -> str:
    return show(size, "B", digits=3)


_PREFIXED = ("s", "J", "W", "g")

TOKENS = ("prompt", "new", "input")
"""What tokens of a pass are: a prompt's, those that a decoder generates, any other model's."""


def figure_columns(of: Callable[[Row], Figures]) -> tuple[Column[Row], ...]:
    """Return the columns of a pass's figures; a comparison shows those that decide."""

    def amount(
        name: str,
        unit: str,
        get: Callable[[Figures], Amount | None],
        title: str | None = None,
        shown_unit: Callable[[Figures], str] = lambda figures: "",
    ) -> Column[Row]:
        def text(row: Row) -> str:
            return bounded(of(row), get(of(row)), shown_unit(of(row)))

        return quantity(name, unit, lambda row: get(of(row)), title=title, text=text)

    def tokens(what: str) -> tuple[Column[Row], Column[Row]]:
        per_s = f"throughput_{what}_tokens_per_s"
        return (
            Column(f"{what}_tokens", lambda row: of(row).tokens.get(what)),
            amount(per_s, f"{what} tokens/s", lambda figures: figures.tokens_per_s(what)),
        )

    return (
        Column("samples", lambda row: of(row).samples),
        amount(
            "throughput_samples_per_s",
            "samples/s",
            lambda figures: figures.samples_per_s,
            "throughput",
            lambda figures: f"{figures.sample}s/s",
        ),
        *(column for what in TOKENS for column in tokens(what)),
        amount(
            "energy_per_sample_j",
            "J",
            lambda figures: figures.energy_per_sample_j,
            "energy a sample",
            lambda figures: "J",
        ),
        amount(
            "energy_per_million_samples_kwh",
            "kWh",
            lambda figures: figures.energy_per_million_samples_kwh,
        ),
        Column("price_per_gpu_hour", lambda row: of(row).rates.price_per_gpu_hour),
        Column("electricity_price_per_kwh", lambda row: of(row).rates.electricity_price_per_kwh),
        Column("carbon_g_per_kwh", lambda row: of(row).rates.carbon_g_per_kwh),
        amount(
            "rent_per_million_samples",
            "",
            lambda figures: figures.rent_per_million_samples,
            "rent, 1M samples",
        ),
        amount(
            "electricity_per_million_samples",
            "",
            lambda figures: figures.electricity_per_million_samples,
            "electricity, 1M samples",
        ),
        amount(
            "co2_per_million_samples_g",
            "g",
            lambda figures: figures.co2_per_million_samples_g,
            "g CO2, 1M samples",
        ),
    )


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

    `inside` says whether the interval holds it (None: not known).
    Where a part of the work has no cost, it is a bound: a pass takes longer than predicted, so the
    throughput is at most what is predicted, and all else at least. `missing` is shown in place of
    a value that is not known.
    """

    name: str
    unit: str
    predicted: Amount | None
    measured: float | None
    ratio: float | None = None
    inside: bool | None = None
    is_bound: bool = False
    missing: str = MISSING

    @property
    def value(self) -> str:
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
        text=lambda line: "" if line.ratio is None else show_ratio(line.ratio, line.inside),
    ),
)


def prediction_lines(answer: lazy.predictor.Answer, figures: Figures) -> list[Line]:
    """Return what people read of a prediction: time, energy, power, then what they come to."""
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
            answer.inside_time,
            is_bound=time_s is not None and time_s.interval is None,
        ),
        Line(
            "energy",
            "J",
            energy_j,
            run_j,
            answer.attribution_energy,
            answer.inside_energy,
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
    lines[1:1] = [("", figures.tokens_per_s(what), f"{what} tokens/s") for what in figures.tokens]
    if rates.price_per_gpu_hour is not None:
        lines.append((f"rent, {many}", figures.rent_per_million_samples, ""))
    if rates.electricity_price_per_kwh is not None:
        lines.append((f"electricity, {many}", figures.electricity_per_million_samples, ""))
    if rates.carbon_g_per_kwh is not None:
        lines.append((f"CO2, {many}", figures.co2_per_million_samples_g, "g"))
    return lines


SHOWN = 12
"""Rows of a list that a person is shown; --json has all."""


def share_columns(of: Callable[[Row], Share]) -> tuple[Column[Row], ...]:
    """Return the columns of a configuration's share of a prediction, its kind first."""

    def configuration(row: Row) -> Configuration:
        return of(row).configuration

    return (
        Column(
            "kind",
            lambda row: configuration(row).kind,
            title="kind",
            text=lambda row: configuration(row).title,
        ),
        Column("pass", lambda row: configuration(row).pass_name),
        Column("configuration", lambda row: configuration(row).key),
        Column("count", lambda row: of(row).count, title="calls"),
        Column("share_time", lambda row: of(row).share_time, title="share of time", unit=SHARE),
        Column(
            "share_energy", lambda row: of(row).share_energy, title="share of energy", unit=SHARE
        ),
    )


def _share_of(row: tuple[Share, str | None]) -> Share:
    return row[0]


SHARES: Table[Share] = Table(*share_columns(lambda share: share))

REFUSED: Table[tuple[Share, str | None]] = Table(
    *share_columns(_share_of), Column("reason", itemgetter(1))
)
"""A share without a cost, and why a forced algorithm cannot run it."""

OPERATORS: Table[tuple[Share, str | None]] = Table(
    *share_columns(_share_of),
    Column("what", lambda row: row[0].configuration.title),
    Column("status", itemgetter(1)),
)
"""A share, and whether its cost is measured, estimated or missing."""


def _cost(share: Share) -> Cost:
    assert share.cost is not None
    return share.cost


def _rests_on(share: Share) -> str:
    return next((flag for flag in _cost(share).flags if flag != "estimated"), "alike")


ESTIMATED: Table[Share] = Table(
    *share_columns(lambda share: share),
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


def with_status(found: Prediction) -> list[tuple[Share, str | None]]:
    """Return each share of a prediction with the status of its cost, the longest first."""
    status = dict.fromkeys((s.configuration.key for s in found.estimated), "estimated")
    status |= dict.fromkeys((s.configuration.key for s in found.missing), "missing")
    every = {s.configuration.key: s for s in (*found.parts, *found.estimated, *found.missing)}
    ranked = sorted(every.values(), key=lambda share: share.share_time, reverse=True)
    return [(share, status.get(share.configuration.key, "measured")) for share in ranked]


def with_reasons(
    missing: Sequence[Share], refused: Mapping[str, str]
) -> list[tuple[Share, str | None]]:
    """Return each share without a cost with why an algorithm refuses it; None where it does not."""
    return [(share, refused.get(share.configuration.key)) for share in missing]


def estimated_blocks(estimated: Sequence[Share]) -> Iterator[str | Rows[Any]]:
    """Yield what rests on estimates, the largest shares first; nothing where nothing does."""
    if estimated:
        yield "estimated from operators that were measured:"
        yield from first_rows(ESTIMATED, estimated)


def missing_blocks(missing: Sequence[Share]) -> Iterator[str | Rows[Any]]:
    """Yield what has no cost, the largest shares first; nothing where all has one."""
    if missing:
        yield "not measured and not estimated (shares from FLOPs and bytes):"
        yield from first_rows(SHARES, missing)


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
    Column(
        "kind",
        lambda row: row.configuration.kind,
        title="kind",
        text=lambda row: row.configuration.title if row.configuration else "",
    ),
    Column("pass", lambda row: row.configuration.pass_name),
    Column("configuration", lambda row: row.configuration.key),
    Column(
        "shape",
        lambda row: row.shape,
        title="shape",
        text=lambda row: "x".join(map(str, row.shape or ())),
    ),
    Column(
        "status",
        lambda row: row.status,
        title="cost",
        text=lambda row: row.status or "",
    ),
    Column(
        "count",
        lambda row: row.count,
        title="calls",
        text=lambda row: "" if row.count is None else row.count,
    ),
    *_COSTS,
    Column("dynamic_energy_j", lambda row: row.dynamic_energy_j),
)
"""A layer; people read other parts of the pass below the layers, and their sum."""

REST: Table[Layer] = Table(Column("what", lambda part: part.path), *_COSTS)


def layers_document(found: Layers) -> dict[str, Json]:
    return {"layers": LAYERS.documents(found.layers), "rest": REST.documents(found.rest)}


def layers_blocks(found: Layers, top: int | None) -> Iterator[str | Rows[Any]]:
    """Yield the layers in their order, what a pass takes beside them, and the sum."""
    shown = found.longest(top)
    rows = [*shown]
    kept = {id(each) for each in shown}
    if hidden := [each for each in found.layers if id(each) not in kept]:
        rows.append(found.together(f"{len(hidden)} other layers", hidden))
    rows += [each for each in found.rest if each.time_s]
    rows.append(found.together("sum", [*found.layers, *found.rest]))
    yield "layer by layer:"
    yield Rows(LAYERS, rows)


Convolution: TypeAlias = tuple[Share, Cost]
"""The share of a convolution, and the cost of a call on the board, measured or brought there."""


def _sizes(sizes: int | Collection[int]) -> str:
    return str(sizes) if isinstance(sizes, int) else "x".join(map(str, sizes))


def _view(convolution: Convolution) -> View:
    configuration = convolution[0].configuration
    return get_kind(configuration.kind).view(configuration)


def _convolution_columns() -> Table[Convolution]:
    of: Callable[[Convolution], Share] = itemgetter(0)
    kind, *share = share_columns(of)
    return Table(
        kind,
        Column(title="input", text=lambda row: _sizes(_view(row).shape())),
        Column(title="weight", text=lambda row: _sizes(_view(row).shape("weight"))),
        Column(title="stride", text=lambda row: _sizes(_view(row)["stride"])),
        *share,
        Column("parameters", lambda row: dict(row[0].configuration.parameters)),
        Column("inputs", lambda row: dict(row[0].configuration.inputs)),
        quantity("time_s", "s", lambda row: row[1].time_s, title="time of a call"),
        quantity("energy_j", "J", lambda row: row[1].energy_j, title="energy of a call"),
    )


CONVOLUTIONS = _convolution_columns()

# Figures of matplotlib, which is imported when one is drawn; it is saved the same every time.

DPI = 120


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: SVG text, PNG bytes, and what each mark shows, by its id in the SVG."""

    svg: str
    png: bytes
    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def _repr_svg_(self) -> str:
        return self.svg

    @classmethod
    def of(cls, figure: Any, marks: Mapping[str, Mapping[str, str]] | None = None) -> Drawing:
        """Return a figure of matplotlib as it is saved: the same bytes every time."""
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        return cls(svg.getvalue(), png_of(figure), marks or {})


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


@contextmanager
def new_figure(width_in: float, height_in: float, *, font_size: float) -> Iterator[Any]:
    """Yield an empty figure of matplotlib, to be drawn and saved inside the block."""
    blank_figure(width_in, height_in)
    import matplotlib

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "opdb", "font.size": font_size}
    with matplotlib.rc_context(settings):
        yield blank_figure(width_in, height_in)
