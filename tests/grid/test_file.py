from __future__ import annotations

import os
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.grid import Reference, load_grids

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
    assert {name: tuple(levels) for name, levels in grid.axes.items()} == {
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
    assert (grid.at_most, grid.sample) == ({"bytes": 1e6}, None)


def test_variants_say_what_differs(tmp_path: Path) -> None:
    text = GOOD + (
        "variants:\n"
        "  - {arguments: {kernel_size: 5}, sample: 7}\n"
        "  - {dtype: float16, values: null, zeros: 0.9, inputs: {input: [1, in_channels, 9, 9]}}\n"
    )
    first, second, third = load_grids(grid_file(tmp_path, text))
    assert (second.axes["kernel_size"], second.sample) == ([5], 7)
    assert second.axes["in_channels"] == first.axes["in_channels"]
    assert third.axes["values"] == [{"zeros": 0.9}]
    assert third.axes["dtype"] == ["float16"]
    assert third.inputs["input"] == [1, "in_channels", 9, 9]


AXIS = "operator: nn.Linear\nsizes: "
BAD: list[tuple[str | bytes, str]] = [
    ("operater: nn.Conv2d", "unknown key operater; did you mean 'operator'?"),
    ("operator: nn.Linear\nzzz: 1", "unknown key zzz; allowed: operator, arguments"),
    ("arguments: {}", "key operator is missing; give a torch.nn class"),
    ("operator: 7", "operator: found 7; allowed: a torch.nn class"),
    (AXIS + "{n: {from: 1, to: two}}", "sizes.n: found {'from': 1, 'to': 'two'}; allowed:"),
    (AXIS + "{n: {from: 9, to: 1}}", "(from lies above to)"),
    (AXIS + "{n: {from: 1, to: 1000000000}}", "(more than 10000 values)"),
    (AXIS + "{n: {from: 1, to: 2, step: 0}}", "(a step is above 0)"),
    (AXIS + "{n: {of: m}, m: 1}", "of 'm': there is no such name above it"),
    (AXIS + "{n: 1}\narguments: {n: 1}", "sizes.n: an argument has that name already"),
    (AXIS + "{batch: 1}\ninputs: {input: [bach]}", "input: found 'bach'; allowed: a number, or"),
    (AXIS + "{}\ninputs: {input: {shape: [1]}}", "allowed: a shape such as [batch, 64]"),
    ("operator: x\nmemory_format: [nhwc]", "memory_format: found 'nhwc'; allowed: one or a list"),
    ("operator: x\nzeros: [0, 1.5]", "zeros: found 1.5; allowed: one or a list of shares"),
    ("operator: x\nat_most: {bytes: 1e9}", "at_most.bytes: found '1e9'; allowed: a number above 0"),
    ("operator: x\nsample: 0", "sample: found 0; allowed: a whole number of 1 or more"),
    ("operator: x\nvariants: 3", "variants: found 3; allowed: a list of mappings"),
    ("operator: x\nvariants: [{smaple: 3}]", "variants[0]: unknown key smaple; did you mean"),
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
