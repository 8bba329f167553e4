"""The origins of a database's measurements: published sets, imports, or this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Table, case, func, select

from opdb.records import Json, canonical_json
from opdb.store import database, schema
from opdb.store.documents import read_json
from opdb.store.published import (
    device_of,
    set_files,
    sets_at_hand,
    stated_licence,
    visits_with_samples,
)
from opdb.store.samples import LEFT_OUT
from opdb.store.store import Store

Place: TypeAlias = Literal["wheel", "clone", "import", "here"]
"""How a set came in: with an installed opdb, its clone, `opdb import`, or not at all."""

VERSIONS = ("opdb", "torch", "driver")
"""The fields of a campaign's environment that tell the age of its measurements."""

Counts: TypeAlias = Mapping[str, Any]
"""The counts of one source's visits, by the name of an attribute of `Origin`."""


@dataclass(frozen=True)
class Origin:
    """A set that was taken into a database, or can be, or what was measured here.

    `folder` is None where it is not known or not there. Of a set that was not taken in yet all
    that was measured counts 0. `sampled` are the visits that have raw samples, `left_out` those
    that came without theirs. `first` and `last` are when its campaigns began, ISO 8601.
    """

    name: str
    place: Place
    folder: Path | None = None
    taken_in: bool = True
    devices: tuple[str, ...] = ()
    boards: tuple[str, ...] = ()
    campaigns: int = 0
    configurations: int = 0
    workloads: int = 0
    visits: int = 0
    model_runs: int = 0
    sampled: int = 0
    left_out: int = 0
    first: str | None = None
    last: str | None = None
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def licence(self) -> str | None:
        """The licence of the data; None where nobody stated it."""
        return None if self.folder is None else stated_licence(self.folder)

    @property
    def size_bytes(self) -> int | None:
        """The size of its files; None without any."""
        if self.folder is None:
            return None
        return sum(path.stat().st_size for path in set_files(self.folder))


def origins(store: Store, *, waiting: bool = False) -> list[Origin]:
    """Return where a database's measurements came from; what was measured here is the last.

    With `waiting` the published sets that it has not taken in yet are there too.
    """
    sets = sets_at_hand()
    with store.reading() as connection:
        names = dict(
            map(tuple, connection.execute(select(schema.source.c.id, schema.source.c.name)))
        )
        measured = _measured(connection)
    found = [_origin(name, sets, measured.get(number, {})) for number, name in names.items()]
    if waiting:
        missing = sets.keys() - names.values()
        found += [
            _origin(name, sets, {"devices": _devices(sets[name])}, taken_in=False)
            for name in missing
        ]
    found.sort(key=lambda origin: origin.name)
    if here := measured.get(None):
        found.append(Origin("measured here", "here", **here))
    return found


def _devices(folder: Path) -> tuple[str, ...]:
    device = device_of(folder)
    return () if device is None else (device,)


def about_set(store: Store, device: str, licence: str | None = None) -> dict[str, Json]:
    """Return what a device's (slug) measurements are: licence, boards, dates, environments.

    `licence` is what their owner says; when None, what all sets have that they came from.
    """
    campaigns = store.campaigns(device)
    known = {each.licence for each in origins(store) if device in each.devices}
    environments = {canonical_json(dict(each.environment)): each for each in campaigns}
    days = [each.started_at for each in campaigns]
    return {
        "licence": licence or (known.pop() if len(known) == 1 else None),
        "boards": sorted({each.board.uuid for each in campaigns}),
        "measured_from": min(days, default=None),
        "measured_to": max(days, default=None),
        "environments": [dict(each.environment) for each in environments.values()],
    }


def _origin(
    name: str, sets: Mapping[str, Path], measured: Counts, *, taken_in: bool = True
) -> Origin:
    if name in sets:
        place: Place = "clone" if database.packaged_folder() is None else "wheel"
        apart = visits_with_samples(sets[name]) if measured.get("left_out") else 0
        return Origin(name, place, sets[name], taken_in, **_at_hand(measured, apart))
    folder = Path(name)
    there = folder.is_absolute() and folder.is_dir()
    return Origin(name, "import", folder if there else None, taken_in, **measured)


def _at_hand(measured: Counts, apart: int) -> Counts:
    """Return counts with the samples of so many visits at hand, in a file of the set's own."""
    if not apart:
        return measured
    moved = {"sampled": measured["sampled"] + apart, "left_out": measured["left_out"] - apart}
    return {**measured, **moved}


def _measured(connection: Connection) -> dict[int | None, dict[str, Any]]:
    """Return what each source (row number; None: here) has of measurements."""
    campaign, visit, run = schema.campaign, schema.visit, schema.model_run
    found: dict[int | None, dict[str, Any]] = defaultdict(dict)
    campaigns = defaultdict(list)
    for row in connection.execute(select(campaign).order_by(campaign.c.started_at)).mappings():
        campaigns[row["source_id"]].append(row)
    for number, rows in campaigns.items():
        found[number] |= _of_campaigns(rows)
    left_out = func.sum(case((visit.c.stretch == LEFT_OUT, 1), else_=0))
    counts = {
        "visits": func.count(),
        "configurations": func.count(visit.c.configuration_id.distinct()),
        "left_out": left_out,
        "sampled": func.count(visit.c.stretch) - left_out,
    }
    _count(connection, found, visit, counts)
    _count(connection, found, run, {"model_runs": func.count()})
    number = schema.workload.c.source_id
    for key, count in connection.execute(select(number, func.count()).group_by(number)):
        if key is not None or key in campaigns:  # a harvest alone is not a measurement
            found[key]["workloads"] = count
    return found


def _count(
    connection: Connection,
    found: Mapping[int | None, dict[str, Any]],
    table: Table,
    counts: Mapping[str, Any],
) -> None:
    """Add counts of a table's rows to each source whose campaigns they are of."""
    campaign = schema.campaign
    columns = [value.label(name) for name, value in counts.items()]
    query = select(campaign.c.source_id, *columns).join_from(
        table, campaign, table.c.campaign == campaign.c.id
    )
    for row in connection.execute(query.group_by(campaign.c.source_id)).mappings():
        found[row["source_id"]].update({name: row[name] for name in counts})


def _of_campaigns(rows: Iterable[Mapping[Any, Any]]) -> dict[str, Any]:
    """Return what a source's campaigns, oldest first, say about it."""
    rows = list(rows)
    environments = [read_json(row["environment"]) for row in rows]
    versions = {
        name: tuple(sorted({str(each[name]) for each in environments if each.get(name)}))
        for name in VERSIONS
    }
    return {
        "campaigns": len(rows),
        "devices": tuple(sorted({row["device"] for row in rows})),
        "boards": tuple(sorted({row["board"] for row in rows})),
        "first": rows[0]["started_at"],
        "last": rows[-1]["started_at"],
        "versions": versions,
    }
