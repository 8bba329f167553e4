"""`opdb predict --algorithm` on the processor: torch's convolution stands in for forced ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

from opdb.store import open_store
from tests.algorithms.stand_in import REFUSAL, stand_in
from tests.cli.conftest import Opdb, read

SMALL = "tests.sweep.models:small"
"""Three convolutions, the second of which no algorithm of stride 1 can run."""


@pytest.fixture
def benched(opdb: Opdb, short: None, monkeypatch: pytest.MonkeyPatch) -> Opdb:
    """The command line, with costs as usual and by fft."""
    stand_in(monkeypatch)
    assert opdb("harvest", SMALL, "--input-size", "3x16x16").status == 0
    bench = ("--device", "cpu", "--precision", "100", "--duplicates", "0", "--quiet")
    assert opdb("bench", *bench).status == 0
    assert "opdb predict" not in opdb("show").out
    assert opdb("bench", "conv2d", "--algorithm", "fft", *bench).status == 0
    return opdb


def predicted(opdb: Opdb, *arguments: str) -> Any:
    ran = opdb("predict", SMALL, *arguments, "--json")
    assert ran.status == 0, ran.err
    return read(ran.out)


def test_what_an_algorithm_cannot_run_is_missing_with_the_reason(benched: Opdb) -> None:
    found = predicted(benched, "--algorithm", "fft")
    assert (found["algorithm"], found["mode"], found["measured"]) == ("fft", "graph", None)
    assert found["setting"]["convolution_algorithm"] == "fft"
    [missing] = found["missing"]
    assert (missing["kind"], missing["reason"]) == ("conv2d", REFUSAL)
    assert found["coverage"]["calls"] == pytest.approx(7 / 8)
    assert found["coverage"]["time"] + missing["share_time"] == pytest.approx(1)
    assert f"1 configuration unsupported by fft: {REFUSAL}" in found["notes"]
    told = benched("predict", SMALL, "--algorithm", "fft").out
    assert "graph, convolutions by fft, on " in told and REFUSAL in told
    assert "to measure what is missing" not in told, "no bench measures what is unsupported"
    assert "opdb predict MODEL --algorithm NAME" in benched("show").out


def test_each_convolution_is_shown_with_what_a_call_was_benched_to_cost(benched: Opdb) -> None:
    found = predicted(benched, "--algorithm", "fft")["convolutions"]
    assert [each["inputs"]["weight"]["shape"] for each in found] in (
        [[4, 3, 3, 3], [8, 8, 1, 1]],
        [[8, 8, 1, 1], [4, 3, 3, 3]],
    )
    with open_store(None) as store:
        [board] = store.boards()
        costs = store.costs(board.uuid)
    for each in found:
        [by_fft] = [c for c in costs[each["configuration"]] if "fft" in c.setting]
        assert by_fft.time_s is not None
        assert each["time_s"] == by_fft.time_s.mean and each["count"] == 1
    told = benched("predict", SMALL, "--algorithm", "fft").out
    assert "convolutions by fft, a call as it was benched:" in told
    assert "1x3x16x16" in told and "8x8x1x1" in told


def test_what_was_not_benched_by_it_is_missing_and_how_to_bench_it_is_said(benched: Opdb) -> None:
    found = predicted(benched, "--algorithm", "Implicit_GEMM")
    assert found["algorithm"] == "implicit gemm" and found["convolutions"] == []
    assert [(m["kind"], m["reason"]) for m in found["missing"]] == [("conv2d", None)] * 3
    assert math.fsum(m["share_time"] for m in found["missing"]) > 0
    told = benched("predict", SMALL, "--algorithm", "implicit gemm").out
    assert f": opdb bench --model {SMALL} --algorithm implicit_gemm\n" in told
    ran = benched("predict", SMALL, "--algorithm", "implicit gemm", "--target", 0.9999)
    assert ran.status == 1 and "coverage of time is 0." in ran.err


def test_default_is_what_torch_does(benched: Opdb) -> None:
    usual, found = predicted(benched), predicted(benched, "--algorithm", "default")
    assert "algorithm" not in usual and "convolutions" not in usual
    assert (found.pop("algorithm"), len(found.pop("convolutions"))) == ("default", 3)
    assert found == usual and found["mode"] == "eager"
