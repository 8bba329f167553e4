"""What cannot be done is one message and exit status 2 (3: not on this machine); nothing changes.

A line each: the command, a bar, and what its message says. The database is the published one.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from pathlib import Path

import pytest
import torch

from opdb.cli import main
from opdb.store import open_store
from tests import published
from tests.store import samples

NAMES = """
shw                                     | No such command 'shw'
show --nonsense                         | No such option
harvest                                 | Missing argument
predict                                 | Missing argument 'MODEL'
harvest ''                              | the name of a model is empty
harvest resnet81                        | unknown model 'resnet81'
predict nobody/nothing                  | nothing is downloaded from a hub
predict -b 1 2                          | no model is named
show deadbeef                           | no configuration has a key that begins with 'deadbeef'
compare                                 | Missing argument 'MODEL
fx models/mine.py:build                 | there is no file models/mine.py
fx tests.harvest.test_graphs:failing    | fails under dynamo: ValueError: half way
modes --stored alexnt                   | did you mean 'alexnet'? (of those measured on nvid
bench conv3 --device cpu                | unknown kind 'conv3'; did you mean 'conv3d'
sweep --device cpu                      | give models
sweep resnet51 --device cpu             | did you mean 'resnet50'
sweep tests.sweep.models:words --device cpu     | takes no batch of images
generate bert --prompt 4 --tokens 4     | no causal decoder
generate resnet18 --prompt 4 --tokens 4 | no causal decoder
generate llama-3.1-8b llama-3.2-1b --prompt 4 --tokens 4    | are of one model, not of llama-3.1-8b,
build 'none*' --device cpu              | no model's name matches 'none*'
train unknown.yml                       | unknown model 'resnet81'; did you mean
train mlp.yml --only mlp-b2             | unknown label 'mlp-b2'; valid: mlp-b1-fp32
"""

WORDS = """
harvest mlp --dtype floot16             | unknown --dtype 'floot16'; did you mean
harvest mlp --memory-format nhwc        | unknown --memory-format 'nhwc'
harvest mlp --phase sleep               | unknown --phase 'sleep'
harvest mlp --device cpu                | --mode compile
harvest mlp --mode compile --device gpu | 'cpu'
harvest mlp --autocast bfloat61         | unknown --autocast 'bfloat61'; did you mean 'bfloat16'
predict resnet50 --mode grpah           | unknown --mode 'grpah'; did you mean 'graph'
predict resnet50 --mode trace           | mode 'trace' cannot be predicted here; use eager, graph
predict resnet50 --mode compile         | -b 1 --dtype float32 --mode compile
predict resnet50 --top 3                | --top 3 is about layers: add --layers
predict resnet18 resnet50 --layers      | --layers is of one prediction, not of 2
predict resnet50 --algorithm winogard   | 'winograd'? (all of them: direct, gemm
predict resnet50 --algorithm all        | --algorithm all: a prediction is under one algorithm
predict resnet50 --algorithm gemm --mode compile    | have no host times
predict resnet50 --algorithm gemm --phase training  | in forward passes alone
compare resnet50                        | both sides are the same
generate tests.models.decoders:llama --prompt 4 --tokens 4 --cache paged  | unknown --cache 'paged'
show gelu --sort tme                    | unknown --sort 'tme'; did you mean 'time'?
show gelu -b 3                          | 'gelu' is no model
show measured resnet50                  | a filter is for models
validate --duplicates --kernels         | give one at a time
validate --mode compile --kernels       | --mode is about the table of predictions
measure mlp --iters 3 --device cpu      | --iters is for training runs: add --phase training
measure mlp --phase training --backend cpu --device cpu     | give --backend cpu or --device cpu
measure mlp --phase training --backend cpuu     | unknown --backend 'cpuu'; did you mean 'cpu'?
measure mlp --phase training --backend cpu --precision fp64 | unknown --precision 'fp64'
measure mlp --phase training --backend cpu --workers 2      | for images: give a folder with --imag
measure mlp --phase training --backend cpu --images . --workers 0 --prefetch-factor 2 | needs worker
measure mlp --phase training --backend cpu --images nowhere | nowhere: no such folder
measure mlp --phase training --backend cpu --mode graph --label x   | training runs in mode eager
bench --dry-run                         | give --grid FILE
bench -b 3 --device cpu                 | add --model NAME
bench --model mlp --optimizer sgd --device cpu      | add --phase training
bench --algorithm fastest               | implicit precomp gemm
bench relu --algorithm fft              | opdb bench conv2d, not relu
sweep tests.sweep.models:small --mode compile --device cpu          | unknown --mode of a sweep
train mlp.yml --plan --status           | give --plan or --status, not both
train mlp.yml --again                   | --again is for single runs
train mlp.yml --device cpu              | --device is for --status
"""

NUMBERS = """
harvest mlp -b 1 --batch-size 0         | --batch-sizes '0': give whole numbers of 1 or more, with
modes mlp -b 99999999999 --device cpu   | of 1 or more, with 10 digits at most
modes mlp --input-size 99999999999 --device cpu     | with 10 digits at most, as in
generate gpt2 --prompt 4 --tokens 4 -b 0    | give whole numbers of 1 or more
harvest mlp --input-size 3x-2x4         | --input-size '3x-2x4'
predict resnet50 --target 1.7           | --target 1.7: give a share between 0 and 1
predict resnet50 --target -0.1          | --target -0.1: give a share between 0 and 1
predict resnet50 --target nan           | --target nan: give a share between 0 and 1
predict resnet50 --target abc           | --target
predict resnet50 --price=-1             | --price
validate --within nan                   | --within nan: give a share between 0 and 1
compare resnet50 resnet18 --within -1   | --within -1: give a share of 0 or more
build models --target 1.5 --device cpu  | --target 1.5: give a share above 0, up to 1
build models --gpu-seconds -1 --device cpu      | --gpu-seconds -1: give seconds, 0 or more
build models --gpu-seconds nan --device cpu     | --gpu-seconds nan: give seconds, 0 or more
bench --device cpu --max-seconds 0      | --max-seconds
measure mlp --repeats 0                 | --repeats
generate tests.models.decoders:llama --prompt 0 --tokens 4      | --prompt '0': give whole number
generate tests.models.decoders:llama --prompt 250 --tokens 10   | has 256 positions, not 260
generate tests.models.decoders:llama --prompt 4 --tokens 4 --cache-length 7 | tokens need 8
sweep tests.sweep.models:small --sizes big --device cpu             | is no size
bench --devices nine                    | 'nine' is no device
"""

NOT_STORED = """
predict mlp --no-harvest                | mlp was not harvested for batch 1 float32 into
predict resnet50 -b 7 --no-harvest      | resnet50 was not harvested for batch 7 float32, only for:
predict resnet50 -b 7 --mode compile    | was not harvested for batch 7 float32
predict resnet50 --phase training --no-harvest  | was not harvested for batch 1 float32 training
predict gpt2 -b 32 --input-size 512 --mode graph --no-harvest   | gpt2 was not harvested for batch
predict resnet50 -b 7 --board nope      | nope
predict vgg16 --board GPU-              | beginning of several
roofline resnet50 -b 7 --no-harvest     | resnet50 was not harvested for batch 7 float32
roofline resnet50 --board x             | unknown board 'x'
roofline resnet18 --counters            | no hardware counter saw anything of resnet18 on nvidia-h
compare resnet50 --board c1e7,ffff      | unknown board 'ffff'
modes --stored alexnet --batch-sizes 7  | no run of that on nvidia-h200
modes --stored --device nvidia-x        | unknown device 'nvidia-x'
validate --mode graph --db harvested.sqlite     | holds no measurements; run opdb bench
validate tiny --db unmeasured.sqlite    | no measured run to validate against; run opdb measure
export set --device h100                | holds nothing of device 'nvidia-h100-80gb-hbm3'
export set --db empty.sqlite            | empty.sqlite holds no measurements; run opdb bench
roofline tiny --db small.sqlite         | nothing of tiny (batch 2 float32) was measured
"""

FILES = """
harvest empty.yml                       | empty.yml is empty
harvest missing.yml                     | missing.yml: no such file
harvest noise.yml                       | noise.yml: 10000000 bytes
harvest syntax.yml                      | syntax.yml, line 2
harvest folder                          | no summary file
harvest optimizer.yml                   | optimizer: found 'adamax'
complexity none.yml                     | none.yml
build folder --device cpu               | folder folder: no summary file (*.yml) in it
build listed --device cpu               | folder listed: no summary file (*.yml) in it
build torn --device cpu                 | torn/mlp.yml, line 2
build misspelt --device cpu             | significant.yml: unknown key nevr; did you mean 'never'?
bench --grid grid.yml --device cpu      | grid.yml: 12000 combinations, more than 10000; give fewer
bench linear --grid grid.yml --device cpu   | --grid: give it without kinds and without --model
bench --grid typo.yml --device cpu      | typo.yml: unknown key argumets; did you mean 'arguments'?
bench --grid name.yml --device cpu      | name.yml: operator: unknown operator 'nn.Linaer'; did you
bench --grid unfit.yml --device cpu     | unfit.yml: none of its combinations can be called: dropped
train images.yml                        | images: found 'nowhere'; there is no such folder
train batchsizes.yml                    | unknown key batchsizes; did you mean 'batch_sizes'?
complexity mlp --csv nowhere/a.csv      | nowhere/a.csv: cannot be written: there is no folder
complexity mlp --csv .                  | .: cannot be written: it is a folder
trace resnet50 -o no/where.json         | there is no folder no
fx mlp --output none/x.txt              | there is no folder none
measure mlp --phase training --backend cpu --csv .          | cannot be written
measure mlp --phase training --backend cpu --csv other.csv  | other.csv: has other columns; give
measure mlp --phase training --backend cpu --csv png.csv    | png.csv: not a text file (byte 0 is no
modes mlp --csv . --device cpu          | it is a folder
train mlp.yml --csv no/such/folder.csv  | there is no folder
train mlp.yml --plot m.svg              | figures are PNG files
sweep tests.sweep.models:small --sizes 16 --output-dir /dev/null/here --device cpu | cannot be made
roofline resnet50 --csv same --html same                    | same: named for two results
export text.sqlite                      | cannot write the set into text.sqlite: File exists
export /proc/opdb --db small.sqlite     | cannot write the set into /proc/opdb
import nowhere                          | nowhere does not exist
import folder --db new.sqlite           | set.sqlite.xz is missing
import text.sqlite                      | it is not an opdb database
"""

DATABASES = """
predict resnet50 --db none.sqlite       | database none.sqlite: there is none
predict resnet50 --db folder            | database folder: it is not a file
predict resnet50 --db text.sqlite       | text.sqlite: it is not an opdb database
predict resnet50 --db cut.sqlite        | cut.sqlite: it is damaged
predict resnet50 --db foreign.sqlite    | foreign.sqlite: it is not an opdb database
predict resnet50 --db newer.sqlite      | newer.sqlite: its schema 99 is not the one
show --db mysql://x                     | 'mysql' is not supported
bench --device cpu --db empty.sqlite    | holds no workload
bench --device cpu --db newer.sqlite    | its schema 99 is not the one
"""

ELSEWHERE = """
bench                                   | no NVIDIA GPU here
build mlp                               | add --device cpu
bench --device cuda                     | no CUDA device for --device cuda
bench --device cuda:7                   | no CUDA device for --device cuda:7
bench relu --device cuda --db none.sqlite   | use --device cpu
bench --devices 77                      | no device cuda:77
bench conv2d --device cpu --algorithm fft --algorithm winograd  | 'fft', 'winograd' need an NVIDIA
measure mlp --device cuda               | no CUDA device for --device cuda
measure mlp --mode graph --device cpu   | mode 'graph' needs a CUDA
measure mlp --phase training --backend mps      | mps
sweep resnet18 --algorithm fft --algorithm direct   | 'fft', 'direct' need an NVIDIA GPU; here there
doctor --calibrate                      | run opdb doctor --calibrate on a machine with an
doctor --calibrate --device cpu         | has no meters that opdb tests
"""


def cases(*tables: str) -> list[tuple[str, str]]:
    rows = [line.rpartition("|") for table in tables for line in table.strip().splitlines()]
    return [(command.strip(), said.strip()) for command, _, said in rows]


GRID = """\
operator: nn.Linear
arguments: {in_features: {from: 1, to: 6000}, out_features: 4}
inputs: {input: [2, in_features]}
zeros: [0, 0.9]
"""

TEXTS = {
    "empty.yml": "",
    "syntax.yml": "model: resnet18\n  weights: {\n",
    "optimizer.yml": "model: mlp\nphase: training\noptimizer: adamax\n",
    "models/mlp.yml": "model: mlp\ninput_size: [16]\nbatch_sizes: [1, 4]\n",
    "torn/mlp.yml": "model: [mlp\n",
    "listed/significant.yml": "target: 0.9\n",
    "misspelt/mlp.yml": "model: mlp\ninput_size: [16]\n",
    "misspelt/significant.yml": "nevr: [relu]\n",
    "grid.yml": GRID,
    "typo.yml": "operator: nn.Linear\nargumets: {}\n",
    "name.yml": "operator: nn.Linaer\n",
    "unfit.yml": GRID.replace("{from: 1, to: 6000}", "8").replace("in_features]", "3]"),
    "mlp.yml": "models: mlp\nbackend: cpu\niters: 1\n",
    "unknown.yml": "models: resnet81\nbackend: cpu\n",
    "images.yml": "models: mlp\nimages: nowhere\n",
    "batchsizes.yml": "models: mlp\nbatchsizes: 3\n",
    "other.csv": "a,b\n1,2\n",
    "text.sqlite": "nothing of ours",
}


def execute(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files and databases that cannot be used."""
    made = tmp_path_factory.mktemp("refused")
    for name, text in TEXTS.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    for name in ("folder", "folder.yml"):
        (made / name).mkdir()
    (made / "noise.yml").touch()
    os.truncate(made / "noise.yml", 10_000_000)
    (made / "png.csv").write_bytes(b"\x89PNG\r\n\x00\xff")
    (made / "cut.sqlite").write_bytes(published.database().read_bytes()[:50_000])
    execute(made / "foreign.sqlite", "CREATE TABLE song (title TEXT)")
    published.copy_to(made / "copy.sqlite")
    for name in ("newer", "harvested", "empty", "unmeasured", "small", "other"):
        with open_store(str(made / f"{name}.sqlite")) as store:
            if name in ("harvested", "unmeasured", "small"):
                store.save_workload(samples.workload())
            if name in ("unmeasured", "small"):
                store.save_campaign(samples.campaign())
            if name == "other":
                store.save_campaign(samples.campaign("c", "a-board", samples.PROCESSOR))
    execute(made / "newer.sqlite", "UPDATE opdb_schema SET number = 99")
    return made


def state(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (each.st_size, each.st_mtime_ns) for path, each in found.items()}


def refused(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command that cannot be done; return its status and its one message."""
    before = state(folder)
    capsys.readouterr()
    status = main(shlex.split(command))
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and "unforeseen" not in err
    message = err.strip().splitlines()
    assert len(message) == 1 or message[0].startswith("Usage: "), err
    assert state(folder) == before
    return status, err


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in that folder, on the published set; nobody may write to that."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPDB_DB", str(published.database()))


MISTAKES = cases(NAMES, WORDS, NUMBERS, NOT_STORED, FILES, DATABASES)


@pytest.mark.parametrize(("command", "said"), MISTAKES, ids=[each[0][:60] for each in MISTAKES])
def test_a_mistake_is_one_message_and_changes_nothing(
    command: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, err = refused(command, folder, capsys)
    assert status == 2 and said in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
@pytest.mark.parametrize(("command", "said"), cases(ELSEWHERE))
def test_what_this_machine_cannot_do_is_one_message_and_changes_nothing(
    command: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, err = refused(command, folder, capsys)
    assert status == 3 and said in err
