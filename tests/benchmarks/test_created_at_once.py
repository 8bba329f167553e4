"""Eight processes create one database; `benchmarks/created_at_once.py` does it a hundred times."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, select

from benchmarks.created_at_once import PROCESSES, failures
from opdb.store import open_store
from opdb.store.schema import configuration


def test_all_of_them_get_it_and_save_what_they_have(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.sqlite"
        assert failures(path, PROCESSES) == 0
        with open_store(str(path)) as store, store.reading() as connection:
            count = select(func.count()).select_from(configuration)
            assert connection.execute(count).scalar_one() == PROCESSES
