"""Compare predictions, or databases: what moved, by how much, and which operators carry it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Unpack

from opdb.api.differences import Difference, Quantity, difference_blocks, difference_document
from opdb.api.predicted import Compared, Conditions, Predicted, Question
from opdb.api.predictions import Tell, ask_all, mode_for
from opdb.errors import CheckError, InputError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.records import Json, Mode
from opdb.tables import Rows

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm

ONE_SIDE = (
    "both sides are the same: name a second model, mode, batch size, dtype, algorithm, board or "
    "device, or another database with --against"
)


@dataclass(frozen=True, repr=False)
class Comparison(Compared):
    """Predictions beside each other, and the differences between them."""

    differences: Sequence[Difference] = ()

    def check_within(self, within: float) -> None:
        """Raise where something takes more than a share more than before.

        Raises:
            CheckError: it does.
        """
        found = [
            f"{each.before} → {each.after}: {', '.join(worse)}"
            for each in self.differences
            if (worse := each.regressions(within))
        ]
        if found:
            raise CheckError(f"more than --within {within:g} worse: " + "; ".join(found))

    def to_dict(self, target: float | None = None) -> dict[str, Json]:
        """Return what `opdb compare --json` prints."""
        changes = [difference_document(each) for each in self.differences]
        return {**super().to_dict(target), "differences": changes}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb compare` prints."""
        yield from super().blocks()
        for each in self.differences:
            yield from difference_blocks(each)


@dataclass(frozen=True)
class Choices:
    """The values to compare of each choice, as people write them; empty: the usual one.

    `against` is another database, or the folder of a set, which is compared with the first.
    """

    models: Sequence[str] = ()
    modes: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    batch_sizes: Sequence[int] = ()
    algorithms: Sequence[str] = ()
    boards: Sequence[str] = ()
    devices: Sequence[str] = ()
    against: str | None = None

    def check_sides(self, said: ModelOptions, conditions: Conditions) -> None:
        """Check that there are two sides.

        Raises:
            InputError: there are not, or an option has no such value.
        """
        if self.against is None and self.models:
            axes = _axes(self, said, conditions)
            if all(len(values) == 1 for values in axes.values()):
                raise InputError(ONE_SIDE)


@dataclass(frozen=True)
class _Side:
    question: Question
    conditions: Conditions
    db: str | None


def compare(
    *models: str,
    modes: Sequence[str] = (),
    batch_sizes: Sequence[int] = (),
    choices: Choices | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Unpack[ModelWords],
) -> Comparison:
    """Predict models beside each other and say what moved, as `opdb compare` does.

    The first of the `choices` that has several values is what is compared, its first value with
    each other one, at each combination of the rest. With another database `against`, the databases
    are compared: all operators that both measured, where no model is named. A side that cannot be
    predicted does not stop the others: `failures` says why.

    Raises:
        InputError: an option or a database is not valid, or no model is named.
    """
    asked = choices or Choices()
    asked = replace(
        asked,
        models=models or asked.models,
        modes=modes or asked.modes,
        batch_sizes=batch_sizes or asked.batch_sizes,
    )
    conditions = conditions or Conditions()
    return compared(asked, ModelOptions.parse(**said), conditions, db=db, tell=tell)


def compared(
    choices: Choices,
    said: ModelOptions,
    conditions: Conditions,
    *,
    db: str | None = None,
    tell: Tell | None = None,
) -> Comparison:
    """Compare every side of the choices; `db` and `against` may be folders of published sets.

    Raises:
        InputError: an option is not valid, no model is named, or a database lacks the device.
    """
    if choices.against is None:
        return _compared(choices, said, conditions, db=db, tell=tell)
    from opdb.api.databases import sets_as_databases

    with sets_as_databases(db, choices.against) as (first, second):
        asked = replace(choices, against=second)
        found = _compared(asked, said, conditions, db=first, tell=tell)

    def named(text: str) -> str:
        for place, name in ((first, db), (second, choices.against)):
            text = text.replace(place, name) if place and name else text
        return text

    differences = [
        replace(each, before=named(each.before), after=named(each.after))
        for each in found.differences
    ]
    return replace(found, differences=differences)


def _compared(
    choices: Choices,
    said: ModelOptions,
    conditions: Conditions,
    *,
    db: str | None,
    tell: Tell | None,
) -> Comparison:
    against = choices.against
    if against is not None:
        from opdb.api.databases import common_device, database_difference

        choices = replace(choices, devices=[common_device(db, against, choices.devices)])
        if not choices.models:
            return Comparison(
                (), (), [database_difference(db, against, choices.devices[0], choices.boards)]
            )
    if not choices.models:
        raise InputError("no model is named, nor another database to compare with (--against)")
    axes = _axes(choices, said, conditions)
    axes["db"] = [db] if against is None else [db, against]
    sides = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    found, failures = _answers([_side(each, said, conditions) for each in sides], tell)
    along = "db" if against is not None else next((n for n in axes if len(axes[n]) > 1), None)
    differences = [
        _difference((found[old], sides[old]), (found[new], sides[new]))
        for old, new in _pairs(sides, along)
        if old in found and new in found
    ]
    return Comparison([found[n] for n in sorted(found)], failures, differences)


def _pairs(sides: Sequence[dict[str, Any]], along: str | None) -> Iterator[tuple[int, int]]:
    """Yield the places of sides that differ in one choice alone, the first value of it first."""
    if along is None:
        return
    for old, before in enumerate(sides):
        for new, after in enumerate(sides):
            is_first = before[along] == sides[0][along]
            if is_first and new > old and {**after, along: before[along]} == before:
                yield old, new


def _axes(choices: Choices, said: ModelOptions, conditions: Conditions) -> dict[str, list[Any]]:
    """Return the values of each choice, each once; the usual one where none is given."""
    from opdb.algorithms.names import algorithms_named

    algorithms: list[Algorithm | None] = [*algorithms_named(list(choices.algorithms))]
    algorithms = algorithms or [conditions.algorithm]
    forced = any(each is not None and each.is_forced for each in algorithms)
    modes: list[Mode] = [mode_for(mode, conditions) for mode in choices.modes]
    if not modes:
        modes = [mode_for("graph" if forced else None, conditions)]
    found: dict[str, list[Any]] = {
        "model": list(choices.models),
        "mode": modes,
        "dtype": [ModelOptions.parse(dtype=each).dtype for each in choices.dtypes] or [said.dtype],
        "batch_size": list(choices.batch_sizes) or [said.batch_size],
        "algorithm": algorithms,
        "board": list(choices.boards) or [conditions.board],
        "device": list(choices.devices) or [conditions.device],
    }
    return {name: [v for n, v in enumerate(of) if v not in of[:n]] for name, of in found.items()}


def _side(values: dict[str, Any], said: ModelOptions, conditions: Conditions) -> _Side:
    asked = replace(said, dtype=values["dtype"], batch_size=values["batch_size"])
    under = replace(
        conditions,
        schedule=True,
        algorithm=values["algorithm"],
        board=values["board"],
        device=values["device"],
    )
    return _Side(Question(values["model"], asked, values["mode"]), under, values["db"])


def _answers(
    sides: Sequence[_Side], tell: Tell | None
) -> tuple[dict[int, Predicted], list[tuple[Question, OpdbError]]]:
    """Predict all sides, those that share a database and conditions together; by place."""
    found: dict[int, Predicted] = {}
    failures: list[tuple[Question, OpdbError]] = []
    left = list(range(len(sides)))
    while left:
        first = sides[left[0]]
        alike = [
            n for n in left if (sides[n].conditions, sides[n].db) == (first.conditions, first.db)
        ]
        left = [n for n in left if n not in alike]
        asked = [sides[n].question for n in alike]
        answered = ask_all(asked, first.conditions, db=first.db, tell=tell)
        failures += answered.failures
        by_question = {each.question: each for each in answered.predicted}
        found |= {n: by_question[q] for n, q in zip(alike, asked, strict=True) if q in by_question}
    return found, failures


def _difference(
    old: tuple[Predicted, dict[str, Any]], new: tuple[Predicted, dict[str, Any]]
) -> Difference:
    """Return what moved between two predictions, each with the values of its choices."""
    from opdb.api.deciding import lines
    from opdb.predict.changes import Change, operator_changes
    from opdb.predict.figures import Figures

    def quantities(of: Figures) -> dict[str, tuple[str, Any, str]]:
        whole = [("time, 1 pass", of.time_s, "s"), ("energy, 1 pass", of.energy_j, "J")]
        return {name or unit: (name, amount, unit) for name, amount, unit in whole + lines(of)}

    (before, _), (after, _) = old, new
    figures = before.figures, after.figures
    every, again = map(quantities, figures)
    rows = [
        Quantity(key, unit, Change(amount, again[key][1]))
        for key, (_, amount, unit) in every.items()
        if key in again
    ]
    times = [f.time_s and f.time_s.times(1 / f.samples) for f in figures]
    judged = [
        Quantity("time of a sample", "s", Change(*times)),
        Quantity("energy of a sample", "J", Change(*(f.energy_per_sample_j for f in figures))),
    ]
    samples = figures[0].samples, figures[1].samples
    by_sample = samples[0] != samples[1]
    assert before.schedule is not None and after.schedule is not None
    operators = operator_changes(before.schedule, after.schedule, samples if by_sample else (1, 1))
    return Difference(_words(*old), _words(*new), rows, operators, judged, by_sample=by_sample)


def _words(found: Predicted, values: dict[str, Any]) -> str:
    """Say which side a prediction is."""
    from opdb.lookup.words import describe, short_board

    prediction, algorithm = found.prediction, found.conditions.algorithm
    by = "" if algorithm is None else f", by {algorithm.name}"
    place = "" if values["db"] is None else f" in {values['db']}"
    return (
        f"{prediction.workload.name}, {describe(prediction.workload)}, {prediction.mode}{by}, on "
        f"{short_board(prediction.board)}{place}"
    )
