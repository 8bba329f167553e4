"""Which models a database can predict from measured operators, and how right it was of each."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opdb.records import Json, Workload
from opdb.tables import SHARE, Column, Report, Rows, Table
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.predict import Answer
    from opdb.records import Device
    from opdb.store import Head, Store

WHOLE = 0.9
"""The least share of a workload's time and energy that is measured where it counts as measured."""


@dataclass(frozen=True)
class ModelStatus:
    """A model's workloads on a device, and its measured runs beside their predictions.

    `measured` is how many workloads have at least `WHOLE` of their time and energy measured. Runs
    with calls that were never measured count for no error.
    """

    model: str
    workloads: Sequence[Workload]
    measured: int
    answers: Sequence[Answer]

    @property
    def batch_sizes(self) -> list[int]:
        """The batch sizes of its workloads, in order."""
        return sorted({each.batch_size for each in self.workloads})

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of its workloads, in order."""
        return sorted({each.dtype for each in self.workloads})

    @property
    def time_error(self) -> float | None:
        """The median |predicted / measured - 1| of the time; None without a run."""
        return _median([each.attribution_time for each in self.answers])

    @property
    def energy_error(self) -> float | None:
        """The median |predicted / measured - 1| of the energy; None where none is known."""
        return _median([each.attribution_energy for each in self.answers])


def _median(ratios: Sequence[float | None]) -> float | None:
    errors = [abs(ratio - 1) for ratio in ratios if ratio is not None]
    return statistics.median(errors) if errors else None


MODELS: Table[ModelStatus] = Table(
    Column("model", lambda each: each.model, title="model"),
    Column("workloads", lambda each: len(each.workloads), title="workloads"),
    Column("measured_workloads", lambda each: each.measured, title="measured"),
    Column(
        "batch_sizes",
        lambda each: each.batch_sizes,
        title="batch sizes",
        text=lambda each: " ".join(map(str, each.batch_sizes)),
    ),
    Column("dtypes", lambda each: each.dtypes, title="dtypes", text=lambda e: " ".join(e.dtypes)),
    Column("runs", lambda each: len(each.answers), title="runs"),
    Column("time_error", lambda each: each.time_error, title="time off by", unit=SHARE),
    Column("energy_error", lambda each: each.energy_error, title="energy off by", unit=SHARE),
)
"""A model, how much of it is measured, and the median errors of its predictions."""


@dataclass(frozen=True, repr=False)
class ModelStatuses(Report):
    """The models of a database on one device."""

    device: str
    models: Sequence[ModelStatus]
    estimates: bool

    def to_dict(self) -> Json:
        """Return what `opdb status --models --json` prints."""
        return {
            "device": self.device,
            "estimates": self.estimates,
            "models": MODELS.documents(self.models),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a row a model, and how others are predicted."""
        workloads = sum(len(each.workloads) for each in self.models)
        measured = sum(each.measured for each in self.models)
        yield (
            f"{self.device}: {plural(len(self.models), 'model')}, {plural(workloads, 'workload')}, "
            f"{measured} with at least {100 * WHOLE:.0f} % of the time and energy measured; errors "
            "are medians over measured runs in all modes (opdb validate has each)"
        )
        yield Rows(MODELS, self.models)
        yield "other models, batch sizes and dtypes: " + (
            "estimated from these, opdb predict MODEL says how surely"
            if self.estimates
            else "opdb learn makes estimates of their operators"
        )


def model_status(*, device: str | None = None, db: str | None = None) -> ModelStatuses:
    """Say which models can be predicted on a device and how well, as `opdb status --models` does.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: nothing was measured, or the database cannot be opened.
    """
    from opdb.predict import predictor_for
    from opdb.store import open_store
    from opdb.studies.accuracy import is_whole

    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        slug = predictor.device.slug
        answers: dict[str, list[Answer]] = defaultdict(list)
        for answer in filter(is_whole, predictor.answers(())):
            answers[answer.prediction.workload.name].append(answer)
        heads = [head for head in store.heads() if not head.swept]
        measured = _measured(store, predictor.device, heads)
        workloads: dict[str, list[Workload]] = defaultdict(list)
        for head in heads:
            workloads[head.workload.name].append(head.workload)
        models = [
            ModelStatus(name, some, sum(each.key in measured for each in some), answers[name])
            for name, some in sorted(workloads.items())
        ]
        return ModelStatuses(slug, models, bool(store.learned(slug)))


def _measured(store: Store, device: Device, heads: Sequence[Head]) -> set[str]:
    """Return the workloads (keys) of which at least `WHOLE` of time and energy is measured.

    What was not measured has the size that a build gives it.
    """
    from opdb.plan.survey import survey
    from opdb.settings import DEFAULT_SETTINGS

    unmeasured = store.standing(device.slug).unmeasured_calls
    in_part = [head.workload.key for head in heads if unmeasured.get(head.workload.key)]
    workloads = store.workloads_by_key(in_part)
    known = survey(store, device, workloads, DEFAULT_SETTINGS)
    found = {each.key for each in workloads if known.coverage(each).least() >= WHOLE}
    return found | {head.workload.key for head in heads} - set(in_part)
