"""Python around the calls of a pass, timed with all calls answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from opdb.api.harvests import HarvestOptions, harvest_all
from opdb.bench import around as module
from opdb.bench import harvests
from opdb.bench.around import around, with_around
from opdb.errors import UnsupportedError
from opdb.harvest import harvest
from opdb.lookup.options import ModelOptions
from opdb.models import ModelRequest
from opdb.records import Harvest
from opdb.store import open_store
from opdb.store.exchange import export_set, import_set
from tests.store.conftest import fill

EXAMPLE = (torch.zeros(2, 8),)
MOST_S = module.MOST_S


@pytest.fixture(autouse=True)
def long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_S", MOST_S)


class Busy(nn.Module):
    """Calls a linear layer, asks for its shape and works in Python before each of four layers."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.layer, self.steps = nn.Linear(8, 8), steps

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            done = 0
            for step in range(self.steps):
                done += step
            x = torch.relu(self.layer(x)) if x.shape[0] == 2 and done >= 0 else x
        print("a pass")
        return x


class Fickle(nn.Module):
    """Calls something else every other time."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Fickle.calls += 1
        return torch.relu(x) if Fickle.calls % 2 else torch.tanh(x)


def idle() -> tuple[nn.Module, tuple[Tensor]]:
    return Busy(0), EXAMPLE


def busy() -> tuple[nn.Module, tuple[Tensor]]:
    return Busy(4000), EXAMPLE


def fickle() -> tuple[nn.Module, tuple[Tensor]]:
    return Fickle(), EXAMPLE


def asked(name: str) -> ModelRequest:
    return ModelRequest(f"tests.bench.test_around:{name}", source="python").checked()


def test_it_is_what_python_takes_and_not_what_calls_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    less, more = around(asked("idle")), around(asked("busy"))
    assert less is not None and more is not None
    assert 0 <= less < 50  # eight calls, each of which takes as long as some containers
    assert more > less + 100  # 16,000 steps of a loop, each of ten nanoseconds or more
    assert capsys.readouterr().out == ""  # what it prints is heard when it is harvested


def test_of_a_pass_that_changes_a_note_says_why_it_is_not_known() -> None:
    request = asked("fickle")
    found = with_around(request, Harvest(harvest(request)), {})
    assert found.workload.around is None
    [note] = found.notes
    assert note.endswith("was not timed: its calls differ from one pass to the next")
    with pytest.raises(UnsupportedError, match="has no 'no_such_model'"):
        around(asked("no_such_model"))


def test_sizes_of_a_model_that_make_the_same_calls_are_timed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = iter((7.0, 8.0))
    monkeypatch.setattr(module, "around", lambda request: next(timed))
    known: module.Known = {}
    found = []
    for name, batch_size in (("mlp", 1), ("mlp", 32), ("transformer", 1)):
        request = ModelRequest(name, batch_size=batch_size).checked()
        found.append(with_around(request, Harvest(harvest(request)), known))
    assert [each.workload.around for each in found] == [7.0, 7.0, 8.0]


def test_a_command_times_all_sizes_of_a_model_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    timed = iter((7.0, 8.0))
    monkeypatch.setattr(module, "around", lambda request: next(timed))
    file = tmp_path / "mlp.yml"
    file.write_text("model: mlp\nbatch_sizes: [1, 32]\n")
    db = str(tmp_path / "opdb.sqlite")
    found = harvest_all([str(file)], ModelOptions(), HarvestOptions(), db=db)
    assert [each.around for each in found.workloads] == [7.0, 7.0]


def test_steps_of_training_and_generations_are_not_timed() -> None:
    assert around(ModelRequest("mlp", phase="training").checked()) is None
    assert around(ModelRequest("gpt2", phase="generate").checked()) is None


def test_what_is_to_be_measured_has_it_in_the_database_and_in_sets(tmp_path: Path) -> None:
    request = ModelRequest("mlp", batch_size=2)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        fill(store)
        harvests.harvest_into(store, request, swept=True)
        assert [each.around for each in store.workloads("mlp")] == [None]
        harvests.harvest_into(store, request, anew=True)
        [timed] = store.workloads("mlp")
        assert timed.around is not None and timed.containers_worth == timed.around
        [tiny] = store.workloads("tiny")
        export_set(store, tmp_path / "without", device="nvidia-h200")
        store.save_workload(replace(tiny, around=41.5))
        export_set(store, tmp_path / "with", device="nvidia-h200")
    for name, kept in (("without", None), ("with", 41.5)):
        with open_store(str(tmp_path / f"{name}.sqlite")) as store:
            import_set(store, tmp_path / name)
            assert [each.around for each in store.workloads("tiny")] == [kept]


def test_a_workload_without_it_counts_its_containers() -> None:
    found = harvest(ModelRequest("resnet18").checked())
    assert found.around is None and found.containers_worth == found.containers > 0
