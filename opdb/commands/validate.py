"""`opdb validate`: predictions held against measured runs, and what they rest on against others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from opdb.cli import console, options
from opdb.commands.predict import Tell, check_share
from opdb.derive.boards import Agreement, Factor, Factors, Pair, agreement, pairs
from opdb.derive.boards import in_words as factors_in_words
from opdb.derive.runs import Launches, RunCost
from opdb.errors import CheckError, InputError, UnknownNameError
from opdb.garbage import gc_off_to_the_end
from opdb.records import Json, Mode, ModelRun, Workload
from opdb.spec import describe, parse_mode, workload_columns
from opdb.tables import RATIO, SHARE, Column, Report, Rows, Table
from opdb.units import plural, short_board, show_ratio, show_share

if TYPE_CHECKING:
    from opdb.commands._left_out import Leaving
    from opdb.predict.peers import Regime
    from opdb.predict.predictor import Answer, Predictor, Transfer
    from opdb.store import Store

PANEL = "predict"

Measure = Literal["time", "energy"]
Origin = Literal["own", "borrowed"]

MEASURES: tuple[Measure, ...] = ("time", "energy")
ORIGINS: tuple[Origin, ...] = ("own", "borrowed")
"""Whether a run's board measured all its operators, or costs of other boards stand in for some."""


@dataclass(frozen=True)
class Held:
    """A prediction against its run, for time or energy: relative error, interval (relative).

    `model_error_share` is the share of the squared width that other models' errors make.
    """

    error: float
    inside: bool | None = None
    half_width: float | None = None
    model_error_share: float | None = None


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors of `count` predictions, the share of runs that intervals hold.

    `median_half_width` is relative to the prediction, `model_error_share` the median share of the
    squared width that other models' errors make. All are None where there is no interval.
    """

    count: int
    median: float
    percentile_95: float
    largest: float
    inside_interval: float | None
    median_half_width: float | None
    model_error_share: float | None


@dataclass(frozen=True)
class Group:
    """Runs of one regime, alike in whose operators they rest on, and their errors."""

    regime: Regime
    operators: Origin
    runs: int
    errors: dict[Measure, Errors | None]


def is_whole(answer: Answer) -> bool:
    """Return whether every call of a run is described, and measured."""
    return not (answer.prediction.missing or answer.prediction.workload.unsupported)


def held(answer: Answer, measure: Measure) -> Held | None:
    """Hold a prediction against its run; None where either is not known."""
    found, ratio = answer.prediction, attribution(answer, measure)
    if ratio is None:
        return None
    value, interval, widths = found.time_s, found.time_interval_s, found.widths_time
    if measure == "energy":
        value, interval, widths = found.energy_j, found.energy_interval_j, found.widths_energy
    if interval is None or not value or not interval[0]:
        return Held(abs(ratio - 1))
    low, high = interval
    either = sum(width**2 for width in widths) / 2
    share = 1 - either / (math.log(high / low) / 2) ** 2
    return Held(abs(ratio - 1), inside(answer, measure), (high - low) / 2 / value, share)


def inside(answer: Answer, measure: Measure) -> bool | None:
    """Return whether the interval holds what was measured; None where either is not known."""
    return answer.inside_time if measure == "time" else answer.inside_energy


def attribution(answer: Answer, measure: Measure) -> float | None:
    """Return predicted / measured; None where either is not known."""
    return answer.attribution_time if measure == "time" else answer.attribution_energy


def errors_of(answers: Iterable[Answer], measure: Measure) -> Errors | None:
    """Return how far predictions are off, and how often their intervals hold; None of none."""
    found = [each for answer in answers if (each := held(answer, measure)) is not None]
    if not found:
        return None
    ordered = sorted(each.error for each in found)
    holds = [each.inside for each in found if each.inside is not None]
    widths = [each.half_width for each in found if each.half_width is not None]
    shares = [each.model_error_share for each in found if each.model_error_share is not None]
    return Errors(
        count=len(ordered),
        median=statistics.median(ordered),
        percentile_95=statistics.quantiles(ordered, n=20, method="inclusive")[-1]
        if len(ordered) > 1
        else ordered[0],
        largest=ordered[-1],
        inside_interval=statistics.fmean(holds) if holds else None,
        median_half_width=statistics.median(widths) if widths else None,
        model_error_share=statistics.median(shares) if shares else None,
    )


def both(answers: Sequence[Answer]) -> dict[Measure, Errors | None]:
    """Return the errors of time and of energy."""
    return {measure: errors_of(answers, measure) for measure in MEASURES}


def groups(answers: Iterable[Answer]) -> list[Group]:
    """Return answers by whose operators they rest on and by regime, as far as there are any."""
    from opdb.predict.peers import BATCHES, FAMILIES, Regime, regime_of

    by_place: dict[tuple[Origin, Regime], list[Answer]] = {}
    for answer in answers:
        regime = regime_of(answer.prediction.workload, answer.prediction.mode)
        origin: Origin = "borrowed" if answer.brought else "own"
        by_place.setdefault((origin, regime), []).append(answer)
    places = [(o, Regime(f, b)) for o in ORIGINS for f in FAMILIES for b in BATCHES]
    return [
        Group(regime, origin, len(found), both(found))
        for origin, regime in places
        if (found := by_place.get((origin, regime)))
    ]


_ORIGINS = {"own": "that board", "borrowed": "another, too"}


def _truth(answer: Answer) -> RunCost:
    assert answer.measured is not None
    return answer.measured


def _listed(interval: tuple[float, float] | None) -> Json:
    return None if interval is None else list(interval)


def _asdict(found: Any) -> Json:
    return found and asdict(found)


_RUN: tuple[Column[Answer], ...] = (
    *workload_columns(lambda answer: answer.prediction.workload),
    Column("mode", lambda answer: answer.prediction.mode, title="mode"),
    Column(
        "board",
        lambda answer: answer.prediction.board,
        title="board",
        text=lambda answer: short_board(answer.prediction.board),
    ),
)

RUNS: Table[Answer] = Table(
    *_RUN,
    Column("coverage_calls", lambda answer: answer.prediction.coverage_calls),
    Column("brought", lambda answer: answer.brought),
    Column("predicted_time_s", lambda a: a.prediction.time_s, title="time", unit="s"),
    Column("measured_time_s", lambda a: _truth(a).time_s.mean, title="measured", unit="s"),
    Column(
        "attribution_time",
        lambda a: a.attribution_time,
        title="ratio",
        text=lambda a: show_ratio(a.attribution_time, a.inside_time),
    ),
    Column("predicted_energy_j", lambda a: a.prediction.energy_j, title="energy", unit="J"),
    Column(
        "measured_energy_j",
        lambda a: (of := _truth(a).energy_j) and of.mean,
        title="measured",
        unit="J",
    ),
    Column(
        "attribution_energy",
        lambda a: a.attribution_energy,
        title="ratio",
        text=lambda a: show_ratio(a.attribution_energy, a.inside_energy),
    ),
    Column("time_interval_s", lambda answer: _listed(answer.prediction.time_interval_s), unit="s"),
    Column(
        "energy_interval_j", lambda answer: _listed(answer.prediction.energy_interval_j), unit="J"
    ),
    Column("inside_interval_time", lambda answer: inside(answer, "time")),
    Column("inside_interval_energy", lambda answer: inside(answer, "energy")),
    Column("repeat_spread", lambda answer: _truth(answer).spread),
    Column("host_slowdown", lambda answer: _asdict(_truth(answer).slowdown)),
    Column("flags", lambda answer: list(_truth(answer).flags)),
)
"""A measured run beside its prediction."""

INCOMPLETE: Table[Answer] = Table(
    *_RUN,
    Column(
        "coverage_calls",
        lambda answer: answer.prediction.coverage_calls,
        title="calls covered",
        unit=SHARE,
    ),
)
"""A measured run with calls that were never measured."""


def _errors(measure: Measure) -> tuple[Column[Group], ...]:
    """Return the columns of a regime's errors: median, 95th percentile, largest; the intervals'."""

    def of(group: Group) -> Errors | None:
        return group.errors[measure]

    def in_percent(group: Group) -> str:
        if (found := of(group)) is None:
            return "–"
        shares = (found.median, found.percentile_95, found.largest)
        return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"

    def share(name: str) -> Any:
        return lambda group: show_share(getattr(of(group), name, None))

    return (
        Column(measure, lambda g: _asdict(of(g)), title=f"{measure}: error", text=in_percent),
        Column(title="inside", text=share("inside_interval")),
        Column(title="±", text=share("median_half_width")),
    )


REGIMES: Table[Group] = Table(
    Column(
        "operators",
        lambda group: group.operators,
        title="operators of",
        text=lambda group: _ORIGINS[group.operators],
    ),
    Column("mode", lambda group: group.regime.family, title="mode"),
    Column("batch", lambda group: group.regime.batch, title="batch"),
    Column("runs", lambda group: group.runs, title="runs"),
    *_errors("time"),
    *_errors("energy"),
)
"""The errors of the runs of one regime."""


@dataclass(frozen=True)
class Validation(Report):
    """Answers with their measured runs: whole ones are judged, the others listed apart."""

    answers: Sequence[Answer]

    @cached_property
    def whole(self) -> list[Answer]:
        """The runs of which every call is measured."""
        return [answer for answer in self.answers if is_whole(answer)]

    @cached_property
    def incomplete(self) -> list[Answer]:
        """The runs with calls that were never measured, or that no operator describes."""
        return [answer for answer in self.answers if not is_whole(answer)]

    @cached_property
    def uneven(self) -> list[Answer]:
        """The whole runs whose repeats do not agree."""
        return [answer for answer in self.whole if _truth(answer).is_uneven]

    @cached_property
    def summary(self) -> Mapping[Measure, Errors | None]:
        return both(self.whole)

    def check(self, within: float) -> None:
        found = [errors.largest for errors in self.summary.values() if errors]
        if not found:
            raise CheckError("no run has all its calls measured, so no error can be told")
        if max(found) > within:
            raise CheckError(
                f"largest error {show_share(max(found))}, asked for {show_share(within)}"
            )

    def to_dict(self) -> Json:
        of_uneven = {name: _asdict(errors) for name, errors in both(self.uneven).items()}
        return {
            "rows": RUNS.documents(self.whole),
            "incomplete": RUNS.documents(self.incomplete),
            "summary": {name: _asdict(errors) for name, errors in self.summary.items()},
            "regimes": REGIMES.documents(groups(self.whole)),
            "uneven": {"runs": len(self.uneven), **of_uneven},
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        if self.whole:
            places = [(a.prediction.workload.key, a.prediction.mode) for a in self.whole]
            on_several_boards = len(set(places)) < len(places)
            yield Rows(RUNS if on_several_boards else RUNS.without("board"), self.whole)
            yield Rows(REGIMES, groups(self.whole))
        yield from self._in_words()
        if self.incomplete:
            count = plural(len(self.incomplete), "run")
            yield f"left out, for not all calls are measured: {count}"
            yield Rows(INCOMPLETE, self.incomplete)

    def _in_words(self) -> Iterator[str]:
        runs = plural(len(self.whole), "run")
        if borrowed := sum(answer.brought > 0 for answer in self.whole):
            yield (
                f"{runs}, {borrowed} of them with costs of operators that only other boards "
                "measured"
            )
        if self.uneven:
            yield f"{plural(len(self.uneven), 'run')} of which no three repeats agree within 3 %"
        for name, errors in self.summary.items():
            if errors:
                yield (
                    f"{name}: median error {show_share(errors.median)}, "
                    f"95th percentile {show_share(errors.percentile_95)}, "
                    f"largest {show_share(errors.largest)}; "
                    f"inside the interval {show_share(errors.inside_interval)} of {errors.count}"
                )


SHOWN = 12
"""How many kernels of a run people are shown; `to_dict()` has all."""

UNCOMPILED = "what the models are compiled to is not known (opdb harvest … --mode compile)"


# Duplicates


def _of_kind(measure: Measure) -> tuple[Column[OfKind], ...]:
    def share(name: str) -> Callable[[OfKind], str]:
        return lambda row: show_share(getattr(row[1].agreement(measure), name, None))

    return (
        Column(title=f"{measure}: inside", text=share("share_inside")),
        Column(title="median apart", text=share("median_difference")),
    )


@dataclass(frozen=True)
class Duplicates(Report):
    """Pairs of independent measurements of one configuration, and its kind: do they agree?"""

    pairs: Sequence[tuple[Pair, str]]

    def agreement(self, measure: Measure) -> Agreement | None:
        """Return how often the pairs' intervals hold, and how far apart they are."""
        return agreement(getattr(pair, measure) for pair, _ in self.pairs)

    def to_dict(self) -> Json:
        found = {measure: self.agreement(measure) for measure in MEASURES}
        summary: dict[str, Json] = {"pairs": len(self.pairs)}
        summary |= {f"share_inside_{m}": a and a.share_inside for m, a in found.items()}
        summary |= {f"median_difference_{m}": a and a.median_difference for m, a in found.items()}
        return {"duplicates": summary, "rows": PAIRS.documents(self.pairs)}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        by_kind: dict[str, list[tuple[Pair, str]]] = {}
        for pair, kind in self.pairs:
            by_kind.setdefault(kind, []).append((pair, kind))
        kinds = [(kind, Duplicates(of_kind)) for kind, of_kind in sorted(by_kind.items())]
        yield Rows(KINDS, [*kinds, ("all", self)])
        yield "inside: two independent measurements agree within their combined 95 % interval"


OfKind = tuple[str, Duplicates]


def _difference(measure: Measure) -> Column[tuple[Pair, str]]:
    def document(row: tuple[Pair, str]) -> Json:
        found = getattr(row[0], measure)
        return found and {"difference": found.relative, "inside": found.inside}

    return Column(measure, document)


PAIRS: Table[tuple[Pair, str]] = Table(
    Column("kind", lambda row: row[1]),
    Column("configuration", lambda row: row[0].configuration),
    Column("setting", lambda row: row[0].setting),
    Column("board", lambda row: row[0].board),
    *map(_difference, MEASURES),
)
"""A configuration that was measured twice over."""

KINDS: Table[OfKind] = Table(
    Column("kind", lambda row: row[0], title="kind"),
    Column("pairs", lambda row: len(row[1].pairs), title="pairs"),
    *_of_kind("time"),
    *_of_kind("energy"),
)
"""The pairs of one kind."""


def duplicates(store: Store, predictor: Predictor, models: Collection[str] = ()) -> Duplicates:
    """Compare independent measurements of one configuration, of these models or of all."""
    from opdb.store import VisitFilter

    found: list[Pair] = []
    for board in store.boards(predictor.device.slug):
        if store.outcomes(VisitFilter(board.device, board=board.uuid, role="duplicate")):
            found += pairs(store.campaigns(board=board.uuid), store.visits(board.uuid))
    kinds = {c.key: c.kind for c in store.configurations()}
    if models:
        wanted = {c.key for n in models for w in store.workloads(n) for c in w.occurrences()}
        found = [pair for pair in found if pair.configuration in wanted]
    if not found:
        raise InputError("nothing was measured twice over yet; opdb bench does so on the device")
    return Duplicates([(pair, kinds[pair.configuration]) for pair in found])


# Other boards

HOWS = ("raw", "factored")
"""How another board's costs were taken: as they are, and multiplied by factors."""


def _attribution(transfer: Transfer, how: str, measure: Measure) -> float | None:
    answer = transfer.raw if how == "raw" else transfer.brought
    return attribution(answer, measure)


def _ratio(how: str, measure: Measure) -> Column[Transfer]:
    title = measure if how == "raw" else "by factors"
    return Column(
        f"{how}_{measure}", lambda each: _attribution(each, how, measure), title=title, unit=RATIO
    )


def _factor(factor: Factor) -> Json:
    return {"value": factor.value, "spread": factor.spread, "anchors": factor.count}


TRANSFERS: Table[Transfer] = Table(
    *workload_columns(lambda each: each.raw.prediction.workload),
    Column("mode", lambda each: each.raw.prediction.mode, title="mode"),
    Column("from", lambda each: each.origin, title="from", text=lambda t: short_board(t.origin)),
    Column(
        "board",
        lambda each: each.raw.prediction.board,
        title="to",
        text=lambda each: short_board(each.raw.prediction.board),
    ),
    *(_ratio(how, measure) for measure in MEASURES for how in HOWS),
    Column(
        "factors",
        lambda each: {
            "base_power": each.factors.base_power,
            "time": _factor(each.factors.time),
            "dynamic_energy": _factor(each.factors.dynamic_energy),
        },
    ),
)
"""A run predicted from another board's costs."""


@dataclass(frozen=True)
class Transfers(Report):
    """Runs predicted from other boards' costs, as these are and multiplied by factors."""

    transfers: Sequence[Transfer]

    @cached_property
    def summary(self) -> dict[Measure, dict[str, Json]]:
        """The median and the largest error of time and energy, for both ways."""
        return {
            measure: {
                how: _median_and_largest(_attribution(t, how, measure) for t in self.transfers)
                for how in HOWS
            }
            for measure in MEASURES
        }

    def to_dict(self) -> Json:
        return {"transfers": TRANSFERS.documents(self.transfers), "summary": self.summary}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield Rows(TRANSFERS, self.transfers)
        between: dict[tuple[str, str], Factors] = {}
        for each in self.transfers:
            between.setdefault((each.raw.prediction.board, each.origin), each.factors)
        for (board, origin), by in between.items():
            yield f"from {short_board(origin)} to {short_board(board)}: {factors_in_words(by)}"
        for measure, errors in self.summary.items():
            raw, factored = errors["raw"], errors["factored"]
            if raw and factored:
                yield (
                    f"{measure}: median error {show_share(raw['median'])} as it is, "
                    f"{show_share(factored['median'])} by factors; largest "
                    f"{show_share(raw['largest'])} and {show_share(factored['largest'])}"
                )


def _median_and_largest(ratios: Iterable[float | None]) -> Json:
    errors = [abs(ratio - 1) for ratio in ratios if ratio is not None]
    if not errors:
        return None
    return {"count": len(errors), "median": statistics.median(errors), "largest": max(errors)}


def transfers(store: Store, predictor: Predictor, models: Collection[str] = ()) -> Transfers:
    """Predict the runs of these models, or of all, from another board's costs alone."""
    found = predictor.transfers(models)
    if not found:
        raise InputError("no measured run is covered by the costs of another board of the device")
    return Transfers(found)


# The same kernels

Launched = tuple[Workload, ModelRun, Launches]


KERNELS: Table[Launched] = Table(
    *workload_columns(lambda row: row[0]),
    Column("mode", lambda row: row[1].mode, title="mode"),
    Column("run", lambda row: row[1].id),
    Column("launched", lambda row: row[2].launched, title="kernels"),
    Column("agree", lambda row: row[2].agree),
    Column(
        "model_alone",
        lambda row: dict(row[2].model),
        title="not its operators'",
        text=lambda row: sum(row[2].model.values()),
    ),
    Column(
        "operators_alone",
        lambda row: dict(row[2].operators),
        title="its operators' alone",
        text=lambda row: "unknown" if row[2].unseen else sum(row[2].operators.values()),
    ),
    Column("unseen", lambda row: list(row[2].unseen)),
)
"""A run and the kernels that it launched."""


@dataclass(frozen=True)
class SameKernels(Report):
    """Runs, and the kernels that a model launched and its operators did not, or reversed."""

    runs: Sequence[Launched]

    def to_dict(self) -> Json:
        return {"kernels": KERNELS.documents(self.runs)}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield Rows(KERNELS, self.runs)
        for workload, run, launches in self.runs:
            if launches.agree:
                continue
            yield ""
            yield f"{workload.name} {describe(workload)} {run.mode}: {in_words(launches)}"
            for whose, kernels in (("model", launches.model), ("operators", launches.operators)):
                for name, count in list(kernels.items())[:SHOWN]:
                    yield f"  {whose} {count} × {name}"
        same = sum(launches.agree for _, _, launches in self.runs)
        of_all = f"{same} of {len(self.runs)}"
        yield f"runs that launched exactly the kernels of their operators: {of_all}"


def same_kernels(store: Store, predictor: Predictor, models: Collection[str] = ()) -> SameKernels:
    """Compare the kernels that runs of these models, or of all, launched with their operators'."""
    found = [
        (workload, run, launches)
        for workload, run in predictor.runs(models)
        if (launches := predictor.launches(workload, run)) is not None
    ]
    if not found:
        raise InputError("no measured run saw its kernels; run opdb measure on a GPU")
    return SameKernels(found)


def in_words(launches: Launches) -> str:
    """Say in one line how a model's kernels differ from its operators'."""
    said = [
        "kernels that are not its operators': "
        f"{sum(launches.model.values())} of {launches.launched}",
        f"its operators' that are not the model's: {sum(launches.operators.values())}",
    ]
    if launches.unseen:
        unseen = plural(len(launches.unseen), "configuration")
        said.append(f"of {unseen} the kernels are not known yet")
    return ", ".join(said)


def validate(
    *models: str,
    modes: Sequence[str] = (),
    device: str | None = None,
    db: str | None = None,
    tell: Tell | None = None,
) -> Validation:
    """Hold predictions against measured runs, as `opdb validate` does; no model means all.

    Each board's run is held against what is predicted for that board, its own run left aside.
    `check(within)` of what is returned raises where an error is larger than that share.
    """
    from opdb.predict.predictor import check_mode, predictor_for
    from opdb.store import open_store

    chosen = [parse_mode(mode) for mode in modes]
    for mode in chosen:
        check_mode(mode)
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        found, left_out = validation(predictor, known_models(store, models), chosen)
    if left_out is not None and tell is not None:
        tell(left_out)
    return found


def known_models(store: Store, models: Sequence[str]) -> list[str]:
    """Return the models."""
    known = store.workload_names()
    for name in models:
        if name not in known:
            raise UnknownNameError("model", name, known)
    return list(models)


def validation(
    predictor: Predictor, models: Sequence[str], modes: Sequence[Mode]
) -> tuple[Validation, str | None]:
    """Hold predictions against measured runs; say in words which runs are left out, if any."""
    from opdb.predict.predictor import MODES

    answers = predictor.answers(models, modes or MODES)
    unknown = predictor.uncompiled(modes or MODES)
    left = f"left out: {plural(unknown, 'run')} in modes that compile: {UNCOMPILED}"
    if not answers:
        run_first = "no measured run to validate against; run opdb measure on the device"
        raise InputError(f"{run_first}; {left}" if unknown else run_first)
    return Validation(answers), left if unknown else None


@dataclass(frozen=True)
class ValidateArguments:
    """What predictions are held against, or which other check is made instead."""

    within: Annotated[
        float | None,
        typer.Option(
            "--within", metavar="SHARE", help="Exit 1 if an error of time or energy is larger."
        ),
    ] = None
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="Instead: how often two independent measurements agree within their intervals.",
        ),
    ] = False
    transfer: Annotated[
        bool,
        typer.Option(
            "--transfer",
            help="Instead: predict each run from another board's costs, with and without factors.",
        ),
    ] = False
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Instead: kernels that a model launched and its operators did not, or reversed.",
        ),
    ] = False
    estimates: Annotated[
        str | None,
        typer.Option(
            "--estimates",
            metavar="WHAT",
            help="Instead: leave out one model, family or batch_size after the other, and predict "
            "it with estimates learned from the rest; beside simpler rules.",
        ),
    ] = None
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            autocompletion=options.predicted_modes,
            help="Runs in these modes alone, as in compile,graph.  [default: all predicted ones]",
        ),
    ] = None

    def check(self) -> tuple[Mode, ...]:
        from opdb.predict.predictor import check_mode

        check_share("--within", self.within)
        if self.estimates is not None:
            from opdb.commands._left_out import NAMES

            if self.estimates not in NAMES:
                raise UnknownNameError("group to leave out", self.estimates, NAMES)
        modes = options.parse_modes(self.modes)
        others = self.duplicates + self.transfer + self.kernels + (self.estimates is not None)
        if others + (self.within is not None) > 1:
            raise InputError(
                "--duplicates, --transfer, --kernels, --estimates and --within: give one at a time"
            )
        if modes and others:
            raise InputError(
                "--mode is about the table of predictions; give it without other checks"
            )
        for mode in modes:
            check_mode(mode)
        return modes


@gc_off_to_the_end()
def run(
    models: Annotated[
        list[str] | None,
        options.models("Models.  [default: all]"),
    ] = None,
    asked: ValidateArguments = ValidateArguments(),
    device: options.DeviceName = None,
    out: options.Output = options.Output(),
) -> None:
    """Hold predictions against the measured runs of models: all runs, and their errors by regime.

    Each board's run of a workload is held against what is predicted for that board, from its own
    operators' costs; runs for which other boards' costs stand in are counted apart. Intervals rest
    on other models alone.
    Runs with calls that were never measured, or that no operator describes, are listed apart.
    Four further checks look at what predictions rest on; each prints a table of its own.
    """
    from opdb.predict.predictor import predictor_for
    from opdb.store import open_store

    chosen = asked.check()
    checks: dict[str, Callable[[Store, Predictor, list[str]], Report]] = {
        "duplicates": duplicates,
        "transfer": transfers,
        "kernels": same_kernels,
    }
    with open_store(out.db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        of, left_out = known_models(store, models or []), None
        found: Report
        if check := next((check for name, check in checks.items() if getattr(asked, name)), None):
            found = check(store, predictor, of)
        elif asked.estimates is not None:
            from opdb.commands._left_out import estimation

            leaving, display = cast("Leaving", asked.estimates), console.Terminal(quiet=out.quiet)
            found = estimation(store, predictor, of, leaving, display)
        else:
            found, left_out = validation(predictor, of, chosen)
    if left_out is not None:
        console.note(left_out, quiet=out.quiet or out.as_json)
    console.show(found, as_json=out.as_json)
    if asked.within is not None and isinstance(found, Validation):
        found.check(asked.within)
