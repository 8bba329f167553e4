"""What predictions rest on: do duplicates agree, do other boards' costs, are kernels the same?"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opdb.derive.boards import Factor, Factors
from opdb.derive.boards import in_words as factors_in_words
from opdb.derive.duplicates import Agreement, Difference, Pair, agreement, pairs
from opdb.derive.launches import Launches
from opdb.errors import InputError
from opdb.lookup.words import describe, short_board, workload_columns
from opdb.predict import Predictor, Transfer
from opdb.records import Json, ModelRun, Workload
from opdb.store import Store, VisitFilter
from opdb.studies.accuracy import MEASURES, Measure, attribution
from opdb.tables import RATIO, Column, Report, Rows, Table
from opdb.units import plural, show_share

_SHOWN = 12
"""How many kernels of a run people are shown; `to_dict()` has all."""


# Duplicates


def _of_kind(measure: Measure) -> tuple[Column[OfKind], ...]:
    def share(name: str) -> Callable[[OfKind], str]:
        return lambda row: show_share(getattr(row[1].agreement(measure), name, None))

    return (
        Column(title=f"{measure}: inside", text=share("share_inside")),
        Column(title="median apart", text=share("median_difference")),
    )


def _difference(difference: Difference | None) -> Json:
    if difference is None:
        return None
    return {"difference": difference.relative, "inside": difference.inside}


@dataclass(frozen=True)
class Duplicates(Report):
    """Pairs of independent measurements of one configuration, and its kind: do they agree?"""

    pairs: Sequence[tuple[Pair, str]]

    def agreement(self, measure: Measure) -> Agreement | None:
        """Return how often the pairs' intervals hold, and how far apart they are."""
        return agreement(getattr(pair, measure) for pair, _ in self.pairs)

    def to_dict(self) -> Json:
        """Return every pair, and the share of them whose intervals hold."""
        return {"duplicates": self._summary(), "rows": PAIRS.documents(self.pairs)}

    def _summary(self) -> Json:
        found = {measure: self.agreement(measure) for measure in MEASURES}
        return {
            "pairs": len(self.pairs),
            **{f"share_inside_{m}": a.share_inside if a else None for m, a in found.items()},
            **{
                f"median_difference_{m}": a.median_difference if a else None
                for m, a in found.items()
            },
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the kinds, and how often the pairs of each agree."""
        by_kind: dict[str, list[tuple[Pair, str]]] = {}
        for pair, kind in self.pairs:
            by_kind.setdefault(kind, []).append((pair, kind))
        kinds = [(kind, Duplicates(of_kind)) for kind, of_kind in sorted(by_kind.items())]
        yield Rows(KINDS, [*kinds, ("all", self)])
        yield "inside: two independent measurements agree within their combined 95 % interval"


OfKind = tuple[str, Duplicates]

PAIRS: Table[tuple[Pair, str]] = Table(
    Column("kind", lambda row: row[1]),
    Column("configuration", lambda row: row[0].configuration),
    Column("setting", lambda row: row[0].setting),
    Column("board", lambda row: row[0].board),
    Column("time", lambda row: _difference(row[0].time)),
    Column("energy", lambda row: _difference(row[0].energy)),
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
    """Compare independent measurements of one configuration, of these models or of all.

    Raises:
        InputError: nothing was measured twice over.
    """
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


def _factor(factor: Factor | None) -> Json:
    if factor is None:
        return None
    return {"value": factor.value, "spread": factor.spread, "anchors": factor.count}


def _factors(transfer: Transfer) -> Json:
    return {
        "base_power": transfer.factors.base_power,
        "time": _factor(transfer.factors.time),
        "dynamic_energy": _factor(transfer.factors.dynamic_energy),
    }


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
    Column("factors", _factors),
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
        """Return every run and the errors."""
        return {"transfers": TRANSFERS.documents(self.transfers), "summary": self.summary}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the runs, the factors between boards, and the errors."""
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
    """Predict the runs of these models, or of all, from another board's costs alone.

    Raises:
        InputError: no measured run is covered by another board.
    """
    found = predictor.transfers(models)
    if not found:
        raise InputError("no measured run is covered by the costs of another board of the device")
    return Transfers(found)


# The same kernels

Launched = tuple[Workload, ModelRun, Launches]


def _unseen_or_count(launches: Launches) -> object:
    return "unknown" if launches.unseen else sum(launches.operators.values())


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
        text=lambda row: _unseen_or_count(row[2]),
    ),
    Column("unseen", lambda row: list(row[2].unseen)),
)
"""A run and the kernels that it launched."""


@dataclass(frozen=True)
class SameKernels(Report):
    """Runs, and the kernels that a model launched and its operators did not, or reversed."""

    runs: Sequence[Launched]

    def to_dict(self) -> Json:
        """Return every run with its kernels."""
        return {"kernels": KERNELS.documents(self.runs)}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the runs, and the kernels of those that differ."""
        yield Rows(KERNELS, self.runs)
        for workload, run, launches in self.runs:
            if launches.agree:
                continue
            yield ""
            yield f"{workload.name} {describe(workload)} {run.mode}: {in_words(launches)}"
            for whose, kernels in (("model", launches.model), ("operators", launches.operators)):
                for name, count in list(kernels.items())[:_SHOWN]:
                    yield f"  {whose} {count} × {name}"
        same = sum(launches.agree for _, _, launches in self.runs)
        of_all = f"{same} of {len(self.runs)}"
        yield f"runs that launched exactly the kernels of their operators: {of_all}"


def same_kernels(store: Store, predictor: Predictor, models: Collection[str] = ()) -> SameKernels:
    """Compare the kernels that runs of these models, or of all, launched with their operators'.

    Raises:
        InputError: no measured run saw its kernels.
    """
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
