"""What was measured of a workload on a device, and what could not be measured."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from opdb.tables import Column, Table

if TYPE_CHECKING:
    from opdb.store import Head, Standing
    from opdb.store.rows import Failure


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
