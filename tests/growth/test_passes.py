"""What of a decoder's passes grows with which size, by harvests of small models."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from opdb.growth import Growth, NotAlikeError, Rule, cached, rules, sizes_of, stands_for
from opdb.harvest.passes import harvest
from opdb.kinds.view import spec_bytes
from opdb.records import Workload
from opdb.spec import ModelSpec

pytest.importorskip("transformers")

TINY = "tests.models.decoders:llama"
WINDOWED = "tests.models.decoders:windowed"


def harvested(name: str = TINY, **said: Any) -> Workload:
    return harvest(ModelSpec(name, **{"phase": "decode", "batch_size": 2, **said}))


def test_a_size_is_a_constant_times_a_product_of_terms() -> None:
    terms = [{"batch": b, "length": n} for b, n in ((2, 32), (4, 32), (4, 80))]
    assert rules([7, 7, 7], terms) == [Rule(Fraction(7), ())]
    assert rules([64, 64, 160], terms) == [Rule(Fraction(2), ("length",))]
    [product] = rules([128, 256, 640], terms)
    assert product == Rule(Fraction(2), ("batch", "length"))
    assert product.at({"batch": 3, "length": 50}) == 300
    assert rules([17, 17, 65], terms) == [Rule(Fraction(1), ("length",), -15)]
    [shifted] = rules([17, 17, 65], terms)
    assert shifted.at({"batch": 3, "length": 50}) == 35
    assert rules([68, 68, 20], terms) == [Rule(Fraction(-1), ("length",), 100)], "what it lacks"
    assert rules([2048, 2048, 12800], terms) == [Rule(Fraction(2), ("length", "length"))], "a mask"
    assert rules([1, 2, 4], terms) == []
    with pytest.raises(NotAlikeError, match=r"1\.5"):
        rules([1, 2, 2], terms)[0].at({"batch": 3})


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_steps_below_and_beyond_a_window_are_not_alike(cache: str) -> None:
    below, beyond = (harvested(WINDOWED, context=c, cache=cache) for c in (8, 40))
    if cache == "static":  # a full window is rolled
        with pytest.raises(NotAlikeError, match="other calls"):
            Growth([below, beyond])


@pytest.mark.parametrize(
    ("said", "known", "asked"),
    [
        (("context", "cache_length"), ((8, 32), (20, 48), (21, 96)), (40, 80)),
        (("input_size", "cache_length"), (((8,), 32), ((20,), 48), ((21,), 96)), ((40,), 80)),
    ],
)
def test_the_calls_at_other_sizes_are_those_of_a_harvest(
    said: tuple[str, str], known: tuple[Any, ...], asked: Any
) -> None:
    phase = "decode" if said[0] == "context" else "prefill"
    at = [
        harvested(batch_size=b, phase=phase, **dict(zip(said, each, strict=True)))
        for b, each in ((2, known[0]), (4, known[1]), (4, known[2]))
    ]
    truth = harvested(batch_size=3, phase=phase, **dict(zip(said, asked, strict=True)))
    found = Growth(at).at(sizes_of(truth))
    assert [c.configuration for c in found.calls] == [c.configuration for c in truth.calls]
    assert found.key == truth.key


def test_what_cannot_be_told_is_refused() -> None:
    at = [harvested(context=c, cache_length=n) for c, n in ((8, 32), (20, 48))]
    sizes = sizes_of(at[0])
    with pytest.raises(NotAlikeError, match="the same batch"):
        Growth(at).at({**sizes, "batch": 5, "length": 40})
    with pytest.raises(NotAlikeError, match="other calls"):
        Growth([at[0], replace(at[1], calls=at[1].calls[1:])])


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


def test_a_window_is_full_in_both_or_in_neither() -> None:
    """A window of 16 positions: it is full before the step at context 16."""
    below, full = (harvested(WINDOWED, context=c, cache_length=96) for c in (15, 16))
    assert below.made != full.made
    assert stands_for(below, asked(3)) and not stands_for(below, asked(16))
    assert stands_for(full, asked(90)) and not stands_for(full, asked(15))


@pytest.mark.parametrize("name", [TINY, WINDOWED])
@pytest.mark.parametrize(
    "said",
    [
        {"context": 40, "cache_length": 64},
        {"context": 8, "cache_length": 64},
        {"context": 40, "cache": "dynamic"},
        {"phase": "prefill", "input_size": (48,)},
        {"phase": "prefill", "input_size": (8,)},
    ],
)
def test_calls_show_the_cache_that_a_harvest_sees(name: str, said: dict[str, Any]) -> None:
    """So that the memory of workloads is told apart that were harvested before it was recorded."""
    for batch_size in (1, 2, 5):
        workload = harvested(name, batch_size=batch_size, **said)
        assert workload.memory.cache_bytes
        assert sum(map(spec_bytes, cached(workload))) == workload.memory.cache_bytes
