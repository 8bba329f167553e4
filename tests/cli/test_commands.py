from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.cli import main
from opdb.store import open_store
from tests import warm
from tests.cli.conftest import Opdb, snapshot
from tests.harvest import sample_models
from tests.paths import python_path
from tests.store import samples

ROOT = Path(__file__).parents[2]
SUMMARY = """\
model: resnet18  # a small one
weights: null
input_size: [3, 64, 64]
processed: false
batch_sizes: [1, 2]
variants: [{dtype: bfloat16, memory_format: channels_last, batch_sizes: [2]}]
"""


def test_harvest_of_a_summary_file(opdb: Opdb, tmp_path: Path) -> None:
    path = Path("net.yml")
    path.write_text(SUMMARY)
    ran = opdb("harvest", path, "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert [(w["model"], w["batch_size"], w["dtype"]) for w in found] == [
        ("resnet18", 1, "float32"),
        ("resnet18", 2, "float32"),
        ("resnet18", 2, "bfloat16"),
    ]
    for workload in found:
        assert workload["unsupported"] == {}
        assert workload["by_kind"]["conv2d"] == {"calls": 20, "configurations": 11}
        assert sum(kind["calls"] for kind in workload["by_kind"].values()) == workload["calls"]
    assert path.read_text() == SUMMARY.replace("false", "true")
    assert "harvest 3/3" in ran.err
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert len(store.workloads("resnet18")) == 3


@pytest.mark.parametrize(
    "arguments", [("harvest",), ("measure", "--device", "cpu"), ("build", "--device", "cpu")]
)
def test_what_a_model_prints_keeps_away_from_json(
    opdb: Opdb, short: None, arguments: tuple[str, ...]
) -> None:
    ran = opdb(*arguments, sample_models.path("prints"), "--json")
    json.loads(ran.out)
    assert "while it is built\n" in ran.err and "while it runs\n" in ran.err


def test_one_failing_model_does_not_stop_the_others(opdb: Opdb, tmp_path: Path) -> None:
    Path("bad.yml").write_text("model: resnet18\ninput_size: [3, 1]\n")
    Path("worse.yml").write_text("modle: resnet18\n")
    Path("good.yml").write_text(SUMMARY)
    ran = opdb("harvest", "bad.yml", "worse.yml", "resnet81", "good.yml", "--quiet")
    assert ran.status == 2
    assert ran.err.startswith("opdb: 3 models failed; what was finished is stored\n")
    for said in ("unknown key modle; did you mean 'model'", "'resnet18'"):
        assert said in ran.err
    assert "Traceback" not in ran.err
    assert "processed: true" in Path("good.yml").read_text()
    assert "processed" not in Path("bad.yml").read_text()
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert len(store.workloads("resnet18")) == 3


def test_status_of_a_filled_database(opdb: Opdb, database: Path) -> None:
    found = json.loads(opdb("show", "--json").out)
    assert found["database"]["location"] == str(database)
    assert found["database"]["size_bytes"] == database.stat().st_size
    [device] = found["devices"]
    assert device["device"] == "nvidia-h200"
    assert device["pending"] == {"add": 1}
    assert [(f["kind"], f["outcome"]) for f in device["failed"]] == [("relu", "out_of_memory")]
    [workload] = found["workloads"]
    assert workload["calls"] == 5
    assert workload["devices"] == {"nvidia-h200": {"measured_calls": 1, "model_runs": 1}}
    assert (device["profiles"], device["profiled"]) == (1, 1)
    ran = opdb("show", "--device", "nvidia-h200")
    assert ran.status == 0
    assert ": 1 board, 1 campaign, 2 visits, 1 configuration measured, 1 model run\n" in ran.out
    assert "1 profile by hardware counters, of 1 configuration: " in ran.out
    for said in ("pending: 1 configuration (add 1)", "200 GiB", "20.0 %", str(database)):
        assert said in ran.out


def test_export_and_import(opdb: Opdb, database: Path, tmp_path: Path) -> None:
    ran = opdb("export", "set", "--device", "nvidia-h200", "--json")
    assert ran.status == 0
    assert json.loads(ran.out)["rows"]["visits"] == 3
    other = tmp_path / "other.sqlite"
    ran = opdb("import", "set", "--db", other)
    assert ran.status == 0
    assert f"set imported into {other}" in ran.out
    with open_store(str(other)) as store:
        assert store.workloads() == [samples.workload()]
    ran = opdb("import", "set", "--db", f"sqlite:///{other}", "--json")
    assert json.loads(ran.out)["added"]["visits"] == 0
    assert json.loads(ran.out)["found"]["visits"] == 3
    assert opdb("export", "again").status == 0  # the only device needs no name


def test_messages_keep_away_from_json_and_quiet(opdb: Opdb) -> None:
    Path("net.yml").write_text(SUMMARY)
    ran = opdb("harvest", "net.yml", "--json", "--quiet")
    assert ran.err == ""
    json.loads(ran.out)


INTERRUPTED = """
import os, signal, sys
from importlib import import_module
from opdb.cli import main
room = import_module("opdb.harvest.passes")
real, count = room.harvest_in_both, 0
def harvest(request):
    global count
    count += 1
    if count == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return real(request)
room.harvest_in_both = harvest
sys.exit(main(["harvest", "net.yml", "--db", sys.argv[1]]))
"""


def test_ctrl_c_keeps_what_was_finished(opdb: Opdb, tmp_path: Path) -> None:
    Path("net.yml").write_text(SUMMARY)
    path = str(tmp_path / "opdb.sqlite")
    done = subprocess.run(
        warm.command("-c", INTERRUPTED, path),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    assert done.returncode == 130
    assert done.stderr == "opdb: interrupted; what was finished is stored\n"
    assert Path("net.yml").read_text() == SUMMARY
    with open_store(path) as store:
        assert len(store.workloads()) == 1


def test_what_nobody_expected_is_one_message(
    opdb: Opdb, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("of a fault")

    monkeypatch.setattr("opdb.store.open_store", fail)
    found = opdb("show", "--json")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("opdb: unforeseen KeyError: 'of a fault' (")
    assert "Traceback" not in found.err and len(found.err.splitlines()) == 1
    assert "Traceback" in opdb("show", "--debug").err


def test_a_closed_pipe_is_no_error(database: Path) -> None:
    program = "import sys; from opdb.cli import main; sys.exit(main(['show', '--json']))"
    writer = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep(0.3); {program}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert writer.stdout is not None and writer.stderr is not None
    writer.stdout.close()
    said = writer.stderr.read()
    assert writer.wait(timeout=60) == 141
    assert said == b""


BAD = [
    (["shw"], "unknown command 'shw'; did you mean 'show'?"),
    (["show", "--nonsense"], "No such option"),
    (["harvest"], "Missing argument"),
    (["harvest", "resnet81"], "unknown model 'resnet81'"),
    (["harvest", "resnet18", "--dtype", "floot16"], "unknown --dtype 'floot16'; did you mean"),
    (["harvest", "resnet18", "--memory-format", "nhwc"], "unknown --memory-format 'nhwc'"),
    (["harvest", "resnet18", "--phase", "sleep"], "unknown --phase 'sleep'"),
    (["harvest", "resnet18", "--batch-size", "0"], "--batch-size"),
    (["harvest", "resnet18", "--batch-size", "many"], "--batch-size"),
    (["harvest", "resnet18", "--input-size", "3x-2x4"], "--input-size '3x-2x4'"),
    (["trace", "resnet18", "-b", "1", "--batch-size=32"], "--batch-size is given 2 times; give"),
    (["harvest", "empty.yml"], "empty.yml is empty"),
    (["harvest", "missing.yml"], "missing.yml: no such file"),
    (["harvest", "missing/folder"], "unknown model 'missing/folder'"),
    (["harvest", "noise.yml"], "noise.yml: 10000000 bytes"),
    (["harvest", "syntax.yml"], "syntax.yml, line 2"),
    (["harvest", "source.yml"], "did you mean 'torchvision'?"),
    (["harvest", "folder"], "no summary file"),
    (["harvest", "folder.yml"], "no summary file"),
    (["harvest", "resnet18", "--db", "text.sqlite"], "text.sqlite: it is not an SQLite file"),
    (["show", "--db", "folder"], "database folder: it is a folder"),
    (["show", "--db", "mysql://x"], "'mysql' is not supported"),
    (["show", "--db", "none.sqlite"], "database none.sqlite: there is none"),
    (["show", "--device", "nvidia-h20"], "did you mean 'nvidia-h200'?"),
    (["export"], "Missing argument"),
    (["export", "text.sqlite"], "text.sqlite is a file"),
    (["export", "set", "--device", "h100"], "holds nothing of device 'nvidia-h100-80gb-hbm3'"),
    (["export", "/proc/opdb"], "cannot write the set into /proc/opdb"),
    (["import", "nowhere"], "nowhere does not exist"),
    (["import", "folder", "--db", "new.sqlite"], "device.csv is missing"),
    (["import", "text.sqlite"], "it is not an SQLite file"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_message_and_changes_nothing(
    opdb: Opdb, database: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    Path("empty.yml").touch()
    Path("noise.yml").write_bytes(os.urandom(10_000_000) if "noise.yml" in arguments else b"")
    Path("syntax.yml").write_text("model: resnet18\n  weights: {\n")
    Path("source.yml").write_text("model: resnet18\nsource: torchvison\n")
    Path("text.sqlite").write_text("nothing of ours")
    Path("folder").mkdir()
    Path("folder.yml").mkdir()
    before = snapshot(tmp_path)
    ran = opdb(*arguments)
    assert ran.status == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    message = ran.err.strip().splitlines()
    assert len(message) == 1 or message[0].startswith("Usage: ")
    assert snapshot(tmp_path) == before


def test_an_export_of_nothing_says_what_to_do(opdb: Opdb) -> None:
    open_store("nothing.sqlite").close()
    ran = opdb("export", "set", "--db", "nothing.sqlite")
    assert ran.status == 2 and "nothing.sqlite holds no measurements; run opdb bench" in ran.err
    assert not Path("set").exists()


def test_debug_shows_where_it_happened(opdb: Opdb, database: Path) -> None:
    ran = opdb("show", "--device", "nvidia-h20", "--debug")
    assert ran.status == 2
    assert "Traceback" in ran.err


def test_an_operating_system_error_is_one_message(
    opdb: Opdb, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("opdb.store.open_store", fails)
    ran = opdb("show")
    assert (ran.status, ran.err) == (2, "opdb: [Errno 28] No space left on device\n")


def test_main_reads_the_process_arguments(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["opdb", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("opdb ")
