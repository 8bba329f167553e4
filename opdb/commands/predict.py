"""`opdb predict`: time and energy of a model from the costs of its operators."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import typer

from opdb.algorithms.names import ALGORITHMS, Algorithm, algorithms_named
from opdb.cli import options
from opdb.cli.options import words_among
from opdb.commands import _lazy as lazy
from opdb.commands._predictions import (
    ALONE,
    ENGINES,
    ESTIMATED,
    FIGURES,
    LAYERS,
    LINES,
    REST,
    SHARES,
    coverage,
    first_rows,
    layers_blocks,
    memory_document,
    memory_line,
    misses,
    prediction_lines,
)
from opdb.errors import CannotMeasureError, CheckError, InputError, OpdbError, kept, raise_all
from opdb.harvest.finding import (
    database_option,
    find_workload,
    harvest_notes,
    located,
    other_sizes,
    sizes_of_pass,
)
from opdb.kinds.registry import DEFAULT_SETTINGS, is_forcible
from opdb.predict.compose import Prediction, Schedule, schedule, shortfall
from opdb.predict.figures import Figures, Layers, check_layered, layers
from opdb.predict.generation import Interpolated
from opdb.records import (
    CAPTURED_MODE,
    DECODING,
    Device,
    Json,
    Mode,
    Stored,
    Workload,
)
from opdb.spec import ModelSpec, describe, parse_mode, title, workload_columns
from opdb.summary_files import request_for
from opdb.tables import MISSING, Column, Report, Rows, Table, interval
from opdb.units import show, show_duration, show_ratio, show_share

PANEL = "predict"


@dataclass(frozen=True)
class Question:
    """What one prediction is about: a model as named, what is said of it, and a mode."""

    model: str
    said: ModelSpec
    mode: Mode

    @cached_property
    def request(self) -> ModelSpec:
        return request_for(self.model, self.said)

    @property
    def arguments(self) -> list[str]:
        """The words of a command that mean the request."""
        return [self.model, *self.said.as_arguments()]

    @property
    def words(self) -> str:
        size = "" if self.said.batch_size is None else f" -b {self.said.batch_size}"
        return f"{self.model}{size} --mode {self.mode}"


def _one_algorithm(name: str) -> Algorithm:
    if len(found := algorithms_named([name])) > 1:
        raise InputError(
            f"--algorithm {name}: a prediction is under one algorithm; name one of "
            f"{', '.join(ALGORITHMS)}"
        )
    return found[0]


@dataclass(frozen=True)
class Conditions:
    """What holds for all predictions of a question: the options of the command, as it reads them.

    `device` and `board` (the beginning of its UUID) None are chosen, `estimates` stand in for what
    was never measured, convolutions take `algorithm` (None: as torch chooses). `layers` adds what
    each layer takes, of which the `top` that take longest are shown. Prices are in any currency.
    `target` is a share that coverage should reach, and attribution come within.
    """

    device: options.DeviceName = None
    board: options.BoardOption = None
    estimates: options.EstimatesOption = True
    no_harvest: options.NoHarvest = False
    algorithm: Annotated[
        Algorithm | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            parser=_one_algorithm,
            help="Convolutions as they were benched by this algorithm (gemm, fft, winograd …; opdb "
            "sweep --list-algorithms).  [default: as torch chooses]",
        ),
    ] = None
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Exit 1 unless coverage reaches this share and attribution lies within "
            "1 ± (1 - it).",
        ),
    ] = None
    layers: Annotated[
        bool,
        typer.Option(
            "--layers",
            help="Break the prediction down by layer: module path, kind, shape, time, energy.",
        ),
    ] = False
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=1,
            help="Of --layers: show those N that take longest.  [default: all]",
        ),
    ] = None
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            metavar="AMOUNT",
            min=0,
            help="What an hour of the GPU costs, in any currency: adds the rent of a million "
            "samples.",
        ),
    ] = None

    electricity_price: Annotated[
        float | None,
        typer.Option(
            "--electricity-price",
            metavar="AMOUNT",
            min=0,
            help="What a kWh costs, in any currency: adds what the board's energy costs.",
        ),
    ] = None
    carbon: Annotated[
        float | None,
        typer.Option(
            "--carbon",
            metavar="GRAMS",
            min=0,
            help="Grams of CO2 a kWh: adds the CO2 of the board's energy.",
        ),
    ] = None

    def __post_init__(self) -> None:
        check_share("--target", self.target)
        for price in (self.price, self.electricity_price, self.carbon):
            if price is not None and not 0 <= price < math.inf:
                raise InputError(f"a price of {price:g}: give a number of 0 or more")
        if self.top is not None and not self.layers:
            raise InputError(f"--top {self.top} is about layers: add --layers")

    @property
    def forced(self) -> bool:
        """Whether convolutions are told an algorithm, rather than left to torch."""
        return self.algorithm is not None and self.algorithm.is_forced


def check_share(option: str, value: float | None) -> None:
    """Check a share that an option gives."""
    if value is not None and not 0 <= value <= 1:
        raise InputError(f"{option} {value:g}: give a share between 0 and 1, such as 0.9")


OF_PREDICT = ("algorithm", "target", "layers", "top")
PRICES = ("price", "electricity_price", "carbon")
Common: TypeAlias = Annotated[Conditions, options.Without(*OF_PREDICT, *PRICES)]
"""The conditions of other commands: the device, the board, whether to estimate and to harvest."""


@dataclass(frozen=True, repr=False)
class Predicted(Report):
    """What a pass of a model takes: time, energy, power, each with what it rests on.

    `answer` holds the prediction and, where the same board ran the model, the measured truth.
    `layers` are there where they are asked for.
    """

    question: Question
    answer: lazy.predictor.Answer
    conditions: Conditions = field(default_factory=Conditions)
    layers: Layers | None = None
    database: Sequence[str] = ()

    @property
    def prediction(self) -> Prediction:
        return self.answer.prediction

    @cached_property
    def schedule(self) -> Schedule:
        return schedule(self.prediction.total)

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
        of = self.conditions
        return Figures.predicted(self.prediction, of.price, of.electricity_price, of.carbon)

    @property
    def how_to_measure(self) -> str:
        """The command that measures what the prediction lacks; empty where it lacks nothing.

        What a model is compiled to has no name of its own, so that its kinds are benched; a module
        that Python holds has none.
        """
        lacking = [
            each.configuration for each in (*self.prediction.estimated, *self.prediction.missing)
        ]
        kinds = dict.fromkeys(each.kind for each in lacking if each.key not in self.answer.refused)
        if not kinds or self.question.said.built_by is not None:
            return ""
        asked, algorithm = [*kinds], self.conditions.algorithm
        if self.prediction.workload.compiled_for is None:
            asked = ["--model", *self.question.arguments]
        if algorithm is not None and algorithm.is_forced and any(map(is_forcible, kinds)):
            asked += ["--algorithm", algorithm.slug]
        return shlex.join(["opdb", "bench", *asked, *self.database])

    @property
    def heading(self) -> str:
        """What was asked, the board that it is predicted for, and what is left out."""
        found, by, lacks = self.prediction, self.conditions.algorithm, shortfall(self.prediction)
        under = "" if by is None else f"convolutions by {by.name}, "
        return (
            f"{title(found.workload)}, {found.mode}, {under}on {found.device.name} ({found.board})"
            + ("" if lacks is None else f": {lacks}")
        )

    def operators(self) -> list[dict[str, Json]]:
        """Return each configuration of the pass as data, the longest first.

        `status` is measured, estimated or missing; shares are of the pass's time and energy, and
        `count` says how many calls there are.
        """
        found = self.prediction
        status = dict.fromkeys((each.configuration.key for each in found.estimated), "estimated")
        status |= dict.fromkeys((each.configuration.key for each in found.missing), "missing")
        every = {s.configuration.key: s for s in (*found.parts, *found.estimated, *found.missing)}
        return [
            {
                **SHARES.document(share),
                "what": share.configuration.title,
                "status": status.get(share.configuration.key, "measured"),
            }
            for share in sorted(every.values(), key=lambda share: share.share_time, reverse=True)
        ]

    def rows(self) -> list[dict[str, Json]]:
        return self.operators()

    def check(self) -> None:
        if self.why_missed:
            raise CheckError(self.why_missed)

    @property
    def why_missed(self) -> str:
        target = self.conditions.target
        if target is None or self.answer.meets(target):
            return ""
        ratios = {"time": self.answer.attribution_time, "energy": self.answer.attribution_energy}
        why = misses(self.prediction.workload, self.prediction.coverages, ratios, target)
        return f"target {target:g} missed: " + ", ".join(why)

    def to_dict(self) -> dict[str, Json]:
        found, algorithm = PREDICTIONS.document(self), self.conditions.algorithm
        if algorithm is not None:
            found["algorithm"] = algorithm.name
            found["missing"] = [
                {**SHARES.document(each), "reason": self.answer.refused.get(each.configuration.key)}
                for each in self.prediction.missing
            ]
        if self.layers is not None:
            found["layers"] = LAYERS.documents(self.layers.layers)
            found["rest"] = REST.documents(self.layers.rest)
        return found

    def blocks(self) -> Iterator[str | Rows[Any]]:
        answer, prediction = self.answer, self.prediction
        yield self.heading
        yield memory_line(answer.memory)
        if prediction.workload.phase in DECODING:
            yield ENGINES
        yield Rows(
            ALONE if answer.measured is None else LINES, prediction_lines(answer, self.figures)
        )
        yield (
            f"coverage: calls {show_share(prediction.coverage_calls)}, "
            f"time {show_share(prediction.coverage_time)}, "
            f"energy {show_share(prediction.coverage_energy)}"
        )
        if prediction.estimated:
            yield "estimated from operators that were measured:"
            yield from first_rows(ESTIMATED, prediction.estimated)
        if prediction.missing:
            yield "not measured and not estimated (shares from FLOPs and bytes):"
            yield from first_rows(SHARES, prediction.missing)
        for each in prediction.notes:
            yield f"note: {each}"
        if command := self.how_to_measure:
            yield f"to measure what is missing, on the device: {command}"
        if self.layers is not None:
            yield from layers_blocks(self.layers, self.conditions.top)
        if self.conditions.target is not None and not self.why_missed:
            yield f"target {self.conditions.target:g}: met"


@dataclass(frozen=True, repr=False)
class Compared(Report):
    """Several predictions beside each other, and why other questions have no answer."""

    questions: Sequence[Question]
    answers: Sequence[Predicted | OpdbError]

    @property
    def predicted(self) -> list[Predicted]:
        return [each for each in self.answers if isinstance(each, Predicted)]

    @property
    def failures(self) -> list[tuple[Question, OpdbError]]:
        both = zip(self.questions, self.answers, strict=True)
        return [(question, each) for question, each in both if isinstance(each, OpdbError)]

    def check(self) -> None:
        raise_all([error for _, error in self.failures], "shown")
        missed = [each for each in self.predicted if each.why_missed]
        if missed:
            raise CheckError("; ".join(f"{p.question.words}: {p.why_missed}" for p in missed))

    def rows(self) -> list[dict[str, Json]]:
        return [PREDICTIONS.document(each) for each in self.predicted]

    def to_dict(self) -> dict[str, Json]:
        return {
            "rows": PREDICTIONS.documents(self.predicted),
            "failures": [
                {
                    "model": question.model,
                    "batch_size": question.said.batch_size,
                    "mode": question.mode,
                    "reason": str(error),
                }
                for question, error in self.failures
            ],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        places = dict.fromkeys(
            f"{p.device.name} ({p.board})" for p in (each.prediction for each in self.predicted)
        )
        for place in places:
            yield f"on {place}"
        if any(each.prediction.workload.phase in DECODING for each in self.predicted):
            yield ENGINES
        if self.predicted:
            empty = [
                column.title
                for column in PREDICTIONS.columns
                if column.title and all(column.cell(each) == MISSING for each in self.predicted)
            ]
            yield Rows(PREDICTIONS.without(*empty), self.predicted)


FITS = {True: "yes", False: "no", None: MISSING}


MEASURED: Table[lazy.predictor.Answer] = Table(
    Column("time_s", lambda row: row.measured and row.measured.time_s.mean),
    Column(
        "energy_j",
        lambda row: row.measured and row.measured.energy_j and row.measured.energy_j.mean,
    ),
    Column("attribution_time", lambda row: row.attribution_time),
    Column("attribution_energy", lambda row: row.attribution_energy),
    Column("inside_interval_time", lambda row: row.inside_time),
    Column("inside_interval_energy", lambda row: row.inside_energy),
    Column("repeat_spread", lambda row: row.measured and row.measured.spread),
    Column("flags", lambda row: row.measured and list(row.measured.flags)),
    Column("host_slowdown", lambda row: row.measured and row.measured.slowdown),
)


PREDICTIONS: Table[Predicted] = Table(
    *workload_columns(lambda one: one.prediction.workload),
    Column("device", lambda one: one.prediction.device.slug),
    Column("board", lambda one: one.prediction.board),
    Column("mode", lambda one: one.prediction.mode, title="mode"),
    Column("complete", lambda one: one.prediction.complete),
    FIGURES[0].column(attrgetter("figures")),
    interval("s", lambda one: one.figures.time_s),
    *(each.column(attrgetter("figures")) for each in FIGURES[1:]),
    Column("power_w", lambda one: one.prediction.power_w, title="power", unit="W"),
    Column("samples", lambda one: one.figures.samples),
    Column("tokens", lambda one: one.figures.tokens),
    Column("target", lambda one: one.conditions.target),
    Column("target_met", lambda one: None if one.conditions.target is None else not one.why_missed),
    Column("missing", lambda one: SHARES.documents(one.prediction.missing)),
    Column("estimated", lambda one: ESTIMATED.documents(one.prediction.estimated)),
    Column("how_to_measure", lambda one: one.how_to_measure),
    Column("unsupported", lambda one: dict(one.prediction.workload.unsupported)),
    Column("memory", lambda one: memory_document(one.answer.memory)),
    Column("notes", lambda one: list(one.prediction.notes)),
    Column(
        "coverage",
        lambda one: coverage(one.prediction),
        title="coverage",
        text=lambda one: show_share(one.prediction.coverage_time),
    ),
    Column(
        "fits",
        lambda one: one.answer.memory.fits,
        title="fits",
        text=lambda one: FITS[one.answer.memory.fits],
    ),
    Column(
        "measured",
        lambda one: one.answer.measured and MEASURED.document(one.answer),
        title="measured",
        text=lambda one: show(
            one.answer.measured.time_s.mean if one.answer.measured else None, "s"
        ),
    ),
    Column(
        title="predicted / measured",
        text=lambda one: show_ratio(one.answer.attribution_time, one.answer.inside_time),
    ),
)


Tell = Callable[[str], None]
"""Hears in words of what takes time, such as a harvest."""


def predict(
    model: Any,
    inputs: Any = None,
    *,
    mode: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Any,
) -> Predicted:
    """Predict time and energy of one pass of a model, as `opdb predict MODEL` does.

    `model` is a name or a summary file, `said` its options: batch_size, input_size, dtype, phase …
    `mode` is eager unless given, and graph where an algorithm is forced. A model that is stored
    needs no torch; another one is harvested and stored, and `tell` hears of it.

    Or `model` is a module, and `inputs` are what it is called with: a tensor, a tuple of positional
    arguments, or a dict of keyword arguments. It is left as it is, and nothing of it is stored.
    """
    conditions = conditions or Conditions()
    spec, chosen = ModelSpec.parse(**said), mode_for(mode, conditions)
    if not isinstance(model, str):
        question = Question(type(model).__name__, _held(spec, model, inputs), chosen)
    elif inputs is not None:
        raise InputError(f"inputs of {model!r}: only a module takes them; a name has its own")
    else:
        question = Question(model, spec, chosen)
    return ask_one(question, conditions, db=db, tell=tell)


def _held(spec: ModelSpec, module: Any, inputs: Any) -> ModelSpec:
    called = ((), dict(inputs)) if isinstance(inputs, Mapping) else (inputs, {})
    parts = () if inputs is None else called
    name = f"python:{type(module).__name__}"
    return replace(spec, name=name, built_by=lambda: (deepcopy(module), *parts))


def mode_for(mode: str | None, conditions: Conditions) -> Mode:
    """Return a mode, checked; none given: eager, and graph where an algorithm is forced."""
    return parse_mode(mode or (CAPTURED_MODE if conditions.forced else "eager"))


def ask_one(
    question: Question, conditions: Conditions, *, db: str | None = None, tell: Tell | None = None
) -> Predicted:
    """Answer one question."""
    with opened(db, conditions, tell) as asking:
        return asking.predicted(question)


def ask_all(
    questions: Sequence[Question],
    conditions: Conditions,
    *,
    db: str | None = None,
    tell: Tell | None = None,
) -> list[Predicted | OpdbError]:
    """Answer several questions; one that fails has its error, and does not stop the others."""
    found: list[Predicted | OpdbError] = []
    with opened(db, conditions, tell) as asking:
        for question in questions:
            errors: list[OpdbError] = []
            with kept(errors, question.model, CannotMeasureError):
                found.append(asking.predicted(question))
            found += errors
    return found


def check_named(store: lazy.store.Store, device: str | None, board: str | None) -> None:
    """Check that there is such a device and board, before a harvest takes its time."""
    predictor = lazy.predictor.predictor_for(store, device)
    if board is not None:
        predictor.board(board)


@contextmanager
def predicting(
    db: str | None,
    device: Device | str | None,
    *,
    setting: Mapping[str, Json] = DEFAULT_SETTINGS,
    estimates: bool = True,
    sweeps: bool = False,
) -> Iterator[tuple[lazy.store.Store, lazy.predictor.Predictor]]:
    """Yield a database, and what predicts from it for a device under a backend setting.

    With `sweeps` it holds what forced algorithms were measured to take, too.
    """
    with lazy.store.open_store(db, create=False, sweeps=sweeps) as store:
        yield store, lazy.predictor.predictor_for(store, device, setting, estimates=estimates)


@contextmanager
def opened(db: str | None, conditions: Conditions, tell: Tell | None = None) -> Iterator[Asking]:
    """Yield what answers questions from a database under some conditions."""
    device, estimates, algorithm = conditions.device, conditions.estimates, conditions.algorithm
    under = {**DEFAULT_SETTINGS, **(algorithm.setting if algorithm else {})}
    forced = conditions.forced  # only the sets of sweeps hold what was measured then
    with predicting(db, device, setting=under, estimates=estimates, sweeps=forced) as (store, of):
        named = None if conditions.board is None else of.board(conditions.board)
        yield Asking(store, of, conditions, tell or (lambda text: None), named)


class Asking:
    """Answers questions from a database; what one answer has read serves the next ones."""

    def __init__(
        self,
        store: lazy.store.Store,
        predictor: lazy.predictor.Predictor,
        conditions: Conditions,
        tell: Tell,
        board: str | None,
    ) -> None:
        self._store, self.predictor, self._conditions = store, predictor, conditions
        self._tell, self._board = tell, board
        self._stored = cache(store.workloads)

    def answer(self, question: Question, board: str | None = None) -> lazy.predictor.Answer:
        """Answer a question, its model harvested where it is not stored.

        `board` (a UUID) is the one to predict for where the conditions name none.
        """
        store, mode, board = self._store, question.mode, self._board or board
        if question.said.built_by is not None:
            lazy.predictor.check_mode(mode, lazy.predictor.PLAIN_MODES)
            if self._conditions.layers:
                raise InputError("layers are known of a model that has a name; predict it by that")
            found = Stored(lazy.passes.harvest_in_both(question.said))
            workload = replace(found.in_mode(mode), name=question.model)
            return self.predictor.answer(workload, mode, board)
        self._check(question)
        between = self._between(question, board)
        if between is not None:
            return self.predictor.answer(between[0], mode, *between[1:])
        request, harvest = question.request, not self._conditions.no_harvest
        found = find_workload(store, request, mode, question.arguments, harvest=harvest)
        for line in harvest_notes(found, store.location):
            self._tell(line)
        return self.predictor.answer(found.in_mode(mode), mode, board)

    def _check(self, question: Question) -> None:
        request, algorithm = question.request, self._conditions.algorithm
        if algorithm is not None and algorithm.is_forced:
            lazy.predictor.check_forced(algorithm.name, request.name, question.mode, request.phase)
        lazy.predictor.check_mode(question.mode)
        lazy.predictor.check_compiled(request.name, question.mode, request.phase, request.autocast)

    def predicted(self, question: Question) -> Predicted:
        """Answer a question, with all that the conditions ask for beside the prediction."""
        answer, asked = self.answer(question), self._conditions
        return Predicted(
            question,
            answer,
            asked,
            self._layers(question, answer) if asked.layers else None,
            database_option(self._store),
        )

    def _between(
        self, question: Question, board: str | None
    ) -> tuple[Workload, str, Interpolated] | None:
        """Return a pass of a generation as measured or between measured ones, and their board.

        None of other passes, where none reach it, and where nothing is to be estimated.
        """
        request = question.request
        if request.phase not in ("prefill", "decode") or not self._conditions.estimates:
            return None
        rungs = other_sizes(self._stored, request)
        return self.predictor.between(rungs, sizes_of_pass(request), question.mode, board)

    def _layers(self, question: Question, answer: lazy.predictor.Answer) -> Layers:
        prediction, workload = answer.prediction, answer.prediction.workload
        check_layered(prediction)
        calls, harvest_s = located(workload, question.request)
        if harvest_s is not None:
            self._tell(
                f"{workload.name}, {describe(workload)}: which modules make its calls is not "
                f"stored, harvested now ({show_duration(harvest_s)})"
            )
        return layers(prediction, calls)


def run(
    models: Annotated[list[str], options.models("Names of models, or summary files of one.")],
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            help="How work is issued: eager, graph, compile or compile:reduce-overhead.  "
            "[default: eager; graph where --algorithm forces one]",
        ),
    ] = None,
    batch_sizes: options.BatchSizes = None,
    said: options.ModelAtSizes = ModelSpec(),
    conditions: Conditions = Conditions(),
    out: options.Output = options.Output(),
) -> None:
    """Predict time and energy of one pass of a model, with interval, coverage and what is missing.

    Where the model was measured on the same board, the measured truth stands beside it. A model
    that is not in the database is harvested first, which takes some seconds and needs torch.

    Several models, modes (--mode eager graph) or batch sizes (-b 1 32) come in one table; one that
    fails does not stop the others, and the exit status is then 2.

    With --algorithm convolutions cost what opdb bench conv2d --algorithm measured, and what opdb
    sweep ran under that algorithm is the truth. What it cannot run is missing.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # estimates multiply small matrices
    named, texts, sizes = words_among(models, mode, batch_sizes)
    modes = dict.fromkeys(mode_for(text, conditions) for text in texts or [""])
    asked = [
        Question(model, of_model, each)
        for model in dict.fromkeys(named)
        for each in modes
        for of_model in said.at_sizes(sizes)
    ]
    if conditions.layers and len(asked) > 1:
        raise InputError(
            f"--layers is of one prediction, not of {len(asked)}: name one model, mode and batch "
            "size"
        )
    found: Predicted | Compared
    if len(asked) == 1:
        found = ask_one(asked[0], conditions, db=out.db, tell=out.note)
    else:
        found = Compared(asked, ask_all(asked, conditions, db=out.db, tell=out.note))
    out.answer(found)
