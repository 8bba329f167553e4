"""What operators cost, as a table: of a kind, of a model, or of one configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from opdb.api.predicted import Conditions, Question
from opdb.api.predictions import Tell, ask_one, mode_for
from opdb.errors import InputError, NothingMeasuredError, UnknownNameError
from opdb.kinds import KINDS
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.words import describe
from opdb.records import Configuration, Cost, Json, Quantity
from opdb.tables import SHARE, Column, Report, Rows, Table, quantity
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.store import Store
    from opdb.studies.drawing import Drawing

KEY_DIGITS = 12
"""Digits of a configuration's key that people read; they are few enough to type."""

LEAST_DIGITS = 6
"""A shorter text is no beginning of a configuration's key."""

SIGNS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Shown:
    """A configuration and its cost on one board.

    Of a model's, `calls` counts its calls in a pass and the shares are those of all calls; of
    others they are None. `visits_s` are the times that single visits found, oldest first.
    """

    configuration: Configuration
    cost: Cost
    calls: int | None = None
    share_time: float | None = None
    share_energy: float | None = None
    visits_s: Sequence[float] = ()


def _interval(get: Callable[[Shown], Quantity | None]) -> Callable[[Shown], Json]:
    def ends(row: Shown) -> Json:
        found = get(row)
        return None if found is None or found.low is None else [found.low, found.high]

    return ends


def _with_interval(
    name: str, unit: str, get: Callable[[Shown], Quantity | None], title: str
) -> tuple[Column[Shown], ...]:
    shown: Column[Shown] = Column(title="95 % interval", get=_interval(get), unit=unit)
    return (*quantity(name, unit, get, title=title), shown)


def _what(row: Shown) -> str:
    from opdb.significance import in_words

    return in_words(row.configuration)


COSTS: Table[Shown] = Table(
    Column("kind", lambda row: row.configuration.title, title="kind"),
    Column("configuration", lambda row: row.configuration.key),
    Column(title="configuration", text=lambda row: row.configuration.key[:KEY_DIGITS]),
    Column("what", _what, title="what", last=True),
    Column("status", lambda row: "estimated" if row.cost.is_estimated else "measured"),
    Column("calls", lambda row: row.calls, title="calls"),
    Column("share_time", lambda row: row.share_time, title="of time", unit=SHARE),
    Column("share_energy", lambda row: row.share_energy, title="of energy", unit=SHARE),
    *_with_interval("time", "s", lambda row: row.cost.time_s, "time"),
    *_with_interval("energy", "J", lambda row: row.cost.energy_j, "energy"),
    *quantity("power", "W", lambda row: row.cost.power_w, title="power"),
    *quantity("dynamic_energy", "J", lambda row: row.cost.dynamic_energy_j),
    Column("visits", lambda row: row.cost.visits, title="visits"),
)

SORTS: Mapping[str, Callable[[Shown], float | None]] = {
    "time": lambda row: _mean(row.cost.time_s),
    "energy": lambda row: _mean(row.cost.energy_j),
    "power": lambda row: _mean(row.cost.power_w),
    "visits": lambda row: row.cost.visits,
    "interval": lambda row: _width(row.cost.time_s),
    "share-time": lambda row: row.share_time,
    "share-energy": lambda row: row.share_energy,
    "calls": lambda row: row.calls,
}
"""What rows can be sorted by, the largest first; those without a value come last."""

OF_MODELS = ("share-time", "share-energy", "calls")
"""What only a model's rows can be sorted by."""


@dataclass(frozen=True, repr=False)
class Showing(Report):
    """Costs of operators on a board, sorted; printed, the first `top` of them (None: all).

    `sparklines` adds a small chart in Unicode's block elements, for a terminal that shows them.
    """

    title: str
    device: str
    board: str
    costs: Sequence[Shown]
    lacking: int
    top: int | None = None
    sparklines: bool = False

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb show --json` prints: all rows, in their order."""
        return {
            "what": self.title,
            "device": self.device,
            "board": self.board,
            "lacking": self.lacking,
            "costs": COSTS.documents(self.costs),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb show` prints."""
        yield f"{self.title}, on {self.device} ({self.board})"
        shown = self.costs if self.top is None else self.costs[: self.top]
        table = COSTS
        if all(row.calls is None for row in self.costs):
            table = table.without("calls", "of time", "of energy")
        if self.sparklines:
            table = Table(*table.columns, self._chart())
        yield Rows(table, shown)
        if len(shown) < len(self.costs):
            yield f"{len(self.costs) - len(shown)} more: --top 0 shows all"
        if self.lacking:
            yield f"without a cost here: {plural(self.lacking, 'configuration')}"

    def chart(self) -> Drawing:
        """Draw what a call of each of the first operators takes; a notebook shows it.

        Raises:
            InputError: matplotlib is not installed.
        """
        from opdb.api.charts import costs_chart

        return costs_chart(self.costs, self.title)

    def rows(self) -> list[dict[str, Json]]:
        """Return all rows as data."""
        return [COSTS.document(row) for row in self.costs]

    def _chart(self) -> Column[Shown]:
        """Return the column of a row's visits, where these are known, else of its time."""
        if any(row.visits_s for row in self.costs):
            return Column(title="visits' times", text=lambda row: sparkline(row.visits_s))
        most_s = max((_mean(row.cost.time_s) or 0.0 for row in self.costs), default=0.0)
        return Column(title="time", text=lambda row: bar(_mean(row.cost.time_s) or 0.0, most_s))


def sparkline(values: Sequence[float]) -> str:
    """Return a sign a value, the lowest for the least of them: "▁▄█"."""
    if not values:
        return ""
    least, span = min(values), max(values) - min(values)
    steps = len(SIGNS) - 1
    return "".join(SIGNS[round((v - least) / span * steps) if span else 0] for v in values)


def bar(value: float, most: float, width: int = 8) -> str:
    """Return a bar of up to `width` signs, as long as the value is beside the most."""
    return "█" * max(round(value / most * width), 0) or "▏" if most > 0 else ""


@dataclass(frozen=True)
class Look:
    """How costs are shown: sorted by one of `SORTS` (None: as suits them), the first `top`."""

    sort: str | None = None
    top: int | None = None
    sparklines: bool = False


def show(
    what: str,
    *,
    look: Look | None = None,
    mode: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Unpack[ModelWords],
) -> Showing:
    """Show what a kind's configurations, a model's, or a single one cost, as `opdb show` does.

    `what` is a kind, the beginning of a configuration's key, or else a model, of which `said` are
    the options: batch_size, dtype … A model's rows come by their share of the time, others by time,
    unless `look` says otherwise.

    Raises:
        InputError: nothing has that name, or it cannot be sorted so.
        NothingMeasuredError: none of it has a cost on the device.
    """
    conditions = conditions or Conditions()
    question = Question(what, ModelOptions.parse(**said), mode_for(mode, conditions))
    return shown(question, conditions, look or Look(), db=db, tell=tell)


def shown(
    question: Question,
    conditions: Conditions,
    look: Look,
    *,
    db: str | None = None,
    tell: Tell | None = None,
) -> Showing:
    """Show the costs of what a question names: a kind, a configuration or a model.

    Raises:
        InputError: nothing has that name, or it cannot be sorted so.
        NothingMeasuredError: none of it has a cost on the device.
    """
    if look.sort is not None and look.sort not in SORTS:
        raise UnknownNameError("--sort", look.sort, SORTS)
    key = re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},64}}", question.model)
    of_model = question.model not in KINDS and key is None
    if of_model:
        found = _of_model(question, conditions, db, tell)
    elif look.sort in OF_MODELS:
        raise InputError(f"--sort {look.sort}: only the rows of a model have it")
    elif question.said != ModelOptions():
        raise InputError(f"{question.model!r} is no model: options of a model say nothing of it")
    else:
        found = _of_kind(question.model, conditions, db, is_key=key is not None)
    if not found.costs:
        raise NothingMeasuredError(f"{found.title}: nothing has a cost on {found.device!r}")
    value = SORTS[look.sort or ("share-time" if of_model else "time")]
    rows = sorted(found.costs, key=lambda row: _descending(value(row)))
    return replace(found, costs=rows, top=look.top, sparklines=look.sparklines)


def _of_kind(what: str, conditions: Conditions, db: str | None, *, is_key: bool) -> Showing:
    """Return the costs of a kind's configurations, or of those whose key begins so."""
    from opdb.predict import predictor_for
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        predictor = predictor_for(store, conditions.device)
        asked = conditions.board
        every = store.configurations(None if is_key else [what])
        given = [each for each in every if not is_key or each.key.startswith(what)]
        if is_key and not given:
            raise InputError(f"no configuration has a key that begins with {what!r}")
        kinds = {each.kind for each in given}
        board = predictor.most_measured(kinds) if asked is None else predictor.board(asked)
        costs = predictor.costs_on(board, given)
        rows = [Shown(each, costs[each.key]) for each in given if each.key in costs]
        if is_key:
            rows = [replace(row, visits_s=_visits_s(store, board, row)) for row in rows]
        lacking = len(given) - len(rows)
        return Showing(what, predictor.device.slug, board, rows, lacking)


def _visits_s(store: Store, board: str, row: Shown) -> list[float]:
    """Return the time of a call (s) that each visit gave; none where no samples are stored."""
    from opdb.derive.costs import visit_cost

    calibrations = {each.id: each.calibration for each in store.campaigns()}
    visits = store.visits(board, [row.configuration.key])
    found = (visit_cost(each, calibrations[each.campaign]) for each in visits)
    return [cost.time_s for cost in found if cost is not None]


def _of_model(
    question: Question, conditions: Conditions, db: str | None, tell: Tell | None
) -> Showing:
    """Return the costs of a model's configurations."""
    from opdb.predict import predictor_for
    from opdb.store import open_store

    prediction = ask_one(question, conditions, db=db, tell=tell).prediction
    workload = prediction.workload
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, conditions.device)
        given = [share.configuration for share in prediction.parts]
        costs = predictor.costs_on(prediction.board, given)
    rows = [
        Shown(s.configuration, costs[s.configuration.key], s.count, s.share_time, s.share_energy)
        for s in prediction.parts
        if s.configuration.key in costs
    ]
    title = f"{workload.name}, {describe(workload)}, {question.mode}"
    lacking = len({call.configuration.key for call in workload.calls}) - len(rows)
    return Showing(title, prediction.device.slug, prediction.board, rows, lacking)


def _descending(value: float | None) -> tuple[bool, float]:
    return value is None, -(value or 0.0)


def _mean(found: Quantity | None) -> float | None:
    return None if found is None else found.mean


def _width(found: Quantity | None) -> float | None:
    """Return half an interval beside the value; None where a view takes no time."""
    if found is None or found.half_width is None or not found.mean:
        return None
    return found.half_width / found.mean
