"""`opdb modes`: what each way of issuing a model's work takes, and what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.api.modes import MODES, ModeOptions, measure_modes
from opdb.cli.support import options
from opdb.cli.support.console import Terminal, show
from opdb.cli.support.files import save
from opdb.cli.support.gains import Files, explain
from opdb.cli.support.selection import batch_sizes_among
from opdb.errors import InputError
from opdb.files import check_writable
from opdb.lookup.requests import requests_named
from opdb.records import Mode

if TYPE_CHECKING:
    from opdb.studies.mode_report import ModesReport


@dataclass(frozen=True)
class ModeArguments:
    """Which runs are meant, and whether they are measured, shown or explained."""

    batch_sizes: options.BatchSizes = None
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--modes",
            metavar="MODE…",
            help="As in eager,compile; may be given several times.  [default: eager, graph, "
            "compile, compile:reduce-overhead, compile:max-autotune, dynamo and trace, those "
            "that the device has]",
        ),
    ] = None
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Stretches of 1 s to measure.")
    ] = 3
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed before.")] = False
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every row as CSV.")
    ] = None
    explained: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Measure nothing: which traits of all models measured go with what modes save, "
            "and for each MODEL in a sentence.",
        ),
    ] = False
    stored: Annotated[
        bool,
        typer.Option(
            "--stored", help="Measure nothing: show what the database has, of all boards."
        ),
    ] = False
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="With --explain: draw it as PNG.")
    ] = None
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="With --explain: draw it as SVG.")
    ] = None

    def check(self) -> None:
        """Check that the options go together, and that files can be written.

        Raises:
            InputError: they do not, or one cannot.
        """
        if self.explained and self.stored:
            raise InputError("--stored and --explain: choose one")
        if not self.explained and (self.png is not None or self.svg is not None):
            raise InputError("--png and --svg draw what --explain tells; add --explain")
        if self.csv_file is not None:
            check_writable(self.csv_file)


def run(
    models: Annotated[
        list[str] | None,
        options.models("Model names or summary files."),
    ] = None,
    asked: ModeArguments = ModeArguments(),
    said: options.InferenceModelAtSizes = options.ModelArguments(),
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="cuda, cuda:N or cpu; with --stored and --explain as opdb status names it.",
        ),
    ] = None,
    out: options.Output = options.Output(),
) -> None:
    """Measure models in each mode: time and energy, what compiling takes, what is saved.

    Savings are shares of the eager run's time and energy, and of the sum of the model's operators
    where all were measured. What this board has of this version of torch is not measured again.
    Compilers start with an empty cache each time. A model that a mode leaves as it is counts as
    not compiled. A mode that fails does not stop the others.
    """
    chosen = options.parse_modes(asked.modes)
    asked.check()
    needed = not (asked.explained or asked.stored)
    names, sizes = batch_sizes_among(models or [], asked.batch_sizes, needed=needed)
    if asked.explained:
        from opdb.studies.gains_report import Wanted

        files = Files(asked.csv_file, asked.png, asked.svg)
        explain(Wanted(names, sizes, chosen, device), files, out)
    elif asked.stored:
        _show(_stored(names, sizes, chosen, device, out.db), asked.csv_file, out)
    else:
        from opdb.store import check_openable

        check_openable(out.db)  # to load models takes seconds
        wanted = said.options.at_sizes(sizes)
        requests = [each for name in names for one in wanted for each in requests_named(name, one)]
        how = ModeOptions(chosen, device, asked.repeats, asked.retry)
        found = measure_modes(requests, how, db=out.db, display=Terminal(quiet=out.quiet))
        _show(found, asked.csv_file, out)
        found.check()


def _stored(
    models: Sequence[str],
    batch_sizes: Sequence[int],
    modes: Sequence[Mode],
    device: str | None,
    db: str | None,
) -> ModesReport:
    from opdb.store import open_store
    from opdb.studies.mode_report import stored_modes

    with open_store(db, create=False) as store:
        return stored_modes(store, models, batch_sizes, modes or MODES, device)


def _show(found: ModesReport, csv_file: Path | None, out: options.Output) -> None:
    """Write rows as CSV where that is asked for, and print them."""
    if csv_file is not None:
        save(csv_file, found.csv(), quiet=out.quiet or out.as_json)
    if out.as_json or found.found:
        show(found, as_json=out.as_json)
