"""`opdb show`: what operators cost, and what a database holds."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from opdb.cli import console, options
from opdb.commands import _lazy as lazy
from opdb.commands._predictions import in_words
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
from opdb.errors import InputError, NothingMeasuredError, UnknownNameError
from opdb.kinds import KINDS, Kind
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.models.catalogue import CatalogueModel, catalogue, of_timm
from opdb.records import Configuration, Cost, Device, Json, Workload
from opdb.spec import ModelSpec, title, workload_columns
from opdb.tables import SHARE, Column, Listing, Rows, Table, interval, quantity
from opdb.units import plural
from opdb.units import show as shown_in

if TYPE_CHECKING:
    from opdb.predict.compose import Share
    from opdb.store.rows import Failure

PANEL = "data"

KEY_DIGITS = 12
"""Digits of a configuration's key that people read; they are few enough to type."""

LEAST_DIGITS = 6
"""A shorter text is no beginning of a configuration's key."""

WHOLE = 0.9
"""The least share of a workload's time and energy that is measured where it counts as measured."""

Parts = list[str | Rows[Any]]


class Shown(NamedTuple):
    """A configuration and its cost on one board; of a model's, its share of a pass."""

    configuration: Configuration
    cost: Cost
    share: Share | None


COSTS: Table[Shown] = Table(
    Column("kind", lambda row: row.configuration.title, title="kind"),
    Column("configuration", lambda row: row.configuration.key),
    Column(title="configuration", text=lambda row: row.configuration.key[:KEY_DIGITS]),
    Column("what", lambda row: in_words(row.configuration), title="what"),
    Column("status", lambda row: "estimated" if row.cost.is_estimated else "measured"),
    Column("calls", lambda row: row.share and row.share.count, title="calls"),
    Column("share_time", lambda row: row.share and row.share.share_time, "of time", SHARE),
    Column("share_energy", lambda row: row.share and row.share.share_energy, "of energy", SHARE),
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


def _costs(
    question: Question,
    conditions: Conditions,
    sort: str | None,
    top: int | None,
    db: str | None,
    tell: Tell | None,
) -> Listing:
    """Show a kind's, a configuration's or a model's costs on the board that measured most of them.

    A model's rows come by their share of the time, others by time, unless `sort` says otherwise.
    """
    if sort is not None and sort not in SORTS:
        raise UnknownNameError("--sort", sort, SORTS)
    what, is_key = question.model, re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},64}}", question.model)
    shares: dict[str, Share] = {}
    if what not in KINDS and not is_key:
        with opened(db, conditions, tell) as asking:
            prediction, predictor = asking.answer(question).prediction, asking.predictor
            shares = {each.configuration.key: each for each in prediction.parts}
            given = [each.configuration for each in prediction.parts]
            boards, board = list(predictor.measuring(given)), prediction.board
            costs = predictor.costs_on(board, given)
        what = f"{title(prediction.workload)}, {question.mode}"
        number = len(prediction.workload.occurrences())
    elif question.said != ModelSpec():
        raise InputError(f"{what!r} is no model: options of a model say nothing of it")
    else:
        with predicting(db, conditions.device) as (store, predictor):
            every = store.configurations(None if is_key else [what])
            given = [each for each in every if not is_key or each.key.startswith(what)]
            if is_key and not given:
                raise InputError(f"no configuration has a key that begins with {what!r}")
            boards, asked = list(predictor.measuring(given)), conditions.board
            board = (boards or predictor.boards)[0] if asked is None else predictor.board(asked)
            costs = predictor.costs_on(board, given)
        number = len(given)
    rows = [Shown(c, costs[c.key], shares.get(c.key)) for c in given if c.key in costs]
    if not rows:
        raise NothingMeasuredError(f"{what}: nothing has a cost on {predictor.device.slug!r}")
    rows.sort(key=partial(_largest_first, sort))
    document = {
        "what": what,
        "device": predictor.device.slug,
        "board": board,
        "measured_on": boards,
        "lacking": number - len(rows),
        "costs": COSTS.documents(rows),
    }
    table = COSTS if shares else COSTS.without("calls", "of time", "of energy")
    first = f"{what}, on {predictor.device.slug} ({board})"
    if len(boards) > 1:
        first += f", one of {len(boards)} that measured it (--board)"
    parts: Parts = [first, Rows(table, rows[:top])]
    if top is not None and top < len(rows):
        parts.append(f"{len(rows) - top} more: --top 0 shows all")
    if number > len(rows):
        parts.append(f"without a cost here: {plural(number - len(rows), 'configuration')}")
    return Listing(document, parts)


def _largest_first(sort: str | None, row: Shown) -> tuple[bool, float]:
    """Return the key that rows are sorted by: shares of a model's time, else times, or as asked."""
    found = getattr(row.cost, SORTS[sort or "time"])
    value = row.share.share_time if row.share and sort is None else found and found.mean
    return value is None, -(value or 0.0)


class DeviceStatus(NamedTuple):
    """A device, the UUIDs of its boards, and what was measured on it."""

    device: Device
    boards: list[str]
    standing: lazy.store.Standing


FAILED: Table[Failure] = Table(
    Column("kind", attrgetter("kind"), title="kind"),
    Column("configuration", attrgetter("configuration"), title="configuration"),
    Column("outcome", attrgetter("outcome"), title="outcome"),
    Column("reason", attrgetter("reason"), title="reason"),
    Column("attempts", attrgetter("attempts"), title="attempts"),
)


DEVICES: Table[DeviceStatus] = Table(
    Column("device", lambda on: on.device.slug, title="device"),
    Column("name", lambda on: on.device.name, title="name"),
    Column("type", lambda on: on.device.type),
    Column("power_limit_w", lambda on: on.device.power_limit_w, title="power limit", unit="W"),
    Column("memory_bytes", lambda on: on.device.memory_bytes),
    Column("boards", lambda on: on.boards, title="boards", text=lambda on: len(on.boards)),
    Column("campaigns", lambda on: on.standing.campaigns),
    Column("visits", lambda on: on.standing.visits, title="visits"),
    Column("measured", lambda on: on.standing.measured, title="measured"),
    Column(
        "pending",
        lambda on: dict(on.standing.pending),
        title="pending",
        text=lambda on: sum(on.standing.pending.values()),
    ),
    Column(
        "failed",
        lambda on: FAILED.documents(on.standing.failures),
        title="failed",
        text=lambda on: len(on.standing.failures),
    ),
    Column("model_runs", lambda on: on.standing.runs.total(), title="model runs"),
)
"""A device: how many configurations of workloads are measured, pending and failed."""


def _database(store: lazy.store.Store) -> tuple[str, Json]:
    size_bytes = store.path.stat().st_size if store.path is not None else None
    size = f", {shown_in(size_bytes, 'B', digits=3)}" if size_bytes else ""
    document = {"location": store.location, "size_bytes": size_bytes}
    return f"database {store.location}{size}", document


def _devices(device: str | None, db: str | None) -> Listing:
    with lazy.store.open_store(db, create=False) as store:
        if device is not None:
            device = lazy.predictor.choose_device(store, device).slug
        found = [
            DeviceStatus(each, [b.uuid for b in store.boards(each.slug)], store.standing(each.slug))
            for each in store.devices()
            if device in (None, each.slug)
        ]
        swept = [head.swept for head in store.heads()]
        line, database = _database(store)
    parts: Parts = [line, Rows(DEVICES, found) if found else "no device was measured yet"]
    parts += [
        f"failed on {on.device.slug}: {each.kind} {each.configuration[:KEY_DIGITS]}: "
        f"{each.outcome}: {each.reason or 'no reason given'}"
        for on in found
        for each in on.standing.failures
    ]
    parts.append(f"{plural(swept.count(False), 'workload')} (opdb show workloads)")
    if any(swept):
        parts.append(f"and {sum(swept)} that only sweeps asked for (opdb sweep MODEL --status)")
    document = {
        "database": database,
        "devices": DEVICES.documents(found),
        "workloads": swept.count(False),
        "swept_workloads": swept.count(True),
    }
    return Listing(document, parts)


def _member(name: str, heading: str, unit: str | None = None) -> Column[Mapping[str, Json]]:
    return Column(name, itemgetter(name), heading, unit)


def _spaced(name: str) -> Callable[[Mapping[str, Json]], str]:
    return lambda row: " ".join(map(str, row[name]))


MEASURED: Table[Mapping[str, Json]] = Table(
    _member("model", "model"),
    _member("workloads", "workloads"),
    _member("measured_workloads", "measured"),
    Column("batch_sizes", itemgetter("batch_sizes"), "batch sizes", text=_spaced("batch_sizes")),
    Column("dtypes", itemgetter("dtypes"), "dtypes", text=_spaced("dtypes")),
)


def _measured(device: str | None, db: str | None) -> Listing:
    """Return which models can be predicted on a device, and how many workloads are measured."""
    with lazy.store.open_store(db, create=False) as store:
        chosen = lazy.predictor.choose_device(store, device)
        heads = [head for head in store.heads() if not head.swept]
        measured = _measured_keys(store, chosen, heads)
        estimates = bool(store.learned(chosen.slug))
    workloads: dict[str, list[Workload]] = defaultdict(list)
    for head in heads:
        workloads[head.workload.name].append(head.workload)
    rows: list[Json] = [
        {
            "model": name,
            "workloads": len(some),
            "measured_workloads": sum(each.key in measured for each in some),
            "batch_sizes": sorted({each.batch_size for each in some}),
            "dtypes": sorted({each.dtype for each in some}),
        }
        for name, some in sorted(workloads.items())
    ]
    first = (
        f"{chosen.slug}: {plural(len(rows), 'model')}, {plural(len(heads), 'workload')}, "
        f"{len(measured)} with at least {100 * WHOLE:.0f} % of the time and energy measured"
    )
    document = {"device": chosen.slug, "estimates": estimates, "models": MEASURED.documents(rows)}
    return Listing(document, [first, Rows(MEASURED, rows)])


def _measured_keys(
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

OF_KIND: Table[Kind] = Table(
    Column("kind", attrgetter("name"), title="kind"),
    Column("arguments", attrgetter("spelled"), title="arguments"),
)

LISTED = ("models", "workloads", "kinds")


def _names(what: str, pattern: str | None, db: str | None) -> Listing:
    """List names; a pattern is a part of one of the first two cells, or all of it with `*`."""
    found: Rows[Any]
    if what == "models":
        found = Rows(MODELS, (*catalogue(), *of_timm()))
    elif what == "kinds":
        found = Rows(OF_KIND, sorted(KINDS.values(), key=attrgetter("name")))
    else:
        with lazy.store.open_store(db, create=False) as store:
            found = Rows(WORKLOADS, [head for head in store.heads() if not head.swept])
    table, rows = found.table, found.rows
    if pattern is not None:
        wanted = pattern.lower() if set("*?[") & set(pattern) else f"*{pattern.lower()}*"
        cells = [(row, table.cells(row)[:2]) for row in rows]
        rows = [r for r, texts in cells if any(fnmatchcase(t.lower(), wanted) for t in texts)]
        if not rows:
            raise UnknownNameError(what[:-1], pattern, {texts[0] for _, texts in cells})
    return Listing(table.documents(rows), [Rows(table, rows)])


SETS: Table[lazy.opening.Origin] = Table(
    Column("name", attrgetter("name"), title="set"),
    Column("from", attrgetter("place"), title="comes from"),
    Column("folder", lambda origin: None if origin.folder is None else str(origin.folder)),
    Column("taken_in", attrgetter("taken_in")),
    Column("licence", attrgetter("licence"), title="licence"),
    Column(
        "devices",
        lambda origin: list(origin.devices),
        title="device",
        text=lambda origin: ", ".join(origin.devices) or "–",
    ),
    Column(
        "boards",
        lambda origin: list(origin.boards),
        title="boards",
        text=lambda origin: len(origin.boards),
    ),
    Column("visits", attrgetter("visits"), title="visits"),
    Column("model_runs", attrgetter("model_runs"), title="model runs"),
    Column("measured_from", attrgetter("first"), "from", text=lambda o: (o.first or "–")[:10]),
    Column("measured_to", attrgetter("last"), "to", text=lambda o: (o.last or "–")[:10]),
)


def _sets(db: str | None) -> Listing:
    is_default = db is None and not os.environ.get("OPDB_DB")
    with lazy.store.open_store(db, create=False) as store:
        found = lazy.opening.origins(store, waiting=is_default)
        line, database = _database(store)
    none = "no measurements; opdb import or opdb bench brings them"
    parts: Parts = [line, Rows(SETS, found) if found else none]
    if waiting := [each.name for each in found if not each.taken_in]:
        parts.append(
            "not in the database until a command asks for sweeps, or names their device: "
            + ", ".join(waiting)
        )
    return Listing({"database": database, "sets": SETS.documents(found)}, parts)


JOBS: Table[Mapping[str, Json]] = Table(
    _member("name", "name"),
    _member("job", "job"),
    Column(
        "state",
        itemgetter("state"),
        title="state",
        text=lambda job: f"exit {job['exit_status']}" if job["exit_status"] else job["state"],
    ),
)


def _jobs(folder: str | None) -> Listing:
    if folder is None:
        raise InputError("jobs: name the folder where opdb submit left them")
    if not (found := lazy.workers.read_jobs(sorted(Path(folder).glob("*.json")))):
        raise InputError(f"{folder} holds no job; opdb submit makes them there")
    counts = Counter(job["state"] for job in found)
    parts: Parts = [Rows(JOBS, found)]
    parts.append(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    for job in found:
        if job["state"] in ("failed", "lost"):
            log = Path(job["log"])
            if not log.exists():  # it ended before its command began: Slurm's own output tells
                log = log.parent / "submitit" / f"{job['job']}_*"
            parts.append(f"{job['name']}: {job['state']}; see {log}")
    return Listing(list(found), parts)


SUBJECTS = ("devices", "measured", *LISTED, "sets", "jobs")


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
) -> Listing:
    """Show what operators cost, or what a database holds, as `opdb show` does.

    `what` is a kind, the beginning of a configuration's key, or else a model, of which `said` are
    the options: batch_size, dtype … A model's rows come by their share of the time, others by time,
    unless `sort` says otherwise; `top` is how many, None all. Or it is one of `SUBJECTS`, of which
    names match a `pattern`, jobs are those of that folder; None is devices.
    """
    conditions = conditions or Conditions()
    if pattern is not None and what not in (*LISTED, "jobs"):
        raise InputError(f"{pattern!r}: a filter is for {', '.join(LISTED)}, and jobs")
    if what in LISTED:
        return _names(what, pattern, db)
    if what in (None, "devices"):
        return _devices(conditions.device, db)
    if what == "measured":
        return _measured(conditions.device, db)
    if what == "sets":
        return _sets(db)
    if what == "jobs":
        return _jobs(pattern)
    question = Question(what, ModelSpec.parse(**said), mode_for(mode, conditions))
    return _costs(question, conditions, sort, top, db, tell)


def run(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help=f"A kind, a model, or a configuration's key; or {', '.join(SUBJECTS)}.  "
            "[default: devices]",
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

    devices: what is measured, pending and failed on each. A configuration is pending on a device
    until a visit measured it or found that it cannot be.

    measured: each model of the database, and how much of it is measured. models: what can be
    named. workloads: what predict answers without torch. kinds: what bench measures. sets: where
    the measurements came from. jobs: what became of those that opdb submit left in a folder.
    """
    found = show(
        what,
        pattern,
        sort=sort,
        top=top or None,
        mode=mode,
        conditions=conditions,
        db=out.db,
        tell=partial(console.note, quiet=out.quiet),
        **said.keywords(),
    )
    out.answer(found)
