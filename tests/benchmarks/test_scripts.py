"""Scripts that measure published sets, run as by hand on this machine's CPU."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.models import checked
from opdb.store import Store, open_store
from opdb.store.exchange import import_set
from opdb.summary import load_summary
from tests import warm
from tests.paths import ROOT, python_path
from tests.store import samples

pytestmark = pytest.mark.slow

BRIEF = """\
#!/bin/sh
[ "$2" != opdb ] || echo "$3" >>"$(dirname "$0")/commands"
case "$2 $3" in
"opdb modes" | "opdb bench" | "opdb measure")
    shift 2 && exec {warm} -m tests.benchmarks.briefly "$@" ;;
"opdb "*) exec {warm} "$@" ;;
*) exec "{python}" "$@"
esac
"""


@pytest.fixture
def brief(tmp_path: Path) -> Path:
    """A folder with a `python3` whose opdb measures briefly and is listed in `commands`."""
    found = tmp_path / "bin" / "python3"
    found.parent.mkdir()
    found.write_text(BRIEF.format(warm=shlex.join(warm.command()), python=sys.executable))
    found.chmod(0o755)
    return found.parent


def ran(
    name: str, folder: Path, *arguments: str, first: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script, its database `a.sqlite` in the folder; programs in `first` go before others."""
    folders = [first, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(str(each) for each in folders if each is not None)
    told = {"PATH": path, "OPDB_DB": str(folder / "a.sqlite"), "PYTHONPATH": python_path()}
    return subprocess.run(
        [str(ROOT / "benchmarks" / name), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **told},
        check=False,
    )


@pytest.mark.parametrize(
    ("script", "said", "arguments"),
    [
        ("published_set.sh", "How a published set is measured", ("soon", "grid", "grid.yml")),
        ("published_set.sh", "generation", ("60",)),
        ("published_set.sh", "generation", ("60", "modles", "x.yml")),
        ("published_modes.sh", "How the published runs in all modes are measured", ()),
        ("published_modes.sh", "How the published runs in all modes are measured", ("soon",)),
        ("compiled_models.sh", "How right predictions of compiled models are", ()),
        ("compiled_models.sh", "How right predictions of compiled models are", ("soon",)),
    ],
)
def test_how_it_is_called(
    script: str, said: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = ran(script, tmp_path, str(tmp_path / "a.tgz"), "cpu", *arguments)
    assert done.returncode == 2 and said in done.stderr
    assert ran(script, tmp_path).returncode == 2


# published_set.sh


def measured(folder: Path, brief: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran("published_set.sh", folder, str(folder / "a.tgz"), "cpu", *arguments, first=brief)


def unpacked(folder: Path) -> Store:
    """Return a database of what the script packed, and of nothing else."""
    (folder / "set").mkdir()
    subprocess.run(["tar", "-xzf", folder / "a.tgz", "-C", folder / "set"], check=True)
    store = open_store(str(folder / "other.sqlite"))
    import_set(store, folder / "set")
    return store


def test_a_grid_is_measured_and_packed(tmp_path: Path, brief: Path) -> None:
    (tmp_path / "grid.yml").write_text(
        "operator: nn.Linear\narguments: {in_features: [64, 128], out_features: 64}\n"
        "inputs: {input: [8, in_features]}\n"
    )
    done = measured(tmp_path, brief, "60", "grid", str(tmp_path / "grid.yml"))
    assert done.returncode == 0, done.stderr
    with unpacked(tmp_path) as store:
        assert {c.kind for c in store.configurations()} >= {"linear"}
        [board] = store.boards()
        assert len(store.costs(board.uuid)) >= 2


def test_a_training_step_is_measured_and_packed(tmp_path: Path, brief: Path) -> None:
    model = "model: mlp\nsource: builtin\nphase: training\nbatch_sizes: [4]\n"
    (tmp_path / "mlp.yml").write_text(model)
    done = measured(tmp_path, brief, "6", "training", str(tmp_path / "mlp.yml"))
    assert done.returncode == 0, done.stderr
    with unpacked(tmp_path) as store:
        [workload] = store.workloads()
        assert workload.phase == "training"
        [run] = store.model_runs(workload.key)
        assert (run.mode, run.outcome, run.facts["iters"]) == ("eager", "ok", 20)


def test_what_was_finished_before_a_failure_is_packed(tmp_path: Path, brief: Path) -> None:
    """The operators of a model are there although it cannot be run as a CUDA graph here."""
    (tmp_path / "mlp.yml").write_text("model: mlp\nsource: builtin\nbatch_sizes: [4]\n")
    done = measured(tmp_path, brief, "60", "models", str(tmp_path / "mlp.yml"))
    assert done.returncode == 3 and "mode 'graph' needs a CUDA device" in done.stderr
    with unpacked(tmp_path) as store:
        [workload] = store.workloads()
        assert workload.name == "mlp"
        assert {c.kind for c in store.configurations()} >= {"linear", "relu"}


# published_modes.sh


@pytest.mark.parametrize("stored", [False, True], ids=["no database", "a database"])
def test_where_nothing_can_be_measured_it_stops(tmp_path: Path, stored: bool) -> None:
    packed = tmp_path / "a.tgz"
    if stored:
        with open_store(str(tmp_path / "a.sqlite")) as store:
            workload = samples.workload("net")
            store.save_workload(workload)
            store.save_campaign(samples.campaign())
            store.save_model_run(samples.model_run(workload, "run-1"))
    done = ran("published_modes.sh", tmp_path, str(packed), "cpu", "60", "mlp", "lstm")
    assert done.returncode == 3
    assert done.stderr.count("mode 'graph' needs a CUDA device") == 1
    assert packed.is_file() == stored


# compiled_models.sh


def test_predictions_are_held_against_runs_and_packed(tmp_path: Path, brief: Path) -> None:
    packed, file = tmp_path / "a.tgz", tmp_path / "mlp.yml"
    file.write_text("model: mlp\ninput_size: [16]\ndtype: bfloat16\nbatch_sizes: [2]\n")
    done = ran("compiled_models.sh", tmp_path, str(packed), "cpu", "900", str(file), first=brief)
    assert done.returncode == 0, done.stderr
    commands = ["harvest", "bench", "modes", "validate", "validate", "export"]
    assert (brief / "commands").read_text().split() == commands
    subprocess.run(["tar", "-xzf", packed, "-C", tmp_path], check=True)
    said = (tmp_path / "validate.txt").read_text()
    [row] = [line for line in said.splitlines() if line.startswith("mlp")]
    assert "batch 2 bfloat16" in row and "compile" in row
    assert "median error" in said and (tmp_path / "set" / "visits.csv").is_file()


@pytest.mark.parametrize(
    ("seconds", "said", "harvested"),
    [("900", "model 'opdb.nowhere:model'", True), ("1", "the time is up before opdb", False)],
    ids=["no model", "no time"],
)
def test_what_cannot_be_measured_is_told(
    tmp_path: Path, brief: Path, seconds: str, said: str, harvested: bool
) -> None:
    arguments = (str(tmp_path / "a.tgz"), "cpu", seconds, "opdb.nowhere:model")
    done = ran("compiled_models.sh", tmp_path, *arguments, first=brief)
    assert said in done.stderr
    commands = (brief / "commands").read_text().split()
    assert ("harvest" in commands) == harvested and "bench" not in commands


# generation_ladder.py


def test_each_rung_is_a_summary_file_that_opdb_takes(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "generation_ladder.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    files = sorted(tmp_path.glob("*.yml"))
    requests = [checked(each) for path in files for each in load_summary(path).requests]
    assert len(files) > 40
    assert {each.phase for each in requests} == {"prefill", "decode", "generate"}
    assert {each.cache for each in requests} == {None, "dynamic"}
    assert {each.name for each in requests if each.quantize} == {"llama-3.1-8b"}
    assert sum(each.phase == "generate" for each in requests) >= 6
    assert all((each.filled + 1) * (each.batch_size or 1) <= 2**19 for each in requests)
    steps = [each for each in requests if each.phase == "decode"]
    assert [each.filled for each in steps[:1]] == [511]  # a rung is whole before the next begins
    assert {each.batch_size for each in steps[:4]} == {1, 8, 64, 256}


def test_each_rung_is_whole_before_the_next_begins(tmp_path: Path) -> None:
    """What the script asks of opdb: steps need a GPU, so that opdb itself is not run here."""
    (tmp_path / "0.yml").write_text("model: llama-3.1-8b\nphase: decode\ncontext: 4\n")
    (tmp_path / "1.yml").write_text("model: llama-3.1-8b\nphase: generate\n")
    stub, asked = tmp_path / "bin" / "python3", tmp_path / "asked"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho "$3 $*" >>{asked}\n[ "$3" != export ] || mkdir -p "$4"\n')
    stub.chmod(0o755)
    files = [str(tmp_path / name) for name in ("0.yml", "1.yml")]
    given = (str(tmp_path / "a.tgz"), "cuda:0", "60", "generation", *files)
    done = ran("published_set.sh", tmp_path, *given, first=stub.parent)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in asked.read_text().splitlines()]
    assert [line[0] for line in lines] == ["harvest", "bench", "export", "measure", "export"] * 2
    modes = [line[line.index("--mode") + 1] for line in lines if line[0] == "measure"]
    assert modes == ["graph", "eager"]
