"""`opdb compare`: what moved between models, modes, dtypes, batch sizes, boards or databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, TypeAlias

import typer

from opdb.algorithms.names import algorithms_named
from opdb.cli import options
from opdb.cli.options import split, words_among
from opdb.commands import _lazy as lazy
from opdb.commands._figures import FIGURES, first_rows, shown_amount
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
    cost_changes,
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

    `judged` are the time and the energy of a sample, by which a regression is told. Of two
    databases without models there are operators alone, and `only` counts the configurations that
    just one of them has. Operators of passes of unequal size are those of a sample (`by_sample`).
    """

    before: str
    after: str
    quantities: Sequence[QuantityChange]
    operators: Sequence[OperatorChange]
    judged: Sequence[QuantityChange] = ()
    only: tuple[int, int] = (0, 0)
    by_sample: bool = False

    def regressions(self, within: float) -> list[str]:
        """Return in words what takes more than a share more, beyond the joint interval."""
        operators = [
            QuantityChange(f"{name} of {each.operator}", "", change)
            for each in (() if self.judged else self.operators)
            for name, change in (("time", each.time_s), ("energy", each.energy_j))
        ]
        found = []
        for each in (*self.judged, *operators):
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
    if found.quantities:
        yield Rows(QUANTITIES, list(found.quantities))
    moved = [row for row in found.operators if row.time_s.moved or row.energy_j.moved]
    if not any(row.time_s.difference or row.energy_j.difference for row in found.operators):
        yield f"nothing moved: {plural(len(found.operators), 'operator')} compared"
    elif found.quantities:
        of = "a sample" if found.by_sample else "a pass"
        yield f"operators that carry the difference, of {of}:"
        yield from first_rows(OPERATORS, found.operators, "row")
    else:
        yield f"{len(moved)} of {plural(len(found.operators), 'operator')} moved:"
        yield from first_rows(OPERATORS, moved, "row")
    for count, where in zip(found.only, (found.before, found.after), strict=True):
        if count:
            yield f"only in {where}: {plural(count, 'configuration')}"


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
        "operators_of": "sample" if found.by_sample else "pass" if found.quantities else "call",
        "only": list(found.only),
    }


def database_difference(
    db: str | None, against: str, device: str | None, boards: Sequence[str]
) -> PassDifference:
    """Return what a call of each operator costs in both databases.

    Of each database it is the board named (of two `boards` one each), else one that both have, else
    the one that measured most; what only other boards measured is brought over by factors.
    """
    with predicting(db, device, estimates=False) as (old, of_old):
        slug = of_old.device.slug
        with predicting(against, slug, estimates=False) as (new, of_new):
            stores, predictors = (old, new), (of_old, of_new)
            chosen = _board_of_each(predictors, boards)
            measured = []
            for store, predictor, board in zip(stores, predictors, chosen, strict=True):
                every = {each.key: each for each in store.configurations()}
                costs = predictor.costs_on(board, list(every.values()))
                measured.append({key: (every[key], cost) for key, cost in costs.items()})
            places = [
                f"{store.location}, on {short_board(board)}"
                for store, board in zip(stores, chosen, strict=True)
            ]
    both = [configuration for key, (configuration, _) in measured[0].items() if key in measured[1]]
    if not both:
        raise InputError(f"{places[0]} and {places[1]} have no measured operator in common")
    before, after = ({key: cost for key, (_, cost) in each.items()} for each in measured)
    only = len(before.keys() - after.keys()), len(after.keys() - before.keys())
    return PassDifference(places[0], places[1], (), cost_changes(both, before, after), only=only)


def _board_of_each(
    predictors: Sequence[lazy.predictor.Predictor], named: Sequence[str]
) -> list[str]:
    if named:
        return [p.board(name) for p, name in zip(predictors, [named[0], named[-1]], strict=True)]
    chosen = [predictor.most_measured() for predictor in predictors]
    of_both = [board for board in reversed(chosen) if all(board in p.boards for p in predictors)]
    return of_both[:1] * 2 or chosen


ONE_SIDE = (
    "both sides are the same: name a second model, mode, batch size, dtype, algorithm, board or "
    "device, or another database with --against"
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
    against: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Any,
) -> Comparison:
    """Predict models beside each other and say what moved, as `opdb compare` does.

    The first of models, modes and so on that has several values is what is compared, its first
    value with each other one, at each combination of the rest. With another database `against`, the
    databases are compared: all operators that both measured, where no model is named. A side that
    cannot be predicted does not stop the others: `failures` says why.
    """
    spec, conditions = ModelSpec.parse(**said), conditions or Conditions()
    by: list[Any] = [*algorithms_named(algorithms)] or [conditions.algorithm]
    forced = any(each is not None and each.is_forced for each in by)
    found: Axes = {
        "model": list(models),
        "mode": [mode_for(mode, conditions) for mode in modes or [CAPTURED_MODE if forced else ""]],
        "dtype": [ModelSpec.parse(dtype=each).dtype for each in dtypes] or [spec.dtype],
        "batch_size": list(batch_sizes) or [spec.batch_size],
        "algorithm": by,
        "board": list(boards) or [conditions.board],
        "device": list(devices) or [conditions.device],
    }
    axes: Axes = {"db": [db] if against is None else [db, against]}
    axes |= {name: list(dict.fromkeys(values)) for name, values in found.items()}
    if models:
        return _compared(axes, spec, conditions, tell)
    if against is None:
        raise InputError("no model is named, nor another database to compare with (--against)")
    return Comparison((), (), [database_difference(db, against, axes["device"][0], boards)])


def _compared(axes: Axes, said: ModelSpec, conditions: Conditions, tell: Tell | None) -> Comparison:
    along = next((name for name, values in axes.items() if len(values) > 1), None)
    sides = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    asked = [
        Question(
            side["model"],
            replace(said, dtype=side["dtype"], batch_size=side["batch_size"]),
            side["mode"],
        )
        for side in sides
    ]
    answers = _answers(sides, asked, conditions, tell)
    if axes["board"] == axes["algorithm"] == [None] and len(axes["device"] + axes["db"]) == 2:
        found = [each for each in answers if isinstance(each, Predicted)]
        if board := _common_board(found, axes["db"][0]):
            return _compared({**axes, "board": [board]}, said, conditions, tell)
    differences = []
    for new, after in enumerate(sides):
        old = new if along is None else sides.index({**after, along: axes[along][0]})
        before, now = answers[old], answers[new]
        if new != old and isinstance(before, Predicted) and isinstance(now, Predicted):
            differences.append(_difference(before, now, sides[old]["db"], after["db"]))
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


def _answers(
    sides: Sequence[dict[str, Any]],
    asked: Sequence[Question],
    conditions: Conditions,
    tell: Tell | None,
) -> list[Predicted | OpdbError]:
    """Answer all sides in their order, those that share a database and conditions together."""
    places: dict[tuple[Conditions, str | None], list[int]] = {}
    for place, side in enumerate(sides):
        of_side = {name: side[name] for name in ("algorithm", "board", "device")}
        under = replace(conditions, **of_side)
        places.setdefault((under, side["db"]), []).append(place)
    found: dict[int, Predicted | OpdbError] = {}
    for (under, db), alike in places.items():
        answers = ask_all([asked[n] for n in alike], under, db=db, tell=tell)
        found |= zip(alike, answers, strict=True)
    return [found[n] for n in range(len(sides))]


def _difference(before: Predicted, after: Predicted, *places: str | None) -> PassDifference:
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
    old, new = map(_words, (before, after), places)
    return PassDifference(old, new, rows, operators, judged, by_sample=by_sample)


def _words(found: Predicted, db: str | None) -> str:
    prediction, algorithm = found.prediction, found.conditions.algorithm
    by = "" if algorithm is None else f", by {algorithm.name}"
    place = "" if db is None else f" in {db}"
    return (
        f"{title(prediction.workload)}, {prediction.mode}{by}, on "
        f"{short_board(prediction.board)}{place}"
    )


def _several(option: str, metavar: str, text: str) -> Any:
    text = f"{text}; several with commas between them."
    return typer.Option(option, metavar=metavar, help=text)


Dtypes: TypeAlias = Annotated[
    list[str] | None,
    _several("--dtype", "DTYPE…", "Dtypes, as in float32,bfloat16"),
]


def run(
    models: Annotated[
        list[str] | None, options.models("Models; none to compare two databases.")
    ] = None,
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
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="URL", help="Another database to compare with --db."),
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
    values is compared: its first value with each other one. With --against it is two databases, as
    before and after an upgrade; without a model, all operators that both measured.

    A quantity moved where it changed by more than both 95 % intervals together.
    """
    if within is not None and not within >= 0:
        raise InputError(f"--within {within:g}: give a share of 0 or more, such as 0.05")
    named, modes, sizes = words_among(models or (), mode, batch_sizes)
    found = compare(
        *named,
        modes=modes,
        dtypes=split(dtype),
        batch_sizes=sizes,
        algorithms=split(algorithm),
        boards=split(board),
        devices=split(device),
        against=against,
        conditions=conditions,
        db=out.db,
        tell=out.note,
        **said.keywords(),
    )
    if len(found.answers) == 1:
        raise InputError(ONE_SIDE)
    out.answer(found)
    if within is not None:
        found.check_within(within)
