"""The profile for Inductor: torch's own reader takes it, and finds the predicted times in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import opdb
from opdb.api.traces import Traced
from tests import published
from tests.cli.conftest import Opdb
from tests.cli.conftest import opdb as opdb_run  # noqa: F401

pge = pytest.importorskip("torch._inductor.fx_passes.profile_guided_estimation")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("inductor") / "opdb.sqlite"
    return str(shutil.copy(published.default_database(), path))


@pytest.fixture(scope="module")
def traced(db: str) -> Traced:
    return opdb.trace("resnet50", batch_size=32, mode="graph", db=db)


def test_inductors_estimator_finds_the_predicted_times(traced: Traced, tmp_path: Path) -> None:
    """Each convolution of torchvision's ResNet-50, as the graph that Inductor gets has them."""
    from torchvision.models import resnet50

    written = traced.inductor()
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(written.document))
    estimator = pge.ProfileGuidedEstimator(str(path))
    with torch.device("meta"):
        model, inputs = resnet50().eval(), torch.empty(32, 3, 224, 224)
    with torch.no_grad():
        graph = make_fx(nn.Module.__call__, tracing_mode="fake", _allow_non_fake_inputs=True)(
            model, inputs
        )
    nodes = [n for n in graph.graph.nodes if n.target is torch.ops.aten.convolution.default]
    estimated_ms = [estimator(node) for node in nodes]
    assert len(nodes) == 53 and None not in estimated_ms
    calls = [slot.call.configuration for slot in traced.schedule.slots]
    predicted_s = [traced.schedule.costs[c.key].time_s.mean for c in calls if c.kind == "conv2d"]
    assert [each * 1e-3 for each in estimated_ms] == pytest.approx(predicted_s)


def test_the_command_writes_it(
    opdb_run: Opdb,  # noqa: F811
    db: str,
) -> None:
    ran = opdb_run("trace", "resnet50", "-b", 32, "--inductor", "-o", "p.json", "--db", db)
    assert ran.status == 0 and "configurations" in ran.err
    assert json.loads(Path("p.json").read_text())["traceEvents"]
    ran = opdb_run("trace", "resnet50", "-b", 32, "--inductor", "-o", "p.json.gz", "--db", db)
    assert ran.status == 2 and "not compressed" in ran.err
