"""Describe, write, read, build and call again: the same call comes back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from opdb.kinds import get_kind, numel
from opdb.operators import TensorNotes, build, describe_module, is_operator_module, materialize
from opdb.records import Configuration, Json
from tests.operators.calls import CALLS, MODULES, Tensors
from tests.operators.watching import Watcher, Weights, watch

# what shapes alone do not decide, or what comes back as no tensor
# their second output lies on the CPU: how many sequences a step has, and how long each is
_SHAPELESS = {"unique", "pack_padded_sequence", "pad_packed_sequence"}


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors(item)]
    return []


def facts(value: Any) -> list[tuple[list[int], torch.dtype]]:
    return [(list(t.shape), t.dtype) for t in tensors(value)]


@pytest.mark.parametrize("name", CALLS)
def test_a_function_comes_back(name: str) -> None:
    torch.manual_seed(0)
    t = Tensors()
    watcher = Watcher(TensorNotes())
    with torch.no_grad(), watcher:
        result = CALLS[name](t)
    configuration = watcher.seen[-1]
    read = Configuration.from_json(configuration.json)
    built = build(read, form="function")
    seen = watch(built, Weights(built.weights))
    assert [c.json for c in seen][-1] == configuration.json
    again = build(read, form="function")
    moved = again.with_inputs([tensor.clone() for tensor in again.inputs])
    before = [tensor.clone() for tensor in again.inputs]
    assert facts(moved()) == facts(result)
    assert all(torch.equal(a, b) for a, b in zip(before, again.inputs, strict=True)), "untouched"
    assert [id(w) for w in moved.weights] == [id(w) for w in again.weights]
    assert facts(again()) == facts(result)
    # a module that lacks one of the function's arguments, as softmax's dtype, does not stand for it
    assert facts(build(read)()) == facts(result)
    kind = get_kind(read.kind)
    assert kind.flops(read) >= 0
    assert kind.bytes_moved(read) >= 0
    if read.kind not in _SHAPELESS and "dtype" not in str(read.parameters.get("shape")):
        view = kind.view(read)
        assert view.output_elements == sum(t.numel() for t in tensors(result))
        assert view.output_bytes == sum(t.numel() * t.element_size() for t in tensors(result))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [False, True])
def test_a_module_comes_back_with_its_values(name: str, training: bool) -> None:
    torch.manual_seed(0)
    module, inputs = MODULES[name]()
    module.train(training)
    assert is_operator_module(module)
    configuration = describe_module(module, inputs, {}, TensorNotes())
    read = Configuration.from_json(configuration.json)
    form = None if name.startswith("Upsampling") else "module"
    built = build(read, form=form)  # type: ignore[arg-type]
    if built.module is None:
        return
    again = describe_module(built.module, built._args, built._kwargs, Weights(built.weights))
    assert again.json == configuration.json
    built.module.load_state_dict(module.state_dict())
    random = (training and "p" in read.parameters) or "dropout" in read.json or name == "RReLU"
    distinct = list({id(t): t for t in inputs}.values())
    for mine, theirs in zip(built.inputs, distinct, strict=True):
        mine.copy_(theirs)
    with torch.no_grad():
        expected = module(*inputs)
    result = built()
    assert facts(result) == facts(expected)
    if not (random or (training and name.startswith(("Transformer", "Dropout", "Alpha")))):
        for got, wanted in zip(tensors(result), tensors(expected), strict=True):
            torch.testing.assert_close(got, wanted, equal_nan=True)
    kind = get_kind(read.kind)
    shapes = kind.shapes_rule(kind.view(read))
    wanted_elements = [t.numel() for t in tensors(result)]
    assert [numel(s) for s in shapes] == wanted_elements[: len(shapes)]
    fresh = built.with_fresh_weights()
    assert [id(t) for t in fresh.inputs] == [id(t) for t in built.inputs]
    assert not {id(t) for t in fresh.weights} & {id(t) for t in built.weights}
    assert fresh.weight_bytes == built.weight_bytes
    assert facts(fresh()) == facts(built())


def made(values: Json, **more: Json) -> torch.Tensor:
    spec = {"shape": [64, 1024], "dtype": "float32", "values": values, **more}
    return materialize(spec, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_share_of_the_values_is_zero_and_the_others_stay_normal(dtype: str, share: float) -> None:
    tensor = made({"zeros": share}, dtype=dtype)
    assert str(tensor.dtype) == f"torch.{dtype}"
    values = tensor.to(torch.complex64) if tensor.is_complex() else tensor.float()
    assert (values == 0).float().mean().item() == pytest.approx(share, abs=0.01)
    others = values[values != 0]
    assert others.mean().abs().item() == pytest.approx(0, abs=0.05)
    assert others.std().item() == pytest.approx(1, abs=0.05)


def convolution(values: Json) -> Configuration:
    image: dict[str, Json] = {"shape": [1, 4, 8, 8], "dtype": "float32"}
    if values is not None:
        image["values"] = values
    weight = {"shape": [8, 4, 3, 3], "dtype": "float32", "role": "weight"}
    return Configuration("conv2d", {}, {"input": image, "weight": weight})


def test_a_share_of_zeros_is_another_configuration_that_comes_back() -> None:
    zeros = convolution({"zeros": 0.9})
    assert zeros.json == (
        '{"format":1,"inputs":{"input":{"dtype":"float32","shape":[1,4,8,8],'
        '"values":{"zeros":0.9}},"weight":{"dtype":"float32","role":"weight",'
        '"shape":[8,4,3,3]}},"kind":"conv2d"}'
    )
    assert Configuration.from_json(zeros.json) == zeros
    assert len({zeros.key, convolution(None).key, convolution("rectified").key}) == 3
    for device in ("cpu", "meta"):
        assert build(zeros, device=device)().shape == (1, 8, 6, 6)
    assert get_kind("conv2d").flops(zeros) == get_kind("conv2d").flops(convolution(None))


def test_groups_are_filled_as_by_a_router() -> None:
    """Of 800 rows over 64 groups, the busiest groups get more where the imbalance is larger."""
    used, busiest = {}, {}
    for imbalance in (None, 2.0):
        offs: dict[str, Json] = {"dtype": "int32", "shape": [64]}
        if imbalance is not None:
            offs["values"] = {"imbalance": imbalance}
        inputs = {
            "input": {"dtype": "bfloat16", "shape": [800, 16]},
            "mat2": {"dtype": "bfloat16", "shape": [64, 16, 16], "role": "weight"},
            "offs": offs,
        }
        call = Configuration("grouped_mm", {}, inputs)
        ends = build(call).inputs[1]
        counts = ends.diff(prepend=ends.new_zeros(1))
        assert ends[-1] == 800
        assert counts.min() >= 0
        used[imbalance], busiest[imbalance] = int((counts > 0).sum()), int(counts.max())
    assert used[None] == 64  # 12.5 rows a group: none empty but in 1 of 4,000 draws
    assert busiest[2.0] > 3 * busiest[None]
    assert used[2.0] < used[None]
