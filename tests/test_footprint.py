"""Whether a model's weights stay in the L2, from its calls alone."""

from __future__ import annotations

from dataclasses import replace

from opdb.footprint import RESIDENT_SHARE, is_kept, resident_bytes, touched_bytes
from opdb.records import Call, Configuration
from tests.store import samples

WIDE, LONG = 1024, 64


def linear(rows: int) -> Configuration:
    return Configuration(
        "linear",
        {},
        {
            "input": {"shape": [rows, WIDE], "dtype": "float32"},
            "weight": {"shape": [WIDE, WIDE], "dtype": "float32", "role": "weight"},
        },
    )


def test_weights_add_up_and_activations_are_used_again() -> None:
    calls = tuple(Call(linear(LONG), "module") for _ in range(5))
    found = touched_bytes(replace(samples.workload(), calls=calls))
    assert found == 5 * WIDE * WIDE * 4 + 2 * LONG * WIDE * 4


def test_a_small_model_keeps_its_weights_and_a_large_one_does_not() -> None:
    resident = resident_bytes(replace(samples.DEVICE, l2_bytes=50_000_000))
    assert resident == RESIDENT_SHARE * 50_000_000
    for layers, hot in ((5, True), (6, False)):
        calls = tuple(Call(linear(LONG), "module") for _ in range(layers))
        touched = touched_bytes(replace(samples.workload(), calls=calls))
        assert is_kept(touched, resident) is hot


def test_without_an_l2_nothing_is_hot() -> None:
    unknown = replace(samples.DEVICE, l2_bytes=None)
    assert resident_bytes(unknown) is None
    assert not is_kept(touched_bytes(samples.workload()), None)
