"""What is rejected, what drifts, and how precise costs are: on visits made by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from opdb.derive.costs import (
    REJECTED,
    anchor_drifts,
    board_costs,
    clock_flags,
    drift_flags,
    host_quantities,
    is_rejected,
    marked,
    rejection,
    reviewed,
)
from opdb.derive.runs import run_cost
from opdb.derive.statistics import is_within, reached, relative_half_width, typical_on
from opdb.records import ALGORITHM_SETTING, Calibration, Cost, Quantity, Stretch, Visit
from tests.store import samples

BASE_W = 100.0
CAMPAIGN = replace(
    samples.campaign("a-campaign"),
    calibration=Calibration(BASE_W, (99.0, 101.0), None, 0.02, 0.0, 0.1),
)


def stretch(call_s: float = 1e-3, power_w: float = 400.0, **changes: Any) -> Stretch:
    """A steady stretch of 10 calls a replay."""
    power = tuple((0.02 * i, power_w) for i in range(15))
    return replace(Stretch(10, (10 * call_s,) * 15, 0.31, 1.0, power_samples=power), **changes)


def visit(identity: str, seen: Stretch | None = None, minute: int = 0, **changes: Any) -> Visit:
    plain = samples.visit(identity, stretch=seen or stretch(), restore=None)
    told = {"campaign": CAMPAIGN.id, "flags": (), "neighbours": None, **changes}
    at = f"2026-11-21T10:{minute:02d}:00.000+00:00"
    return replace(plain, started_at=at, **told)


HOT = ("clock held back: software thermal slowdown",)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("clock held back: hardware slowdown", "the hardware held the clock back"),
        ("clock held back: hardware power brake", "the hardware's power brake held the clock back"),
        ("clock held back: hardware thermal slowdown", "heat held the clock back"),
        ("clock held back: software thermal slowdown", "heat held the clock back"),
        ("another process is on the board: 7 (python)", "another process was on the board"),
        (
            "clock below its highest: 1500 of 1980 MHz",
            "the clock was low, and not for the power limit",
        ),
        ("the clock moved: 1800 to 1980 MHz", "the clock moved during the visit"),
        (
            "the device waited for the host before 12 % of the replays",
            "the host was too slow to keep the device busy",
        ),
        (
            "time: median and 3σ-mean differ by 3.0 %",
            "median and mean of its times are too far apart",
        ),
        (
            "power: median and 3σ-mean differ by 3.0 %",
            "median and mean of its power are too far apart",
        ),
    ],
)
def test_each_reason_rejects_on_a_gpu(flag: str, why: str) -> None:
    """Flags as stored visits carry them: they are data, and outlive the code that set them."""
    assert rejection(["the meter's lag is 17 ms", flag], samples.DEVICE) == why
    assert marked(visit("v", flags=(flag,)), samples.DEVICE).flags[-1] == REJECTED + why


def test_rejected_visits_are_left_out_where_a_better_one_exists() -> None:
    bad = visit("bad", stretch(2e-3), flags=HOT)
    good = visit("good")
    other = visit("other", flags=HOT, setting="another")
    twin = visit("twin", flags=HOT, role="duplicate")
    kept = reviewed([CAMPAIGN], [bad, good, other, twin])
    assert [v.id for v in kept] == ["good", "other", "twin"]
    costs = {c.setting: c for c in board_costs([CAMPAIGN], [bad, good, other], [])}
    assert costs[good.setting].visits == 1 and costs[good.setting].flags == ()
    assert costs["another"].flags == HOT


def anchors(*powers_w: float, call_s: tuple[float, ...] = ()) -> list[Visit]:
    """One anchor visit every second minute."""
    times = call_s or (1e-3,) * len(powers_w)
    return [
        visit(f"a{n}", stretch(time, power), 2 * n, role="anchor", configuration="anchor")
        for n, (power, time) in enumerate(zip(powers_w, times, strict=True))
    ]


def test_drift_is_an_anchors_deviation_from_its_median() -> None:
    made = anchors(400.0, 404.0, 440.0, call_s=(1e-3, 1.01e-3, 1e-3))
    drifts = anchor_drifts(CAMPAIGN, [visit("v"), visit("x", campaign="another"), *made])
    assert [d.visit for d in drifts] == ["a0", "a1", "a2"]
    assert [d.power for d in drifts] == pytest.approx([400 / 404 - 1, 0, 440 / 404 - 1])
    assert [d.time for d in drifts] == pytest.approx([0, 0.01, 0])
    assert anchor_drifts(CAMPAIGN, anchors(400.0)) == [], "one visit has nothing to be held against"
    assert [d.power for d in anchor_drifts(CAMPAIGN, made[1:])] == pytest.approx(
        [-0.0427, 0.0427], abs=1e-4
    )
    failed = replace(made[0], id="failed", outcome="error", stretch=None)
    silent = [replace(v, id="silent", stretch=None, configuration="silent") for v in made]
    assert anchor_drifts(CAMPAIGN, [*made, failed, *silent]) == drifts
    dark = [replace(v, stretch=replace(v.stretch, power_samples=())) for v in made if v.stretch]
    assert [d.power for d in anchor_drifts(CAMPAIGN, dark)] == [None] * 3
    one_dark = anchor_drifts(CAMPAIGN, [dark[0], *made[1:]])
    assert [d.power for d in one_dark] == pytest.approx([None, 404 / 422 - 1, 440 / 422 - 1])


def test_visits_between_anchors_that_drift_are_flagged_and_no_others() -> None:
    made = anchors(400.0, 400.0, 440.0, 400.0, 400.0)
    between = [visit(f"v{minute}", None, minute) for minute in (1, 3, 5, 7, 9)]
    found = drift_flags([CAMPAIGN], [*made, *between])
    assert {key for key in found if key.startswith("v")} == {"v3", "v5"}
    assert found["v3"] == "drift of the anchors around it: power +10.0 %"
    kept = {v.id: v for v in reviewed([CAMPAIGN], [*made, *between])}
    assert kept["v3"].flags == (found["v3"],) and kept["v1"].flags == ()
    [cost] = [c for c in board_costs([CAMPAIGN], [*made, *between], []) if c.visits == 5]
    assert cost.flags == (found["v3"],)


def test_a_drift_is_told_from_the_scatter_of_one_visit_by_the_larger_of_three_steps() -> None:
    """Medians are 400 W and 1 ms; of power more than 2 %, of time more than 1 %, is a drift."""
    for watts, words in (
        ((400.0, 400.0, 409.0), "power +2.2 %"),
        ((400.0, 400.0, 391.0), "power -2.2 %"),
        ((400.0, 405.0, 395.0), "power -2.5 %"),
        ((400.0, 400.0, 407.0), None),
    ):
        found = drift_flags([CAMPAIGN], [*anchors(*watts), visit("v", None, 3)])
        told = None if words is None else f"drift of the anchors around it: {words}"
        assert found.get("v") == told
    both = anchors(400.0, 400.0, 412.0, call_s=(1e-3, 1e-3, 9.8e-4))
    found = drift_flags([CAMPAIGN], [*both, visit("v", None, 3)])
    assert found["v"] == "drift of the anchors around it: power +3.0 %, time -2.0 %"
    fell = anchors(400.0, 400.0, 400.0, call_s=(1e-3, 1.006e-3, 0.994e-3))
    found = drift_flags([CAMPAIGN], [*fell, visit("v", None, 3)])
    assert found["v"] == "drift of the anchors around it: time -1.2 %"
    calm = anchors(400.0, 400.0, 400.0, call_s=(1e-3, 1e-3, 1.009e-3))
    assert drift_flags([CAMPAIGN], [*calm, visit("v", None, 3)]) == {}


def cost(energy: Quantity | None, timed: bool = True) -> Cost:
    time = Quantity(1.0, 1.0, 0.99, 1.01, 2) if timed else None
    return Cost("c", "GPU-1", "{}", "1", 2, 1, time, None, None, energy, None)


def test_precision_is_half_the_interval_over_the_mean() -> None:
    assert relative_half_width(Quantity.around(2.0, 2.0, 0.1, 2)) == pytest.approx(0.05)
    assert relative_half_width(Quantity(2.0, 2.0, None, None, 1)) is None
    assert relative_half_width(Quantity(0.0, 0.0, 0.0, 0.0, 2)) == 0
    assert not is_within(cost(Quantity(2.0, 2.0, None, None, 1)), 0.5)
    assert is_within(cost(None), 0.01), "there is nothing to judge"
    assert is_within(cost(Quantity(2.0, 2.0, -1.0, 5.0, 2)), 1.5), "just as precise as asked"


def test_a_visit_whose_restoring_took_longer_is_rejected_and_makes_no_cost() -> None:
    worse = visit("worse", stretch(1e-6), restore=stretch(2e-6))
    as_long = visit("as long", stretch(2e-6), restore=stretch(2e-6))
    for device in (samples.DEVICE, samples.PROCESSOR):
        flagged = marked(worse, device)
        assert is_rejected(marked(as_long, device))
        assert is_rejected(flagged) and "takes no longer than" in flagged.flags[-1]
    [cost] = board_costs([CAMPAIGN], [worse], [])
    assert (cost.time_s, cost.energy_j, cost.power_w, cost.hot) == (None, None, None, None)
    assert "takes no longer than" in cost.reasons["time_s"]
    better = visit("better", stretch(3e-6), restore=stretch(2e-6))
    [cost] = board_costs([CAMPAIGN], [worse, better], [])
    assert cost.visits == 1
    assert cost.time_s.mean == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("lengths", "time_s"),
    [
        ((4e-5, 8e-3), 4e-5),
        ((4e-5, 1.3e-4), 4e-5),
        ((4e-5, 8e-3, 4.4e-5), 4.2e-5),
        ((4e-5, 9e-5, 5e-5), 5e-5),
    ],
)
def test_on_a_processor_a_visit_that_was_held_up_does_not_decide_a_cost(
    lengths: tuple[float, ...], time_s: float
) -> None:
    """Other work may hold up a whole visit; on a GPU visits are alike, and come to their mean."""
    on_cpu = replace(CAMPAIGN, device=samples.PROCESSOR)
    seen = [
        visit(f"v{n}", stretch(replay_times_s=(length * 10,) * 9))
        for n, length in enumerate(lengths)
    ]
    [cost] = board_costs([on_cpu], seen, [])
    assert cost.time_s.mean == pytest.approx(time_s)
    assert cost.visits == len(lengths)
    [cost] = board_costs([CAMPAIGN], seen, [])
    assert cost.time_s.mean == pytest.approx(sum(lengths) / len(lengths))


@pytest.mark.parametrize(
    "flag", ["clock held back: software power cap", "at the power limit: 1700 of 1980 MHz"]
)
def test_the_power_limit_rejects_nothing(flag: str) -> None:
    assert rejection([flag], samples.DEVICE) is None


def test_a_processors_times_may_have_a_tail() -> None:
    tail = ["time: median and 3σ-mean differ by 3.0 %"]
    assert rejection(tail, samples.PROCESSOR) is None
    assert rejection(tail, samples.DEVICE) is not None
    assert rejection(["another process is on the board: 7 (python)"], samples.PROCESSOR)


def test_a_rejected_visit_says_why() -> None:
    skewed = stretch(power_samples=tuple((0.02 * i, 400.0 if i < 8 else 500.0) for i in range(15)))
    kept = marked(visit("v", skewed), samples.DEVICE)
    assert kept.flags == (REJECTED + "median and mean of its power are too far apart",)
    assert is_rejected(kept) and not is_rejected(visit("v"))
    for role in ("limited", "anchor"):
        assert marked(visit("v", skewed, role=role), samples.DEVICE).flags == ()
    assert marked(visit("v", outcome="error", flags=HOT), samples.DEVICE).flags == HOT


def test_a_clock_that_moves_is_told_from_one_at_the_limit() -> None:
    moving = stretch(clock_samples_hz=(1.98e9,) * 15 + (1.8015e9,) * 5)
    assert clock_flags(moving, []) == ["the clock moved: 1802 to 1980 MHz"]
    assert clock_flags(moving, ["at the power limit: 1900 of 1980 MHz"]) == []
    assert clock_flags(stretch(clock_samples_hz=(1.98e9,) * 39 + (1.8e9,)), []) == []
    assert clock_flags(stretch(clock_samples_hz=(1.98e9,) * 19 + (1.8e9,)), []) == []
    assert clock_flags(stretch(clock_samples_hz=(1.98e9,) * 18 + (1.8e9,) * 2), []) != []
    assert clock_flags(stretch(clock_samples_hz=(2e9, 1.94e9)), []) == [], "3 % is allowed"
    assert clock_flags(stretch(clock_samples_hz=(2e9, 1.939e9)), []) != []
    assert clock_flags(stretch(), []) == []
    assert is_rejected(marked(visit("v", moving), samples.DEVICE))


def test_a_visit_that_failed_neither_hides_another_nor_keeps_a_rejected_one() -> None:
    failed = visit("failed", outcome="error", reason="out of memory")
    bad, good = visit("bad", flags=HOT), visit("good")
    assert [v.id for v in reviewed([CAMPAIGN], [failed, bad, good])] == ["failed", "good"]
    assert [v.id for v in reviewed([CAMPAIGN], [failed, bad])] == ["failed", "bad"]


def test_drift_of_time_and_what_lies_before_and_after_all_anchors() -> None:
    made = anchors(400.0, 400.0, 400.0, call_s=(1e-3, 1e-3, 1.5e-3))
    ends = [visit("before", None, 0), visit("after", None, 30)]
    ends[0] = replace(ends[0], started_at="2026-11-21T09:00:00.000+00:00")
    found = drift_flags([CAMPAIGN], [*made, *ends])
    assert found["after"] == "drift of the anchors around it: time +50.0 %"
    assert "before" not in found
    assert drift_flags([CAMPAIGN], ends) == {}


def test_a_visit_belongs_to_the_anchors_from_the_one_before_to_the_one_after() -> None:
    made = anchors(400.0, 400.0, 440.0, 400.0, 400.0)
    at = {minute: visit(f"at {minute}", None, minute) for minute in (2, 4, 6, 8)}
    found = drift_flags([CAMPAIGN], [*made, *at.values()])
    assert {key for key in found if key.startswith("at")} == {"at 2", "at 4"}
    early = replace(visit("early"), started_at="2026-11-21T09:00:00.000+00:00")
    late = visit("late", None, 59)
    swung = anchors(440.0, 400.0, 400.0, 400.0, 360.0)
    found = drift_flags([CAMPAIGN], [*swung, early, late])
    assert found["early"] == "drift of the anchors around it: power +10.0 %"
    assert found["late"] == "drift of the anchors around it: power -10.0 %"
    calmed = anchors(400.0, 400.0, 440.0, 400.0)
    assert "late" not in drift_flags([CAMPAIGN], [*calmed, late]), "the last anchor is as usual"
    other = replace(CAMPAIGN, id="other")
    elsewhere = visit("elsewhere", None, 3, campaign="other")
    assert drift_flags([other, CAMPAIGN], [*made, elsewhere]).keys() == {"a1", "a2"}


def test_what_was_reached_adds_up() -> None:
    narrow, wide = Quantity.around(2.0, 2.0, 0.02, 2), Quantity.around(2.0, 2.0, 0.2, 2)
    found = reached(
        [cost(narrow), cost(wide), cost(wide), cost(None), cost(None, timed=False)],
        0.02,
        lambda cost: "the time was up",
    )
    assert (found.within, found.missed, found.unjudged) == (1, Counter({"the time was up": 2}), 1)
    assert found.half_width == pytest.approx(0.1)


def test_an_energy_that_is_not_above_0_is_missing_with_a_reason() -> None:
    [cost] = board_costs(
        [CAMPAIGN], [visit("v", stretch(3e-6, 101.0), restore=stretch(2e-6, 500.0))], []
    )
    assert cost.time_s is not None and cost.energy_j is cost.dynamic_energy_j is None
    assert cost.power_w is None and cost.reasons["energy_j"].startswith("no power: ")
    [cost] = board_costs([CAMPAIGN], [visit("v", stretch(power_w=0.0))], [])
    assert cost.energy_j is None, "a meter that reads 0 W"


def test_forced_algorithms_share_no_spread_with_usual_visits_and_have_no_host_times() -> None:
    host = replace(samples.host_visit(), configuration=samples.CONV.key)
    usual = [visit(f"u{n}", stretch(power_w=400.0 + n), n) for n in (0, 1)]
    forced = [
        replace(each, id=f"f{n}", setting=f'{{"{ALGORITHM_SETTING}":"direct"}}',
                stretch=stretch(power_w=400.0 + 200 * n))
        for n, each in enumerate(usual)
    ]  # fmt: skip
    alone, both = (board_costs([CAMPAIGN], seen, [host]) for seen in (usual, [*usual, *forced]))
    assert both[:1] == alone and alone[0].host_time_s
    assert [cost.setting for cost in both[1:]] == [forced[0].setting]
    assert both[1].visits == 2 and not both[1].host_time_s


def test_a_host_time_of_nothing_is_not_known() -> None:
    nothing = replace(samples.host_visit(), times_s=(0.0, 0.0))
    assert not host_quantities([nothing])


def test_on_a_processor_a_visit_is_as_long_as_its_median_says() -> None:
    on_cpu = replace(CAMPAIGN, device=samples.PROCESSOR)
    interrupted = stretch(replay_times_s=(1e-3,) * 9 + (2e-2,))
    restore = stretch(replay_times_s=(5e-4,) * 9 + (1e-2,))
    seen = visit("v", interrupted, restore=restore)
    [cost] = board_costs([on_cpu], [seen], [])
    assert cost.time_s.mean == pytest.approx(5e-5)
    [cost] = board_costs([CAMPAIGN], [seen], [])
    assert cost.time_s.mean == pytest.approx(1.45e-4)
    run = replace(samples.model_run(samples.workload()), repeats=(interrupted,) * 3)
    ran, by_mean = run_cost([run], typical_on(samples.PROCESSOR)), run_cost([run])
    assert ran.time_s.mean == pytest.approx(1e-4)
    assert by_mean.time_s.mean == pytest.approx(2.9e-4)
