"""Which decoding steps cost the same, by harvests of small models."""

from __future__ import annotations

import pytest

from opdb.growth import stands_for
from tests.growth.test_passes import TINY, WINDOWED, harvested

pytest.importorskip("transformers")


def asked(context: int, length: int = 96, batch: int = 2) -> dict[str, int]:
    return {"batch": batch, "context": context, "length": length}


def test_a_static_step_stands_for_those_of_its_batch_and_cache_length() -> None:
    step = harvested(context=20, cache_length=96)
    assert harvested(context=70, cache_length=96).calls == step.calls
    assert stands_for(step, asked(70)) and stands_for(step, asked(1))
    assert not stands_for(step, asked(20, length=97))
    assert not stands_for(step, asked(20, batch=3))
    assert not stands_for(step, {"batch": 2, "context": 20}), "of a dynamic cache"
    assert not stands_for(step, {"batch": 2, "prompt": 20, "length": 96})


def test_a_dynamic_step_and_a_prefill_stand_for_no_other() -> None:
    growing = harvested(TINY, context=20, cache="dynamic")
    assert not stands_for(growing, {"batch": 2, "context": 21})
    prefill = harvested(phase="prefill", input_size=(8,), cache_length=96)
    assert not stands_for(prefill, {"batch": 2, "prompt": 9, "length": 96})


def test_a_window_is_full_in_both_or_in_neither() -> None:
    """A window of 16 positions: it is full before the step at context 16."""
    below, full = (harvested(WINDOWED, context=c, cache_length=96) for c in (15, 16))
    assert below.made != full.made
    assert stands_for(below, asked(3)) and not stands_for(below, asked(16))
    assert stands_for(full, asked(90)) and not stands_for(full, asked(15))
