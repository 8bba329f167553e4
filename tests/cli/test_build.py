"""`opdb build` on the processor, for real, and its plan on the published set."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from opdb.records import Visit
from opdb.store import Store, open_store
from tests.cli.conftest import Opdb, Ran, snapshot

ROOT = Path(__file__).parents[2]
CPU = ("--device", "cpu")
ANY = ("--target", 0.01)
"""A target that any coverage and attribution of a processor meets: what it is busy with varies."""


@pytest.fixture
def folder(opdb: Opdb) -> Path:
    path = Path("models")
    path.mkdir()
    (path / "mlp.yml").write_text("model: mlp\ninput_size: [16]\nbatch_sizes: [1, 4]\n")
    return path


def stored(path: Path) -> tuple[int, int]:
    with open_store(str(path)) as store:
        visits = sum(len(store.visits(board.uuid)) for board in store.boards())
        return visits, len(store.model_runs())


def document(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran.out)
    return found


# The loop


def is_done(each: dict[str, Any]) -> bool:
    """Whether a workload is covered and was run; how right a busy processor is varies."""
    return bool(each["run"] == "ok" and each["coverage"]["time"] > 0.01)


@pytest.mark.usefixtures("short")
def test_the_loop_goes_to_the_target_then_has_nothing_to_do_and_goes_on_to_a_higher_one(
    opdb: Opdb, folder: Path, tmp_path: Path
) -> None:
    ran = opdb("build", folder, *CPU, *ANY)
    for said in ("configurations benched in", "2 models run", "time p/m", "mlp"):
        assert said in ran.out + ran.err
    for said in ("harvest 2/2", "to the target", "measure 2/2 mlp batch 4"):
        assert said in ran.err
    assert "processed: true" in (folder / "mlp.yml").read_text()
    before, files = stored(tmp_path / "opdb.sqlite"), snapshot(folder)

    ran = opdb("build", folder, *CPU, *ANY, "--json", "--quiet")
    found = document(ran)
    assert (found["benched"], found["visits"], found["runs"]) == (0, 0, 0)
    assert found["stopped"] is None
    assert stored(tmp_path / "opdb.sqlite") == before and snapshot(folder) == files
    assert [(w["model"], w["batch_size"]) for w in found["workloads"]] == [("mlp", 1), ("mlp", 4)]
    for each in found["workloads"]:
        assert is_done(each) and each["coverage"]["energy"] is None
        assert each["attribution_time"] > 0 and each["attribution_energy"] is None
    assert ran.status == 1 - all(each["target_met"] for each in found["workloads"])

    ran = opdb("build", folder, *CPU, "--target", 1, "--json", "--quiet")
    assert ran.status == 1 and "attribution of time is" in ran.err, "none is exactly 1"
    found = document(ran)
    assert found["runs"] == 0 and found["pending"] == 0
    for each in found["workloads"]:
        assert each["coverage"]["time"] == 1
        assert (each["left"], each["target_met"]) == (0, False)


@pytest.mark.usefixtures("short")
def test_pins_of_the_list_are_kept_to(opdb: Opdb, folder: Path, tmp_path: Path) -> None:
    listed = folder / "significant.yml"
    listed.write_text("target: 0.01  # enough\nalways: [relu]\nnever: [linear]\n")
    ran = opdb("build", folder, *CPU, "--json", "--quiet")
    found = document(ran)
    assert found["target"] == 0.01
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        [board] = store.boards()
        visited = {v.configuration for v in store.visits(board.uuid)}
        kinds = {c.kind for c in store.configurations() if c.key in visited}
        assert kinds == {"relu"}


@pytest.mark.usefixtures("short")
def test_ctrl_c_is_one_line_and_keeps_what_is_finished(
    opdb: Opdb, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = Store.save_visit, list[Visit]()

    def saving(store: Store, visit: Visit, *more: Any) -> None:
        save(store, visit, *more)
        saved.append(visit)
        if len(saved) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Store, "save_visit", saving)
    ran = opdb("build", folder, *CPU)
    assert (ran.status, ran.out) == (130, "") and "Traceback" not in ran.err
    assert ran.err.splitlines()[-1] == "opdb: interrupted; what was finished is stored"
    assert stored(tmp_path / "opdb.sqlite")[0] == 2


# The plan


def test_a_plan_measures_nothing_and_touches_no_database(
    opdb: Opdb, h200: Path, folder: Path
) -> None:
    shutil.copy(ROOT / "measurements" / "alexnet.yml", folder)
    before = h200.read_bytes()
    ran = opdb("build", folder, "--plan", "--json")
    assert ran.status == 0, ran.err
    assert h200.read_bytes() == before
    assert "processed: true" not in (folder / "mlp.yml").read_text()
    found = document(ran)
    assert (found["device"], found["models"], len(found["workloads"])) == ("nvidia-h200", 2, 5)
    assert found["configurations"] == found["measured"] + found["pending"]
    covered = {w["model"]: w["coverage_then"] for w in found["workloads"]}
    assert covered["alexnet"]["time"] == 1 and covered["mlp"]["time"] >= 0.95
    steps = found["steps"]
    until = [step["until_gpu_seconds"] for step in steps]
    assert until == sorted(until) and until[-1] == pytest.approx(found["gpu_seconds"])
    assert {"linear"} <= {step["kind"] for step in steps} and all(s["what"] for s in steps)


# What cannot be used
