from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import DatabaseError, InputError
from opdb.store import Store, database, open_store
from opdb.store.deriving import derived
from opdb.store.exchange import export_set, import_set
from opdb.store.packing import pack, unpack
from opdb.store.proving import proved
from opdb.store.set_reading import read_set
from tests.store import samples
from tests.store.conftest import fill
from tests.store.small_set import put_samples_into_rows


@pytest.fixture
def folder(filled: Store, tmp_path: Path) -> Path:
    target = tmp_path / "nvidia-h200"
    export_set(filled, target, device="nvidia-h200")
    return target


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_export_import_export_is_the_same_bytes(folder: Path, tmp_path: Path) -> None:
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
        assert derived(other, "GPU-1").is_as_stored, "a set has the costs that its visits give"
        assert other.learned("nvidia-h200") == {"GPU-1": samples.LEARNED}
        assert other.run_ratios("nvidia-h200") == (samples.LEARNED["trained_at"], samples.RATIOS)
        assert other.profiles("nvidia-h200") == [samples.profile()]


def test_operators_in_another_order_twice_or_uncalled_make_the_same_calls(
    folder: Path, tmp_path: Path
) -> None:
    def other(rows: list[dict[str, str]]) -> None:
        conv, relu, add = rows[0]["operators"].split(" ")
        assert rows[0]["calls"] == "0 1 2 1 1"
        rows[0] |= {"operators": f"{relu} {add} {relu} {conv} {conv}", "calls": "3 0 1 0 2"}

    before = (folder / "calls.csv").read_bytes()
    edit(folder / "calls.csv", other)
    with open_store(str(tmp_path / "other.sqlite")) as store:
        import_set(store, folder)
        assert store.workloads() == [samples.workload()]
        assert [head.configurations for head in store.heads()] == [3]
        export_set(store, tmp_path / "again", device="nvidia-h200")
    assert (tmp_path / "again" / "calls.csv").read_bytes() == before


def test_a_model_without_a_version_comes_back(store: Store, tmp_path: Path) -> None:
    """Most models of one's own have none."""
    fill(store)
    own = replace(samples.workload(), name="mine:build", source="python", source_version="")
    store.save_workload(own)
    export_set(store, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        assert own in other.workloads()


@pytest.mark.parametrize(("cost_s", "written_s"), [(0.44468915, 0.4447), (0.00012112, 0.0001211)])
def test_the_time_that_a_visit_took_has_four_digits(
    store: Store, tmp_path: Path, cost_s: float, written_s: float
) -> None:
    fill(store)
    store.save_visit(samples.visit("f" * 32, cost_s=cost_s))
    export_set(store, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        found = {visit.id: visit.cost_s for visit in other.visits("GPU-1")}
    assert found["f" * 32] == written_s


def test_a_run_that_failed_comes_back(filled: Store, tmp_path: Path) -> None:
    ran = samples.model_run(samples.workload())
    failed = replace(ran, id="0" * 32, outcome="error", reason="no capture", repeats=())
    filled.save_model_run(failed)
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "set")
        assert sorted(other.model_runs(), key=lambda run: run.id) == [failed, ran]


def test_what_was_learned_later_stays(filled: Store, folder: Path) -> None:
    board, later = samples.campaign().board, {**samples.LEARNED, "configurations": 9}
    for moment, expected in (("2026-11-20T11:00", samples.LEARNED), ("2026-11-21T11:00", later)):
        filled.save_learned(board, moment, later)
        import_set(filled, folder)
        assert filled.learned("nvidia-h200") == {"GPU-1": expected}


def test_a_cost_that_rests_on_more_visits_than_the_sets_stays(filled: Store, folder: Path) -> None:
    import_set(filled, folder)
    [cost] = [c for c in filled.costs("GPU-1")[samples.CONV.key] if c.estimator != "1"]
    for visits, stays in ((cost.visits + 1, True), (cost.visits, False), (0, False)):
        own = replace(cost, visits=visits, kernels=77)
        filled.replace_costs("GPU-1", [own])
        import_set(filled, folder)
        assert filled.costs("GPU-1")[samples.CONV.key] == [own if stays else cost]


def test_import_counts_and_changes_nothing_the_second_time(folder: Path, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "other.sqlite")) as other:
        first = import_set(other, folder)
        second = import_set(other, folder)
    assert first.found == first.added == second.found
    assert first.found["visits"] == 3
    assert not any(second.added.values())


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
        lines = (folder / "visits.csv").read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("visit-3")]
        (folder / "visits.csv").write_text("".join(kept))
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


def test_a_workload_that_came_with_a_set_stays_in_it_whatever_measured_its_operators(
    folder: Path, tmp_path: Path
) -> None:
    sample = samples.workload("unmeasured")
    unmeasured = replace(sample, calls=sample.calls[2:3])
    with open_store(str(tmp_path / "one.sqlite")) as one:
        import_set(one, folder)
        one.save_workload(unmeasured)
        assert export_set(one, tmp_path / "without", device="nvidia-h200")["workloads"] == 1
        with one.writing() as connection:
            connection.exec_driver_sql("UPDATE workload SET source_id = (SELECT id FROM source)")
        assert export_set(one, tmp_path / "with", device="nvidia-h200")["workloads"] == 2
    with open_store(str(tmp_path / "other.sqlite")) as other:
        import_set(other, tmp_path / "with")
        export_set(other, tmp_path / "again", device="nvidia-h200")
        assert unmeasured in other.workloads()
    assert contents(tmp_path / "again") == contents(tmp_path / "with")


def test_an_export_needs_no_room_elsewhere(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written beside their place: elsewhere may be another file system, or full."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no such folder"))
    export_set(filled, tmp_path / "set", device="nvidia-h200")
    read_set(tmp_path / "set")


def test_an_export_that_is_interrupted_leaves_no_mix_of_two_sets(
    folder: Path, filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two of its files: then the folder is refused, until it is exported again."""
    before = contents(folder)
    filled.save_visit(samples.visit("late"))
    place = Path.replace
    for files in range(len(before)):
        put: list[Path] = []

        def until(path: Path, target: Path, put: list[Path] = put, files: int = files) -> Path:
            if len(put) == files:
                raise KeyboardInterrupt
            put.append(target)
            return place(path, target)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "replace", until)
            export_set(filled, folder, device="nvidia-h200")
        with pytest.raises(InputError, match=r"device.csv is missing; where opdb export was inter"):
            read_set(folder)
    (folder / ".opdb-of-a-killed-one").mkdir()
    export_set(filled, folder, device="nvidia-h200")
    export_set(filled, tmp_path / "fresh", device="nvidia-h200")
    assert contents(folder) == contents(tmp_path / "fresh") != before


def test_export_refuses_an_unknown_device_and_another_ones_folder(
    filled: Store, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="did you mean 'nvidia-h200'"):
        export_set(filled, tmp_path / "x", device="nvidia-h20")
    assert not (tmp_path / "x").exists()
    filled.save_campaign(samples.campaign("cpu", "CPU-1", samples.PROCESSOR))
    with pytest.raises(InputError, match=r"holds the set of nvidia-h200, not of a-cpu"):
        export_set(filled, folder, device="a-cpu")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        export_set(filled, tmp_path / "file", device="a-cpu")


def edit(path: Path, change: Callable[[list[dict[str, str]]], None]) -> None:
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = list(rows[0])
    change(rows)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


TAMPERED = [
    ("configurations.csv", "json", lambda v: v.replace("[2,2]", "[1,1]"), "key is"),
    ("configurations.csv", "json", lambda v: v.replace(":", ": "), "canonical"),
    ("configurations.csv", "json", lambda v: v.replace('"format":1', '"format":9'), "format 9"),
    ("configurations.csv", "json", lambda v: "[" * 100_000, "json"),
    ("configurations.csv", "kind", lambda v: "relu", "'conv2d'"),
    ("workloads.csv", "dtype", lambda v: "float16", "workload's key is"),
    ("workloads.csv", "inputs", lambda v: "[1]", "not a JSON object"),
    ("configurations.csv", "key", lambda v: v[:11], "key is"),
    ("calls.csv", "calls", lambda v: v.replace("2", "7"), "the workload has 3 operators"),
    ("calls.csv", "operators", lambda v: "0" * 12 + v[12:], "no such configuration"),
    ("calls.csv", "operators", lambda v: v[:11] + v[12:], "no such configuration"),
    ("calls.csv", "operators", lambda v: v.replace("module", "method"), "not one of module"),
    ("kernels.csv", "name", lambda v: v + "_v2", "the name's key is"),
    ("campaigns.csv", "device", lambda v: "other", "no such board"),
    ("campaigns.csv", "host", lambda v: "nowhere", "no such host"),
    ("campaigns.csv", "calibration", lambda v: "{}", "base_power_w"),
    ("visits.csv", "campaign", lambda v: "nowhere", "no such campaign"),
    ("visits.csv", "cost_s", lambda v: "nan", "not a finite number"),
    ("visits.csv", "cost_s", lambda v: "", "a value is missing"),
    ("visits.csv", "outcome", lambda v: "fine", "not one of ok"),
    ("visits.csv", "stretch", lambda v: v[:-8], "damaged"),
    ("visits.csv", "stretch", lambda v: "A" + v[1:], "damaged"),
    ("visits.csv", "stretch", lambda v: v[:20] + "é" + v[21:], "damaged"),
    ("visits.csv", "stretch", lambda v: pack({**unpack(v), "f": 4}), "encoding 4"),
    ("visits.csv", "stretch", lambda v: pack({**unpack(v), "t": [0.5]}), "whole numbers"),
    ("visits.csv", "kernels", lambda v: "0" * 12, "no such kernel"),
    ("visits.csv", "kernels", lambda v: v + "*0", "not a list of kernels"),
    ("visits.csv", "neighbours", lambda v: pack({"n": 0, "q": 1, "t": [1], "a": [1]}), "calls"),
    ("visits.csv", "outputs", lambda _: "kept", "line 2, column outputs: 'kept': not one of fresh"),
    ("host_visits.csv", "times", lambda v: pack({"t": 1}), "whole numbers"),
    ("visits.csv", "stretch", lambda v: "{}", "damaged"),
    ("visits.csv", "stretch", lambda v: pack({}), "encoding None"),
    ("visits.csv", "flags", lambda v: "[1]", "list of strings"),
    ("visits.csv", "copies", lambda v: "9" * 40, "too large"),
    ("model_runs.csv", "repeats", lambda v: pack(unpack(v)[0]), "not a list of stretches"),
    ("model_runs.csv", "repeats", lambda _: pack([]), "a run without a single repeat"),
    ("model_runs.csv", "layers", lambda v: pack({**unpack(v), "x": 0.5}), "not whole numbers"),
    ("model_runs.csv", "layers", lambda v: pack({"x": -1}), "negative"),
    ("model_runs.csv", "layers", lambda v: v[:-8], "damaged"),
    ("model_runs.csv", "facts", lambda v: pack([1] * 99)[:-8], "damaged"),
    ("model_runs.csv", "facts", lambda _: pack([1]), "object"),
    ("model_runs.csv", "workload", lambda v: "f" * 64, "no such workload"),
    ("costs.csv", "time_s_median", lambda v: "__import__('os')", "could not convert"),
    ("learned.csv", "ratios", lambda v: v.replace("1.02", "0"), "time is 0; expected a number"),
    ("learned.csv", "ratios", lambda v: v.replace("false", "2"), "waits is 2; expected true or"),
    ("learned.csv", "ratios", lambda _: '{"graph":{"GPU-1":{"a":[1]}}}', "missing 3 required"),
    ("learned.csv", "ratios", lambda _: "[]", "not a JSON object"),
    ("profiles.csv", "counts", lambda _: '[["a",{"b":"1"}]]', "b is no number"),
    ("profiles.csv", "counts", lambda _: '[["a"]]', "not enough values"),
    ("profiles.csv", "definition", lambda _: '{"a":{"b":NaN}}', "b is no number"),
    ("profiles.csv", "definition", lambda _: "[]", "not a mapping of quantities"),
    ("profiles.csv", "configuration", lambda _: "0" * 64, "no such configuration"),
]


@pytest.mark.parametrize(("name", "column", "change", "said"), TAMPERED)
def test_a_tampered_row_is_refused_where_it_stands(
    folder: Path,
    tmp_path: Path,
    name: str,
    column: str,
    change: Callable[[str], str],
    said: str,
) -> None:
    def tamper(rows: list[dict[str, str]]) -> None:
        row = next((r for r in rows if r.get("kind") == "conv2d"), rows[0])
        row[column] = change(row[column])

    put_samples_into_rows(folder)
    edit(folder / name, tamper)
    with open_store(str(tmp_path / "other.sqlite")) as other:
        with pytest.raises(InputError) as caught:
            import_set(other, folder)
        assert not other.configurations() and not other.devices()
    assert f"{folder / name}, line " in str(caught.value)
    assert "column " in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


def broken_missing(folder: Path) -> None:
    (folder / "calls.csv").unlink()


def broken_binary(folder: Path) -> None:
    (folder / "visits.csv").write_bytes(b"\xff\xfe\x00" * 99)


def broken_header(folder: Path) -> None:
    text = (folder / "hosts.csv").read_text()
    (folder / "hosts.csv").write_text(text.replace("cores", "kernels", 1))


def broken_conflict(folder: Path) -> None:
    path = folder / "device.csv"
    path.write_text(path.read_text() + "<<<<<<< HEAD\n")


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (broken_missing, "calls.csv is missing"),
        (broken_binary, "visits.csv is not a CSV file"),
        (broken_header, "hosts.csv, line 1: columns"),
        (broken_conflict, "device.csv, line 3: 1 fields; expected 7"),
    ],
)
def test_a_broken_set_is_refused(
    folder: Path, store: Store, breaks: Callable[[Path], None], said: str
) -> None:
    breaks(folder)
    with pytest.raises(InputError, match=said):
        import_set(store, folder)


def test_a_folder_that_is_none(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="does not exist"):
        import_set(store, tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a folder"):
        import_set(store, tmp_path / "file")
    with pytest.raises(InputError, match=r"device.csv is missing"):
        import_set(store, tmp_path)


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
    visits = checkout / "db" / "nvidia-h200" / "visits.csv"
    edit(visits, lambda rows: rows.__delitem__(0))
    with open_store() as store:
        assert len(store.visits("GPU-1")) == 2
    with open_store(str(tmp_path / "named.sqlite")) as store:
        assert store.devices() == []
    visits.write_text("broken")
    with pytest.raises(InputError, match=r"visits.csv, line 1"):
        open_store()


def test_a_damaged_sample_of_a_set_beside_the_code_is_told_when_it_is_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`opdb import` reads every sample; the first command of a checkout leaves them for later."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    checkout = tmp_path / "checkout"
    (checkout / "db").mkdir(parents=True)
    folder.rename(checkout / "db" / "nvidia-h200")
    monkeypatch.setattr(database, "package_parent", lambda: checkout)

    def damage(rows: list[dict[str, str]]) -> None:
        rows[0]["stretch"] = rows[0]["stretch"][:-8]

    put_samples_into_rows(checkout / "db" / "nvidia-h200")
    edit(checkout / "db" / "nvidia-h200" / "visits.csv", damage)
    with open_store() as store:
        assert store.costs("GPU-1")
        with pytest.raises(DatabaseError, match="a row is damaged"):
            store.visits("GPU-1")
    with pytest.raises(InputError, match=r"visits.csv, line 2, column stretch: .*damaged"):
        proved(read_set(checkout / "db" / "nvidia-h200"))


def test_sixty_thousand_visits_come_in_quickly(store: Store, tmp_path: Path) -> None:
    fill(store)
    export_set(store, tmp_path / "set", device="nvidia-h200", costs=False)

    def multiply(rows: list[dict[str, str]]) -> None:
        rows[:] = [{**rows[0], "id": f"v{number}"} for number in range(60_000)]

    put_samples_into_rows(tmp_path / "set")
    edit(tmp_path / "set" / "visits.csv", multiply)
    with open_store(str(tmp_path / "other.sqlite")) as other:
        start = time.process_time()
        assert import_set(other, tmp_path / "set").added["visits"] == 60_000
        elapsed_s = time.process_time() - start
    print(f"{elapsed_s:.2f} s")
    assert elapsed_s < 20  # about 8 s of an idle processor


def test_a_pair_of_board_and_device_that_is_none(folder: Path, tmp_path: Path) -> None:
    with (folder / "device.csv").open("a") as stream:
        stream.write("other,Other,cuda,,,,\n")
    with (folder / "boards.csv").open("a") as stream:
        stream.write("CPU-1,other\n")
    edit(folder / "campaigns.csv", lambda rows: rows[0].update(device="other"))
    with open_store(str(tmp_path / "other.sqlite")) as other:
        said = r"campaigns.csv, line 2, column board: 'GPU-1': no such board of device 'other'"
        with pytest.raises(InputError, match=said):
            import_set(other, folder)
        assert other.devices() == []
