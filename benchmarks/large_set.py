"""Import sets of so many rows that a published one is small beside them: time and peak memory.

    python -m benchmarks.large_set 4 15 60

Nothing in these sets was measured but what they repeat: each is the published set's campaigns and
visits so many times over, each time on boards of another name, which begins with "synthetic". Costs
and estimates are left out, so that the import derives all costs. Each set is imported by `opdb
import`, a process of its own, into a new database. Printed are rows, seconds, seconds of the
processor, and the process's peak memory, and these per thousand rows, which are the same for all
sets where an import is linear.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.at_scale import DEVICE, ROOT
from opdb.store import schema
from opdb.store.set_samples import with_samples
from opdb.store.sets import read_fields

REPEATED = {
    "boards.csv": ("uuid",),
    "campaigns.csv": ("id", "board"),
    "calibrations.csv": ("id", "board"),
    "visits.csv": ("id", "campaign"),
    "host_visits.csv": ("id", "campaign"),
    "model_runs.csv": ("id", "campaign"),
}
"""The files that are repeated, and their columns that get another name each time."""

LEFT_OUT = ("costs.csv", "learned.csv")

VISITS = {"visits.csv": schema.visit, "host_visits.csv": schema.host_visit}
"""The files whose raw samples lie in files of their own."""


@dataclass(frozen=True)
class Import:
    """What importing a set took."""

    rows: int
    wall_s: float
    processor_s: float
    peak_bytes: int

    def __str__(self) -> str:
        milliseconds, megabytes = 1e3 * self.processor_s, self.peak_bytes / 1e6
        return (
            f"{self.rows:8} rows  {self.wall_s:7.1f} s  {self.processor_s:7.1f} s of the processor"
            f"  {megabytes:9.1f} MB; per 1000 rows {1000 * milliseconds / self.rows:.0f} ms, "
            f"{1000 * megabytes / self.rows:.1f} MB"
        )


def write_large_set(source: Path, folder: Path, copies: int) -> int:
    """Write a published set that repeats another's measurements; return its rows."""
    csv.field_size_limit(sys.maxsize)
    folder.mkdir()
    rows = 0
    for path in sorted(source.glob("*.csv")):
        with path.open(newline="") as stream, (folder / path.name).open("w", newline="") as made:
            reader = csv.DictReader(stream)
            writer = csv.DictWriter(made, list(reader.fieldnames or ()), lineterminator="\n")
            writer.writeheader()
            found = [] if path.name in LEFT_OUT else list(reader)
            if path.name in VISITS:  # the files of samples know no copies
                fields = read_fields(path, list(reader.fieldnames or ()))
                found = list(with_samples(VISITS[path.name], fields).rows())
            named = REPEATED.get(path.name)
            for number in range(copies if named else 1):
                for row in found:
                    new = {name: f"synthetic-{number}-{row[name]}" for name in named or ()}
                    writer.writerow({**row, **new})
                    rows += 1
    return rows


def imported(folder: Path, database: Path, rows: int) -> Import:
    """Import a set by the command.

    Raises:
        SystemExit: it fails.
    """
    command = ("-m", "opdb", "import", str(folder), "--db", str(database), "--quiet")
    began_s = time.monotonic()
    process = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ)
    _, status, used = os.wait4(process, 0)
    if status:
        sys.exit(f"opdb import ended with {os.waitstatus_to_exitcode(status)}")
    wall_s = time.monotonic() - began_s
    return Import(rows, wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def main() -> int:
    """Import sets that repeat the published one as often as the arguments say."""
    for copies in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory(prefix="opdb-large-set-") as aside:
            rows = write_large_set(ROOT / "db" / DEVICE, Path(aside, "set"), copies)
            print(imported(Path(aside, "set"), Path(aside, "db.sqlite"), rows), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
