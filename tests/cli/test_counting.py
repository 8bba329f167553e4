"""`opdb roofline` with hardware counters, from a stand-in for Nsight Compute on PATH."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.session import Platform, detect
from opdb.kinds import KINDS
from opdb.kinds.registry import DEFAULT_SETTINGS, relevant_setting
from opdb.records import Board, Configuration, KernelCounts, Profile, Workload
from opdb.store import open_store
from opdb.studies.roofline.counters import launching
from tests import published
from tests.cli.conftest import Opdb
from tests.counters import stand_in
from tests.paths import python_path

NCU = ("roofline", "mlp", "--ncu")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A GPU that is none: what runs on it runs on the CPU."""
    cpu = detect("cpu")
    device = replace(cpu.device, slug="made-up-gpu", name="made up", type="cuda")
    platform = replace(cpu, device=device, board=Board("GPU-0", device.slug))
    monkeypatch.setattr("opdb.studies.roofline._gpu", lambda: platform)
    return platform


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    kept = [p for p in os.environ["PATH"].split(":") if not (Path(p) / "ncu").exists()]
    monkeypatch.setenv("PATH", ":".join([str(folder), *kept]))
    monkeypatch.setenv("PYTHONPATH", python_path())
    return folder


@pytest.fixture
def harvested(opdb: Opdb, gpu: Platform, programs: Path) -> Path:
    stand_in.install(programs)
    assert opdb("harvest", "mlp").status == 0
    return programs


def test_ncu_counts_each_call_and_stores_what_it_saw(
    opdb: Opdb, harvested: Path, tmp_path: Path
) -> None:
    ran = opdb(*NCU)
    assert ran.status == 0, ran.err
    assert "as hardware counters saw it (made-up-gpu)" in ran.out
    assert "note: no roofline: nothing was measured on 'made-up-gpu'" in ran.out
    assert "dram__bytes.sum" in ran.out.splitlines()[-2]
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        profiles = store.profiles("made-up-gpu")
        launching = {c.key for w in store.workloads("mlp") for c in w.occurrences()}
    assert {p.configuration for p in profiles} == launching
    first = profiles[0]
    assert first.kernels[0].name == "first(float *, int)"
    assert first.environment["ncu"] == stand_in.VERSION and first.environment["torch"]
    assert first.definition["memory_bytes"] == {"dram__bytes.sum": 1.0}
    assert first.definition["float16_flops"] == {"sm__ops_path_tensor_src_fp16.sum": 1.0}
    assert "float64_flops" not in first.definition  # nothing here knows its metric


def test_json_holds_counted_beside_seen(opdb: Opdb, harvested: Path) -> None:
    found = opdb.json(*NCU)["counters"]
    assert found["device"] == "made-up-gpu" and found["missing"] == []
    rows = found["operators"]
    assert sum(row["bytes"]["memory"] for row in rows) == sum(
        1000 * n for n in range(1, 2 * len(rows) + 1)
    )
    for row in rows:
        assert row["bytes_ratio"] == pytest.approx(row["bytes"]["memory"] / row["counted_bytes"])
        assert "float64" not in row["flops"] and row["flops"]["tf32"] > 0
        assert row["time_s"] == pytest.approx(row["bytes"]["memory"] * 1e-9)
        assert row["kernels"] == ["first", "void second<float>"]


def test_the_report_is_kept_and_its_csv_taken_in_elsewhere(
    opdb: Opdb, harvested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = opdb(*NCU, "--ncu-report", "50%", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert Path("50%.ncu-rep").is_file()
    # the stand-in's reports are what it prints of them
    Path("a.csv").write_text("==PROF== made up\n" + Path("50%.ncu-rep").read_text())
    device = shutil.copy(tmp_path / "opdb.sqlite", tmp_path / "other.sqlite")
    with open_store(str(device)) as store, store.writing() as connection:
        connection.exec_driver_sql("DELETE FROM profile")
    monkeypatch.setenv("OPDB_DB", str(device))
    monkeypatch.setenv("PATH", "")  # nothing of Nsight Compute is needed
    taken = opdb("roofline", "mlp", "--ncu-csv", "a.csv", "--json")
    assert (taken.status, taken.err) == (0, "")
    assert json.loads(taken.out) == json.loads(ran.out)
    again = opdb("roofline", "mlp", "--ncu-csv", "a.csv")
    assert "profiles taken in: 0 of GPU-0" in again.err


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("no permission", 3, "ERR_NVGPUCTRPERM): write options nvidia NVreg_Restrict"),
        ("no kernel", 3, "No kernels were profiled."),
    ],
)
def test_what_ncu_refuses_is_one_message(
    opdb: Opdb, harvested: Path, fault: str, status: int, said: str
) -> None:
    stand_in.install(harvested, fault=fault)
    ran = opdb(*NCU, "--quiet")
    assert (ran.status, ran.out) == (status, "")
    assert said in ran.err and len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ('{"memory": "dram__bytes.sum"}', "unknown quantity 'memory'; did you mean 'memory_bytes'"),
        ('{"memory_bytes": "dram__byte.sum"}', "metric 'dram__byte.sum'; did you mean 'dram__byt"),
        ('{"l2_bytes": 3}', "l2_bytes: found '3'; give a metric such as 'dram__bytes.sum'"),
        ('{"l2_bytes": ["a__b.sum,--kill"]}', "l2_bytes: found"),
    ],
)
def test_a_metrics_file_with_mistakes(opdb: Opdb, harvested: Path, text: str, said: str) -> None:
    Path("own.json").write_text(text)
    ran = opdb(*NCU, "--ncu-metrics", "own.json")
    assert ran.status == 2 and said in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ncu", "--ncu-csv", "a.csv"), "give one"),
        (("--ncu-metrics", "a.json"), "give --ncu or --ncu-csv too"),
        (("--ncu", "--device", "nvidia-h200"), "these counters are those of made-up-gpu"),
        (("--ncu-csv", "text.csv"), "text.csv: no kernel in it"),
    ],
)
def test_bad_input_is_one_message(
    opdb: Opdb, harvested: Path, arguments: tuple[str, ...], said: str
) -> None:
    Path("text.csv").write_text("a,b\n1,2\n")
    ran = opdb("roofline", "mlp", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err and len(ran.err.splitlines()) == 1


def test_where_times_are_known_the_roofline_stands_on_what_was_seen(
    opdb: Opdb, tmp_path: Path
) -> None:
    path = published.copy_to(tmp_path / "opdb.sqlite")
    with open_store(str(path)) as store:
        # in float32, whose products these counters have metrics of
        workload = next(w for w in store.workloads("resnet18") if w.dtype == "float32")
        made_up = doubled([workload], store.boards("nvidia-h200")[0])
        store.save_profiles(made_up[1:])
    said = ("--batch-size", workload.batch_size, "--dtype", workload.dtype)
    arguments = ("roofline", "resnet18", *said, "--mode", "graph", "--memory-format")
    counted = opdb.json(*arguments, workload.memory_format)
    seen = opdb.json(*arguments, workload.memory_format, "--counters")
    assert counted["counters"] is None and not counted["models"][0]["operators"][0]["metered"]
    assert seen["counters"]["median_difference_bytes"] == pytest.approx(1)
    assert len(seen["counters"]["missing"]) == 1
    of_counted = {each["configuration"]: each for each in counted["models"][0]["operators"]}
    for each in seen["models"][0]["operators"]:
        before = of_counted[each["configuration"]]
        assert each["time_s"] == before["time_s"]
        assert each["bytes"] == before["bytes"] * (2 if each["metered"] else 1)
        if each["metered"] and each["kind"] == "linear":
            assert (before["unit"], each["unit"]) == ("float32", "tf32"), "the one that did most"
    shown = opdb(*arguments, workload.memory_format, "--counters")
    assert "of 1 more configuration\n" in shown.out
    total = len(made_up)
    assert f"bytes of {total - 1} of {total} configurations are those that hardware" in shown.out


DEFINITION = {
    "memory_bytes": {"dram__bytes.sum": 1.0},
    "tf32_flops": {"sm__ops.sum": 1.0},
    "float32_flops": {"sm__inst.sum": 2.0},
}


def made_up(
    configuration: Configuration, board: Board, memory_bytes: float | None, **values: float
) -> Profile:
    return Profile(
        id=f"{configuration.key}-{board.uuid}-{memory_bytes}",
        board=board,
        configuration=configuration.key,
        setting=relevant_setting(configuration.kind, DEFAULT_SETTINGS),
        measured_at="2026-11-21T13:00:00.000+00:00",
        environment={},
        definition=DEFINITION,
        kernels=(
            KernelCounts("one", {"dram__bytes.sum": memory_bytes, "sm__ops.sum": 0.0, **values}),
            KernelCounts("two(int)", dict.fromkeys(values, 0.0) | {"dram__bytes.sum": 0.0}),
        ),
    )


def doubled(workloads: Sequence[Workload], board: Board) -> list[Profile]:
    """Return a profile of each call that works, of twice the bytes counted."""
    found = []
    for each in launching(workloads).values():
        flops = {"sm__ops.sum": KINDS[each.kind].flops(each), "sm__inst.sum": 0.0}
        found.append(made_up(each, board, 2.0 * KINDS[each.kind].bytes_moved(each), **flops))
    return found
