"""Tensors that torch takes for numbers, and calls that give the device nothing to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from opdb.harvest.passes import record
from opdb.harvest.recorder import Recorder
from opdb.kinds import KINDS
from opdb.models import load
from opdb.operators import is_metadata
from opdb.records import Configuration
from opdb.spec import ModelSpec
from tests.harvest.oracle import Opinion
from tests.operators.calls import CALLS, Tensors
from tests.own import model

F = nn.functional


_chosen: list[Callable[[nn.Linear, Any, Any], Any]] = []


@model((16, 8), lambda: torch.tensor([2, 3, 14]), linear=lambda: nn.Linear(8, 4))
def chosen(m: Any, x: Tensor, n: Tensor) -> Any:
    """Computes by the chosen function of its linear layer, an input, and numbers as a tensor."""
    return _chosen[-1](m.linear, x, n)


def recorded(function: Callable[[nn.Linear, Any, Any], Any], device: str = "meta") -> Recorder:
    _chosen.append(function)
    return record(load(ModelSpec(f"{__name__}:chosen"), device=device))


def kinds(recorder: Recorder) -> Counter[str]:
    return Counter(call.configuration.kind for call in recorder.calls)


NUMBERS: dict[str, tuple[Callable[[nn.Linear, Any, Any], Any], dict[str, Any], int]] = {
    # a call with tensors in place of numbers: its parameters, and how many numbers it waits for
    "split": (lambda _, x, n: x.split(n.max()), {"split_size_or_sections": 14}, 1),
    "split in parts": (
        lambda _, x, n: torch.split(x, [n[0], n[2]]),
        {"split_size_or_sections": [2, 14]},
        2,
    ),
    "view": (lambda _, x, n: x.view(n[0], -1), {"shape": [2, 64]}, 1),
    "a slice": (lambda _, x, n: x[: n[1]], {"index": [{"slice": [None, 3, None]}]}, 1),
    "a place": (lambda _, x, n: x[n[1]], {"index": [3]}, 1),
    "a slice written": (
        lambda _, x, n: x.__setitem__(slice(n[1]), 1.0),
        {"index": [{"slice": [None, 3, None]}], "value": 1.0, "inplace": True},
        1,
    ),
    "full": (
        lambda _, x, n: torch.full((n[0],), n[1], device=x.device),
        {"size": [2], "fill_value": 3},
        2,
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_tensor_that_torch_takes_for_a_number_is_that_number(name: str) -> None:
    function, parameters, waits = NUMBERS[name]
    recorder = recorded(function)
    assert recorder.unsupported == {}
    made = [call.configuration for call in recorder.calls]
    found = next(c for c in reversed(made) if c.kind != "getitem" or c.parameters == parameters)
    assert found.parameters == parameters
    assert kinds(recorder)["item"] == waits
    for configuration in made:  # each rule has numbers to work with
        assert KINDS[configuration.kind].flops(configuration) >= 0
        assert KINDS[configuration.kind].bytes_moved(configuration) >= 0


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_nobody_waits_for_a_number_on_the_host(device: str) -> None:
    """As Longformer does, which divides sizes by torch.div."""
    host = recorded(
        lambda linear, x, n: x.view(torch.div(16, 2, rounding_mode="trunc"), 2, 8), device
    )
    assert kinds(host) == {"div": 1, "view": 1}
    there = recorded(lambda _, x, n: x.view(torch.tensor(8, device=x.device), 2, 8), device)
    assert kinds(there) == {"tensor": 1, "item": 1, "view": 1}
    less = recorded(lambda _, x, n: x.view(torch.tensor(9) - 1, 2, 8), device)
    assert kinds(less) == {"tensor": 1, "sub": 1, "view": 1}
    moved = recorded(lambda _, x, n: x.view(torch.tensor(8).to(x.device), 2, 8), device)
    assert kinds(moved) == {"tensor": 1, "to": 1, "item": 1, "view": 1}


class Outer(TorchFunctionMode):
    """Keeps the functions that are called, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_metadata(func):
            self.calls.append((func, (args, kwargs or {})))
        return func(*args, **(kwargs or {}))


def with_tensors(value: Any) -> Iterator[Any]:
    """Yield the arguments with one whole number after another as a tensor."""
    if type(value) is int:
        yield torch.tensor(value)
    elif isinstance(value, slice):
        for ends in with_tensors((value.start, value.stop, value.step)):
            yield slice(*ends)
    elif isinstance(value, dict):
        for items in with_tensors(tuple(value.values())):
            yield dict(zip(value, items, strict=True))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            for other in with_tensors(item):
                yield type(value)([*value[:place], other, *value[place + 1 :]])


def alone(function: Callable[..., Any], given: Any) -> list[Configuration]:
    args, kwargs = pytree.tree_map_only(Tensor, torch.Tensor.clone, given)
    recorder = Recorder(nn.Module())
    with torch.no_grad(), recorder.watching():
        function(*args, **kwargs)
    assert recorder.unsupported == {}
    return [call.configuration for call in recorder.calls]


@pytest.mark.parametrize("name", CALLS)
def test_any_whole_number_of_any_call_may_be_a_tensor(name: str) -> None:
    torch.manual_seed(0)
    with torch.no_grad(), Outer() as outer:
        CALLS[name](Tensors())
    function, given = outer.calls[-1]
    for taken in with_tensors(given):
        try:
            found = alone(function, taken)
        except (TypeError, RuntimeError, IndexError):
            with pytest.raises((TypeError, RuntimeError, IndexError)):
                function(*taken[0], **taken[1])  # torch refuses a tensor there
            continue
        numbers = [c for c in found if c.kind == "item"]
        if numbers:  # else torch computes with the tensor
            assert [c for c in found if c.kind != "item"] == alone(function, given)
        for configuration in found:
            assert KINDS[configuration.kind].flops(configuration) >= 0
            assert KINDS[configuration.kind].bytes_moved(configuration) >= 0


def moved(linear: nn.Linear, x: Tensor, n: Tensor) -> Any:
    return linear.to(x.device)(x)


def set_anew(linear: nn.Linear, x: Tensor, n: Tensor) -> Any:
    linear.weight.data = linear.weight.data
    return linear(x)


def turned_in_place(linear: nn.Linear, x: Tensor, n: Tensor) -> Any:
    return linear(x.unsqueeze_(0).squeeze_(0).view(torch.int32).view(torch.float32))


IDLE: dict[str, Callable[[nn.Linear, Any, Any], Any]] = {
    "a module moved to where it is": moved,
    "data set": set_anew,
    "from NumPy": lambda linear, x, n: linear(
        x + torch.from_numpy(np.ones(8, dtype="float32")).to(x.device)
    ),
    "a view of a size that is a tensor": lambda linear, x, n: linear(x.view(torch.tensor(8), 2, 8)),
    "views by their other names": lambda linear, x, n: linear(
        torch.hsplit(torch.atleast_3d(x), 1)[0].squeeze(2).adjoint().H
    ),
    "a view that changes what it is of": turned_in_place,
    "memory": lambda linear, x, n: linear(x) if x.new(3, 2).numel() else x,
}


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("name", IDLE)
def test_a_call_that_gives_the_device_nothing_to_do_is_not_missing(name: str, device: str) -> None:
    recorder = recorded(IDLE[name], device)
    assert recorder.unsupported == {}
    flops = Counter[str]()
    for call in recorder.calls:
        flops[call.configuration.kind] += KINDS[call.configuration.kind].flops(call.configuration)
    assert flops["linear"] == 2 * 16 * 8 * 4


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda linear, x, n: torch.kron(x, x), "torch.kron"),
        # data from the host: none of torch's operators is seen to make it
        (lambda linear, x, n: x.new([1.0, 2.0]), "torch.Tensor.new"),
        (lambda linear, x, n: x.put_(n, x[0, :3].clone()), "torch.Tensor.put_"),
    ],
)
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_call_that_works_is_missing(
    function: Callable[[nn.Linear, Any, Any], Any], name: str, device: str
) -> None:
    assert recorded(function, device).unsupported == {name: 1}


@model(
    *((3, 7, 8), lambda: torch.tensor([3, 7, 1])),
    layer=lambda: nn.LSTM(8, 16, batch_first=True),
)
def packed(m: Any, x: Tensor, n: Tensor) -> Tensor:
    rows = rnn.pack_padded_sequence(x, n.cpu(), batch_first=True, enforce_sorted=False)
    return rnn.pad_packed_sequence(m.layer(rows)[0], batch_first=True)[0]


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_packed_sequences_are_described(device: str) -> None:
    opinion = Opinion(ModelSpec(f"{__name__}:packed"), device)
    recorder = opinion.recorder
    assert recorder.unsupported == {} and opinion.oracle.faults() == []
    found = {c.configuration.kind: c.configuration for c in recorder.calls}
    assert KINDS["lstm"].flops(found["lstm"]) == 33_792
    assert found["lstm"].parameters["batch_sizes"] == [3, 2, 2, 1, 1, 1, 1]
    assert found["pack_padded_sequence"].parameters["lengths"] == [7, 3, 1]
    assert found["pad_packed_sequence"].parameters["batch_sizes"] == [3, 2, 2, 1, 1, 1, 1]
