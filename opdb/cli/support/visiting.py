"""What a user is told while operators are measured, by `opdb bench` and `opdb build`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from statistics import fmean

from opdb.cli.support.console import note, progress
from opdb.records import Configuration, Visit
from opdb.runs.progress import Progress
from opdb.units import show


class Visiting:
    """Tells the user of visits: what runs, what it costs, how long is left."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._stack = ExitStack()
        self._aside = redirect_stdout(sys.stderr)  # whole models that are measured may print
        self._progress: Progress | None = None

    def __enter__(self) -> Visiting:
        self._aside.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._aside.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """Tell of a step that is no visit."""
        if self._progress is None:
            note(text, quiet=self._quiet)
        else:
            self._progress.note(text)

    def begin(self, visits: int) -> None:
        """Start the bar, in place of an earlier one."""
        self._stack.close()
        self._progress = self._stack.enter_context(progress(visits, "bench", quiet=self._quiet))

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        """Advance the bar."""
        assert self._progress is not None
        told = [configuration.title, f"{show(cost_s, 's', digits=2)} a visit", *_seen(visit)]
        self._progress.doing(", ".join(told))
        if visit.outcome != "ok":
            self._progress.note(f"{configuration.title}: {visit.outcome}: {visit.reason}")
        self._progress.done()


def _seen(visit: Visit) -> Iterator[str]:
    """Yield the mean power and clock of the board in a visit; nothing that no meter read.

    They are those of the visit's own samples: to ask the driver meanwhile would disturb it.
    """
    stretch = visit.stretch
    if stretch is not None and stretch.power_samples:
        yield show(fmean(power_w for _, power_w in stretch.power_samples), "W", digits=3)
    if stretch is not None and stretch.clock_samples_hz:
        yield show(fmean(stretch.clock_samples_hz), "Hz", digits=3)
