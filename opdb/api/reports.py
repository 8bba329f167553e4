"""A report: what a database knows of models, as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opdb.api.validations import known_models, validation
from opdb.records import Json
from opdb.tables import Report, Rows
from opdb.units import plural, show

if TYPE_CHECKING:
    from opdb.report import Content


@dataclass(frozen=True, repr=False)
class ReportPage(Report):
    """What a report shows, and the page itself."""

    content: Content

    @cached_property
    def html(self) -> str:
        """The page: one file, which loads nothing."""
        from opdb.report import page

        return page(self.content)

    def to_dict(self) -> dict[str, Json]:
        """Return what the page shows, in numbers: what `opdb report --json` prints."""
        found = self.content
        return {
            "device": found.coverage.device.slug,
            "models": list(found.asked.models),
            "runs": len(found.runs),
            "workloads": len(found.coverage.workloads),
            "size_bytes": len(self.html.encode()),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a line: how many runs and workloads the page shows, and its size."""
        found = self.to_dict()
        runs, workloads = plural(found["runs"], "run"), plural(found["workloads"], "workload")
        yield f"{runs} of {workloads}, {show(found['size_bytes'], 'B', digits=3)}"


def report(*models: str, device: str | None = None, db: str | None = None) -> ReportPage:
    """Gather what the database knows of models (none: all) for one page, as `opdb report` does.

    The page is the `html` of what is returned.

    Raises:
        InputError: a model or device is not known, or no run of it was measured.
    """
    from opdb.predict import predictor_for
    from opdb.report import Asked, gather
    from opdb.store import open_store

    with open_store(db, create=False) as store:
        words = ["opdb", "report", *known_models(store, models)]
        words += [] if device is None else ["--device", device]
        predictor = predictor_for(store, device, estimates=False)
        asked = Asked(models, shlex.join(words))
        return ReportPage(gather(store, predictor, asked, *validation(predictor, models, ())))
