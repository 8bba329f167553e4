"""Reading what Nsight Compute prints; the texts are written by hand after its format."""

from __future__ import annotations

import pytest

from opdb.counters.report import board_range, call_range, names_of, read_report
from opdb.errors import InputError
from opdb.records import Board

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
    assert report.metrics == ("dram__bytes.sum", "gpu__time_duration.sum")
    assert list(report.calls) == [KEY]
    first, second, third = report.calls[KEY]
    assert first.values == {"dram__bytes.sum": 1234567, "gpu__time_duration.sum": 2.5e-6}
    assert second.values["dram__bytes.sum"] is None
    assert third.values["dram__bytes.sum"] == 0
    assert names_of(report.calls[KEY]) == ["first<int>", "second"]


def test_units_that_are_not_base_ones_are_scaled() -> None:
    scaled = RAW.replace(UNITS, '"","","","","","Mbyte","us"')
    values = read_report(scaled, "a.csv").calls[KEY][2].values
    assert values == {"dram__bytes.sum": 0, "gpu__time_duration.sum": 1e-6}


def test_a_report_of_two_boards_is_refused() -> None:
    line = RAW.splitlines()[5].replace("GPU-1", "GPU-2").replace(KEY, OTHER)
    with pytest.raises(InputError, match="kernel 4: on GPU-2, others on GPU-1"):
        read_report("\n".join([*RAW.splitlines()[:-1], line]), "a.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no CSV of Nsight Compute"),
        ("==ERROR== something", "no CSV of Nsight Compute"),
        (HEADER, "no kernel in it"),
        (f"{HEADER}\n{UNITS}", "of 0 kernels none is in a range"),
        (RAW.replace(KEY, "short"), "of 4 kernels none is in a range that names a call"),
        (RAW.replace('"1,234,567"', '"many"'), "kernel 0, dram__bytes.sum: 'many' is no number"),
        (RAW.replace(',"2,500"', ""), "kernel 0: 6 fields; expected 7; is it cut off"),
        (
            HEADER.replace("dram__bytes.sum", "Metric Name") + f"\n{UNITS}",
            "that is the details page",
        ),
        ('"ID","a"\n"","b"\n', "no kernel in it"),
    ],
)
def test_what_is_no_raw_page_is_told(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_report(text, "a.csv")
