"""Operators and passes in alternating blocks; on a CPU the mechanics alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import quiet_host
from benchmarks.quiet_host import Seen, compared, in_one_process, main, row_of, sum_of
from opdb.derive.quiet import LEAST_BLOCKS
from opdb.harvest import harvest
from opdb.models import ModelRequest
from opdb.records import Call, Workload
from tests.store import samples


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Three calls of two sorts, within two containers."""
    relu, linear = (Call(c, "module") for c in (samples.RELU, samples.CONV))
    return replace(harvest(ModelRequest("mlp").checked()), calls=(relu, linear, relu), containers=2)


def seen(pass_s: float, slow: int = 0, drain: float = 0.01) -> Seen:
    """50 blocks of calls of 2 and 5 µs and a container of 1 µs; so many blocks twice as slow."""
    factors = [2.0] * slow + [1.0] * (LEAST_BLOCKS - slow)
    return Seen(
        calls_s=[[f * s for s in (2e-6, 5e-6)] for f in factors],
        containers_s=[f * 1e-6 for f in factors],
        passes_s=[f * pass_s for f in factors],
        drains=[drain] * LEAST_BLOCKS,
        calls_instructions=[20.0, 50.0],
        pass_instructions=[100.0],
    )


def test_a_pass_is_its_calls_as_often_as_they_are_called_and_its_containers(
    workload: Workload,
) -> None:
    assert sum_of(workload, [2.0, 5.0], 1.5) == 2 * 2.0 + 5.0 + 2 * 1.5


def test_the_quiet_tenth_of_each_sort_is_compared_and_medians_beside(workload: Workload) -> None:
    row = row_of("m", workload, [seen(10e-6, slow=40), seen(10e-6)])
    assert not isinstance(row, str)
    assert row.blocks == 100 and row.pass_s == pytest.approx(10e-6)
    assert row.quiet == pytest.approx(1.1) and row.median == pytest.approx(1.1)
    assert row.control_quiet == row.control_median == pytest.approx(1.0)
    assert (row.slowdown.median, row.slowdown.high) == pytest.approx((1.0, 2.0))
    assert row.instructions == pytest.approx(0.9)


def test_what_is_left_out_says_why(workload: Workload) -> None:
    asked = {name: (ModelRequest("mlp"), workload) for name in ("few", "device", "part", "good")}
    few = replace(seen(1e-5), passes_s=[1e-5] * (LEAST_BLOCKS - 1))
    both = {"device": seen(1e-5, drain=0.2), "part": seen(1e-5), "good": seen(1e-5)}
    rows, left = compared(asked, [{**both, "few": few}, {**both, "part": "no memory"}])
    assert [row.model for row in rows] == ["good"]
    assert left == {
        "few": "49 blocks, fewer than 50",
        "device": "it does not wait for the host: 20 % of a block is left to do",
        "part": "no memory",
    }


def test_blocks_of_both_sorts_alternate_until_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiet_host, "BLOCK_S", 1e-4)
    monkeypatch.setattr(quiet_host, "container_time_s", lambda: 1e-6)
    request = ModelRequest("mlp").checked()
    workload = harvest(request)
    unbuilt = replace(workload, calls=(Call(replace(samples.RELU, kind="unknown"), "module"),))
    asked = {"mlp": (request, workload), "unbuilt": (request, unbuilt)}
    found = in_one_process(asked, "cpu", 1.0)
    assert found["unbuilt"] == "1 of 1 calls cannot be built"
    blocks = found["mlp"]
    assert isinstance(blocks, Seen)
    assert len(blocks.calls_s) == len(blocks.passes_s) == len(blocks.drains) > 2
    distinct = {(call.configuration.key, call.form) for call in workload.calls}
    assert {len(block) for block in blocks.calls_s} == {len(distinct)}
    assert all(0 < s < 0.1 for block in blocks.calls_s for s in block)
    assert len(blocks.containers_s) == len(blocks.passes_s)
    assert in_one_process(asked, "cpu", 0.0) == dict.fromkeys(
        asked, "the time for making models was up"
    )


def test_files_are_measured_in_processes_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mlp.yml").write_text(
        "model: mlp\nweights: null\ninput_size: [16]\nprocessed: false\nsource: builtin\n"
        "batch_sizes: [1, 2]\n"
    )
    told = ["--device", "cpu", "--processes", "1", "--seconds", "8", "--json"]
    assert main([str(tmp_path / "mlp.yml"), *told, str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    (name,) = found["calls"]
    assert "batch 1" in name
    (process,) = found["processes"]
    assert len(process[name]["passes_ns"]) == len(process[name]["calls_ns"]) > 0
    said = capsys.readouterr().out
    assert "process 1: 1 workload" in said and name in said


def test_an_error_of_opdb_is_its_message_and_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.yml")]) == 2
    assert "none.yml" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.yml"), "--json", str(tmp_path / "nowhere" / "found.json")])
    assert "there is no folder" in capsys.readouterr().err
