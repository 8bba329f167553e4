"""What training makes of made-up costs: points, levels, medians, and errors of what is left out."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from opdb.errors import InputError
from opdb.estimates.estimator import Covariance, Process, Widths
from opdb.estimates.features import KIND, Features, features
from opdb.estimates.training import (
    Example,
    _conformal,
    _folds,
    _left_out,
    _LeftOut,
    _trend,
)
from opdb.records import Configuration
from tests.estimates.made import call, example, learned

MODELS = ("alexnet", "bert", "resnet", "vgg")


def scattered(count: int = 24, kind: str = "relu") -> list[Example]:
    """Calls whose times and powers scatter around a trend, six used by each of four models."""
    drawn = np.random.default_rng(5)
    return [
        example(
            call(2**10 + 300 * n**2, kind),
            2e-6 + 1e-9 * n**2 * math.exp(float(drawn.normal(scale=0.2))),
            dynamic_w=100.0 * math.exp(float(drawn.normal(scale=0.1))),
            models=(MODELS[n % 4],),
        )
        for n in range(count)
    ]


def test_twelve_calls_of_a_family_are_enough() -> None:
    relus, softmaxes = scattered(12), scattered(8, "softmax")
    assert learned(relus).configurations == 12
    both = learned(relus[:8] + softmaxes).families["memory"]
    assert sorted(both.levels) == ["relu", "softmax"]
    lengths = dict(zip(both.columns, both.time.kernel.lengths, strict=True))
    of_kinds = {lengths.pop(name) for name in list(lengths) if name.startswith(KIND)}
    assert len(of_kinds) == 1 and len({*lengths.values()}) > 1, "kinds share one"
    with pytest.raises(InputError, match=r"learn from: 11 measured configurations; it takes 12$"):
        learned(relus[:11])
    weight = {"shape": [64, 64], "dtype": "float32", "role": "weight"}
    linears = [
        example(
            Configuration("linear", {}, {**call(8 * n).inputs, "weight": weight}), 1e-6 * (n + 1)
        )
        for n in range(1, 12)
    ]
    assert learned(relus + linears).families.keys() == {"memory"}
    another = example(Configuration("mm", {}, {"input": weight, "mat2": weight}), 1e-6)
    assert learned([*relus, *linears, another]).families.keys() == {"memory", "matrix"}


def test_power_is_learned_from_those_that_have_one() -> None:
    found = learned(scattered())
    family = found.families["memory"]
    assert family.metered == tuple(range(24))
    assert family.power.mean == pytest.approx(0.0, abs=1e-5)
    times_s = [e.cost.time_s.mean for e in scattered() if e.cost.time_s]
    usual_w = math.exp(float(np.mean(family.watts.at(times_s))))
    assert usual_w == pytest.approx(100.0, rel=0.1)
    assert family.power.kernel.variance < 1.0, "it is of what lies around the mean"
    for metered, learns in ((11, False), (12, True)):
        some = [
            e if n < metered else example(e.configuration, 1e-6 * (n + 2), dynamic_w=None)
            for n, e in enumerate(scattered())
        ]
        family = learned(some).families["memory"]
        assert (family.power is not None) == learns == (family.reach.energy is not None)
        by_key = sorted(some, key=lambda e: e.configuration.key)
        rows = [n for n, e in enumerate(by_key) if e.cost.dynamic_energy_j is not None]
        assert family.metered == (tuple(rows) if learns else ())
    none = [example(e.configuration, 1e-6, dynamic_w=0.0) for e in scattered()]
    assert learned(none).families["memory"].power is None, "no watts have no logarithm"


def of(kind: str, **given: float) -> Features:
    return Features(kind, "memory", "float32", 1.0, 1.0, True, given)


KERNEL = Covariance(variance=0.7, lengths=(0.8, 2.0), noise=0.02)
DRAWN = np.random.default_rng(3)
POINTS, VALUES = DRAWN.normal(size=(12, 2)), DRAWN.normal(size=12)
FOLDS = ["b", "a", "b", "c", "a", "b", "c", "c", "a", "b", "c", "b"]


def test_what_is_left_out_is_estimated_as_by_learning_from_the_others() -> None:
    process = Process.through(KERNEL, 0.25, POINTS, VALUES)
    found = _left_out(process, VALUES, FOLDS)
    assert list(found) == ["a", "b", "c"]
    for fold, left in found.items():
        out = [n for n, each in enumerate(FOLDS) if each == fold]
        kept = [n for n, each in enumerate(FOLDS) if each != fold]
        others = Process.through(KERNEL, 0.25, POINTS[kept], VALUES[kept])
        expected, covariance = others.at(POINTS[out])
        assert left.rows == out
        assert left.errors == pytest.approx(expected - VALUES[out], abs=1e-5)
        assert left.covariance == pytest.approx(covariance, abs=1e-9)
        deviations = np.sqrt(np.diag(covariance))
        assert left.normalised() == pytest.approx(left.errors / deviations, abs=1e-9)


def test_one_models_own_calls_are_left_out_together_and_the_others_by_lot() -> None:
    users = [*("a", "b", "c") * 3, None, None]
    points = [example(call(1), 1.0, models=(user,) if user else ()) for user in users]
    rows = list(range(len(points)))
    assert _folds(points, rows) == [*("a", "b", "c") * 3, "part 1", "part 2"]
    lots = [f"part {n % 8}" for n in rows]
    assert _folds(points, [0, 3, 1]) == lots, "two models have a power"
    assert _folds(points, [0, 1, 2]) == _folds(points, []) == [*"abcabcabc", "part 1", "part 2"]
    assert _folds(points[:2], []) == ["part 0", "part 1"]


@pytest.mark.parametrize(("count", "rank"), [(1, 1), (18, 18), (19, 19), (38, 38), (39, 38)])
def test_a_reach_is_the_conformal_quantile(count: int, rank: int) -> None:
    errors = [(-1) ** n * float(n) for n in range(1, count + 1)]
    DRAWN.shuffle(errors)
    assert _conformal(errors) == rank


def test_what_is_usual_follows_lines_by_time() -> None:
    """A fall that is one line is found as it is, though there are knots to bend at."""
    times_s = 1e-6 * np.array([1.0, 2.0, 3.0, 30.0, 300.0, 1000.0] * 20)
    falling = 2.0 - 0.2 * np.log(times_s / 1e-6)
    for knots in (2, 8):
        found = _trend(times_s, falling, knots)
        assert len(found.knots) == knots
        assert found.at([1e-6, 3e-5, 1e-3]) == pytest.approx([2.0, 1.32, 0.618], abs=1e-3)
        assert found.at([1e-9, 1.0]) == pytest.approx(found.at([1e-6, 1e-3])), "as at the ends"
    bent = np.minimum(falling, 1.5)
    assert _trend(times_s, bent, 8).at([1e-6, 1e-3]) == pytest.approx([1.5, 0.618], abs=0.1)
    alone = _trend(np.full(12, 1e-5), np.full(12, 0.7), 8)
    assert alone.at([1e-6, 1e-5, 1.0]) == pytest.approx([0.7] * 3)


def test_reaches_hold_what_was_left_out() -> None:
    """Times and energies of single calls; sums are as wide until more is known of them."""
    examples = sorted(scattered(48), key=lambda e: e.configuration.key)
    found = learned(examples)
    family = found.families["memory"]
    assert family.power is not None
    times_s = [e.cost.time_s.mean for e in examples if e.cost.time_s]
    joules = [e.cost.dynamic_energy_j.mean for e in examples if e.cost.dynamic_energy_j]
    under_s = [found.roofline.time_s(features(e.configuration)) for e in examples]
    [level] = family.levels.values()
    above = np.log(np.array(times_s) / under_s) - family.slower.at(under_s) - level
    watts = np.log(np.array(joules) / times_s) - family.watts.at(times_s)
    assert family.time.mean == pytest.approx(statistics.fmean(above), abs=1e-6)
    folds = [next(iter(e.models)) for e in examples]
    by_time = _left_out(family.time, above, folds)
    by_power = _left_out(family.power, watts, folds)
    single: dict[str, list[float]] = {"time": [], "energy": []}
    for fold, time in by_time.items():
        power = by_power[fold]
        both = _LeftOut(time.rows, time.errors + power.errors, time.covariance + power.covariance)
        for name, left in (("time", time), ("energy", both)):
            single[name] += left.normalised()
    reach = family.reach
    assert (reach.time, reach.energy) == (_conformal(single["time"]), _conformal(single["energy"]))
    assert reach.energy is not None and reach.energy != reach.time
    assert found.sums == Widths(reach.time, reach.energy)
    dark = [replace(e, cost=replace(e.cost, dynamic_energy_j=None)) for e in examples]
    unmetered = learned(dark)
    assert unmetered.families["memory"].reach == Widths(reach.time, None)
    assert unmetered.sums == Widths(reach.time, None)
