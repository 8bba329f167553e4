"""What Nsight Compute prints, by texts written after its format; which metrics make a quantity."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.records import Board, Configuration, KernelCounts, Profile
from opdb.studies.roofline.counters import (
    Definition,
    board_range,
    call_range,
    counters_of,
    definition,
    metrics_in,
    names_of,
    read_metrics,
    read_report,
)
from tests.counters.stand_in import KNOWN

KEY, OTHER = "a" * 64, "b" * 64
MOMENT = "2026-11-21T13:00:00.000+00:00"
NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def ranges(*names: str) -> str:
    return "7 " + " ".join(
        f'""<default domain>:{name}:none:none:none:none:none:none""' for name in names
    )


IN_CALL = ranges(board_range(Board("GPU-1", "nvidia-h200"), MOMENT), call_range(KEY))
HEADER = (
    f'"ID","Process ID","Kernel Name","{NVTX}","device__attribute_display_name",'
    '"dram__bytes.sum","gpu__time_duration.sum"'
)
UNITS = '"","","","","","byte","nsecond"'
RAW = "\n".join(
    [
        "==PROF== Connected to process 7 (python)",
        HEADER,
        UNITS,
        f'"0","7","first<int>(float *, int)","{IN_CALL}","A name","1,234,567","2,500"',
        f'"1","7","second","{IN_CALL}","A name","n/a","12.5"',
        f'"2","7","first<int>(float *, int)","{IN_CALL}","A name","0","1"',
        f'"3","7","set up","{ranges("something else")}","A name","5","5"',
        "==PROF== Disconnected from process 7",
    ]
)


def test_kernels_are_told_apart_by_the_call_that_they_are_in() -> None:
    report = read_report(RAW, "a.csv")
    assert (report.board, report.measured_at) == (Board("GPU-1", "nvidia-h200"), MOMENT)
    assert report.units == {"dram__bytes.sum": "byte", "gpu__time_duration.sum": "nsecond"}
    assert list(report.calls) == [KEY]
    first, second, third = report.calls[KEY]
    assert first.values == {"dram__bytes.sum": 1234567, "gpu__time_duration.sum": 2.5e-6}
    assert second.values["dram__bytes.sum"] is None
    assert third.values["dram__bytes.sum"] == 0
    assert names_of(report.calls[KEY]) == ["first<int>", "second"]


def printed(moved: str, time: str, units: str = "byte nsecond") -> str:
    """Return a report of one kernel with these numbers, and their units."""
    given = ",".join(f'"{unit}"' for unit in units.split(" "))
    row = f'"0","7","first","{IN_CALL}","A name","{moved}","{time}"'
    return "\n".join([HEADER, f'"","","","","",{given}', row])


def read(text: str) -> tuple[float | None, float | None]:
    report = read_report(text, "a.csv")
    chosen = definition(report.units)
    call = Configuration("relu", {}, {"input": {"shape": [1], "dtype": "float32"}})
    named = replace(report, calls={call.key: report.calls[KEY]})
    [profile] = named.profiles([call], Board("GPU-1", "nvidia-h200"), chosen, {}, MOMENT)
    seen = counters_of(profile)
    return seen.bytes["memory"], seen.time_s


@pytest.mark.parametrize(
    ("moved", "time", "units", "found"),
    [
        ("1.05", "3.50", "Mbyte us", (1.05e6, 3.5e-6)),
        ("1,048,576", "3,500", "byte ns", (1048576, 3.5e-6)),
        ("2,048.5", "3,500", "byte nsecond", (2048.5, 3.5e-6)),
        ("1048576", "3500", "byte ns", (1048576, 3.5e-6)),
        ("1.05", "3.50", "MB µs", (1.05e6, 3.5e-6)),
        ("1.5", "2.5", "MiB s", (1.5 * 2**20, 2.5)),
    ],
)
def test_numbers_and_units_are_those_of_the_file(
    moved: str, time: str, units: str, found: tuple[float, float]
) -> None:
    assert read(printed(moved, time, units)) == pytest.approx(found)


NO_NUMBERS = ["1,05", "0,125", "2.048,5", "1.048.576", "1,05,2", "1234,567,890", "many"]


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_a_number_that_may_be_two_is_refused(number: str) -> None:
    with pytest.raises(InputError, match=f"dram__bytes.sum: '{re.escape(number)}' is no number"):
        read(printed(number, "1,234,567"))


@pytest.mark.parametrize(
    ("units", "column", "unit"),
    [
        ("Mbit ns", "dram__bytes.sum", "Mbit"),
        ("sector ns", "dram__bytes.sum", "sector"),
        ("byte min", "gpu__time_duration.sum", "min"),
    ],
)
def test_a_unit_that_is_not_known_names_its_column(units: str, column: str, unit: str) -> None:
    with pytest.raises(InputError, match=f"^a.csv, column {column}: unknown unit '{unit}' of"):
        read(printed("1", "2", units))


def test_sectors_are_bytes_by_their_weight_and_prefixes_of_counts_are_refused() -> None:
    text = printed("4", "2", "sector ns").replace("dram__bytes.sum", "lts__t_sectors.sum")
    own = {"l2_bytes": {"lts__t_sectors.sum": 32.0}}
    report = read_report(text, "a.csv")
    assert not report.profiles([], Board("GPU-1", "h"), own, {}, MOMENT)
    for quantity, weight in (("l2_bytes", 1.0), ("time_s", 32.0)):
        with pytest.raises(InputError, match="unknown unit 'sector'"):
            wrong = {quantity: {"lts__t_sectors.sum": weight}}
            report.profiles([], Board("GPU-1", "h"), wrong, {}, MOMENT)
    flops = {"float32_flops": {"lts__t_sectors.sum": 2.0}}
    report.profiles([], Board("GPU-1", "h"), flops, {}, MOMENT)
    for unit in ("Kinst", "Mbyte"):
        report = read_report(text.replace('"sector"', f'"{unit}"'), "a.csv")
        with pytest.raises(InputError, match=f"unknown unit '{unit}' of float32_flops"):
            report.profiles([], Board("GPU-1", "h"), flops, {}, MOMENT)
        report.profiles([], Board("GPU-1", "h"), {"other": flops["float32_flops"]}, {}, MOMENT)


def test_a_report_of_two_boards_is_refused() -> None:
    line = RAW.splitlines()[5].replace("GPU-1", "GPU-2").replace(KEY, OTHER)
    with pytest.raises(InputError, match="kernel 4: on GPU-2, others not"):
        read_report("\n".join([*RAW.splitlines()[:-1], line]), "a.csv")


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
