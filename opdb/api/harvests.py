"""Harvest models: list the operator calls that they make, and store them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError, raise_all
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.requests import checked_request, requests_in, summary_files
from opdb.lookup.words import describe, harvest_notes, workload_columns
from opdb.records import Json, Workload
from opdb.runs.progress import Display, Progress
from opdb.tables import Column, Report, Row, Rows, Table

if TYPE_CHECKING:
    from opdb.bench.around import Known
    from opdb.bench.harvests import Stored
    from opdb.bench.platform import Platform
    from opdb.models import ModelRequest
    from opdb.store import Store

HARVESTED = ("eager", "compile")
"""The modes whose calls can be listed: those of a model as it stands, and as it is compiled."""


@dataclass(frozen=True)
class HarvestOptions:
    """How models are harvested.

    `mode` compile adds what torch.compile makes of them on `device` (cuda, cuda:N or cpu). `anew`
    harvests again what the database has of the same code and packages.
    """

    mode: str = "eager"
    device: str | None = None
    anew: bool = False

    def platform(self) -> Platform | None:
        """Return the platform whose device models are compiled for; None where they are not.

        Raises:
            InputError: such a mode is not harvested, or a device is named that is not needed.
            CannotMeasureError: there is no such device.
        """
        if self.mode not in HARVESTED:
            raise UnknownNameError("--mode", self.mode, HARVESTED)
        if self.mode == "eager":
            if self.device is not None:
                raise InputError(f"--device {self.device}: only --mode compile asks for one")
            return None
        from opdb.bench.platform import detect

        return detect(self.device)


def _by_kind(workload: Workload) -> dict[str, Json]:
    """Return the calls and the configurations of a workload, counted by kind."""
    calls = Counter(call.configuration.title for call in workload.calls)
    distinct = Counter(configuration.title for configuration in workload.occurrences())
    return {
        kind: {"calls": calls[kind], "configurations": distinct[kind]} for kind in sorted(calls)
    }


def _called(of: Callable[[Row], Workload]) -> tuple[Column[Row], ...]:
    """Return the columns of what a workload calls."""
    return (
        Column("calls", lambda row: len(of(row).calls), title="calls"),
        Column("configurations", lambda row: len(of(row).occurrences()), title="configurations"),
        Column("by_kind", lambda row: _by_kind(of(row))),
        Column(
            "unsupported",
            lambda row: dict(of(row).unsupported),
            title="unsupported",
            text=lambda row: sum(of(row).unsupported.values()),
        ),
    )


CALLED: Table[Workload] = Table(*_called(lambda workload: workload))

WORKLOADS: Table[Stored] = Table(
    *workload_columns(lambda row: row.found.workload),
    Column("training", lambda row: row.found.workload.inputs.get("training")),
    *_called(lambda row: row.found.workload),
    Column("compiled_for", lambda row: row.found.workload.compiled_for),
    Column("captured", lambda row: row.found.captured and CALLED.document(row.found.captured)),
    Column("captured_failure", lambda row: row.found.failure),
    Column("runs_of_other_calls", lambda row: row.stale),
    Column("stood", lambda row: row.stood),
)
"""A harvested workload."""

KINDS: Table[tuple[str, int, int]] = Table(
    Column("kind", itemgetter(0), title="kind"),
    Column("calls", itemgetter(1), title="calls"),
    Column("configurations", itemgetter(2), title="configurations"),
)
"""A kind of operators, and how often a workload calls it."""


@dataclass(frozen=True, repr=False)
class Harvested(Report):
    """Harvested models: of each its workload, whether it was stored before, and what failed.

    `notes` say in words what is unusual; `location` is the database's.
    """

    stored: Sequence[Stored]
    errors: Sequence[OpdbError] = ()
    notes: Sequence[str] = ()
    location: str = ""

    @property
    def workloads(self) -> list[Workload]:
        """The workloads, in the order in which they were named."""
        return [each.found.workload for each in self.stored]

    @property
    def workload(self) -> Workload:
        """The only workload.

        Raises:
            InputError: there are several, or none.
        """
        if len(self.stored) != 1:
            raise InputError(f"{len(self.stored)} workloads were harvested: see workloads")
        return self.workloads[0]

    def check(self) -> None:
        """Raise what went wrong with some models, in one message.

        Raises:
            OpdbError: something did.
        """
        raise_all(self.errors, "stored")

    def rows(self) -> list[dict[str, Json]]:
        """Return each workload as data, its calls counted by kind."""
        return [WORKLOADS.document(each) for each in self.stored]

    def to_dict(self) -> list[dict[str, Json]]:
        """Return each workload as data: what `opdb harvest --json` prints."""
        return self.rows()

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield of one workload a row a kind, of several a row a workload."""
        if len(self.stored) == 1:
            [found] = self.workloads
            compiled = f", compiled for {found.compiled_for}" if found.compiled_for else ""
            yield f"{found.name}, {describe(found)}{compiled}"
            rows = [(kind, *counts.values()) for kind, counts in _by_kind(found).items()]
            yield Rows(KINDS, [*rows, ("all", len(found.calls), len(found.occurrences()))])
        else:
            yield Rows(WORKLOADS, self.stored)


def harvest(
    *models: str,
    options: HarvestOptions | None = None,
    db: str | None = None,
    **said: Unpack[ModelWords],
) -> Harvested:
    """List the operator calls of models and store them, as `opdb harvest` does; it needs torch.

    `models` are names, summary files or folders of them; `said` are options of all: batch_size,
    input_size, dtype, phase … What was harvested of the same code and packages is taken as it is.

    Raises:
        OpdbError: a model is not known or cannot be harvested; the others are stored.
    """
    found = harvest_all(models, [ModelOptions.parse(**said)], options or HarvestOptions(), db=db)
    found.check()
    return found


def harvest_all(
    models: Sequence[str],
    said: Sequence[ModelOptions],
    how: HarvestOptions,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> Harvested:
    """Harvest each model with all that is said; one that fails does not stop the others.

    It is among the `errors`. A summary file gives all of its requests, and is marked as processed
    once all are stored.

    Raises:
        InputError: the database cannot be opened, or the mode is not harvested.
        CannotMeasureError: models are compiled for a device that is not here.
    """
    from opdb.store import check_openable, open_store

    check_openable(db)  # a harvest takes seconds
    platform = how.platform()
    errors: list[OpdbError] = []
    jobs = _jobs(models, said, errors)
    total = sum(len(job.requests) for job in jobs)
    if not total:
        return Harvested([], errors)
    with open_store(db) as store, (display or Display()).progress(total, "harvest") as shown:
        harvester = _Harvester(store, platform, how.anew, shown, errors)
        for job in jobs:
            harvester.run(job)
        stored = [each for job in jobs for each in job.done]
        notes = [note for job in jobs for note in job.notes]
        for each in stored:
            notes += harvest_notes(each.found, each.stale)
        return Harvested(stored, errors, notes, store.location)


@dataclass
class _Job:
    """What one argument asks for, and whether all of it was done."""

    file: Path | None
    requests: list[ModelRequest]
    failed: bool = False
    done: list[Stored] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _jobs(
    arguments: Sequence[str], said: Sequence[ModelOptions], errors: list[OpdbError]
) -> list[_Job]:
    """Return what the arguments ask for; what is wrong with one is kept for the end."""
    jobs = []
    for argument in arguments:
        try:
            files = summary_files(argument)
            if not files:
                jobs.append(_Job(None, [checked_request(argument, one) for one in said]))
        except OpdbError as error:
            errors.append(error)
            continue
        for file in files:
            try:
                found = [request.checked() for one in said for request in requests_in(file, one)]
                jobs.append(_Job(file, found))
            except OpdbError as error:
                errors.append(error)
    return jobs


@dataclass(frozen=True)
class _Harvester:
    """Harvests jobs into a database; with a platform, each model is compiled for its device."""

    store: Store
    platform: Platform | None
    anew: bool
    shown: Progress
    errors: list[OpdbError]
    around: Known = field(default_factory=dict)

    def run(self, job: _Job) -> None:
        """Harvest and store what a job asks for; mark its file when all of it is stored.

        Raises:
            CannotMeasureError: the device does not answer.
        """
        for request in job.requests:
            self.shown.doing(f"{request.name} {describe(request)}")
            try:
                job.done.append(self._stored(request))
            except CannotMeasureError:
                raise
            except OpdbError as error:
                self.errors.append(error)
                job.failed = True
            self.shown.done()
        if job.file is not None and not job.failed:
            _mark(job.file, job.notes)

    def _stored(self, request: ModelRequest) -> Stored:
        from opdb.bench.harvests import compile_into, harvest_into

        stored = harvest_into(self.store, request, anew=self.anew, around=self.around)
        if self.platform is None:
            return stored
        return compile_into(self.store, request, stored, self.platform, anew=self.anew)


def _mark(file: Path, notes: list[str]) -> None:
    """Mark a summary file as processed; where it cannot be written, that is a note."""
    from opdb.summary import mark_processed

    try:
        mark_processed(file)
    except InputError as error:
        notes.append(f"not marked as processed, though all of it is stored: {error}")
