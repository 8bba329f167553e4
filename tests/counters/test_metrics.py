"""Which metrics make which quantity, by GPU, and what a profile comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.counters.metrics import (
    LEVELS,
    UNITS,
    Definition,
    counters_of,
    definition,
    metrics_in,
    read_metrics,
)
from opdb.errors import UnknownNameError
from opdb.records import Board, KernelCounts, Profile
from opdb.studies import peaks
from tests.counters.stand_in import KNOWN

SASS = "sm__sass_thread_inst_executed_op_{}_pred_on"
TENSOR = "sm__ops_path_tensor_src_{}"
COMMON = (
    *("gpu__time_duration", "dram__bytes", "lts__t_bytes", "l1tex__t_bytes"),
    *(SASS.format(letter + name) for letter in "dfh" for name in ("add", "mul", "fma")),
)
CHIPS = {
    "gh100": ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp64"),
    "ga100": ("fp16_dst_fp16", "fp16_dst_fp32", "bf16_dst_fp32", "tf32_dst_fp32", "fp64"),
    "gv100": ("fp16_dst_fp16", "fp16_dst_fp32"),
}
"""Of the metrics that `ncu --query-metrics --chips` (2024.1.1) names, those that matter here."""


def known(chip: str) -> set[str]:
    return {*COMMON, *(TENSOR.format(name) for name in CHIPS[chip])}


def profile(chosen: Definition, *kernels: dict[str, float | None]) -> Profile:
    counts = tuple(KernelCounts(f"kernel{n}", values) for n, values in enumerate(kernels))
    return Profile("1", Board("GPU-1", "gpu"), "a" * 64, "{}", "", {}, chosen, counts)


def test_units_and_levels_are_those_of_the_roofline() -> None:
    assert UNITS == peaks.UNITS and LEVELS == peaks.LEVELS


def test_each_gpu_has_the_metrics_it_has() -> None:
    hopper, ampere, volta = (definition(known(chip)) for chip in CHIPS)
    assert hopper["float16_flops"] == {"sm__ops_path_tensor_src_fp16.sum": 1.0}
    assert list(ampere["float16_flops"]) == [
        "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
        "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    ]
    assert "tf32_flops" in ampere and "tf32_flops" not in volta
    assert "dram__bytes.sum" in metrics_in(volta)
    assert len(metrics_in(hopper)) == len(set(metrics_in(hopper)))


def test_fused_operations_count_two_and_all_kernels_are_added_up() -> None:
    add, mul, fma = (f"{SASS.format(name)}.sum" for name in ("fadd", "fmul", "ffma"))
    chosen = definition(known("gh100"))
    zeros: dict[str, float | None] = dict.fromkeys(metrics_in(chosen), 0.0)
    seen = counters_of(
        profile(
            chosen,
            {**zeros, add: 3, mul: 5, fma: 7, "dram__bytes.sum": 64},
            {**zeros, fma: 1, "dram__bytes.sum": 32, "gpu__time_duration.sum": 2e-6},
        )
    )
    assert seen.flops["float32"] == 3 + 5 + 2 * 8 and seen.flops["tf32"] == 0
    assert (seen.all_flops, seen.unit, seen.kernels) == (24, "float32", 2)
    assert (seen.bytes["memory"], seen.time_s) == (96, 2e-6)


def test_what_was_not_seen_is_none_and_not_zero() -> None:
    chosen = definition(KNOWN)
    missing = counters_of(profile(chosen, {"dram__bytes.sum": 64.0}, {"dram__bytes.sum": None}))
    assert missing.bytes["memory"] is None and missing.flops["tf32"] is None
    assert missing.all_flops is None and missing.unit is None
    assert "float64" not in missing.flops  # nothing here could have counted them


def test_a_kernel_that_computes_nothing_has_no_unit() -> None:
    chosen = definition(KNOWN)
    seen = counters_of(profile(chosen, dict.fromkeys(metrics_in(chosen), 0.0)))
    assert seen.all_flops == 0 and seen.unit is None


def test_ones_own_metrics_go_first(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text('{"l2_bytes": {"lts__t_sectors.sum": 32}, "other": ["a__b.avg", "c__d.max"]}')
    own = read_metrics(path)
    chosen = definition({*known("gh100"), "lts__t_sectors", "a__b", "c__d"}, own)
    assert chosen["l2_bytes"] == {"lts__t_sectors.sum": 32.0}
    assert chosen["other"] == {"a__b.avg": 1.0, "c__d.max": 1.0}
    assert chosen["memory_bytes"] == {"dram__bytes.sum": 1.0}
    seen = counters_of(profile(chosen, {"lts__t_sectors.sum": 4.0}))
    assert seen.bytes["l2"] == 128


def test_a_metric_of_ones_own_that_is_not_known_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"'lts__t_byte.sum'; did you mean 'lts__t_bytes'"):
        definition(known("gh100"), {"l2_bytes": {"lts__t_byte.sum": 1.0}})


def test_a_report_has_full_names() -> None:
    chosen = definition(["dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.avg"])
    assert chosen == {"memory_bytes": {"dram__bytes_read.sum": 1.0, "dram__bytes_write.sum": 1.0}}
