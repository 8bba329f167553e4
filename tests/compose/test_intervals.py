"""Intervals, sizes of what was not measured, and notes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opdb.derive.boards import UNKNOWN_DYNAMIC_ENERGY, BoardAnchors, Factor, factors
from opdb.predict.compose import (
    ENERGY_ERROR,
    TIME_ERROR,
    ModelError,
    host_error,
    model_error,
    shared_half_width,
    sum_half_width,
)
from opdb.predict.sizes import Size, shares_of, sizes_of
from opdb.predict.timeline import PredictionInputs
from opdb.records import BETWEEN, OTHER_KINDS, ROOFLINE_ALONE, Configuration, Quantity, Workload
from tests.compose.test_composer import (
    ADD,
    CONV,
    CPU,
    FULL,
    RELU,
    Estimated,
    compose,
    cost,
    estimate,
    inputs,
    tensor,
    workload,
)


def quantity(mean: float, width: float) -> Quantity:
    return Quantity.around(mean, mean, width, 2)


def test_errors_of_operators_add_in_squares_and_of_calls_in_line() -> None:
    assert sum_half_width([(1, quantity(1, 0.3)), (1, quantity(1, 0.4))]) == pytest.approx(0.5)
    assert sum_half_width([(10, quantity(1, 0.3))]) == pytest.approx(3.0)
    assert sum_half_width([]) == sum_half_width([(3, Quantity(1, 1, None, None, 1))]) == 0


def test_what_one_factor_brings_errs_alike_and_what_two_bring_apart() -> None:
    one, other = Factor(1.1, 0.02, 6), Factor(0.9, 0.03, 6)
    width = one.half_width
    assert shared_half_width([(1.0, one)] * 100) == pytest.approx(100 * width)
    both = shared_half_width([(1.0, one), (1.0, other)])
    assert both == pytest.approx(math.hypot(width, 1.5 * width))
    assert shared_half_width([]) == 0


def test_what_comes_without_a_factor_errs_alike_from_whichever_board() -> None:
    """The boards that lend are many, the one that borrows is one."""
    bare = BoardAnchors(1.0, {})
    lent = [(amount, factors(bare, bare).dynamic_energy) for amount in (0.5, 1.0, 1.5)]
    assert shared_half_width(lent) == pytest.approx(3 * UNKNOWN_DYNAMIC_ENERGY.half_width)
    assert UNKNOWN_DYNAMIC_ENERGY.half_width == pytest.approx(2.045 * 0.0576)


def peers(*ratios: float, kernel_s: float = 20e-6) -> list[tuple[float, float]]:
    return [(ratio, kernel_s) for ratio in ratios]


LONG_S, SHORT_S = 50e-6, 3e-6
"""Mean times of kernels at batch 32 and at batch 1."""


def test_sums_of_short_kernels_err_more() -> None:
    for expected, of_short in ((TIME_ERROR, 0.0405), (ENERGY_ERROR, 0.0843)):
        long, short = expected.half_width(LONG_S), expected.half_width(SHORT_S)
        assert expected.relative < long < 1.1 * expected.relative
        assert short == pytest.approx(of_short, abs=1e-4)
        assert expected.half_width(None) > short, "where it is not known, the shortest are taken"
    made = ModelError(0.03, 4e-8)
    assert made.half_width(1e-6) == pytest.approx(0.05)
    unknown = math.hypot(0.03, 0.02)  # a kernel of 2 µs
    assert made.half_width(None) == made.half_width(0.0) == pytest.approx(unknown)


def test_runs_that_err_more_or_less_than_expected_widen_or_narrow() -> None:
    usual = TIME_ERROR.half_width(LONG_S)
    right, good = peers(*[1.0] * 12), peers(*[1.0009, 0.9991, 1.0018] * 4)
    bad = peers(*[1.2, 0.8, 1.15] * 4)
    least = model_error(TIME_ERROR, LONG_S, right)
    assert least == pytest.approx(usual * math.sqrt(4 / 16)), "the prior's four of 16 models"
    assert least < model_error(TIME_ERROR, LONG_S, good) < 1.05 * least
    assert model_error(TIME_ERROR, LONG_S, bad) > 4 * usual
    assert model_error(TIME_ERROR, LONG_S, peers(*[1.1] * 12)) > 0.12, "a bias is not fitted away"


def test_a_width_grows_as_a_students_t_that_is_fitted_to_the_errors() -> None:
    """Four runs, each off by three times its deviation: 8 v = 4 + 4 · 5 / (4 + 9 / v) · 9."""
    off = peers(*[math.exp(3 * 0.05 / 2.776)] * 4)
    variance = (124 + math.sqrt(124**2 + 4 * 32 * 36)) / 64
    found = model_error(ModelError(0.05, 0.0), None, off)
    assert found == pytest.approx(0.05 * math.sqrt(variance), rel=1e-6)


def test_an_error_is_held_against_what_its_kernels_let_expect() -> None:
    long, short = peers(*[1.06] * 6, kernel_s=LONG_S), peers(*[1.06] * 6, kernel_s=SHORT_S)
    wide, usual = (model_error(TIME_ERROR, LONG_S, each) for each in (long, short))
    assert wide > 1.5 * usual


def test_one_run_far_out_widens_little_and_too_high_weighs_as_too_low() -> None:
    assert model_error(TIME_ERROR, LONG_S, []) == TIME_ERROR.half_width(LONG_S)
    usual = model_error(TIME_ERROR, LONG_S, peers(*[1.01] * 11))
    assert usual <= model_error(TIME_ERROR, LONG_S, peers(*[1.01] * 11, 1.5)) < 1.3 * usual
    high, low = (model_error(TIME_ERROR, LONG_S, peers(each)) for each in (1.1, 1 / 1.1))
    assert high == pytest.approx(low)
    assert math.isfinite(model_error(TIME_ERROR, LONG_S, peers(0.0, 1.0)))


def test_a_host_rests_on_a_prior_until_runs_tell() -> None:
    assert host_error([]) == pytest.approx(2.776 * 0.1)
    once = math.sqrt((4 * 0.01 + math.log(1.3) ** 2) / 5)
    for ratios in ([1.3], [1 / 1.3], [1.3, 0.0]):
        assert host_error(ratios) == pytest.approx(2.571 * once)
    assert 0.02 < host_error([1.01, 0.99] * 40) < 0.06
    assert host_error([1.4, 0.7] * 4) > 0.5


def sized(asked: Configuration, *measured: tuple[Configuration, float, float | None]) -> Size:
    """Return the size of a configuration by these times (seconds) and energies (joules)."""
    costs = {c.key: cost(c, time_s, dynamic_j) for c, time_s, dynamic_j in measured}
    found = sizes_of([asked, *(c for c, _, _ in measured)], costs)[asked.key]
    assert found is not None
    return found


def size(
    asked: Configuration, *measured: tuple[Configuration, float, float | None]
) -> tuple[float, float]:
    """Return the time (µs) and the power above base power (W) of a configuration's size."""
    found = sized(asked, *measured)
    return found.time_s * 1e6, found.dynamic_energy_j / found.time_s if found.time_s else 0.0


SMALL, LARGE = (tensor(1 << 18), 10e-6, 1e-3), (tensor(1 << 20), 20e-6, 1e-3)
"""Copies of 1 and 4 MiB: they move 2 and 8 MiB in 10 and 20 µs, at 100 and 50 W."""


def ratio(mebibytes: int, time_us: float) -> float:
    """Return how many times as long as the rough device it took: 4 TB/s, and 2 µs a launch."""
    return time_us / (2 + (mebibytes << 20) / 4e6)


def test_what_is_nearest_says_most() -> None:
    time_us, watts = size(tensor(1 << 22), SMALL, LARGE)
    one, other = ratio(2, 10), ratio(8, 20)
    assert one < other and math.sqrt(one * other) < ratio(32, time_us) < other
    assert 50 < watts < 65, "twice as far, some quarter of the weight"
    assert size(tensor(1 << 20, 1), SMALL, LARGE)[0] == pytest.approx(20, rel=0.05)
    assert size(tensor(1 << 22, dtype="float16"), SMALL, LARGE)[0] < time_us


def test_only_the_three_nearest_count_and_another_dtype_is_farther() -> None:
    near = [(tensor(n << 20), 20e-6, 1e-3) for n in (3, 4, 5)]
    others = [(tensor(n), 900e-6, 1e-3) for n in (1, 1 << 24)]
    others.append((tensor(1 << 22, 1, dtype="int32"), 900e-6, 1e-3))
    found = sized(tensor(1 << 22, 1), *near, *others)
    assert found.time_s == pytest.approx(20e-6, rel=0.05)
    assert found.dynamic_energy_j == pytest.approx(found.time_s * 50)


def test_a_kind_that_nobody_measured_is_as_fast_as_others_are() -> None:
    usual = math.sqrt(ratio(2, 10) * ratio(8, 20))
    time_us, watts = size(tensor(1 << 20, kind="sigmoid"), SMALL, LARGE)
    assert ratio(8, time_us) == pytest.approx(usual)
    assert watts == pytest.approx(75), "the median of all"
    assert size(tensor(0, kind="sigmoid"), SMALL, LARGE)[0] == pytest.approx(2 * usual)
    assert size(tensor(0, kind="sigmoid"))[0] == pytest.approx(2)
    assert size(tensor(1 << 20, kind="sigmoid"))[0] == pytest.approx(2 + (8 << 20) / 4e6)


def test_what_was_measured_without_power_or_time_lends_none() -> None:
    dark, bright = (tensor(1 << 18), 1e-6, None), (tensor(1 << 20, kind="sigmoid"), 20e-6, 1e-3)
    asked, none = dark[0], (tensor(4), 0.0, 1.0)
    assert size(asked, dark, bright, none) == pytest.approx((1, 50)), "the median of the others"
    assert size(asked, dark)[1] == 100, "where no power was read"
    assert size(asked, (asked, 1e-6, -1e-3))[1] == 0, "less than none is noise"
    for little, watts in ((-1e-3, 100), (0.0, 100), (5e-7, 0.5)):
        unmetered = tensor(1 << 20, kind="sigmoid")
        found = size(unmetered, (asked, 1e-6, little), (unmetered, 2e-6, None))
        assert found[1] == pytest.approx(watts)


def test_a_kind_of_another_version_has_no_size_and_neither_has_its_model() -> None:
    tensor = {"shape": [4], "dtype": "float32"}
    foreign = Configuration("convolute", {}, {"input": tensor})
    relu = Configuration("relu", {}, {"input": tensor})
    sizes = sizes_of([foreign, relu], {})
    assert sizes[foreign.key] is None and sizes[relu.key] is not None
    assert shares_of({foreign.key: 1, relu.key: 2}, sizes, 100.0) is None
    assert shares_of({relu.key: 2}, sizes, 100.0) == {relu.key: (1.0, 1.0)}


def notes(of: Workload, rests_on: PredictionInputs, mode: str = "graph") -> tuple[str, ...]:
    return compose(of, mode, rests_on).notes  # type: ignore[arg-type]


def test_calls_count_as_often_as_they_are_made() -> None:
    known = inputs(FULL[0], cost(RELU, 1e-6, 0.0), cost(ADD, 1e-6, 0.0))
    lent = replace(known, host_s={("relu", "module"): 1e-5})
    said = notes(workload(CONV, RELU, RELU, ADD, ADD, ADD), lent, "eager")
    unknown = "host time unknown, so a pass that waits for the host may take longer: 3 calls"
    assert unknown in said
    for silent in ((lent, "graph"), (replace(lent, device=CPU), "eager")):
        assert not any("host time" in note for note in notes(workload(RELU, ADD), *silent))


def test_sizes_that_depend_on_values_are_told() -> None:
    found = Configuration("nonzero", {}, {"input": {"shape": [8], "dtype": "float32"}})
    item = Configuration("item", {}, {"input": {"shape": [], "dtype": "float32"}})
    asked = workload(CONV, found, item, found)
    eager, graph = (
        [n for n in notes(asked, inputs(), mode) if "large" in n] for mode in ("eager", "graph")
    )
    assert eager[0].startswith("calls whose results are as large as values say: nonzero ×2;")
    assert graph == [f"{eager[0]}; no CUDA graph captures them"]
    assert not any("large" in n for n in notes(workload(CONV, item), inputs()))


def test_what_lacks_an_energy_or_was_refused_is_told_once() -> None:
    dark = (cost(RELU, 1e-3), cost(ADD, 1e-3))
    [note] = [n for n in notes(workload(CONV, RELU, ADD), inputs(FULL[0], *dark)) if "energy" in n]
    assert note == "energy not known, for of these the time alone was measured: add, relu"
    refusing = Estimated(refused={RELU.key: "too large", ADD.key: "too large"})
    found = compose(workload(CONV, RELU, ADD), "graph", inputs(FULL[0], estimates=refusing))
    assert {share.configuration for share in found.missing} == {RELU, ADD}
    assert [n for n in found.notes if n.startswith("not estimated")] == ["not estimated: too large"]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (ROOFLINE_ALONE, "on a roofline alone, for nothing like it was measured"),
        (OTHER_KINDS, "on measured operators of other kinds"),
    ],
)
def test_a_doubtful_estimate_says_what_it_rests_on(flag: str, words: str) -> None:
    doubtful = replace(estimate(RELU, 1e-3, 1e-1), flags=(flag,))
    sound = estimate(ADD, 2e-3, 2e-1)
    helped = inputs(cost(CONV, 1e-3, 0.1), estimates=Estimated(doubtful, sound))
    said = notes(workload(CONV, RELU, ADD), helped)
    assert not any("between measured sizes" in note for note in said)
    lying = replace(sound, flags=(BETWEEN,))
    helped = inputs(cost(CONV, 1e-3, 0.1), estimates=Estimated(doubtful, lying))
    mixed = notes(workload(CONV, RELU, ADD), helped)
    assert "50.0 % of the time rests between measured sizes of the same calls: add" in mixed
    assert [n for n in said if "rests on" in n and "prior" not in n] == [
        f"25.0 % of the time rests {words}: relu"
    ]
