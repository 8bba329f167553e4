"""What is known of workloads on a device, and what to measure next."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.plan.survey import (
    NOMINAL_SECONDS,
    base_power_w,
    configurations_of,
    costs_on,
    estimated_costs,
    prices,
    survey,
)
from opdb.predict.predictor import predictor_for
from opdb.predict.sizes import sizes_of
from opdb.records import Configuration, Cost, Workload, mean_of
from opdb.store import open_store
from tests import published


@pytest.fixture(scope="module")
def known() -> tuple[list[Workload], dict[str, Cost]]:
    with open_store(str(published.database())) as store:
        workloads = store.workloads()
        called = configurations_of(workloads).values()
        return workloads, costs_on(store, published.DEVICE, called, DEFAULT_SETTINGS)


def test_what_was_not_is_sized_by_its_kin(
    known: tuple[list[Workload], dict[str, Cost]],
) -> None:
    """Half of the published operators, sized from the other half."""
    workloads, costs = known
    called = configurations_of(workloads)
    half = {key: cost for n, (key, cost) in enumerate(sorted(costs.items())) if n % 2}
    sizes = sizes_of(called.values(), half)
    errors = []
    for key in costs.keys() - half.keys():
        size, time = sizes[key], costs[key].time_s
        if time.mean > 0 and size.time_s > 0:
            errors.append(abs(math.log(size.time_s / time.mean)))
    assert statistics.median(errors) < 0.2, "half of them within 20 %"


def test_what_was_learned_sizes_better_than_kin(
    known: tuple[list[Workload], dict[str, Cost]],
) -> None:
    """One model's operators, as if nothing of the model had been measured but had been learned."""
    workloads, costs = known
    [workload] = [w for w in workloads if (w.name, w.batch_size) == ("vgg16", 32)]
    called = list(workload.occurrences())
    foreign = Configuration("convolute", {}, {"input": {"shape": [4], "dtype": "float32"}})
    with open_store(str(published.database())) as store:
        [device] = store.devices()
        found = estimated_costs(store, device, [*called, foreign])
        nothing_learned = estimated_costs(store, replace(device, slug="another"), called)
    assert foreign.key not in found and not nothing_learned
    by_kin, sizes = sizes_of(called, {}), sizes_of(called, {}, found)
    whole_s = sum(mean_of(costs[c.key].time_s) for c in called)
    off: list[float] = []
    for given in (sizes, by_kin):
        each_s = [(given[c.key], mean_of(costs[c.key].time_s)) for c in called]
        off.append(sum(abs(size.time_s - time_s) for size, time_s in each_s if size) / whole_s)
    assert off[0] < 0.1 < 0.5 < off[1]
    assert len(found) > 10


def test_prices_are_medians_of_the_published_visits() -> None:
    with open_store(str(published.database())) as store:
        found = prices(store, published.DEVICE)
        assert base_power_w(store, published.DEVICE) == pytest.approx(125, abs=10)
        assert prices(store, "nowhere").usual == NOMINAL_SECONDS
        assert base_power_w(store, "nowhere") == 0
        board = store.boards(published.DEVICE)[0].uuid
        spent: dict[str, float] = {}
        for visit in store.visits(board):
            if visit.role != "anchor":
                spent[visit.configuration] = spent.get(visit.configuration, 0.0) + visit.cost_s
    assert 0.5 < found.usual < 1.2
    assert found.usual == pytest.approx(statistics.median(spent.values()), rel=0.3)
    conv = Configuration("conv2d", {}, {})
    assert found.of(conv) == found.of_kind["conv2d"]
    assert found.of(Configuration("convolute", {}, {})) == found.usual


pytestmark = pytest.mark.usefixtures("short")


@pytest.mark.slow
def test_a_survey_covers_what_a_prediction_covers() -> None:
    """What is not measured is sized by the same estimates; by their kin some were 0.12 off."""
    with open_store(str(published.default_database())) as store:
        [device] = [each for each in store.devices() if each.slug == published.DEVICE]
        in_part = store.standing(device.slug).unmeasured_calls
        keys = [
            each.workload.key
            for each in store.heads()
            if each.workload.source == "torchvision"
            and (each.workload.phase, each.workload.captured) == ("inference", False)
            and in_part.get(each.workload.key)
        ]
        workloads = store.workloads_by_key(keys)
        known = survey(store, device, workloads, DEFAULT_SETTINGS)
        predictor = predictor_for(store, device)
        assert len(workloads) > 20
        by_kin = replace(known, sizes=sizes_of(known.configurations.values(), known.costs))
        off = []
        for workload in workloads:
            covered, found = known.coverage(workload), predictor.answer(workload, "graph")
            assert covered.time == pytest.approx(found.prediction.coverage_time, abs=0.01)
            assert covered.energy == pytest.approx(found.prediction.coverage_energy, abs=0.02)
            off.append(abs((by_kin.coverage(workload).time or 0) - found.prediction.coverage_time))
    assert max(off) > 0.1
