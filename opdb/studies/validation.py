"""Predictions held against the measured runs of models: every run, and the errors by regime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from opdb.derive.runs import RunCost
from opdb.errors import CheckError
from opdb.lookup.words import short_board, workload_columns
from opdb.predict import Answer
from opdb.records import Json
from opdb.studies.accuracy import Errors, Group, Measure, both, groups, inside, is_whole
from opdb.tables import RATIO, SHARE, Column, Report, Rows, Table
from opdb.units import plural, show_share

_ORIGINS = {"own": "that board", "borrowed": "another, too"}


def _truth(answer: Answer) -> RunCost:
    assert answer.measured is not None
    return answer.measured


def _measured_j(answer: Answer) -> float | None:
    energy = _truth(answer).energy_j
    return energy.mean if energy else None


def _slowdown(run: RunCost) -> Json:
    return run.slowdown and asdict(run.slowdown)


def _list(interval: tuple[float, float] | None) -> Json:
    return None if interval is None else list(interval)


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
    Column("attribution_time", lambda a: a.attribution_time, title="ratio", unit=RATIO),
    Column("predicted_energy_j", lambda a: a.prediction.energy_j, title="energy", unit="J"),
    Column("measured_energy_j", _measured_j, title="measured", unit="J"),
    Column("attribution_energy", lambda a: a.attribution_energy, title="ratio", unit=RATIO),
    Column("time_interval_s", lambda answer: _list(answer.prediction.time_interval_s), unit="s"),
    Column(
        "energy_interval_j", lambda answer: _list(answer.prediction.energy_interval_j), unit="J"
    ),
    Column("inside_interval_time", lambda answer: inside(answer, "time")),
    Column("inside_interval_energy", lambda answer: inside(answer, "energy")),
    Column("repeat_spread", lambda answer: _truth(answer).spread),
    Column("host_slowdown", lambda answer: _slowdown(_truth(answer))),
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


def _asdict(errors: Errors | None) -> Json:
    return errors and asdict(errors)


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
        """The errors of time and energy over all whole runs."""
        return both(self.whole)

    def check(self, within: float) -> None:
        """Check that no error of time or energy is larger than a share.

        Raises:
            CheckError: one is, or none is known.
        """
        found = [errors.largest for errors in self.summary.values() if errors]
        if not found:
            raise CheckError("no run has all its calls measured, so no error can be told")
        if max(found) > within:
            raise CheckError(
                f"largest error {show_share(max(found))}, asked for {show_share(within)}"
            )

    def to_dict(self) -> Json:
        """Return every run, the summary, and the errors by regime."""
        of_uneven = {name: _asdict(errors) for name, errors in both(self.uneven).items()}
        return {
            "rows": RUNS.documents(self.whole),
            "incomplete": RUNS.documents(self.incomplete),
            "summary": {name: _asdict(errors) for name, errors in self.summary.items()},
            "regimes": REGIMES.documents(groups(self.whole)),
            "uneven": {"runs": len(self.uneven), **of_uneven},
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the runs, the regimes, a summary, and the runs that are left out."""
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
