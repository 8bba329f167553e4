"""What is known of workloads: of one among several, and as a prediction has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.platform import current_settings, detect
from opdb.bench.request import BenchRequest
from opdb.bench.run import bench
from opdb.compose.sizes import sizes_of
from opdb.plan.survey import survey
from opdb.predict import predictor_for
from opdb.settings import DEFAULT_SETTINGS
from opdb.significance import Significance
from opdb.store import open_store
from tests import published
from tests.bench.calls import CONV, RELU, TANH, workload
from tests.bench.test_run import Heard

pytestmark = pytest.mark.usefixtures("short")


def test_one_workload_is_planned_by_itself_beside_what_others_have_measured(
    tmp_path: Path,
) -> None:
    """As on a GPU, where kinds that cost the host alone are planned as well."""
    measured, pending = workload(CONV, RELU), workload(RELU, TANH, name="other")
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        for each in (measured, pending):
            store.save_workload(each)
        bench(store, BenchRequest(device="cpu", configurations=[CONV.key, RELU.key]), Heard())
        both = [measured, pending]
        known = survey(store, detect("cpu").device, both, current_settings())
    alone = replace(known, energy=True).only(pending)
    assert list(alone.costs) == [RELU.key]
    assert alone.pending == [TANH.key]
    steps = alone.plan({pending.key: 1.0}, Significance())
    assert [step.key for step in steps] == [TANH.key]


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
