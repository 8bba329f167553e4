"""`opdb roofline`: operators and models under the peaks of a device, for time and for energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import Terminal, note, save, show, typed_command
from opdb.commands.predict import check_named
from opdb.errors import (
    CannotMeasureError,
    InputError,
    OpdbError,
    kept,
    raise_all,
)
from opdb.files import check_writable
from opdb.harvest.finding import find_workload, harvest_notes
from opdb.progress import Display
from opdb.records import Workload
from opdb.spec import ModelSpec, parse_mode
from opdb.summary_files import request_for
from opdb.tables import Listing
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.bench.session import Platform
    from opdb.store import Store
    from opdb.studies.roofline.counters import Definition
    from opdb.studies.roofline.report import RooflineReport

PANEL = "studies"


@dataclass(frozen=True)
class CountersArguments:
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
    def counts(self) -> bool:
        """Whether something is counted now, which says what device is meant."""
        return self.ncu or self.ncu_csv is not None

    def check(self) -> None:
        if self.ncu and self.ncu_csv is not None:
            raise InputError("--ncu counts here, --ncu-csv takes what was counted: give one")
        if self.ncu_metrics is not None and not self.counts:
            raise InputError("--ncu-metrics says what to count: give --ncu or --ncu-csv too")
        if self.ncu_report is not None and not self.ncu:
            raise InputError("--ncu-report keeps the report of --ncu: give that too")

    def count(
        self, store: Store, workloads: Sequence[Workload], named: str | None, display: Display
    ) -> str | None:
        """Do what was asked for; return the device (slug) that it concerns, None where any may."""
        from opdb.studies.roofline.counters import read_metrics, take_csv

        own = None if self.ncu_metrics is None else read_metrics(self.ncu_metrics)
        if self.ncu_csv is not None:
            board, taken, unknown = take_csv(store, self.ncu_csv, own)
            _check_device(board.device, named)
            display.note(f"profiles taken in: {taken} of {board.uuid}")
            if unknown:
                calls = plural(unknown, "call")
                display.note(f"left out: {calls} of no model that is stored here")
            return board.device
        return self._count_here(store, workloads, own, named, display) if self.ncu else None

    def _count_here(
        self,
        store: Store,
        workloads: Sequence[Workload],
        own: Definition | None,
        named: str | None,
        display: Display,
    ) -> str:
        from opdb.studies.roofline.counters import definition, find, lacking

        tool = find()
        platform = _gpu()
        _check_device(platform.device.slug, named)
        from opdb.studies.roofline.profiling import profile_calls

        chosen = definition(tool.known_metrics(), own)
        wanted = lacking(store, workloads, platform.board, chosen)
        if not wanted and self.ncu_report is not None:
            display.note("all of it was counted before: there is no report to keep")
        with display.progress(len(wanted), "count") as shown:
            shown.doing(f"with {tool.name}")
            missing = profile_calls(
                store, platform, tool, chosen, wanted, self.ncu_report, done=shown.done
            )
        for reason, calls in Counter(missing.values()).items():
            display.note(f"no profile of {plural(calls, 'configuration')}: {reason}")
        return platform.device.slug


def _gpu() -> Platform:
    from opdb.bench.session import detect

    platform = detect()
    if platform.device.type != "cuda":
        raise CannotMeasureError(
            "no CUDA device here to read hardware counters of; run on a machine with an NVIDIA "
            "GPU, or take in what was counted there with --ncu-csv"
        )
    return platform


def _check_device(counted_on: str, named: str | None) -> None:
    if named is not None and named != counted_on:
        raise InputError(f"--device {named}: these counters are those of {counted_on}")


@dataclass(frozen=True)
class RooflineFiles:
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

    def contents(self, found: RooflineReport | Listing) -> Iterator[tuple[Path, str | bytes]]:
        from opdb.studies.roofline.report import title_of

        drawn = self.png or self.svg or self.html
        if isinstance(found, Listing):
            if self.csv or drawn:
                found.check()
            return
        if self.csv is not None:
            yield self.csv, found.csv()
        if not drawn:
            return
        from opdb.studies.roofline.figure import draw, page

        titles = [title_of(model) for model in found.study.models]
        drawing = draw(found.study, titles, typed_command())
        if self.png is not None:
            yield self.png, drawing.png
        if self.svg is not None:
            yield self.svg, drawing.svg
        if self.html is not None:
            yield self.html, page(drawing, f"Roofline: {', '.join(titles)}")


def run(
    models: Annotated[
        list[str],
        options.models("Models' names or summary files."),
    ],
    mode: options.ModeName = "eager",
    said: options.PhaseModel = ModelSpec(),
    device: options.DeviceName = None,
    board: options.BoardOption = None,
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
    opdb doctor --calibrate measured; the vendor's stand apart. With --ncu, --ncu-csv or --counters
    operations and bytes are those that hardware counters saw, and both stand in one table.
    """
    chosen = parse_mode(mode)
    for name in models:
        request_for(name, said)  # what is wrong with one is told before the work
    if peaks is not None:
        from opdb.studies.roofline.points import read_peaks

        read_peaks(peaks, None)
    counters.check()
    check_writable(files.csv, files.png, files.svg, files.html, counters.ncu_report)
    silent = out.quiet or out.as_json
    errors: list[OpdbError] = []
    from opdb.store import open_store
    from opdb.studies.roofline.report import roofline

    with open_store(out.db, create=False) as store:
        if not counters.counts:
            check_named(store, device, board)
        workloads: list[Workload] = []
        for name in dict.fromkeys(models):
            with kept(errors, name):
                request, asked = request_for(name, said), [name, *said.as_arguments()]
                stored = find_workload(store, request, chosen, asked, harvest=not no_harvest)
                for line in harvest_notes(stored, store.location):
                    note(line, quiet=out.quiet)
                workloads.append(stored.in_mode(chosen))
        if not workloads:
            raise_all(errors, "shown")
        counted_on = counters.count(store, workloads, device, Terminal(quiet=silent))
        found = roofline(
            store,
            workloads,
            chosen,
            counted_on or device,
            board,
            peaks=peaks,
            counters=counters.counts or counters.counters,
        )
    for path, content in files.contents(found):
        save(path, content, quiet=silent)
    show(found, as_json=out.as_json)
    raise_all(errors, "shown")
