"""The options of `opdb roofline` about hardware counters, and what they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.errors import InputError
from opdb.files import check_writable
from opdb.records import Workload
from opdb.runs.progress import Display

if TYPE_CHECKING:
    from opdb.counters.metrics import Definition
    from opdb.store import Store


@dataclass(frozen=True)
class CountersArguments:
    """What is said of hardware counters."""

    ncu: Annotated[
        bool,
        typer.Option(
            "--ncu",
            help="Count operations and bytes here with Nsight Compute, then show with them.",
        ),
    ] = False
    counters: Annotated[
        bool,
        typer.Option("--counters", help="Show with what hardware counters saw before, as stored."),
    ] = False
    ncu_csv: Annotated[
        Path | None,
        typer.Option(
            "--ncu-csv",
            metavar="FILE",
            help="Take in what ncu --import REPORT --csv --page raw printed of such a run.",
        ),
    ] = None
    ncu_metrics: Annotated[
        Path | None,
        typer.Option(
            "--ncu-metrics",
            metavar="FILE",
            help="Metrics of your own (JSON) by quantity, for --ncu.",
        ),
    ] = None
    ncu_report: Annotated[
        Path | None,
        typer.Option(
            "--ncu-report", metavar="FILE", help="Keep Nsight Compute's report (.ncu-rep) of --ncu."
        ),
    ] = None

    @property
    def asked(self) -> bool:
        """Whether anything is to be shown as counters saw it."""
        return self.counts or self.counters

    @property
    def counts(self) -> bool:
        """Whether something is counted now, which says what device is meant."""
        return self.ncu or self.ncu_csv is not None

    def own_metrics(self) -> Definition | None:
        """Return the metrics of the user's own; None where there are none.

        Raises:
            InputError: the file does not hold metrics.
        """
        from opdb.counters.metrics import read_metrics

        return None if self.ncu_metrics is None else read_metrics(self.ncu_metrics)

    def check(self) -> None:
        """Raise where options do not go together, or a report cannot be kept.

        Raises:
            InputError: they do not.
        """
        if self.ncu and self.ncu_csv is not None:
            raise InputError("--ncu counts here, --ncu-csv takes what was counted: give one")
        if self.ncu_metrics is not None and not self.ncu and self.ncu_csv is None:
            raise InputError("--ncu-metrics says what to count: give --ncu or --ncu-csv too")
        if self.ncu_report is not None and not self.ncu:
            raise InputError("--ncu-report keeps the report of --ncu: give that too")
        if self.ncu_report is not None:
            check_writable(self.ncu_report)

    def count(
        self, store: Store, workloads: Sequence[Workload], named: str | None, display: Display
    ) -> str | None:
        """Do what was asked for and return the device that it concerns; None where that is open.

        `named` is the device that was named.

        Raises:
            CannotMeasureError: counters cannot be read here.
            InputError: a file is not what it should be, or another device was named.
        """
        from opdb.api.counting import count_here, take_counts

        if self.ncu_csv is not None:
            return take_counts(store, self.ncu_csv, self.own_metrics(), named, display)
        if not self.ncu:
            return None
        return count_here(store, workloads, self.own_metrics(), self.ncu_report, named, display)
