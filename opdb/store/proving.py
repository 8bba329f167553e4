"""Proves a stranger's set: checks its raw samples, compares its costs with its own visits.

Only visits enter a database from outside; costs are derived from them, never taken on trust.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias

from sqlalchemy import Table

from opdb.derive.costs import ESTIMATOR
from opdb.derive.review import board_costs
from opdb.errors import InputError
from opdb.garbage import gc_paused
from opdb.records import Campaign, HostVisit, Visit
from opdb.store import rows, schema
from opdb.store.deriving import alike
from opdb.store.fields import field_of
from opdb.store.rows import NewRow
from opdb.store.set_reading import Contents
from opdb.store.sets import FAULTS, Columns

ESTIMATORS = tuple(str(number) for number in range(1, int(ESTIMATOR) + 1))
"""The estimators whose costs are read; the last is this version's."""

_OLDEST_FIRST = attrgetter("started_at", "id")

_Place: TypeAlias = tuple[str, str, str]
"""Board, configuration (key) and setting of a cost."""


@gc_paused()
def proved(contents: Contents) -> Contents:
    """Return a set with the costs that follow from its own visits.

    Those that it came with must be the same but for rounding, and stay as they are: the last bit
    of a logarithm depends on the machine. Those of an older estimator may differ and are replaced.

    Raises:
        InputError: a sample cannot be what was measured, or a cost is not what the visits say.
    """
    campaigns: dict[str, list[Campaign]] = defaultdict(list)
    boards = {}
    for campaign in sorted(_campaigns(contents), key=_OLDEST_FIRST):
        boards[campaign.id] = campaign.board.uuid
        campaigns[campaign.board.uuid].append(campaign)
    visits, hosts = (_by_board(contents[n], boards) for n in ("visits.csv", "host_visits.csv"))
    for _ in _decoded(contents["model_runs.csv"], schema.model_run):
        pass
    costs = contents["costs.csv"]
    derived: dict[_Place, NewRow] = {}
    for board in sorted(visits.keys() | hosts.keys()):
        seen = sorted(_visits(visits[board]), key=_OLDEST_FIRST) if board in visits else []
        of_host = sorted(_host_visits(hosts[board]), key=_OLDEST_FIRST) if board in hosts else []
        try:
            found = board_costs(campaigns[board], seen, of_host)
        except (ArithmeticError, *FAULTS) as error:
            raise InputError(
                f"{costs.path.parent}: no costs can be derived from the visits of {board}: {error}"
            ) from error
        derived |= {(c.board, c.configuration, c.setting): rows.COST.row(c) for c in found}
    derived |= _as_stored(costs, derived)
    columns = {name: [row[name] for row in derived.values()] for name in costs.values}
    return {**contents, "costs.csv": Columns(costs.path, [0] * len(derived), columns)}


def _campaigns(contents: Contents) -> Iterator[Campaign]:
    devices = {row["slug"]: rows.DEVICE.read(row) for row in contents["device.csv"].rows()}
    hosts = {row["id"]: rows.HOST.read(row) for row in contents["hosts.csv"].rows()}
    found = contents["campaigns.csv"]
    for number, row in enumerate(found.rows()):
        for column, known in (("device", devices), ("host", hosts)):
            if row[column] not in known:
                where = f"no such {'board of this device' if column == 'device' else column}"
                raise found.error(number, column, row[column], where)
        yield rows.CAMPAIGN.read(row, device=devices[row["device"]], host=hosts[row["host"]])


def _by_board(found: Columns, boards: Mapping[str, str]) -> dict[str, Columns]:
    """Return the rows of each board: the samples of one at a time fit into memory."""
    return found.by([boards[campaign] for campaign in found.values["campaign"]])


def _visits(found: Columns) -> Iterator[Visit]:
    for row, decoded in _decoded(found, schema.visit):
        yield replace(rows.VISIT.read(row), **decoded)


def _host_visits(found: Columns) -> Iterator[HostVisit]:
    for row, decoded in _decoded(found, schema.host_visit):
        yield replace(rows.HOST_VISIT.read(row), times_s=decoded["times"])


def _decoded(found: Columns, table: Table) -> Iterator[tuple[NewRow, dict[str, Any]]]:
    """Yield each row of a table, without its raw samples, and these as they were measured.

    Raises:
        InputError: one cannot be read, or cannot be what was measured.
    """
    samples = {column.name: field_of(column) for column in table.columns}
    samples = {name: field for name, field in samples.items() if field.verify}
    for number, row in enumerate(found.rows()):
        decoded = {}
        for column, field in samples.items():
            text = row[column]
            row[column] = None
            try:
                decoded[column] = field.checked(text)
            except FAULTS as error:
                raise found.error(number, column, text, error) from error
        yield row, decoded


def _as_stored(stored: Columns, derived: Mapping[_Place, NewRow]) -> dict[_Place, NewRow]:
    """Return the costs of a set that are those derived from its visits but for rounding.

    Raises:
        InputError: one differs, rests on no visit, or is of an estimator that is not known.
    """
    same: dict[_Place, NewRow] = {}
    for number, row in enumerate(stored.rows()):
        if row["estimator"] not in ESTIMATORS:
            known = f"this version of opdb reads {', '.join(ESTIMATORS)}; upgrade opdb"
            raise stored.error(number, "estimator", row["estimator"], known)
        place = (row["board"], row["configuration"], row["setting"])
        cost = derived.get(place)
        if cost is None:
            why = f"a cost on {row['board']} that rests on no visit of the set"
            raise stored.error(number, "configuration", row["configuration"], why)
        if row["estimator"] != ESTIMATOR:
            continue
        for name, value in row.items():
            if value != cost[name] and not _alike(value, cost[name]):
                why = (
                    f"from the visits of the set opdb derives {cost[name]!r}; "
                    "opdb export writes the costs that its visits give"
                )
                raise stored.error(number, name, str(value), why)
        same[place] = row
    return same


def _alike(one: Any, other: Any) -> bool:
    """Return whether two fields of a cost are the same but for rounding."""
    if isinstance(one, str) and isinstance(other, str) and one.startswith(("{", "[")):
        return alike(json.loads(one), json.loads(other))
    return alike(one, other)
