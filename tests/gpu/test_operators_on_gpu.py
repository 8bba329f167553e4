"""The broad list of calls, rebuilt and run on a GPU."""

from __future__ import annotations

import pytest
import torch

from opdb.errors import UnsupportedError
from opdb.operators import TensorNotes, build, describe_module
from tests.operators.calls import CALLS, MODULES, Tensors
from tests.operators.test_packed import LAYERS, described, packed
from tests.operators.test_round_trip import facts
from tests.operators.watching import watch


@pytest.mark.parametrize("name", CALLS)
def test_a_function_runs(name: str) -> None:
    configuration = watch(lambda: CALLS[name](Tensors()))[-1]
    on_host = build(configuration, form="function")
    on_device = build(configuration, form="function", device="cuda")
    assert facts(on_device()) == facts(on_host())
    assert all(t.is_cuda for t in on_device.inputs)
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_runs(name: str) -> None:
    module, inputs = MODULES[name]()
    configuration = describe_module(module.eval(), inputs, {}, TensorNotes())
    try:
        built = build(configuration, form="module", device="cuda")
    except UnsupportedError:
        pytest.skip("has no module form of its own")
    with torch.no_grad():
        expected = facts(module(*inputs))
    assert facts(built.with_fresh_weights()()) == expected
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_a_packed_sequence_runs(name: str) -> None:
    configuration = described(LAYERS[name], packed((1, 0, 2)))
    built = build(configuration, form="module", device="cuda")
    assert facts(built.with_fresh_weights()()) == facts(build(configuration, form="module")())
    torch.cuda.synchronize()
