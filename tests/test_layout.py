from __future__ import annotations

import pytest

from opdb.layout import TALLEST, table, width_of, wrapped

HEADER = ("model", "workload", "time", "measured on nvidia-h200", "share")
ROWS = [
    ("mobilenet_v3_large", "batch 32 float32", "476.3 µs", 100, "99.9 %"),
    ("模型", "batch 128 bfloat16 channels_last", "12.4 ms", 7, "–"),
]


def test_a_table_that_is_piped_or_fits_is_as_wide_as_it_is() -> None:
    whole = list(table(HEADER, ROWS))
    assert len(whole) == 3 and max(map(width_of, whole)) == 95
    assert list(table(HEADER, ROWS, 95)) == whole
    assert len({width_of(line.split("batch")[0]) for line in whole[1:]}) == 1  # wide characters


@pytest.mark.parametrize("width", [94, 80, 64, 50])
def test_a_table_wraps_words_and_keeps_numbers_whole(width: int) -> None:
    lines = list(table(HEADER, ROWS, width))
    assert max(map(width_of, lines)) <= width and len(lines) > 3
    for number in ("476.3 µs", "12.4 ms", "99.9 %", "100"):
        assert any(number in line for line in lines)


@pytest.mark.parametrize("width", [46, 30, 20])
def test_a_table_that_does_not_fit_is_folded(width: int) -> None:
    lines = list(table(HEADER, ROWS, width))
    assert max(map(width_of, lines)) <= width
    assert lines[0].startswith("mobilenet_v3_large")
    said = " ".join(line.strip() for line in lines)
    assert "time 476.3 µs; measured on nvidia-h200 100; share 99.9 %" in said
    assert said.endswith("time 12.4 ms; measured on nvidia-h200 7; share –")


def test_a_row_that_would_be_tall_is_folded() -> None:
    header = ("name", "why", "time")
    laid = list(table(header, [("a", "word " * 60, "1 s")], 60))
    assert len(laid) <= TALLEST + 1 and laid[0].startswith("name")
    folded = list(table(header, [("a", "word " * 100, "1 s")], 60))
    assert len(folded) > TALLEST and folded[0].startswith("a  word")


def test_a_table_without_rows_fits_too() -> None:
    assert max(map(width_of, table(HEADER, [], 20))) <= 20


def test_text_is_wrapped_between_words_and_below_its_beginning() -> None:
    text = "  rejected: 27 as the median of its times is 12.5 ms too far from the mean"
    assert wrapped(text, 40) == [
        "  rejected: 27 as the median of its",
        "    times is 12.5 ms too far from the",
        "    mean",
    ]
    assert wrapped(text, 90) == [text]


def test_a_word_longer_than_the_line_is_broken_at_a_sign() -> None:
    lines = wrapped("see /a/folder/of/some/length/with/a/file.sqlite", 20)
    assert max(map(width_of, lines)) <= 20
    assert "".join(line.strip() for line in lines) == (
        "see/a/folder/of/some/length/with/a/file.sqlite"
    )


def test_a_command_that_is_wrapped_can_be_pasted() -> None:
    lines = wrapped("to measure them: opdb bench conv2d --device cpu --db /a/b.sqlite", 40)
    assert lines == [
        "to measure them:",
        "  opdb bench conv2d --device cpu --db \\",
        "    /a/b.sqlite",
    ]
    quoted = "opdb predict 'a model' --db 'with a space' --batch-size 32"
    assert wrapped(quoted, 40) == [quoted]
