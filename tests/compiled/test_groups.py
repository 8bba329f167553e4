"""What inductor makes of real models on the processor, and whether its groups are what it made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from torch import Tensor
from torch._inductor.compile_fx import compile_fx_inner
from torch.fx import GraphModule

from opdb.compiled import inductor
from opdb.compiled.fused import graph_of, is_layout_optimized
from opdb.compiled.groups import fused_calls, harvest_compiled
from opdb.compiled.inductor import NOTHING, Lowered, steps_of_pass
from opdb.errors import CannotMeasureError, InputError, NotCompiledError
from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.models.inputs import materialize
from opdb.operators import build
from opdb.records import Configuration, Workload
from opdb.spec import ModelSpec
from tests.compiled import compiled_models

MODELS = ("resnet18", "shufflenet_v2_x0_5", "transformer")


def graphs_of(name: str) -> list[Lowered]:
    name = compiled_models.path(name) if hasattr(compiled_models, name) else name
    loaded = load(ModelSpec(name), device="cpu")
    steps = steps_of_pass(loaded.module, loaded.args, loaded.kwargs)
    graphs = [step for step in steps if isinstance(step, Lowered)]
    assert len(graphs) == len(steps)
    return graphs


@cache
def compiled(name: str, **more: object) -> Workload:
    """Return what a model is compiled to; some seconds, the first time."""
    request = ModelSpec(name, **more)  # type: ignore[arg-type]
    return harvest_compiled(request, harvest(request), "cpu", "some-cpu")


def groups(name: str, **more: object) -> list[Configuration]:
    return [c for c in compiled(name, **more).occurrences() if c.kind == "fused"]


def sorts(graph: Lowered) -> Counter[str]:
    return Counter(k.sort for k in graph.kernels if k.sort != NOTHING)


def lowered(
    graph: GraphModule, inputs: Sequence[Tensor], *, layout_optimized: bool | None = None
) -> Lowered:
    """Return what inductor would make of a graph; no code is made."""
    with torch.no_grad(), inductor._layouts(layout_optimized):
        return inductor._lowered(compile_fx_inner, graph, inputs, inductor._options())


def lowered_alone(configuration: Configuration) -> Lowered:
    """Return what a group is compiled to by itself."""
    read = Configuration.from_json(configuration.json)
    if torch.__version__ >= "2.14" or "_transformer_encoder_layer_fwd" not in read.json:
        build(read, device="meta")  # where torch 2.11 does not know that operator
    tensors = [materialize(spec) for spec in read.inputs["inputs"]]
    optimized = is_layout_optimized(read)
    return lowered(graph_of(read, tensors), tensors, layout_optimized=optimized)


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(m, marks=pytest.mark.slow) for m in MODELS), *compiled_models.ALL],
)
def test_groups_are_compiled_to_the_models_kernels(name: str) -> None:
    together: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for graph in graphs_of(name):
        calls, unplaced = fused_calls(graph)
        assert not unplaced and calls
        wanted += sorts(graph)
        for configuration, count in Counter(calls).items():
            for sort, kernels in sorts(lowered_alone(configuration)).items():
                together[sort] += count * kernels
    assert together == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", compiled_models.ALL)
def test_groups_run_and_give_what_they_say(name: str) -> None:
    for configuration in groups(compiled_models.path(name)):
        call = build(configuration)
        found = call()
        shapes = [list(t.shape) for t in found]
        nodes, outputs = (configuration.parameters[n] for n in ("nodes", "outputs"))
        assert shapes == [nodes[o["node"]]["shape"] for o in outputs]
        expected = graph_of(configuration, call.bare.args)(*call.bare.args)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)
        assert all(bool(torch.isfinite(t).all()) for t in found if t.is_floating_point())


@pytest.mark.slow
def test_a_model_as_compiled_is_another_workload_of_the_same_runs() -> None:
    request = ModelSpec("resnet18")
    plain = harvest(request)
    found = harvest_compiled(request, plain, "cpu", "some-cpu")
    assert found.key != plain.key and found.model_key == plain.key == plain.model_key
    assert found.compiled_for == "some-cpu" and torch.__version__ in found.source_version
    assert Counter(call.configuration.kind for call in found.calls) == {
        "enter_graph": 1,
        "fused": 39,
    }
    assert found.calls[0].configuration.parameters == {"weights": 102}
    assert found.unsupported == {} and found.containers == 0
    again = compiled("resnet18")
    assert [c.configuration.key for c in again.calls] == [c.configuration.key for c in found.calls]


@pytest.mark.slow
def test_values_and_weights_are_told() -> None:
    convolutions = [
        c
        for c in groups("resnet18")
        if any(node["op"] == "aten.convolution.default" for node in c.parameters["nodes"])
    ]
    inputs = [c.inputs["inputs"] for c in convolutions]
    assert all(specs[1]["role"] == "weight" for specs in inputs)
    assert Counter(specs[0].get("values") for specs in inputs) == {None: 1, "rectified": 10}
    [ids] = [
        spec
        for c in groups(compiled_models.path("looked"))
        for spec in c.inputs["inputs"]
        if spec["dtype"] == "int64"
    ]
    assert ids["values"] == {"range": [0, 12]}


def test_what_is_read_between_two_changes_in_place_is_listed() -> None:
    found = compiled(compiled_models.path("overwritten"))
    assert found.unsupported == {"a tensor changed in place (compiled)": 1}
    [_, *rest] = found.calls
    assert len(rest) == 5
    assert not any("index_put" in call.configuration.json for call in rest)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimized"), [("late", False), ("resnet18", True)])
def test_convolutions_lie_as_the_model_has_them(name: str, optimized: bool) -> None:
    """A group has few nodes, of which inductor decides otherwise than of a long graph.

    On a CPU with oneDNN it decides nothing: all convolutions are in channels last.
    """
    with torch.backends.mkldnn.flags(enabled=False):
        [graph] = graphs_of(name)
        calls, _ = fused_calls(graph)
        convolutions = [c for c in calls if '"aten.convolution' in c.json]
        assert graph.layout_optimized == optimized and convolutions
        for configuration in convolutions:
            assert is_layout_optimized(configuration) == optimized
            assert lowered_alone(configuration).layout_optimized == optimized
        together = Counter(sort for c in calls for sort in sorts(lowered_alone(c)).elements())
    assert together == sorts(graph)


def test_what_runs_between_graphs_stays_what_it_is() -> None:
    request = ModelSpec(compiled_models.path("between"))
    plain = harvest(request)
    found = harvest_compiled(request, plain, "cpu", "some-cpu")
    kinds = [call.configuration.kind for call in found.calls]
    assert kinds[:4] == ["enter_graph", "fused", "lstm", "enter_graph"]
    assert kinds[4:] and set(kinds[4:]) == {"fused"}
    [lstm] = [call for call in found.calls if call.configuration.kind == "lstm"]
    assert lstm in plain.calls
    assert found.unsupported == {"aten::zeros (between compiled graphs)": 2}
    broken = compiled("tests.bench.test_modes:broken")
    assert broken.unsupported == {"aten::is_nonzero (between compiled graphs)": 1}


def test_what_is_not_compiled_says_so() -> None:
    with pytest.raises(NotCompiledError, match="captures no graph"):
        compiled(compiled_models.path("uncompiled"))
    with pytest.raises(NotCompiledError, match="anew in each of 4 passes"):
        compiled(compiled_models.path("counted"))
    with pytest.raises(InputError, match="inference without autocast alone"):
        compiled("resnet18", phase="training")


def test_another_torch_gives_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(ModelSpec("mlp"), device="cpu")
    inductor._inductor.cache_clear()
    monkeypatch.delattr("torch._inductor.graph.GraphLowering")
    with pytest.raises(CannotMeasureError, match="opdb knows 2"):
        steps_of_pass(loaded.module, loaded.args, loaded.kwargs)
