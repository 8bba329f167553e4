from __future__ import annotations

import pytest

from opdb.units import plural, show


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.25, 2, "250 ms"),
        (0.9996, 2, "1000 ms"),
        (0.0012345, 4, "1.234 ms"),
        (5.28e-6, 2, "5.3 µs"),
        (989.4e12, 2, "990 TFLOP/s"),
        (-0.25, 1, "-200 ms"),
        (4e-10, 3, "4e-10 s"),
        (0.0, 4, "0 s"),
        (None, 4, "–"),
    ],
)
def test_numbers_are_spelled_out(value: float | None, digits: int, shown: str) -> None:
    unit = "FLOP/s" if "FLOP" in shown else "s"
    assert show(value, unit, digits=digits) == shown


def test_one_of_a_thing_is_one_and_of_all_else_there_are_many() -> None:
    said = [plural(number, "board") for number in (0, 1, 2, 11)]
    assert said == ["0 boards", "1 board", "2 boards", "11 boards"]
    assert plural(1, "class", "classes") == "1 class"
    assert plural(2, "class", "classes") == "2 classes"
