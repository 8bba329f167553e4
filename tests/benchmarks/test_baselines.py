"""The simple rules, made of the published costs of a real GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.left_out import (
    BASELINES,
    apply_rule,
    nearest_neighbour,
    plain_roofline,
    proportional_to_flops,
)
from opdb.estimates.features import features
from opdb.estimates.training import Example
from opdb.records import Configuration
from tests.estimates.made import call, example
from tests.estimates.test_training import examples

__all__ = ["examples"]


def largest(examples: list[Example], kind: str) -> Example:
    alike = [e for e in examples if e.configuration.kind == kind]
    return max(alike, key=lambda e: features(e.configuration).moved_bytes)


def doubled(configuration: Configuration) -> Configuration:
    spec = dict(configuration.inputs["input"])
    spec["shape"] = [2 * spec["shape"][0], *spec["shape"][1:]]
    return replace(configuration, inputs={**configuration.inputs, "input": spec})


@pytest.mark.parametrize(
    ("name", "times"), [("nearest neighbour", 1.0), ("nearest neighbour, scaled", 2.0)]
)
def test_a_neighbour_is_taken_as_it_is_or_brought_to_size(
    examples: list[Example], name: str, times: float
) -> None:
    known = largest(examples, "relu")
    asked = doubled(known.configuration)
    guesses = apply_rule(BASELINES[name](examples), [known.configuration, asked], "board")
    time, dynamic = known.cost.time_s, known.cost.dynamic_energy_j
    for configuration, factor in ((known.configuration, 1.0), (asked, times)):
        found = guesses.costs[configuration.key]
        assert found.time_s.mean == pytest.approx(factor * time.mean, rel=0.02)
        assert found.dynamic_energy_j.mean == pytest.approx(factor * dynamic.mean, rel=0.02)


def made() -> list[Example]:
    """Calls of 1, 2 and 4 times 512 elements: 2, 3 and 3.5 µs at 100, 120 and 140 W."""
    costs = ((8, 2.0e-6, 100.0), (16, 3.0e-6, 120.0), (32, 3.5e-6, 140.0))
    unusable = [example(call(64), 9.0, kernels=0), example(call(128), None)]
    return [*(example(call(n), t, dynamic_w=w) for n, t, w in costs), *unusable]


def test_time_and_energy_in_proportion_to_operations_add_up_to_what_was_measured() -> None:
    rule = proportional_to_flops(made())
    time_s, joules = rule(features(call(56)))
    assert time_s == pytest.approx(8.5e-6)
    assert joules == pytest.approx(2.0e-6 * 100 + 3.0e-6 * 120 + 3.5e-6 * 140)
    assert rule(features(call(28))) == pytest.approx((time_s / 2, joules / 2))


def test_the_plain_roofline_is_the_best_rate_at_the_usual_power() -> None:
    """The best rate is that of 32 x 64 elements, read and written, in 3.5 µs."""
    time_s, joules = plain_roofline(made())(features(call(64)))
    assert time_s == pytest.approx(7.0e-6)
    assert joules == pytest.approx(7.0e-6 * 120)


def test_the_nearest_is_of_its_kind_first_then_of_its_dtype() -> None:
    others = [
        example(call(64, "softmax"), 1e-6, dynamic_w=1.0),
        example(call(64, dtype="int32"), 2e-6, dynamic_w=2.0),
    ]
    examples = [*others, *made()]
    nearest, scaled = nearest_neighbour(examples), nearest_neighbour(examples, scaled=True)
    assert nearest(features(call(60))) == pytest.approx((3.5e-6, 3.5e-6 * 140))
    assert nearest(features(call(60, "softmax"))) == pytest.approx((1e-6, 1e-6))
    assert nearest(features(call(10, dtype="int32"))) == pytest.approx((2e-6, 4e-6))
    assert nearest(features(call(10))) == pytest.approx((2e-6, 2e-6 * 100))
    time_s, joules = scaled(features(call(64)))
    # Its roofline: 1 µs, and 1 µs for what the softmax of this size moves, half for half of it.
    assert (time_s, joules) == pytest.approx((3.5e-6 * 2 / 1.5, 140 * 3.5e-6 * 2 / 1.5))
    neighbour = example(Configuration("linear", {}, {**call(8).inputs, **_weight()}), 1e-5)
    assert nearest_neighbour([*examples, neighbour])(features(call(8, "mul"))) == pytest.approx(
        nearest(features(call(8, "mul")))
    )


def _weight() -> dict[str, dict[str, object]]:
    return {"weight": {"shape": [64, 64], "dtype": "float32", "role": "weight"}}
