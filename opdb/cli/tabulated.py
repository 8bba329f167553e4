"""What `opdb matrix` tells and writes: tables, a figure, and what went wrong."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.cli.console import note, print_table
from opdb.cli.files import check_writable, csv_text, write_file
from opdb.cli.replaying import command_of
from opdb.errors import CannotMeasureError, InputError, OpdbError
from opdb.records import Json
from opdb.units import counted

if TYPE_CHECKING:
    from opdb.matrix.rows import Made


@dataclass(frozen=True)
class Outputs:
    """The files that a matrix (its own file) is written to; None where one is not asked for."""

    matrix: Path
    csv: Path | None
    markdown: Path | None
    plot: Path | None

    def check(self) -> None:
        """Check before anything is measured that each can be written.

        Raises:
            InputError: one cannot, or matplotlib is not installed.
        """
        for path in (self.csv, self.markdown, self.plot):
            if path is not None:
                check_writable(path)
        if self.plot is not None and find_spec("matplotlib") is None:
            raise InputError(
                "--plot needs matplotlib, which is not installed; pip install 'opdb[plots]'"
            )
        if self.plot is not None and self.plot.suffix.lower() != ".png":
            raise InputError(f"--plot {self.plot}: figures are PNG files; give a name as in m.png")

    def write(self, made: Sequence[Made], *, quiet: bool) -> None:
        """Write those that are asked for; a figure of nothing is said and left out.

        Raises:
            InputError: one cannot be written.
        """
        from opdb.matrix.figure import draw
        from opdb.matrix.rows import lines_of, markdown

        if self.csv is not None:
            rows = [row_of(each) for each in made]
            self._write(self.csv, csv_text(list(rows[0]), rows).encode(), quiet=quiet)
        if self.markdown is not None:
            text = markdown(made, f"Training matrix {self.matrix.name}")
            self._write(self.markdown, text.encode(), quiet=quiet)
        lines = lines_of(made)
        if self.plot is not None and not any(line.figures for line in lines):
            note(f"{self.plot} is not written: no training of the matrix was measured yet")
        elif self.plot is not None:
            command = shlex.join(["opdb", "matrix", self.matrix.name])
            title = f"Training on {_devices(made)}"
            self._write(self.plot, draw(lines, title, command), quiet=quiet)

    def _write(self, path: Path, content: bytes, *, quiet: bool) -> None:
        write_file(path, content)
        note(f"written: {path}", quiet=quiet)


def _devices(made: Sequence[Made]) -> str:
    names = [each.campaign.device.name for each in made if each.campaign is not None]
    return ", ".join(dict.fromkeys(names))


def row_of(made: Made) -> dict[str, Json]:
    """Return a run as a flat row, with the command that repeats it."""
    from opdb.matrix.rows import document

    return document(made, command_of(made.cell))


def document_of(made: Sequence[Made], failures: Sequence[str]) -> Json:
    """Return the runs, their counts by state, and what could not be stored, as one document."""
    states = [each.state for each in made]
    return {
        "rows": [row_of(each) for each in made],
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "failures": list(failures),
    }


def print_states(made: Sequence[Made]) -> None:
    """Print every run with its state."""
    rows = [(each.cell.label, each.state, each.reason or "") for each in made]
    print_table(("run", "state", "why"), rows)
    print()


def print_lines(made: Sequence[Made]) -> None:
    """Print a line for each combination, and remarks below."""
    from opdb.matrix.rows import HEADER, lines_of, mixed, remarks_of

    lines = lines_of(made)
    print_table(HEADER, [line.cells() for line in lines])
    for remark in (*remarks_of(lines), *mixed(made)):
        print(remark)


def finish(made: Sequence[Made], failures: Sequence[str]) -> None:
    """Raise what went wrong, every run named; a batch too large for its device is a result.

    Raises:
        CannotMeasureError: this machine can run nothing of the matrix.
        OpdbError: a run failed, or nothing of it could be stored.
    """
    if all(each.state == "not here" for each in made):
        raise CannotMeasureError(f"nothing of the matrix can be run here: {made[0].reason}")
    lines = list(failures)
    lines += [f"{m.cell.label}: {m.reason}" for m in made if m.state == "failed"]
    if lines:
        listed = "\n".join(f"  {line}" for line in lines)
        raise OpdbError(
            f"{len(lines)} of {counted(len(made), 'run')} failed; what was finished is stored, "
            f"--retry tries the others again\n{listed}"
        )
