"""Schedules of made-up passes: they add up to what the composer predicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.compose import Pass, PredictionInputs, compose, schedule
from opdb.compose.schedule import _cost
from opdb.records import Configuration, Device, Mode, Quantity, Workload
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
    cost,
    inputs,
    workload,
)

VIEW = Configuration("flatten", {}, {"input": {"shape": [4, 4], "dtype": "float32"}})
COSTS = (
    cost(CONV, 3e-5, 4e-3, {"module": 2e-5}, 4e-5),
    cost(RELU, 2e-6, 1e-4, {"module": 5e-6}, 3e-6),
    cost(ADD, 1e-6, None, {"module": 4e-5}, 2e-6),
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
    laid = schedule(Pass(of), mode, given(device))
    assert laid.end_s - laid.start_s == pytest.approx(found.time_s or 0.0, rel=1e-12)
    assert [slot.call for slot in laid.slots] == list(of.calls)
    assert laid.issued == (mode == "eager" and device.type != "cpu")
    dynamic = [laid.costs[slot.call.configuration.key].dynamic_energy_j for slot in laid.slots]
    assert laid.base_power_w == 100
    energy_j = 100 * (laid.end_s - laid.start_s) + sum(each.mean for each in dynamic if each)
    assert energy_j == pytest.approx(found.energy_j or 0.0, rel=1e-12)
    assert sum(slot.device_s for slot in laid.slots) <= (found.time_s or 0.0) * (1 + 1e-12)


def test_without_power_readings_there_is_no_base_power() -> None:
    laid = schedule(Pass(WORKLOADS["no wait"]), "eager", given(GPU, base_power_w=None))
    assert laid.base_power_w is None


def test_intervals_are_as_wide_as_the_times_at_the_clock() -> None:
    of = WORKLOADS["no wait"]
    full, low = (
        schedule(Pass(of), "graph", given(replace(GPU, power_limit_w=limit))).costs[CONV.key].time_s
        for limit in (400.0, 130.0)
    )
    assert full == COSTS[0].time_s
    assert low.mean >= full.mean and low.low is not None and full.low is not None
    assert low.low / low.mean == pytest.approx(full.low / full.mean)


def test_a_slot_lasts_its_call_and_a_transition() -> None:
    slow_links = replace(CALIBRATION, transition_s=1e-7)
    view = replace(cost(VIEW, 0.0, 0.0), kernels=0)
    known = inputs(cost(RELU, 2e-6, 1e-4), view, calibration=slow_links)
    laid = schedule(Pass(workload(RELU, VIEW, RELU)), "graph", known)
    assert [slot.runs for slot in laid.slots] == [True, False, True]
    assert [slot.device_s for slot in laid.slots] == pytest.approx([2.1e-6, 0.0, 2.1e-6])
    assert [slot.transition_s for slot in laid.slots] == pytest.approx([1e-7, 0.0, 1e-7])
    assert laid.slots[2].span.device_start_s == pytest.approx(2.1e-6)


def test_costs_of_a_schedule_are_those_of_its_mode_and_say_what_they_rest_on() -> None:
    known = inputs(COSTS[0], replace(COSTS[1], visits=0), COSTS[2])
    of = workload(CONV, RELU, ADD)
    eager, graph = (schedule(Pass(of), mode, known).costs for mode in MODES)
    assert eager[CONV.key].time_s == COSTS[0].eager_time_s
    assert graph[CONV.key].time_s == COSTS[0].time_s
    assert [graph[each.key].is_estimated for each in (CONV, RELU, ADD)] == [False, True, False]
    assert graph[ADD.key].dynamic_energy_j is None
    assert graph[CONV.key].dynamic_energy_j == COSTS[0].dynamic_energy_j
    assert _cost(COSTS[0], "graph", 3e-5, None).dynamic_energy_j is None


def test_at_a_lowered_clock_times_and_energies_are_those_of_the_clock() -> None:
    """A call takes longer, and less energy, each as uncertain as at full clock."""
    skewed = Quantity(0.9e-3, 1e-3, 0.99e-3, 1.01e-3, 2)
    laid = schedule(Pass(workload(CONV)), "graph", inputs(replace(HOT, time_s=skewed)))
    share = 0.6 ** (2 / 3)  # 100 + 500 r^1.5 watts are 400
    found = laid.costs[CONV.key]
    assert found.time_s.mean == pytest.approx(1e-3 * share**-0.5)
    assert found.time_s.median == pytest.approx(0.9 * found.time_s.mean)
    assert found.time_s.low == pytest.approx(0.99 * found.time_s.mean)
    assert found.time_s.high == pytest.approx(1.01 * found.time_s.mean)
    assert found.dynamic_energy_j is not None and found.dynamic_energy_j.count == 2
    assert found.dynamic_energy_j.mean == pytest.approx(0.5 * share)
