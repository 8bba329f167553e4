"""The build step of the wheel: it carries the published sets of `db/`, without most raw samples.

An installed opdb then predicts without a clone. Everything else of the build is in pyproject.toml.
Only the standard library is used: opdb's dependencies are not there while it is built.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DB = Path(__file__).parent / "db"
SAMPLES = ("stretch", "restore", "neighbours")
"""The columns of visits.csv that hold raw samples."""

LEFT_OUT = "-"
"""What stands in place of raw samples; `opdb.store.samples` reads it."""


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
            if path.name != "visits.csv":
                shutil.copyfile(path, target / path.name)
        _pack_visits(folder, target, pooled)


def _pack_visits(folder: Path, target: Path, pooled: set[str]) -> None:
    """Write a set's visits with the raw samples alone that opdb derives something from.

    These are the samples of anchors, which tell boards apart, and those of boards (UUIDs) that
    several sets measured, whose costs are derived when all these sets are together.
    """
    campaigns = {
        row["id"]: any(board.startswith(row["board"]) for board in pooled)
        for row in _rows(folder / "campaigns.csv")
    }
    is_pooled: dict[str, bool] = {}  # by a campaign's id as visits have it: its first characters
    with (
        (folder / "visits.csv").open(encoding="utf-8", newline="") as source,
        (target / "visits.csv").open("w", encoding="utf-8", newline="") as packed,
    ):
        reader = csv.DictReader(source)
        writer = csv.DictWriter(packed, reader.fieldnames or (), lineterminator="\n")
        writer.writeheader()
        for row in reader:
            short = row["campaign"]
            if short not in is_pooled:
                [is_pooled[short]] = [
                    kept for id_, kept in campaigns.items() if id_[: len(short)] == short
                ]
            if row["role"] != "anchor" and not is_pooled[short]:
                row.update({name: LEFT_OUT for name in SAMPLES if row[name]})
            writer.writerow(row)


def _rows(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(16 * 1024 * 1024)  # as opdb.store.sets has it
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithSets})
