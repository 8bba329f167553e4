"""Proves a stranger's set: checks its raw samples, compares its costs with its own visits.

Only visits enter a database from outside; costs are derived from them, never taken on trust. Facts
of calibrations, whose traces no set holds, are held against the samples of visits and runs, and
against the facts of other boards.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias

from sqlalchemy import Column

from opdb.derive.calibration import ALLOWED, bounds_of
from opdb.derive.costs import ESTIMATOR, board_costs
from opdb.errors import InputError
from opdb.garbage import gc_paused
from opdb.records import Campaign
from opdb.store import rows, schema
from opdb.store.deriving import alike
from opdb.store.fields import field_of
from opdb.store.rows import NewRow
from opdb.store.sets import FAULTS, Contents, Rows

ESTIMATORS = tuple(str(number) for number in range(1, int(ESTIMATOR) + 1))
"""The estimators whose costs are read; the last is this version's."""

_MEASURED: Mapping[str, rows.Codec[Any]] = {
    "visits": rows.VISIT,
    "host_visits": rows.HOST_VISIT,
    "model_runs": rows.MODEL_RUN,
}
"""What has raw samples."""

STATED: Mapping[str, Column[str]] = {
    "calibrations": schema.board_calibration.c.facts,
    "campaigns": schema.campaign.c.calibration,
}
"""What states facts of boards, and the column of these."""

_OLDEST_FIRST = attrgetter("started_at", "id")

_Place: TypeAlias = tuple[str, str, str]
"""Board, configuration (key) and setting of a cost."""


@gc_paused()
def proved(contents: Contents) -> Contents:
    """Return a set with the costs that follow from its own visits.

    Those that it came with must be the same but for rounding, and stay as they are: the last bit
    of a logarithm depends on the machine. Those of an older estimator may differ and are replaced.

    Raises:
        InputError: a sample cannot be what was measured, a cost is not what the visits say, or a
            fact of a calibration contradicts what was seen of its board or of others.
    """
    campaigns: dict[str, list[Campaign]] = defaultdict(list)
    for campaign in sorted(_campaigns(contents), key=_OLDEST_FIRST):
        campaigns[campaign.board.uuid].append(campaign)
    costs = contents["costs"]
    derived: dict[_Place, NewRow] = {}
    bounds: dict[str, dict[str, tuple[float, float]]] = {}
    for board in sorted(campaigns):
        # The samples of one board at a time fit into memory.
        of_board = {campaign.id for campaign in campaigns[board]}
        visits, host_visits, runs = (
            _records(contents[name], codec, of_board) for name, codec in _MEASURED.items()
        )
        bounds[board] = bounds_of(campaigns[board][0].device, visits, runs)
        try:
            found = board_costs(campaigns[board], visits, host_visits)
        except (ArithmeticError, *FAULTS) as error:
            raise InputError(
                f"{costs.path}: no costs can be derived from the visits of {board}: {error}"
            ) from error
        derived |= {(c.board, c.configuration, c.setting): rows.COST.row(c) for c in found}
    derived |= _as_stored(costs, derived)
    check_facts(contents, bounds)
    columns = {name: [row[name] for row in derived.values()] for name in costs.values}
    return {**contents, "costs": replace(costs, values=columns)}


def _campaigns(contents: Contents) -> Iterator[Campaign]:
    devices = {row["slug"]: rows.DEVICE.read(row) for row in contents["devices"].rows()}
    hosts = {row["id"]: rows.HOST.read(row) for row in contents["hosts"].rows()}
    found = contents["campaigns"]
    for number, row in enumerate(found.rows()):
        for column, known in (("device", devices), ("host", hosts)):
            if row[column] not in known:
                where = f"no such {'board of this device' if column == 'device' else column}"
                raise found.error(number, column, row[column], where)
        yield rows.CAMPAIGN.read(row, device=devices[row["device"]], host=hosts[row["host"]])


def _records(of_all: Rows, codec: rows.Codec[Any], campaigns: Collection[str]) -> list[Any]:
    """Return what the rows of some campaigns hold, with the raw samples, oldest first.

    Raises:
        InputError: a sample cannot be read, or cannot be what was measured.
    """
    found, records = of_all.only([c in campaigns for c in of_all.values["campaign"]]), []
    samples = {column.name: field_of(column) for column in of_all.table.columns}
    samples = {name: field for name, field in samples.items() if field.verify}
    for number, row in enumerate(found.rows()):
        decoded = {}
        for column, field in samples.items():
            text = row[column]
            row[column] = None
            try:
                decoded["times_s" if column == "times" else column] = field.checked(text)
            except FAULTS as error:
                raise found.error(number, column, text, error) from error
        records.append(replace(codec.read(row), **decoded))
    return sorted(records, key=_OLDEST_FIRST)


def _as_stored(stored: Rows, derived: Mapping[_Place, NewRow]) -> dict[_Place, NewRow]:
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
            if value != cost[name] and not alike(value, cost[name]):
                why = (
                    f"from the visits of the set opdb derives {cost[name]!r}; "
                    "opdb export writes the costs that its visits give"
                )
                raise stored.error(number, name, value, why)
        same[place] = row
    return same


def check_facts(
    contents: Contents,
    bounds: Mapping[str, Mapping[str, tuple[float, float]]],
    known: Contents | None = None,
) -> None:
    """Check facts of calibrations and campaigns against the bounds that samples set them.

    `bounds` are by board (UUID) and fact. Facts are held against those of the device's other
    boards, too, in the set and `known`. Those of a processor, whose power other work raises, are
    left alone.

    Raises:
        InputError: one is no number, or none that this leaves possible.
    """
    stated = list(_stated(contents) if "cuda" in contents["devices"].values["type"] else ())
    every: dict[str, list[float]] = defaultdict(list)
    for *_, fact, value in (*stated, *_stated(known or {})):
        every[fact] += [value] if isinstance(value, float | int) else []
    for found, column, number, fact, value in stated:
        board = found.values["board"][number]
        most, apart = next(of for ending, of in ALLOWED.items() if fact.endswith(ending))
        low, high = bounds.get(board, {}).get(fact, (0.0, most))
        if len(every[fact]) > 1:
            usual = statistics.median(every[fact])
            low, high = max(low, usual / apart), min(high, usual * apart)
        if not isinstance(value, float | int) or not low <= value <= high:
            raise found.error(
                number,
                column,
                f"{fact} {value}",
                f"what was measured on {board} and its like allows {low:.4g} to {high:.4g}",
            )


def _stated(contents: Contents) -> Iterator[tuple[Rows, str, int, str, Any]]:
    """Yield each fact that a calibration or a campaign states: rows, column, row, name, value."""
    for found, column in [(contents[n], c.name) for n, c in STATED.items() if n in contents]:
        for number, text in enumerate(found.values[column]):
            for fact, value in json.loads(text).items():
                if value is not None and fact not in ("base_power_interval_w", "notes"):
                    yield found, column, number, fact, value
