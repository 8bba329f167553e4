"""The build step of the wheel: it carries the published sets of `db/`, without most raw samples.

An installed opdb then predicts without a clone. Everything else of the build is in pyproject.toml.
Only the standard library is used: opdb's dependencies are not there while it is built.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Set
from contextlib import closing
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DB = Path(__file__).parent / "db"

QUIET_BLOCKS = 50
"""Host visits of so many blocks or more tell that a board has quiet times (`opdb.derive.quiet`)."""

POOLED = "campaign IN (SELECT id FROM campaign WHERE board IN (SELECT value FROM json_each(?)))"
"""Visits of some boards, a JSON list."""


class BuildWithSets(build_py):
    """Builds the package and puts the published sets into it, as `opdb/published/`."""

    def run(self) -> None:
        """Build; an editable install reads `db/` itself."""
        super().run()
        if not self.editable_mode:
            pack(DB, Path(self.build_lib, "opdb", "published"))


def pack(db: Path, into: Path) -> None:
    """Write every published set of a folder into another one, without most raw samples.

    Those of boards that several sets measured stay: the costs of these are derived when all their
    sets are together.

    Raises:
        FileNotFoundError: there is no set.
    """
    manifests = sorted(db.glob("*/manifest.json"))
    if not manifests:
        raise FileNotFoundError(f"{db}: no published set is there; build in a clone of opdb")
    shutil.rmtree(into, ignore_errors=True)  # of an earlier build
    sets = {path.parent: json.loads(path.read_text(encoding="utf-8")) for path in manifests}
    boards = Counter(board for manifest in sets.values() for board in manifest["boards"])
    pooled = json.dumps([board for board, count in boards.items() if count > 1])
    for folder, manifest in sets.items():
        target = into / folder.name
        target.mkdir(parents=True)
        visits, host_visits = _pack_database(folder, target, pooled)
        samples = _pack_samples(folder, target, visits | host_visits)
        manifest["visits_with_samples"] = len(samples & visits)
        manifest["files"] = {path.name: _checksum(path) for path in sorted(target.iterdir())}
        text = json.dumps(manifest, indent=2) + "\n"
        (target / "manifest.json").write_text(text, encoding="utf-8")


def _pack_database(folder: Path, target: Path, pooled: str) -> tuple[set[str], set[str]]:
    """Write a set's database; return the visits and host visits of the pooled boards.

    It keeps host visits of these boards and those of quiet times: costs have what follows from the
    others. No prediction reads the times of a model's layers. The keys of configurations, a tenth
    of all, follow from their JSON.
    """
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside, "set.sqlite")
        path.write_bytes(lzma.decompress((folder / "set.sqlite.xz").read_bytes()))
        with closing(sqlite3.connect(path)) as connection:
            blocks = "CAST(ltrim(times, '-') AS INTEGER)"
            connection.execute(
                f"DELETE FROM host_visit WHERE {blocks} < {QUIET_BLOCKS} AND NOT {POOLED}", [pooled]
            )
            connection.execute("UPDATE model_run SET layers = NULL")
            connection.execute("UPDATE configuration SET key = id")
            connection.commit()
            connection.execute("VACUUM")
            visits, host_visits = (
                connection.execute(f"SELECT id FROM {table} WHERE {POOLED}", [pooled]).fetchall()
                for table in ("visit", "host_visit")
            )
        _write(target / "set.sqlite.xz", path.read_bytes())
    return {id_ for (id_,) in visits}, {id_ for (id_,) in host_visits}


def _pack_samples(folder: Path, target: Path, pooled: Set[str]) -> set[str]:
    """Write the raw samples of some visits; return these of them that have any."""
    source, kept = folder / "samples.xz", {}
    if source.exists():
        with lzma.open(source, "rt", encoding="utf-8") as lines:
            for line in lines:
                id_, _, _ = line.partition(" ")
                if id_ in pooled:
                    kept[id_] = line
    if kept:
        _write(target / source.name, "".join(kept.values()).encode())
    return set(kept)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(lzma.compress(content, preset=9))


def _checksum(path: Path) -> dict[str, str | int]:
    content = path.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithSets})
