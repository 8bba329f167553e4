"""`opdb validate`: predictions held against measured runs, and what they rest on against others."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Literal, NamedTuple

import typer

from opdb.cli import console, options
from opdb.commands import _lazy as lazy
from opdb.commands.predict import Tell, check_share, predicting
from opdb.derive.boards import DuplicatePair, agreement, pairs
from opdb.derive.runs import Launches, RunCost
from opdb.errors import CheckError, InputError, UnknownNameError
from opdb.predict.figures import Amount, energy_of, time_of
from opdb.records import Json, Mode, ModelRun, Workload
from opdb.spec import parse_mode, workload_columns
from opdb.tables import Column, Listing, Report, Rows, Table, quantity
from opdb.units import plural, short_board, show_ratio, show_share

PANEL = "predict"

Measure = Literal["time", "energy"]
CostOrigin = Literal["own", "borrowed"]

MEASURES: tuple[Measure, ...] = ("time", "energy")
ORIGINS: Mapping[CostOrigin, str] = {"own": "that board", "borrowed": "another, too"}
"""Whether a run's board measured all its operators, or costs of other boards stand in for some."""


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors of `count` predictions, the share of runs that intervals hold.

    `median_half_width` is relative to the prediction. Both are None where there is no interval.
    """

    count: int
    median: float
    percentile_95: float
    largest: float
    inside_interval: float | None
    median_half_width: float | None


class Group(NamedTuple):
    """Runs of one regime, alike in whose operators they rest on, and their errors."""

    regime: lazy.predictor.Regime
    operators: CostOrigin
    runs: int
    errors: dict[Measure, Errors | None]


def is_whole(answer: lazy.predictor.Answer) -> bool:
    """Return whether every call of a run is described, and measured."""
    return not (answer.prediction.missing or answer.prediction.workload.unsupported)


def inside(answer: lazy.predictor.Answer, measure: Measure) -> bool | None:
    """Return whether the interval holds what was measured; None where either is not known."""
    return answer.inside_time if measure == "time" else answer.inside_energy


def attribution(answer: lazy.predictor.Answer, measure: Measure) -> float | None:
    """Return predicted / measured; None where either is not known."""
    return answer.attribution_time if measure == "time" else answer.attribution_energy


def errors_of(answers: Iterable[lazy.predictor.Answer], measure: Measure) -> Errors | None:
    """Return how far predictions are off, and how often their intervals hold; None of none."""
    errors, holds, widths = [], [], []
    for answer in answers:
        ratio, found = attribution(answer, measure), predicted(answer, measure)
        if ratio is None:
            continue
        errors.append(abs(ratio - 1))
        if found is not None and found.interval and found.value and found.interval[0]:
            low, high = found.interval
            holds.append(bool(inside(answer, measure)))
            widths.append((high - low) / 2 / found.value)
    if not errors:
        return None
    ordered = sorted(errors)
    return Errors(
        count=len(ordered),
        median=statistics.median(ordered),
        percentile_95=statistics.quantiles(ordered, n=20, method="inclusive")[-1]
        if len(ordered) > 1
        else ordered[0],
        largest=ordered[-1],
        inside_interval=statistics.fmean(holds) if holds else None,
        median_half_width=statistics.median(widths) if widths else None,
    )


def both(answers: Sequence[lazy.predictor.Answer]) -> dict[Measure, Errors | None]:
    """Return the errors of time and of energy."""
    return {measure: errors_of(answers, measure) for measure in MEASURES}


def groups(answers: Iterable[lazy.predictor.Answer]) -> list[Group]:
    """Return answers by whose operators they rest on and by regime, as far as there are any."""
    by_place: dict[tuple[CostOrigin, lazy.predictor.Regime], list[lazy.predictor.Answer]] = {}
    for answer in answers:
        regime = lazy.predictor.regime_of(answer.prediction.workload, answer.prediction.mode)
        origin: CostOrigin = "borrowed" if answer.brought else "own"
        by_place.setdefault((origin, regime), []).append(answer)
    families, batches = lazy.predictor.FAMILIES, lazy.predictor.BATCHES

    def order(place: tuple[CostOrigin, lazy.predictor.Regime]) -> tuple[int, int, int]:
        origin, (family, batch) = place
        return list(ORIGINS).index(origin), families.index(family), batches.index(batch)

    return [
        Group(place[1], place[0], len(by_place[place]), both(by_place[place]))
        for place in sorted(by_place, key=order)
    ]


def _truth(answer: lazy.predictor.Answer) -> RunCost:
    assert answer.measured is not None
    return answer.measured


def predicted(answer: lazy.predictor.Answer, measure: Measure) -> Amount | None:
    """Return the predicted time or energy of a pass, with its interval."""
    return (time_of if measure == "time" else energy_of)(answer.prediction)


def _asdict(found: Any) -> Json:
    return found and asdict(found)


RUNS: Table[lazy.predictor.Answer] = Table(
    *workload_columns(lambda answer: answer.prediction.workload),
    Column("mode", lambda answer: answer.prediction.mode, title="mode"),
    Column(
        "board",
        lambda answer: answer.prediction.board,
        title="board",
        text=lambda answer: short_board(answer.prediction.board),
    ),
    Column("coverage_calls", lambda answer: answer.prediction.coverage_calls),
    Column("brought", lambda answer: answer.brought),
    quantity("predicted_time_s", "s", partial(predicted, measure="time"), title="time"),
    Column("measured_time_s", lambda a: _truth(a).time_s.mean, title="measured", unit="s"),
    Column(
        "attribution_time",
        lambda a: a.attribution_time,
        title="ratio",
        text=lambda a: show_ratio(a.attribution_time, a.inside_time),
    ),
    quantity("predicted_energy_j", "J", partial(predicted, measure="energy"), title="energy"),
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
    Column("inside_interval_time", lambda answer: inside(answer, "time")),
    Column("inside_interval_energy", lambda answer: inside(answer, "energy")),
    Column("repeat_spread", lambda answer: _truth(answer).spread),
    Column("host_slowdown", lambda answer: _truth(answer).slowdown),
    Column("flags", lambda answer: list(_truth(answer).flags)),
)


def _errors(measure: Measure) -> tuple[Column[Group], ...]:
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
        text=lambda group: ORIGINS[group.operators],
    ),
    Column("mode", lambda group: group.regime.family, title="mode"),
    Column("batch", lambda group: group.regime.batch, title="batch"),
    Column("runs", lambda group: group.runs, title="runs"),
    *_errors("time"),
    *_errors("energy"),
)


@dataclass(frozen=True)
class Validation(Report):
    """Answers with their measured runs: whole ones are judged, the others listed apart."""

    answers: Sequence[lazy.predictor.Answer]

    @cached_property
    def whole(self) -> list[lazy.predictor.Answer]:
        return [answer for answer in self.answers if is_whole(answer)]

    @cached_property
    def incomplete(self) -> list[lazy.predictor.Answer]:
        """The runs with calls that were never measured, or that no operator describes."""
        return [answer for answer in self.answers if not is_whole(answer)]

    @cached_property
    def summary(self) -> Mapping[Measure, Errors | None]:
        return both(self.whole)

    def check_within(self, within: float) -> None:
        found = [errors.largest for errors in self.summary.values() if errors]
        if not found:
            raise CheckError("no run has all its calls measured, so no error can be told")
        if max(found) > within:
            raise CheckError(
                f"largest error {show_share(max(found))}, asked for {show_share(within)}"
            )

    def to_dict(self) -> Json:
        return {
            "rows": RUNS.documents(self.whole),
            "incomplete": RUNS.documents(self.incomplete),
            "summary": {measure: _asdict(found) for measure, found in self.summary.items()},
            "regimes": REGIMES.documents(groups(self.whole)),
            "uneven": {"runs": sum(_truth(answer).is_uneven for answer in self.whole)},
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        if self.whole:
            yield Rows(RUNS, self.whole)
            yield Rows(REGIMES, groups(self.whole))
        for measure, found in self.summary.items():
            if found:
                yield (
                    f"{measure}: median error {show_share(found.median)}, "
                    f"95th percentile {show_share(found.percentile_95)}, "
                    f"largest {show_share(found.largest)}; "
                    f"inside the interval {show_share(found.inside_interval)} of {found.count}"
                )
        if self.incomplete:
            count = plural(len(self.incomplete), "run")
            yield f"left out, for not all calls are measured: {count} (--json lists them)"


def _difference(measure: Measure) -> Column[tuple[DuplicatePair, str]]:
    def document(row: tuple[DuplicatePair, str]) -> Json:
        found = getattr(row[0], measure)
        return found and {"difference": found.relative, "inside": found.inside}

    return Column(measure, document)


PAIRS: Table[tuple[DuplicatePair, str]] = Table(
    Column("kind", lambda row: row[1]),
    Column("configuration", lambda row: row[0].measured.configuration),
    Column("setting", lambda row: row[0].measured.setting),
    Column("board", lambda row: row[0].measured.board),
    *map(_difference, MEASURES),
)


def _duplicates(
    store: lazy.store.Store, predictor: lazy.predictor.Predictor, models: Collection[str]
) -> Listing:
    found: list[DuplicatePair] = []
    for board in store.boards(predictor.device.slug):
        if store.outcomes(board.device, board=board.uuid, role="duplicate"):
            found += pairs(store.campaigns(board=board.uuid), store.visits(board.uuid))
    if models:
        wanted = {c.key for n in models for w in store.workloads(n) for c in w.occurrences()}
        found = [pair for pair in found if pair.measured.configuration in wanted]
    if not found:
        raise InputError("nothing was measured twice over yet; opdb bench does so on the device")
    kind_of = {c.key: c.kind for c in store.configurations()}
    named = [(pair, kind_of[pair.measured.configuration]) for pair in found]
    summary: dict[str, Json] = {"pairs": len(named)}
    lines = []
    for measure in MEASURES:
        of = agreement(getattr(pair, measure) for pair in found)
        summary[f"share_inside_{measure}"] = of and of.share_inside
        summary[f"median_difference_{measure}"] = of and of.median_difference
        if of is not None:
            lines.append(
                f"{measure}: {show_share(of.share_inside)} of {of.pairs} pairs of independent "
                "measurements agree within their combined 95 % interval, "
                f"{show_share(of.median_difference)} apart at the median"
            )
    return Listing({"duplicates": summary, "rows": PAIRS.documents(named)}, lines)


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


def _same_kernels(
    store: lazy.store.Store, predictor: lazy.predictor.Predictor, models: Collection[str]
) -> Listing:
    found = [
        (workload, run, launches)
        for workload, run in predictor.runs(models)
        if (launches := predictor.launches(workload, run)) is not None
    ]
    if not found:
        raise InputError("no measured run saw its kernels; run opdb measure on a GPU")
    parts: list[str | Rows[Any]] = [Rows(KERNELS, found)]
    same = sum(launches.agree for _, _, launches in found)
    parts.append(
        f"runs that launched exactly the kernels of their operators: {same} of {len(found)}"
    )
    return Listing({"kernels": KERNELS.documents(found)}, parts)


def validate(
    *models: str,
    modes: Sequence[str] = (),
    device: str | None = None,
    db: str | None = None,
    tell: Tell | None = None,
) -> Validation:
    """Hold predictions against measured runs, as `opdb validate` does; no model means all.

    Each board's run is held against what is predicted for that board, its own run left aside.
    `check_within(within)` of what is returned raises where an error is larger than that share.
    """
    chosen = [parse_mode(mode) for mode in modes]
    for mode in chosen:
        lazy.predictor.check_mode(mode)
    with predicting(db, device, estimates=False) as (store, predictor):
        found, left_out = validation(predictor, known_models(store, models), chosen)
    if left_out is not None and tell is not None:
        tell(left_out)
    return found


def known_models(store: lazy.store.Store, models: Sequence[str]) -> list[str]:
    """Return the names of models, each of which has a workload."""
    known = store.workload_names()
    for name in models:
        if name not in known:
            raise UnknownNameError("model", name, known)
    return list(models)


def validation(
    predictor: lazy.predictor.Predictor, models: Sequence[str], modes: Sequence[Mode]
) -> tuple[Validation, str | None]:
    """Hold predictions against measured runs; say in words which runs are left out, if any."""
    answers = predictor.answers(models, modes or lazy.predictor.MODES)
    unknown = predictor.uncompiled(modes or lazy.predictor.MODES)
    left = (
        f"left out: {plural(unknown, 'run')} in modes that compile: what models are compiled to "
        "is not known (opdb harvest … --mode compile)"
    )
    if not answers:
        run_first = "no measured run to validate against; run opdb measure on the device"
        raise InputError(f"{run_first}; {left}" if unknown else run_first)
    return Validation(answers), left if unknown else None


def run(
    models: Annotated[list[str] | None, options.models("Models.  [default: all]")] = None,
    within: Annotated[
        float | None,
        typer.Option(
            "--within", metavar="SHARE", help="Exit 1 if an error of time or energy is larger."
        ),
    ] = None,
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="Instead: how often two independent measurements agree within their intervals.",
        ),
    ] = False,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Instead: kernels that a model launched and its operators did not, or reversed.",
        ),
    ] = False,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            help="Runs in these modes alone, as in compile,graph.  [default: all predicted ones]",
        ),
    ] = None,
    device: options.DeviceName = None,
    out: options.Output = options.Output(),
) -> None:
    """Hold predictions against the measured runs of models: all runs, and their errors by regime.

    Each board's run of a workload is held against what is predicted for that board, from its own
    operators' costs; runs for which other boards' costs stand in are counted apart. Intervals rest
    on other models alone.
    Runs with calls that were never measured, or that no operator describes, are listed apart.
    Two further checks look at what predictions rest on; each prints a table of its own.
    """
    check_share("--within", within)
    modes = options.parse_modes(mode)
    others = duplicates + kernels
    if others + (within is not None) > 1:
        raise InputError("--duplicates, --kernels and --within: give one at a time")
    if modes and others:
        raise InputError("--mode is about the table of predictions; give it without other checks")
    if others:
        check = _duplicates if duplicates else _same_kernels
        with predicting(out.db, device, estimates=False) as (store, predictor):
            out.answer(check(store, predictor, known_models(store, models or [])))
        return
    tell = partial(console.note, quiet=out.quiet or out.as_json)
    found = validate(*(models or []), modes=modes, device=device, db=out.db, tell=tell)
    out.answer(found)
    if within is not None:
        found.check_within(within)
