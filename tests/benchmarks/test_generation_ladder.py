"""The ladder of generations: every file is one that opdb takes, and in the promised order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from opdb.summary import load_summary
from tests.benchmarks import scripts

SCRIPT = scripts.ROOT / "benchmarks" / "generation_ladder.py"


def test_each_rung_is_a_summary_file_that_opdb_takes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True)
    files = sorted(tmp_path.glob("*.yml"))
    requests = [each.checked() for path in files for each in load_summary(path).requests()]
    assert len(files) > 40
    assert {each.phase for each in requests} == {"prefill", "decode", "generate"}
    assert {each.cache for each in requests} == {None, "dynamic"}
    assert {each.name for each in requests if each.quantize} == {"llama-3.1-8b"}
    assert sum(each.phase == "generate" for each in requests) >= 6
    assert all((each.filled + 1) * each.batch_size <= 2**19 for each in requests)
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
    done = scripts.ran("published_set.sh", tmp_path, *given, first=stub.parent)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in asked.read_text().splitlines()]
    assert [line[0] for line in lines] == [
        *("harvest", "bench", "export", "measure", "export"),
        *("harvest", "bench", "export", "measure", "export"),
    ]
    modes = [line[line.index("--mode") + 1] for line in lines if line[0] == "measure"]
    assert modes == ["graph", "eager"]
