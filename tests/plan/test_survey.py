"""What is known of one workload among several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.bench.platform import current_settings, detect
from opdb.bench.request import BenchRequest
from opdb.bench.run import bench
from opdb.plan.survey import survey
from opdb.significance import Significance
from opdb.store import open_store
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
