"""What of a decoder's passes grows with which size, by harvests of small models."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from opdb.growth import Growth, NotAlikeError, Rule, rules, sizes_of
from opdb.harvest import harvest
from opdb.models import ModelRequest
from opdb.records import Configuration, Workload
from tests.compose.test_ladder import step

pytest.importorskip("transformers")

TINY = "tests.models.decoders:llama"
WINDOWED = "tests.models.decoders:windowed"


def harvested(name: str = TINY, **said: Any) -> Workload:
    return harvest(ModelRequest(name, **{"phase": "decode", "batch_size": 2, **said}))


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


def test_two_passes_show_what_grows() -> None:
    assert Growth([step(512), step(1024)]).grows() == {"relu": {"length"}}


def test_passes_in_two_dtypes_are_not_alike() -> None:
    other = step(1024)
    spec = {"shape": [2, 1024], "dtype": "bfloat16"}
    halved = replace(other.calls[0], configuration=Configuration("relu", {}, {"input": spec}))
    passes = [step(512), replace(other, calls=(halved, *other.calls[1:]))]
    with pytest.raises(NotAlikeError):
        Growth(passes).at({**sizes_of(step(512)), "length": 700})


def test_a_static_step_grows_with_the_allocated_length_alone() -> None:
    at = [harvested(context=c, cache_length=n) for c, n in ((8, 32), (20, 48), (21, 96))]
    grows = Growth(at).grows()
    assert {"index_copy", "scaled_dot_product_attention"} <= grows.keys()
    assert set().union(*grows.values()) == {"length"}


def test_a_dynamic_step_grows_with_the_filled_length() -> None:
    at = [harvested(context=c, cache="dynamic") for c in (8, 20, 50)]
    grows = Growth(at).grows()
    assert grows["cat"] == {"context"}
    assert grows["scaled_dot_product_attention"] == {"context + 1"}
    assert "linear" not in grows


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_steps_below_and_beyond_a_window_are_not_alike(cache: str) -> None:
    below, beyond = (harvested(WINDOWED, context=c, cache=cache) for c in (8, 40))
    if cache == "static":  # a full window is rolled
        with pytest.raises(NotAlikeError, match="other calls"):
            Growth([below, beyond])
    later = harvested(WINDOWED, context=80, cache=cache)
    grown = {kind for kind, of in Growth([beyond, later]).grows().items() if of}
    assert "scaled_dot_product_attention" not in grown  # a full window grows no more


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
