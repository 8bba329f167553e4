"""Sets as older versions wrote them, all at length, and the same set in short."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from sqlalchemy import update

from opdb.derive.review import board_costs
from opdb.errors import InputError
from opdb.records import Stretch
from opdb.store import Store, open_store, schema
from opdb.store.exchange import export_set, import_set
from opdb.store.packing import unpack
from opdb.store.set_reading import read_set
from tests import published

PLAIN = Path(__file__).parents[1] / "data" / "plain_set" / "nvidia-h200"
"""Some rows of the published set as it was when keys were whole and samples plain JSON."""


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


def test_a_set_at_length_is_read_and_comes_back_from_short(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "plain.sqlite")) as store:
        import_set(store, PLAIN)
        check(store)
        export_set(store, tmp_path / "short", device="nvidia-h200")
    with open_store(str(tmp_path / "short.sqlite")) as store:
        import_set(store, tmp_path / "short")
        check(store)
        export_set(store, tmp_path / "again", device="nvidia-h200")
    for file in (tmp_path / "short").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    sizes = [sum(f.stat().st_size for f in each.iterdir()) for each in (PLAIN, tmp_path / "short")]
    assert sizes[1] < 0.45 * sizes[0]


def test_plain_times_of_layers_are_read_and_packed_by_an_export(
    filled: Store, tmp_path: Path
) -> None:
    """Before they were packed, databases and sets had them as JSON of seconds."""
    [run] = filled.model_runs()
    plain = '{"layer1.0.bn1":5.6e-05,"layer1.0.conv1":0.00012345678901}'
    said = {"layer1.0.bn1": 5.6e-5, "layer1.0.conv1": 1.2345678901e-4}
    export_set(filled, tmp_path / "new", device="nvidia-h200")
    [packed] = [row["layers"] for row in rows("model_runs.csv", tmp_path / "new")]
    assert unpack(packed) == {"layer1.0.bn1": 56000, "layer1.0.conv1": 123457}
    with filled.writing() as connection:
        connection.execute(update(schema.model_run).values(layers=plain))
    assert filled.model_runs() == [replace(run, layers=said)]
    export_set(filled, tmp_path / "upgraded", device="nvidia-h200")
    for file in (tmp_path / "new").iterdir():
        assert file.read_bytes() == (tmp_path / "upgraded" / file.name).read_bytes()

    old = shutil.copytree(tmp_path / "new", tmp_path / "old")
    text = (old / "model_runs.csv").read_text()
    assert text.count(packed) == 1
    quoted = '"' + plain.replace('"', '""') + '"'
    (old / "model_runs.csv").write_text(text.replace(packed, quoted))
    with open_store(str(tmp_path / "old.sqlite")) as store:
        import_set(store, old)
        assert store.model_runs() == [replace(run, layers=said)]
        export_set(store, tmp_path / "again", device="nvidia-h200")
    assert (tmp_path / "again" / "model_runs.csv").read_bytes() == (
        tmp_path / "new" / "model_runs.csv"
    ).read_bytes()


def test_rows_refer_by_beginnings_that_tell_keys_apart(tmp_path: Path) -> None:
    visit = rows("visits.csv", published.SET)[0]
    assert (len(visit["configuration"]), len(visit["campaign"])) == (12, 12)
    contents = read_set(published.SET)
    assert visit["configuration"] == contents["visits.csv"].values["configuration"][0][:12]
    assert {len(key) for key in contents["visits.csv"].values["configuration"]} == {64}


def test_calls_at_length_with_a_gap_are_refused(tmp_path: Path) -> None:
    for file in PLAIN.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    lines = (tmp_path / "calls.csv").read_text().splitlines(keepends=True)
    (tmp_path / "calls.csv").write_text("".join(lines[:5] + lines[6:]))
    with pytest.raises(InputError, match=r"calls.csv, line 6, column position: '5': call 4 of"):
        read_set(tmp_path)


def test_costs_derived_from_the_published_samples_are_those_published() -> None:
    """What statistics are made of is published to the bit."""
    with open_store(str(published.database())) as store:
        board = min((b.uuid for b in store.boards()), key=lambda b: len(store.costs(b)) or 1e9)
        visits, hosts = store.visits(board), store.host_visits(board)
        derived = board_costs(store.campaigns(board=board), visits, hosts)
        stored = [cost for costs in store.costs(board).values() for cost in costs]
    assert len(derived) == len(stored) > 100
    names = ("configuration", "setting", "estimator")
    by_name = {tuple(getattr(cost, name) for name in names): cost for cost in derived}
    assert stored == [by_name[tuple(getattr(cost, name) for name in names)] for cost in stored]
