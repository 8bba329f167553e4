"""`opdb compare`: what moved between models, modes, dtypes, batch sizes, boards or devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from operator import itemgetter
from typing import Annotated, Any, TypeAlias

import typer

from opdb.algorithms.names import algorithms_named
from opdb.cli import options
from opdb.cli.options import split, words_among
from opdb.commands._predictions import FIGURES, first_rows, shown_amount
from opdb.commands.predict import (
    OF_PREDICT,
    Compared,
    Conditions,
    Predicted,
    Question,
    Tell,
    ask_all,
    mode_for,
    predicting,
)
from opdb.errors import CheckError, InputError, OpdbError
from opdb.predict.figures import (
    Change,
    OperatorChange,
    first_shape,
    operator_changes,
)
from opdb.records import CAPTURED_MODE, Configuration, Json
from opdb.spec import ModelSpec, title
from opdb.tables import MISSING, Column, Rows, Table, quantity_document
from opdb.units import plural, short_board, show

PANEL = "predict"


_MOVED = {True: "yes", False: "no", None: MISSING}


@dataclass(frozen=True)
class QuantityChange:
    """A quantity of a pass before and after, as `opdb predict` names it; `unit` may be empty."""

    name: str
    unit: str
    change: Change


@dataclass(frozen=True)
class PassDifference:
    """What moved between two sides, each told in words, and the operators that carry it.

    `judged` are the time and the energy of a sample, by which a regression is told. Operators of
    passes of unequal size are those of a sample (`by_sample`).
    """

    before: str
    after: str
    quantities: Sequence[QuantityChange]
    operators: Sequence[OperatorChange]
    judged: Sequence[QuantityChange]
    by_sample: bool = False

    def regressions(self, within: float) -> list[str]:
        """Return in words what takes more than a share more, beyond the joint interval."""
        found = []
        for each in self.judged:
            ratio, change = each.change.ratio, each.change
            if ratio is not None and ratio > 1 + within and change.moved is not False:
                unsure = "" if change.moved else " (no interval)"
                found.append(f"{each.name} is {ratio:.3f} times as large{unsure}")
        return found


def _percent(change: Change) -> str:
    return MISSING if change.ratio is None else f"{100 * (change.ratio - 1):+.1f} %"


def _intervals(change: Change) -> str:
    return MISSING if change.intervals is None else f"{change.intervals:.2f}"


CHANGE: Table[QuantityChange] = Table(
    Column(
        "before",
        lambda row: quantity_document(row.change.before, row.unit),
        title="before",
        text=lambda row: shown_amount(row.change.before, row.unit),
    ),
    Column(
        "after",
        lambda row: quantity_document(row.change.after, row.unit),
        title="after",
        text=lambda row: shown_amount(row.change.after, row.unit),
    ),
    Column("difference", lambda row: row.change.difference),
    Column(
        "ratio", lambda row: row.change.ratio, title="change", text=lambda row: _percent(row.change)
    ),
    Column(
        "intervals",
        lambda row: row.change.intervals,
        title="intervals",
        text=lambda row: _intervals(row.change),
    ),
    Column(
        "moved",
        lambda row: row.change.moved,
        title="moved",
        text=lambda row: _MOVED[row.change.moved],
    ),
)
"""A quantity before and after, without its name."""

QUANTITIES: Table[QuantityChange] = Table(
    Column("quantity", lambda row: row.name, title=""),
    Column("unit", lambda row: row.unit),
    *CHANGE.columns,
)

OPERATORS: Table[OperatorChange] = Table(
    Column("operator", lambda row: row.operator, title="operator"),
    Column(
        "configuration",
        lambda row: row.configuration and row.configuration.key,
        title="input",
        text=lambda row: _shape(row.configuration),
    ),
    Column("calls", lambda row: list(row.calls), title="calls", text=lambda row: _calls(row.calls)),
    Column("time_s", lambda row: CHANGE.document(QuantityChange("time", "s", row.time_s))),
    Column(title="time before", text=lambda row: shown_amount(row.time_s.before, "s")),
    Column(title="after", text=lambda row: shown_amount(row.time_s.after, "s")),
    Column(title="difference", text=lambda row: show(row.time_s.difference, "s")),
    Column(title="change", text=lambda row: _percent(row.time_s)),
    Column(title="intervals", text=lambda row: _intervals(row.time_s)),
    Column(title="moved", text=lambda row: _MOVED[row.time_s.moved]),
    Column(
        "energy_j",
        lambda row: CHANGE.document(QuantityChange("energy", "J", row.energy_j)),
        title="energy",
        text=lambda row: show(row.energy_j.difference, "J"),
    ),
)


def _blocks(found: PassDifference) -> Iterator[str | Rows[Any]]:
    yield f"{found.before} → {found.after}:"
    yield Rows(QUANTITIES, list(found.quantities))
    if not any(row.time_s.difference or row.energy_j.difference for row in found.operators):
        yield f"nothing moved: {plural(len(found.operators), 'operator')} compared"
    else:
        of = "a sample" if found.by_sample else "a pass"
        yield f"operators that carry the difference, of {of}:"
        yield from first_rows(OPERATORS, found.operators, "row")


def _shape(configuration: Configuration | None) -> str:
    shape = None if configuration is None else first_shape(configuration)
    return "x".join(map(str, shape or ()))


def _calls(calls: tuple[int, int]) -> str:
    before, after = calls
    return str(before or "") if before == after else f"{before} → {after}"


def _document(found: PassDifference) -> dict[str, Json]:
    return {
        "before": found.before,
        "after": found.after,
        "quantities": QUANTITIES.documents((*found.quantities, *found.judged)),
        "operators": OPERATORS.documents(found.operators),
        "operators_of": "sample" if found.by_sample else "pass",
    }


ONE_SIDE = (
    "both sides are the same: name a second model, mode, dtype, batch size, algorithm, board or "
    "device"
)


@dataclass(frozen=True, repr=False)
class Comparison(Compared):
    """Predictions beside each other, and the differences between them."""

    differences: Sequence[PassDifference] = ()

    def check_within(self, within: float) -> None:
        found = [
            f"{each.before} → {each.after}: {', '.join(worse)}"
            for each in self.differences
            if (worse := each.regressions(within))
        ]
        if found:
            raise CheckError(f"more than --within {within:g} worse: " + "; ".join(found))

    def to_dict(self) -> dict[str, Json]:
        changes = [_document(each) for each in self.differences]
        return {**super().to_dict(), "differences": changes}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield from super().blocks()
        for each in self.differences:
            yield from _blocks(each)


Axes: TypeAlias = dict[str, list[Any]]
"""The values of each choice by its name, each value once; the first one's are compared."""


def compare(
    *models: str,
    modes: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    batch_sizes: Sequence[int] = (),
    algorithms: Sequence[str] = (),
    boards: Sequence[str] = (),
    devices: Sequence[str] = (),
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Any,
) -> Comparison:
    """Predict models beside each other and say what moved, as `opdb compare` does.

    The first of models, modes and so on that has several values is what is compared, its first
    value with each other one, at each combination of the rest. A side that cannot be predicted does
    not stop the others: `failures` says why.
    """
    spec, conditions = ModelSpec.parse(**said), conditions or Conditions()
    by: list[Any] = [*algorithms_named(algorithms)] or [conditions.algorithm]
    forced = any(each is not None and each.is_forced for each in by)
    every: Axes = {
        "model": list(models),
        "mode": [mode_for(mode, conditions) for mode in modes or [CAPTURED_MODE if forced else ""]],
        "dtype": [ModelSpec.parse(dtype=each).dtype for each in dtypes] or [spec.dtype],
        "batch_size": list(batch_sizes) or [spec.batch_size],
        "algorithm": by,
        "board": list(boards) or [conditions.board],
        "device": list(devices) or [conditions.device],
    }
    axes = {name: list(dict.fromkeys(values)) for name, values in every.items()}
    if not models:
        raise InputError("give a model to compare, as in: opdb compare resnet50 --mode eager graph")
    if all(len(values) < 2 for values in axes.values()):
        raise InputError(ONE_SIDE)
    return _compared(axes, spec, conditions, db, tell)


def _compared(
    axes: Axes, said: ModelSpec, conditions: Conditions, db: str | None, tell: Tell | None
) -> Comparison:
    along = next(name for name, values in axes.items() if len(values) > 1)
    sides = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    asked = [
        Question(
            side["model"],
            replace(said, dtype=side["dtype"], batch_size=side["batch_size"]),
            side["mode"],
        )
        for side in sides
    ]
    of_side = ("algorithm", "board", "device")
    under = [replace(conditions, **{name: side[name] for name in of_side}) for side in sides]
    answers: list[Predicted | OpdbError] = []
    for alike, some in groupby(zip(under, asked, strict=True), key=itemgetter(0)):
        answers += ask_all([question for _, question in some], alike, db=db, tell=tell)
    if axes["board"] == axes["algorithm"] == [None] and len(axes["device"]) == 1:
        found = [each for each in answers if isinstance(each, Predicted)]
        if board := _common_board(found, db):
            return _compared({**axes, "board": [board]}, said, conditions, db, tell)
    differences = []
    for new, after in enumerate(sides):
        old = sides.index({**after, along: axes[along][0]})
        before, now = answers[old], answers[new]
        if new != old and isinstance(before, Predicted) and isinstance(now, Predicted):
            differences.append(_difference(before, now))
    return Comparison(asked, answers, differences)


def _common_board(found: Sequence[Predicted], db: str | None) -> str | None:
    """Return the board that measured as much of every pass as its own; None: they are of one."""
    own = [each.prediction.board for each in found]
    if len(set(own)) < 2:
        return None
    with predicting(db, found[0].prediction.device, estimates=False) as (_, predictor):
        measured = [predictor.measuring(each.prediction.workload.occurrences()) for each in found]
        of_both = (
            board
            for board in (*own, *predictor.boards)
            if all(
                of.get(board, set()) >= of.get(b, set())
                for b, of in zip(own, measured, strict=True)
            )
        )
        return next(of_both, None)


def _difference(before: Predicted, after: Predicted) -> PassDifference:
    figures = before.figures, after.figures
    rows = [
        QuantityChange(each.title or each.unit, each.unit, Change(*map(each.get, figures)))
        for each in FIGURES
        if any(each.get(of) is not None for of in figures)
    ]
    times = [f.time_s and f.time_s.times(1 / f.samples) for f in figures]
    judged = [
        QuantityChange("time of a sample", "s", Change(*times)),
        QuantityChange(
            "energy of a sample", "J", Change(*(f.energy_per_sample_j for f in figures))
        ),
    ]
    samples = figures[0].samples, figures[1].samples
    by_sample = samples[0] != samples[1]
    operators = operator_changes(before.schedule, after.schedule, samples if by_sample else (1, 1))
    old, new = map(_words, (before, after))
    return PassDifference(old, new, rows, operators, judged, by_sample=by_sample)


def _words(found: Predicted) -> str:
    prediction, algorithm = found.prediction, found.conditions.algorithm
    by = "" if algorithm is None else f", by {algorithm.name}"
    where = short_board(prediction.board)
    return f"{title(prediction.workload)}, {prediction.mode}{by}, on {where}"


def _several(option: str, metavar: str, text: str) -> Any:
    text = f"{text}; several with commas between them."
    return typer.Option(option, metavar=metavar, help=text)


Dtypes: TypeAlias = Annotated[
    list[str] | None,
    _several("--dtype", "DTYPE…", "Dtypes, as in float32,bfloat16"),
]


def run(
    models: Annotated[
        list[str], options.models("Models to compare, or one of which a choice moves.")
    ],
    mode: Annotated[
        list[str] | None,
        _several("--mode", "MODE…", "How work is issued, as in eager graph"),
    ] = None,
    batch_sizes: options.BatchSizes = None,
    dtype: Dtypes = None,
    algorithm: Annotated[
        list[str] | None, _several("--algorithm", "NAME…", "Algorithms of convolutions")
    ] = None,
    board: Annotated[
        list[str] | None, _several("--board", "UUID…", "Boards, by the beginning of their UUID")
    ] = None,
    device: Annotated[
        list[str] | None, _several("--device", "DEVICE…", "Devices, such as h200")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            metavar="SHARE",
            help="Exit 1 if time or energy of a sample grow by more, beyond the joint interval.",
        ),
    ] = None,
    said: Annotated[ModelSpec, options.OfModel("dtype", "batch_size")] = ModelSpec(),
    conditions: Annotated[
        Conditions, options.Without("device", "board", *OF_PREDICT)
    ] = Conditions(),
    out: options.Output = options.Output(),
) -> None:
    """Say what moved between two sides, by how many intervals, and which operators carry it.

    The first of models, modes, dtypes, batch sizes, algorithms, boards and devices that has several
    values is compared: its first value with each other one.

    A quantity moved where it changed by more than both 95 % intervals together.
    """
    if within is not None and not within >= 0:
        raise InputError(f"--within {within:g}: give a share of 0 or more, such as 0.05")
    named, modes, sizes = words_among(models, mode, batch_sizes)
    found = compare(
        *named,
        modes=modes,
        dtypes=split(dtype),
        batch_sizes=sizes,
        algorithms=split(algorithm),
        boards=split(board),
        devices=split(device),
        conditions=conditions,
        db=out.db,
        tell=out.note,
        **said.keywords(),
    )
    out.answer(found)
    if within is not None:
        found.check_within(within)
