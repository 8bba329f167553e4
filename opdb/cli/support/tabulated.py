"""The files that `opdb matrix` writes: a table as CSV and as Markdown, and a figure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli.support.console import note
from opdb.cli.support.files import save
from opdb.distribution import install
from opdb.errors import InputError
from opdb.files import check_writable
from opdb.layout import escaped

if TYPE_CHECKING:
    from opdb.matrix.report import MatrixReport
    from opdb.matrix.rows import MatrixRun


@dataclass(frozen=True)
class MatrixFiles:
    """The files that are written, where they are asked for."""

    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a row for each run.")
    ] = None
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the table, repeats joined."),
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
        """Check before anything is measured that each can be written.

        Raises:
            InputError: one cannot, or matplotlib is not installed.
        """
        for path in (self.csv, self.markdown, self.plot):
            if path is not None:
                check_writable(path)
        if self.plot is not None and find_spec("matplotlib") is None:
            raise InputError(f"--plot needs matplotlib, which is not installed; {install('plots')}")
        if self.plot is not None and self.plot.suffix.lower() != ".png":
            raise InputError(f"--plot {self.plot}: figures are PNG files; give a name as in m.png")

    def write(self, matrix: Path, found: MatrixReport, *, quiet: bool) -> None:
        """Write those that are asked for; a figure of nothing is said and left out.

        Raises:
            InputError: one cannot be written.
        """
        from opdb.matrix.figure import draw
        from opdb.matrix.rows import lines_of

        if self.csv is not None:
            save(self.csv, found.csv(), quiet=quiet)
        if self.markdown is not None:
            text = found.markdown(f"Training matrix {matrix.name}")
            save(self.markdown, escaped(text, keep="\n"), quiet=quiet)
        lines = lines_of(found.runs)
        if self.plot is not None and not any(line.figures for line in lines):
            note(f"{self.plot} is not written: no training of the matrix was measured yet")
        elif self.plot is not None:
            command = shlex.join(["opdb", "matrix", matrix.name])
            title = f"Training on {_devices(found.runs)}"
            save(self.plot, draw(lines, title, command), quiet=quiet)


def _devices(made: Sequence[MatrixRun]) -> str:
    names = [each.campaign.device.name for each in made if each.campaign is not None]
    return ", ".join(dict.fromkeys(names))
