"""Many models harvested, in this process and in others; what fails is told, and stops nothing."""

from __future__ import annotations

import os
import pickle
import signal

import pytest
from torch import nn

from opdb.harvest import harvest
from opdb.models import ModelRequest
from opdb.plan.gather import Harvested, gather
from tests.paths import python_path

MLP = ModelRequest("mlp", input_size=(16,))
HERE = "tests.plan.test_gather"


def killed() -> nn.Module:
    """Die as a process does whose memory is at an end; never in the test's own process."""
    if os.getpid() != int(os.environ["OPDB_TEST_PARENT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("built in the test's own process")


def request(name: str) -> ModelRequest:
    return ModelRequest(f"{HERE}:{name}", source="python", input_size=(4,))


def told(found: list[Harvested]) -> list[str | None]:
    return [str(one.error) if one.error else None for one in found]


def test_one_that_fails_does_not_stop_the_others() -> None:
    heard: list[str] = []
    missing = ModelRequest("resnet81", source="torchvision")
    requests = [MLP, missing, ModelRequest("mlp", input_size=(8,))]
    found = gather(requests, lambda request: heard.append(request.name))
    assert [one.request for one in found] == requests
    assert [one.workload is None for one in found] == [False, True, False]
    errors = told(found)
    assert errors[0] is None and "did you mean" in str(errors[1])
    assert heard == ["mlp", "resnet81", "mlp"]


def test_processes_find_the_same_and_outlive_one_that_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPDB_TEST_PARENT", str(os.getpid()))
    monkeypatch.setenv("PYTHONPATH", python_path())
    missing = ModelRequest("resnet81", source="torchvision")
    requests = [MLP, request("killed"), missing, ModelRequest("lstm", input_size=(4,))]
    heard: list[str] = []
    found = gather(requests, lambda request: heard.append(request.name), processes=2)
    assert [one.workload is None for one in found] == [False, True, True, False]
    assert found[0].workload == harvest(MLP)
    errors = told(found)
    assert "was killed" in str(errors[1]) and "resnet81" in str(errors[2])
    assert sorted(heard) == sorted(r.name for r in requests), "each is told of once"


def test_workloads_survive_the_way_between_processes() -> None:
    workload = harvest(MLP)
    again = pickle.loads(pickle.dumps(workload))
    assert again == workload and again.key == workload.key
