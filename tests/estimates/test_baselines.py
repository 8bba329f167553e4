"""The simple rules, made of the published costs of a real GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.estimates.baselines import BASELINES, apply_rule
from opdb.estimates.features import features
from opdb.estimates.training import Example
from opdb.records import Configuration
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
    assert time is not None and dynamic is not None
    for configuration, factor in ((known.configuration, 1.0), (asked, times)):
        found = guesses.costs[configuration.key]
        assert found.time_s is not None and found.dynamic_energy_j is not None
        assert found.time_s.mean == pytest.approx(factor * time.mean, rel=0.02)
        assert found.dynamic_energy_j.mean == pytest.approx(factor * dynamic.mean, rel=0.02)


@pytest.mark.parametrize("name", BASELINES)
def test_a_call_that_launches_nothing_costs_nothing(examples: list[Example], name: str) -> None:
    flatten = next(e.configuration for e in examples if e.configuration.kind == "flatten")
    [found] = apply_rule(BASELINES[name](examples), [flatten], "board").costs.values()
    assert found.time_s is not None and found.time_s.mean == 0
