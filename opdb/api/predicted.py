"""A prediction, or several beside each other: as records, as data, and as people read them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from opdb.api.deciding import (
    LINES,
    bounded,
    figure_columns,
    interval_document,
    prediction_lines,
)
from opdb.api.documents import memory_document, quantity_document
from opdb.api.fitting import memory_line
from opdb.api.shares import (
    ESTIMATED,
    OPERATORS,
    REFUSED,
    SHARES,
    estimated_blocks,
    first_rows,
    missing_blocks,
    share_columns,
    with_reasons,
    with_status,
)
from opdb.errors import InputError, OpdbError
from opdb.growth import benched_configurations
from opdb.kinds import View, get_kind
from opdb.lookup.options import ModelOptions
from opdb.lookup.words import describe, workload_columns
from opdb.records import Json, Mode, Quantity
from opdb.settings import is_forcible
from opdb.tables import MISSING, RATIO, Column, Report, Rows, Table
from opdb.units import plural, show, show_share

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.compose import Prediction, Schedule, Share
    from opdb.predict import Answer, OnHost
    from opdb.predict.figures import Figures, Rates
    from opdb.predict.layers import Layers
    from opdb.records import Configuration, Cost
    from opdb.studies.drawing import Drawing


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
    asked for. `gpu_seconds` is what `how_to_measure` is likely to take on one device. `on_host` is
    what a pass that waits for its host takes on this machine's, where that was calibrated.
    """

    question: Question
    answer: Answer
    conditions: Conditions = field(default_factory=Conditions)
    convolutions: Sequence[Convolution] = ()
    layers: Layers | None = None
    database: Sequence[str] = ()
    schedule: Schedule | None = None
    gpu_seconds: float | None = None
    on_host: OnHost | None = None

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
        lacking = [configuration.kind for configuration in lacking_in(self.answer)]
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
        return [OPERATORS.document(row) for row in with_status(self.prediction)]

    def chart(self) -> Drawing:
        """Draw where the time and the energy of the pass go, by kind; a notebook shows it.

        Raises:
            InputError: matplotlib is not installed.
        """
        from opdb.api.charts import pass_chart

        return pass_chart(self)

    def rows(self) -> list[dict[str, Json]]:
        """Return `operators()`."""
        return self.operators()

    def document(self, target: float | None = None) -> dict[str, Json]:
        """Return the prediction as data, and whether it meets a target: as one of several."""
        return predictions(target).document(self)

    def to_dict(self, target: float | None = None) -> dict[str, Json]:
        """Return the prediction as data: what `opdb predict --json` prints.

        `target` is a share that coverage should reach, and attribution come within.
        """
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
        return _predicted_blocks(self)


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

    def chart(self) -> Drawing:
        """Draw the time and the energy of each pass with its interval; a notebook shows it.

        Raises:
            InputError: matplotlib is not installed, or nothing has a time.
        """
        from opdb.api.charts import predictions_chart

        return predictions_chart(self.predicted)

    def rows(self) -> list[dict[str, Json]]:
        """Return each prediction as data."""
        return [each.document() for each in self.predicted]

    def to_dict(self, target: float | None = None) -> dict[str, Json]:
        """Return the predictions as data: what `opdb predict --json` prints of several."""
        return {
            "rows": predictions(target).documents(self.predicted),
            "failures": FAILURES.documents(self.failures),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb predict` prints of several."""
        return _compared_blocks(self.predicted)


FITS = {True: "yes", False: "no", None: MISSING}


def _sizes(sizes: int | Collection[int]) -> str:
    return str(sizes) if isinstance(sizes, int) else "x".join(map(str, sizes))


def _view(convolution: Convolution) -> View:
    configuration = convolution.share.configuration
    return get_kind(configuration.kind).view(configuration)


def _share(convolution: Convolution) -> Share:
    return convolution.share


def _mean(quantity: Quantity | None, unit: str) -> str:
    return show(None if quantity is None else quantity.mean, unit)


def _convolutions() -> Table[Convolution]:
    kind, *share = share_columns(_share)
    return Table(
        kind,
        Column(title="input", text=lambda row: _sizes(_view(row).shape())),
        Column(title="weight", text=lambda row: _sizes(_view(row).shape("weight"))),
        Column(title="stride", text=lambda row: _sizes(_view(row)["stride"])),
        *share,
        Column("parameters", lambda row: dict(row.share.configuration.parameters)),
        Column("inputs", lambda row: dict(row.share.configuration.inputs)),
        Column(
            "time_s",
            lambda row: quantity_document(row.cost.time_s),
            title="time of a call",
            text=lambda row: _mean(row.cost.time_s, "s"),
        ),
        Column(
            "energy_j",
            lambda row: quantity_document(row.cost.energy_j),
            title="energy of a call",
            text=lambda row: _mean(row.cost.energy_j, "J"),
        ),
    )


CONVOLUTIONS = _convolutions()
"""A convolution and what a call of it was benched to cost."""

MEASURED: Table[Answer] = Table(
    Column("time_s", lambda row: row.measured and row.measured.time_s.mean),
    Column(
        "energy_j",
        lambda row: row.measured and row.measured.energy_j and row.measured.energy_j.mean,
    ),
    Column("attribution_time", lambda row: row.attribution_time),
    Column("attribution_energy", lambda row: row.attribution_energy),
    Column(
        "host_slowdown",
        lambda row: row.measured and row.measured.slowdown and asdict(row.measured.slowdown),
    ),
)
"""What was measured beside a prediction."""


ON_HOST: Table[OnHost] = Table(
    Column("factor", lambda row: row.factor.factor),
    Column("calls", lambda row: row.factor.calls),
    Column("passes", lambda row: row.factor.passes),
    Column("calibrated_at", lambda row: row.calibrated_at),
    Column("time_s", lambda row: row.time_s),
    Column("host_slowdown", lambda row: row.slowdown and asdict(row.slowdown)),
    Column("slowed_time_s", lambda row: row.slowed_s),
)
"""What a pass takes on this machine's host, in quiet moments and as that was when calibrated."""


def _on_host(found: OnHost) -> str:
    """Say what a pass takes on this machine's host."""
    said = (
        f"on this host, which takes {found.factor.factor:.2f} times as long as that board's: "
        f"{show(found.time_s, 's')} in quiet moments"
    )
    if found.slowed_s is None or found.slowdown is None:
        return said
    return (
        f"{said}, {show(found.slowed_s, 's')} as it was when calibrated ({found.calibrated_at}), "
        f"{found.slowdown.words}"
    )


def _coverage(one: Predicted) -> Json:
    found = one.prediction
    return {
        "calls": found.coverage_calls,
        "time": found.coverage_time,
        "energy": found.coverage_energy,
    }


_ANSWER: tuple[Column[Predicted], ...] = (
    *workload_columns(lambda one: one.prediction.workload),
    Column("device", lambda one: one.prediction.device.slug),
    Column("board", lambda one: one.prediction.board),
    Column("setting", lambda one: dict(one.answer.setting)),
    Column("mode", lambda one: one.prediction.mode, title="mode"),
    Column("complete", lambda one: one.prediction.complete),
    Column(
        "time_s",
        lambda one: one.prediction.time_s,
        title="time",
        text=lambda one: bounded(one.figures, one.figures.time_s, "s"),
    ),
    Column(
        "time_interval_s",
        lambda one: interval_document(one.figures.time_s),
        title="95 % interval",
        unit="s",
    ),
    Column(
        "energy_j",
        lambda one: one.prediction.energy_j,
        title="energy",
        text=lambda one: bounded(one.figures, one.figures.energy_j, "J"),
    ),
    Column("energy_interval_j", lambda one: interval_document(one.figures.energy_j)),
    Column("power_w", lambda one: one.prediction.power_w, title="power", unit="W"),
    Column(
        "coverage",
        _coverage,
        title="coverage",
        text=lambda one: show_share(one.prediction.coverage_time),
        last=True,
    ),
)
"""What was asked, and what is predicted."""

_BASIS: tuple[Column[Predicted], ...] = (
    Column("measured", lambda one: one.answer.measured and MEASURED.document(one.answer)),
    Column("on_host", lambda one: one.on_host and ON_HOST.document(one.on_host)),
    Column("missing", lambda one: SHARES.documents(one.prediction.missing)),
    Column("estimated", lambda one: ESTIMATED.documents(one.prediction.estimated)),
    Column("how_to_measure", lambda one: one.how_to_measure),
    Column("gpu_seconds_to_measure", lambda one: one.gpu_seconds),
    Column("unsupported", lambda one: dict(one.prediction.workload.unsupported)),
    Column(
        "fits",
        lambda one: one.answer.memory.fits,
        title="fits",
        text=lambda one: FITS[one.answer.memory.fits],
        last=True,
    ),
    Column("memory", lambda one: memory_document(one.answer.memory)),
    Column("notes", lambda one: list(one.prediction.notes)),
    *figure_columns(lambda one: one.figures),
    Column(
        title="measured",
        get=lambda one: one.answer.measured and one.answer.measured.time_s.mean,
        unit="s",
        last=True,
    ),
    Column(
        title="predicted / measured",
        get=lambda one: one.answer.attribution_time,
        unit=RATIO,
        last=True,
    ),
)
"""What a prediction rests on, what it comes to by the sample, and what was measured."""


def predictions(target: float | None = None) -> Table[Predicted]:
    """Return the table of predictions; `target` is a share they are to reach, as `meets` says."""
    return Table(
        *_ANSWER,
        Column("target", lambda one: target),
        Column("target_met", lambda one: None if target is None else one.answer.meets(target)),
        *_BASIS,
    )


def lacking_in(answer: Answer) -> list[Configuration]:
    """Return what a bench would measure: what is estimated or missing, and no algorithm refuses."""
    found = answer.prediction
    benched = benched_configurations([found.workload]).keys() - answer.refused.keys()
    lacking = (share.configuration for share in (*found.estimated, *found.missing))
    return [each for each in lacking if each.key in benched]


def _rested_on(found: Predicted) -> str:
    """Say how much of the time is measured and estimated, and what measuring the rest takes."""
    prediction = found.prediction
    shares = {
        "measured": prediction.coverage_time,
        "estimated": sum(share.share_time for share in prediction.estimated),
        "missing": sum(share.share_time for share in prediction.missing),
    }
    said = ", ".join(f"{show_share(share)} {name}" for name, share in shares.items() if share)
    lacking = plural(len(lacking_in(found.answer)), "configuration")
    seconds = "" if found.gpu_seconds is None else f", about {found.gpu_seconds:.0f} GPU-seconds"
    return f"time: {said}; to measure what is missing, on the device ({lacking}{seconds})"


def _predicted_blocks(found: Predicted) -> Iterator[str | Rows[Any]]:
    """Yield what people read of one prediction, the measured truth beside it."""
    from opdb.compose import shortfall

    answer, by = found.answer, found.conditions.algorithm
    prediction, lacks = answer.prediction, shortfall(answer.prediction)
    under = "" if by is None else f"convolutions by {by.name}, "
    yield (
        f"{prediction.workload.name}, {describe(prediction.workload)}, {prediction.mode}, {under}"
        f"on {prediction.device.name} ({prediction.board})"
        + ("" if lacks is None else f": {lacks}")
    )
    yield memory_line(answer.memory)
    alone = LINES.without("measured", "predicted / measured")
    yield Rows(alone if answer.measured is None else LINES, prediction_lines(answer, found.figures))
    if answer.measured is not None and answer.measured.slowdown is not None:
        yield f"host: when this was measured, it took {answer.measured.slowdown.words}"
    if found.on_host is not None:
        yield _on_host(found.on_host)
    yield (
        f"coverage: calls {show_share(prediction.coverage_calls)}, "
        f"time {show_share(prediction.coverage_time)}, "
        f"energy {show_share(prediction.coverage_energy)}"
    )
    if found.convolutions and by is not None:
        yield f"convolutions by {by.name}, a call as it was benched:"
        yield from first_rows(CONVOLUTIONS, found.convolutions)
    yield from estimated_blocks(prediction.estimated)
    yield from missing_blocks(prediction.missing)
    for each in prediction.notes:
        yield f"note: {each}"
    if commands := found.how_to_measure:
        yield f"{_rested_on(found)}: {commands}"
    if found.layers is not None:
        from opdb.api.layered import layers_blocks

        yield from layers_blocks(found.layers, found.conditions.top)


def _compared_blocks(predicted: Sequence[Predicted]) -> Iterator[str | Rows[Any]]:
    """Yield one row a prediction; columns in which no prediction has anything are left out."""
    places = dict.fromkeys(
        f"{p.device.name} ({p.board})" for p in (each.prediction for each in predicted)
    )
    for place in places:
        yield f"on {place}"
    if predicted:
        table = predictions()
        empty = [
            column.title
            for column in table.columns
            if column.title and all(column.cell(each) == MISSING for each in predicted)
        ]
        yield Rows(table.without(*empty), predicted)
