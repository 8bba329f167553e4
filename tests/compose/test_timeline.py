"""The calls of a pass in time: host and device, clock, write-backs, schedule."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from opdb.memory import resident_bytes
from opdb.predict.compose import PassSum, schedule
from opdb.predict.timeline import (
    BEYOND_CACHES,
    LOWEST_SHARE,
    USUAL_ENERGY_EXPONENT,
    USUAL_TIME_EXPONENT,
    Pass,
    PredictionInputs,
    Scaling,
    Step,
    Traffic,
    clock_share,
    eager_time_s,
    scalings,
    steady_pass,
    timed_pass,
    written_back,
)
from opdb.records import Configuration, Cost, Device, Mode, OperatingPoint, Quantity, Workload
from tests.compose.test_composer import (
    ADD,
    CALIBRATION,
    CONV,
    CPU,
    GPU,
    HOT,
    ITEM,
    MODES,
    RELU,
    compose,
    cost,
    inputs,
    workload,
)
from tests.store import samples

BUSY_HOST = [Step(1e-6, 2e-5), Step(0.0, 1e-5), Step(3e-6, 4e-5)]
BUSY_DEVICE = [Step(1e-3, 2e-5), Step(2e-3, 1e-5), Step(1e-6, 4e-5)]
APART = [Step(2e-3, 1e-3), Step(2e-3, 1e-3), Step(0.0, 1e-3)]


@pytest.mark.parametrize(
    ("steps", "time_s"),
    [
        ([], 0.0),
        (BUSY_HOST, 7e-5),
        (BUSY_DEVICE, 3.001e-3),
        (APART, 4e-3),
        # host 0-1-2-3, device 1-3-5: the host waits to 5; the next pass begins there
        ([*APART[:2], Step(0.0, 1e-3, synchronises=True)], 5e-3),
        ([Step(2e-3, 1e-3, synchronises=True)] * 3, 9e-3),
    ],
    ids=["nothing", "host", "device", "overlapped", "a call waits", "every call waits"],
)
def test_the_slower_side_decides_but_where_the_host_waits(steps: list[Step], time_s: float) -> None:
    assert eager_time_s(steps) == pytest.approx(time_s)


def drawn(seed: int, *, waits: bool) -> list[Step]:
    draw = random.Random(seed)
    slower = draw.choice([0.3, 1.0, 3.0])
    return [
        Step(
            draw.choice([0.0, draw.uniform(1e-6, 9e-5)]) * slower,
            draw.uniform(1e-6, 9e-5),
            waits and draw.random() < 0.1,
        )
        for _ in range(60)
    ]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_steady_pass_takes_the_eager_time_and_runs_nothing_before_it_is_issued(
    seed: int, waits: bool
) -> None:
    steps = drawn(seed, waits=waits)
    spans, start_s, end_s = steady_pass(steps)
    if waits:
        assert end_s - start_s == pytest.approx(eager_time_s(steps), rel=1e-12)
    else:
        slower = max(sum(s.device_s for s in steps), sum(s.host_s for s in steps))
        assert end_s - start_s == pytest.approx(slower, rel=1e-12)
    host_s, device_s = 0.0, start_s
    for step, span in zip(steps, spans, strict=True):
        assert span.host_start_s >= host_s
        assert span.device_start_s >= max(span.host_end_s, device_s)
        assert span.host_end_s - span.host_start_s == pytest.approx(step.host_s)
        assert span.device_end_s - span.device_start_s == pytest.approx(step.device_s)
        host_s = span.host_end_s
        device_s = span.device_end_s if step.device_s else device_s
    assert device_s <= end_s * (1 + 1e-12)


def clock_cost(limited: OperatingPoint | None, clock_hz: float | None = 2e9) -> Cost:
    """Return a cost of 1 ms and 1 J at 2 GHz."""
    return replace(cost(CONV, 1e-3, 1.0), clock_hz=clock_hz, limited=limited)


def test_what_moves_its_bytes_slowly_is_not_bound_by_memory() -> None:
    """At the best rate 2 GiB take 1 ms; at less than half of it, the clock decides."""
    best, least = 2**31, BEYOND_CACHES
    assert least == 128 * 2**20
    moved = {"best": best, "as slow": best // 2, "slower": best // 2 - 1, "small": least - 1}
    found = scalings(dict.fromkeys((*moved, "unknown"), clock_cost(None)), moved)
    usual, bound = Scaling(0.66, 1.07), Scaling(0.0, 1.07)
    assert found["best"] == found["as slow"] == found["unknown"] == bound
    assert found["slower"] == found["small"] == usual
    longer = replace(clock_cost(None), time_s=Quantity(3e-3, 3e-3, None, None, 2))
    found = scalings({"best": clock_cost(None), "longer": longer}, {"best": best, "longer": best})
    assert (found["best"], found["longer"]) == (bound, usual), "the same bytes at a third"
    untimed = replace(clock_cost(None), time_s=None)
    alone = scalings(
        {"long": clock_cost(None), "k": clock_cost(None), "none": untimed}, {"long": least, "k": 1}
    )
    assert (alone["long"], alone["k"], alone["none"]) == (bound, usual, bound)
    cached = scalings(
        {"k": clock_cost(None), "small": clock_cost(None)}, {"k": least - 1, "small": 1}
    )
    assert set(cached.values()) == {bound}, "nothing shows the rate of the memory"


def test_the_share_is_the_largest_that_keeps_to_the_limit() -> None:
    assert clock_share(lambda share: 800 * share, 1000) == 1
    assert clock_share(lambda share: 800 * share, 800) == 1
    assert clock_share(lambda share: 800 * share, 600) == pytest.approx(0.75)
    assert clock_share(lambda _: 800.0, 600) == LOWEST_SHARE == 0.3
    just = clock_share(lambda share: 600.0 if share < 0.9 else 800.0, 600)
    assert just == pytest.approx(0.9, abs=1e-5)


KEPT = 30_000_000.0
COPY = Traffic(weights=0, inputs=4_000_000, output=8_000_000)
PRODUCT = Traffic(weights=100_000_000, inputs=0, output=0)


LARGE_COPY = replace(COPY, output=67_000_000)
WRITING = replace(PRODUCT, output=8_000_000)
HELD, TOO_LARGE = (Traffic(weights=0, inputs=size, output=0) for size in (30_000_000, 134_000_000))
GATHER = Traffic(weights=805_000_000, inputs=0, output=3_221_000_000)  # a weight for each row


@pytest.mark.parametrize(
    ("kinds", "calls", "kept", "written"),
    [
        # what streaming weights push out, as the mean of a call's occurrences
        ([COPY, PRODUCT], [0, 1], KEPT, [0.0, 8e6]),
        ([COPY, PRODUCT], [0, 0, 1], KEPT, [0.0, 16e6]),
        ([COPY, PRODUCT], [0, 1, 1], KEPT, [0.0, 4e6]),
        # what one call pushed out no other does
        ([COPY, PRODUCT, PRODUCT], [0, 1, 2], KEPT, [0.0, 8e6, 0.0]),
        # two outputs, 20 MB in all, are overwritten in time: unless the L2 keeps less
        ([COPY, replace(PRODUCT, weights=2_000_000)], [0, 1], KEPT, [0.0, 0.0]),
        ([COPY, replace(PRODUCT, weights=2_000_000)], [0, 0, 0, 1], KEPT, [0.0, 0.0]),
        ([COPY, replace(PRODUCT, weights=2_000_000)], [0, 1], 15e6, [-5e6, 2e6]),
        # no more is dirty than the L2 keeps, and no more pushed out than is brought in
        ([LARGE_COPY, PRODUCT], [0, 1], KEPT, [-KEPT, KEPT]),
        ([LARGE_COPY, replace(PRODUCT, weights=10_000_000)], [0, 1], KEPT, [-10e6, 10e6]),
        # inputs that the L2 cannot hold push out what is dirty
        ([COPY, HELD, PRODUCT], [0, 1, 2], KEPT, [0.0, 0.0, 8e6]),
        ([COPY, TOO_LARGE, PRODUCT], [0, 1, 2], KEPT, [0.0, 8e6, 0.0]),
        # what a call alone writes back is not added again
        ([WRITING], [0, 0, 0], KEPT, [0.0]),
        ([WRITING, PRODUCT], [0, 1], KEPT, [-8e6, 8e6]),
        # an output that the L2 cannot hold is written back alone as well
        ([GATHER], [0, 0], KEPT, [0.0]),
        ([COPY, GATHER], [0, 1, 1], KEPT, [8e6, 0.0]),
    ],
)
def test_what_is_dirty_is_written_back_by_who_pushes_it_out(
    kinds: list[Traffic], calls: list[int], kept: float, written: list[float]
) -> None:
    assert written_back(kinds, calls, kept) == written


def linear(size: int, rows: int = 1) -> Configuration:
    return Configuration(
        "linear",
        inputs={
            "input": {"shape": [rows, size], "dtype": "bfloat16"},
            "weight": {"shape": [size, size], "dtype": "bfloat16", "role": "weight"},
        },
    )


CLONE = Configuration("clone", inputs={"input": {"shape": [4_000_000], "dtype": "bfloat16"}})
LINEAR = linear(8192)  # 134 MB of weights
RATE, CLONE_S, LINEAR_S = 4e12, 5e-6, 35e-6


def found(**changes: Any) -> PredictionInputs:
    costs = cost(CLONE, CLONE_S, 1e-3), cost(LINEAR, LINEAR_S, 1e-3)
    known = {"resident_bytes": KEPT, "memory_rate": RATE}
    return inputs(*costs, **(known | changes))


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_pass_takes_the_bytes_over_the_memorys_rate_longer(mode: Mode) -> None:
    [clone, product] = timed_pass(Pass(workload(CLONE, LINEAR)), mode, found()).calls
    assert clone.transition_s == 0.0
    assert product.transition_s == pytest.approx(8e6 / RATE)


VIEW = Configuration("flatten", {}, {"input": {"shape": [4, 4], "dtype": "float32"}})
COSTS = (
    cost(CONV, 3e-5, 4e-3, {"module": 2e-5}, 4e-5),
    cost(RELU, 2e-6, 1e-4, {"module": 5e-6}, 3e-6),
    cost(ADD, 1e-6, 1e-5, {"module": 4e-5}, 2e-6),
    cost(ITEM, 1e-6, 1e-5, {"module": 1e-5}, 2e-6),
)
WORKLOADS = {
    "no wait": workload(CONV, RELU, ADD, RELU, CONV),
    "waits": workload(CONV, RELU, ITEM, ADD, RELU, CONV),
    "containers": workload(CONV, RELU, RELU, containers=7),
    "of the host": workload(RELU, RELU, ADD, RELU, RELU),
    "nothing": workload(),
}


def given(device: Device, **changes: float | None) -> PredictionInputs:
    calibration = replace(CALIBRATION, container_time_s=3e-6, **changes)  # type: ignore[arg-type]
    return inputs(*COSTS, device=device, calibration=calibration)


@pytest.mark.parametrize("of", WORKLOADS.values(), ids=WORKLOADS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("device", [GPU, CPU, replace(GPU, power_limit_w=130.0)], ids=str)
def test_it_adds_up_to_the_prediction(of: Workload, mode: Mode, device: Device) -> None:
    found = compose(of, mode, given(device))
    laid = schedule(PassSum(Pass(of), mode, given(device)))
    assert laid.end_s - laid.start_s == pytest.approx(found.time_s or 0.0, rel=1e-12)
    assert [slot.call for slot in laid.slots] == list(of.calls)
    assert laid.issued == (mode == "eager" and device.type != "cpu")
    dynamic = [laid.costs[slot.call.configuration.key].dynamic_energy_j for slot in laid.slots]
    assert laid.base_power_w == 100
    energy_j = 100 * (laid.end_s - laid.start_s) + sum(each.mean for each in dynamic if each)
    assert energy_j == pytest.approx(found.energy_j or 0.0, rel=1e-12)
    assert sum(slot.device_s for slot in laid.slots) <= (found.time_s or 0.0) * (1 + 1e-12)


def test_costs_of_a_schedule_are_those_of_its_mode_and_say_what_they_rest_on() -> None:
    dark = replace(COSTS[2], dynamic_energy_j=None)
    known = inputs(COSTS[0], replace(COSTS[1], visits=0), dark)
    pass_ = Pass(workload(CONV, RELU, ADD))
    eager, graph = (schedule(PassSum(pass_, mode, known)).costs for mode in MODES)
    assert eager[CONV.key].time_s == COSTS[0].eager_time_s
    assert graph[CONV.key].time_s == COSTS[0].time_s
    assert [graph[each.key].is_estimated for each in (CONV, RELU, ADD)] == [False, True, False]
    assert graph[ADD.key].dynamic_energy_j is None
    assert graph[CONV.key].dynamic_energy_j == COSTS[0].dynamic_energy_j


def test_at_a_lowered_clock_times_and_energies_are_those_of_the_clock() -> None:
    """A call takes longer, and less energy, each as uncertain as at full clock."""
    skewed = Quantity(0.9e-3, 1e-3, 0.99e-3, 1.01e-3, 2)
    laid = schedule(PassSum(Pass(workload(CONV)), "graph", inputs(replace(HOT, time_s=skewed))))
    share = 0.6 ** (2 / 3)  # 100 + 500 r^1.5 watts are 400
    found = laid.costs[CONV.key]
    assert found.time_s.mean == pytest.approx(1e-3 * share**-0.5)
    assert found.time_s.median == pytest.approx(0.9 * found.time_s.mean)
    assert found.time_s.low == pytest.approx(0.99 * found.time_s.mean)
    assert found.time_s.high == pytest.approx(1.01 * found.time_s.mean)
    assert found.dynamic_energy_j.count == 2
    assert found.dynamic_energy_j.mean == pytest.approx(0.5 * share)


def test_exponents_stay_within_what_is_possible() -> None:
    found = scalings({"k": clock_cost(OperatingPoint(1e9, 9e-3, 1.5))})["k"]
    assert (found.time_exponent, found.energy_exponent) == (1.0, 0.0)
    found = scalings({"k": clock_cost(OperatingPoint(1e9, 0.9e-3, 0.1))})["k"]
    assert (found.time_exponent, found.energy_exponent) == (0.0, 3.0)


def test_without_a_second_clock_the_others_serve() -> None:
    seen = clock_cost(OperatingPoint(1e9, 1.5e-3, 0.4))
    barely = clock_cost(OperatingPoint(1.99e9, 1.2e-3, 0.9))
    found = scalings({"seen": seen, "barely": barely, "free": clock_cost(None)})
    assert found["barely"] == found["seen"]
    assert found["free"] == Scaling(0.0, found["seen"].energy_exponent)
    usual = scalings({"barely": barely})["barely"]
    assert usual == Scaling(USUAL_TIME_EXPONENT, USUAL_ENERGY_EXPONENT) == Scaling(0.66, 1.07)
    half = clock_cost(OperatingPoint(1e9, 2e-3, 0.5))
    mean = scalings({"seen": seen, "half": half, "barely": barely})["barely"]
    assert mean.time(0.5) == pytest.approx(3**0.5) and mean.energy(0.5) == pytest.approx(0.2**0.5)


@pytest.mark.parametrize(
    "limited",
    [
        OperatingPoint(1e9, 1.5e-3, -0.1),
        OperatingPoint(1e9, -1e-9, 0.4),
        OperatingPoint(0, 1.0, 1),
        OperatingPoint(None, 1.5e-3, 0.4),
        OperatingPoint(1e9, 1.5e-3, None),
    ],
)
def test_a_point_that_its_noise_left_nothing_of_tells_no_exponents(limited: OperatingPoint) -> None:
    found = scalings({"k": clock_cost(limited)})["k"]
    assert found == Scaling(USUAL_TIME_EXPONENT, USUAL_ENERGY_EXPONENT)


def test_exponents_need_a_clock_a_time_and_an_energy_at_full_clock() -> None:
    whole = clock_cost(OperatingPoint(1e9, 1.5e-3, 0.4))
    for lacking in (
        replace(whole, clock_hz=None),
        replace(whole, time_s=None),
        replace(whole, dynamic_energy_j=None),
    ):
        assert scalings({"k": lacking})["k"] == Scaling(0.66, 1.07)


def test_base_power_flows_meanwhile() -> None:
    whole = compose(workload(CLONE, LINEAR), "graph", found())
    assert whole.time_s == pytest.approx(CLONE_S + LINEAR_S + 8e6 / RATE)
    assert whole.energy_j == pytest.approx(100.0 * (CLONE_S + LINEAR_S + 8e6 / RATE) + 2e-3)


def test_a_product_below_half_of_the_memorys_rate_hides_it() -> None:
    slow = cost(LINEAR, 2.1 * 134e6 / RATE)
    inputs_ = found(costs={**found().costs, LINEAR.key: slow})
    assert timed_pass(Pass(workload(CLONE, LINEAR)), "graph", inputs_).transition_s == 0.0


def test_what_a_slow_product_hides_no_other_pays() -> None:
    fast = linear(8000)
    slow = cost(LINEAR, 2.1 * 134e6 / RATE)
    costs = {**found().costs, LINEAR.key: slow, fast.key: cost(fast, LINEAR_S)}
    inputs_ = found(costs=costs)
    assert timed_pass(Pass(workload(CLONE, LINEAR, fast)), "graph", inputs_).transition_s == 0.0


@pytest.mark.parametrize(
    "unknown",
    [
        {"memory_rate": None},
        {"resident_bytes": resident_bytes(samples.PROCESSOR)},
        {"resident_bytes": resident_bytes(GPU)},
    ],
)
def test_nothing_is_added_where_rate_or_l2_is_unknown(unknown: dict[str, Any]) -> None:
    pass_ = Pass(workload(CLONE, LINEAR))
    assert timed_pass(pass_, "graph", found(**unknown)).transition_s == 0.0


def test_a_pass_that_the_l2_keeps_writes_nothing_back() -> None:
    pass_ = Pass(workload(CLONE, LINEAR))
    less, more = pass_.touched_bytes - 1.0, pass_.touched_bytes + 1.0
    paid = (
        timed_pass(pass_, "graph", found(resident_bytes=kept)).transition_s for kept in (less, more)
    )
    assert list(paid) == [pytest.approx(8e6 / RATE), 0.0]


def test_a_training_step_writes_to_fresh_memory_and_pays_nothing() -> None:
    pass_ = Pass(workload(CLONE, LINEAR, phase="training"))
    assert timed_pass(pass_, "graph", found()).transition_s == 0.0


def test_without_power_readings_there_is_no_base_power() -> None:
    laid = schedule(PassSum(Pass(WORKLOADS["no wait"]), "eager", given(GPU, base_power_w=None)))
    assert laid.base_power_w is None


def test_a_slot_lasts_its_call_and_a_transition() -> None:
    slow_links = replace(CALIBRATION, transition_s=1e-7)
    view = replace(cost(VIEW, 0.0, 0.0), kernels=0)
    known = inputs(cost(RELU, 2e-6, 1e-4), view, calibration=slow_links)
    laid = schedule(PassSum(Pass(workload(RELU, VIEW, RELU)), "graph", known))
    assert [slot.runs for slot in laid.slots] == [True, False, True]
    assert [slot.device_s for slot in laid.slots] == pytest.approx([2.1e-6, 0.0, 2.1e-6])
    assert [slot.transition_s for slot in laid.slots] == pytest.approx([1e-7, 0.0, 1e-7])
    assert laid.slots[2].span.device_start_s == pytest.approx(2.1e-6)
