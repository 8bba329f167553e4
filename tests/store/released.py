"""Make the database that stands for a release in `tests/data/released`: real rows of every table.

python -m tests.store.released        # in a checkout of the release; then commit the file
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import opdb
from opdb.store import open_store, seal
from opdb.store.exchange import import_set
from tests.paths import ROOT
from tests.store.conftest import fill
from tests.store.small_set import write_small_set

FOLDER = ROOT / "tests" / "data" / "released"


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside, "released.sqlite")
        write_small_set(Path(aside, "set"))
        with open_store(str(path)) as store:
            fill(store)  # what the small set has none of: estimates, counters, calibrations
            import_set(store, Path(aside, "set"))
            with store.reading() as connection:
                connection.exec_driver_sql("COMMIT")
                connection.exec_driver_sql("VACUUM")
                connection.exec_driver_sql("BEGIN")
        assert not seal.broken(path)
        packed = gzip.compress(path.read_bytes(), mtime=0)
    (FOLDER / f"{opdb.__version__}.sqlite.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
