"""Predict models from the costs of their operators: one model, or several beside each other."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from opdb.errors import CannotMeasureError, InputError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.requests import checked_request, request_for
from opdb.lookup.words import describe, lookup_notes
from opdb.lookup.workloads import database_option, find_workload
from opdb.records import CAPTURED_MODE, Json, Mode
from opdb.settings import DEFAULT_SETTINGS, is_forcible
from opdb.tables import Column, Report, Rows, Table

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.compose import Prediction, Schedule, Share
    from opdb.predict import Answer, Predictor
    from opdb.predict.figures import Figures, Rates
    from opdb.predict.layers import Layers
    from opdb.records import Cost

Tell = Callable[[str], None]
"""Hears in words of what takes time, such as a harvest."""


@dataclass(frozen=True)
class Question:
    """What one prediction is about: a model as named, what is said of it, and a mode."""

    model: str
    said: ModelOptions
    mode: Mode

    @property
    def words(self) -> str:
        """The question in a few words: "resnet50 -b 32 --mode eager"."""
        size = "" if self.said.batch_size is None else f" -b {self.said.batch_size}"
        return f"{self.model}{size} --mode {self.mode}"


FAILURES: Table[tuple[Question, OpdbError]] = Table(
    Column("model", lambda row: row[0].model),
    Column("batch_size", lambda row: row[0].said.batch_size),
    Column("mode", lambda row: row[0].mode),
    Column("reason", lambda row: str(row[1])),
)
"""A question that has no answer, and why."""


@dataclass(frozen=True)
class Conditions:
    """What holds for all predictions of a comparison.

    `device` and `board` (the beginning of its UUID) None are chosen, `estimates` stand in for what
    was never measured, convolutions take `algorithm` (None: as torch chooses). A model that is not
    stored is harvested unless `harvest` is false. `layers` adds what each layer takes, of which the
    `top` that take longest are shown, `schedule` each call at its time. `rates` are prices and a
    carbon intensity.
    """

    device: str | None = None
    board: str | None = None
    estimates: bool = True
    algorithm: Algorithm | None = None
    harvest: bool = True
    layers: bool = False
    top: int | None = None
    rates: Rates | None = None
    schedule: bool = False

    @property
    def forced(self) -> bool:
        """Whether convolutions are told an algorithm, rather than left to torch."""
        return self.algorithm is not None and self.algorithm.is_forced


@dataclass(frozen=True)
class Convolution:
    """A convolution of a workload: its share of a pass, and what a call of it was benched to cost.

    `cost` is that on the board predicted for, its own or brought there.
    """

    share: Share
    cost: Cost


@dataclass(frozen=True, repr=False)
class Predicted(Report):
    """What a pass of a model takes: time, energy, power, each with what it rests on.

    `answer` holds the prediction and, where the same board ran the model, the measured truth.
    `convolutions` are there where an algorithm is named, `layers` and `schedule` where they are
    asked for.
    """

    question: Question
    answer: Answer
    conditions: Conditions = field(default_factory=Conditions)
    convolutions: Sequence[Convolution] = ()
    layers: Layers | None = None
    database: Sequence[str] = ()
    schedule: Schedule | None = None

    @property
    def prediction(self) -> Prediction:
        """The prediction itself."""
        return self.answer.prediction

    @property
    def time_s(self) -> float | None:
        """The time of a pass in seconds; None where nothing of it is known."""
        return self.prediction.time_s

    @property
    def energy_j(self) -> float | None:
        """The board's energy of a pass in joules; None on a device without power readings."""
        return self.prediction.energy_j

    @property
    def figures(self) -> Figures:
        """Throughput, energy a sample, and what a million samples cost."""
        from opdb.predict.figures import NO_RATES, Figures

        return Figures.predicted(self.prediction, self.conditions.rates or NO_RATES)

    @property
    def how_to_measure(self) -> str:
        """The commands that measure what the prediction lacks; empty where it lacks nothing.

        What an algorithm refuses cannot be measured. What a model is compiled to has no name of its
        own, so that its kinds are benched.
        """
        algorithm, forced = self.conditions.algorithm, self.conditions.forced
        lacking = [
            share.configuration.kind
            for share in (*self.prediction.estimated, *self.prediction.missing)
            if share.configuration.key not in self.answer.refused
        ]
        by_algorithm = [kind for kind in lacking if forced and is_forcible(kind)]
        model = [self.question.model, *self.question.said.as_arguments(), *self.database]
        of_model = ["opdb", "bench", "--model", *model]
        commands = []
        if self.prediction.workload.compiled_for is not None and lacking:
            commands.append(["opdb", "bench", *dict.fromkeys(lacking)])
        elif len(by_algorithm) < len(lacking):
            commands.append(of_model)
        if by_algorithm and algorithm is not None:
            commands.append([*of_model, "--algorithm", algorithm.slug])
        return "; ".join(map(shlex.join, commands))

    def operators(self) -> list[dict[str, Json]]:
        """Return each configuration of the pass as data, the longest first.

        `status` is measured, estimated or missing; shares are of the pass's time and energy, and
        `count` says how many calls there are.
        """
        from opdb.api.shares import OPERATORS, with_status

        return [OPERATORS.document(row) for row in with_status(self.prediction)]

    def rows(self) -> list[dict[str, Json]]:
        """Return `operators()`."""
        return self.operators()

    def document(self, target: float | None = None) -> dict[str, Json]:
        """Return the prediction as data, and whether it meets a target: as one of several."""
        from opdb.api.blocks import predictions

        return predictions(target).document(self)

    def to_dict(self, target: float | None = None) -> dict[str, Json]:
        """Return the prediction as data: what `opdb predict --json` prints.

        `target` is a share that coverage should reach, and attribution come within.
        """
        from opdb.api.blocks import CONVOLUTIONS
        from opdb.api.shares import REFUSED, with_reasons

        found, algorithm = self.document(target), self.conditions.algorithm
        if algorithm is not None:
            found["algorithm"] = algorithm.name
            found["convolutions"] = CONVOLUTIONS.documents(self.convolutions)
            missing = with_reasons(self.prediction.missing, self.answer.refused)
            found["missing"] = REFUSED.documents(missing)
        if self.layers is not None:
            from opdb.api.layered import layers_document

            found |= layers_document(self.layers)
        return found

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb predict` prints."""
        from opdb.api.blocks import predicted_blocks

        return predicted_blocks(self)


@dataclass(frozen=True, repr=False)
class Compared(Report):
    """Several predictions beside each other, and why other questions have no answer."""

    predicted: Sequence[Predicted]
    failures: Sequence[tuple[Question, OpdbError]] = ()

    def check(self) -> None:
        """Raise where a question has no answer, in one message that names them all.

        Raises:
            InputError: one has none.
        """
        if self.failures:
            whole = len(self.predicted) + len(self.failures)
            reasons = "\n".join(f"  {question.words}: {error}" for question, error in self.failures)
            raise InputError(f"{len(self.failures)} of {whole} predictions failed\n{reasons}")

    def rows(self) -> list[dict[str, Json]]:
        """Return each prediction as data."""
        return [each.document() for each in self.predicted]

    def to_dict(self, target: float | None = None) -> dict[str, Json]:
        """Return the predictions as data: what `opdb predict --json` prints of several."""
        from opdb.api.blocks import predictions

        return {
            "rows": predictions(target).documents(self.predicted),
            "failures": FAILURES.documents(self.failures),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb predict` prints of several."""
        from opdb.api.blocks import compared_blocks

        return compared_blocks(self.predicted)


def predict(
    model: str,
    *,
    mode: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Unpack[ModelWords],
) -> Predicted:
    """Predict time and energy of one pass of a model, as `opdb predict MODEL` does.

    `model` is a name or a summary file, `said` its options: batch_size, input_size, dtype, phase …
    `mode` is eager unless given, and graph where an algorithm is forced. A model that is stored
    needs no torch; another one is harvested and stored, and `tell` hears of it.

    Raises:
        InputError: the model, device or mode is not known, or the model cannot be harvested.
    """
    conditions = conditions or Conditions()
    question = Question(model, ModelOptions.parse(**said), mode_for(mode, conditions))
    return ask_one(question, conditions, db=db, tell=tell)


def mode_for(mode: str | None, conditions: Conditions) -> Mode:
    """Return a mode, checked; none given: eager, and graph where an algorithm is forced.

    Raises:
        UnknownNameError: there is no such mode.
    """
    from opdb.lookup.options import parse_mode

    return parse_mode(mode or (CAPTURED_MODE if conditions.forced else "eager"))


def ask_one(
    question: Question, conditions: Conditions, *, db: str | None = None, tell: Tell | None = None
) -> Predicted:
    """Answer one question; what is wrong with it is said before a database is opened.

    Raises:
        InputError: it cannot be answered.
    """
    _check(question, conditions)
    with _Asking(db, conditions, tell) as asking:
        return asking.answer(question)


def ask_all(
    questions: Sequence[Question],
    conditions: Conditions,
    *,
    db: str | None = None,
    tell: Tell | None = None,
) -> Compared:
    """Answer several questions; one that fails does not stop the others.

    Raises:
        InputError: the database or the device is not there.
        CannotMeasureError: this machine lacks what all of them need.
    """
    predicted: list[Predicted] = []
    failures: list[tuple[Question, OpdbError]] = []
    with _Asking(db, conditions, tell) as asking:
        for question in questions:
            try:
                _check(question, conditions)
                predicted.append(asking.answer(question))
            except CannotMeasureError:
                raise
            except OpdbError as error:
                failures.append((question, error))
    return Compared(predicted, failures)


def _check(question: Question, conditions: Conditions) -> None:
    """Check a question as far as that needs no database.

    Raises:
        InputError: the model's options contradict each other, or the mode cannot be predicted.
    """
    from opdb.predict import check_compiled, check_forced, check_mode

    request = request_for(question.model, question.said)
    if conditions.algorithm is not None and conditions.forced:
        check_forced(conditions.algorithm.name, request.name, question.mode, request.phase)
    check_mode(question.mode)
    check_compiled(request.name, question.mode, request.phase, request.autocast)


class _Asking:
    """A database opened under some conditions, and its predictor, for as long as it is entered."""

    def __init__(self, db: str | None, conditions: Conditions, tell: Tell | None) -> None:
        self._db, self._conditions = db, conditions
        self._tell: Tell = tell or (lambda text: None)

    def __enter__(self) -> _Asking:
        from opdb.predict import predictor_for
        from opdb.store import open_store

        asked, algorithm = self._conditions, self._conditions.algorithm
        # Only the sets of sweeps hold what was measured by a forced algorithm.
        self._store = open_store(self._db, create=False, sweeps=asked.forced)
        try:
            under = {**DEFAULT_SETTINGS, **(algorithm.setting if algorithm else {})}
            self._predictor = predictor_for(
                self._store, asked.device, under, estimates=asked.estimates
            )
            self._board = None if asked.board is None else self._predictor.board(asked.board)
        except BaseException:
            self._store.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def answer(self, question: Question) -> Predicted:
        """Answer a question, its model harvested where it is not stored.

        Raises:
            InputError: it cannot be answered.
        """
        store, asked, mode = self._store, self._conditions, question.mode
        found = find_workload(store, question.model, question.said, mode, harvest=asked.harvest)
        for line in lookup_notes(found, store.location):
            self._tell(line)
        answer = self._predictor.answer(found.in_mode(mode), mode, self._board)
        named = asked.algorithm is not None
        return Predicted(
            question,
            answer,
            asked,
            _convolutions(self._predictor, answer) if named else (),
            self._layers(question, answer) if asked.layers else None,
            database_option(store),
            self._predictor.schedule(answer.prediction) if asked.schedule else None,
        )

    def _layers(self, question: Question, answer: Answer) -> Layers:
        """Return a prediction layer by layer; tell where it takes a harvest.

        Raises:
            InputError: the calls that were predicted are not those which the model makes here.
        """
        from opdb.bench.paths import located
        from opdb.garbage import collected
        from opdb.predict.layers import check_layered, layers
        from opdb.units import show_duration

        request = checked_request(question.model, question.said)
        prediction, workload = answer.prediction, answer.prediction.workload
        check_layered(prediction)
        with collected():
            found = located(workload, request)
        if found.harvest_s is not None:
            self._tell(
                f"{workload.name}, {describe(workload)}: which modules make its calls is not "
                f"stored, harvested now ({show_duration(found.harvest_s)})"
            )
        return layers(prediction, self._predictor.breakdown(prediction), found.calls)


def _convolutions(predictor: Predictor, answer: Answer) -> list[Convolution]:
    """Return the measured convolutions of an answer, the longest first."""
    shares = [s for s in answer.prediction.parts if is_forcible(s.configuration.kind)]
    costs = predictor.costs_on(answer.prediction.board, [s.configuration for s in shares])
    return [Convolution(share, costs[share.configuration.key]) for share in shares]
