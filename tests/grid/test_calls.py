from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opdb.errors import InputError
from opdb.grid import Expansion, expand, load_grids
from opdb.harvest.passes import harvest
from opdb.kinds import get_kind
from opdb.spec import ModelSpec
from tests.operators.watching import watch

F = nn.functional
ROOT = Path(__file__).parents[2]


def expanded(tmp_path: Path, text: str) -> Expansion:
    path = tmp_path / "grid.yml"
    path.write_text(text)
    return expand(load_grids(path))


def only(tmp_path: Path, text: str) -> Any:
    [call] = expanded(tmp_path, text).calls
    return call


CONVOLUTION = """\
operator: nn.Conv2d
arguments: {in_channels: 64, out_channels: 64, kernel_size: 3, padding: 1, bias: false}
sizes: {batch: 1, side: 56}
inputs: {input: [batch, in_channels, side, side]}
values: rectified
"""


def test_a_convolution_is_the_one_that_a_model_calls(tmp_path: Path) -> None:
    found = only(tmp_path, CONVOLUTION)
    workload = harvest(ModelSpec("resnet18", input_size=(3, 224, 224)))
    assert found in workload.calls
    assert workload.occurrences()[found.configuration] == 4
    assert found.form == "module"


FUNCTIONS = {
    "operator: torch.add\ninputs: {input: [2, 3], other: [2, 3]}": lambda: torch.add(
        torch.ones(2, 3), torch.ones(2, 3)
    ),
    "operator: torch.cat\narguments: {dim: 1}\ninputs: {tensors: [[2, 3], [2, 4]]}": lambda: (
        torch.cat([torch.ones(2, 3), torch.ones(2, 4)], 1)
    ),
    "operator: torch.nn.functional.gelu\ninputs: {input: [2]}\narguments: {approximate: tanh}": (
        lambda: F.gelu(torch.ones(2), approximate="tanh")
    ),
    "operator: torch.einsum\narguments: {equation: 'ij,jk->ik'}\n"
    "inputs: {operands: [[3, 4], [4, 5]]}": lambda: torch.einsum(
        "ij,jk->ik", torch.ones(3, 4), torch.ones(4, 5)
    ),
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_function_is_the_one_that_python_calls(tmp_path: Path, text: str) -> None:
    found = only(tmp_path, text)
    assert found.form == "function"
    assert found.configuration == watch(FUNCTIONS[text])[-1]


def test_what_torch_refuses_is_dropped_and_counted(tmp_path: Path) -> None:
    text = """\
        operator: nn.Conv2d
        arguments: {in_channels: 8, out_channels: [8, 9], kernel_size: [1, 3, 5, 7], groups: [1, 4]}
        sizes: {side: [2, 4]}
        inputs: {input: [1, in_channels, side, side]}
    """
    found = expanded(tmp_path, text)
    assert found.combinations == found.tried == 32
    by_reason = {each.reason: each for each in found.dropped}
    assert by_reason["out_channels must be divisible by groups"].count == 8
    assert by_reason["out_channels must be divisible by groups"].example == {
        "side": 2,
        "out_channels": 9,
        "kernel_size": 1,
        "groups": 4,
    }
    [too_large] = [each for reason, each in by_reason.items() if "size per channel: " in reason]
    # torch 2.11 tells the sizes before and after, later ones the kernel's
    told = ("(2 x 2)", "Kernel size") if torch.__version__ >= "2.14" else ("[2, 2]", "too small")
    assert too_large.count == 3 * 5 and all(words in too_large.reason for words in told)
    assert len(found.calls) == 32 - 8 - 15
    assert [each.count for each in found.dropped] == [15, 8]


def test_what_exceeds_a_bound_is_dropped_and_counted(tmp_path: Path) -> None:
    text = """\
        operator: nn.Linear
        arguments: {in_features: {from: 16, to: 1024, factor: 4}, out_features: 64}
        inputs: {input: [32, in_features]}
    """
    whole = expanded(tmp_path, text)
    kind = get_kind("linear")
    bytes_, flops = kind.bytes_moved(whole.calls[1].configuration), 32 * 64 * 2 * 64
    assert flops == kind.flops(whole.calls[1].configuration)
    for bound in (f"bytes: {bytes_}", f"flops: {flops}"):
        found = expanded(tmp_path, text + f"\nat_most: {{{bound}}}".replace("\n", "\n        "))
        assert found.calls == whole.calls[:2]
        [dropped] = found.dropped
        assert dropped.count == 2 and dropped.reason.startswith("at_most: it has more than")
        assert dropped.example == {"in_features": 256}


LINEAR = """\
operator: nn.Linear
arguments: {in_features: {from: 1, to: 40}, out_features: {from: 1, to: 40}}
inputs: {input: [4, in_features]}
"""


def test_a_sample_is_of_valid_calls_and_always_the_same(tmp_path: Path) -> None:
    text = LINEAR.replace("[4, in_features]", "[4, 16]") + "sample: 12\n"
    found = expanded(tmp_path, text)
    assert len(found.calls) == 12 and found.asked == 12 and found.combinations == 1600
    assert found.dropped[0].count == found.tried - 12 > 0
    assert expanded(tmp_path, text).calls == found.calls
    longer = expanded(tmp_path, text.replace("12", "20"))
    assert longer.calls[:12] == found.calls, "a larger sample goes on where a smaller one ended"


def test_the_grids_of_the_project_come_to_what_they_ask_for() -> None:
    kinds, asked = {}, {}
    for path in sorted((ROOT / "measurements" / "grids").glob("*.yml")):
        found = expand(load_grids(path))
        asked[path.stem] = len(found.calls)
        assert len(found.calls) == found.asked
        kinds[path.stem] = {call.configuration.kind for call in found.calls}
    assert asked == {"conv2d": 400, "linear": 400, "others": 370}
    assert (kinds["conv2d"], kinds["linear"]) == ({"conv2d"}, {"linear"})
    assert len(kinds["others"]) >= 20 and not kinds["others"] & {"conv2d", "linear"}


BAD = [
    ("operator: nn.Conv2", "operator: unknown operator 'nn.Conv2'; did you mean 'nn.Conv2d'"),
    ("operator: torch.load", "unknown operator 'torch.load'"),
    (
        "operator: nn.Linear\narguments: {in_feature: 1}",
        "unknown name in arguments 'in_feature'; did you mean 'in_features'",
    ),
    ("operator: nn.Linear\narguments: {in_features: 1}", "key arguments.out_features is missing"),
    (
        "operator: nn.ReLU\ninputs: {x: [1]}",
        "unknown name in inputs 'x'; valid: input (nn.ReLU)",
    ),
    ("operator: nn.ReLU", "key inputs.input is missing; nn.ReLU takes input"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_names_that_an_operator_does_not_take(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        expanded(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "grid.yml")) and said in str(caught.value)
