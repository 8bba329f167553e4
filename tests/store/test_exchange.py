from __future__ import annotations

import csv
import lzma
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.errors import InputError
from opdb.store import Store, database, open_store
from opdb.store.costs import derived
from opdb.store.fields import pack, unpack
from opdb.store.opening import FILE, SAMPLES
from opdb.store.sets import TABLES, export_csv, export_set, opened
from tests.published import import_set
from tests.store import samples
from tests.store.small_set import Row, edit, put_samples_into_rows, unpacked


def contents(folder: Path) -> dict[str, list[str]]:
    """Return the rows of a set's tables, without the numbers of rows, and its lines of samples."""
    with opened(folder, trusted=True) as store:
        counts = export_csv(store, folder.parent / "tables", device=store.devices()[0].slug)
    found = {"samples": lzma.decompress((folder / SAMPLES).read_bytes()).decode().splitlines()}
    for name in counts:
        found[name] = sorted((folder.parent / "tables" / f"{name}.csv").read_text().splitlines())
    return found


def test_export_import_export_is_the_same(folder: Path, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, folder)
        export_set(other, tmp_path / "again", device="nvidia-h200")
        assert contents(tmp_path / "again") == contents(folder)
        assert other.visits("GPU-1")[1:] == [samples.failed_visit(), samples.anchor_visit()]
        assert [v.outputs for v in other.visits("GPU-1")] == [None, "reused", "fresh"]
        assert other.workloads() == [samples.workload()]
        assert other.campaigns() == [samples.campaign()]
        assert other.board_calibrations("GPU-1") == [samples.board_calibration()]
        assert other.model_runs() == [samples.model_run(samples.workload())]
        assert derived(other, "GPU-1")[1] == 0, "a set has the costs that its visits give"
        assert other.learned("nvidia-h200") == {"GPU-1": samples.LEARNED}
        assert other.run_ratios("nvidia-h200") == (samples.LEARNED["trained_at"], samples.RATIOS)
        assert other.profiles("nvidia-h200") == [samples.profile()]
    with open_store(str(tmp_path / "third.sqlite")) as third:
        import_set(third, tmp_path / "other.sqlite")  # as a job's: its costs are derived anew
        assert derived(third, "GPU-1")[1] == 0 and third.costs("GPU-1")


def test_flat_tables_have_every_row_and_no_raw_samples(filled: Store, tmp_path: Path) -> None:
    counts = export_csv(filled, tmp_path / "tables", device="nvidia-h200")
    tables = {}
    for path in (tmp_path / "tables").iterdir():
        with path.open(newline="") as stream:
            tables[path.stem] = list(csv.DictReader(stream))
    assert {name: len(tables[name]) for name in TABLES} == counts and counts["visits"] == 3
    visit = next(row for row in tables["visits"] if row["id"] == "visit-1")
    assert visit["configuration"] == samples.CONV.key and not {"stretch", "restore"} & visit.keys()
    [run] = tables["model_runs"]
    assert run["workload"] == samples.workload().key and "repeats" not in run
    assert float(tables["costs"][0]["time_s_mean"]) == samples.cost().time_s.mean
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be made"):
        export_csv(filled, tmp_path / "file", device="nvidia-h200")


def test_import_merges_with_what_was_measured_here(
    filled: Store, folder: Path, tmp_path: Path
) -> None:
    harvested = replace(samples.workload(), calls=samples.workload().calls[:2])
    filled.save_workload(harvested)
    filled.save_visit(samples.visit("local"))
    filled.replace_costs("GPU-1", [samples.cost(visits=9)])
    import_set(filled, folder)
    assert filled.workloads() == [harvested]
    assert "local" in [v.id for v in filled.visits("GPU-1")]
    assert filled.costs("GPU-1")[samples.CONV.key][0].visits == 9


def test_a_changed_set_takes_the_place_of_what_it_brought(folder: Path, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, folder)
        with unpacked(folder) as connection:
            connection.execute("DELETE FROM visit WHERE id = 'visit-3'")
        import_set(other, folder)
        assert [v.id for v in other.visits("GPU-1")] == ["visit-1", "visit-2"]


def test_a_set_holds_one_device_and_the_workloads_that_concern_it(
    filled: Store, tmp_path: Path
) -> None:
    filled.save_campaign(samples.campaign("cpu", "CPU-1", samples.PROCESSOR))
    unmeasured = samples.workload("elsewhere")
    filled.save_workload(replace(unmeasured, calls=unmeasured.calls[2:3]))
    counts = export_set(filled, tmp_path / "cpu", device="a-cpu")
    assert counts["campaigns"] == 1
    assert counts["visits"] == counts["workloads"] == counts["configurations"] == 0
    counts = export_set(filled, tmp_path / "gpu", device="nvidia-h200")
    assert (counts["campaigns"], counts["workloads"], counts["configurations"]) == (1, 1, 4)


def test_an_export_that_is_interrupted_leaves_no_mix_of_two_sets(
    folder: Path, filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two of its files: then the folder is refused, until it is exported again."""
    before = contents(folder)
    filled.save_visit(samples.visit("late"))
    place = Path.replace
    for files in range(3):
        put: list[Path] = []

        def until(path: Path, target: Path, put: list[Path] = put, files: int = files) -> Path:
            if len(put) == files:
                raise KeyboardInterrupt
            put.append(target)
            return place(path, target)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "replace", until)
            export_set(filled, folder, device="nvidia-h200")
        with pytest.raises(InputError, match=rf"{FILE} is missing; where opdb export was inter"):
            import_set(filled, folder)
    export_set(filled, folder, device="nvidia-h200")
    export_set(filled, tmp_path / "fresh", device="nvidia-h200")
    assert contents(folder) == contents(tmp_path / "fresh") != before


def test_export_refuses_another_devices_folder(filled: Store, folder: Path, tmp_path: Path) -> None:
    filled.save_campaign(samples.campaign("cpu", "CPU-1", samples.PROCESSOR))
    with pytest.raises(InputError, match=r"holds the set of nvidia-h200, not of a-cpu"):
        export_set(filled, folder, device="a-cpu")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="File exists"):
        export_set(filled, tmp_path / "file", device="a-cpu")


TAMPERED = [
    ("configurations", "json", lambda v: v.replace(":", ": "), "canonical"),
    ("configurations", "json", lambda v: v.replace('"format":1', '"format":9'), "format 9"),
    ("configurations", "json", lambda v: "[" * 100_000, "json"),
    ("configurations", "json", lambda v: b"{}", "not a text"),
    ("configurations", "kind", lambda v: "relu", "'relu'"),
    ("workloads", "dtype", lambda v: "float16", "its row was altered"),
    ("workloads", "memory", lambda _: '{"weight_bytes":-1}', "a whole number that counts"),
    ("workloads", "sequence", lambda v: v.replace("2", "7"), "not the calls of its operators"),
    ("workloads", "batch_size", lambda _: 0, "out of range"),
    ("workloads", "compiled_for", lambda _: "../x", "a device may be named by lower-case letters"),
    ("calls", "calls", lambda v: v + 1, "not the calls of its operators"),
    ("calls", "form", lambda v: "method", "not one of module"),
    ("campaigns", "calibration", lambda v: "{}", "base_power_w"),
    ("campaigns", "environment", lambda _: '{"torch":' + "[" * 5000, "nested too deeply"),
    ("calibrations", "facts", lambda _: '{"base_power_w":"80"}', "expected float, got '80'"),
    ("hosts", "cores", lambda _: -16, "out of range"),
    ("visits", "cost_s", lambda v: math.inf, "not a finite number"),
    ("visits", "cost_s", lambda v: "0.5s", "not a number"),
    ("visits", "stretch", lambda v: v[:-8], "damaged"),
    ("visits", "stretch", lambda v: pack({**unpack(v), "f": 4}), "encoding 4"),
    ("visits", "stretch", lambda v: pack({**unpack(v), "t": [0.5]}), "whole numbers"),
    ("visits", "neighbours", lambda v: pack({"n": 0, "q": 1, "t": [1], "a": [1]}), "out of range"),
    ("visits", "flags", lambda v: "[1]", "expected str, got 1"),
    ("host_visits", "times", lambda v: pack({"t": 1}), "unsupported operand"),
    ("model_runs", "repeats", lambda v: pack(unpack(v)[0]), "'str' object has no attribute"),
    ("model_runs", "repeats", lambda _: pack([]), "a run without a single repeat"),
    ("model_runs", "layers", lambda v: pack({"x": -1}), "out of range"),
    ("costs", "time_s_median", lambda v: "__import__('os')", "no number"),
    ("learned", "ratios", lambda v: v.replace("1.02", "0"), "is not above 0"),
    ("learned", "ratios", lambda v: v.replace("false", "2"), "expected bool, got 2"),
    ("profiles", "counts", lambda _: '[["a",{"b":"1"}]]', "expected float, got '1'"),
    ("profiles", "definition", lambda _: '{"a":{"b":NaN}}', "expected float, got nan"),
]


@pytest.mark.parametrize(("name", "column", "change", "said"), TAMPERED)
def test_a_tampered_row_is_refused_where_it_stands(
    folder: Path,
    tmp_path: Path,
    name: str,
    column: str,
    change: Callable[[Any], Any],
    said: str,
) -> None:
    def tamper(rows: list[Row]) -> None:
        row = next((r for r in rows if r.get("kind") == "conv2d"), rows[0])
        row[column] = change(row[column])

    put_samples_into_rows(folder)
    edit(folder, name, tamper)
    with open_store(str(tmp_path / "other.sqlite")) as other:
        with pytest.raises(InputError) as caught:
            import_set(other, folder)
        assert not other.configurations() and not other.devices()
    assert str(folder) in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


REFERENCES = [
    ("campaign", "host", "nowhere", "host"),
    ("campaign", "device", "other", "board|device"),
    ("visit", "campaign", "nowhere", "campaign"),
    ("visit", "configuration_id", 99, "configuration"),
    ("model_run", "workload_id", 99, "workload"),
    ("call", "configuration_id", 99, "configuration"),
    ("profile", "configuration_id", 99, "configuration"),
]


@pytest.mark.parametrize(("table", "column", "value", "target"), REFERENCES)
def test_a_row_that_names_what_is_not_there_is_refused(
    folder: Path, store: Store, table: str, column: str, value: object, target: str
) -> None:
    with unpacked(folder) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    said = rf"{folder}: a row of {table} names a ({target}) that is not there"
    with pytest.raises(InputError, match=said):
        import_set(store, folder)


def test_a_broken_set_is_refused(folder: Path, store: Store) -> None:
    whole = (folder / FILE).read_bytes()
    for content, said in (
        (whole[:-9], f"{FILE} is damaged: "),
        (whole[:20], f"{FILE} is damaged: "),
        (b"\xff\xfe\x00" * 99, f"{FILE} is damaged: "),
        (lzma.compress(b"nothing of ours"), "it is not an opdb database"),
        (lzma.compress(lzma.decompress(whole)[:-20_000]), "it is damaged"),
    ):
        (folder / FILE).write_bytes(content)
        with pytest.raises(InputError, match=r"not the file that manifest\.json lists"):
            import_set(store, folder)
        with pytest.raises(InputError, match=said), opened(folder, trusted=True):
            pass


def test_the_default_database_takes_in_published_sets_when_they_change(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPDB_DB", raising=False)
    checkout = tmp_path / "checkout"
    (checkout / "db").mkdir(parents=True)
    folder.rename(checkout / "db" / "nvidia-h200")
    monkeypatch.setattr(database, "package_parent", lambda: checkout)
    with open_store(create=False) as store:
        assert store.path == checkout / "db" / "opdb.sqlite"
        assert len(store.visits("GPU-1")) == 3
    published = checkout / "db" / "nvidia-h200"
    edit(published, "visits", lambda rows: rows.__delitem__(-1))
    with open_store() as store:
        assert len(store.visits("GPU-1")) == 2
    with open_store(str(tmp_path / "named.sqlite")) as store:
        assert store.devices() == []
    (published / FILE).write_text("broken")
    with pytest.raises(InputError, match=rf"{FILE} is damaged"):
        open_store()
