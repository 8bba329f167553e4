"""`opdb compare`: what moved between models, modes, dtypes, batch sizes, boards or databases."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Annotated, Any, TypeAlias

import typer

from opdb.algorithms.names import algorithms_named
from opdb.cli import options
from opdb.cli.options import split, words_among
from opdb.commands import _lazy as lazy
from opdb.commands._figures import first_rows, lines, shown_amount
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
from opdb.predict.figures import Change, Figures, OperatorChange, cost_changes, operator_changes
from opdb.records import CAPTURED_MODE, Configuration, Json
from opdb.spec import DTYPES, ModelSpec, title
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
    `boards` has how many times as much as the first side's board the second's takes, by anchors:
    time, dynamic energy, base power. None where both are one board, or of two devices or databases.
    """

    before: str
    after: str
    quantities: Sequence[QuantityChange]
    operators: Sequence[OperatorChange]
    judged: Sequence[QuantityChange] = ()
    only: tuple[int, int] = (0, 0)
    by_sample: bool = False
    boards: Mapping[str, float | None] | None = None

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
    ratio = change.ratio
    return MISSING if ratio is None else f"{100 * (ratio - 1):+.1f} %"


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
    if found.boards is not None:
        apart = ", ".join(
            f"{times:.3f} times the {name.replace('_', ' ')}"
            for name, times in found.boards.items()
            if times is not None
        )
        yield f"the boards differ: the second takes {apart or 'an unknown multiple'} of the first"
    if found.quantities:
        yield Rows(QUANTITIES, list(found.quantities))
    if not any(row.time_s.difference or row.energy_j.difference for row in found.operators):
        yield f"nothing moved: {plural(len(found.operators), 'operator')} compared"
    elif found.quantities:
        of = "a sample" if found.by_sample else "a pass"
        yield f"operators that carry the difference, of {of}:"
        yield from first_rows(OPERATORS, found.operators, "row")
    else:
        yield from _summary(found.operators)
        moved = [row for row in found.operators if row.time_s.moved or row.energy_j.moved]
        if moved:
            yield from first_rows(OPERATORS.without("calls"), moved, "row")
    for count, where in zip(found.only, (found.before, found.after), strict=True):
        if count:
            yield f"only in {where}: {plural(count, 'configuration')}"


def _summary(rows: Sequence[OperatorChange]) -> Iterator[str]:
    """Say how many operators moved, and how far the usual one did."""
    for name, changes in (
        ("time", [row.time_s for row in rows]),
        ("energy", [row.energy_j for row in rows]),
    ):
        ratios = [change.ratio for change in changes if change.ratio is not None]
        if not ratios:
            continue
        more = sum(1 for c in changes if c.moved and (c.ratio or 1) > 1)
        less = sum(1 for c in changes if c.moved and (c.ratio or 1) < 1)
        yield (
            f"{name}: of {plural(len(ratios), 'operator')} {more} take more and {less} take less, "
            f"beyond the joint interval; median ratio {statistics.median(ratios):.3f}"
        )


def _shape(configuration: Configuration | None) -> str:
    first = None if configuration is None else next(iter(configuration.inputs.values()), None)
    while isinstance(first, list):
        first = first[0] if first else None
    return "x".join(map(str, first.get("shape", ()))) if isinstance(first, dict) else ""


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
        "boards": found.boards and dict(found.boards),
    }


def common_device(db: str | None, against: str, named: Sequence[str | None]) -> str:
    """Return the device that both databases are compared on: the one named, else the first's."""
    if len(set(named)) > 1:
        raise InputError("--against compares databases on one device: give --device once")
    with lazy.store.open_store(db, create=False) as store:
        slug = lazy.predictor.choose_device(store, named[0]).slug
        first = store.location
    with lazy.store.open_store(against, create=False) as store:
        known = [device.slug for device in store.devices()]
        if slug not in known:
            has = f"only {', '.join(known)}" if known else "and of no other one"
            raise InputError(
                f"--against {store.location} holds nothing of {slug!r}, which {first} is about, "
                f"{has}; --device names another one"
            )
    return slug


def database_difference(
    db: str | None, against: str, device: str, boards: Sequence[str]
) -> PassDifference:
    """Return what a call of each operator costs in both databases.

    Of each database it is the board named (of two `boards` one each), else one that both have, else
    the one that measured most; what only other boards measured is brought over by factors.
    """
    with (
        predicting(db, device, estimates=False) as (old, of_old),
        predicting(against, device, estimates=False) as (new, of_new),
    ):
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
    for predictor, board in zip(predictors, reversed(chosen), strict=True):
        if board in predictor.boards:
            return [board, board]
    return chosen


Apart: TypeAlias = dict[tuple[str, str], dict[str, float | None]]
"""How many times as much as the first of two boards the second takes; see `PassDifference`."""

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
    axes = _axes(models, modes, dtypes, batch_sizes, algorithms, boards, devices, spec, conditions)
    return _compared(axes, against, spec, conditions, db, tell)


def _axes(
    models: Sequence[str],
    modes: Sequence[str],
    dtypes: Sequence[str],
    batch_sizes: Sequence[int],
    algorithms: Sequence[str],
    boards: Sequence[str],
    devices: Sequence[str],
    said: ModelSpec,
    conditions: Conditions,
) -> Axes:
    by: list[Any] = [*algorithms_named(algorithms)] or [conditions.algorithm]
    forced = any(each is not None and each.is_forced for each in by)
    found: Axes = {
        "model": list(models),
        "mode": [mode_for(mode, conditions) for mode in modes or [CAPTURED_MODE if forced else ""]],
        "dtype": [ModelSpec.parse(dtype=each).dtype for each in dtypes] or [said.dtype],
        "batch_size": list(batch_sizes) or [said.batch_size],
        "algorithm": by,
        "board": list(boards) or [conditions.board],
        "device": list(devices) or [conditions.device],
    }
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def _compared(
    axes: Axes,
    against: str | None,
    said: ModelSpec,
    conditions: Conditions,
    db: str | None,
    tell: Tell | None,
) -> Comparison:
    if against is not None:
        axes = {**axes, "device": [common_device(db, against, axes["device"])]}
        if not axes["model"]:
            boards = [board for board in axes["board"] if board is not None]
            return Comparison((), (), [database_difference(db, against, axes["device"][0], boards)])
    if not axes["model"]:
        raise InputError("no model is named, nor another database to compare with (--against)")
    axes = {**axes, "db": [db] if against is None else [db, against]}
    sides = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    found, failures = _answers(sides, said, conditions, tell)
    apart: Apart = {}
    if len({each.prediction.board for each in found.values()}) > 1:
        both, apart = _boards([found[n] for n in sorted(found)], db if against is None else against)
        of_one = axes["board"] == axes["algorithm"] == [None] and len(axes["device"]) == 1
        if both and of_one and against is None:
            return _compared({**axes, "board": both[:1]}, None, said, conditions, db, tell)
    along = "db" if against is not None else next((n for n in axes if len(axes[n]) > 1), None)
    differences = [
        _difference((found[old], sides[old]), (found[new], sides[new]), apart)
        for old, new in _pairs(sides, along)
        if old in found and new in found
    ]
    return Comparison([found[n] for n in sorted(found)], failures, differences)


def _boards(found: Sequence[Predicted], db: str | None) -> tuple[list[str], Apart]:
    """Return the boards that measured as much of every pass as its own board, the first's first.

    And how the passes' own boards differ, those of one device.
    """
    own = [each.prediction.board for each in found]
    with predicting(db, found[0].prediction.device, estimates=False) as (_, predictor):
        measured = [predictor.measuring(each.prediction.workload.occurrences()) for each in found]
        apart = {
            (one, other): predictor.apart(other, one)
            for one, other in permutations(set(own) & set(predictor.boards), 2)
        }
        both = [
            board
            for board in (*own, *predictor.boards)
            if all(
                of.get(board, set()) >= of.get(b, set())
                for b, of in zip(own, measured, strict=True)
            )
        ]
    return both, apart


def _pairs(sides: Sequence[dict[str, Any]], along: str | None) -> Iterator[tuple[int, int]]:
    """Yield the places of sides that differ in one choice alone, the first value of it first."""
    if along is None:
        return
    for old, before in enumerate(sides):
        for new, after in enumerate(sides):
            is_first = before[along] == sides[0][along]
            if is_first and new > old and {**after, along: before[along]} == before:
                yield old, new


def _answers(
    sides: Sequence[dict[str, Any]], said: ModelSpec, conditions: Conditions, tell: Tell | None
) -> tuple[dict[int, Predicted], list[tuple[Question, OpdbError]]]:
    """Predict all sides, those that share a database and conditions together; by place."""
    asked: dict[tuple[Conditions, str | None], dict[int, Question]] = {}
    for place, side in enumerate(sides):
        of_side = {name: side[name] for name in ("algorithm", "board", "device")}
        of_model = replace(said, dtype=side["dtype"], batch_size=side["batch_size"])
        under = replace(conditions, **of_side), side["db"]
        asked.setdefault(under, {})[place] = Question(side["model"], of_model, side["mode"])
    found: dict[int, Predicted] = {}
    failures: list[tuple[Question, OpdbError]] = []
    for (under_these, db), alike in asked.items():
        answered = ask_all(list(alike.values()), under_these, db=db, tell=tell)
        failures += answered.failures
        by_question = {each.question: each for each in answered.predicted}
        found |= {n: by_question[each] for n, each in alike.items() if each in by_question}
    return found, failures


def _difference(
    old: tuple[Predicted, dict[str, Any]], new: tuple[Predicted, dict[str, Any]], apart: Apart
) -> PassDifference:
    def quantities(of: Figures) -> dict[str, tuple[str, Any, str]]:
        whole = [("time, 1 pass", of.time_s, "s"), ("energy, 1 pass", of.energy_j, "J")]
        return {name or unit: (name, amount, unit) for name, amount, unit in whole + lines(of)}

    (before, _), (after, _) = old, new
    figures = before.figures, after.figures
    every, again = map(quantities, figures)
    rows = [
        QuantityChange(key, unit, Change(amount, again[key][1]))
        for key, (_, amount, unit) in every.items()
        if key in again
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
    return PassDifference(
        _words(*old),
        _words(*new),
        rows,
        operators,
        judged,
        by_sample=by_sample,
        boards=apart.get((before.prediction.board, after.prediction.board)),
    )


def _words(found: Predicted, values: dict[str, Any]) -> str:
    prediction, algorithm = found.prediction, found.conditions.algorithm
    by = "" if algorithm is None else f", by {algorithm.name}"
    place = "" if values["db"] is None else f" in {values['db']}"
    return (
        f"{title(prediction.workload)}, {prediction.mode}{by}, on "
        f"{short_board(prediction.board)}{place}"
    )


def _several(option: str, metavar: str, text: str, completed: Any = None) -> Any:
    text = f"{text}; several with commas between them."
    return typer.Option(option, metavar=metavar, autocompletion=completed, help=text)


Dtypes: TypeAlias = Annotated[
    list[str] | None,
    _several("--dtype", "DTYPE…", "Dtypes, as in float32,bfloat16", options.one_of(*DTYPES)),
]


def run(
    models: Annotated[
        list[str] | None, options.models("Models; none to compare two databases.")
    ] = None,
    mode: Annotated[
        list[str] | None,
        _several(
            "--mode", "MODE…", "How work is issued, as in eager graph", options.predicted_modes
        ),
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
    others = (split(dtype), sizes, split(algorithm), split(board), split(device))
    axes = _axes(named, modes, *others, said, conditions)
    if against is None and named and all(len(values) == 1 for values in axes.values()):
        raise InputError(ONE_SIDE)
    found = _compared(axes, against, said, conditions, out.db, out.note)
    out.answer(found)
    if within is not None:
        found.check_within(within)
