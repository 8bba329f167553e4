"""Training steps: what the harvest finds on meta is what autograd runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from opdb.harvest.passes import harvest
from opdb.kinds import get_kind
from opdb.models import load
from opdb.models.construction import Loss
from opdb.operators import build
from opdb.records import Call, Configuration, Json, Workload
from opdb.spec import ModelSpec
from tests.own import model

F = nn.functional


def trained(name: str, **more: object) -> Workload:
    request = ModelSpec(name, phase="training", batch_size=2)
    return harvest(ModelSpec(**{**vars(request), **more}))


def titles(workload: Workload) -> Counter[str]:
    return Counter(call.configuration.title for call in workload.calls)


def sums(workload: Workload) -> list[Configuration]:
    """Return the sums of gradients: additions that take no gradient themselves."""
    found = (call.configuration for call in after_loss(workload))
    return [c for c in found if c.title == "add"]


def after_loss(workload: Workload) -> list[Call]:
    first = next(i for i, c in enumerate(workload.calls) if c.configuration.title == "ones_like")
    return list(workload.calls[first:])


def run_by_autograd(name: str, size: tuple[int, ...] | None = None) -> Counter[str]:
    """Return how often a real backward pass on this processor runs what, by the profiler's names.

    No mode watches it: modes change what autograd does.
    """
    request = ModelSpec(name, phase="training", batch_size=2, input_size=size)
    loaded = load(request, device="cpu")
    outputs = loaded.module(*loaded.args, **loaded.kwargs)
    loss = Loss.of(outputs)(outputs)
    with profile() as seen:
        loss.backward()
    return Counter(event.name for event in seen.events())


NODES = {
    "ConvolutionBackward0": "conv2d",
    "NativeBatchNormBackward0": "batch_norm",
    "CatBackward0": "cat",
    "NativeLayerNormBackward0": "layer_norm",
    "MaxPool2DWithIndicesBackward0": "max_pool2d",
    "GeluBackward0": "gelu",
    "EmbeddingBackward0": "embedding",
}


@pytest.mark.parametrize(
    "name", ["resnet50", "vgg16", "mobilenet_v2", "densenet121", "googlenet", "distilbert"]
)
def test_the_backward_pass_is_what_autograd_runs(name: str) -> None:
    size = (16,) if name == "distilbert" else (3, 64, 64)
    workload, real = trained(name, input_size=size), run_by_autograd(name, size)
    assert workload.unsupported == {}
    found = titles(workload)
    for node, kind in NODES.items():
        evaluated = real[f"autograd::engine::evaluate_function: {node}"]
        assert found[f"{kind} backward"] == evaluated, kind
    added = Counter(bool(c.parameters.get("inplace")) for c in sums(workload))
    assert (added[False], added[True]) == (real["aten::add"], real["aten::add_"])


def test_a_step_is_in_order_and_ends_with_the_update() -> None:
    workload = trained("resnet18")
    passes = [call.configuration.pass_name for call in workload.calls]
    assert passes.index("backward") > passes.index("forward")
    assert passes[-1] == "update"
    backward = [c.configuration.title for c in workload.calls if " back" in c.configuration.title]
    assert backward[0] == "cross_entropy backward"
    assert backward[-4:] == [
        f"{k} backward" for k in ("max_pool2d", "relu", "batch_norm", "conv2d")
    ]


def test_what_needs_no_gradient_is_part_of_the_configuration() -> None:
    workload = trained("resnet18")
    first = workload.calls[0].configuration
    assert first.kind == "conv2d" and first.gradient
    assert first.inputs["input"]["gradient"] is False
    assert "gradient" not in first.inputs["weight"]
    last = next(
        c.configuration
        for c in reversed(workload.calls)
        if c.configuration.title == "conv2d backward"
    )
    assert last.forward == first
    norm = next(c.configuration for c in workload.calls if c.configuration.kind == "batch_norm")
    assert norm.parameters["training"] and "gradient" not in norm.inputs["running_mean"]


def test_the_update_holds_every_parameter_whatever_their_order() -> None:
    update = trained("mobilenet_v2").calls[-1].configuration
    model = load(ModelSpec("mobilenet_v2"), device="meta").module
    shapes = sorted(list(p.shape) for p in model.parameters())
    assert sorted(spec["shape"] for spec in update.inputs["params"]) == shapes
    assert update.parameters == {"momentum": 0.9}
    other = trained("mobilenet_v2", optimizer="adamw").calls[-1].configuration
    assert (other.title, other.inputs) == ("adamw update", update.inputs)


# models with something of their own


@model((2, 8), table=lambda: nn.Linear(8, 8, bias=False))
def twice(m: Any, x: torch.Tensor) -> Any:
    """Uses one tensor twice in one call and in two calls, and one weight in two calls."""
    x = m.table(x)
    x = x * x
    return m.table(x) + torch.sin(x)


def test_sums_inside_a_call_belong_to_it_and_sums_between_calls_do_not() -> None:
    workload = trained("tests.harvest.test_training:twice")
    assert workload.unsupported == {}
    # of x between table and sin, and of the weight between the two products
    assert [c.inputs["input"]["shape"] for c in sums(workload)] == [[2, 8], [8, 8]]


@model((2, 8), body=lambda: nn.Linear(8, 8).requires_grad_(False), head=lambda: nn.Linear(8, 4))
def frozen(m: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        x = F.relu(x)
    return m.head(m.body(x))


def test_what_is_frozen_has_no_backward_pass_and_is_an_inferences_operator() -> None:
    workload = trained("tests.harvest.test_training:frozen")
    assert titles(workload)["linear backward"] == 1
    relu, body, head = (call.configuration for call in workload.calls[:3])
    assert not relu.gradient and not body.gradient
    inference = harvest(ModelSpec("tests.harvest.test_training:frozen", batch_size=2))
    assert body == inference.calls[1].configuration
    assert head.gradient and head.inputs["input"]["gradient"] is False
    shapes = [spec["shape"] for spec in workload.calls[-1].configuration.inputs["params"]]
    assert sorted(shapes) == [[4], [4, 8]]


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return gradient * torch.sigmoid(x)


@model((2, 8), head=lambda: nn.Linear(8, 4))
def custom(m: Any, x: torch.Tensor) -> Any:
    x = Swish.apply(m.head(x))
    return checkpoint(lambda x: F.gelu(torch.sin(x)), x, use_reentrant=False)


def test_functions_of_ones_own_and_what_is_computed_again_are_operators_where_they_run() -> None:
    workload = trained("tests.harvest.test_training:custom")
    assert workload.unsupported == {}
    after = [call.configuration.title for call in after_loss(workload)]
    # the sine is computed again for the gelu, of which nothing more is needed
    assert after[:5] == [
        "ones_like",
        "cross_entropy backward",
        "gelu backward",
        "sin",
        "sin backward",
    ]
    assert after[5:] == ["sigmoid", "mul", "linear backward", "sgd update"]


# How much of each gradient is zero, followed on meta, against a real step's


def zeros_of(configuration: Configuration) -> float:
    specs = configuration.inputs.get("gradients") or [{}]
    values: Json = specs[0].get("values")
    return float(values["zeros"]) if values else 0.0


def test_a_backward_pass_is_given_as_many_zeros_as_its_configuration_says() -> None:
    request = ModelSpec("alexnet", phase="training", batch_size=2, input_size=(3, 128, 128))
    calls = [c.configuration for c in harvest(request).calls]
    chosen = next(c for c in calls if c.title == "conv2d backward" and zeros_of(c) > 0.5)
    [gradient] = build(chosen, device="cpu").inputs
    share = float((gradient == 0).float().mean())
    assert share == pytest.approx(zeros_of(chosen), abs=0.02)


@pytest.mark.parametrize(
    ("kind", "parameters", "given", "expected"),
    [
        ("relu", {}, 1.0, 0.5),
        ("relu", {"inplace": True}, 0.25, 0.125),
        ("relu6", {}, 1.0, 0.5),
        ("hardtanh", {}, 1.0, 0.683),
        ("clamp", {"min": 0.0}, 0.5, 0.25),
        ("dropout", {"p": 0.2, "training": True}, 0.5, 0.4),
        ("max_pool2d", {"kernel_size": [2, 2]}, 1.0, 0.25),
        ("avg_pool2d", {"kernel_size": [2, 2]}, 0.5, 0.5),
        ("adaptive_avg_pool2d", {"output_size": [1, 1]}, 0.5, 0.5),
        ("narrow", {"dim": 0, "start": 0, "length": 1}, 1.0, 0.5),
        ("gelu", {}, 0.5, 0.5),
        ("layer_norm", {"normalized_shape": [8]}, 0.1, 1.0),
        ("sum", {}, 0.5, 1.0),
    ],
)
def test_each_kind_gives_on_its_share(
    kind: str, parameters: dict[str, Json], given: float, expected: float
) -> None:
    spec = {"shape": [2, 4, 8, 8], "dtype": "float32"}
    configuration = Configuration(kind, parameters=parameters, inputs={"input": spec})
    assert get_kind(configuration.kind).nonzero_share(configuration, given) == pytest.approx(
        expected, abs=0.001
    )
