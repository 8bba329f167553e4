"""What Nsight Compute prints of a report as CSV (its raw page): kernels, each with its metrics.

The calls are told apart by NVTX ranges, which stand in columns of their own: an outer one names
the board, an inner one the configuration.
"""

from __future__ import annotations

import csv
import io
import math
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opdb.counters.metrics import Definition
from opdb.errors import InputError
from opdb.records import Board, Configuration, KernelCounts, Profile
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.units import plural

_CALL = re.compile(r"opdb call ([0-9a-f]{64})")
_BOARD = re.compile(r"opdb board ([\w.-]+) ([a-z0-9][a-z0-9.-]*) (\d{4}-\d\d-\d\dT[\d:.]+\+00:00)")

_METRIC = re.compile(r"\w+__\w+\.[\w.]+")
"""What is counted; attributes of the device or the launch, some of them words, have no suffix."""

_MISSING = frozenset(("", "n/a", "nan", "-nan", "(!) nan", "(!) n/a"))

_SCALES = {
    **dict.fromkeys(("ns", "nsecond"), 1e-09),
    **dict.fromkeys(("us", "usecond"), 1e-06),
    **dict.fromkeys(("ms", "msecond"), 0.001),
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
    "Tbyte": 1e12,
}
"""Units that are not base ones; the raw page prints times in nanoseconds."""


def call_range(configuration: str) -> str:
    """Return the name of the NVTX range around the call of a configuration (key)."""
    return f"opdb call {configuration}"


def board_range(board: Board, moment: str) -> str:
    """Return the name of the NVTX range around calls on a board, begun at a moment (ISO, UTC)."""
    return f"opdb board {board.uuid} {board.device} {moment}"


@dataclass
class Report:
    """The kernels of each configuration (key) that was called, in order; on which board, when."""

    metrics: tuple[str, ...]
    board: Board | None = None
    measured_at: str = ""
    calls: dict[str, list[KernelCounts]] = field(default_factory=dict)

    def profiles(
        self,
        configurations: Iterable[Configuration],
        board: Board,
        definition: Definition,
        environment: Mapping[str, str | None],
        measured_at: str,
    ) -> list[Profile]:
        """Return a profile of each of the configurations that the report saw a kernel of.

        Backend settings are those of a fresh torch process, in which the calls were made.
        """
        return [
            Profile(
                id=uuid.uuid4().hex,
                board=board,
                configuration=configuration.key,
                setting=relevant_setting(configuration.kind, DEFAULT_SETTINGS),
                measured_at=measured_at,
                environment=dict(environment),
                definition=definition,
                kernels=tuple(self.calls[configuration.key]),
            )
            for configuration in configurations
            if configuration.key in self.calls
        ]


def read_report(text: str, source: str) -> Report:
    """Read the CSV of a report's raw page; lines of the profiler before and after are skipped.

    `source` names the text in messages.

    Raises:
        InputError: it is no such CSV, a number in it is none, or no call in it is named.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID","')), None)
    if start is None:
        raise InputError(f'{source}: no CSV of Nsight Compute: no line begins with "ID"')
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines[start:])), strict=False))
    except csv.Error as error:
        raise InputError(f"{source}: no CSV of Nsight Compute: {error}") from error
    header = rows[0]
    if "Metric Name" in header:
        raise InputError(
            f"{source}: that is the details page; print the raw one: "
            "ncu --import REPORT --csv --page raw"
        )
    if "Kernel Name" not in header or len(rows) < 2:
        length = plural(len(lines) - start, "line")
        raise InputError(f"{source}: no kernel in it: it has {length}")
    return _read(header, rows[1], rows[2:], source)


def _read(header: list[str], units: list[str], rows: list[list[str]], source: str) -> Report:
    ranges = [n for n, name in enumerate(header) if "Range:" in name]
    columns = {
        name: n for n, name in enumerate(header) if n not in ranges and _METRIC.fullmatch(name)
    }
    report = Report(metrics=tuple(columns))
    if len(units) != len(header):
        there = plural(len(units), "unit")
        raise InputError(f"{source}: {there}; expected {len(header)}, one a column")
    scales = {name: _SCALES.get(units[n], 1.0) for name, n in columns.items()}
    for number, row in enumerate(rows):
        where = f"{source}, kernel {number}"
        if len(row) != len(header):
            there = plural(len(row), "field")
            raise InputError(f"{where}: {there}; expected {len(header)}; is it cut off?")
        ranged = " ".join(row[n] for n in ranges)
        called = _CALL.search(ranged)
        if called is None:
            continue
        if (on := _BOARD.search(ranged)) is not None:
            report.board = _same_board(report.board, Board(on[1], on[2]), where)
            report.measured_at = report.measured_at or on[3]
        values = {
            name: _value(row[n], scales[name], f"{where}, {name}") for name, n in columns.items()
        }
        kernels = report.calls.setdefault(called[1], [])
        kernels.append(KernelCounts(row[header.index("Kernel Name")], values))
    if not report.calls:
        raise InputError(
            f"{source}: of {plural(len(rows), 'kernel')} none is in a range that names a call; "
            "opdb roofline --ncu sets them, and --ncu-report keeps them"
        )
    return report


def _same_board(known: Board | None, found: Board, where: str) -> Board:
    if known is not None and known != found:
        raise InputError(f"{where}: on {found.uuid}, others on {known.uuid}; import one at a time")
    return found


def _value(field: str, scale: float, where: str) -> float | None:
    if field.strip().lower() in _MISSING:
        return None
    try:
        value = float(field.replace(",", ""))
    except ValueError as error:
        raise InputError(f"{where}: {field[:40]!r} is no number") from error
    if not math.isfinite(value):
        return None
    return value * scale


def names_of(kernels: Sequence[KernelCounts]) -> list[str]:
    """Return the kernels' names without their arguments, each once, in order."""
    return list(dict.fromkeys(kernel.name.partition("(")[0] for kernel in kernels))
