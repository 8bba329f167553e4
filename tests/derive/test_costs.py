"""Costs: of the published visits rebuilt, of hand-made ones, and flags on a real trace."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.derive.costs import (
    ESTIMATOR,
    HOT_ALONE,
    Deriver,
    call_times_s,
    cost_in,
    host_quantities,
    stretch_flags,
    stretch_power_w,
    visit_cost,
)
from opdb.derive.runs import AGREEING, HOSTS_AGREEMENT, agreeing, repeat_spread, run_cost
from opdb.derive.statistics import half_width, pool_spread
from opdb.records import (
    Calibration,
    Campaign,
    Cost,
    HostVisit,
    Neighbours,
    Outputs,
    Stretch,
    Visit,
)
from opdb.store import open_store
from tests import published
from tests.meters.replay import ReplayMeter
from tests.store import samples

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
BASE_W = 100.0
CALIBRATION = Calibration(BASE_W, (99.0, 101.0), None, 0.02, 0.0, 0.1)
CONTEXT = samples.campaign("a-campaign", "a-board", samples.PROCESSOR)


def stretch(
    call_s: float, power_w: float | None, *, busy: float = 1.0, eager: tuple[float, ...] = ()
) -> Stretch:
    """A steady stretch of 10 calls a replay."""
    times = tuple(10 * call_s * (1 + 1e-3 * (i % 3 - 1)) for i in range(15))
    power = () if power_w is None else tuple((0.02 * i, power_w) for i in range(15))
    return Stretch(10, times, sum(times) / busy, busy, power_samples=power, eager_times_s=eager)


def visit(
    seen: Stretch | None, identity: str = "v", restore: Stretch | None = None, **changes: Any
) -> Visit:
    plain = samples.visit(identity, stretch=seen, restore=restore, campaign="a-campaign", flags=())
    return replace(plain, **changes)


def derived(*visits: Visit) -> Cost:
    campaign = replace(CONTEXT, calibration=CALIBRATION)
    [cost] = Deriver([campaign], visits).costs({})
    return cost


@pytest.mark.slow
def test_published_visits_agree_with_each_other() -> None:
    """The bar for a bench: energies of two visits lie within 2 % at the median."""
    with open_store(str(published.database())) as store:
        calibrations = {c.id: c.calibration for c in store.campaigns(published.DEVICE)}
        energies: dict[tuple[str, str, str], list[float]] = {}
        for board in store.boards(published.DEVICE):
            for made in store.visits(board.uuid):
                cost = visit_cost(made, calibrations[made.campaign])
                if made.role == "measurement" and cost and cost.energy_j:
                    key = (board.uuid, made.configuration, made.setting)
                    energies.setdefault(key, []).append(cost.energy_j)
    apart = [max(e) / min(e) - 1 for e in energies.values() if len(e) > 1]
    assert len(apart) > 100
    assert statistics.median(apart) < 0.02


# One visit


def test_energy_is_power_above_base_times_time_over_the_busy_share() -> None:
    cost = visit_cost(visit(stretch(1e-3, 400.0, busy=0.5)), CALIBRATION)
    assert cost.time_s == pytest.approx(1e-3)
    assert cost.dynamic_energy_j == pytest.approx((400 - BASE_W) * 1e-3 / 0.5)
    assert cost.energy_j == pytest.approx((400 - BASE_W) * 1e-3 / 0.5 + BASE_W * 1e-3)
    assert cost.power_w == pytest.approx(700.0), "what it draws while it runs"


def test_restoring_is_subtracted_from_time_and_energy() -> None:
    restore = stretch(4e-4, 300.0, eager=(5e-4,) * 3)
    cost = visit_cost(visit(stretch(1e-3, 400.0, eager=(12e-4,) * 3), restore=restore), CALIBRATION)
    assert cost.time_s == pytest.approx(6e-4)
    assert statistics.fmean(cost.times_s) == pytest.approx(6e-4)
    assert cost.eager_time_s == pytest.approx(7e-4)
    assert cost.dynamic_energy_j == pytest.approx(300 * 1e-3 - 200 * 4e-4)


def test_an_eager_call_that_took_no_time_is_missing_with_a_reason() -> None:
    """Where restoring takes most of it, noise may leave less than nothing for the call."""
    seen, restore = stretch(1e-3, 400.0, eager=(5e-4,) * 3), stretch(4e-4, 300.0, eager=(6e-4,) * 3)
    cost = derived(visit(seen, restore=restore))
    assert cost.time_s is not None and cost.eager_time_s is None
    assert "no longer than the spread" in cost.reasons["eager_time_s"]
    never = derived(visit(stretch(1e-3, 400.0)))
    assert "as it is issued eagerly" in never.reasons["eager_time_s"]
    good = derived(visit(stretch(1e-3, 400.0, eager=(1e-3,))))
    assert good.eager_time_s is not None and "eager_time_s" not in good.reasons
    no_longer = derived(visit(seen, restore=replace(restore, eager_times_s=(5e-4,) * 3)))
    assert no_longer.eager_time_s is None, "a time of 0 is none"
    host_alone = derived(visit(stretch(1e-3, 400.0), issue="eager"))
    assert "eager_time_s" not in host_alone.reasons, "its time is that of an eager call"


def test_restoring_without_power_leaves_the_energy_unknown() -> None:
    cost = visit_cost(visit(stretch(1e-3, 400.0), restore=stretch(4e-4, None)), CALIBRATION)
    assert cost.time_s == pytest.approx(6e-4)
    assert (cost.energy_j, cost.dynamic_energy_j, cost.power_w) == (None, None, None)


def test_without_power_or_base_power_energy_is_unknown_and_not_zero() -> None:
    unmetered = visit_cost(visit(stretch(1e-3, None)), CALIBRATION)
    unbased = visit_cost(visit(stretch(1e-3, 400.0)), replace(CALIBRATION, base_power_w=None))
    for cost in (unmetered, unbased):
        assert cost.time_s == pytest.approx(1e-3)
        assert (cost.energy_j, cost.dynamic_energy_j, cost.power_w) == (None, None, None)


def test_power_comes_from_counter_edges_where_there_are_no_samples() -> None:
    seen = replace(stretch(1e-3, None), counter_edges=((0.0, 0.0), (0.1, 25.0), (0.2, 50.0)))
    assert stretch_power_w(seen) == pytest.approx(250)


def test_a_call_without_kernels_costs_nothing_and_that_is_measured() -> None:
    cost = derived(visit(None, kernels={}))
    assert (cost.time_s.mean, cost.visits, cost.kernels) == (0, 1, 0)
    assert cost.energy_j.mean == 0
    assert cost.reasons == {}
    own = visit_cost(visit(None, kernels={}), CALIBRATION)
    assert own.times_s == (0.0,)
    assert {own.time_s, own.replay_time_s, own.eager_time_s, own.dynamic_energy_j} == {0.0}


def test_what_failed_has_a_reason_and_no_cost() -> None:
    failed = visit(None, outcome="out_of_memory", reason="asked for 200 GiB", kernels=None)
    assert visit_cost(failed, CALIBRATION) is None
    cost = derived(failed)
    assert (cost.time_s, cost.energy_j, cost.visits) == (None, None, 0)
    assert cost.reasons == {"time_s": "out_of_memory: asked for 200 GiB"}


def test_a_missing_energy_has_a_reason() -> None:
    no_power = ("no power: the meter is gone",)
    cost = derived(visit(stretch(1e-3, None), issue="eager", flags=no_power))
    assert cost.time_s is not None and cost.energy_j is None
    assert cost.reasons == {"energy_j": "no power: the meter is gone"}
    failed = visit(None, "later", outcome="error", reason="refused", kernels=None)
    cost = derived(visit(stretch(1e-3, None), issue="eager", flags=no_power), failed)
    assert cost.reasons["energy_j"] == "no power: the meter is gone"


# Several visits


def test_visits_are_joined_by_mean_and_have_an_interval() -> None:
    cost = derived(visit(stretch(1e-3, 400.0), "a"), visit(stretch(1.02e-3, 404.0), "b"))
    assert cost.time_s.mean == pytest.approx(1.01e-3)
    assert cost.time_s.count == 30 and cost.visits == 2
    assert cost.time_s.low < 1e-3 and cost.time_s.high > 1.02e-3
    assert cost.energy_j.mean == pytest.approx((0.4 + 404 * 1.02e-3) / 2)


def test_each_quantity_is_as_wide_as_the_spread_of_its_own_values() -> None:
    """Of two configurations; times share one spread, and so do energies and powers."""
    seen = [
        visit(stretch(1e-3, 400.0, eager=(1.1e-3,)), "a"),
        visit(stretch(1.02e-3, 420.0, eager=(1.13e-3,)), "b"),
        visit(stretch(2e-3, 300.0), "c", configuration=samples.RELU.key),
        visit(stretch(2.01e-3, 301.0), "d", configuration=samples.RELU.key),
    ]
    campaign = replace(CONTEXT, calibration=CALIBRATION, device=samples.DEVICE)
    cost, _ = Deriver([campaign], seen).costs({})
    times, energies, dynamic = (1e-3, 1.02e-3), (0.4, 420 * 1.02e-3), (0.3, 320 * 1.02e-3)
    of_times = pool_spread([times, (2e-3, 2.01e-3)])
    of_energies = pool_spread([energies, (0.6, 301 * 2.01e-3)])
    of_dynamic = pool_spread(
        [dynamic, (0.4, 201 * 2.01e-3)], scales=[energies, (0.6, 301 * 2.01e-3)]
    )
    assert cost.time_s.half_width == pytest.approx(half_width(times, of_times))
    assert cost.eager_time_s.half_width == pytest.approx(half_width((1.1e-3, 1.13e-3), of_times))
    assert cost.energy_j.half_width == pytest.approx(half_width(energies, of_energies))
    assert cost.power_w.half_width == pytest.approx(half_width((400.0, 420.0), of_energies))
    assert cost.dynamic_energy_j.half_width == pytest.approx(
        half_width(dynamic, of_dynamic, statistics.fmean(energies))
    )
    assert (cost.power_w.mean, cost.eager_time_s.mean) == pytest.approx((410.0, 1.115e-3))


def test_of_visits_far_apart_a_time_stays_above_0_and_a_dynamic_energy_need_not() -> None:
    cost = derived(visit(stretch(1e-3, 101.0), "a"), visit(stretch(9e-3, 140.0), "b"))
    for quantity, above in (
        (cost.time_s, True),
        (cost.energy_j, True),
        (cost.dynamic_energy_j, False),
    ):
        assert (quantity.low > 0) == above


def test_a_visit_at_a_lowered_clock_gives_way_to_one_at_full_clock() -> None:
    low = replace(stretch(2e-3, 690.0), clock_samples_hz=(1.5e9,) * 9)
    full = replace(stretch(1e-3, 400.0), clock_samples_hz=(1.98e9,) * 9)
    cost = derived(visit(low, "a"), visit(full, "b"))
    assert (cost.visits, cost.clock_hz) == (1, 1.98e9)
    nearly, lower = (
        replace(stretch(1e-3, 400.0), clock_samples_hz=(hz,) * 9) for hz in (1.9503e9, 1.95029e9)
    )
    assert derived(visit(nearly, "a"), visit(full, "b")).visits == 2, "98.5 % of the best clock"
    assert derived(visit(lower, "a"), visit(full, "b")).visits == 1
    unclocked = visit(stretch(1e-3, 400.0), "a")
    assert derived(unclocked, visit(full, "b")).visits == 2, "nothing says that it was lower"
    other = visit(low, "c", configuration=samples.RELU.key)
    campaign = replace(CONTEXT, calibration=CALIBRATION)
    costs = {c.configuration: c for c in Deriver([campaign], [visit(full, "b"), other]).costs({})}
    assert costs[samples.RELU.key].clock_hz == 1.5e9, "better than none"


def test_visits_at_the_power_limit_make_an_operating_point_of_their_own() -> None:
    low = replace(stretch(2e-3, 300.0), clock_samples_hz=(1.5e9,) * 9)
    full = visit(replace(stretch(1e-3, 400.0), clock_samples_hz=(1.98e9,) * 9), "full")
    limited = visit(low, "limited", role="limited", flags=("at the power limit: 1500 MHz",))
    recovering = visit(low, "low", role="limited", flags=("clock below its highest: 1500 MHz",))
    cost = derived(limited, recovering, full)
    assert cost.time_s.mean == pytest.approx(1e-3)
    assert cost.limited.clock_hz == pytest.approx(1.5e9)
    assert cost.limited.time_s == pytest.approx(2e-3)
    assert cost.limited.dynamic_energy_j == pytest.approx((300 - BASE_W) * 2e-3)
    assert derived(recovering, full).limited is None
    failed = visit(None, "failed", outcome="error", reason="refused", kernels=None)
    assert derived(limited, failed).limited is None, "nothing to set it off against"


def test_a_time_at_the_limit_is_as_much_longer_as_replays_are() -> None:
    """Among neighbours 3 µs; alone 2 µs, and 4 µs and 6 µs at a lowered clock."""
    beside = Neighbours(1, (3e-6,), (0.0,))
    full = replace(stretch(2e-6, 400.0), clock_samples_hz=(1.98e9,) * 9)
    low = [
        replace(stretch(s, 300.0), clock_samples_hz=(hz,) * 9)
        for s, hz in ((4e-6, 1.5e9), (6e-6, 1.3e9))
    ]
    flags = ("at the power limit: lower",)
    cost = derived(
        visit(full, "full", neighbours=beside),
        *(visit(each, f"{n}", role="limited", flags=flags) for n, each in enumerate(low)),
    )
    assert cost.limited.time_s == pytest.approx(2.5 * 3e-6)
    assert cost.limited.clock_hz == pytest.approx(1.4e9)
    assert cost.limited.dynamic_energy_j == pytest.approx(200 * 5e-6)
    restored = visit(full, "full", neighbours=beside, restore=stretch(2e-6, 300.0))
    limited = visit(low[0], "low", role="limited", flags=flags)
    cost = derived(replace(restored, restore=full), limited)
    assert cost.limited.time_s == pytest.approx(3e-6), "replays that take no time tell no ratio"


def test_each_visit_is_held_against_its_own_campaigns_base_power() -> None:
    warm = replace(CALIBRATION, base_power_w=120.0)
    campaigns: Iterable[Campaign] = [
        replace(CONTEXT, calibration=CALIBRATION),
        replace(CONTEXT, id="later", calibration=warm),
    ]
    seen = stretch(1e-3, 400.0)
    [cost] = Deriver(campaigns, [visit(seen, "a"), visit(seen, "b", campaign="later")]).costs({})
    assert cost.dynamic_energy_j.mean == pytest.approx((0.300 + 0.280) / 2)


def test_host_times_are_joined_by_configuration_and_form() -> None:
    def heard(identity: str, form: Any, *times_s: float) -> HostVisit:
        return HostVisit(identity, "a-campaign", "k", form, "now", times_s)

    found = host_quantities(
        [
            heard("a", "module", 1e-5, 1.2e-5),
            heard("b", "module", 1.25e-5),
            heard("c", "function", 1e-6),
        ]
    )
    assert found["k"]["module"].median == pytest.approx(1.2e-5)
    assert found["k"]["module"].count == 3
    assert found["k"]["function"].mean == pytest.approx(1e-6)
    assert found["k"]["function"].low is None
    two = host_quantities([heard("d", "module", 1e-5, 1.2e-5)])["k"]["module"]
    assert two.half_width == pytest.approx(half_width((1e-5, 1.2e-5), None))


def test_host_times_of_a_host_that_was_held_up_are_left_out() -> None:
    def heard(identity: str, *times_s: float) -> HostVisit:
        return HostVisit(identity, "a-campaign", "k", "module", "now", times_s)

    calm, alike = heard("a", 1.0e-5, 1.1e-5, 1.2e-5), heard("b", 1.2e-5, 1.2e-5)
    found = host_quantities([heard("slow", 1.5e-5, 2e-5), calm, heard("slower", 4e-5), alike])
    assert found["k"]["module"] == host_quantities([calm, alike])["k"]["module"]
    assert found["k"]["module"].count == 5


# Suspicion, on a trace recorded from a real board


def window(first_s: float, last_s: float) -> Stretch:
    reading = ReplayMeter(TRACE).window(first_s, last_s)
    return Stretch(
        10,
        (0.01,) * 20,
        last_s - first_s,
        1.0,
        power_samples=reading.power_samples,
        counter_edges=reading.counter_edges,
        clock_samples_hz=reading.clock_samples_hz,
    )


def test_a_steady_window_is_not_flagged() -> None:
    assert stretch_flags(window(1.4, 2.4)) == []


def test_a_window_across_the_edge_of_the_load_is_flagged() -> None:
    flags = stretch_flags(window(0.75, 1.45))
    assert any(flag.startswith("power: median and 3σ-mean differ by ") for flag in flags)


def test_a_counter_that_disagrees_with_the_samples_is_flagged() -> None:
    """The counter of one second beside the samples of another, both as recorded."""
    idle, busy = window(0.2, 0.9), window(1.4, 2.4)
    flags = stretch_flags(replace(busy, counter_edges=idle.counter_edges))
    assert len(flags) == 1
    assert flags[0].startswith("power: counter and samples differ by -8")


def test_the_flags_of_visits_reach_their_cost() -> None:
    cost = derived(visit(window(0.75, 1.45), flags=("clock held back: software power cap",)))
    assert cost.flags[0] == "clock held back: software power cap"
    assert any("median and 3σ-mean" in flag for flag in cost.flags)


def test_times_in_two_states_are_flagged() -> None:
    mixed = replace(stretch(1e-3, 400.0), replay_times_s=(0.01,) * 16 + (0.014,) * 8)
    assert [f for f in stretch_flags(mixed) if f.startswith("time: median and 3σ-mean")]


def metered(watts: tuple[float, ...], counter_w: float = 0.0, edges: int = 0) -> Stretch:
    """A second of replays of 10 ms, its power sampled every 20 ms, a counter's edge every 100."""
    power = tuple((0.02 * i, w) for i, w in enumerate(watts))
    counter = tuple((float(i), counter_w * i) for i in range(edges))
    return Stretch(1, (0.01,) * 20, 1.0, 1.0, power_samples=power, counter_edges=counter)


@pytest.mark.parametrize(
    ("seen", "flags"),
    [
        (metered((100.0,) * 9, 103.0, 4), []),
        (metered((100.0,) * 9, 97.0, 4), []),
        (metered((100.0,) * 9, 150.0, 4), ["power: counter and samples differ by +50.0 %"]),
        (metered((100.0,) * 9, 96.0, 4), ["power: counter and samples differ by -4.0 %"]),
        (metered((100.0,) * 9, 104.0, 3), []),
        (
            metered((400.0, 400.0, 440.0, 440.0, 440.0, 440.0, 400.0, 400.0, 400.0, 400.0)),
            ["power: median and 3σ-mean differ by 3.8 %"],
        ),
        (
            metered((500.0, 400.0, 400.0, 400.0, 500.0)),
            [
                "power: median and 3σ-mean differ by 9.1 %",
                "power: trapezoid and samples differ by -3.4 %",
            ],
        ),
        (metered((), 104.0, 4), []),
        (
            replace(metered(()), replay_times_s=(1.0,) * 6 + (1.1,) * 4),
            ["time: median and 3σ-mean differ by 3.8 %"],
        ),
    ],
)
def test_flags_say_by_how_much_two_readings_differ(seen: Stretch, flags: list[str]) -> None:
    assert stretch_flags(seen) == flags


# Runs of whole models


def repeat(time_s: float, power_w: float | None = 200.0) -> Stretch:
    return replace(stretch(time_s / 10, power_w), calls_per_replay=1)


def test_a_run_counts_the_repeats_that_agree() -> None:
    repeats = [repeat(t) for t in (0.0130, 0.0100, 0.0101, 0.0117, 0.01005)]
    kept = agreeing(repeats)
    assert len(kept) == AGREEING
    assert sorted(statistics.fmean(call_times_s(r)) for r in kept) == pytest.approx(
        [0.0100, 0.01005, 0.0101]
    )
    assert repeat_spread(kept) == pytest.approx(0.01)
    bound = [replace(repeat(t), replay_times_s=(t,)) for t in (0.98, 1.0, 1.005, 1.01)]
    assert agreeing(bound) == bound[1:], "1 % apart, and no more"
    assert agreeing(repeats[:2]) == sorted(repeats[:2], key=lambda r: r.replay_times_s[0])
    run = replace(samples.model_run(samples.workload()), repeats=tuple(repeats))
    cost = run_cost([run])
    assert cost.time_s.mean == pytest.approx(0.01005)
    assert cost.energy_j.mean == pytest.approx(0.01005 * 200)
    assert cost.power_w == pytest.approx(200)


def test_runs_of_one_model_are_joined_with_their_spread_flags_and_clock() -> None:
    clocked = [
        replace(repeat(t), clock_samples_hz=(hz,)) for t, hz in ((0.01, 1.98e9), (0.01, 1.5e9))
    ]
    run = replace(samples.model_run(samples.workload()), flags=("a", "b"))
    even = replace(run, repeats=tuple(clocked))
    uneven = replace(run, flags=("b", "c"), repeats=tuple(map(repeat, (0.02, 0.0205, 0.021))))
    found = run_cost([even, uneven])
    assert found.time_s.mean == pytest.approx((2 * 0.01 + 0.02 + 0.0205 + 0.021) / 5)
    assert found.spread == pytest.approx(0.05) and found.is_uneven
    assert found.flags == ("a", "b", "c") and found.clock_hz == pytest.approx(1.74e9)
    close = run_cost([replace(run, repeats=(repeat(0.02), repeat(0.0205)))])
    assert not close.is_uneven, "hosts differ by 3 % from moment to moment"
    assert not replace(found, spread=HOSTS_AGREEMENT).is_uneven
    tenth = [replace(each, calls_per_replay=10) for each in clocked]
    per_pass = run_cost([replace(run, repeats=tuple(tenth))])
    assert per_pass.time_s.mean == pytest.approx(0.001)


def test_repeats_that_agree_on_a_host_that_was_held_up_do_not_count() -> None:
    held_up = [repeat(t) for t in (0.0131, 0.01311, 0.01312)]
    calm = [repeat(t) for t in (0.0100, 0.0103, 0.0106)]
    assert agreeing([*held_up, *calm]) == calm, "the three fastest, though they differ by 6 %"
    assert agreeing([*held_up, *calm[:1]]) == [calm[0], *held_up[:2]], "three are needed"
    apart = [repeat(t) for t in (0.0100, 0.0105, 0.0110, 0.0112, 0.0114)]
    assert agreeing(apart) == apart[:3], "no three agree within 1 %"
    close = [repeat(t) for t in (0.0108, 0.01081, 0.01082)]
    assert agreeing([*calm, *close]) == close, "held up by no more than hosts are"


def test_a_run_without_power_has_no_energy_and_a_failed_one_no_cost() -> None:
    run = replace(samples.model_run(samples.workload()), repeats=(repeat(0.01, None),))
    cost = run_cost([run])
    assert (cost.energy_j, cost.power_w) == (None, None)
    half = run_cost([replace(run, repeats=(repeat(0.01, None), repeat(0.01, 150.0)))])
    assert half.energy_j is None and half.power_w == pytest.approx(150)
    assert run_cost([replace(run, outcome="error", repeats=())]) is None
    assert run_cost([]) is None


def test_time_among_neighbours_stands_for_the_call_and_adds_base_power_alone() -> None:
    seen = Neighbours(10, (5.0e-5, 6.0e-5, 5.5e-5), (1.0e-5, 1.0e-5, 1.0e-5))
    alone = visit_cost(visit(stretch(4e-6, 300.0, eager=(5e-6,))), CALIBRATION)
    among = visit_cost(visit(stretch(4e-6, 300.0, eager=(5e-6,)), neighbours=seen), CALIBRATION)
    assert among.time_s == pytest.approx(4.5e-6)
    assert among.replay_time_s == alone.replay_time_s == alone.time_s
    assert among.dynamic_energy_j == alone.dynamic_energy_j == pytest.approx(200.0 * 4e-6)
    assert among.energy_j == pytest.approx(200.0 * 4e-6 + BASE_W * 4.5e-6)
    assert alone.eager_time_s == pytest.approx(5e-6)
    assert among.eager_time_s == pytest.approx(5.5e-6)


def after(**longer_s: float) -> Neighbours:
    """A call of 3 µs that takes so much longer after something else."""
    times: Any = {
        before: Neighbours(10, (4e-5 + 10 * s,), (1e-5,))
        for before, s in {"itself": 0.0, **longer_s}.items()
    }
    return Neighbours(10, (4e-5,), (1e-5,), times)


def test_what_a_call_takes_longer_after_others_is_its_own_code_and_the_usual_stream() -> None:
    steady = stretch(1e-6, 300.0)
    of_two = {"first": 1, "second": 4}
    seen = [
        visit(steady, "a", neighbours=after(code=2e-7), kernels=of_two),
        visit(steady, "b", neighbours=after(code=4e-7), kernels=of_two),
        visit(steady, "c", neighbours=None),
        visit(steady, "d", neighbours=after(code=9e-7, stream=9e-7), kernels={}, outcome="error"),
    ]
    streams = [
        visit(
            steady,
            f"s{s}",
            configuration=f"other {s}",
            kernels={"one": 1},
            neighbours=after(code=5e-8, stream=s),
        )
        for s in (1e-7, 1.5e-7, 8e-7)
    ]
    unseen = visit(steady, "n", configuration="other", kernels=None, neighbours=after(code=5e-8))
    found = derived(*seen).after_others
    assert found.code_s == pytest.approx(3e-7) and found.stream_s is None
    deriver = Deriver([replace(CONTEXT, calibration=CALIBRATION)], [*seen, *streams, unseen])
    costs = deriver.costs({})
    known = {cost.configuration: cost.after_others for cost in costs}
    both = known.pop(seen[0].configuration)
    assert both.code_s == found.code_s
    assert both.stream_s == pytest.approx(3e-7), "twice the median, whatever is launched how often"
    for each in known.values():
        assert each.code_s == pytest.approx(5e-8)
        assert each.stream_s == pytest.approx(1.5e-7), "one kernel, where none were recorded too"
    assert (
        derived(visit(steady, "e", neighbours=Neighbours(1, (1e-5,), (1e-6,)))).after_others is None
    )


def test_hot_weights_are_a_state_of_their_own() -> None:
    seen = [Neighbours(1, (t,), (0.0,)) for t in (2e-6, 4e-6, 1e-6)]
    steady = stretch(1e-6, 300.0)
    both = derived(
        visit(steady, "a", neighbours=seen[0]),
        visit(steady, "b", neighbours=seen[1]),
        visit(steady, "c", weights="hot", neighbours=seen[2]),
    )
    assert both.time_s.mean == pytest.approx(3e-6)
    assert both.hot.time_s == pytest.approx(1e-6)
    assert HOT_ALONE not in both.flags
    alone = derived(visit(steady, "d", weights="hot", neighbours=seen[2]))
    assert alone.time_s.mean == pytest.approx(1e-6)
    assert HOT_ALONE in alone.flags


def test_samples_that_tell_of_the_end_are_left_out() -> None:
    power = tuple((0.02 * i, 400.0 if i < 9 else 250.0) for i in range(10))
    seen = Stretch(10, (0.01,) * 19, 0.19, 1.0, power_samples=power)
    assert stretch_power_w(seen) == 400.0
    assert stretch_flags(seen) == []
    short = replace(
        seen, duration_s=0.05, power_samples=((0.0, 400.0), (0.01, 400.0), (0.04, 100.0))
    )
    assert stretch_power_w(short) == 300.0, "few samples are better than none"
    assert stretch_power_w(replace(short, duration_s=0.066)) == 300.0
    three = replace(short, duration_s=0.07, power_samples=(*power[:3], (0.06, 100.0)))
    assert stretch_power_w(three) == 400.0


# Where outputs went


def mean_times_s(*visits: Visit) -> dict[tuple[str, str], float]:
    """Return the mean time of every configuration and setting that has one."""
    campaign = replace(CONTEXT, calibration=CALIBRATION)
    costs = Deriver([campaign], visits).costs({})
    return {(c.configuration, c.setting): round(c.time_s.mean, 9) for c in costs if c.time_s}


@pytest.mark.parametrize("before", ["fresh", None])
def test_visits_of_reused_outputs_stand_for_a_call_where_there_are_any(
    before: Outputs | None,
) -> None:
    older = [visit(stretch(2e-3, 400.0), i, outputs=before) for i in ("a", "b")]
    newer = visit(stretch(1e-3, 300.0), "c", outputs="reused")
    for visits in ((*older, newer), (newer, *older)):
        cost = derived(*visits)
        assert (cost.visits, cost.time_s.count) == (1, 15)
        assert (cost.time_s.mean, cost.power_w.mean) == pytest.approx((1e-3, 300.0))
    alone = derived(*older)
    assert alone.visits == 2
    assert alone.time_s.mean == pytest.approx(2e-3)


@pytest.mark.parametrize("before", ["fresh", None])
def test_visits_at_the_power_limit_are_of_the_same_outputs(before: Outputs | None) -> None:
    def limited(clock_hz: float, outputs: Outputs | None) -> Visit:
        low = replace(stretch(3e-3, 300.0), clock_samples_hz=(clock_hz,) * 9)
        flags = ("at the power limit: lower",)
        return visit(low, f"{outputs}", role="limited", flags=flags, outputs=outputs)

    high = replace(stretch(1e-3, 400.0), clock_samples_hz=(1.98e9,) * 9)
    newer, older = (visit(high, f"full {o}", outputs=o) for o in ("reused", before))
    both = derived(limited(1.2e9, before), limited(1.5e9, "reused"), newer, older)
    assert both.limited.clock_hz == pytest.approx(1.5e9)
    assert derived(limited(1.2e9, before), newer, older).limited is None
    only = derived(limited(1.2e9, before), older)
    assert only.limited.clock_hz == pytest.approx(1.2e9)


@pytest.mark.parametrize("before", ["fresh", None])
@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "error", "reason": "refused", "stretch": None, "kernels": None},
        {"outcome": "out_of_memory", "reason": "none left", "stretch": None, "kernels": None},
        {"role": "limited"},
        {"role": "anchor"},
        {"role": "duplicate"},
        {"access": "chain"},
        {"access": "reused", "weights": "hot"},
        {"setting": "other"},
        {"configuration": samples.RELU.key},
    ],
    ids=str,
)
def test_what_is_no_good_measurement_of_the_same_call_displaces_none(
    changes: dict[str, Any], before: Outputs | None
) -> None:
    older = visit(stretch(2e-3, 400.0), "a", outputs=before)
    other = replace(visit(stretch(1e-3, 300.0), "b", outputs="reused"), **changes)
    for visits in ((older, other), (other, older)):
        assert mean_times_s(*visits)[older.configuration, older.setting] == 2e-3


def test_another_setting_or_configuration_is_untouched() -> None:
    places = [(c, s) for c in (samples.CONV.key, samples.RELU.key) for s in ("default", "tf32")]
    older = [visit(stretch(2e-3, 400.0), f"{c} {s}", configuration=c, setting=s) for c, s in places]
    newer = visit(stretch(1e-3, 300.0), "newer", outputs="reused")
    times = mean_times_s(*older, newer)
    assert times.pop((newer.configuration, newer.setting)) == 1e-3
    assert times == dict.fromkeys(places[1:], 2e-3)


@pytest.mark.parametrize("before", ["fresh", None])
def test_hot_weights_do_not_displace_cold_ones(before: Outputs | None) -> None:
    """Of a training call, outputs are reused where weights are hot and fresh where they are not."""
    hot = visit(stretch(1e-3, 300.0), "hot", weights="hot", outputs="reused")
    cold = visit(stretch(2e-3, 300.0), "cold", outputs=before)
    cost = derived(hot, cold)
    assert cost.time_s.mean == pytest.approx(2e-3)
    assert cost.hot.time_s == pytest.approx(1e-3)
    assert HOT_ALONE not in cost.flags


def test_the_cost_that_counts_is_timed_in_the_setting_and_by_this_estimator_if_any() -> None:
    now = replace(samples.cost(), setting="{}", estimator=ESTIMATOR)
    older, untimed = replace(now, estimator="1"), replace(now, time_s=None)
    oldest, elsewhere = replace(now, estimator="0"), replace(now, setting="other")
    assert cost_in([now, older], "{}") is now
    assert cost_in([oldest, older, untimed, elsewhere], "{}") is older
    assert cost_in([untimed, elsewhere], "{}") is None
