"""Factors between boards, duplicates and launches: on records made by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from opdb.derive.boards import (
    UNKNOWN_BASE_POWER,
    UNKNOWN_DYNAMIC_ENERGY,
    UNKNOWN_TIME,
    AnchorCost,
    BoardAnchors,
    Difference,
    Factor,
    Factors,
    _difference,
    agreement,
    board_anchors,
    factors,
    in_words,
    pairs,
    transferred,
    usual_calibration,
)
from opdb.derive.runs import compare_launches
from opdb.derive.statistics import t95
from opdb.records import Campaign, Cost, Neighbours, OperatingPoint, Quantity, Visit
from tests.derive.test_review import BASE_W, CAMPAIGN, anchors, stretch, visit
from tests.store import samples

ORIGIN = BoardAnchors(100.0, {"a": AnchorCost(1.0, 2.0), "b": AnchorCost(3.0, 4.0)})
TO = BoardAnchors(
    110.0, {"a": AnchorCost(1.1, 2.0), "b": AnchorCost(3.3, 4.84), "c": ORIGIN.anchors["a"]}
)
COST = Cost(
    "c", "GPU-1", "{}", "1", 2, 1,
    time_s=Quantity.around(0.99, 1.0, 0.02, 2),
    eager_time_s=Quantity.around(1.5, 1.5, 0.1, 2),
    power_w=Quantity.around(300.0, 300.0, 3.0, 2),
    energy_j=Quantity.around(300.0, 300.0, 3.0, 2),
    dynamic_energy_j=Quantity.around(200.0, 200.0, 2.0, 2),
    limited=OperatingPoint(1.5e9, 2.0, 150.0),
)  # fmt: skip


def test_factors_are_geometric_means_over_shared_anchors_with_their_spread() -> None:
    found = factors(TO, ORIGIN)
    assert found.base_power == pytest.approx(1.1)
    assert found.time.value == pytest.approx(1.1)
    assert found.time.spread == pytest.approx(0, abs=1e-12) and found.time.count == 2
    dynamic = found.dynamic_energy
    assert dynamic.value == pytest.approx(math.sqrt(1.21))
    assert dynamic.spread == pytest.approx(math.log(1.21) / math.sqrt(2))
    back = factors(ORIGIN, TO)
    assert back.time.value == pytest.approx(1 / 1.1)
    assert in_words(found) == (
        "time × 1.100 ± 0.0 % from 2 anchors, dynamic energy × 1.100 ± 13.5 % from 2 anchors, "
        "base power × 1.100"
    )


@pytest.mark.parametrize("shared", [0, 1])
def test_costs_that_too_few_anchors_bring_are_as_they_were_and_as_unsure_as_boards_differ(
    shared: int,
) -> None:
    one = dict(list(ORIGIN.anchors.items())[:shared])
    nothing = factors(TO, BoardAnchors(100.0, one))
    assert (nothing.time, nothing.dynamic_energy) == (UNKNOWN_TIME, UNKNOWN_DYNAMIC_ENERGY)
    assert not nothing.is_known and factors(TO, ORIGIN).is_known
    assert in_words(nothing) == (
        "time unscaled ± 1.8 %, dynamic energy unscaled ± 11.8 %, base power × 1.100"
    )
    assert (UNKNOWN_BASE_POWER.value, UNKNOWN_BASE_POWER.count) == (1.0, 0)
    assert UNKNOWN_BASE_POWER.half_width == pytest.approx(2.045 * 0.0309)
    found = transferred(COST, "GPU-2", nothing, 110.0)
    time_share, energy_share = 2.045 * 0.0087, 2.045 * 0.0576  # t of 29 degrees: of 30 boards
    for now, was, share in (
        (found.time_s, COST.time_s, time_share),
        (found.eager_time_s, COST.eager_time_s, time_share),
        (found.dynamic_energy_j, COST.dynamic_energy_j, energy_share),
    ):
        assert now and was
        assert (now.median, now.mean) == (was.median, was.mean)
        assert now.half_width == pytest.approx(math.hypot(was.half_width, share * was.mean))
    assert found.energy_j.mean == pytest.approx(200 + 110 * 1.0)
    assert found.limited == COST.limited


def test_a_cost_is_brought_to_another_board() -> None:
    by = Factors(1.2, Factor(1.1, 0.01, 3), Factor(0.9, 0.05, 3))
    found = transferred(COST, "GPU-2", by, 120.0)
    assert found.board == "GPU-2" and found.configuration == COST.configuration
    time, dynamic, energy, power = (
        found.time_s, found.dynamic_energy_j, found.energy_j, found.power_w,
    )  # fmt: skip
    assert time and dynamic and energy and power
    assert (time.median, time.mean) == pytest.approx((1.089, 1.1))
    assert found.eager_time_s.mean == pytest.approx(1.65)
    assert dynamic.mean == pytest.approx(180.0)
    assert energy.mean == pytest.approx(180 + 120 * 1.1)
    assert power.mean == pytest.approx(energy.mean / 1.1)
    assert time.high is not None
    of_one = t95(2) * 0.01 * math.sqrt(1 + 1 / 3)
    assert time.half_width == pytest.approx(math.hypot(0.022, of_one * 1.1))
    assert found.limited.time_s == pytest.approx(2.2)
    assert found.limited.dynamic_energy_j == pytest.approx(135.0)
    dynamic_of_one = t95(2) * 0.05 * math.sqrt(1 + 1 / 3)
    for quantity, own in ((dynamic, 0.01), (energy, 0.01), (power, 0.01)):
        width = math.hypot(own, dynamic_of_one) * quantity.mean
        assert quantity.half_width == pytest.approx(width)


@pytest.mark.parametrize("anchors", [2, 3, 6])
def test_intervals_of_factors_hold_as_often_as_stated(anchors: int) -> None:
    """Of few anchors the spread is hardly known, which a normal quantile would pass over."""
    random = Random(anchors)
    inside, inside_one, trials = 0, 0, 4000
    for _ in range(trials):
        ratios = {str(i): math.exp(random.gauss(0.1, 0.02)) for i in range(anchors)}
        found = factors(
            BoardAnchors(None, {name: AnchorCost(ratio, None) for name, ratio in ratios.items()}),
            BoardAnchors(None, dict.fromkeys(ratios, AnchorCost(1.0, None))),
        ).time
        assert found is not None
        off = math.log(found.value) - 0.1
        inside += abs(off) <= found.half_width
        inside_one += (
            abs(off - random.gauss(0, 0.02)) <= math.sqrt(found.count + 1) * found.half_width
        )
    assert inside / trials == pytest.approx(0.95, abs=0.015)
    assert inside_one / trials == pytest.approx(0.95, abs=0.015)


def test_a_boards_anchors_are_medians_of_its_anchor_visits() -> None:
    made = [visit("v"), *anchors(400.0, 500.0, 410.0)]
    found = board_anchors([CAMPAIGN], made)
    assert found.base_power_w == BASE_W and found.anchors.keys() == {"anchor"}
    assert found.anchors["anchor"].time_s == pytest.approx(1e-3)
    assert found.anchors["anchor"].dynamic_energy_j == pytest.approx(0.31)


def test_a_pair_agrees_or_does_not_within_both_intervals() -> None:
    def twice(name: str, role: str, *watts: float) -> list[Visit]:
        return [
            visit(f"{name}{role}{n}", stretch(power_w=w), n, configuration=name, role=role)
            for n, w in enumerate(watts)
        ]

    made = [
        *twice("same", "measurement", 400.0, 402.0),
        *twice("same", "duplicate", 401.0, 403.0),
        *twice("other", "measurement", 400.0, 402.0, 900.0),
        *twice("other", "duplicate", 440.0, 442.0),
        *twice("alone", "measurement", 400.0, 402.0),
    ]
    found = {pair.measured.configuration: pair for pair in pairs([CAMPAIGN], made)}
    assert found.keys() == {"same", "other"}
    assert found["same"].energy.inside
    other = found["other"].energy
    assert not other.inside
    assert other.relative == pytest.approx(40 / 421), "the third measurement is not in the pair"
    energy = agreement(pair.energy for pair in found.values())
    assert (energy.pairs, energy.inside) == (2, 1)
    assert energy.share_inside == 0.5
    slower = [replace(v, stretch=stretch(1.1e-3), role="duplicate") for v in made[:2]]
    [pair] = pairs([CAMPAIGN], [*made[:2], *slower])
    assert pair.time.relative == pytest.approx(0.2 / 2.1)
    assert agreement([None]) is None


def test_kernels_differ_by_name_and_count() -> None:
    """The sample workload calls CONV once, RELU three times, ADD once."""
    workload = samples.workload()
    seen: dict[str, Mapping[str, int]] = {
        samples.CONV.key: {"conv": 2},
        samples.RELU.key: {"relu": 1},
        samples.ADD.key: {"add": 1},
    }
    run = replace(samples.model_run(workload), kernels={"conv": 2, "relu": 3, "add": 1})
    found = compare_launches(workload, run, seen)
    assert found.agree and found.launched == 6
    more = replace(run, kernels={"conv": 2, "relu": 4, "mul": 1})
    found = compare_launches(workload, more, seen)
    assert not found.agree
    assert (found.model, found.operators) == ({"relu": 1, "mul": 1}, {"add": 1})
    made = {**seen, samples.ADD.key: {"triton_poi_fused_add_3": 1, "triton_red_fused_sum_0": 1}}
    elsewhere = {"conv": 2, "relu": 3, "triton_poi_fused_add_relu_12": 1, "triton_red_fused_1": 1}
    found = compare_launches(workload, replace(run, kernels=elsewhere), made)
    assert found.agree, "generated kernels count by their sort"
    others = {"conv": 2, "relu": 3, "triton_per_fused_add_3": 1, "triton_red_fused_1": 1}
    found = compare_launches(workload, replace(run, kernels=others), made)
    assert (found.model, found.operators) == ({"triton_per": 1}, {"triton_poi": 1})
    del seen[samples.CONV.key]
    found = compare_launches(workload, run, seen)
    assert found.unseen == (samples.CONV.key,) and not found.agree
    assert (found.model, found.operators) == ({"conv": 2}, {})
    assert compare_launches(workload, replace(run, kernels=None), seen) is None


def test_base_power_is_that_of_the_campaign_in_the_middle() -> None:
    """Also with its interval; all else is the latest's."""

    def campaign(watts: float | None, transition_s: float) -> Campaign:
        interval = None if watts is None else (watts - 1, watts + 1)
        found = replace(
            CAMPAIGN.calibration,
            base_power_w=watts,
            base_power_interval_w=interval,
            transition_s=transition_s,
        )
        return replace(CAMPAIGN, calibration=found)

    seen = [campaign(*each) for each in ((125.0, 1e-6), (124.0, 2e-6), (132.0, 3e-6), (None, 4e-6))]
    found = usual_calibration(seen)
    assert (found.base_power_w, found.base_power_interval_w) == (125.0, (124.0, 126.0))
    assert found.transition_s == 3e-6
    assert usual_calibration(seen[:2]).base_power_w == 124.0, "the lower of two"
    assert usual_calibration(seen[3:]) == seen[3].calibration


def test_factors_rest_on_values_above_0_that_both_boards_have() -> None:
    origin = {
        "a": (1.0, 2.0),
        "b": (2.0, None),
        "c": (None, -1.0),
        "d": (-1.0, 0.0),
        "f": (1.0, 1.0),
    }
    to = {"a": (1.1, 1.0), "b": (2.2, 3.0), "c": (3.0, 1.0), "d": (1.0, 1.0), "e": (9.0, 9.0)}
    to["f"] = (0.0, 0.0)
    found = factors(
        BoardAnchors(110.0, {key: AnchorCost(*values) for key, values in to.items()}),
        BoardAnchors(None, {key: AnchorCost(*values) for key, values in origin.items()}),
    )
    assert found.base_power is None
    assert found.time.count == 2
    assert found.time.value == pytest.approx(1.1)
    assert found.dynamic_energy == UNKNOWN_DYNAMIC_ENERGY, "one anchor alone gives no factor"
    assert in_words(found) == (
        "time × 1.100 ± 0.0 % from 2 anchors, dynamic energy unscaled ± 11.8 %"
    )


def test_without_base_power_a_gross_energy_is_as_unsure_as_an_unscaled_one() -> None:
    found = transferred(COST, "GPU-2", factors(TO, ORIGIN), None)
    for now, was in ((found.energy_j, COST.energy_j), (found.power_w, COST.power_w)):
        assert now and was and now.mean == was.mean
        unsure = 2.045 * 0.0576 * was.mean
        assert now.half_width == pytest.approx(math.hypot(was.half_width, unsure))


def test_an_estimated_energy_stays_above_0_and_a_measured_one_need_not() -> None:
    by = Factors(None, dynamic_energy=Factor(1.1, 0.05, 3))
    wide = Quantity.around(1.0, 1.0, 3.0, 2, positive=False)
    measured = transferred(replace(COST, dynamic_energy_j=wide), "GPU-2", by, None)
    estimated = transferred(
        replace(COST, visits=0, dynamic_energy_j=Quantity.around(1.0, 1.0, 3.0, 0)),
        "GPU-2",
        by,
        None,
    )
    for cost, above in ((measured, False), (estimated, True)):
        found = cost.dynamic_energy_j
        assert found.mean == pytest.approx(1.1) and (found.low > 0) == above
    slow = replace(COST, time_s=Quantity.around(1.0, 1.0, 3.0, 2))
    time = transferred(slow, "GPU-2", Factors(None, Factor(1.1, 0.05, 3)), None).time_s
    assert time.low > 0


def test_what_a_cost_lacks_is_not_brought() -> None:
    by = Factors(None, Factor(1.1, 0.01, 3), Factor(0.9, 0.05, 3))
    bare = replace(
        COST,
        eager_time_s=None,
        energy_j=None,
        hot=OperatingPoint(None, 0.5, None),
        limited=None,
        time_s=Quantity(1.0, 1.0, None, None, 1),
    )
    found = transferred(bare, "GPU-2", by, 120.0)
    assert (found.eager_time_s, found.energy_j, found.limited) == (None, None, None)
    assert found.power_w and COST.power_w, "it follows from the gross energy, which is not known"
    assert found.power_w.mean == COST.power_w.mean
    assert found.time_s == Quantity(1.1, 1.1, None, None, 1)
    assert found.hot == OperatingPoint(None, 0.55, None)
    powerless = transferred(replace(COST, power_w=None), "GPU-2", by, 120.0)
    assert powerless.energy_j is not None and powerless.power_w is None, "as of an estimate"
    time_alone = transferred(COST, "GPU-2", Factors(None, Factor(1.1, 0.01, 3)), 120.0)
    assert time_alone.limited == OperatingPoint(1.5e9, 2.2, 150.0)
    assert time_alone.energy_j.mean == pytest.approx(200 + 120 * 1.1)
    assert Factors(None, by.time).is_known and Factors(None, dynamic_energy=by.time).is_known
    share = math.hypot(0.01, UNKNOWN_DYNAMIC_ENERGY.half_width)
    assert time_alone.energy_j.half_width == pytest.approx(share * time_alone.energy_j.mean)
    energy_alone = transferred(
        COST, "GPU-2", Factors(None, dynamic_energy=by.dynamic_energy), 120.0
    )
    assert energy_alone.limited == OperatingPoint(1.5e9, 2.0, 135.0)


def test_anchors_that_wrote_to_reused_memory_are_not_held_against_others() -> None:
    made = anchors(400.0, 500.0, 410.0)
    odd = [replace(v, id=f"{v.id} odd", outputs="reused") for v in anchors(300.0, 300.0)]
    assert board_anchors([CAMPAIGN], [*made, *odd]) == board_anchors([CAMPAIGN], made)
    assert not board_anchors([CAMPAIGN], odd).anchors


def test_an_anchor_that_waited_for_the_host_tells_no_time() -> None:
    beside = Neighbours(10, (1e-2,), (9e-3,))  # 0.1 ms a call, and 1 ms or 0.1 ms alone
    waited = visit("a", stretch(1e-3), role="anchor", configuration="anchor", neighbours=beside)
    busy = visit("b", stretch(1e-4), role="anchor", configuration="anchor", neighbours=beside)
    late = replace(waited, stretch=stretch(1.15e-4))
    for each in (waited, late):
        assert board_anchors([CAMPAIGN], [each]).anchors["anchor"].time_s is None
    both = board_anchors([CAMPAIGN], [waited, busy]).anchors["anchor"]
    assert both.time_s == pytest.approx(1e-4)


def test_a_difference_is_over_the_mean_and_inside_both_widths_joined() -> None:
    """Of costs 4 % apart, each ± 3 %, and of costs 5 % apart: 3 · √2 = 4.24 %."""
    near, far = (
        _difference(Quantity.around(m, m, 0.03, 2), Quantity.around(n, n, 0.03, 2))
        for m, n in ((0.98, 1.02), (1.025, 0.975))
    )
    assert near.relative == pytest.approx(0.04) and near.inside
    assert far.relative == pytest.approx(-0.05) and not far.inside
    one = Quantity.around(1.0, 1.0, 0.0, 2)
    assert _difference(one, one) == Difference(0.0, True)
    alone, nothing = Quantity(1.0, 1.0, None, None, 1), Quantity(0.0, 0.0, 0.0, 0.0, 2)
    for first, second in ((None, one), (one, None), (alone, one), (one, alone), (nothing,) * 2):
        assert _difference(first, second) is None
    summed = agreement([near, None, far, Difference(0.01, True)])
    assert summed.median_difference == pytest.approx(0.04)
    assert summed.pairs == 3 and summed.share_inside == pytest.approx(2 / 3)


def test_a_pair_is_of_one_state_of_the_weights() -> None:
    hot = [visit(f"{role}{n}", stretch(power_w=500.0 + n), n, role=role, weights="hot")
           for role in ("measurement", "duplicate") for n in (0, 1)]  # fmt: skip
    cold = [visit(f"cold{n}", stretch(power_w=900.0 + n), n) for n in (0, 1)]
    [pair] = pairs([CAMPAIGN], [*hot, *cold])
    assert pair.energy.relative == 0


def test_a_pair_is_of_outputs_that_went_to_memory_of_one_sort() -> None:
    older = [visit(f"older{n}", stretch(power_w=900.0 + n), n) for n in (0, 1)]
    newer = [visit(f"{role}{n}", stretch(power_w=500.0 + n), n, role=role, outputs="reused")
             for role in ("measurement", "duplicate") for n in (2, 3)]  # fmt: skip
    [pair] = pairs([CAMPAIGN], [*older, *newer])
    assert pair.energy.relative == 0
    assert pairs([CAMPAIGN], [*older, *newer[2:]]) == []
