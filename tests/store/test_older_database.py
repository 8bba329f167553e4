"""A database of the last schema before the first release is upgraded as it is opened."""

from __future__ import annotations

import csv
import gzip
import json
import runpy
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text, update

from opdb.errors import DatabaseError
from opdb.records import Stretch
from opdb.store import Store, open_store, schema
from opdb.store.exchange import export_set, import_set
from opdb.store.migrate import MIGRATIONS
from opdb.store.packing import pack
from tests.store import samples
from tests.store.conftest import fill

DATA = Path(__file__).parents[1] / "data"
PLAIN = DATA / "plain_set" / "nvidia-h200"
"""Some rows of a published set as it was when keys were whole and samples plain JSON."""

OLDER = DATA / "revision_0013.sqlite.gz"
"""A database of revision 0013 that opdb at commit 2a8102b made: `import_set` of `PLAIN` as it is
(`source=("plain_set", "")`), then `VACUUM`. Its raw samples are in encoding 2, as plain JSON."""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    path = tmp_path / "older.sqlite"
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))
    return path


def rows(name: str, folder: Path = PLAIN) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def plain_stretch(text: str) -> Stretch | None:
    """Read raw samples of encoding 2 without opdb."""
    if not text:
        return None
    found = json.loads(text)
    power, edges = found.get("p", []), found.get("e", [])
    return Stretch(
        calls_per_replay=found["n"],
        replay_times_s=tuple(t / 1e9 for t in accumulate(found["t"])),
        duration_s=found["d"] / 1e9,
        busy_share=found["b"] / 1e6,
        power_samples=tuple(
            (t / 1e6, w / 1e3) for t, w in zip(accumulate(power[::2]), power[1::2], strict=True)
        ),
        counter_edges=tuple(
            (t / 1e6, j / 1e6)
            for t, j in zip(accumulate(edges[::2]), accumulate(edges[1::2]), strict=True)
        ),
        clock_samples_hz=tuple(mhz * 1e6 for mhz in found["c"]),
        temperature_c=found["w"] / 10,
        eager_times_s=tuple(t / 1e9 for t in found.get("g", [])),
        utilization=found["u"] / 1e4 if "u" in found else None,
    )


def check(store: Store) -> None:
    """Check that a database holds all rows of the plain set, as they stand there."""
    visits = {v.id: v for board in store.boards() for v in store.visits(board.uuid)}
    assert len(visits) == len(rows("visits.csv")) == 6
    for row in rows("visits.csv"):
        found = visits[row["id"]]
        assert (found.campaign, found.configuration) == (row["campaign"], row["configuration"])
        assert found.stretch == plain_stretch(row["stretch"])
        assert found.restore == plain_stretch(row["restore"])
        assert found.kernels == json.loads(row["kernels"] or "null")
        if row["neighbours"]:
            beside, document = found.neighbours, json.loads(row["neighbours"])
            assert beside is not None and beside.calls == document["n"]
            assert beside.times_s == tuple(t / 1e9 for t in document["t"])
            assert beside.alone_s == tuple(t / 1e9 for t in document["a"])
    times = {row["id"]: json.loads(row["times"]) for row in rows("host_visits.csv")}
    assert times == {v.id: [round(t * 1e9) for t in v.times_s] for v in store.host_visits()}
    (run,), (row,) = store.model_runs(), rows("model_runs.csv")
    assert run.repeats == tuple(plain_stretch(json.dumps(r)) for r in json.loads(row["repeats"]))
    assert run.kernels == json.loads(row["kernels"])
    (workload,) = store.workloads()
    assert workload.key == run.workload == row["workload"]
    calls = [(call.configuration.key, call.form) for call in workload.calls]
    assert calls == [(row["configuration"], row["form"]) for row in rows("calls.csv")]


def check_costs(store: Store) -> None:
    """Check the same of its costs."""
    costs = [c for b in store.boards() for found in store.costs(b.uuid).values() for c in found]
    known = {(c.board, c.configuration, c.setting): c for c in costs}
    assert len(known) == len(rows("costs.csv")) == 2
    for row in rows("costs.csv"):
        cost = known[row["board"], row["configuration"], row["setting"]]
        for quantity in ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j"):
            for part in ("median", "mean", "low", "high"):
                field = row[f"{quantity}_{part}"]
                value = getattr(getattr(cost, quantity), part, None)
                assert value == (float(field) if field else None)


def test_all_that_was_measured_is_there(older: Path, tmp_path: Path) -> None:
    with open_store(str(older)) as store:
        check(store)
        check_costs(store)
        assert {v.outputs for b in store.boards() for v in store.visits(b.uuid)} == {None}
        export_set(store, tmp_path / "short", device="nvidia-h200")
    with open_store(str(older)) as store, store.reading() as connection:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        assert revision == schema.REVISIONS[-1]
    with open_store(str(tmp_path / "short.sqlite")) as store:
        import_set(store, tmp_path / "short")
        check(store)
        export_set(store, tmp_path / "again", device="nvidia-h200")
    for file in (tmp_path / "short").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    sizes = [sum(f.stat().st_size for f in each.iterdir()) for each in (PLAIN, tmp_path / "short")]
    assert sizes[1] < 0.45 * sizes[0]


def test_older_samples_are_read_on_every_database(url: str) -> None:
    """Revision 0013 lacks a table and some columns; else a database of today serves as one."""
    older = {"b": 1_000_000, "c": [1980, 1980, 1965], "d": 9, "f": 2, "n": 1, "t": [480, 32, -64]}
    layers = {"layer1.0.bn1": 5.6e-05, "layer1.0.conv1": 0.00012345678901}
    with open_store(url) as store:
        fill(store)
        with store.writing() as connection:
            connection.execute(update(schema.visit).values(stretch=json.dumps(older)))
            connection.execute(update(schema.model_run).values(layers=json.dumps(layers)))
            connection.execute(text("UPDATE alembic_version SET version_num = '0013'"))
            connection.execute(text("DROP TABLE host_calibration"))
            connection.execute(text("ALTER TABLE learned DROP COLUMN ratios"))
            one_row_a_call(connection)
            connection.execute(text("ALTER TABLE workload DROP COLUMN memory"))
            connection.execute(text("ALTER TABLE workload DROP COLUMN around"))
            connection.execute(text("ALTER TABLE cost DROP COLUMN after_others"))
    stretch = Stretch(
        1, (4.8e-7, 5.12e-7, 4.48e-7), 9e-9, 1.0, clock_samples_hz=(1.98e9, 1.98e9, 1.965e9)
    )
    with open_store(url) as store:
        assert {v.stretch for v in store.visits("GPU-1")} == {stretch}
        assert {v.restore for v in store.visits("GPU-1")} == {samples.BARE_STRETCH, None}
        [run] = store.model_runs()
        assert run.layers == {"layer1.0.bn1": 5.6e-5, "layer1.0.conv1": 1.23457e-4}
        assert run.repeats == samples.model_run(samples.workload()).repeats


def one_row_a_call(connection: Connection) -> None:
    """Store calls as before revision 0018."""
    operators = {
        (row.workload_id, str(row.number)): {"c": row.configuration_id, "f": row.form}
        for row in connection.execute(text("SELECT * FROM call"))
    }
    calls = [
        {"w": workload, "p": position, **operators[workload, number]}
        for workload, sequence in connection.execute(text("SELECT id, sequence FROM workload"))
        for position, number in enumerate(sequence.split())
    ]
    connection.execute(text("ALTER TABLE workload DROP COLUMN sequence"))
    connection.execute(text("DROP TABLE call"))
    whole = ("workload_id", "position", "configuration_id")
    columns = ", ".join(f"{name} INTEGER NOT NULL" for name in whole)
    key = "CONSTRAINT pk_call PRIMARY KEY (workload_id, position)"
    connection.execute(text(f"CREATE TABLE call ({columns}, form TEXT NOT NULL, {key})"))
    connection.execute(text("CREATE INDEX ix_call_configuration_id ON call (configuration_id)"))
    connection.execute(text("INSERT INTO call VALUES (:w, :p, :c, :f)"), calls)


def test_calls_are_stored_by_operator_from_0018_on(url: str) -> None:
    other = replace(samples.workload("other"), calls=samples.workload().calls[::-1] * 2)
    none = replace(samples.workload("none"), calls=())
    with open_store(url) as store:
        fill(store)
        store.save_workload(other)
        store.save_workload(none)
        with store.writing() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '0017'"))
            connection.execute(text("ALTER TABLE learned DROP COLUMN ratios"))
            one_row_a_call(connection)
            if url.startswith("postgresql"):
                connection.execute(text("GRANT SELECT ON call TO PUBLIC"))
    with open_store(url) as store:
        assert store.workloads() == [none, other, samples.workload()]
        called = Counter(call.configuration.key for call in samples.workload().calls)
        assert store.usage() == {key: 3 * count for key, count in called.items()}
        with store.reading() as connection:
            assert connection.scalar(text("SELECT sum(calls) FROM call")) == 3 * called.total()
            assert connection.scalar(text("SELECT count(*) FROM call")) < 3 * called.total()
            if url.startswith("postgresql"):
                granted = "SELECT has_table_privilege('public', 'call', 'SELECT')"
                assert connection.scalar(text(granted))
        store.save_workload(other)
        assert store.workloads("other") == [other]


Renew = Callable[[str], str]


@pytest.fixture(scope="module")
def renewed() -> dict[str, Renew]:
    """What the migration makes of a text of each column."""
    migration = runpy.run_path(str(MIGRATIONS / "versions" / "0014_one_encoding.py"))
    columns: dict[str, Callable[[Any], Any]] = {}
    for each in migration["COLUMNS"].values():
        columns |= each
    return {name: partial(_renewed, change) for name, change in columns.items()}


def _renewed(change: Callable[[Any], Any], text: str) -> str:
    return pack(change(json.loads(text)))


def test_older_encodings_are_written_anew(renewed: dict[str, Renew]) -> None:
    """The first gives each event time whole, the second what it differs by; both each clock."""
    first = '{"b":1000000,"c":[1980,1980,1965],"d":9,"f":1,"n":1,"t":[480,512,448]}'
    second = '{"b":1000000,"c":[1980,1980,1965],"d":9,"f":2,"n":1,"t":[480,32,-64]}'
    third = {"b": 1_000_000, "c": [1980, 2, 1965, 1], "d": 9, "f": 3, "n": 1}
    third |= {"q": 32, "t": [15, 1, -2]}
    assert renewed["stretch"](first) == renewed["restore"](second) == pack(third)
    assert renewed["repeats"](f"[{first},{second}]") == pack([third, third])
    same = {"a": [2, 1], "n": 3, "q": 32, "t": [10, 2]}
    assert renewed["neighbours"]('{"a":[64,96],"n":3,"t":[320,384]}') == pack(same)
    assert renewed["times"]("[5,7]") == pack([5, 7])
    layers = {"conv1": 123457, "fc": 3_000_000_000}
    assert renewed["layers"]('{"conv1":0.00012345678901,"fc":3}') == pack(layers)


def test_an_earlier_schema_names_what_reads_it(older: Path) -> None:
    with closing(sqlite3.connect(older)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0011'")
    before = older.read_bytes()
    said = (
        "its schema 0011 is older than this version of opdb reads .0013.; check out commit 2a8102b"
    )
    with pytest.raises(DatabaseError, match=said):
        open_store(str(older))
    assert older.read_bytes() == before
