"""What a database covers of each workload, and what is missing, pending or failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from opdb.compose import Share
from opdb.lookup.words import short_board, workload_columns
from opdb.predict import Answer
from opdb.records import Device
from opdb.store import Head, Standing, Store
from opdb.store.reading import Failure
from opdb.tables import SHARE, Column, Table


@dataclass(frozen=True)
class Covered:
    """A workload of the database: how many of its calls were measured, on how many runs."""

    head: Head
    measured_calls: int
    runs: int

    @property
    def share(self) -> float | None:
        """The share of its calls whose configuration was measured; None of a workload of none."""
        return self.measured_calls / self.head.calls if self.head.calls else None


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

FAILED: Table[Failure] = Table(
    Column("kind", attrgetter("kind"), title="kind"),
    Column("configuration", attrgetter("configuration"), title="configuration"),
    Column("outcome", attrgetter("outcome"), title="outcome"),
    Column("reason", attrgetter("reason"), title="reason"),
    Column("attempts", attrgetter("attempts"), title="attempts"),
)
"""A configuration that could not be measured."""

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
"""What a run's prediction lacks: a configuration that no board of the device measured."""


@dataclass(frozen=True)
class Coverage:
    """What one device's boards measured of the workloads."""

    device: Device
    boards: int
    standing: Standing
    workloads: Sequence[Covered]


def coverage(store: Store, device: Device, models: Sequence[str]) -> Coverage:
    """Return what a device's boards measured of these models' workloads (none: of all).

    Workloads that only a sweep asked for are left out.
    """
    standing = store.standing(device.slug)
    heads = [
        head
        for head in store.heads()
        if not head.swept and (not models or head.workload.name in models)
    ]
    return Coverage(
        device,
        len(store.boards(device.slug)),
        standing,
        [
            Covered(
                head,
                head.calls - standing.unmeasured_calls.get(head.workload.key, 0),
                standing.runs[head.workload.key],
            )
            for head in heads
        ],
    )


def missing(answers: Sequence[Answer]) -> Iterator[Missing]:
    """Yield what the predictions of runs lack, the largest share of a run first."""
    for answer in answers:
        yield from ((answer, share) for share in answer.prediction.missing)
