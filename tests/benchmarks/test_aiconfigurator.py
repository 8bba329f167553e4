"""The comparison with AIConfigurator's table: its rows, the grid file, and the arithmetic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.aiconfigurator import (
    DATA,
    SAMPLE,
    Compared,
    Row,
    compared,
    grid_text,
    keys_of,
    main,
    measured,
    read_rows,
    sampled,
    show,
    summaries,
)
from opdb.api.grids import BenchedGrid
from opdb.bench.platform import detect
from opdb.errors import InputError
from opdb.records import Cost, OperatingPoint, Quantity

LINEAR = {
    "operator": "nn.Linear",
    "arguments": {"in_features": 8, "out_features": 4, "bias": False},
    "inputs": {"input": [2, 8]},
}


def cost(time_s: float, energy_j: float, limited: OperatingPoint | None = None) -> Cost:
    time, energy = (Quantity.around(q, q, None, 1) for q in (time_s, energy_j))
    return Cost("k", "b", "s", "e", 1, 1, time, None, None, energy, None, limited=limited)


def test_the_sample_has_so_many_rows_of_each_class_and_is_always_the_same() -> None:
    rows = read_rows(DATA)
    assert len(rows) == 219
    found = sampled(rows, SAMPLE, 26)
    assert Counter(row.group for row in found) == SAMPLE
    assert found == sampled(rows, SAMPLE, 26) != sampled(rows, SAMPLE, 27)
    assert len(sampled(rows, {"limit": 1000}, 0)) == sum(row.group == "limit" for row in rows)


def test_opdb_reads_the_grid_file_as_the_rows_in_their_order(tmp_path: Path) -> None:
    rows = sampled(read_rows(DATA), {"below": 4, "limit": 2, "attention": 3}, 1)
    path = tmp_path / "table.yml"
    path.write_text(grid_text(rows))
    keys = keys_of(path, rows)
    grid = BenchedGrid.of(path)
    assert [*grid.keys] == keys and len(set(keys)) == 9 and not grid.found.dropped
    for row, call in zip(rows, grid.found.calls, strict=True):
        configuration = call.configuration
        wanted = "scaled_dot_product_attention" if row.attention else "linear"
        assert configuration.kind == wanted
        assert '"bfloat16"' in configuration.json and '"float32"' not in configuration.json


def test_a_row_below_the_limit_is_compared_at_full_clock() -> None:
    row = Row("r", LINEAR, 10e-6, 200.0)
    found = compared(row, cost(10.5e-6, 5e-3), 100.0)
    assert found is not None and found.regime == "below it, < 20 µs"
    assert found.time_ratio == pytest.approx(1.05)
    assert found.energy_ratio == pytest.approx(2.5)
    assert found.opdb_w == pytest.approx(5e-3 / 10.5e-6)


def test_a_row_at_the_limit_in_both_is_compared_there() -> None:
    row = Row("r", LINEAR, 1e-3, 695.0)
    limited = OperatingPoint(1.4e9, 0.93e-3, 0.5)
    found = compared(row, cost(0.7e-3, 0.6, limited), 100.0)
    assert found is not None and found.regime == "at the limit"
    assert found.time_ratio == pytest.approx(0.93)
    assert found.opdb_j == pytest.approx(0.5 + 100 * 0.93e-3)
    without = compared(row, cost(0.7e-3, 0.6, limited), None)
    assert without is not None and without.energy_ratio is None
    alone = compared(row, cost(1e-3, 0.6), 100.0)
    assert alone is not None and alone.regime == "at the limit in one alone"


def test_bars_are_about_the_medians(capsys: pytest.CaptureFixture[str]) -> None:
    def each(regime: str, ratio: float) -> Compared:
        return Compared("n", regime, 1e-5, ratio * 1e-5, ratio, 1e-3, None, None, 100.0, None)

    found = [each("below it, < 20 µs", r) for r in (0.9, 1.04, 1.3)]
    found += [each("at the limit", 0.92), each("attention, other kernels", 2.0)]
    by = {each.regime: each for each in summaries(found)}
    assert by["below the limit"].kept is True and by["below the limit"].rows == 3
    assert by["at the limit"].kept is False
    assert by["attention, other kernels"].bar is None
    show(found)
    shown = capsys.readouterr().out
    assert "1.040 [0.90, 1.30]  within 5 %: yes" in shown and "within 7 %: no" in shown


def test_rows_are_benched_and_held_beside_their_costs(tmp_path: Path) -> None:
    rows = [row for row in read_rows(DATA) if row.name in ("1 x 768 x 64", "attention 1 x 8")]
    assert len(rows) == 2
    found = measured(rows, str(tmp_path / "a.sqlite"), detect("cpu"), 20)
    assert [each.name for each in found] == [row.name for row in rows]
    for each in found:
        assert each.time_ratio == pytest.approx(each.opdb_s / each.table_s) and each.opdb_s > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n\n1,2\n", "there is no column"),
        ("m,n,k,latency,power,power_limit\n1,2,x,1,1,700\n", "a field is not a number"),
        (None, "No such file"),
    ],
)
def test_a_table_that_is_not_one_is_one_message(
    tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "gemm.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_rows(tmp_path)


def test_a_dry_run_prints_the_grid_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--below", "2", "--limit", "0", "--attention", "0"]) == 0
    assert capsys.readouterr().out.count("nn.Linear") == 2


def test_no_rows_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--below", "0", "--limit", "0", "--attention", "0"])
    assert "at least one" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 3
    assert "no CUDA device" in capsys.readouterr().err
