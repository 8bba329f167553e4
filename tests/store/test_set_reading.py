"""Published sets as they are read: keys by their beginnings, calls in one row a workload."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from opdb.derive.review import board_costs
from opdb.errors import InputError
from opdb.store import open_store, schema
from opdb.store.deriving import alike
from opdb.store.samples import are_left_out
from opdb.store.set_reading import read_set
from opdb.store.set_samples import with_samples
from tests import published
from tests.store.test_older_database import PLAIN, rows
from tests.store.test_proving import SETS


def test_rows_refer_by_beginnings_that_tell_keys_apart(tmp_path: Path) -> None:
    visit = rows("visits.csv", published.SET)[0]
    assert (len(visit["configuration"]), len(visit["campaign"])) == (12, 12)
    contents = read_set(published.SET)
    assert visit["configuration"] == contents["visits.csv"].values["configuration"][0][:12]
    assert {len(key) for key in contents["visits.csv"].values["configuration"]} == {64}


def test_calls_at_length_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(published.SET.with_name("nvidia-h200-held-out"), tmp_path / "set")
    shutil.copy(PLAIN / "calls.csv", folder)
    expected = r"calls.csv, line 1: columns workload, position, .*; expected workload, operators"
    with pytest.raises(InputError, match=expected):
        read_set(folder)


def test_calls_of_a_workload_in_two_rows_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(published.SET.with_name("nvidia-h200-held-out"), tmp_path / "set")
    lines = (folder / "calls.csv").read_text().splitlines(keepends=True)
    (folder / "calls.csv").write_text("".join([*lines, lines[1]]))
    said = f"calls.csv, line {len(lines) + 1}, column workload: .* in another row already"
    with pytest.raises(InputError, match=said):
        read_set(folder)


@pytest.mark.parametrize("folder", SETS, ids=lambda folder: folder.name)
def test_a_set_beside_the_code_is_read_to_the_same_without_checks(folder: Path) -> None:
    checked, trusted = read_set(folder), read_set(folder, trusted=True)
    assert list(checked) == list(trusted)
    for table, column in ((schema.visit, "stretch"), (schema.host_visit, "times")):
        found = trusted[f"{table.name}s.csv"]
        apart = any(map(are_left_out, found.values[column]))
        assert apart or not len(found), "raw samples stay where they are"
        trusted[f"{table.name}s.csv"] = with_samples(table, found)
    for name, found in checked.items():
        same = trusted[name]
        assert found.lines == same.lines
        assert {n: list(values) for n, values in found.values.items()} == {
            n: list(values) for n, values in same.values.items()
        }


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("configurations.csv", '""kind"":""', '""kind"":""x', "column key: .* the configuration's"),
        ("costs.csv", ",1980000000.0,", ",fast,", "column clock_hz: 'fast': could not convert"),
        ("costs.csv", ",1980000000.0,", ",nan,", "column clock_hz: 'nan': not a finite number"),
        ("visits.csv", ",ok,", ",ok,,", "line 2: 20 fields; expected 19"),
    ],
)
def test_what_a_set_beside_the_code_is_refused_for(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    folder = shutil.copytree(published.SET.with_name("nvidia-h200-held-out"), tmp_path / "set")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        read_set(folder, trusted=True)


def test_costs_derived_from_the_published_samples_are_those_published() -> None:
    """What statistics are made of is published to the bit; a logarithm's last one may differ."""
    with open_store(str(published.database())) as store:
        board = min((b.uuid for b in store.boards()), key=lambda b: len(store.costs(b)) or 1e9)
        visits, hosts = store.visits(board), store.host_visits(board)
        derived = board_costs(store.campaigns(board=board), visits, hosts)
        stored = [cost for costs in store.costs(board).values() for cost in costs]
    assert len(derived) == len(stored) > 100
    names = ("configuration", "setting", "estimator")
    by_name = {tuple(getattr(cost, name) for name in names): cost for cost in derived}
    for cost in stored:
        same = by_name[tuple(getattr(cost, name) for name in names)]
        assert alike(asdict(cost), asdict(same))
