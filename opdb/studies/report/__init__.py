"""`opdb report`: one HTML page of what the database knows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb.cli import console, options
from opdb.cli.console import save
from opdb.commands.validate import known_models, validation
from opdb.files import check_writable
from opdb.records import Json
from opdb.tables import Report, Rows
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.studies.report.page import Content

PANEL = "studies"


@dataclass(frozen=True, repr=False)
class ReportPage(Report):
    content: Content

    @cached_property
    def html(self) -> str:
        from opdb.studies.report.page import page

        return page(self.content)

    def to_dict(self) -> dict[str, Json]:
        found = self.content
        return {
            "device": found.device.slug,
            "models": list(found.models),
            "runs": len(found.runs),
            "workloads": len(found.workloads),
            "size_bytes": len(self.html.encode()),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        found = self.to_dict()
        runs, workloads = plural(found["runs"], "run"), plural(found["workloads"], "workload")
        yield f"{runs} of {workloads}, {show(found['size_bytes'], 'B', digits=3)}"


def report(*models: str, device: str | None = None, db: str | None = None) -> ReportPage:
    """Gather what the database knows of models (none: all) for one page: `html` of the answer."""
    from opdb.predict.predictor import predictor_for
    from opdb.store import open_store
    from opdb.studies.report.page import gather

    with open_store(db, create=False) as store:
        words = ["opdb", "report", *known_models(store, models)]
        words += [] if device is None else ["--device", device]
        predictor = predictor_for(store, device, estimates=False)
        found = validation(predictor, models, ())
        return ReportPage(gather(store, predictor, models, shlex.join(words), *found))


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Models of the database.  [default: all]"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    device: options.DeviceName = None,
    out: options.Output = options.Output(),
) -> None:
    """Write one HTML page of what the database knows: it opens from disk, without a network.

    It has predictions beside measured runs, where the time and energy of each run go, rooflines,
    coverage and what is missing. Tables can be sorted, filtered and saved as CSV, figures as SVG.
    """
    check_writable(output)
    found = report(*(models or []), device=device, db=out.db)
    save(output, found.html, quiet=out.quiet or out.as_json)
    console.show(found, as_json=out.as_json)
