"""Measurements as others read them: Parquet with a card, SQLite with views, sets with manifests."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasette.app import Datasette
from pyarrow import parquet

import opdb
from opdb.errors import InputError
from opdb.sharing.browsing import VIEWS
from opdb.store import open_store
from tests import published
from tests.store.conftest import fill

SET = "nvidia-h200-generation"


@pytest.fixture(scope="module")
def db() -> str:
    return str(published.database_of(SET))


@pytest.fixture(scope="module")
def hub(db: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared") / "hub"
    opdb.export(folder, form="parquet", db=db)
    return folder


@pytest.fixture(scope="module")
def browsed(db: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared") / "browsed"
    opdb.export(folder, form="sqlite", licence="CC-BY-4.0", db=db)
    return folder


def rows(hub: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(hub / f"{name}.parquet").to_pylist()
    return found


def test_parquet_has_the_costs_and_visits_of_the_database(hub: Path, db: str) -> None:
    with open_store(db) as store:
        boards = [board.uuid for board in store.boards()]
        costs = {(b, key): cost for b in boards for key, [cost] in store.costs(b).items()}
        visits = {visit.id: visit for board in boards for visit in store.visits(board)}
    assert len(boards) == 7
    shared = {(row["board"], row["configuration"]): row for row in rows(hub, "costs")}
    assert shared.keys() == costs.keys()
    for key, cost in costs.items():
        for name in ("time_s", "energy_j", "dynamic_energy_j"):
            held = getattr(cost, name)
            ends = (held.mean, held.low, held.high) if held else (None, None, None)
            assert tuple(shared[key][name + end] for end in ("", "_low", "_high")) == ends
        after = cost.after_others
        assert shared[key]["after_code_s"] == (after.code_s if after else None)
        assert shared[key]["after_stream_s"] == (after.stream_s if after else None)
    assert any(row["after_stream_s"] for row in shared.values())
    for row in rows(hub, "visits"):
        stretch = visits.pop(row["id"]).stretch
        assert row["replay_times_s"] == (list(stretch.replay_times_s) if stretch else [])
        powers = list(zip(row["power_at_s"], row["power_w_samples"], strict=True))
        assert powers == (list(stretch.power_samples) if stretch else [])
    assert not visits


def test_its_runs_are_those_of_validate_and_its_tables_join(hub: Path, db: str) -> None:
    told = opdb.validate(db=db)
    runs = rows(hub, "runs")
    assert len(runs) == len(told.answers) > 10
    for row, answer in zip(runs, told.answers, strict=True):
        assert row["predicted_time_s"] == answer.prediction.time_s
        low, high = answer.prediction.time_interval_s or (None, None)
        assert (row["predicted_time_s_low"], row["predicted_time_s_high"]) == (low, high)
    configurations = {row["configuration"] for row in rows(hub, "configurations")}
    workloads = {row["workload"]: row["calls"] for row in rows(hub, "workloads")}
    assert {row["workload"] for row in runs} <= workloads.keys()
    calls = rows(hub, "calls")
    assert {row["configuration"] for row in calls} <= configurations
    for key, count in workloads.items():
        assert sum(row["calls"] for row in calls if row["workload"] == key) == count


def test_the_card_names_every_table_and_column(hub: Path) -> None:
    _, front, text = (hub / "README.md").read_text().split("---\n", 2)
    head = yaml.safe_load(front)
    assert head["license"] == "apache-2.0", "that of the published set"
    files = {each["data_files"] for each in head["configs"]}
    assert files == {path.name for path in hub.glob("*.parquet")}
    for each in head["configs"]:
        assert f"\n## {each['config_name']}\n" in text
        for name in parquet.read_schema(hub / each["data_files"]).names:
            assert f"| `{name}` | " in text
    assert "torch 2.11" in text and "driver 580" in text


def test_datasette_opens_the_file_with_its_views(browsed: Path, hub: Path) -> None:
    metadata = json.loads((browsed / "metadata.json").read_text())
    assert metadata["license"] == "CC-BY-4.0"

    async def get(path: str) -> Any:
        page = await served.client.get(path)
        assert page.status_code == 200, path
        return page

    async def look() -> None:
        for name in [*VIEWS, "costs", "visits"]:
            page = await get(f"/opdb/{name}.json?_shape=objects&_size=5")
            assert page.json()["rows"], name
        assert "What one call of a configuration takes" in (await get("/opdb/costs")).text
        first = (await get("/opdb/model_parts.json?_shape=objects&_size=1")).json()["rows"][0]
        assert first["time_s"] > 0

    served = Datasette([str(browsed / "opdb.sqlite")], metadata=metadata)
    asyncio.run(look())
    with closing(sqlite3.connect(browsed / "opdb.sqlite")) as connection:
        for each in ("costs", "runs", "visits", "calls"):
            [(count,)] = connection.execute(f"SELECT count(*) FROM {each}")
            assert count == parquet.read_metadata(hub / f"{each}.parquet").num_rows


def test_a_manifest_has_checksums_licence_and_environment(hub: Path) -> None:
    told = json.loads((hub / "manifest.json").read_text())
    assert told["files"].keys() == {p.name for p in hub.iterdir()} - {"manifest.json"}
    for name, seen in told["files"].items():
        content = (hub / name).read_bytes()
        assert seen == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    assert told["environments"][0]["torch"].startswith("2.11")
    assert told["device"] == "nvidia-h200" and len(told["boards"]) == 7


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    folder, made = tmp_path / "set", str(tmp_path / "made.sqlite")
    with open_store(made) as store:
        fill(store)
    opdb.export(folder, licence="CC0-1.0", db=made)
    return folder


def test_a_set_is_held_against_its_manifest(exported: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "other.sqlite")
    opdb.load(exported, db=other)
    assert [each.licence for each in opdb.data(db=other).sets] == ["CC0-1.0"]
    hosts = exported / "hosts.csv"
    text = hosts.read_text()
    hosts.write_text(text + "\n")
    with pytest.raises(InputError, match=r"hosts\.csv: not the file that manifest\.json lists"):
        opdb.load(exported, db=other)
    (exported / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="expected a manifest"):
        opdb.load(exported, db=other)
    (exported / "manifest.json").unlink()
    hosts.write_text(text)
    opdb.load(exported, db=other)


def test_a_manifest_names_no_file_elsewhere(exported: Path, tmp_path: Path) -> None:
    told = json.loads((exported / "manifest.json").read_text())
    told["files"]["../made.sqlite"] = {"sha256": "0", "bytes": 0}
    (exported / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match="not the file"):
        opdb.load(exported, db=str(tmp_path / "other.sqlite"))


def test_what_cannot_be_written_is_told(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="unknown --format 'arrow'"):
        opdb.export(tmp_path / "a", form="arrow", db=db)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="needs pyarrow"):
        opdb.export(tmp_path / "b", form="parquet", db=db)
