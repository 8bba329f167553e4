"""A published set that is repeated under other boards: it is imported, one board at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.large_set import imported, write_large_set
from opdb.derive.review import board_costs
from opdb.records import Campaign, Cost, HostVisit, Visit
from opdb.store import open_store, proving
from opdb.store.exchange import import_set
from opdb.store.set_reading import read_set
from tests.store.small_set import write_small_set

COPIES = 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a small set, and of one that repeats it."""
    folder = tmp_path_factory.mktemp("sets")
    write_small_set(folder / "small")
    write_large_set(folder / "small", folder / "large", COPIES)
    return folder / "small", folder / "large"


def test_it_holds_everything_so_many_times(folders: tuple[Path, Path], tmp_path: Path) -> None:
    small, large = folders
    found = []
    for folder in (small, large):
        with open_store(str(tmp_path / f"{folder.name}.sqlite")) as store:
            found.append(import_set(store, folder).added)
    for name in ("boards", "campaigns", "visits", "host_visits", "model_runs", "costs"):
        assert found[1][name] == COPIES * found[0][name] > 0, name
    for name in ("configurations", "workloads", "calls"):
        assert found[1][name] == found[0][name] > 0, name


def test_the_command_imports_it_and_says_what_that_took(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    took = imported(folders[1], tmp_path / "db.sqlite", 1000)
    assert took.wall_s > 0 and took.processor_s > 0 and took.peak_bytes > 1e7
    assert f"{took.peak_bytes / 1e6:.1f} MB" in str(took)


def test_the_samples_of_one_board_at_a_time_are_read(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set of many boards does not fit into memory once it is decoded."""
    read: list[Visit] = []
    used = 0
    visits_of, costs_of = proving._visits, board_costs

    def counted(*given: object) -> list[Visit]:
        found = list(visits_of(*given))  # type: ignore[arg-type]
        read.extend(found)
        return found

    def watched(
        campaigns: Sequence[Campaign], visits: Sequence[Visit], hosts: Sequence[HostVisit]
    ) -> list[Cost]:
        nonlocal used
        used += len(visits)
        assert len(read) == used, "no visit of a board whose turn comes later"
        return costs_of(campaigns, visits, hosts)

    monkeypatch.setattr(proving, "_visits", counted)
    monkeypatch.setattr(proving, "board_costs", watched)
    proving.proved(read_set(folders[1]))
    assert used == len(read) > 0
