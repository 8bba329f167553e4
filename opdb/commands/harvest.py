"""`opdb harvest`: list the operator calls of models, and store them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.cli import options
from opdb.cli.console import Terminal, note
from opdb.cli.options import batch_sizes_among
from opdb.commands import _lazy as lazy
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError, kept, raise_all
from opdb.harvest.finding import compile_into, harvest_notes, mark, workload_of
from opdb.models import checked, names
from opdb.progress import Display
from opdb.records import Json, Stored, Workload
from opdb.spec import ModelSpec, describe, title, workload_columns
from opdb.summary_files import checked_request, requests_in, summary_files
from opdb.tables import Column, Report, Row, Rows, Table
from opdb.units import plural

PANEL = "measure"

HARVESTED = ("eager", "compile")
"""The modes whose calls can be listed: those of a model as it stands, and as it is compiled."""


def _by_kind(workload: Workload) -> dict[str, Json]:
    calls = Counter(call.configuration.title for call in workload.calls)
    distinct = Counter(configuration.title for configuration in workload.occurrences())
    return {
        kind: {"calls": calls[kind], "configurations": distinct[kind]} for kind in sorted(calls)
    }


def _called(of: Callable[[Row], Workload]) -> tuple[Column[Row], ...]:
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
    Column("stood", lambda row: row.stood),
)

KINDS: Table[tuple[str, int, int]] = Table(
    Column("kind", itemgetter(0), title="kind"),
    Column("calls", itemgetter(1), title="calls"),
    Column("configurations", itemgetter(2), title="configurations"),
)


@dataclass(frozen=True, repr=False)
class Harvested(Report):
    """Harvested models: of each its workload, whether it was stored before, and what failed."""

    stored: Sequence[Stored]
    errors: Sequence[OpdbError] = ()
    notes: Sequence[str] = ()

    @property
    def workloads(self) -> list[Workload]:
        return [each.found.workload for each in self.stored]

    def check(self) -> None:
        raise_all(self.errors, "stored")

    def rows(self) -> list[dict[str, Json]]:
        return [WORKLOADS.document(each) for each in self.stored]

    def to_dict(self) -> list[dict[str, Json]]:
        return self.rows()

    def blocks(self) -> Iterator[str | Rows[Any]]:
        if len(self.stored) == 1:
            [found] = self.workloads
            compiled = f", compiled for {found.compiled_for}" if found.compiled_for else ""
            yield f"{title(found)}{compiled}"
            rows = [(kind, *counts.values()) for kind, counts in _by_kind(found).items()]
            yield Rows(KINDS, [*rows, ("all", len(found.calls), len(found.occurrences()))])
        else:
            yield Rows(WORKLOADS, self.stored)
        for each in (stored.found for stored in self.stored):
            yield from _unsupported(each.workload.name, each.workload)
            if each.captured is not None:
                yield from _unsupported(f"{each.workload.name} while captured", each.captured)


def _unsupported(name: str, workload: Workload) -> Iterator[str]:
    for called, count in workload.unsupported.items():
        yield f"{name}: no operator describes {called} ({plural(count, 'call')})"


def harvest(
    *models: str,
    mode: str = "eager",
    device: str | None = None,
    anew: bool = False,
    batch_sizes: Sequence[int] = (),
    db: str | None = None,
    display: Display | None = None,
    check: bool = True,
    **said: Any,
) -> Harvested:
    """List the operator calls of models and store them, as `opdb harvest` does; it needs torch.

    `models` are names, patterns of names, summary files or folders of them; `said` are options of
    all: batch_size, input_size, dtype, phase … What was harvested of the same code and packages is
    taken as it is, unless `anew`. Mode compile adds what torch.compile makes of them on `device`
    (cuda, cuda:N or cpu). A summary file gives all of its requests, unless `batch_sizes` are given,
    and is marked as processed once all are stored. A model that fails does not stop the others; it
    raises at the end, unless `check` leaves that to `check()` of what is returned.
    """
    platform = _platform(mode, device)
    errors: list[OpdbError] = []
    jobs = requested(models, ModelSpec.parse(**said).at_sizes(batch_sizes), errors)
    if not jobs:  # no database is opened, nor made
        raise_all(errors, "stored")
    total = sum(len(requests) for _, requests in jobs)
    stored: list[Stored] = []
    notes: list[str] = []
    around: lazy.harvests.KnownTimes = {}
    with (
        lazy.store.open_store(db) as store,
        (display or Display()).progress(total, "harvest") as shown,
    ):
        for file, requests in jobs:
            before = len(stored)
            for request in requests:
                shown.doing(f"{request.name} {describe(request)}")
                with kept(errors, request.name, CannotMeasureError):
                    one = workload_of(
                        store, request, lazy.harvests.measuring(anew=anew, around=around)
                    )
                    if platform is not None:
                        where = platform.torch_device, platform.device.slug
                        one = compile_into(store, request, one, *where, anew=anew)
                    stored.append(one)
                    notes += harvest_notes(one)
                shown.done()
            if file is not None and len(stored) - before == len(requests):
                mark(file, store.path, notes.append)
        if stood := sum(each.stood for each in stored):
            found = f"{plural(stood, 'workload')} of {len(stored)} stood in {store.location}"
            notes.append(f"{found}: --anew harvests all the same")
    harvested = Harvested(stored, errors, notes)
    if check:
        harvested.check()
    return harvested


def _platform(mode: str, device: str | None) -> lazy.session.Platform | None:
    """Return the platform whose device models are compiled for; None where they are not."""
    if mode not in HARVESTED:
        raise UnknownNameError("--mode", mode, HARVESTED)
    if mode == "eager":
        if device is not None:
            raise InputError(f"--device {device}: only --mode compile asks for one")
        return None

    return lazy.session.detect(device)


def requested(
    arguments: Sequence[str], said: Sequence[ModelSpec], errors: list[OpdbError]
) -> list[tuple[Path | None, list[ModelSpec]]]:
    """Return what names, patterns, files and folders ask for with each thing said, by file.

    What is wrong with one of them is among the `errors`, and does not stop the others; only a
    pattern that nothing matches does.
    """
    jobs: list[tuple[Path | None, list[ModelSpec]]] = []
    for argument in arguments:
        files: Sequence[Path] = ()
        is_pattern = any(sign in argument for sign in "*?[") and not Path(argument).exists()
        matching = _matching(argument) if is_pattern else []
        with kept(errors, argument):
            if matching:
                jobs += [(None, [checked(each.changed(s)) for s in said]) for each in matching]
            elif not (files := summary_files(argument)):
                jobs.append((None, [checked_request(argument, one) for one in said]))
        for file in files:
            with kept(errors, str(file)):
                found = [checked(request) for one in said for request in requests_in(file, one)]
                jobs.append((file, list({repr(each): each for each in found}.values())))
    return jobs


def _matching(pattern: str) -> list[ModelSpec]:
    """Return requests for the models of a source that a pattern matches: `torchvision:resnet*`.

    Without a source all are looked through.
    """
    source, colon, rest = pattern.rpartition(":")
    found = [name for name in names(source if colon else None) if fnmatchcase(name, rest)]
    if not found:
        raise InputError(f"no model's name matches {pattern!r}")
    return [ModelSpec(name, source=source if colon else None) for name in found]


def run(
    models: Annotated[
        list[str],
        options.models("Summary files, folders of them, model names, or patterns of names."),
    ],
    batch_sizes: options.BatchSizes = None,
    said: options.ModelAtSizes = ModelSpec(),
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="compile: what torch.compile makes of the models, too, on this machine's device.",
        ),
    ] = "eager",
    device: options.AnyDevice = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Harvest and compile again what stands in the database.")
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """List the operator calls of models.

    They are stored in the database. Neither weights nor a GPU are needed, unless it is asked what
    torch.compile makes of them: then each is compiled, as far as its fused groups, on the device.
    What was stored of the same code and packages stands, and is not harvested again.

    A summary file gives all of its batch sizes and variants, unless others are given here, and is
    then marked as processed; not so the file of a checkout whose database is another one.
    A model that fails does not stop the others; the exit status is then 2.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    found = harvest(
        *names,
        mode=mode,
        device=device,
        anew=anew,
        batch_sizes=sizes,
        db=out.db,
        display=Terminal(quiet=out.quiet),
        check=False,
        **said.keywords(),
    )
    for text in found.notes:
        note(text, quiet=out.quiet or out.as_json)
    out.answer(found)
