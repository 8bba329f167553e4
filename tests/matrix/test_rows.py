"""The figures of a matrix: throughput, energy with its interval, and what is missing with why."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from opdb.errors import InputError
from opdb.studies.train.figure import draw
from opdb.studies.train.rows import LINES, RUNS, MatrixReport, figures, lines_of, mixed, remarks_of
from tests.matrix.made import NO_POWER, cell, made, run


def test_a_step_is_the_mean_of_all_that_was_timed() -> None:
    found = figures([run((0.09, 0.1, 0.11), power_w=200.0)])
    assert found is not None and found.energy_j is not None
    assert found.time_s.mean == pytest.approx(0.1)
    assert found.energy_j.mean == pytest.approx(20.0)
    assert found.power_w == pytest.approx(200.0) and found.energy_reason is None
    row = RUNS.document(made(cell(), ran=run((0.09, 0.1, 0.11), power_w=200.0)))
    assert row["images_per_s"] == pytest.approx(40.0)
    assert row["energy_per_image_j"] == pytest.approx(5.0)
    assert row["energy_low_j"] < 5.0 < row["energy_high_j"]
    assert row["command"].startswith("opdb measure mlp --phase training --batch-size 4 ")


def test_several_runs_are_one_value_each() -> None:
    """What differs between processes is in the interval: their stretches alone say less."""
    runs = [run((0.1, 0.1, 0.1)), run((0.12, 0.12, 0.12))]
    found = figures(runs)
    assert found is not None and found.time_s.count == 2
    assert found.time_s.mean == pytest.approx(0.11)
    alone = figures(runs[:1])
    assert alone is not None and alone.time_s.high is not None and found.time_s.high is not None
    assert alone.time_s.high - alone.time_s.mean < found.time_s.high - found.time_s.mean


def test_energy_that_was_not_read_is_missing_with_the_reason() -> None:
    row = RUNS.document(made(cell(), ran=run((0.1, 0.1))))
    assert row["energy_per_image_j"] is None and row["energy_low_j"] is None
    assert row["energy_reason"] == NO_POWER
    half = replace(run((0.1, 0.1)), flags=())
    whole = run((0.1,), power_w=200.0)
    found = figures([replace(half, repeats=half.repeats + whole.repeats)])
    assert found is not None and found.energy_j is None
    assert found.energy_reason == "no power was read"


def test_a_slow_loader_is_seen() -> None:
    """Of a step of 0.1 s the device computed 0.06 s; of the rest the host waited for data."""
    slow = run((0.1, 0.1), data_time_s=0.035, compute_time_s=0.06)
    ahead = run((0.1, 0.1), data_time_s=0.09, compute_time_s=0.1)
    found = figures([slow]), figures([ahead])
    assert found[0] is not None and found[0].waits == pytest.approx(0.35)
    assert found[1] is not None and found[1].waits == 0.0
    told = [LINES.cells(lines_of([made(cell(), ran=ran)])[0])[4] for ran in (slow, ahead)]
    assert told == ["35.0 %, slow loader", "0.0 %"]


def test_repeats_are_one_line_and_what_failed_says_why() -> None:
    again = cell(number=2)
    failed = replace(run((0.1,)), outcome="out_of_memory", reason="too large", repeats=(), flags=())
    some = [
        made(cell(), ran=run((0.1,))),
        made(again, "out of memory", failed),
        made(cell(precision="amp"), "not here"),
        made(cell(batch_size=8), "left"),
    ]
    lines = lines_of(some)
    assert [tuple(LINES.cells(line)[:3]) for line in lines] == [
        ("mlp-b4-fp32-cpu", "1 of 2", "40"),
        ("mlp-b4-amp-cpu", "0 of 1", "–"),
        ("mlp-b8-fp32-cpu", "0 of 1", "–"),
    ]
    assert remarks_of(lines) == [
        "mlp-b4-fp32-cpu: out of memory: too large",
        f"mlp-b4-fp32-cpu: {NO_POWER}",
        "mlp-b4-amp-cpu: not here: no amp in this test",
        "mlp-b8-fp32-cpu: left",
    ]
    text = MatrixReport(some).markdown("a title")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3 and {row.count("|") for row in rows} == {len(LINES.header) + 1}
    assert "- mlp-b4-amp-cpu: not here: no amp in this test" in text


def test_a_bar_in_a_reason_does_not_break_the_table() -> None:
    failed = replace(run((0.1,)), outcome="error", reason="a | b\nc", repeats=(), flags=())
    assert "failed: a \\| b c" in MatrixReport([made(cell(), "failed", failed)]).markdown("a title")


def test_figures_of_several_boards_say_so() -> None:
    one = made(cell(), ran=run((0.1,)))
    assert one.campaign is not None and mixed([one, one]) == []
    board = replace(one.campaign.board, uuid="GPU-2")
    other = replace(one, campaign=replace(one.campaign, board=board))
    assert mixed([one, other]) == ["runs come from 2 boards: GPU-1, GPU-2"]


@pytest.mark.parametrize("power_w", [None, 200.0])
def test_a_figure_is_drawn_with_and_without_energy(power_w: float | None) -> None:
    runs = [
        made(cell(model, size, precision=precision), ran=run((0.1, 0.11), power_w))
        for model in ("mlp", "lstm")
        for precision in ("fp32", "amp")
        for size in (4, 8)
    ]
    image = draw(lines_of(runs), "a title", "a command")
    assert image.startswith(b"\x89PNG")
    assert struct.unpack(">II", image[16:24]) == (1200, 960)


def test_nothing_measured_is_no_figure() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        draw(lines_of([made(cell(), "left")]), "a title", "a command")
