from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opdb.harvest import passes
from opdb.records import Harvest
from opdb.spec import ModelSpec
from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb
from tests.harvest import sample_models
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
    assert "harvest 3/3" in ran.err and opdb("harvest", path, "--json", "--quiet").err == ""
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
    found = opdb.json("show")
    assert found["database"]["location"] == str(database)
    assert found["database"]["size_bytes"] == database.stat().st_size
    [device] = found["devices"]
    assert device["device"] == "nvidia-h200"
    assert device["pending"] == {"add": 1}
    assert [(f["kind"], f["outcome"]) for f in device["failed"]] == [("relu", "out_of_memory")]
    counts = ("campaigns", "visits", "measured", "model_runs")
    assert [device[each] for each in counts] == [1, 2, 1, 1] and found["workloads"] == 1
    out = opdb("show", "--device", "nvidia-h200").out
    assert str(database) in out and "200 GiB" in out


def test_export_and_import(opdb: Opdb, database: Path, tmp_path: Path) -> None:
    assert opdb.json("export", "set", "--device", "nvidia-h200")["rows"]["visits"] == 3
    other = tmp_path / "other.sqlite"
    ran = opdb("import", "set", "--db", other)
    assert ran.status == 0
    assert f"1 imported into {other}" in ran.out
    with open_store(str(other)) as store:
        assert store.workloads() == [samples.workload()]
    [again] = opdb.json("import", "set", "--db", f"sqlite:///{other}")["imports"]
    assert again["added"]["visits"] == 0
    assert opdb("export", "again").status == 0  # the only device needs no name
    assert opdb.json("export", "tables", "--csv")["rows"]["visits"] == 3
    assert Path("tables", "visits.csv").is_file() and not Path("tables", "manifest.json").exists()


def test_ctrl_c_keeps_what_was_finished(
    opdb: Opdb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, made = passes.harvest_in_both, list[ModelSpec]()

    def harvest(request: ModelSpec) -> Harvest:
        made.append(request)
        if len(made) == 2:
            signal.raise_signal(signal.SIGINT)
        return right(request)

    monkeypatch.setattr(passes, "harvest_in_both", harvest)
    Path("net.yml").write_text(SUMMARY)
    ran = opdb("harvest", "net.yml", "--quiet")
    assert (ran.status, ran.err) == (130, "opdb: interrupted; what was finished is stored\n")
    assert Path("net.yml").read_text() == SUMMARY
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert len(store.workloads()) == 1


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("of a fault"), "unforeseen KeyError: 'of a fault' ("),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device\n"),
    ],
)
def test_what_nobody_expected_is_one_message(
    opdb: Opdb, database: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("opdb.store.open_store", fail)
    found = opdb("show", "--json")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith(f"opdb: {said}")
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
    assert writer.wait(timeout=60) == 1
    assert said == b""


pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harvest of the built-in `lstm` fail as nobody foresaw."""
    from opdb.harvest import passes

    for name in ("harvest", "harvest_in_both"):
        right = getattr(passes, name)

        def called(request: Any, *args: Any, right: Callable[..., Any] = right, **more: Any) -> Any:
            if request.name == "lstm":
                raise KeyError("of a fault")
            return right(request, *args, **more)

        monkeypatch.setattr(passes, name, called)


@pytest.mark.parametrize(
    "command",
    [
        "harvest",
        "complexity",
        "roofline -b 128",
        "measure --phase training --backend cpu --iters 1 --repeat 1",
    ],
)
def test_the_answers_of_the_others_are_not_lost(
    opdb: Opdb, faulty: None, tmp_path: Path, command: str
) -> None:
    predicts = command.endswith("-b 128")
    if predicts:
        published.copy_to(tmp_path / "opdb.sqlite")
    good = "resnet50" if predicts else "mlp"
    name, *options = command.split()
    ran = opdb(name, "lstm", good, *options, "--json", "--quiet")
    assert ran.status == 2
    found = json.loads(ran.out)
    rows = found if isinstance(found, list) else found.get("rows") or found["models"]
    assert [each["model"] for each in rows] == [good]
    error = ran.err.splitlines()[-1]
    assert "lstm" in error and "unforeseen KeyError: 'of a fault' (" in error
    assert "Traceback" not in ran.err
