"""`opdb train`: trainings of many models under many options, from one file, resumable."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import Terminal, note, print_json, save, say, show
from opdb.errors import InputError, OpdbError
from opdb.files import check_writable
from opdb.harvest.finding import harvest_notes, workload_of
from opdb.packaging import install
from opdb.progress import Display
from opdb.records import Json
from opdb.runs import RunTable
from opdb.studies.sweep.request import stored_run
from opdb.studies.train.rows import (
    BackendDevice,
    MatrixPolicy,
    MatrixReport,
    MatrixRun,
    cells_of,
    labelled,
    request_of,
)
from opdb.units import plural, show_duration

if TYPE_CHECKING:
    from opdb.spec import ModelSpec
    from opdb.store import Store
    from opdb.studies.train.rows import Combination

PANEL = "studies"


class TrainingMatrix:
    """The runs of a matrix that are meant, of some labels or all, and what a database has of them.

    `device` (slug) is where stored runs were made; None: on this machine. With `retry` runs are
    made that failed before, with `again` even those that are done.
    """

    def __init__(
        self,
        store: Store,
        combinations: Sequence[Combination],
        labels: Sequence[str] = (),
        device: str | None = None,
        *,
        retry: bool = False,
        again: bool = False,
        allow_code: bool = False,
    ) -> None:
        self._store, self._retry, self._again = store, retry, again
        backends = {combination.backend for combination in combinations}
        if device is None:
            from opdb.studies.train.running import places

            of_backends = places(backends)
        else:
            of_backends = _stored_places(store, backends, device)
        self._cells = labelled(cells_of(combinations, of_backends), labels)
        devices = [cell.place.device for cell in self._cells if cell.place.device]
        self._policy = MatrixPolicy(tuple(dict.fromkeys(devices)))
        self._request_of = partial(request_of, allow_code=allow_code)

    def plan(self) -> tuple[dict[str, Json], str]:
        table = RunTable.read(self._store, self._policy)
        left = table.pending(self._cells, retry=self._retry, again=self._again)
        devices = {cell.place.device for cell in left}
        took = [r.cost_s for r in self._policy.runs(self._store) if r.device in devices]
        seconds = len(left) * sum(took) / len(took) if took else None
        document = {
            "runs": len(self._cells),
            "left": [cell.label for cell in left],
            "states": dict(Counter(map(table.state, self._cells))),
            "planned_s": seconds,
            "rests_on_runs": len(took),
        }
        about = "" if seconds is None else f", about {show_duration(seconds)} of training"
        grounds = f" as {plural(len(took), 'run')} took" if took else ""
        words = f"{len(left)} of {plural(len(self._cells), 'run')} to be made{about}{grounds}"
        return document, words

    def train(self, display: Display) -> list[str]:
        from opdb.bench.harvests import measuring
        from opdb.studies.train.running import trained_at

        def key_of(request: ModelSpec) -> str:
            stored = workload_of(self._store, request, measuring())
            for line in harvest_notes(stored):
                display.note(line)
            return stored.workload.key

        table = RunTable(self._policy, self._policy.runs(self._store))
        left = table.pending(self._cells, retry=self._retry, again=self._again)
        for cell in left:
            self._request_of(cell)  # what cannot be asked for is told before anything runs
        failures: list[str] = []
        with display.progress(len(left), "matrix") as shown:
            for place in dict.fromkeys(cell.place for cell in left):
                cells = [cell for cell in left if cell.place == place]
                made = trained_at(
                    place,
                    self._store,
                    self._policy,
                    cells,
                    shown,
                    self._request_of,
                    key_of,
                    retry=self._retry,
                    again=self._again,
                )
                for cell, came in made:
                    if isinstance(came, OpdbError):
                        failures.append(f"{cell.label}: {came}")
                        shown.note(failures[-1])
                    elif came.outcome != "ok":
                        shown.note(f"{cell.label}: {came.outcome}: {came.reason}")
        return failures

    def report(self, failures: Sequence[str] = (), *, states: bool = False) -> MatrixReport:
        table = RunTable.read(self._store, self._policy)
        campaigns = {campaign.id: campaign for campaign in self._store.campaigns()}
        found = []
        for cell in self._cells:
            run = stored_run(self._store, table, cell, cell.place.device)
            campaign = None if run is None else campaigns[run.campaign]
            found.append(MatrixRun(cell, table.state(cell), run, campaign))
        return MatrixReport(found, failures, states)


def _stored_places(store: Store, backends: set[str], device: str) -> dict[str, BackendDevice]:
    from opdb.predict.predictor import choose_device

    chosen, found = choose_device(store, device), {}
    for name in backends:
        backend = chosen.type if name == "auto" else name
        why = None if backend == chosen.type else f"{chosen.slug} is no {backend} device"
        found[name] = BackendDevice(backend, chosen.slug if why is None else "", why_not=why)
    return found


@dataclass(frozen=True)
class MatrixFiles:
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a row for each run.")
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw images/s and energy an image over batch size, as PNG.",
        ),
    ] = None

    def check(self) -> None:
        check_writable(self.csv, self.plot)
        if self.plot is not None and find_spec("matplotlib") is None:
            raise InputError(f"--plot needs matplotlib, which is not installed; {install('plots')}")
        if self.plot is not None and self.plot.suffix.lower() != ".png":
            raise InputError(f"--plot {self.plot}: figures are PNG files; give a name as in m.png")

    def write(self, matrix: Path, found: MatrixReport, *, quiet: bool) -> None:
        from opdb.studies.train.rows import lines_of
        from opdb.studies.train.running import draw

        if self.csv is not None:
            save(self.csv, found.csv(), quiet=quiet)
        lines = lines_of(found.runs)
        if self.plot is not None and not any(line.figures for line in lines):
            note(f"{self.plot} is not written: no training of the matrix was measured yet")
        elif self.plot is not None:
            command = shlex.join(["opdb", "train", matrix.name])
            devices = dict.fromkeys(r.campaign.device.name for r in found.runs if r.campaign)
            save(self.plot, draw(lines, f"Training on {', '.join(devices)}", command), quiet=quiet)


@dataclass(frozen=True)
class MatrixArguments:
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="LABEL", help="This run alone; may be repeated."),
    ] = None
    plan: Annotated[
        bool, typer.Option("--plan", help="List the labels of what is left; measure nothing.")
    ] = False
    status: Annotated[
        bool, typer.Option("--status", help="Show what is done, failed and left; measure nothing.")
    ] = False
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False
    again: Annotated[
        bool, typer.Option("--again", help="With --only: run it though it is done.")
    ] = False


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The matrix: models and options, or lists.")
    ],
    asked: MatrixArguments = MatrixArguments(),
    files: MatrixFiles = MatrixFiles(),
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="With --status: a device, such as h200.  [default: this machine's]",
        ),
    ] = None,
    allow_code: options.AllowCode = False,
    out: options.Output = options.Output(),
) -> None:
    """Train models × batch sizes × precision × backend × repeats, and tabulate what came of it.

    Every option of opdb measure --phase training may be a value or a list in the file. Each run
    has a process of its own and is stored as soon as it is done; what is stored is not run again,
    what failed only with --retry. --only LABEL --again repeats a run.
    """
    from opdb.store import open_store
    from opdb.studies.train.rows import load_matrix

    if asked.plan and asked.status:
        raise InputError("give --plan or --status, not both")
    if asked.again and not asked.only:
        raise InputError("--again is for single runs: name them with --only LABEL")
    if device is not None and not asked.status:
        raise InputError("--device is for --status; where a run is made, the file's backend says")
    files.check()
    combinations = load_matrix(file, allow_code=allow_code or asked.status)
    with open_store(out.db) as store:
        matrix = TrainingMatrix(
            store,
            combinations,
            asked.only or (),
            device,
            retry=asked.retry,
            again=asked.again,
            allow_code=allow_code,
        )
        if asked.plan:
            plan, words = matrix.plan()
            if out.as_json:
                print_json(plan)
            else:
                say(*plan["left"])
                note(words, quiet=out.quiet)
            return
        failures = [] if asked.status else matrix.train(Terminal(quiet=out.quiet))
        found = matrix.report(failures, states=asked.status)
    files.write(file, found, quiet=out.quiet or out.as_json)
    show(found, as_json=out.as_json)
    if not asked.status:
        found.check()
