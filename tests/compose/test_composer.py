"""The composer: on hand-made costs of a made-up board, and on the published set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from opdb.derive.boards import Factor, Factors
from opdb.memory import touched_bytes
from opdb.predict.compose import (
    ENERGY_ERROR,
    NO_CALLS,
    STARTED_EARLIER_S,
    TIME_ERROR,
    Prediction,
    compose_pass,
    host_error,
    inputs_in_pass,
    shortfall,
)
from opdb.predict.timeline import Pass, PredictionInputs, timed_pass, with_weights_found
from opdb.records import (
    AfterOthers,
    Calibration,
    Call,
    Configuration,
    Cost,
    Device,
    Form,
    Mode,
    OperatingPoint,
    Quantity,
    RunRatio,
    Workload,
    mean_of,
)
from tests.store import samples

MODES: tuple[Mode, ...] = ("eager", "graph")
GPU = Device("a-gpu", "a made-up GPU", "cuda", 400.0, None, None, None)
CPU = replace(GPU, type="cpu", power_limit_w=None)
CALIBRATION = Calibration(100.0, (99.0, 101.0), 2e-6, None, None, None)
CONV, RELU, ADD = samples.CONV, samples.RELU, samples.ADD
ITEM = Configuration("item", {}, {"input": {"shape": [], "dtype": "float32"}})


def quantity(mean: float, share: float = 0.01) -> Quantity:
    return Quantity(mean, mean, mean * (1 - share), mean * (1 + share), 2)


def cost(
    configuration: Configuration,
    time_s: float | None,
    dynamic_j: float | None = None,
    host: dict[Form, float] | None = None,
    eager_s: float | None = None,
) -> Cost:
    return Cost(
        configuration=configuration.key,
        board="b",
        setting="{}",
        estimator="1",
        visits=2,
        kernels=1,
        time_s=None if time_s is None else quantity(time_s),
        eager_time_s=None if eager_s is None else quantity(eager_s),
        power_w=None,
        energy_j=None,
        dynamic_energy_j=None if dynamic_j is None else quantity(dynamic_j),
        host_time_s={form: quantity(value) for form, value in (host or {}).items()},
    )


def workload(*configurations: Configuration, **changes: Any) -> Workload:
    calls = tuple(Call(c, "module") for c in configurations)
    plain = replace(samples.workload(), calls=calls, containers=0, unsupported={})
    return replace(plain, **changes)


def inputs(*costs: Cost, **changes: Any) -> PredictionInputs:
    found = PredictionInputs(GPU, "b", CALIBRATION, {c.configuration: c for c in costs})
    return replace(found, **changes)


def compose(workload: Workload, mode: Mode, inputs: PredictionInputs) -> Prediction:
    pass_ = Pass(workload)
    return compose_pass(pass_, mode, inputs_in_pass(pass_, inputs))


def waiting(*ratios: float) -> list[RunRatio]:
    return [RunRatio(ratio, None, None, waits=True) for ratio in ratios]


FULL = (
    cost(CONV, 3e-3, 0.6, {"module": 1e-4}, eager_s=3.2e-3),
    cost(RELU, 1e-3, 0.1, {"module": 2e-5}),
    cost(ADD, 5e-4, 0.05, {"module": 3e-5}),
)


def whole(prediction: Prediction, share: Callable[[Any], float]) -> float:
    return sum(map(share, (*prediction.parts, *prediction.missing)))


def test_a_graph_is_the_sum_of_its_operators() -> None:
    found = compose(workload(CONV, RELU, RELU), "graph", inputs(*FULL))
    assert found.time_s == pytest.approx(5e-3)
    assert found.energy_j == pytest.approx(100 * 5e-3 + 0.8)
    assert found.power_w == pytest.approx(1.3 / 5e-3)
    assert (found.coverage_calls, found.coverage_time, found.coverage_energy) == (1, 1, 1)
    assert found.missing == ()


def test_a_host_bound_pass_takes_host_times_and_containers() -> None:
    small = [replace(c, time_s=quantity(1e-6), eager_time_s=None) for c in FULL]
    found = compose(workload(CONV, RELU, containers=10), "eager", inputs(*small))
    assert found.time_s == pytest.approx(1.2e-4 + 10 * 2e-6)
    asked = workload(CONV, RELU, containers=10, around=35.5)
    timed = compose(asked, "eager", inputs(*small))
    assert timed.time_s == pytest.approx(1.2e-4 + 35.5 * 2e-6)
    unquiet = compose(asked, "eager", inputs(*small, quiet_host=False))
    assert unquiet.time_s == pytest.approx(1.2e-4 + 10 * 2e-6)


def test_on_a_processor_host_times_are_no_part_of_a_pass() -> None:
    found = compose(workload(CONV, RELU, containers=10), "eager", inputs(*FULL, device=CPU))
    assert found.time_s == pytest.approx(4.2e-3 + 10 * 2e-6)
    asked = workload(CONV, RELU, containers=10, around=0.0)
    assert compose(asked, "eager", inputs(*FULL, device=CPU)).time_s == pytest.approx(4.2e-3)


def test_the_host_waits_for_what_a_mask_keeps_but_not_for_an_index() -> None:
    values = {"shape": [8], "dtype": "float32"}
    index = {"shape": [8], "dtype": "bool"}
    masked = Configuration("getitem", {}, {"input": values, "index": [index]})
    places = replace(masked, inputs={"input": values, "index": [{**index, "dtype": "int64"}]})
    costs = (*FULL, *(cost(each, 0.0, 0.0, {"module": 1e-3}) for each in (masked, places)))
    waiting, free = (
        compose(workload(CONV, RELU, each), "eager", inputs(*costs)).time_s
        for each in (masked, places)
    )
    assert free == pytest.approx(3.2e-3 + 1e-3)
    assert waiting == pytest.approx(1e-4 + 3.2e-3 + 1e-3)


def test_the_devices_work_in_the_host_time_of_a_call_that_waits_counts_once() -> None:
    """Heard for 1 ms, of which the device works 0.4 ms: 0.6 ms of issuing, then these 0.4 ms."""
    costs = (*FULL, cost(ITEM, 4e-4, 0.0, {"module": 1e-3}))
    shorter = (*FULL, cost(ITEM, 4e-4, 0.0, {"module": 3e-4}))
    asked = workload(CONV, RELU, ITEM)
    none = compose(asked, "eager", inputs(*FULL, cost(ITEM, 0.0, 0.0, {"module": 0.0}))).time_s
    assert compose(asked, "eager", inputs(*costs)).time_s == pytest.approx(none + 4e-4)
    assert compose(asked, "eager", inputs(*shorter)).time_s == pytest.approx(none + 4e-4)
    alone = compose(workload(ITEM, ITEM), "eager", inputs(*costs)).time_s
    assert alone == pytest.approx(2e-3)


def test_an_unheard_form_takes_the_median_of_its_kind_and_is_else_told() -> None:
    other = replace(RELU, inputs={"input": {"shape": [7], "dtype": "float32"}})
    costs = (cost(RELU, 1e-6, 0.0, {"module": 2e-5}), cost(other, 1e-6, 0.0))
    found = compose(workload(RELU, other), "eager", inputs(*costs))
    assert found.time_s == pytest.approx(4e-5)
    assert not any("host time" in note for note in found.notes)
    silent = compose(workload(RELU, ADD), "eager", inputs(*costs, cost(ADD, 1e-6, 0.0)))
    said = "host time unknown, so a pass that waits for the host may take longer: 1 call"
    assert said in silent.notes
    assert not any("host time" in n for n in compose(workload(ADD), "graph", inputs()).notes)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_missing_is_listed_by_its_share_and_not_in_the_sums(mode: Mode) -> None:
    big = replace(RELU, inputs={"input": {"shape": [64, 64, 64], "dtype": "float32"}})
    found = compose(workload(CONV, RELU, big, big, ADD), mode, inputs(FULL[0]))
    alone = compose(workload(CONV), mode, inputs(FULL[0]))
    assert found.time_s == alone.time_s and found.energy_j == alone.energy_j
    largest = found.missing[0]
    assert (largest.configuration, largest.count) == (big, 2)
    times = [s.share_time for s in found.missing]
    assert times == sorted(times, reverse=True) and min(times) > 0
    assert found.coverage_calls == pytest.approx(1 / 5)
    assert whole(found, lambda s: s.share_time) == pytest.approx(1)
    assert whole(found, lambda s: s.share_energy) == pytest.approx(1)
    assert found.coverage_time + sum(times) == pytest.approx(1)
    assert 0 < found.coverage_time < 1 and 0 < found.coverages["energy"] < 1


VIEW = Configuration("t", {}, {"input": {"shape": [3, 4], "dtype": "float32"}})


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_nothing_is_covered_where_nothing_that_works_is_described(mode: Mode) -> None:
    """All of nothing would be 100 %."""
    found = compose(workload(unsupported={"torch.odd": 2}), mode, inputs(*FULL))
    assert (found.coverage_calls, found.coverage_time, found.coverage_energy) == (0, 0, None)
    assert found.time_s is None and found.energy_j is None and not found.complete
    view = cost(VIEW, 0.0, 0.0, {"module": 1e-6})
    for views in (inputs(view), inputs()):
        found = compose(workload(VIEW, unsupported={"torch.odd": 2}), mode, views)
        assert found.coverage_time == 0 and not any(found.coverages.values())
    alone = compose(workload(VIEW), mode, inputs(view))
    assert (alone.coverage_time, alone.coverage_energy, alone.complete) == (1, 1, True)


def test_where_an_operator_has_no_energy_the_sums_is_not_known() -> None:
    dark = cost(RELU, 1e-3, None, {"module": 2e-5})
    found = compose(workload(CONV, RELU), "graph", inputs(FULL[0], dark))
    assert found.complete and found.coverage_time == 1 and found.time_interval_s is not None
    assert found.energy_j is None and found.energy_interval_j is None
    assert 0 < found.coverages["energy"] < 0.9, "its energy was not measured: it is not covered"
    assert "energy not known, for of these the time alone was measured: relu" in found.notes


def test_without_power_there_is_no_energy_rather_than_none() -> None:
    no_base = replace(CALIBRATION, base_power_w=None)
    found = compose(workload(CONV), "graph", inputs(FULL[0], calibration=no_base))
    assert (found.energy_j, found.energy_interval_j, found.power_w) == (None, None, None)
    assert found.total.widths_energy == (0.0, 0.0) and min(found.total.widths_time) > 0
    two = inputs(cost(CONV, 1e-3, 0.3), cost(RELU, 1e-3, 0.1), calibration=no_base)
    parts = compose(workload(CONV, RELU), "graph", two).parts
    assert [part.share_energy for part in parts] == pytest.approx([0.75, 0.25])
    found = compose(workload(CONV), "graph", inputs(cost(CONV, 1e-3)))
    assert found.energy_j is None and found.time_s == pytest.approx(1e-3)
    part = compose(workload(CONV, RELU), "graph", inputs(cost(CONV, 1e-3)))
    [missing] = part.missing
    assert part.coverage_time + missing.share_time == pytest.approx(1)
    known, asked = tensor(1 << 20), tensor(1 << 22)
    found = compose(workload(known, asked), "graph", inputs(cost(known, 1e-3, 0.1)))
    # By the nearest of its kind, in proportion to 2 µs and what it moves at 4 TB/s.
    rough_us = (2 + (8 << 20) / 4e6, 2 + (32 << 20) / 4e6)
    assert found.missing[0].share_time == pytest.approx(rough_us[1] / sum(rough_us))


HALF = math.log(1.01 / 0.99) / 2
"""Half the relative width of the costs that `quantity` makes."""

HOT = replace(
    cost(CONV, 1e-3, 0.5, {"module": 1e-5}),
    clock_hz=2e9,
    limited=OperatingPoint(1e9, 1e-3 * 2**0.5, 0.25),
)
"""A convolution that draws 600 W; at half the clock it takes √2 of the time and half the energy."""


def test_widths_of_costs_and_of_base_power_are_joined() -> None:
    """Two calls of one configuration err alike, two configurations apart; base power is ± 1 W."""
    found = compose(workload(CONV, RELU, RELU), "graph", inputs(*FULL))
    of_time = HALF * math.hypot(3e-3, 2e-3) / 5e-3
    of_energy = math.hypot(HALF * math.hypot(0.6, 0.2), 1.0 * 5e-3) / 1.3
    below = math.hypot(of_time, math.log1p(-3 * STARTED_EARLIER_S / 5e-3))  # 3 kernels of a graph
    assert found.total.widths_time == pytest.approx((below, of_time))
    assert found.total.widths_energy == pytest.approx((of_energy, of_energy))
    assert found.total.kernel_s == pytest.approx(5e-3 / 3)
    assert found.time_s and found.time_interval_s and found.energy_j and found.energy_interval_j
    for value, ends, widths, error in (
        (found.time_s, found.time_interval_s, found.total.widths_time, TIME_ERROR),
        (found.energy_j, found.energy_interval_j, found.total.widths_energy, ENERGY_ERROR),
    ):
        low, high = (math.hypot(width, error.half_width(5e-3 / 3)) for width in widths)
        assert ends == pytest.approx((value * math.exp(-low), value * math.exp(high)))
    eager = compose(workload(CONV, RELU, RELU), "eager", inputs(*FULL))
    assert eager.total.widths_time[0] == pytest.approx(eager.total.widths_time[1])
    surely = replace(CALIBRATION, base_power_interval_w=None)
    narrow = compose(workload(CONV, RELU, RELU), "graph", inputs(*FULL, calibration=surely))
    assert narrow.total.widths_energy == pytest.approx((HALF * math.hypot(0.6, 0.2) / 1.3,) * 2)


def test_factors_between_boards_widen_what_they_brought() -> None:
    """Both convolutions and no ReLU, by one factor: its error is common to all that it scales."""
    time, dynamic = Factor(1.1, 0.02, 6), Factor(0.9, 0.05, 6)
    brought = {CONV.key: Factors(None, time, dynamic)}
    found = compose(workload(CONV, CONV, RELU), "graph", inputs(*FULL, brought=brought))
    own_s, own_j = HALF * math.hypot(6e-3, 1e-3), HALF * math.hypot(1.2, 0.1)
    of_time = math.hypot(own_s, 6e-3 * time.half_width) / 7e-3
    of_energy = math.hypot(own_j, 7e-3, 1.2 * dynamic.half_width) / 2.0
    below = math.hypot(of_time, math.log1p(-3 * STARTED_EARLIER_S / 7e-3))
    assert found.total.widths_time == pytest.approx((below, of_time))
    assert found.total.widths_energy == pytest.approx((of_energy, of_energy))


def test_estimates_widen_by_what_they_say_of_themselves() -> None:
    """They may take three times as long, or a third, but never less than nothing."""
    estimated = Estimated(estimate(RELU, 1e-3, 0.1), half_width=1.1)
    found = compose(workload(CONV, RELU, RELU), "graph", inputs(FULL[0], estimates=estimated))
    for widths, known, share in (
        (found.total.widths_time, HALF * 3e-3 / 5e-3, 2e-3 / 5e-3),
        (found.total.widths_energy, math.hypot(HALF * 0.6, 5e-3) / 1.3, (100 * 2e-3 + 0.2) / 1.3),
    ):
        below, above = (math.log1p(share * math.expm1(by)) for by in (-1.1, 1.1))
        assert widths == pytest.approx((math.hypot(known, below), math.hypot(known, above)))
    less = Estimated(estimate(RELU, 1e-3, -0.3), half_width=1.1)
    found = compose(workload(CONV, RELU, RELU), "graph", inputs(FULL[0], estimates=less))
    assert found.energy_j == pytest.approx(0.5)
    only = math.hypot(HALF * 0.6, 5e-3) / 0.5
    assert found.total.widths_energy == pytest.approx((only, only)), "below 0 there is no ratio"


def test_a_pass_is_host_bound_from_1_percent_over_its_device_time_on() -> None:
    for host_s, bound in ((1.009e-3, False), (1.011e-3, True)):
        one = cost(CONV, 1e-3, 0.1, {"module": host_s})
        assert compose(workload(CONV), "eager", inputs(one)).host_bound is bound


def test_kernels_count_as_one_a_call_where_nobody_counted_them() -> None:
    counted, unknown = replace(FULL[0], kernels=4), replace(FULL[1], kernels=None)
    found = compose(workload(CONV, RELU, RELU), "graph", inputs(counted, unknown))
    assert found.total.kernel_s == pytest.approx(5e-3 / 6)
    assert compose(workload(), "graph", inputs()).total.kernel_s is None


def test_the_usual_host_time_is_the_median_of_the_pass_before_that_of_the_board() -> None:
    shapes = [replace(RELU, inputs={"input": {"shape": [n], "dtype": "float32"}}) for n in (2, 3)]
    costs = [
        cost(each, 1e-6, 0.0, {"module": host_s})
        for each, host_s in zip((RELU, *shapes), (1e-5, 2e-5, 9e-5), strict=True)
    ]
    silent = replace(RELU, inputs={"input": {"shape": [4], "dtype": "float32"}})
    asked = workload(RELU, *shapes, silent, CONV)
    known = inputs(*costs, cost(silent, 1e-6, 0.0), cost(CONV, 1e-6, 0.0))
    lent = replace(known, host_s={("relu", "module"): 5e-3, ("conv2d", "module"): 4e-5})
    assert compose(asked, "eager", lent).time_s == pytest.approx(12e-5 + 2e-5 + 4e-5)
    guessed = replace(costs[0], visits=0)
    estimated = {**lent.costs, RELU.key: guessed}
    found = compose(asked, "eager", replace(lent, costs=estimated))
    assert found.time_s == pytest.approx(11e-5 + 2 * 5.5e-5 + 4e-5), "an estimate heard no host"


@pytest.mark.parametrize("mode", MODES)
def test_the_power_limit_lowers_the_clock_until_it_is_kept(mode: Mode) -> None:
    """Alone 600 W; half the clock takes √2 of the time and half the energy (exponents ½ and 1)."""
    limited = OperatingPoint(1e9, 1e-3 * 2**0.5, 0.25)
    hot = replace(cost(CONV, 1e-3, 0.5, {"module": 1e-5}), clock_hz=2e9, limited=limited)
    found = compose(workload(CONV), mode, inputs(hot))
    assert found.power_w == pytest.approx(400)
    share = (1e-3 / found.time_s) ** 2
    assert 0.5 < share < 1
    assert found.energy_j == pytest.approx(100 * found.time_s + 0.5 * share)
    [note] = [n for n in found.notes if "power limit" in n]
    assert note.endswith(f"kept at 400 W, lowers the clock to {100 * share:.1f} % of its highest")
    low, high = found.time_interval_s or (0.0, 0.0)
    plain = compose(workload(CONV), mode, inputs(cost(CONV, found.time_s, 0.1, {"module": 1e-5})))
    usual = plain.time_interval_s or (0.0, 0.0)
    assert high - low > usual[1] - usual[0], "how well the limit is kept is part of the interval"
    free = compose(workload(CONV), mode, inputs(hot, device=replace(GPU, power_limit_w=None)))
    assert free.time_s == pytest.approx(1e-3)
    assert free.power_w == pytest.approx(600)
    cool = compose(workload(CONV), mode, inputs(*FULL))
    assert not any("power limit" in note for note in cool.notes)


def width_s(prediction: Prediction) -> float:
    assert prediction.time_interval_s is not None
    low_s, high_s = prediction.time_interval_s
    return (high_s - low_s) / 2


def test_an_uneven_host_widens_what_waits_for_it_alone() -> None:
    small = [replace(c, time_s=quantity(1e-6), eager_time_s=None) for c in FULL]
    even, uneven = inputs(*small), inputs(*small, peers=waiting(1.4, 0.7, 1.3, 0.8))
    before, after = (compose(workload(CONV, RELU), "eager", g) for g in (even, uneven))
    assert (after.time_s, after.energy_j) == (before.time_s, before.energy_j)
    assert 0.5 * after.time_s < width_s(after) < 1.0 * after.time_s
    for side in (0, 1):
        host = math.sqrt(after.total.widths_time[side] ** 2 - before.total.widths_time[side] ** 2)
        assert host == pytest.approx(host_error((1.4, 0.7, 1.3, 0.8))), "faster as well as slower"
        host_s = abs(math.expm1((-host, host)[side])) * after.time_s
        of_base = abs(math.log1p((-100, 100)[side] * host_s / after.energy_j))
        assert after.total.widths_energy[side] == pytest.approx(
            math.hypot(before.total.widths_energy[side], of_base)
        )
    for mode, costs in zip(MODES, (FULL, small), strict=True):
        before, after = (
            compose(workload(CONV, RELU), mode, replace(g, costs=inputs(*costs).costs))
            for g in (even, uneven)
        )
        assert after == before, mode


def test_an_uneven_host_saves_no_more_than_there_is() -> None:
    """Dynamic energies may lie below 0: what a faster host saves of base power is more than all."""
    below = Quantity(-4e-3, -4e-3, None, None, 2)
    small = [replace(c, time_s=quantity(1e-6), eager_time_s=None) for c in FULL]
    costs = [replace(c, dynamic_energy_j=below) for c in small]
    found = compose(workload(CONV, RELU), "eager", inputs(*costs, peers=waiting(9.0, 0.1)))
    low_j, high_j = found.energy_interval_j
    assert 0 < low_j < found.energy_j < high_j


def test_a_host_that_hides_behind_the_device_by_little_may_not_do_so_always() -> None:
    slow = [replace(c, host_time_s={"module": quantity(2e-3)}) for c in FULL]
    found = compose(workload(CONV, RELU), "eager", inputs(*slow, peers=waiting(*(1.4, 0.7) * 4)))
    assert not found.host_bound
    assert found.time_interval_s is not None
    low_s, high_s = found.time_interval_s
    assert high_s > 1.3 * found.time_s
    assert low_s > 0.9 * found.time_s, "the device takes its time, however fast the host"


def test_other_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="not 'trace'"):
        compose(workload(CONV), "trace", inputs(*FULL))


def tensor(*shape: int, kind: str = "clone", dtype: str = "float32") -> Configuration:
    """A copy of a tensor, or what another element-wise operator makes of it."""
    return Configuration(kind, {}, {"input": {"shape": list(shape), "dtype": dtype}})


# The published set


@pytest.mark.parametrize("mode", MODES)
def test_a_sum_of_views_alone_is_no_cost_of_zero(mode: Mode) -> None:
    """Views cost nothing wherever they are known, and the host's part of them is no pass."""
    view = Configuration("flatten", {}, {"input": {"shape": [4, 4], "dtype": "float32"}})
    known = cost(view, 0.0, 0.0, {"function": 2e-6})
    found = compose(workload(CONV, RELU, view), mode, inputs(known))
    assert (found.time_s, found.energy_j, found.time_interval_s) == (None, None, None)
    assert found.coverage_calls == pytest.approx(1 / 3)
    assert any("nothing of this workload that takes time" in note for note in found.notes)
    views = compose(workload(view), mode, inputs(known))
    assert views.time_s is not None, "what is known to take nothing is known"


def test_a_call_that_autograd_records_lends_its_host_time_to_such_calls_alone() -> None:
    recorded = replace(CONV, gradient=True)
    larger = replace(CONV, parameters={**CONV.parameters, "groups": 1})
    asked = workload(recorded, CONV, larger)
    heard = cost(recorded, 1e-6, 1e-4, {"module": 3e-4})
    own = inputs(heard, cost(CONV, 1e-6, 1e-4), cost(larger, 1e-6, 1e-4))
    unheard = compose(asked, "eager", own)
    said = "host time unknown, so a pass that waits for the host may take longer: 2 calls"
    assert said in unheard.notes
    lent = compose(asked, "eager", replace(own, host_s={("conv2d", "module"): 1e-4}))
    assert lent.time_s - unheard.time_s == pytest.approx(2e-4)
    assert replace(recorded, autocast="bfloat16").issued_as == "conv2d gradient autocast"


def test_a_board_that_keeps_below_its_limit_is_slower() -> None:
    limited = OperatingPoint(1e9, 1e-3 * 2**0.5, 0.25)
    hot = replace(cost(CONV, 1e-3, 0.5, {"module": 1e-5}), clock_hz=2e9, limited=limited)
    nominal = compose(workload(CONV), "graph", inputs(hot))
    kept = compose(workload(CONV), "graph", inputs(hot, kept_limit_w=390.0))
    assert kept.power_w == pytest.approx(390) and nominal.power_w == pytest.approx(400)
    assert kept.time_s > nominal.time_s


def test_transitions_are_paid_by_short_kernels_alone() -> None:
    slow_links = replace(CALIBRATION, transition_s=1e-7)

    def longer_s(time_s: float, kernels: int) -> float:
        one = replace(cost(CONV, time_s, 0.0), kernels=kernels)
        times = [
            compose(workload(CONV), "graph", inputs(one, calibration=c)).time_s or 0.0
            for c in (CALIBRATION, slow_links)
        ]
        return times[1] - times[0]

    assert longer_s(3e-6, 1) == pytest.approx(1e-7)
    assert longer_s(6e-6, 3) == pytest.approx(3e-7)
    assert longer_s(10e-6, 1) == pytest.approx(0.5e-7)
    assert longer_s(1e-3, 5) == 0


@pytest.mark.parametrize(
    ("l2_bytes", "streamed"), [(None, 0.0), (2.0, 0.0), (1.0, 0.0), (0.25, 0.75)]
)
def test_what_a_call_took_longer_after_others_replaces_the_transition(
    l2_bytes: float | None, streamed: float
) -> None:
    """A stream counts as far as a pass touches more than the L2, here a multiple of it, holds."""
    touched = touched_bytes(workload(CONV))
    device = replace(GPU, l2_bytes=None if l2_bytes is None else int(l2_bytes * touched))
    slow_links = replace(CALIBRATION, transition_s=1e-6)

    def longer_s(time_s: float, after: AfterOthers) -> float:
        one = replace(cost(CONV, time_s, 0.0), after_others=after)
        asked = inputs(one, calibration=slow_links, device=device)
        return (compose(workload(CONV), "graph", asked).time_s or 0.0) - time_s

    both = AfterOthers(2e-7, 1e-7)
    assert longer_s(3e-6, both) == pytest.approx(2e-7 + streamed * 1e-7)
    assert longer_s(10e-6, both) == pytest.approx(1e-7 + streamed * 0.5e-7)
    assert longer_s(3e-6, AfterOthers(2e-7, None)) == pytest.approx(2e-7)


def test_hot_weights_are_taken_where_a_pass_stays_in_the_cache() -> None:
    both = replace(cost(CONV, 4e-6, 4e-4), hot=OperatingPoint(None, 3e-6, 3e-4))
    touched = touched_bytes(workload(CONV))
    for resident, time_s, dynamic_j in (
        (touched + 1, 3e-6, 3e-4),
        (touched - 1, 4e-6, 4e-4),
        (None, 4e-6, 4e-4),
    ):
        found = compose(workload(CONV), "graph", inputs(both, resident_bytes=resident))
        assert found.time_s == pytest.approx(time_s)
        assert found.energy_j == pytest.approx(100 * time_s + dynamic_j)


def test_hot_weights_shorten_an_eager_call_by_as_much_as_a_captured_one() -> None:
    both = replace(cost(CONV, 4e-6, 4e-4, eager_s=9e-6), hot=OperatingPoint(None, 3e-6, 3e-4))
    touched = touched_bytes(workload(CONV))
    for resident, eager_s in ((touched + 1, 8e-6), (touched - 1, 9e-6)):
        found = with_weights_found(touched, inputs(both, resident_bytes=resident))
        eager = found.costs[CONV.key].eager_time_s
        assert eager.mean == pytest.approx(eager_s)
    for lacking in (
        replace(both, dynamic_energy_j=None),
        replace(both, hot=OperatingPoint(None, 3e-6, None)),
    ):
        found = with_weights_found(touched, inputs(lacking, resident_bytes=touched + 1))
        hot = found.costs[CONV.key]
        assert hot.time_s.mean == pytest.approx(3e-6)
        assert hot.dynamic_energy_j == lacking.dynamic_energy_j
    absurd = replace(both, hot=OperatingPoint(None, 1e-7, 3e-4), eager_time_s=quantity(1e-6))
    found = with_weights_found(touched, inputs(absurd, resident_bytes=touched + 1))
    assert found.costs[CONV.key].eager_time_s is None, "no time is below 0"


class Estimated:
    """Estimates whose intervals are given: what training would have found is not at issue here."""

    def __init__(
        self, *costs: Cost, refused: Mapping[str, str] | None = None, half_width: float = 0.3
    ) -> None:
        self.costs = {c.configuration: c for c in costs}
        self.refused = dict(refused or {})
        self.half_width = half_width

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        time_s = math.fsum(n * mean_of(self.costs[key].time_s) for key, n in counts.items())
        if base_w is None:
            return self.half_width * time_s, None
        dynamic = (n * mean_of(self.costs[key].dynamic_energy_j) for key, n in counts.items())
        energy_j = base_w * time_s + math.fsum(dynamic)
        return self.half_width * time_s, self.half_width * energy_j


def estimate(configuration: Configuration, time_s: float, dynamic_j: float) -> Cost:
    return replace(cost(configuration, time_s, dynamic_j), visits=0)


def test_an_estimate_stands_in_for_a_measurement_and_is_told_apart() -> None:
    rests_on = inputs(cost(CONV, 4e-6, 4e-4))
    without = compose(workload(CONV, RELU, RELU), "graph", rests_on)
    assert without.missing and not without.estimated

    helped = replace(rests_on, estimates=Estimated(estimate(RELU, 1e-6, 1e-4)))
    found = compose(workload(CONV, RELU, RELU), "graph", helped)
    assert found.time_s == pytest.approx(6e-6)
    assert found.energy_j == pytest.approx(100 * 6e-6 + 6e-4)
    assert found.coverage_calls == pytest.approx(1 / 3)
    assert found.coverage_time == pytest.approx(2 / 3)
    assert not found.missing
    [share] = found.estimated
    assert (share.configuration, share.count) == (RELU, 2)
    assert share.share_time == pytest.approx(1 / 3)
    assert share.cost.is_estimated


def test_a_sum_of_a_part_is_a_lower_bound_without_an_interval() -> None:
    part = compose(workload(CONV, RELU, RELU), "graph", inputs(cost(CONV, 4e-6, 4e-4)))
    assert not part.complete and part.time_s == pytest.approx(4e-6)
    assert (part.time_interval_s, part.energy_interval_j, part.power_w) == (None, None, None)
    share = f"{100 * part.missing[0].share_time:.1f} % of the time"
    said = f"at least 4 µs; of 3 calls 2 without a cost (an estimated {share})"
    assert shortfall(part) == said
    nothing = compose(workload(RELU), "graph", inputs(cost(CONV, 4e-6, 4e-4)))
    assert not nothing.complete
    assert str(shortfall(nothing)).startswith("time and energy are not known; of 1 call 1 without")


def test_steps_are_slower_by_the_clock_and_by_the_host() -> None:
    timed = timed_pass(Pass(workload(CONV, ITEM, RELU)), "eager", inputs(*FULL))
    [conv, relu] = timed.steps(lambda key: 2.0 if key == CONV.key else 1.0, 3.0)
    [plain, same] = timed.steps(lambda _: 1.0, 1.0)
    assert conv.device_s == pytest.approx(plain.device_s + 3.2e-3)
    assert relu.device_s == same.device_s and relu.host_s == pytest.approx(3 * same.host_s)
    assert timed_pass(Pass(workload(CONV)), "graph", inputs(*FULL)).host_s == 0.0


@pytest.mark.parametrize(
    ("factor", "time_s"),
    [(1.0, 4.2e-3), (30.0, 4.2e-3), (40.0, 40 * (1e-4 + 2e-5)), (0.1, 4.2e-3)],
)
def test_on_a_slower_host_only_the_hosts_part_takes_longer(factor: float, time_s: float) -> None:
    of, given = workload(CONV, RELU), inputs(*FULL, device=replace(GPU, power_limit_w=None))
    eager, graph = (compose(of, mode, given) for mode in MODES)
    assert eager.total.time_at(1.0, factor) == pytest.approx(time_s)
    assert graph.total.time_at(1.0, factor) == graph.time_s, "it waits for no host"


def test_where_the_host_waits_for_the_device_its_part_is_scaled_call_by_call() -> None:
    costs = *FULL, cost(ITEM, 1e-6, 0.0, {"module": 1e-5})
    found = compose(workload(CONV, RELU, ITEM), "eager", inputs(*costs))
    once, thrice = (found.total.time_at(1.0, factor) for factor in (1.0, 3.0))
    assert once == found.time_s
    assert once < thrice < once + 2 * 1.3e-4, "while the host issues, the device works"


def test_unsupported_calls_lower_the_coverage_of_calls_and_are_told() -> None:
    found = compose(workload(CONV, RELU, unsupported={"torch.odd": 2}), "graph", inputs(*FULL))
    assert found.coverage_calls == pytest.approx(0.5)
    assert (
        "calls that no operator describes: torch.odd ×2; their cost is not known, so time, "
        "energy and coverage leave them out"
    ) in found.notes


def test_shares_are_of_the_devices_time_and_of_its_energy_base_power_included() -> None:
    found = compose(workload(RELU, CONV, RELU), "graph", inputs(*FULL))
    assert [s.configuration for s in found.parts] == [CONV, RELU], "the largest first"
    assert [s.count for s in found.parts] == [1, 2]
    assert [s.share_time for s in found.parts] == pytest.approx([0.6, 0.4])
    assert [s.share_energy for s in found.parts] == pytest.approx([0.9 / 1.3, 0.4 / 1.3])


def test_a_limit_that_may_be_kept_2_percent_lower_widens_the_time() -> None:
    """100 + 500 r^1.5 watts at a share r of the clock, in r^-0.5 ms."""
    found = compose(workload(CONV), "graph", inputs(HOT))
    time_s, later_s = (1e-3 * ((limit_w - 100) / 500) ** (-1 / 3) for limit_w in (400, 392))
    assert found.time_s == pytest.approx(time_s)
    width = math.hypot(HALF * 1e-3, later_s - time_s) / time_s
    assert found.total.widths_time == pytest.approx((width, width), rel=1e-3)


def test_a_pass_below_its_limit_is_as_sure_as_without_one() -> None:
    """It draws 600 W: a limit of 605 W may be kept 2 % lower, but nothing was lowered by it."""
    limited = OperatingPoint(1e9, 1e-3 * 2**0.5, 0.25)
    hot = replace(cost(CONV, 1e-3, 0.5, {"module": 1e-5}), clock_hz=2e9, limited=limited)
    free = compose(workload(CONV), "graph", inputs(hot, device=replace(GPU, power_limit_w=None)))
    near = compose(workload(CONV), "graph", inputs(hot, device=replace(GPU, power_limit_w=605.0)))
    assert free.power_w == pytest.approx(600.0)
    assert (near.time_s, near.time_interval_s) == (free.time_s, free.time_interval_s)


def test_compiled_calls_are_composed_like_others() -> None:
    pairs: list[tuple[Mode, Mode]] = [("compile", "eager"), ("compile:reduce-overhead", "graph")]
    for mode, like in pairs:
        found = compose(workload(CONV, RELU), mode, inputs(*FULL))
        other = compose(workload(CONV, RELU), like, inputs(*FULL))
        assert (found.time_s, found.energy_j) == (other.time_s, other.energy_j)
        assert found.host_bound == other.host_bound


@pytest.mark.parametrize("device", [GPU, CPU], ids=["gpu", "cpu"])
def test_containers_of_unknown_time_add_none(device: Device) -> None:
    unknown = replace(CALIBRATION, container_time_s=None)
    rests_on = inputs(*FULL, device=device, calibration=unknown)
    for containers in (0, 3):
        found = compose(workload(RELU, containers=containers), "eager", rests_on)
        assert found.time_s == pytest.approx(1e-3)


def test_a_kernel_that_a_call_launches_again_makes_no_transition() -> None:
    slow_links = replace(CALIBRATION, transition_s=1e-7)
    recurrent = replace(cost(CONV, 1.2e-3, 0.0), kernels=600)
    known = inputs(recurrent, calibration=slow_links, different_kernels={CONV.key: 2})
    assert compose(workload(CONV), "graph", known).time_s == pytest.approx(1.2e-3 + 2e-7)


def test_transitions_are_paid_where_the_host_waits_too() -> None:
    """The host has issued all but the wait when the device is done with a ReLU and a copy."""
    costs = (cost(RELU, 3e-6, 0.0, {"module": 1e-6}), cost(ITEM, 3e-6, 0.0, {"module": 1e-6}))
    times = [
        compose(workload(RELU, RELU, ITEM), "eager", inputs(*costs, calibration=c)).time_s or 0.0
        for c in (CALIBRATION, replace(CALIBRATION, transition_s=1e-7))
    ]
    assert times[0] == pytest.approx(10e-6), "1 µs until the first is issued, and three calls"
    assert times[1] - times[0] == pytest.approx(3e-7)


def test_calls_that_no_operator_describes_make_a_lower_bound() -> None:
    whole = workload(CONV)
    found = compose(
        replace(whole, unsupported={"spectral": 2}), "graph", inputs(cost(CONV, 4e-6, 4e-4))
    )
    assert not found.complete and found.time_interval_s is None
    assert shortfall(found) == "at least 4 µs; of 3 calls 2 without a description"


def test_a_sum_that_lacks_views_alone_is_whole() -> None:
    view = Configuration("flatten", {}, {"input": {"shape": [4, 4], "dtype": "float32"}})
    found = compose(workload(CONV, view), "graph", inputs(cost(CONV, 4e-6, 4e-4)))
    assert found.missing and found.complete and shortfall(found) is None
    assert found.time_interval_s is not None and found.energy_interval_j is not None


def test_a_model_that_calls_nothing_is_said_to() -> None:
    nothing = compose(workload(), "graph", inputs())
    assert shortfall(nothing) == NO_CALLS
    assert nothing.coverages == {"time": 1.0, "energy": 1.0} and nothing.coverage_calls == 1.0
    assert not any("host" in note for note in nothing.notes)


def test_a_measured_cost_comes_before_an_estimate() -> None:
    helped = inputs(cost(RELU, 2e-6, 2e-4), estimates=Estimated(estimate(RELU, 9e-6, 9e-4)))
    found = compose(workload(RELU), "graph", helped)
    assert found.time_s == pytest.approx(2e-6) and not found.estimated


@pytest.mark.parametrize("measured_s", [5e-6, 1e-3])
def test_a_comparison_of_256_elements_is_no_large_part_of_a_model(measured_s: float) -> None:
    """What was measured beside it may do no operations at all, or move next to nothing."""
    small = {"shape": [256], "dtype": "float32"}
    compared = Configuration("gt", {}, {"input": small, "other": small})
    copied = Configuration("clone", {}, {"input": {"shape": [1 << 20], "dtype": "float32"}})
    alike = Configuration("gt", {}, {"input": {"shape": [0], "dtype": "float32"}})
    for others in ([copied], [copied, alike]):
        costs = [cost(other, measured_s, 1e-4) for other in others]
        [missing] = compose(workload(*others, compared), "graph", inputs(*costs)).missing
        assert 0 < missing.share_time <= 0.5
