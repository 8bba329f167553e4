"""Packed sequences: the layers that take them, and what packs and pads sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn
from torch.utils.flop_counter import FlopCounterMode

from opdb.kinds import get_kind
from opdb.models.inputs import tensors
from opdb.operators import TensorNotes, build, describe_module
from opdb.records import Configuration
from tests.operators.watching import Weights, watch

LENGTHS = torch.tensor([7, 3, 1])
ROWS = 11  # of all sequences together


def packed(order: tuple[int, ...] = (0, 1, 2)) -> rnn.PackedSequence:
    lengths, in_order = LENGTHS[list(order)], order == (0, 1, 2)
    x = torch.randn(3, 7, 8, generator=torch.Generator().manual_seed(0))
    return rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=in_order)


LAYERS: dict[str, nn.RNNBase] = {
    "LSTM": nn.LSTM(8, 16),
    "LSTM projected": nn.LSTM(8, 16, proj_size=4),
    "GRU": nn.GRU(8, 16, num_layers=2, bidirectional=True),
    "RNN": nn.RNN(8, 16, batch_first=True),
}


def described(layer: nn.Module, *args: Any) -> Configuration:
    return describe_module(layer.eval(), args, {}, TensorNotes())


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("LSTM", ROWS * 2 * 4 * 16 * (8 + 16)),
        ("LSTM projected", ROWS * 2 * (4 * 16 * (8 + 4) + 16 * 4)),
        ("GRU", 152_064),
        ("RNN", ROWS * 2 * 16 * (8 + 16)),
    ],
)
def test_each_row_of_a_packed_sequence_is_counted_once(name: str, flops: int) -> None:
    configuration = described(LAYERS[name], packed())
    kind = get_kind(configuration.kind)
    assert kind.flops(configuration) == flops
    assert kind.steps_rule(kind.view(configuration)) == 7 * LAYERS[name].num_layers
    whole = described(LAYERS[name], torch.randn(7, 3, 8))
    assert flops == get_kind(whole.kind).flops(whole) * ROWS / 21


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_a_layer_of_a_packed_sequence_comes_back(name: str, order: tuple[int, ...]) -> None:
    layer, given = LAYERS[name].eval(), packed(order)
    configuration = Configuration.from_json(described(layer, given).json)
    built = build(configuration, form="module")
    again = describe_module(built.module, built._args, {}, Weights(built.weights))
    assert again.json == configuration.json
    built.module.load_state_dict(layer.state_dict())
    own = [given.data, given.sorted_indices, given.unsorted_indices]
    for mine, theirs in zip(built.inputs, [t for t in own if t is not None], strict=True):
        mine.copy_(theirs)
    with torch.no_grad():
        wanted = layer(given)
    for call in (built, built.with_fresh_tensors()):
        for mine, theirs in zip(tensors(call()), tensors(wanted), strict=True):
            torch.testing.assert_close(mine, theirs)
    shapes = [list(t.shape) for t in (wanted[0].data, *tensors(wanted[1]))]
    kind = get_kind(configuration.kind)
    assert kind.shapes_rule(kind.view(configuration)) == shapes
    on_meta = build(configuration, device="meta")()
    assert [list(t.shape) for t in (on_meta[0].data, *tensors(on_meta[1]))] == shapes


def test_equal_workloads_of_packed_sequences_are_one_configuration() -> None:
    layer = nn.LSTM(8, 16)
    configuration = described(layer, packed())
    assert configuration.parameters["batch_sizes"] == [3, 2, 2, 1, 1, 1, 1]
    assert described(nn.LSTM(8, 16, batch_first=True), packed()) == configuration
    one_by_one = rnn.pack_sequence([torch.randn(n, 8) for n in LENGTHS.tolist()])
    assert described(layer, one_by_one) == configuration
    other = rnn.pack_sequence([torch.randn(n, 8) for n in (5, 4, 2)])
    assert described(layer, other) != configuration


CALLS = {
    "pack_padded_sequence": (lambda: packed(), [[ROWS, 8]], 2 * ROWS * 8 * 4),
    "pad_packed_sequence": (
        lambda: rnn.pad_packed_sequence(packed(), total_length=9),
        [[9, 3, 8]],
        (ROWS + 27) * 8 * 4,
    ),
    "pad_sequence": (
        lambda: rnn.pad_sequence([torch.zeros(n, 8) for n in (2, 5)], batch_first=True),
        [[2, 5, 8]],
        (7 + 10) * 8 * 4,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_packing_and_padding_move_data(name: str) -> None:
    call, shapes, moved = CALLS[name]
    configuration = watch(call)[-1]
    kind = get_kind(name)
    assert configuration.kind == name
    assert (kind.flops(configuration), kind.bytes_moved(configuration)) == (0, moved)
    with FlopCounterMode(display=False) as counter:
        first = tensors(build(configuration, device="meta")())[0]
    assert [list(first.shape)] == shapes and first.is_meta
    assert counter.get_total_flops() == 0
