"""`opdb roofline`: operators and models under the peaks of a device, for time and for energy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from opdb.cli.support import options
from opdb.cli.support.console import Terminal, show
from opdb.cli.support.counting import CountersArguments
from opdb.cli.support.files import save, typed_command
from opdb.cli.support.selection import check_named, found_workload
from opdb.errors import NothingMeasuredError
from opdb.files import check_writable
from opdb.lookup.options import parse_mode
from opdb.lookup.requests import request_for
from opdb.studies.peaks import read_peaks

if TYPE_CHECKING:
    from opdb.studies.roofline import Study
    from opdb.studies.roofline_report import CountersAlone, RooflineReport


@dataclass(frozen=True)
class RooflineFiles:
    """The files that are written, where they are asked for."""

    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every operator as CSV.")
    ] = None
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write the figure as PNG.")
    ] = None
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the figure as SVG.")
    ] = None
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page to explore, needs no network."),
    ] = None

    def check(self) -> None:
        """Check before the work that the files can be written.

        Raises:
            InputError: one cannot.
        """
        for path in filter(None, (self.csv, self.png, self.svg, self.html)):
            check_writable(path)

    def contents(self, found: RooflineReport | CountersAlone) -> Iterator[tuple[Path, str | bytes]]:
        """Yield each file and what it holds.

        Raises:
            NothingMeasuredError: a file is asked for, and there is no roofline.
        """
        from opdb.studies.roofline_report import CountersAlone

        if isinstance(found, CountersAlone):
            if self.csv or self.png or self.svg or self.html:
                raise NothingMeasuredError(found.why)
            return
        if self.csv is not None:
            yield self.csv, found.csv()
        if self.png or self.svg or self.html:
            yield from self._figures(found.study)

    def _figures(self, found: Study) -> Iterator[tuple[Path, str | bytes]]:
        from opdb.studies.figure import draw
        from opdb.studies.page import page
        from opdb.studies.roofline_report import title_of

        titles = [title_of(model) for model in found.models]
        drawing = draw(found, titles, typed_command())
        if self.png is not None:
            yield self.png, drawing.png
        if self.svg is not None:
            yield self.svg, drawing.svg
        if self.html is not None:
            yield self.html, page(drawing, f"Roofline: {', '.join(titles)}")


CostsOf: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="UUID",
        help="Costs of this board; the beginning of its UUID will do.  [default: the one "
        "that measured the first model, else the one that covers it best]",
    ),
]


def run(
    models: Annotated[
        list[str],
        options.models("Models' names or summary files."),
    ],
    mode: options.ModeName = "eager",
    said: options.PhaseModel = options.ModelArguments(),
    device: options.DeviceName = None,
    board: CostsOf = None,
    peaks: Annotated[
        Path | None,
        typer.Option(
            "--peaks", metavar="FILE", help="Peaks of your own (JSON) in place of the measured."
        ),
    ] = None,
    files: RooflineFiles = RooflineFiles(),
    counters: CountersArguments = CountersArguments(),
    no_harvest: options.NoHarvest = False,
    out: options.Output = options.Output(),
) -> None:
    """Show what holds each operator back, memory or arithmetic, and how far it is from its roof.

    Operations and bytes are counted, times and energies those of the database, peaks those that
    opdb calibrate measured; the vendor's stand apart. With --ncu, --ncu-csv or --counters
    operations and bytes are those that hardware counters saw, and both stand in one table.
    """
    chosen = parse_mode(mode)
    asked = said.options
    for name in models:
        request_for(name, asked)  # what is wrong with one is told before the work
    if peaks is not None:
        read_peaks(peaks, None)
    counters.check()
    files.check()
    silent = out.quiet or out.as_json
    from opdb.store import open_store
    from opdb.studies.roofline_report import Under, roofline

    with open_store(out.db, create=False) as store:
        if not counters.counts:
            check_named(store, device, board)
        find = partial(found_workload, store, harvest=not no_harvest, quiet=out.quiet)
        workloads = [find(name, asked, chosen).in_mode(chosen) for name in dict.fromkeys(models)]
        counted_on = counters.count(store, workloads, device, Terminal(quiet=silent))
        under = Under(counted_on or device, board, peaks, counters.asked)
        found = roofline(store, workloads, chosen, under)
    for path, content in files.contents(found):
        save(path, content, quiet=silent)
    show(found, as_json=out.as_json)
