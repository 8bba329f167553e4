"""`opdb matrix`: trainings of many models under many options, from one file, resumable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.api.matrices import Matrix, MatrixPlan, MatrixQuestion
from opdb.cli.support import options
from opdb.cli.support.console import Terminal, note, print_json, show
from opdb.cli.support.tabulated import MatrixFiles
from opdb.errors import InputError

if TYPE_CHECKING:
    from opdb.matrix.combination import Combination


@dataclass(frozen=True)
class MatrixArguments:
    """Which runs are meant, and whether they are made, planned or told of."""

    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="LABEL", help="This run alone; may be repeated."),
    ] = None
    plan: Annotated[
        bool,
        typer.Option("--plan", help="List what is left, each as a command; measure nothing."),
    ] = False
    status: Annotated[
        bool,
        typer.Option("--status", help="Show what is done, failed and left; measure nothing."),
    ] = False
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False
    again: Annotated[
        bool, typer.Option("--again", help="With --only: run it though it is done.")
    ] = False

    def question(
        self, combinations: list[Combination], device: str | None, *, allow_code: bool
    ) -> MatrixQuestion:
        """Return what is asked for of the combinations of a file."""
        return MatrixQuestion(
            combinations, self.only or (), device, self.retry, self.again, allow_code
        )

    def check(self, device: str | None) -> None:
        """Check that the options go together.

        Raises:
            InputError: they do not.
        """
        if self.plan and self.status:
            raise InputError("give --plan or --status, not both")
        if self.again and not self.only:
            raise InputError("--again is for single runs: name them with --only LABEL")
        if device is not None and not self.status:
            raise InputError(
                "--device is for --status; where a run is made, the file's backend says"
            )


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
            help="With --status: a device as opdb status names it.  [default: this machine's]",
        ),
    ] = None,
    allow_code: options.AllowCode = False,
    out: options.Output = options.Output(),
) -> None:
    """Train models × batch sizes × precision × backend × repeats, and tabulate what came of it.

    Every option of opdb measure --phase training may be a value or a list in the file. Each run
    has a process of its own and is stored as soon as it is done; what is stored is not run again,
    what failed only with --retry. Of a run's label --only --plan shows the command that repeats it.
    """
    from opdb.matrix.file import load_matrix
    from opdb.store import open_store

    asked.check(device)
    files.check()
    combinations = load_matrix(file, allow_code=allow_code or asked.status)
    question = asked.question(combinations, device, allow_code=allow_code)
    with open_store(out.db) as store:
        matrix = Matrix(store, question)
        if asked.plan:
            _show_plan(matrix.plan(), out)
            return
        failures = [] if asked.status else matrix.train(Terminal(quiet=out.quiet))
        found = matrix.report(failures, states=asked.status)
    files.write(file, found, quiet=out.quiet or out.as_json)
    show(found, as_json=out.as_json)
    if not asked.status:
        found.check()


def _show_plan(plan: MatrixPlan, out: options.Output) -> None:
    """Show each run that is to be made as the command that makes it."""
    if out.as_json:
        print_json(plan.to_dict())
        return
    print(*plan.commands, sep="\n", end="\n" if plan.commands else "")
    note(plan.words, quiet=out.quiet)
