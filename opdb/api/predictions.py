"""Predict models from the costs of their operators: one model, or several beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Unpack

from opdb.api.predicted import (
    Compared,
    Conditions,
    Convolution,
    Predicted,
    Question,
    lacking_in,
)
from opdb.errors import CannotMeasureError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.requests import checked_request, request_for
from opdb.lookup.words import describe, lookup_notes
from opdb.lookup.workloads import database_option, find_workload, other_sizes, sizes_of_pass
from opdb.records import CAPTURED_MODE, Mode
from opdb.settings import DEFAULT_SETTINGS, is_forcible

if TYPE_CHECKING:
    from opdb.predict import Answer, CalibratedHost, OnHost, Predictor
    from opdb.predict.layers import Layers
    from opdb.records import Configuration, Workload

Tell = Callable[[str], None]
"""Hears in words of what takes time, such as a harvest."""


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
    check(question, conditions)
    with Asking(db, conditions, tell) as asking:
        return asking.predicted(question)


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
    with Asking(db, conditions, tell) as asking:
        for question in questions:
            try:
                check(question, conditions)
                predicted.append(asking.predicted(question))
            except CannotMeasureError:
                raise
            except OpdbError as error:
                failures.append((question, error))
    return Compared(predicted, failures)


def check(question: Question, conditions: Conditions) -> None:
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


class Asking:
    """A database opened under some conditions, and its predictor, for as long as it is entered.

    What one answer has read serves the next ones.
    """

    def __init__(self, db: str | None, conditions: Conditions, tell: Tell | None) -> None:
        self._db, self._conditions = db, conditions
        self._tell: Tell = tell or (lambda text: None)

    def __enter__(self) -> Asking:
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
            self._stored = cache(self._store.workloads)
            self._board = None if asked.board is None else self._predictor.board(asked.board)
        except BaseException:
            self._store.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def board(self, question: Question) -> str:
        """Return the board (UUID) that a question is answered for.

        Raises:
            InputError: it cannot be answered.
        """
        if self._board is not None:
            return self._board
        between = self._between(question, None)
        return self.answer(question).prediction.board if between is None else between[1]

    def answer(self, question: Question, board: str | None = None) -> Answer:
        """Answer a question, its model harvested where it is not stored.

        `board` (a UUID) is the one to predict for where the conditions name none.

        Raises:
            InputError: it cannot be answered.
        """
        store, mode, board = self._store, question.mode, self._board or board
        between = self._between(question, board)
        if between is not None:
            return self._predictor.answer(between[0], mode, between[1])
        harvest = self._conditions.harvest
        found = find_workload(store, question.model, question.said, mode, harvest=harvest)
        for line in lookup_notes(found, store.location):
            self._tell(line)
        return self._predictor.answer(found.in_mode(mode), mode, board)

    def predicted(self, question: Question) -> Predicted:
        """Answer a question, with all that the conditions ask for beside the prediction.

        Raises:
            InputError: it cannot be answered.
        """
        answer, asked = self.answer(question), self._conditions
        named = asked.algorithm is not None
        return Predicted(
            question,
            answer,
            asked,
            _convolutions(self._predictor, answer) if named else (),
            self._layers(question, answer) if asked.layers else None,
            database_option(self._store),
            self._predictor.schedule(answer.prediction) if asked.schedule else None,
            self._gpu_seconds(lacking_in(answer)),
            self._on_host(answer),
        )

    def _on_host(self, answer: Answer) -> OnHost | None:
        """Return what a pass that waits for its host takes on this one, where that is known."""
        if answer.prediction.mode == CAPTURED_MODE or self._host is None:
            return None
        return self._predictor.on_host(answer.prediction, self._host)

    @cached_property
    def _host(self) -> CalibratedHost | None:
        """This machine's host as it was calibrated last; None where it never was."""
        from opdb.predict import CalibratedHost
        from opdb.this_host import this_host

        found = self._store.host_calibration(this_host().id)
        return None if found is None else CalibratedHost(self._store, found)

    def _gpu_seconds(self, lacking: Sequence[Configuration]) -> float | None:
        """Return what measuring configurations is likely to take, as their kinds' visits took."""
        if not lacking:
            return None
        from opdb.plan.known import prices

        known = prices(self._store, self._predictor.device.slug, {c.kind for c in lacking})
        return sum(map(known.of, lacking))

    def _between(self, question: Question, board: str | None) -> tuple[Workload, str] | None:
        """Return a pass of a generation as measured or between measured ones, and their board.

        None of other passes, where none reach it, and where nothing is to be estimated.
        """
        request = request_for(question.model, question.said)
        if request.phase not in ("prefill", "decode") or not self._conditions.estimates:
            return None
        rungs = other_sizes(self._stored, request)
        return self._predictor.between(rungs, sizes_of_pass(request), question.mode, board)

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
