"""What `opdb modes --explain` does: ask which traits go with gains, write its files, show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.cli.support.console import show
from opdb.cli.support.files import save, typed_command
from opdb.cli.support.options import Output
from opdb.files import check_writable
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.studies.gains_report import GainsReport, Wanted


@dataclass(frozen=True)
class Files:
    """The files that options name; None: no such file."""

    csv: Path | None = None
    png: Path | None = None
    svg: Path | None = None

    def check(self) -> None:
        """Check before the work that they can be written.

        Raises:
            InputError: one cannot.
        """
        for path in filter(None, (self.csv, self.png, self.svg)):
            check_writable(path)

    def contents(self, found: GainsReport) -> Iterator[tuple[Path, str | bytes]]:
        """Yield each file and what it holds."""
        if self.csv is not None:
            yield self.csv, found.csv()
        if self.png is None and self.svg is None:
            return
        from opdb.studies.gains_figure import draw_gains

        workloads = plural(len(found.found), "workload")
        title = f"What modes save, {workloads} on {found.device.name}"
        drawn = draw_gains(found.found, title, typed_command())
        if self.png is not None:
            yield self.png, drawn.png
        if self.svg is not None:
            yield self.svg, drawn.svg


def explain(wanted: Wanted, files: Files, out: Output) -> None:
    """Show which traits of models go with what modes save, from all that was measured.

    Raises:
        InputError: no workload of the device was measured in eager and in another mode.
    """
    files.check()
    from opdb.store import open_store
    from opdb.studies.gains_report import explain_gains

    with open_store(out.db, create=False) as store:
        found = explain_gains(store, wanted)
    for path, content in files.contents(found):
        save(path, content, quiet=out.quiet or out.as_json)
    show(found, as_json=out.as_json)
