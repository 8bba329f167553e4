"""What sums of left-out models err by, and the widths that are learned from that."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.intervals import score
from opdb.estimates.estimator import Estimator, Matrix, Process, unit_of
from opdb.estimates.features import features
from opdb.estimates.training import (
    CountedWork,
    Example,
    PointsLeftOut,
    SumError,
    calibrated,
    errors_of,
    width_of,
)
from tests.estimates.made import call, example, learned

FAMILIES = tuple("abcdefghijkl")
BASE_W = 60.0


def scattered(count: int = 48) -> list[Example]:
    """Calls whose times and powers scatter around a trend, four used by each of twelve families."""
    drawn = np.random.default_rng(5)
    return [
        example(
            call(2**10 + 300 * n**2),
            2e-6 + 1e-9 * n**2 * math.exp(float(drawn.normal(scale=0.2))),
            dynamic_w=100.0 * math.exp(float(drawn.normal(scale=0.1))),
            models=(FAMILIES[n % 12],),
        )
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return scattered()


@pytest.fixture(scope="module")
def estimator(examples: list[Example]) -> Estimator:
    return learned(examples)


def work(family: str, examples: list[Example], times: int = 1) -> CountedWork:
    """A workload that calls what a family alone calls, each so often and once more."""
    own = [e.configuration.key for e in examples if e.models == {family}]
    return CountedWork(family, {key: times + n for n, key in enumerate(own)})


def test_a_sum_errs_as_what_is_estimated_of_it_without_its_family(
    estimator: Estimator, examples: list[Example]
) -> None:
    rest = PointsLeftOut(estimator, examples)
    asked = work("b", examples, times=3)
    [of_time], [of_energy] = errors_of(rest, examples, [asked], BASE_W)
    costs = {e.configuration.key: e.cost for e in examples}
    estimates = rest.estimates(rest.of("b"))
    assert estimates.costs.keys() == asked.counts.keys() == rest.of("b") and len(asked.counts) == 4
    counts = {key: float(n) for key, n in asked.counts.items()}
    whole = estimates.sum_of(counts, BASE_W)
    seconds = joules = 0.0
    for key, n in asked.counts.items():
        time, dynamic = costs[key].time_s, costs[key].dynamic_energy_j
        seconds += n * time.mean
        joules += n * (BASE_W * time.mean + dynamic.mean)
    assert of_time == SumError("b", math.log(whole.time_s / seconds), whole.deviation)
    assert of_energy.error == pytest.approx(math.log(whole.energy_j / joules))
    assert of_energy.deviation == whole.deviation
    assert abs(of_time.error) > 1e-4, "it was left out"


def far_off(count: int = 4) -> list[Example]:
    """Calls a thousand times as large as all others, which one family alone uses."""
    return [
        example(call(2**30 + 2**28 * n), 1e-3 * (n + 1), dynamic_w=300.0, models=("z",))
        for n in range(count)
    ]


@pytest.mark.parametrize("left_out", ["c", "z"])
def test_left_out_estimates_are_those_learned_without_a_family(left_out: str) -> None:
    """The same kernel and the other points alone say the same, of what is far from them, too."""
    examples = [*scattered(), *far_off()]
    estimator = learned(examples)
    rest = PointsLeftOut(estimator, examples)
    found = rest.estimates(rest.of(left_out))
    family = estimator.families["memory"]
    ordered = sorted(examples, key=lambda e: e.configuration.key)
    kept = [row for row, e in enumerate(ordered) if e.models != {left_out}]
    assert family.power is not None
    assert family.metered == tuple(range(len(ordered)))

    def without(process: Process, values: Matrix) -> Process:
        return Process.through(process.kernel, process.mean, process.points[kept], values[kept])

    times = np.array([e.cost.time_s.mean for e in ordered if e.cost.time_s])
    joules = np.array([e.cost.dynamic_energy_j.mean for e in ordered if e.cost.dynamic_energy_j])
    under = np.array([estimator.roofline.time_s(features(e.configuration)) for e in ordered])
    [level] = family.levels.values()
    alone = replace(
        family,
        time=without(family.time, np.log(times / under) - family.slower.at(under) - level),
        power=without(family.power, np.log(joules / times) - family.watts.at(times)),
    )
    asked = [e.configuration for e in examples if e.models == {left_out}]
    expected = replace(estimator, families={"memory": alone}).estimate(asked)
    assert found.costs.keys() == expected.costs.keys()
    for key, cost in expected.costs.items():
        one, other = found.costs[key], cost
        assert one.time_s.mean == pytest.approx(other.time_s.mean, rel=1e-3)
        assert one.time_s.high == pytest.approx(other.time_s.high, rel=1e-3)
        assert one.dynamic_energy_j.mean == pytest.approx(other.dynamic_energy_j.mean, rel=1e-3)
        assert one.dynamic_energy_j.high == pytest.approx(other.dynamic_energy_j.high, rel=1e-3)
    counts = dict.fromkeys(found.costs, 3.0)
    stated = found.sum_of(counts, BASE_W).deviation
    assert stated == pytest.approx(expected.sum_of(counts, BASE_W).deviation, rel=1e-3)
    assert bool(expected.doubtful) is (left_out == "z")


def drawn_errors(families: int = 12, each: int = 20) -> list[SumError]:
    """Errors that are 1.5 times the unit of their deviation, or less."""
    drawn = np.random.default_rng(7)
    deviations = np.exp(drawn.uniform(math.log(0.03), math.log(0.6), size=(families, each)))
    shares = drawn.uniform(0.2, 1.0, size=(families, each))
    return [
        SumError(str(family), (-1) ** n * 1.5 * shares[family, n] * unit_of(deviation), deviation)
        for family in range(families)
        for n, deviation in enumerate(deviations[family].tolist())
    ]


def test_a_twentieth_of_the_errors_lies_outside_and_the_score_is_the_best() -> None:
    errors = drawn_errors(families=40)
    found = width_of(errors)
    outside = sum(abs(e.error) > found * unit_of(e.deviation) for e in errors)
    assert 0.03 * len(errors) < outside < 0.06 * len(errors)

    def mean_score(width: float) -> float:
        return statistics.fmean(score(e.error, width * unit_of(e.deviation)) for e in errors)

    assert mean_score(found) < min(mean_score(by * found) for by in (0.9, 1.1))


def test_calibrating_changes_the_widths_of_sums_alone(
    estimator: Estimator, examples: list[Example]
) -> None:
    works = [work(family, examples, times) for family in FAMILIES for times in (1, 5)]
    found = calibrated(estimator, examples, works, BASE_W)
    rest = PointsLeftOut(estimator, examples)
    times, energies = errors_of(rest, examples, works, BASE_W)
    assert len(times) == len(energies) == 24
    assert found.sums.time == width_of(times) != estimator.sums.time
    assert found.sums.energy == width_of(energies) != estimator.sums.energy
    assert found.families is estimator.families and found.usual is estimator.usual
