"""Coverage of each workload by a database: what is missing, pending or failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from opdb.compose import Share
from opdb.lookup.coverage import Covered
from opdb.lookup.words import short_board, workload_columns
from opdb.predict import Answer
from opdb.records import Device
from opdb.store import Standing, Store
from opdb.tables import SHARE, Column, Table

COVERAGE: Table[Covered] = Table(
    *workload_columns(lambda row: row.head.workload),
    Column("calls", lambda row: row.head.calls, title="calls"),
    Column("configurations", lambda row: row.head.configurations, title="configurations"),
    Column("measured_calls", lambda row: row.measured_calls, title="calls measured"),
    Column("coverage_calls", lambda row: row.share, title="share measured", unit=SHARE),
    Column("model_runs", lambda row: row.runs, title="model runs"),
)
"""A workload and what was measured of it."""

PENDING: Table[tuple[str, int]] = Table(
    Column("kind", itemgetter(0), title="kind"),
    Column("pending", itemgetter(1), title="configurations to measure"),
)
"""How many configurations of a kind no visit has measured yet."""

Missing = tuple[Answer, Share]

MISSING: Table[Missing] = Table(
    *workload_columns(lambda row: row[0].prediction.workload),
    Column("mode", lambda row: row[0].prediction.mode, title="mode"),
    Column(
        "board",
        lambda row: row[0].prediction.board,
        title="board",
        text=lambda row: short_board(row[0].prediction.board),
    ),
    Column("operator", lambda row: row[1].configuration.title, title="operator"),
    Column("configuration", lambda row: row[1].configuration.key, title="configuration"),
    Column("count", lambda row: row[1].count, title="calls"),
    Column("share_time", lambda row: row[1].share_time, title="share of time, about", unit=SHARE),
)
"""A configuration that a run's prediction lacks: no board of the device measured it."""


@dataclass(frozen=True)
class Coverage:
    """The coverage of workloads by one device's boards."""

    device: Device
    boards: int
    standing: Standing
    workloads: Sequence[Covered]


def coverage(store: Store, device: Device, models: Sequence[str]) -> Coverage:
    """Return the coverage of these models' workloads (none: of all) by a device's boards.

    Workloads that only a sweep asked for are left out.
    """
    standing = store.standing(device.slug)
    heads = [
        head
        for head in store.heads()
        if not head.swept and (not models or head.workload.name in models)
    ]
    covered = [Covered.of(head, standing) for head in heads]
    return Coverage(device, len(store.boards(device.slug)), standing, covered)


def missing(answers: Sequence[Answer]) -> Iterator[Missing]:
    """Yield what the predictions of runs lack, the largest share of a run first."""
    for answer in answers:
        yield from ((answer, share) for share in answer.prediction.missing)
