"""The build step of the wheel: it carries the published sets of `db/`, without most raw samples.

An installed opdb then predicts without a clone. Everything else of the build is in pyproject.toml.
Only the standard library is used: opdb's dependencies are not there while it is built.
"""

from __future__ import annotations

import csv
import lzma
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DB = Path(__file__).parent / "db"
SAMPLES = {"visits.csv": "samples.xz", "host_visits.csv": "host_samples.xz"}
"""The raw samples of a file of visits; `opdb.store.set_samples` says how they are written."""

TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 4, "pb": 0}]
"""How texts are compressed best: by the characters before, whatever the place in a word."""

QUIET_BLOCKS = 50
"""Host visits of so many blocks or more tell that a board has quiet times (`opdb.derive.quiet`)."""


class BuildWithSets(build_py):
    """Builds the package and puts the published sets into it, as `opdb/published/`."""

    def run(self) -> None:
        """Build; an editable install reads `db/` itself."""
        super().run()
        if not self.editable_mode:
            pack(DB, Path(self.build_lib, "opdb", "published"))


def pack(db: Path, into: Path) -> None:
    """Write every published set of a folder into another one, without most raw samples.

    Raises:
        FileNotFoundError: there is no set.
    """
    sets = sorted(path.parent for path in db.glob("*/workloads.csv"))
    if not sets:
        raise FileNotFoundError(f"{db}: no published set is there; build in a clone of opdb")
    shutil.rmtree(into, ignore_errors=True)  # of an earlier build
    boards = Counter(row["uuid"] for each in sets for row in _rows(each / "boards.csv"))
    pooled = {board for board, count in boards.items() if count > 1}
    for folder in sets:
        target = into / folder.name
        target.mkdir(parents=True)
        for path in sorted(folder.glob("*.csv")):
            if path.name not in ("host_visits.csv", "model_runs.csv"):
                shutil.copyfile(path, target / path.name)
        campaigns = {
            row["id"]: any(board.startswith(row["board"]) for board in pooled)
            for row in _rows(folder / "campaigns.csv")
        }
        for name in SAMPLES:
            _pack_samples(folder, target, name, campaigns)
        _pack_host_visits(folder, target, campaigns)
        _pack_model_runs(folder, target)


Row = dict[str, str]


def _pack_samples(folder: Path, target: Path, name: str, campaigns: dict[str, bool]) -> None:
    """Write the raw samples of boards that several sets measured.

    Costs of these are derived when all their sets are together.
    """
    visits = _rows(folder / name)
    pooled = {visit["id"] for visit in visits if _is_pooled(campaigns, visit)}
    if not pooled:
        return
    kept = []
    with lzma.open(folder / SAMPLES[name], "rt", encoding="utf-8") as lines:
        for line in lines:
            short, _, _ = line.partition(" ")
            if any(id_.startswith(short) for id_ in pooled):
                kept.append(line)
    (target / SAMPLES[name]).write_bytes(lzma.compress("".join(kept).encode(), filters=TEXT))


def _pack_host_visits(folder: Path, target: Path, campaigns: dict[str, bool]) -> None:
    """Write the host visits of boards that several sets measured, and those of quiet times.

    Costs have what follows from the others.
    """

    def packed(visit: Row) -> Row | None:
        blocks = int(visit["times"].removeprefix("-"))
        return visit if blocks >= QUIET_BLOCKS or _is_pooled(campaigns, visit) else None

    _pack_rows("host_visits.csv", folder, target, packed)


def _pack_model_runs(folder: Path, target: Path) -> None:
    """Write the runs of models without the times of their layers, which no prediction reads."""
    _pack_rows("model_runs.csv", folder, target, lambda run: {**run, "layers": ""})


def _pack_rows(name: str, folder: Path, target: Path, packed: Callable[[Row], Row | None]) -> None:
    """Write what a function makes of each row of a file; None leaves the row out."""
    with (
        (folder / name).open(encoding="utf-8", newline="") as source,
        (target / name).open("w", encoding="utf-8", newline="") as written,
    ):
        reader = csv.DictReader(source)
        writer = csv.DictWriter(written, reader.fieldnames or (), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in map(packed, reader) if row is not None)


def _is_pooled(campaigns: dict[str, bool], visit: Row) -> bool:
    """Return whether a visit is of a board that several sets measured."""
    short = visit["campaign"]  # the first characters of an id
    [pooled] = [pooled for id_, pooled in campaigns.items() if id_.startswith(short)]
    return pooled


def _rows(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(16 * 1024 * 1024)  # as opdb.store.sets has it
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithSets})
