"""`opdb show`: what operators cost, and what a database holds."""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter, contains, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb import kinds
from opdb.algorithms.names import ALGORITHMS, Algorithm
from opdb.cli import console, options
from opdb.commands import _lazy as lazy
from opdb.commands.predict import (
    OF_PREDICT,
    PRICES,
    Conditions,
    Question,
    Tell,
    mode_for,
    opened,
    predicting,
)
from opdb.commands.validate import is_whole
from opdb.derive.costs import COUNTED, REASONS
from opdb.errors import InputError, NothingMeasuredError, UnknownNameError
from opdb.kinds import Kind
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.models.catalogue import CatalogueModel, catalogue, not_installed, of_timm
from opdb.records import Board, Configuration, Cost, Device, Json, Quantity, Role, Workload
from opdb.significance import in_words
from opdb.spec import ModelSpec, title, workload_columns
from opdb.tables import SHARE, Column, Listing, Report, Rows, Table, interval, quantity
from opdb.units import plural, short_board
from opdb.units import show as shown_in

if TYPE_CHECKING:
    from opdb.store import Head, Standing
    from opdb.store.rows import Failure

PANEL = "data"

KEY_DIGITS = 12
"""Digits of a configuration's key that people read; they are few enough to type."""

LEAST_DIGITS = 6
"""A shorter text is no beginning of a configuration's key."""

WHOLE = 0.9
"""The least share of a workload's time and energy that is measured where it counts as measured."""


# What was measured of a workload on a device, and what could not be measured


@dataclass(frozen=True)
class Covered:
    """A workload of the database: how many of its calls were measured, on how many runs."""

    head: Head
    measured_calls: int
    runs: int

    @classmethod
    def of(cls, head: Head, standing: Standing) -> Covered:
        """Return what was measured of a workload on the device that `standing` is about."""
        return cls(
            head,
            head.calls - standing.unmeasured_calls.get(head.workload.key, 0),
            standing.runs[head.workload.key],
        )

    @property
    def share(self) -> float | None:
        """The share of its calls whose configuration was measured; None of a workload of none."""
        return self.measured_calls / self.head.calls if self.head.calls else None


FAILED: Table[Failure] = Table(
    Column("kind", attrgetter("kind"), title="kind"),
    Column("configuration", attrgetter("configuration"), title="configuration"),
    Column("outcome", attrgetter("outcome"), title="outcome"),
    Column("reason", attrgetter("reason"), title="reason"),
    Column("attempts", attrgetter("attempts"), title="attempts"),
)
"""A configuration that could not be measured."""


# What operators cost


@dataclass(frozen=True)
class Shown:
    """A configuration and its cost on one board.

    Of a model's, `calls` counts its calls in a pass and the shares are those of all calls; of
    others they are None.
    """

    configuration: Configuration
    cost: Cost
    calls: int | None = None
    share_time: float | None = None
    share_energy: float | None = None


def _what(row: Shown) -> str:
    return in_words(row.configuration)


COSTS: Table[Shown] = Table(
    Column("kind", lambda row: row.configuration.title, title="kind"),
    Column("configuration", lambda row: row.configuration.key),
    Column(title="configuration", text=lambda row: row.configuration.key[:KEY_DIGITS]),
    Column("what", _what, title="what"),
    Column("status", lambda row: "estimated" if row.cost.is_estimated else "measured"),
    Column("calls", lambda row: row.calls, title="calls"),
    Column("share_time", lambda row: row.share_time, title="of time", unit=SHARE),
    Column("share_energy", lambda row: row.share_energy, title="of energy", unit=SHARE),
    quantity("time_s", "s", lambda row: row.cost.time_s, title="time"),
    interval("s", lambda row: row.cost.time_s),
    quantity("energy_j", "J", lambda row: row.cost.energy_j, title="energy"),
    interval("J", lambda row: row.cost.energy_j),
    quantity("power_w", "W", lambda row: row.cost.power_w, title="power"),
    quantity("dynamic_energy_j", "J", lambda row: row.cost.dynamic_energy_j),
    Column("visits", lambda row: row.cost.visits, title="visits"),
)


SORTS = {"time": "time_s", "energy": "energy_j", "power": "power_w"}
"""What rows can be sorted by, and the quantity of a cost that it is."""


@dataclass(frozen=True, repr=False)
class Showing(Report):
    """Costs of operators on a board, sorted; printed, the first `top` of them (None: all).

    The costs are `board`'s; `measured_on` are all boards that measured some of the operators, the
    one that measured most of them first.
    """

    title: str
    device: str
    board: str
    costs: Sequence[Shown]
    lacking: int
    measured_on: Sequence[str] = ()
    top: int | None = None

    def to_dict(self) -> dict[str, Json]:
        return {
            "what": self.title,
            "device": self.device,
            "board": self.board,
            "measured_on": list(self.measured_on),
            "lacking": self.lacking,
            "costs": COSTS.documents(self.costs),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield f"{self.title}, on {self.device} ({self.board})"
        shown = self.costs if self.top is None else self.costs[: self.top]
        of_model = any(row.calls is not None for row in self.costs)
        yield Rows(COSTS if of_model else COSTS.without("calls", "of time", "of energy"), shown)
        if len(shown) < len(self.costs):
            yield f"{len(self.costs) - len(shown)} more: --top 0 shows all"
        if len(self.measured_on) > 1:
            some = ", ".join(map(short_board, self.measured_on[:5]))
            yield f"measured on {len(self.measured_on)} boards, each its own (--board): {some} …"
        if self.lacking:
            yield f"without a cost here: {plural(self.lacking, 'configuration')}"

    def rows(self) -> list[dict[str, Json]]:
        return [COSTS.document(row) for row in self.costs]


def _costs(
    question: Question,
    conditions: Conditions,
    sort: str | None,
    top: int | None,
    db: str | None,
    tell: Tell | None,
) -> Showing:
    if sort is not None and sort not in SORTS:
        raise UnknownNameError("--sort", sort, SORTS)
    what, is_key = question.model, re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},64}}", question.model)
    of_model = what not in kinds.KINDS and not is_key
    if of_model:
        found = _of_model(question, conditions, db, tell)
    elif question.said != ModelSpec():
        raise InputError(f"{what!r} is no model: options of a model say nothing of it")
    else:
        found = _of_kind(what, conditions, db, is_key=bool(is_key))
    if not found.costs:
        raise NothingMeasuredError(f"{found.title}: nothing has a cost on {found.device!r}")
    by = "share_time" if of_model and sort is None else SORTS[sort or "time"]
    rows = sorted(found.costs, key=lambda row: _from_largest(row, by))
    return replace(found, costs=rows, top=top)


def _from_largest(row: Shown, by: str) -> tuple[bool, float]:
    """Return what sorts rows by a value, the largest first; those without it come last."""
    found = row.share_time if by == "share_time" else getattr(row.cost, by)
    value = found.mean if isinstance(found, Quantity) else found
    return value is None, -(value or 0.0)


def _of_kind(what: str, conditions: Conditions, db: str | None, *, is_key: bool) -> Showing:
    with predicting(db, conditions.device) as (store, predictor):
        every = store.configurations(None if is_key else [what])
        given = [each for each in every if not is_key or each.key.startswith(what)]
        if is_key and not given:
            raise InputError(f"no configuration has a key that begins with {what!r}")
        boards, asked = list(predictor.measuring(given)), conditions.board
        board = (boards or predictor.boards)[0] if asked is None else predictor.board(asked)
        costs = predictor.costs_on(board, given)
    rows = [Shown(each, costs[each.key]) for each in given if each.key in costs]
    return Showing(what, predictor.device.slug, board, rows, len(given) - len(rows), boards)


def _of_model(
    question: Question, conditions: Conditions, db: str | None, tell: Tell | None
) -> Showing:
    with opened(db, conditions, tell) as asking:
        prediction, predictor = asking.answer(question).prediction, asking.predictor
        given = [share.configuration for share in prediction.parts]
        costs = predictor.costs_on(prediction.board, given)
        boards = list(predictor.measuring(given))
    rows = [
        Shown(s.configuration, costs[s.configuration.key], s.count, s.share_time, s.share_energy)
        for s in prediction.parts
        if s.configuration.key in costs
    ]
    words = f"{title(prediction.workload)}, {question.mode}"
    lacking = len({call.configuration.key for call in prediction.workload.calls}) - len(rows)
    return Showing(words, prediction.device.slug, prediction.board, rows, lacking, boards)


# What is measured, pending and failed


@dataclass(frozen=True)
class DeviceStatus:
    """What was measured on a device, and its boards."""

    device: Device
    boards: list[str]
    standing: lazy.store.Standing


MEASURED: Table[Covered] = Table(
    Column("measured_calls", lambda covered: covered.measured_calls),
    Column("model_runs", lambda covered: covered.runs),
)


def _workloads_on(devices: Sequence[DeviceStatus]) -> Table[lazy.store.Head]:

    def share(on: DeviceStatus) -> Column[lazy.store.Head]:
        return Column(
            title=f"measured on {on.device.slug}",
            get=lambda head: Covered.of(head, on.standing).share,
            unit=SHARE,
        )

    return Table(
        *workload_columns(lambda head: head.workload),
        Column("calls", lambda head: head.calls, title="calls"),
        Column("configurations", lambda head: head.configurations),
        *map(share, devices),
        Column(
            "devices",
            lambda head: {
                on.device.slug: MEASURED.document(Covered.of(head, on.standing)) for on in devices
            },
        ),
        Column(
            title="model runs",
            get=lambda head: sum(Covered.of(head, on.standing).runs for on in devices),
        ),
    )


def _visits(standing: lazy.store.Standing, role: Role) -> int:
    return sum(count for (each, _), count in standing.visits.items() if each == role)


def _rejected(standing: lazy.store.Standing) -> dict[str, int]:
    found = {
        why: sum(standing.visits.get((role, why), 0) for role in COUNTED)
        for why in dict.fromkeys(REASONS.values())
    }
    return {why: count for why, count in found.items() if count}


def _device_document(on: DeviceStatus) -> Json:
    device, standing = on.device, on.standing
    return {
        "device": device.slug,
        "name": device.name,
        "boards": on.boards,
        "campaigns": standing.campaigns,
        "visits": _visits(standing, "measurement"),
        "duplicates": _visits(standing, "duplicate"),
        "anchors": _visits(standing, "anchor"),
        "rejected": _rejected(standing),
        "measured": standing.measured,
        "pending": dict(standing.pending),
        "failed": FAILED.documents(standing.failures),
        "model_runs": standing.runs.total(),
    }


def _device_lines(on: DeviceStatus) -> Iterator[str]:
    device, standing = on.device, on.standing
    yield (
        f"{device.slug} ({device.name}): {plural(len(on.boards), 'board')}, "
        f"{plural(standing.campaigns, 'campaign')}, "
        f"{plural(_visits(standing, 'measurement'), 'visit')}, "
        f"{plural(standing.measured, 'configuration')} measured, "
        f"{plural(standing.runs.total(), 'model run')}"
    )
    if rejected := _rejected(standing):
        said = ", ".join(f"{count} as {why}" for why, count in rejected.items())
        yield f"  rejected, kept and not counted: {said}"
    if duplicates := _visits(standing, "duplicate"):
        yield f"  {plural(duplicates, 'blind duplicate visit')}: opdb validate --duplicates"
    if standing.pending:
        said = ", ".join(f"{kind} {count}" for kind, count in standing.pending.items())
        pending = plural(sum(standing.pending.values()), "configuration")
        yield f"  pending: {pending} ({said})"
    for failure in standing.failures:
        yield (
            f"  failed: {failure.kind} {failure.configuration[:12]}: "
            f"{failure.outcome}: {failure.reason or 'no reason given'}"
        )


def _size(store: lazy.store.Store) -> int | None:
    return store.path.stat().st_size if store.path is not None else None


def _database_line(location: str, size_bytes: int | None) -> str:
    size = f", {shown_in(size_bytes, 'B', digits=3)}" if size_bytes else ""
    return f"database {location}{size}"


def _status(device: str | None, db: str | None) -> Listing:
    with lazy.store.open_store(db, create=False) as store:
        if device is not None:
            device = lazy.predictor.choose_device(store, device).slug
        found = [
            DeviceStatus(each, [b.uuid for b in store.boards(slug)], store.standing(slug))
            for slug, each in {each.slug: each for each in store.devices()}.items()
            if device in (None, slug)
        ]
        heads = store.heads()
        place, size_bytes = store.location, _size(store)
    asked_for = [head for head in heads if not head.swept]
    swept = len(heads) - len(asked_for)
    table = _workloads_on(found)
    parts: list[str | Rows[Any]] = [_database_line(place, size_bytes)]
    for each in found:
        parts += ["", *_device_lines(each)]
    parts += [] if found else ["no device was measured yet"]
    none = "no workload yet; opdb harvest adds them"
    parts += ["", Rows(table, asked_for) if asked_for else none]
    if swept:
        only = f"and {plural(swept, 'workload')} that only sweeps asked for: opdb sweep --status"
        parts.append(only)
    document = {
        "database": {"location": place, "size_bytes": size_bytes},
        "devices": [_device_document(each) for each in found],
        "workloads": table.documents(asked_for),
        "swept_workloads": swept,
    }
    return Listing(document, parts)


# Models, and how right their predictions were


def _joined(name: str) -> Column[Json]:
    text = partial(_words, name)
    return Column(name, itemgetter(name), title=name.replace("_", " "), text=text)


def _words(name: str, row: Json) -> str:
    return " ".join(map(str, row[name]))


MEASURED_MODELS: Table[Json] = Table(
    Column("model", itemgetter("model"), title="model"),
    Column("workloads", itemgetter("workloads"), title="workloads"),
    Column("measured_workloads", itemgetter("measured_workloads"), title="measured"),
    _joined("batch_sizes"),
    _joined("dtypes"),
    Column("runs", itemgetter("runs"), title="runs"),
    Column("time_error", itemgetter("time_error"), title="time off by", unit=SHARE),
    Column("energy_error", itemgetter("energy_error"), title="energy off by", unit=SHARE),
)


def _measured_models(device: str | None, db: str | None) -> Listing:
    """Return which models can be predicted on a device, and how right predictions were.

    Errors are medians of |predicted / measured - 1|; runs with calls that were never measured count
    for none.
    """

    def median(ratios: Sequence[float | None]) -> float | None:
        errors = [abs(ratio - 1) for ratio in ratios if ratio is not None]
        return statistics.median(errors) if errors else None

    with predicting(db, device, estimates=False) as (store, predictor):
        slug = predictor.device.slug
        answers = defaultdict(list)
        for answer in filter(is_whole, predictor.answers(())):
            answers[answer.prediction.workload.name].append(answer)
        heads = [head for head in store.heads() if not head.swept]
        measured = _measured(store, predictor.device, heads)
        workloads: dict[str, list[Workload]] = defaultdict(list)
        for head in heads:
            workloads[head.workload.name].append(head.workload)
        estimates = bool(store.learned(slug))
    rows: list[Json] = [
        {
            "model": name,
            "workloads": len(some),
            "measured_workloads": sum(each.key in measured for each in some),
            "batch_sizes": sorted({each.batch_size for each in some}),
            "dtypes": sorted({each.dtype for each in some}),
            "runs": len(answers[name]),
            "time_error": median([each.attribution_time for each in answers[name]]),
            "energy_error": median([each.attribution_energy for each in answers[name]]),
        }
        for name, some in sorted(workloads.items())
    ]
    first = (
        f"{slug}: {plural(len(rows), 'model')}, {plural(len(heads), 'workload')}, "
        f"{len(measured)} with at least {100 * WHOLE:.0f} % of the time and energy measured; "
        "errors are medians over measured runs in all modes (opdb validate has each)"
    )
    last = "other models, batch sizes and dtypes: " + (
        "estimated from these, opdb predict MODEL says how surely"
        if estimates
        else "python -m opdb.estimates makes estimates of their operators"
    )
    document = {"device": slug, "estimates": estimates, "models": MEASURED_MODELS.documents(rows)}
    return Listing(document, [first, Rows(MEASURED_MODELS, rows), last])


def _measured(
    store: lazy.store.Store, device: Device, heads: Sequence[lazy.store.Head]
) -> set[str]:
    """Return the workloads (keys) of which at least `WHOLE` of time and energy is measured.

    What was not measured has the size that a build gives it.
    """
    unmeasured = store.standing(device.slug).unmeasured_calls
    in_part = [head.workload.key for head in heads if unmeasured.get(head.workload.key)]
    workloads = store.workloads_by_key(in_part)
    known = lazy.survey.survey(store, device, workloads, DEFAULT_SETTINGS)
    found = {each.key for each in workloads if known.coverage(each).least() >= WHOLE}
    return found | {head.workload.key for head in heads} - set(in_part)


# Lists of names


ListedBoard = tuple[Device, Board, int]
"""A device, one of its boards, and how many configurations that board measured."""

MODELS: Table[CatalogueModel] = Table(
    Column("model", attrgetter("name"), title="model"),
    Column("source", attrgetter("source"), title="source"),
    Column("what", attrgetter("what"), title="what it is"),
)

WORKLOADS: Table[lazy.store.Head] = Table(
    *workload_columns(lambda head: head.workload),
    Column(title="source", get=lambda head: head.workload.source),
    Column("calls", lambda head: head.calls, title="calls"),
    Column("configurations", lambda head: head.configurations, title="configurations"),
)

DEVICES: Table[ListedBoard] = Table(
    Column("device", lambda row: row[0].slug, title="device"),
    Column("name", lambda row: row[0].name, title="name"),
    Column("type", lambda row: row[0].type),
    Column("power_limit_w", lambda row: row[0].power_limit_w, title="power limit", unit="W"),
    Column("memory_bytes", lambda row: row[0].memory_bytes),
    Column("board", lambda row: row[1].uuid, title="board"),
    Column("configurations_measured", lambda row: row[2], title="configurations measured"),
)

KINDS: Table[Kind] = Table(
    Column("kind", attrgetter("name"), title="kind"),
    Column("arguments", attrgetter("spelled"), title="arguments"),
)

WAYS: Table[Algorithm] = Table(
    Column("algorithm", attrgetter("name"), title="algorithm"),
    Column("what", attrgetter("words"), title="what it is"),
)


def _models(db: str | None) -> Rows[CatalogueModel]:
    return Rows(MODELS, (*catalogue(), *of_timm()))


def _workloads(db: str | None) -> Rows[lazy.store.Head]:
    with lazy.store.open_store(db, create=False) as store:
        return Rows(WORKLOADS, [head for head in store.heads() if not head.swept])


def _devices(db: str | None) -> Rows[ListedBoard]:
    with lazy.store.open_store(db, create=False) as store:
        measured = store.cost_counts()
        found = [(each, board) for each in store.devices() for board in store.boards(each.slug)]
    return Rows(DEVICES, [(each, board, measured.get(board.uuid, 0)) for each, board in found])


def _algorithms(db: str | None) -> Rows[Algorithm]:
    return Rows(WAYS, list(ALGORITHMS.values()))


LISTED: dict[str, Callable[[str | None], Rows[Any]]] = {
    "models": _models,
    "workloads": _workloads,
    "devices": _devices,
    "kinds": lambda db: Rows(KINDS, sorted(kinds.KINDS.values(), key=attrgetter("name"))),
    "algorithms": _algorithms,
}
"""The lists of names that a pattern filters, each from a database (URL) where it needs one."""


def _listing(what: str, pattern: str | None, db: str | None, tell: Tell | None) -> Listing:
    every = LISTED[what](db)
    table, rows = every.table, every.rows
    if pattern is not None:
        # Of one of the first two cells, in any case: a part, or all where there are wildcards.
        matches = fnmatchcase if any(sign in pattern for sign in "*?[") else contains
        cells = [(row, table.cells(row)[:2]) for row in rows]
        rows = [
            row
            for row, texts in cells
            if any(matches(text.lower(), pattern.lower()) for text in texts)
        ]
        if not rows:
            raise UnknownNameError(what[:-1], pattern, {texts[0] for _, texts in cells})
    if what == "models" and tell is not None:
        counts = Counter(model.source for model in rows)
        said = ", ".join(f"{count} from {source}" for source, count in counts.items()) or "none"
        tell(
            f"models: {said}; a model of your own is named by its import path, as in "
            "mypackage.models:build"
        )
        for each in not_installed():
            tell(f"{each} is not installed here: install it for more names")
    return Listing(table.documents(rows), [Rows(table, rows)])


# Sets and jobs


def _span(origin: lazy.opening.Origin) -> str:
    if origin.first is None or origin.last is None:
        return "–"
    days = dict.fromkeys((origin.first[:10], origin.last[:10]))
    return " to ".join(days)


SETS: Table[lazy.opening.Origin] = Table(
    Column("name", lambda origin: origin.name, title="set"),
    Column("from", lambda origin: origin.place, title="from"),
    Column("folder", lambda origin: None if origin.folder is None else str(origin.folder)),
    Column("taken_in", lambda origin: origin.taken_in),
    Column("licence", lambda origin: origin.licence, title="licence"),
    Column("devices", lambda origin: list(origin.devices)),
    Column(title="device", text=lambda origin: ", ".join(origin.devices) or "–"),
    Column("boards", lambda origin: list(origin.boards)),
    Column(title="boards", text=lambda origin: len(origin.boards)),
    Column("visits", lambda origin: origin.visits, title="visits"),
    Column("model_runs", lambda origin: origin.model_runs, title="model runs"),
    Column("measured_from", lambda origin: origin.first),
    Column("measured_to", lambda origin: origin.last),
    Column(title="measured", text=_span),
)


def _sets(db: str | None) -> Listing:
    is_default = db is None and not os.environ.get("OPDB_DB")
    with lazy.store.open_store(db, create=False) as store:
        found = lazy.opening.origins(store, waiting=is_default)
        place, size_bytes = store.location, _size(store)
    parts: list[str | Rows[Any]] = [_database_line(place, size_bytes)]
    parts += (
        [Rows(SETS, found)] if found else ["no measurements; opdb import or opdb bench brings them"]
    )
    if waiting := [each.name for each in found if not each.taken_in]:
        parts.append(
            "not in the database until a command asks for sweeps, or names their device: "
            + ", ".join(waiting)
        )
    database: Json = {"location": place, "size_bytes": size_bytes}
    return Listing({"database": database, "sets": SETS.documents(found)}, parts)


JOBS: Table[Json] = Table(
    Column("name", lambda job: job["name"], title="name"),
    Column("job", lambda job: job["job"], title="job"),
    Column(
        "state",
        lambda job: job["state"],
        title="state",
        text=lambda job: f"exit {job['exit_status']}" if job["exit_status"] else job["state"],
    ),
    Column("slurm", lambda job: job["slurm"], title="in Slurm"),
    Column("runs", lambda job: job["runs"], title="runs"),
    Column("host", lambda job: job.get("host"), title="host"),
    Column("since", lambda job: job.get("since"), title="since"),
)


def _jobs(folder: Path) -> Listing:
    found = lazy.workers.jobs_in(folder)
    counts = Counter(job["state"] for job in found)
    parts: list[str | Rows[Any]] = [Rows(JOBS, found)]
    parts.append(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    for job in found:
        if job["state"] in ("failed", "lost"):
            log = Path(job["log"])
            if not log.exists():  # it ended before its command began: Slurm's own output tells
                log = log.parent / "submitit" / f"{job['job']}_*"
            parts.append(f"{job['name']}: {job['state']}; see {log}")
    return Listing(list(found), parts)


SUBJECTS = ("models", "measured", "workloads", "devices", "kinds", "algorithms", "sets", "jobs")


def show(
    what: str | None = None,
    pattern: str | None = None,
    *,
    sort: str | None = None,
    top: int | None = None,
    mode: str | None = None,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    **said: Any,
) -> Showing | Listing:
    """Show what operators cost, or what a database holds, as `opdb show` does.

    `what` is a kind, the beginning of a configuration's key, or else a model, of which `said` are
    the options: batch_size, dtype … A model's rows come by their share of the time, others by time,
    unless `sort` says otherwise. Or it is one of `SUBJECTS`, of which names match a `pattern`, jobs
    are those of that folder; None says what is measured, pending and failed.
    """
    conditions = conditions or Conditions()
    if what not in (*LISTED, "jobs") and pattern is not None:
        raise InputError(f"{pattern!r}: a filter is for the lists {', '.join(LISTED)}, and jobs")
    if what in LISTED:
        return _listing(what, pattern, db, tell)
    if what is None:
        return _status(conditions.device, db)
    if what == "measured":
        return _measured_models(conditions.device, db)
    if what == "sets":
        return _sets(db)
    if what == "jobs":
        if pattern is None:
            raise InputError("jobs: name the folder where opdb submit left them")
        return _jobs(Path(pattern))
    question = Question(what, ModelSpec.parse(**said), mode_for(mode, conditions))
    return _costs(question, conditions, sort, top, db, tell)


def run(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help=f"A kind, a model, or a configuration's key; or {', '.join(SUBJECTS)}.  "
            "[default: what is measured, pending and failed]",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="FILTER",
            help="Of a list: part of a name, or a pattern for all of it as in 'resnet*'; of jobs: "
            "the folder where opdb submit left them.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="COLUMN",
            help=f"{', '.join(SORTS)}; the largest first.  [default: time]",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=0, help="Rows to print; 0 for all.")
    ] = 20,
    mode: options.PredictedMode = "eager",
    said: options.Model = ModelSpec(),
    conditions: Annotated[
        Conditions, options.Without("estimates", *OF_PREDICT, *PRICES)
    ] = Conditions(),
    out: options.Output = options.Output(),
) -> None:
    """Show what operators cost, or what the database holds.

    Of a kind, a model or one configuration each row is a configuration with its time, energy and
    power on one board, with intervals; a model's rows are its top consumers. A key is that of `opdb
    show KIND`, or its beginning.

    Without WHAT: what is measured, pending and failed, on one device or all. A configuration is
    pending on a device until a visit measured it or found that it cannot be.

    models: what can be named. measured: each model of the database, how much of it is measured and
    how right its predictions were. workloads: what predict answers without torch. devices: what was
    measured, with its boards. kinds: what bench measures. algorithms: ways to convolve. sets: where
    the measurements came from. jobs: what became of those that opdb submit left in a folder.
    """
    silent = out.quiet or (out.as_json and what in LISTED)
    found = show(
        what,
        pattern,
        sort=sort,
        top=top or None,
        mode=mode,
        conditions=conditions,
        db=out.db,
        tell=partial(console.note, quiet=silent),
        **said.keywords(),
    )
    out.answer(found)
