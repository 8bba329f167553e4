"""Workloads other than a model's as CUDA graphs: finite values, utilization, what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from opdb.bench.neighbours import steps_of
from opdb.bench.replay import prepare
from opdb.bench.run import campaign
from opdb.bench.session import Session
from opdb.bench.visit import VisitRequest, visit
from opdb.derive.costs import call_times_s, visit_cost
from opdb.operators import build
from opdb.records import Access, Configuration
from opdb.store import open_store

IMAGE = {"shape": [32, 128, 28, 28], "dtype": "float32"}
CONV = Configuration(
    "conv2d",
    {"padding": [1, 1]},
    {
        "input": IMAGE,
        "weight": {"shape": [128, 128, 3, 3], "dtype": "float32", "role": "weight"},
    },
)
RELU = Configuration("relu", {"inplace": True}, {"input": IMAGE})
SIGMOID = Configuration("sigmoid", {}, {"input": IMAGE})
OTHERS: tuple[Access, ...] = ("reused", "streamed", "chain")


@pytest.fixture(scope="module")
def session(calibrated: Path) -> Iterator[Session]:
    """A calibrated session: without base power no visit has a dynamic energy."""
    with open_store(str(calibrated)) as store, campaign("cuda", store) as opened:
        yield opened


@pytest.mark.parametrize("access", OTHERS)
@pytest.mark.parametrize("configuration", [CONV, RELU, SIGMOID], ids=lambda c: c.kind)
def test_each_is_one_graph(session: Session, configuration: Configuration, access: Access) -> None:
    made = visit(session, VisitRequest(configuration, access=access))
    assert {(one.outcome, one.issue, one.access) for one in made} == {("ok", "graph", access)}
    last = made[-1].stretch
    assert last is not None and last.power_samples
    assert last.utilization is None or 0 < last.utilization <= 1


def test_what_streams_is_slower_than_what_is_reused(session: Session) -> None:
    times = {}
    for access in OTHERS[:2]:
        stretch = visit(session, VisitRequest(SIGMOID, access=access))[-1].stretch
        assert stretch is not None
        times[access] = min(call_times_s(stretch))
    assert times["reused"] < times["streamed"]


def test_an_output_written_over_one_let_go_of_takes_less_energy(session: Session) -> None:
    """A training step keeps its outputs: the same call writes to fresh memory there."""
    plain = Configuration("sigmoid", {}, {"input": {**IMAGE, "shape": [32, 64, 28, 28]}})
    energies_j = []
    for configuration in (plain, replace(plain, gradient=True)):
        made = visit(session, VisitRequest(configuration))[-1]
        cost = visit_cost(made, session.campaign.calibration)
        assert cost is not None and cost.dynamic_energy_j is not None
        energies_j.append((made.outputs, cost.dynamic_energy_j))
    (kept, least_j), (anew, most_j) = energies_j
    assert (kept, anew) == ("reused", "fresh")
    assert least_j < 0.95 * most_j


def test_a_chain_in_a_graph_stays_finite_over_replays() -> None:
    properties = torch.cuda.get_device_properties(0)
    made = steps_of(build(CONV, device="cuda"), "chain", l2_bytes=properties.L2_cache_size)
    replay = prepare(made, device_type="cuda", copies=made.copies)
    assert replay.how == "graph"
    for _ in range(5):
        replay.issue()
    torch.cuda.synchronize()
    assert bool(torch.isfinite(made._last).all())  # type: ignore[attr-defined]
