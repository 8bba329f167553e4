"""Placements of models; on a CPU the mechanics alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.placements import main, row_of


def test_spreads_are_told_apart() -> None:
    """Blocks are 1 % apart, placements of a process 3 %, those of both processes 6 %."""
    one = [[1.00, 1.01, 1.00], [1.03, 1.03, 1.04]]
    other = [[1.06, 1.07, 1.06], [1.03, 1.03, 1.04]]
    row = row_of("m", 40_000_000, [one, other])
    assert row.placements == 4
    assert row.blocks == pytest.approx(0.01, rel=0.05)
    assert row.placed == pytest.approx(0.03, rel=0.05)
    assert row.all == pytest.approx(0.06)
    assert row.wanted == 22, "(1.96 x 2.38 % / 1 %)^2"
    assert row_of("m", 1, [[[1.0, 1.0]]]).wanted == 1


def test_models_are_placed_in_several_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mlp.yml"
    file.write_text("model: mlp\ninput_size: [16]\nbatch_sizes: [1, 2]\n")
    out = tmp_path / "placements.json"
    asked = [str(file), "--device", "cpu", "--processes", "2", "--placements", "2"]
    assert main([*asked, "--json", str(out)]) == 0
    assert "mlp" in capsys.readouterr().out
    said = json.loads(out.read_text())
    assert [len(found["mlp"]) for found in said["processes"]] == [2, 2]
    assert said["rows"][0]["placements"] == 4 and said["left_out"] == {}


def test_a_file_that_is_none_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yml"
    file.write_text("model: no_such_model\n")
    assert main([str(file), "--device", "cpu"]) == 2
    assert "no_such_model" in capsys.readouterr().err
