"""What is rejected, what drifts, and how precise costs are: on visits made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opdb.derive.costs import (
    REJECTED,
    anchor_drifts,
    board_costs,
    drift_flags,
    is_rejected,
    marked,
    rejection,
    reviewed,
)
from opdb.derive.statistics import is_within, relative_half_width
from opdb.records import Calibration, Cost, Quantity, Stretch, Visit
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
