"""Every mode that a processor has, on real models: what it computes, and what is told of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.bench import model as running
from opdb.bench import modes
from opdb.bench.model import RunOptions, measure
from opdb.bench.modes import Passing, flags_of, issuing, output_difference
from opdb.bench.replay import CpuClock
from opdb.bench.session import Session
from opdb.models import LoadedModel
from opdb.models.inputs import tensors
from opdb.records import Mode
from opdb.spec import ModelSpec
from tests.compiled import test_dynamo
from tests.own import Built, model

ONE = RunOptions(repeats=1)
HERE = "tests.bench.test_modes"


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SETTLE_S", 0.002)
    monkeypatch.setattr(running, "WINDOW_S", 0.01)
    monkeypatch.setattr(running, "MAX_REDONE", 0)


def recurrent() -> Built:
    return nn.LSTM(8, 8, batch_first=True), (torch.ones(2, 3, 8),)


def linear() -> Built:
    return nn.Linear(64, 64), (torch.ones(8, 64),)


counting, cached = test_dynamo.counting, test_dynamo.cached


@model((2, 8), first=lambda: nn.Linear(8, 8), second=lambda: nn.Linear(8, 8))
def broken(m: Any, x: Tensor) -> Tensor:
    x = m.first(x)
    print(end="")
    if x.sum() > 0:
        x = m.second(x)
    return x.relu()


@model((2, 8))
def refused(m: Any, x: Tensor) -> Tensor:
    """Runs as it stands, and not where dynamo or a tracer looks on."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        raise RuntimeError("not to be compiled")
    return x.relu()


@model((2, 4), linear=lambda: nn.Linear(4, 4))
def _mixed(m: Any, x: Tensor, scale: float, *, others: list[Tensor]) -> dict[str, Any]:
    """Inputs by position and by name, tensors and others; outputs in a dict."""
    return {"out": m.linear(x) * scale, "rest": [other + 1 for other in others]}


def mixed() -> LoadedModel:
    kwargs = {"others": [torch.zeros(2), torch.ones(3)]}
    empty: dict[str, Any] = {"args": [], "kwargs": {}}
    module = _mixed()[0].eval()
    return LoadedModel("own", "python", "0", module, (torch.ones(2, 4), 3.0), kwargs, empty, 1)


def passing(loaded: LoadedModel) -> Passing:
    def step() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    return Passing(loaded, step, CpuClock())


@pytest.mark.parametrize("mode", ["eager", "dynamo", "trace", "compile"])
def test_a_pass_computes_the_same_in_every_mode(
    mode: Mode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    made, facts = passing(mixed()), dict[str, Any]()
    with issuing(mode, made, facts) as issue:
        found = tensors(issue())
    wanted = tensors(made.step())
    assert len(found) == len(wanted) == 3
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "own")
    assert "TRITON_CACHE_DIR" not in os.environ
    if mode == "eager":
        assert facts == {}
    else:
        assert facts["compile_time_s"] >= 0 and facts["compiled"] is True
        assert (facts["graphs"], facts["graph_breaks"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "graphs", "said"),
    [
        ("recurrent", 0, "dynamo captures no graph (.*LSTM"),
        ("counting", 1, "in the end dynamo runs it as it stands ("),
        ("refused", 0, "dynamo captures no graph (Observed exception"),
    ],
)
@pytest.mark.parametrize("mode", ["compile", "dynamo"])
def test_a_model_that_is_not_compiled_gives_no_figures(
    session: Session, mode: Mode, name: str, graphs: int, said: str
) -> None:
    run = measure(session, ModelSpec(f"{HERE}:{name}"), "key", mode, ONE)
    assert run.outcome == "unsupported" and run.repeats == ()
    assert re.match("not compiled: " + said.replace("(", r"\("), run.reason or "")
    assert "\n" not in str(run.reason)
    assert (run.facts["compiled"], run.facts["graphs"]) == (False, graphs)
    assert run.facts["graph_breaks"] == 0 and "compile_time_s" not in run.facts


@pytest.mark.parametrize(
    ("raised", "outcome", "said"),
    [
        (torch.OutOfMemoryError("no room for it"), "out_of_memory", "no room for it"),
        (AssertionError("bad node\nand more"), "error", "mode 'compile': AssertionError: bad node"),
        (KeyError("val"), "error", "mode 'compile': KeyError: 'val'"),
        (RuntimeError("no such kernel"), "error", "no such kernel"),
    ],
    ids=["memory", "assertion", "key", "any"],
)
def test_what_goes_wrong_inside_a_compiler_is_an_outcome(
    session: Session, monkeypatch: pytest.MonkeyPatch, raised: Exception, outcome: str, said: str
) -> None:
    """Such as inductor raises, wrapped in an error of dynamo's."""

    def backend(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(modes, "_COMPILED", {"compile": {"backend": backend}})
    request = ModelSpec("mlp", input_size=(16,))
    with torch._dynamo.config.patch(suppress_errors=type(raised) is RuntimeError):
        run = measure(session, request, "key", "compile", ONE)
    assert run.outcome == outcome and str(run.reason).endswith(said)
    assert run.facts["graphs"] == 1, "what was learned before stays"
    assert measure(session, request, "key", "eager", ONE).outcome == "ok"


def test_outputs_are_compared_by_their_largest() -> None:
    a, n = torch.tensor([1.0, -4.0]), torch.tensor([1, 2])
    assert output_difference([a, n], [a, n]) == 0
    assert output_difference([a, n], [a + 0.4, n]) == pytest.approx(0.1)
    assert output_difference([a, n], [torch.ones(3), n]) is None
    assert output_difference([a, n], [a]) is None
    assert output_difference([torch.zeros(2)], [torch.zeros(2)]) is None
    assert output_difference([], []) is None
    for odd in (float("inf"), float("nan")):
        assert output_difference([torch.tensor([odd])], [torch.ones(1)]) is None
        assert output_difference([torch.ones(1)], [torch.tensor([odd])]) is None
    assert flags_of({"output_difference": 0.01}) == []
    assert flags_of({"output_difference": None}) == []
    assert flags_of({"output_difference": 0.1}) == [
        "outputs differ from eager's by 10.0 % of the largest"
    ]
    assert flags_of({"cuda_graphs_left_out": 2}) == ["inductor left out 2 CUDA graphs"]
