"""`opdb matrix`: trainings of many models under many options, from one file, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import Progress, note, print_json, progress
from opdb.cli.replaying import command_of, options_of, request_of
from opdb.cli.selection import note_harvest
from opdb.cli.tabulated import Outputs, document_of, finish, print_lines, print_states
from opdb.errors import ClaimLostError, DatabaseError, InputError, UnknownNameError
from opdb.units import counted, show_duration

if TYPE_CHECKING:
    from opdb.matrix.cells import Cell, Place, Standing, State
    from opdb.matrix.combination import Combination
    from opdb.matrix.rows import Made
    from opdb.store import Claims, Store


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The matrix: models and options, or lists.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="LABEL", help="This run alone; may be repeated."),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="List what is left, each as a command; measure nothing."),
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Show what is done, failed and left; measure nothing."),
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="With --only: run it though it is done.")
    ] = False,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a row for each run.")
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the table, repeats joined."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw images/s and energy an image over batch size, as PNG.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="With --status: a device as opdb status names it.  [default: this machine's]",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Train models × batch sizes × precision × backend × repeats, and tabulate what came of it.

    Every option of opdb measure --phase training may be a value or a list in the file. Each run
    has a process of its own and is stored as soon as it is done; what is stored is not run again,
    what failed only with --retry. Of a run's label --only --plan shows the command that repeats it.
    """
    from opdb.matrix.file import load_matrix
    from opdb.store import open_store

    _check(plan=plan, status=status, again=again, only=only, device=device)
    outputs = Outputs(file, csv_file, markdown_file, plot)
    outputs.check()
    combinations = load_matrix(file)
    with open_store(db) as store:
        matrix = _Matrix(store, _cells(store, combinations, device, only or []), quiet=quiet)
        wanted = _wanted(retry=retry, again=again)
        if plan:
            matrix.plan(wanted, as_json=as_json)
            return
        failures = [] if status else matrix.train(wanted)
        made = matrix.made()
    outputs.write(made, quiet=quiet or as_json)
    if as_json:
        print_json(document_of(made, failures))
    else:
        if status:
            print_states(made)
        print_lines(made)
    if not status:
        finish(made, failures)


def _check(
    *, plan: bool, status: bool, again: bool, only: list[str] | None, device: str | None
) -> None:
    """Check that the options go together.

    Raises:
        InputError: they do not.
    """
    if plan and status:
        raise InputError("give --plan or --status, not both")
    if again and not only:
        raise InputError("--again is for single runs: name them with --only LABEL")
    if device is not None and not status:
        raise InputError("--device is for --status; where a run is made, the file's backend says")


def _wanted(*, retry: bool, again: bool) -> tuple[State, ...]:
    """Return the states of the runs that are to be made."""
    from opdb.matrix.cells import STATES

    if again:
        return tuple(state for state in STATES if state != "running")
    return ("left", "failed", "out of memory") if retry else ("left",)


def _cells(
    store: Store, combinations: Sequence[Combination], device: str | None, labels: Sequence[str]
) -> list[Cell]:
    from opdb.matrix.cells import cells_of, labelled

    backends = {combination.backend for combination in combinations}
    if device is None:
        from opdb.cluster.alone import places

        return labelled(cells_of(combinations, places(backends)), labels)
    return labelled(cells_of(combinations, _stored_places(store, backends, device)), labels)


def _stored_places(store: Store, backends: set[str], device: str) -> dict[str, Place]:
    """Say of each backend whether its runs were made on a device (slug) that may be elsewhere.

    Raises:
        UnknownNameError: nothing was measured on such a device.
    """
    from opdb.matrix.cells import Place

    types = {each.slug: each.type for each in store.devices()}
    if device not in types:
        raise UnknownNameError("device", device, types)
    found = {}
    for name in backends:
        backend = types[device] if name == "auto" else name
        why = None if backend == types[device] else f"{device} is no {backend} device"
        found[name] = Place(backend, device if why is None else "", why_not=why)
    return found


class _Matrix:
    """A matrix under way: its runs, and what is stored of them."""

    def __init__(self, store: Store, cells: Sequence[Cell], *, quiet: bool) -> None:
        self._store, self._cells, self._quiet = store, cells, quiet

    def plan(self, wanted: Sequence[State], *, as_json: bool) -> None:
        """Show each run that is to be made as the command that makes it."""
        standing = self._standing()
        left = standing.pending(self._cells, wanted)
        seconds, rests_on = self._seconds(left)
        if as_json:
            print_json(
                {
                    "runs": len(self._cells),
                    "left": [{"label": c.label, "command": command_of(c)} for c in left],
                    "states": dict(standing.counts(self._cells)),
                    "planned_s": seconds,
                    "rests_on_runs": rests_on,
                }
            )
            return
        for cell in left:
            print(command_of(cell))
        about = "" if seconds is None else f", about {show_duration(seconds)} of training"
        grounds = f" as {counted(rests_on, 'run')} took" if rests_on else ""
        note(
            f"{len(left)} of {counted(len(self._cells), 'run')} to be made{about}{grounds}",
            quiet=self._quiet,
        )

    def _seconds(self, cells: Sequence[Cell]) -> tuple[float | None, int]:
        """Return what trainings are likely to take, by the stored ones' mean; on how many."""
        devices = {cell.place.device for cell in cells}
        took = [s.cost_s for device in devices for s in self._store.labelled_runs(device)]
        return (len(cells) * sum(took) / len(took) if took else None), len(took)

    def train(self, wanted: Sequence[State]) -> list[str]:
        """Make what is to be made, device by device; return what could not be stored, and why."""
        left = self._standing().pending(self._cells, wanted)
        for cell in left:
            request_of(cell)  # what cannot be asked for is told before anything runs
        failures: list[str] = []
        with progress(len(left), "matrix", quiet=self._quiet) as shown:
            for device in dict.fromkeys(cell.place.device for cell in left):
                some = [cell for cell in left if cell.place.device == device]
                failures += self._train_on(some, wanted, shown)
        return failures

    def _train_on(
        self, cells: Sequence[Cell], wanted: Sequence[State], shown: Progress
    ) -> list[str]:
        from opdb.bench.measure import harvested
        from opdb.cluster.alone import DiedError
        from opdb.matrix.cells import claims_scope
        from opdb.store import Claims

        place, failures = cells[0].place, []
        tell = partial(note_harvest, quiet=self._quiet)
        with Claims(self._store, claims_scope(place.device), place.board) as claims:
            for cell in cells:
                shown.doing(cell.label)
                try:
                    request = request_of(cell)
                    [workload] = harvested(self._store, [request], tell=tell).values()
                    if claims.take(cell.task) and self._standing(own=cell).pending([cell], wanted):
                        self._train_one(cell, workload.key, claims, shown)
                except DatabaseError:
                    raise
                except (InputError, DiedError, ClaimLostError) as error:
                    failures.append(f"{cell.label}: {error}")
                    shown.note(failures[-1])
                finally:
                    claims.give_back([cell.task])
                shown.done()
        return failures

    def _train_one(self, cell: Cell, workload: str, claims: Claims, shown: Progress) -> None:
        from opdb.cluster.alone import Training, train_alone

        training = Training(
            request_of(cell),
            workload,
            cell.place.backend,
            options_of(cell),
            claims.claim(cell.task),
        )
        came = train_alone(training, self._store.url, claims.renew_when_due)
        if came.outcome != "ok":
            shown.note(f"{cell.label}: {came.outcome}: {came.reason}")

    def _standing(self, own: Cell | None = None) -> Standing:
        """Return where the runs stand; what this process has claimed is not running."""
        from opdb.matrix.cells import Standing, claims_scope
        from opdb.store.claims import bury, held

        bury(self._store)
        devices = {cell.place.device for cell in self._cells if cell.place.device}
        scopes = {claims_scope(device) for device in devices}
        claimed = {c.task for c in held(self._store) if c.scope in scopes and c.left_s > 0}
        if own is not None:
            claimed.discard(own.task)
        states = {device: self._store.labelled_runs(device) for device in devices}
        return Standing(states, claimed)

    def made(self) -> list[Made]:
        """Return every run of the matrix with what is stored of it."""
        from opdb.matrix.rows import Made

        standing = self._standing()
        campaigns = {campaign.id: campaign for campaign in self._store.campaigns()}
        found = []
        for cell in self._cells:
            state = standing.run(cell)
            run = None
            if state is not None:
                runs = self._store.model_runs(
                    state.workload, device=cell.place.device, setting=state.setting
                )
                run = next(each for each in runs if each.id == state.id)
            campaign = None if run is None else campaigns[run.campaign]
            found.append(Made(cell, standing.state(cell), run, campaign))
        return found
