"""Many models harvested, in this process and in others; what fails is told, and stops nothing."""

from __future__ import annotations

import os
import pickle
import signal

import pytest
from torch import nn

from opdb.errors import OpdbError
from opdb.harvest import harvest
from opdb.harvest.gather import gather
from opdb.lookup.harvesting import harvests_of
from opdb.models import ModelRequest
from opdb.records import Harvest
from opdb.runs.progress import Progress
from tests.paths import python_path

MLP = ModelRequest("mlp", input_size=(16,))
HERE = "tests.harvest.test_gather"


def killed() -> nn.Module:
    """Die as a process does whose memory is at an end; never in the test's own process."""
    if os.getpid() != int(os.environ["OPDB_TEST_PARENT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("built in the test's own process")


def request(name: str) -> ModelRequest:
    return ModelRequest(f"{HERE}:{name}", source="python", input_size=(4,))


def told(found: list[Harvest | OpdbError]) -> list[str | None]:
    return [str(one) if isinstance(one, OpdbError) else None for one in found]


class Heard(Progress):
    """Keeps the name of each model whose harvest is over."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._doing = ""

    def doing(self, what: str) -> None:
        self._doing = what.split()[0]

    def done(self, count: int = 1) -> None:
        self.names.append(self._doing)


def test_one_that_fails_does_not_stop_the_others() -> None:
    heard = Heard()
    missing = ModelRequest("resnet81", source="torchvision")
    requests = [MLP, missing, ModelRequest("mlp", input_size=(8,))]
    found = list(harvests_of([*requests, MLP], lambda _: None, heard))
    assert [request for request, *_ in found] == requests, "each once"
    assert [isinstance(one, Harvest) for _, one, _ in found] == [True, False, True]
    errors = told([one for _, one, _ in found])
    assert errors[0] is None and "did you mean" in str(errors[1])
    assert heard.names == ["mlp", "resnet81", "mlp"]


def test_what_is_known_is_not_harvested_and_what_cannot_be_looked_up_is_told() -> None:
    known, other = Harvest(harvest(MLP)), ModelRequest("mlp", input_size=(8,))

    def look(request: ModelRequest) -> Harvest:
        if request == other:
            raise OpdbError("it cannot be said which")
        return known

    (_, first, took_s), (_, second, _) = harvests_of([MLP, other], look)
    assert first is known and took_s is None
    assert str(second) == "it cannot be said which"


def test_processes_find_the_same_and_outlive_one_that_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPDB_TEST_PARENT", str(os.getpid()))
    monkeypatch.setenv("PYTHONPATH", python_path())
    missing = ModelRequest("resnet81", source="torchvision")
    requests = [MLP, request("killed"), missing, ModelRequest("lstm", input_size=(4,))]
    found = list(gather(requests, processes=2))
    assert [isinstance(one, Harvest) for one in found] == [True, False, False, True]
    assert isinstance(found[0], Harvest) and found[0].workload == harvest(MLP)
    errors = told(found)
    assert "was killed" in str(errors[1]) and "resnet81" in str(errors[2])


def test_workloads_survive_the_way_between_processes() -> None:
    workload = harvest(MLP)
    again = pickle.loads(pickle.dumps(workload))
    assert again == workload and again.key == workload.key
