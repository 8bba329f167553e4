"""A request to bench narrowed to one model."""

from __future__ import annotations

from dataclasses import replace

from opdb.bench.request import BenchRequest
from opdb.plan.lacking import of_model
from opdb.records import Harvest, Stored
from tests.bench.calls import CONV, RELU, TANH, workload


def test_a_model_is_asked_for_by_its_calls_and_its_workloads() -> None:
    plain = workload(CONV, RELU, CONV)
    captured = replace(workload(RELU, TANH), captured=True)
    alone = of_model(BenchRequest(), Stored(Harvest(plain), 0, None))
    assert (alone.configurations, alone.workloads) == ([CONV.key, RELU.key], [plain.key])
    both = of_model(BenchRequest(retry=True), Stored(Harvest(plain, captured), 0, None))
    assert both.configurations == [CONV.key, RELU.key, TANH.key]
    assert both.workloads == [plain.key, captured.key] and both.retry
