from __future__ import annotations

import os
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.grid import Reference, load_grids

ROOT = Path(__file__).parents[2]
GOOD = """\
operator: nn.Conv2d  # a comment
arguments:
  in_channels: {from: 16, to: 64, factor: 2}
  out_channels: [8, {from: 10, to: 12}]
  kernel_size: [1, [3, 1]]
  padding: {of: kernel_size, divided_by: 2}
  groups: [1, {of: in_channels}]
  padding_mode: zeros
sizes: {batch: 4}
inputs:
  input: [batch, in_channels, 7, 7]
dtype: [float32, bfloat16]
memory_format: channels_last
values: [normal, rectified]
zeros: [0, 0.5, 1]
at_most: {bytes: 1.0e+6}
"""


def grid_file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "grid.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_every_axis_of_a_file(tmp_path: Path) -> None:
    [grid] = load_grids(grid_file(tmp_path, GOOD))
    assert grid.operator == "nn.Conv2d"
    assert dict(grid.axes) == {
        "batch": (4,),
        "in_channels": (16, 32, 64),
        "out_channels": (8, 10, 11, 12),
        "kernel_size": (1, [3, 1]),
        "padding": (Reference("kernel_size", divided_by=2),),
        "groups": (1, Reference("in_channels")),
        "padding_mode": ("zeros",),
        "dtype": ("float32", "bfloat16"),
        "memory_format": ("channels_last",),
        "values": (None, "rectified", {"zeros": 0.5}, {"zeros": 1.0}),
    }
    assert grid.inputs == {"input": ["batch", "in_channels", 7, 7]}
    assert (grid.at_most, grid.sample, grid.seed) == ({"bytes": 1e6}, None, 0)


def test_what_is_not_said(tmp_path: Path) -> None:
    text = "operator: torch.add\ninputs: {input: [4], other: {same: input}}\narguments: {alpha: 2}"
    [grid] = load_grids(grid_file(tmp_path, text))
    assert grid.axes["dtype"] == ("float32",)
    assert grid.axes["memory_format"] == ("contiguous",)
    assert grid.axes["values"] == (None,)
    assert grid.inputs["other"] == {"same": "input"}


def test_variants_say_what_differs(tmp_path: Path) -> None:
    text = GOOD + (
        "variants:\n"
        "  - {arguments: {kernel_size: 5}, sample: 7, seed: 3}\n"
        "  - {dtype: float16, values: null, zeros: 0.9, inputs: {input: [1, in_channels, 9, 9]}}\n"
    )
    first, second, third = load_grids(grid_file(tmp_path, text))
    assert (second.axes["kernel_size"], second.sample, second.seed) == ((5,), 7, 3)
    assert second.axes["in_channels"] == first.axes["in_channels"]
    assert third.axes["values"] == ({"zeros": 0.9},)
    assert third.axes["dtype"] == ("float16",)
    assert third.inputs["input"] == [1, "in_channels", 9, 9]


def test_a_variant_of_another_operator_has_what_it_is_called_with_replaced(tmp_path: Path) -> None:
    text = GOOD + (
        "variants:\n"
        "  - {operator: nn.ReLU, arguments: {}, inputs: {input: [batch, 3]}, sample: 5}\n"
        "  - {operator: nn.Tanh, arguments: {}, sizes: {n: 4}, inputs: {input: [n]}}\n"
    )
    first, relu, tanh = load_grids(grid_file(tmp_path, text))
    assert (relu.operator, relu.arguments, relu.sample) == ("nn.ReLU", (), 5)
    assert relu.axes["batch"] == first.axes["batch"] and relu.axes["dtype"] == first.axes["dtype"]
    assert "in_channels" not in relu.axes
    assert (tanh.inputs["input"], "batch" in tanh.axes) == (["n"], False)


def test_every_grid_of_the_project_is_valid() -> None:
    paths = sorted((ROOT / "measurements" / "grids").glob("*.yml"))
    sizes = {path.stem: sum(grid.sample or 0 for grid in load_grids(path)) for path in paths}
    assert sizes == {"conv2d": 400, "linear": 400, "others": 370}


AXIS = "operator: nn.Linear\nsizes: "
BAD: list[tuple[str | bytes, str]] = [
    ("operater: nn.Conv2d", "unknown key operater; did you mean 'operator'?"),
    ("operator: nn.Linear\nzzz: 1", "unknown key zzz; allowed: operator, arguments"),
    ("arguments: {}", "key operator is missing; give a torch.nn class"),
    ("operator: 7", "operator: found 7; allowed: a torch.nn class"),
    ("operator: x\narguments: [1]", "arguments: found [1]; allowed: a mapping of names"),
    (AXIS + "{n: []}", "sizes.n: found []; allowed: a value, a list, {from, to, step}"),
    (AXIS + "{n: {from: 1}}", "sizes.n: found {'from': 1}; allowed: a value, a list"),
    (AXIS + "{n: {from: 1, to: two}}", "sizes.n: found {'from': 1, 'to': 'two'}; allowed:"),
    (AXIS + "{n: {from: 1, to: .inf}}", "sizes.n: found {'from': 1, 'to': inf}; allowed:"),
    (AXIS + "{n: {from: 1, to: 9, by: 2}}", "sizes.n: found {'from': 1, 'to': 9, 'by': 2}"),
    (AXIS + "{n: {from: 9, to: 1}}", "(from lies above to)"),
    (AXIS + "{n: [4, {from: 1, to: 9, factor: 1}]}", "sizes.n[1]: found"),
    (AXIS + "{n: {from: 1, to: 1000000000}}", "(more than 10000 values)"),
    (AXIS + "{n: {from: 1, to: 2, factor: 1.0000001}}", "(more than 10000 values)"),
    (AXIS + "{n: {from: 1, to: 2, step: 0}}", "(a step is above 0)"),
    (AXIS + "{n: {from: 0, to: 2, factor: 2}}", "(a factor is above 1, and from above 0)"),
    (AXIS + "{n: {of: m}}", "n: of 'm': there is no such name"),
    (AXIS + "{n: {of: m}, m: {of: n}}", "references in a circle"),
    (AXIS + "{n: {of: m, times: 0}, m: 1}", "times and divided_by are whole numbers"),
    (AXIS + "{n: 1, n: 2}", "key 'sizes.n' is there 2 times"),
    (AXIS + "{1: 2}", "key sizes.'1' is not text"),
    (AXIS + "{dtype: 1}", "sizes.dtype: dtype is a key of the file itself"),
    (AXIS + "{n: 1}\narguments: {n: 1}", "sizes.n: an argument has that name already"),
    (AXIS + "{batch: 1}\ninputs: {input: [bach]}", "input: found 'bach'; allowed: a number, or"),
    (AXIS + "{batch: 1}\ninputs: {input: [bach]}", "did you mean 'batch'?"),
    (AXIS + "{batch: 1}\ninputs: {input: [batch, -1]}", "inputs.input: found -1"),
    (AXIS + "{}\ninputs: {input: {dtype: float32}}", "inputs.input: found"),
    (AXIS + "{}\ninputs: {input: {shape: [1], vals: 1}}", "unknown key inputs.input.vals; did you"),
    (AXIS + "{}\ninputs: {input: {shape: [1], dtype: int}}", "inputs.input.dtype: found 'int'"),
    (AXIS + "{}\ninputs: {input: {shape: [1], values: odd}}", "inputs.input.values: found 'odd'"),
    (AXIS + "{}\ninputs: {input: {same: other}}", "inputs.input.same: found 'other'"),
    ("operator: x\ndtype: floot32", "did you mean 'float32'?"),
    ("operator: x\nmemory_format: [nhwc]", "memory_format: found 'nhwc'; allowed: one or a list"),
    ("operator: x\nvalues: zero", "values: found 'zero'"),
    ("operator: x\nzeros: [0, 1.5]", "zeros: found 1.5; allowed: one or a list of shares"),
    ("operator: x\nzeros: half", "zeros: found 'half'"),
    ("operator: x\nat_most: {bytes: 1e9}", "at_most.bytes: found '1e9'; allowed: a number above 0"),
    ("operator: x\nat_most: {flop: 1}", "unknown key at_most.flop; did you mean 'flops'?"),
    ("operator: x\nsample: 0", "sample: found 0; allowed: a whole number of 1 or more"),
    ("operator: x\nseed: 1.5", "seed: found 1.5"),
    ("operator: x\nvariants: 3", "variants: found 3; allowed: a list of mappings"),
    ("operator: x\nvariants: [{smaple: 3}]", "unknown key variants[0].smaple; did you mean"),
    ("operator: x\nvariants: [{operator: 7}]", "variants[0].operator: found 7; allowed: a torch"),
    ("operator: x\nvariants: [{sample: -3}]", "variants[0].sample: found -3"),
    ("", "is empty; a grid file has at least: operator: NAME"),
    ("- a", "found ['a']; a grid file has keys"),
    (os.urandom(1_000_000), "a grid file has at most 131072"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_a_bad_file_is_explained_in_one_message(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    path = grid_file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_grids(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and said in message
    assert len(message.splitlines()) == 1


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_grids(grid_file(tmp_path, "operater: x\ndtype: int3\nsizes: {n: []}\nsample: no"))
    said = str(caught.value)
    assert said.count("; ") >= 4
    for key in ("operater", "operator is missing", "dtype", "sizes.n", "sample"):
        assert key in said


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_grids(tmp_path / "none.yml")
    with pytest.raises(InputError, match="is a folder; give a grid file"):
        load_grids(tmp_path)
