"""Python around the calls of a pass, timed with all calls answered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.bench import harvests as module
from opdb.bench.harvests import with_around
from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.records import Harvest, Workload
from opdb.spec import ModelSpec

EXAMPLE = (torch.zeros(2, 8),)


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


def asked(name: str) -> ModelSpec:
    return checked(ModelSpec(f"tests.bench.test_around:{name}", source="python"))


def generation(name: str, tokens: int, **said: Any) -> ModelSpec:
    """Ask for a generation of as many tokens after a prompt of nine."""
    pytest.importorskip("transformers")
    name = name if ":" in name else f"tests.models.decoders:{name}"
    asks: dict[str, Any] = {"input_size": (9,), "max_new_tokens": tokens, **said}
    return checked(ModelSpec(name, source="python", phase="generate", **asks))


def around(request: ModelSpec, workload: Workload) -> float:
    found = with_around(request, Harvest(workload), {})
    assert found.workload.around is not None, found.notes
    return found.workload.around


def test_it_is_what_python_takes_and_not_what_calls_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    requests = asked("idle"), asked("busy")
    workloads = [harvest(request) for request in requests]
    capsys.readouterr()
    less, more = (around(*each) for each in zip(requests, workloads, strict=True))
    assert 0 <= less < 50  # eight calls, each of which takes as long as some containers
    assert more > less + 100  # 16,000 steps of a loop, each of ten nanoseconds or more
    assert capsys.readouterr().out == ""  # what it prints is heard when it is harvested


def test_of_a_pass_that_changes_a_note_says_why_it_is_not_known() -> None:
    request = asked("fickle")
    found = with_around(request, Harvest(harvest(request)), {})
    assert found.workload.around is None
    [note] = found.notes
    assert note.endswith("was not timed: its calls differ from one pass to the next")
    found = with_around(asked("no_such_model"), found, {})
    assert found.workload.around is None and "has no 'no_such_model'" in found.notes[-1]


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_of_a_generation_the_first_token_and_a_step_are_timed(
    cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = generation("llama", 12, cache=cache)
    workload = harvest(request)
    assert around(request, workload) > 0
    monkeypatch.setattr(module, "times_around", lambda run, answers: [1.0] * (len(answers) + 1))
    few = harvest(generation("llama", 3, cache=cache))
    first = harvest(generation("llama", 1, cache=cache))
    expected = len(first.calls) + 11 * (len(few.calls) - len(first.calls)) / 2
    assert around(request, workload) == pytest.approx(expected, rel=0.05)
