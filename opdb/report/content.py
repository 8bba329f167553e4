"""The content of a report, gathered from a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opdb.predict import Answer, Predictor
from opdb.report.coverage import Coverage, coverage
from opdb.report.roofs import Roofs, roofs
from opdb.report.runs import Run
from opdb.report.samples import Sampled, sampled
from opdb.store import Store
from opdb.studies.validation import Validation


@dataclass(frozen=True)
class Asked:
    """The scope of a report: models (none: all), and the command that makes it again."""

    models: Sequence[str]
    command: str


@dataclass(frozen=True)
class Content:
    """The content of a report about one device.

    `validation` has a prediction for each measured run, `left_out` says which runs it has not.
    `runs` are the parts of each prediction, in the same order; `roofs` is None where no board ran a
    whole workload. `samples` are visits of the configurations that carry most of the energy.
    """

    asked: Asked
    validation: Validation
    left_out: str | None
    runs: Sequence[Run]
    roofs: Roofs | None
    coverage: Coverage
    samples: Sequence[Sampled]

    @property
    def answers(self) -> Sequence[Answer]:
        """The predictions beside their runs."""
        return self.validation.answers


def gather(
    store: Store, predictor: Predictor, asked: Asked, found: Validation, left_out: str | None
) -> Content:
    """Gather what a report shows, beside the predictions of measured runs that were found.

    `left_out` says which runs are not among them, None where all are.
    """
    answers = found.answers
    return Content(
        asked,
        found,
        left_out,
        [Run(answer, predictor.breakdown(answer.prediction)) for answer in answers],
        roofs(store, predictor, answers),
        coverage(store, predictor.device, asked.models),
        sampled(store, predictor.device.slug, answers),
    )
