"""Every mode that a processor has, on real models: what it computes, and what is told of it."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.bench import model as running
from opdb.bench import modes
from opdb.bench.model import RunOptions, check_modes, measure, modes_of
from opdb.bench.modes import CUDA_ONLY, Passing, flags_of, issuing, output_difference
from opdb.bench.replay import CpuClock
from opdb.bench.session import Session
from opdb.compiled.inductor import Captured, capture_graphs
from opdb.errors import CannotMeasureError
from opdb.models import LoadedModel, load
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


LAYER = {"linear": lambda: nn.Linear(8, 8)}
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


@model((2, 8), **LAYER, kept=lambda: [torch.ones(1, 8)])
def late(m: Any, x: Tensor) -> Any:
    """Is another model from its fortieth pass on."""
    m.kept = [torch.cat([m.kept[0], x[:1]])]
    y = m.linear(x)
    return y.relu() if len(m.kept[0]) > 40 else y


@model((2, 8))
def greedy(m: Any, x: Tensor) -> Tensor:
    """Asks for more memory than there is, where dynamo looks on alone."""
    return x.new_ones(2**44) if torch.compiler.is_compiling() else x.relu()


@model((2, 8))
def overflowing(m: Any, x: Tensor) -> Tensor:
    return x * float("inf") if torch.compiler.is_compiling() else x.relu()


@torch.compile(backend="eager")
def _own(x: Tensor) -> Tensor:
    return x.relu() * 2


sparse = model((3, 8), **LAYER)(lambda m, x: m.linear(x).relu().to_sparse())
in_rows = model((3, 8), **LAYER)(lambda m, x: m.linear(x).to_sparse_csr())
of_chance = model((2, 8), **LAYER)(lambda m, x: m.linear(x) + torch.rand(8))
compiles_itself = model((2, 8), **LAYER)(lambda m, x: _own(m.linear(x)))


@model((2, 8), **LAYER)
def of_nothing(m: Any, x: Tensor) -> None:
    m.linear(x)


@model((3, 8), **LAYER)
def nested(m: Any, x: Tensor) -> Tensor:
    y = m.linear(x)
    return torch.nested.as_nested_tensor([y, y[:2]])


@model((3, 8), **LAYER)
def quantized(m: Any, x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(m.linear(x), 0.1, 0, torch.quint8)


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

    return Passing(loaded, step, CpuClock(), "key")


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


def test_compilers_start_with_an_empty_cache_of_their_own() -> None:
    made, folders = passing(mixed()), []
    for _ in range(2):
        with issuing("compile", made, {}):
            folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
            folders.append(folder)
            assert list(folder.rglob("*.py")), "what inductor wrote is here"
            assert folder.stat().st_mode & 0o077 == 0, "nobody else's"
    assert folders[0] != folders[1]
    assert not any(folder.exists() for folder in folders)


def test_a_new_shape_is_compiled_for_itself() -> None:
    """In a fresh state dynamo does not take the second size for one that varies."""
    for batch in (2, 3, 5):
        request = ModelSpec("mlp", batch_size=batch, input_size=(16,))
        made, facts = passing(load(request, device="cpu")), dict[str, Any]()
        with issuing("dynamo", made, facts):
            assert facts["graphs"] == 1


def test_graphs_are_counted_once_for_all_modes_of_a_workload(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def counting(*given: Any) -> Captured:
        counted.append(given)
        return capture_graphs(*given)

    monkeypatch.setattr(modes, "capture_graphs", counting)
    broken, left = ModelSpec(f"{HERE}:broken"), ModelSpec(f"{HERE}:recurrent")
    runs = [measure(session, broken, "broken", mode, ONE) for mode in ("dynamo", "compile")]
    assert [run.facts["graphs"] for run in runs] == [3, 3] and len(counted) == 1
    assert runs[0].facts["graph_break_reasons"] == runs[1].facts["graph_break_reasons"]
    runs = [measure(session, left, "left", mode, ONE) for mode in ("dynamo", "compile")]
    assert [run.facts["graphs"] for run in runs] == [0, 0] and len(counted) == 2
    assert runs[0].reason == runs[1].reason and runs[0].outcome == "unsupported"


@pytest.mark.parametrize(
    ("name", "graphs", "said"),
    [
        ("recurrent", 0, "dynamo captures no graph (.*LSTM"),
        ("counting", 1, "in the end dynamo runs it as it stands (a func"),
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


def test_a_trace_that_a_model_refuses_is_an_error(session: Session) -> None:
    run = measure(session, ModelSpec(f"{HERE}:refused"), "key", "trace", ONE)
    assert (run.outcome, run.repeats) == ("error", ())
    assert "not to be compiled" in str(run.reason)
    assert measure(session, ModelSpec(f"{HERE}:refused"), "key", "eager", ONE).outcome == "ok"


def test_what_is_compiled_in_later_passes_is_compiled_before_it_is_measured(
    session: Session,
) -> None:
    run = measure(session, ModelSpec(f"{HERE}:cached"), "key", "dynamo", ONE)
    assert run.outcome == "ok" and not any("recompiled" in flag for flag in run.flags)


def test_what_is_compiled_while_it_is_measured_is_told(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WINDOW_S", 0.2)
    run = measure(session, ModelSpec(f"{HERE}:late"), "key", "dynamo", ONE)
    assert run.outcome == "ok" and run.facts["compiled_while_measured"] == 1
    assert "recompiled while it was measured, 1 time" in run.flags
    run = measure(session, ModelSpec("mlp", input_size=(16,)), "key", "dynamo", ONE)
    assert "compiled_while_measured" not in run.facts
    assert not any(flag.startswith("recompiled") for flag in run.flags)


def test_breaks_and_data_that_decide_are_told(session: Session) -> None:
    run = measure(session, ModelSpec(f"{HERE}:broken"), "key", "dynamo", ONE)
    assert run.outcome == "ok" and run.facts["compiled"] is True
    assert (run.facts["graphs"], run.facts["graph_breaks"]) == (3, 2)
    first, second = run.facts["graph_break_reasons"]
    assert "print" in first and "a branch depends on a tensor's value" in second
    assert run.facts["output_difference"] == 0
    traced = measure(session, ModelSpec(f"{HERE}:broken"), "key", "trace", ONE)
    assert traced.facts["trace_warnings"] == 1
    assert "tracing fixed 1 place that may depend on the inputs' values" in traced.flags


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


def test_a_mode_that_needs_too_much_memory_does_not_take_it_from_the_next(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes = []
    for mode in ("eager", "dynamo", "trace", "eager"):
        run = measure(session, ModelSpec(f"{HERE}:greedy"), "key", mode, ONE)
        outcomes.append(run.outcome)
    assert outcomes == ["ok", "out_of_memory", "ok", "ok"]
    assert "Traceback" not in capfd.readouterr().err, "of the graph, which torch prints"


def test_no_compiler_is_no_finding_about_a_model(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says, and that nothing is stored, is seen in tests/test_toolchain.py."""
    monkeypatch.setenv("CXX", "g++-none")
    monkeypatch.setenv("PATH", "/nowhere")
    request = ModelSpec("mlp", input_size=(16,))
    with pytest.raises(CannotMeasureError, match=r"no C\+\+ compiler \(g\+\+-none\)"):
        measure(session, request, "key", "compile", ONE)
    assert measure(session, request, "key", "dynamo", ONE).outcome == "ok"


@pytest.mark.slow
def test_tuning_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Frozen weights let inductor choose between kernels on a processor, too."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    request = ModelSpec(f"{HERE}:linear")
    log = logging.getLogger("torch._inductor.select_algorithm")
    with torch._inductor.config.patch(freezing=True):
        made = passing(load(request, device="cpu"))
        with issuing("compile:max-autotune", made, {}):
            assert not log.isEnabledFor(logging.ERROR), "of choices that a device has no room for"
        assert log.isEnabledFor(logging.ERROR) and capfd.readouterr() == ("", "")
        with torch.no_grad():
            torch.compile(nn.Linear(32, 64), mode="max-autotune")(torch.ones(8, 32))
    assert "Autotune Choices Stats" in capfd.readouterr().err, "as it does by itself"


def test_modes_of_a_processor() -> None:
    from opdb.bench.session import detect

    platform = detect("cpu")
    assert not set(modes_of(platform)) & set(CUDA_ONLY)
    check_modes(modes_of(platform), "cpu")
    for mode in CUDA_ONLY:
        with pytest.raises(CannotMeasureError, match=f"mode '{mode}' needs a CUDA device"):
            check_modes(["eager", mode], "cpu")


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


@pytest.mark.parametrize("made", ["sparse", "in_rows", "nested", "quantized"])
def test_outputs_that_are_not_dense_are_looked_at_by_their_numbers(
    session: Session, made: str
) -> None:
    request = ModelSpec(f"{HERE}:{made}")
    run = measure(session, request, "key", "eager", ONE)
    assert (run.outcome, run.reason) == ("ok", None)
    run = measure(session, request, "key", "dynamo", ONE)
    assert (run.outcome, run.facts["output_difference"]) == ("ok", 0)


def test_outputs_that_a_mode_makes_infinite_are_told_and_stored(session: Session) -> None:
    run = measure(session, ModelSpec(f"{HERE}:overflowing"), "key", "dynamo", ONE)
    assert "outputs are finite in eager, and not in dynamo" in run.flags
    assert run.facts["output_difference"] is None
    json.dumps(dict(run.facts), allow_nan=False)


def test_a_model_that_returns_no_tensor_is_no_trace_and_flagged(session: Session) -> None:
    request = ModelSpec(f"{HERE}:of_nothing")
    run = measure(session, request, "key", "trace", ONE)
    assert run.outcome == "error" and "no tensor is in them" in str(run.reason)
    run = measure(session, request, "key", "dynamo", ONE)
    assert "outputs hold no tensors: a compiler may leave out what makes none" in run.flags


def test_outputs_that_hang_on_chance_are_told_from_wrong_ones(session: Session) -> None:
    run = measure(session, ModelSpec(f"{HERE}:of_chance"), "key", "dynamo", ONE)
    assert run.facts["eager_difference"] > 0
    [flag] = [flag for flag in run.flags if flag.startswith("outputs differ")]
    assert "; those of two eager passes by " in flag


def test_an_eager_run_of_a_model_that_compiles_itself_says_so(session: Session) -> None:
    said = "the model compiles a part of itself: not all of it runs in eager"
    run = measure(session, ModelSpec(f"{HERE}:compiles_itself"), "key", "eager", ONE)
    assert said in run.flags
    run = measure(session, ModelSpec("mlp", input_size=(16,)), "key", "eager", ONE)
    assert said not in run.flags


@pytest.mark.parametrize(
    ("switch", "mode"),
    [
        ("TORCHDYNAMO_DISABLE", "compile"),
        ("TORCH_COMPILE_DISABLE", "dynamo"),
        ("PYTORCH_JIT", "trace"),
    ],
)
def test_a_mode_that_the_environment_switches_off_is_no_finding(
    session: Session, monkeypatch: pytest.MonkeyPatch, switch: str, mode: Mode
) -> None:
    value = "0" if switch == "PYTORCH_JIT" else "1"
    monkeypatch.setenv(switch, value)
    request = ModelSpec("mlp", input_size=(16,))
    with pytest.raises(CannotMeasureError, match=f"{switch}={value} .* unset it"):
        measure(session, request, "key", mode, ONE)
    with pytest.raises(CannotMeasureError, match=switch):
        check_modes([mode], "cpu")
    assert measure(session, request, "key", "eager", ONE).outcome == "ok"
