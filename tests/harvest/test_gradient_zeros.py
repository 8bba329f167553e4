"""How much of each gradient is zero, followed on meta, against a real step's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from opdb.harvest.passes import harvest
from opdb.kinds import get_kind
from opdb.models import load
from opdb.models.steps import Loss
from opdb.operators import build
from opdb.records import Configuration, Json, Workload
from opdb.spec import ModelSpec

WATCHED = {nn.Conv2d: "conv2d", nn.Linear: "linear", nn.BatchNorm2d: "batch_norm"}


def described(workload: Workload) -> list[tuple[str, float]]:
    """Return the kinds of the backward passes that are watched, and the zeros they are given."""
    found = [c.configuration for c in workload.calls if c.configuration.pass_name == "backward"]
    return [(c.kind, zeros_of(c)) for c in found if c.kind in WATCHED.values()]


def zeros_of(configuration: Configuration) -> float:
    specs = configuration.gradients or [{}]
    values: Json = specs[0].get("values")
    return float(values["zeros"]) if values else 0.0


def seen(request: ModelSpec) -> list[tuple[str, float]]:
    """Run a real step on this processor; return the same of the gradients that it makes."""
    torch.manual_seed(0)
    loaded = load(request, device="cpu")
    found: list[tuple[str, float]] = []

    def watch(module: nn.Module, _: object, output: Tensor) -> None:
        def keep(gradient: Tensor) -> None:
            found.append((WATCHED[type(module)], float((gradient == 0).float().mean())))

        output.register_hook(keep)

    for module in loaded.module.modules():
        if type(module) in WATCHED:
            module.register_forward_hook(watch)
    outputs = loaded.module(*loaded.args, **loaded.kwargs)
    Loss.of(outputs)(outputs).backward()
    return found


@pytest.mark.parametrize(
    ("name", "size"),
    [("alexnet", 128), ("vgg11", 64), ("vgg11_bn", 64), ("squeezenet1_1", 96), ("mnasnet0_5", 96)],
)
def test_zeros_are_those_of_a_real_step(name: str, size: int) -> None:
    request = ModelSpec(name, phase="training", batch_size=4, input_size=(3, size, size))
    expected, real = described(harvest(request)), seen(request)
    assert [kind for kind, _ in expected] == [kind for kind, _ in real]
    apart = [abs(e - r) for (_, e), (_, r) in zip(expected, real, strict=True)]
    assert max(apart) < 0.15
    assert sum(apart) / len(apart) < 0.05
    assert max(zeros for _, zeros in real) > 0.45


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
