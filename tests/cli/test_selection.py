from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torchvision

from opdb.errors import InputError
from opdb.models import checked
from opdb.spec import (
    ModelSpec,
    parse_mode,
    parse_size,
)
from opdb.summary_files import (
    load_summary,
    request_for,
    summary_files,
)
from tests.cli.conftest import Opdb
from tests.paths import ROOT

SUMMARY = """\
model: tiny
input_size: [3, 32, 32]
batch_sizes: [2, 8]
variants: [{dtype: bfloat16, memory_format: channels_last, batch_sizes: [4]}]
"""

PLAIN = ModelSpec()


@pytest.fixture
def summary(opdb: Opdb) -> Path:
    """A summary file where a model's name finds it."""
    Path("measurements").mkdir()
    path = Path("measurements/tiny.yml")
    path.write_text(SUMMARY)
    return path


def meant(request: ModelSpec) -> tuple[int | None, str | None, str | None]:
    return request.batch_size, request.dtype, request.memory_format


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (PLAIN, (2, "float32", "contiguous")),
        (ModelSpec(batch_size=8), (8, "float32", "contiguous")),
        (ModelSpec(dtype="bfloat16"), (4, "bfloat16", "channels_last")),
        (ModelSpec(batch_size=3, dtype="float16"), (3, "float16", "contiguous")),
    ],
)
def test_a_file_means_its_first_request_that_agrees(
    summary: Path, asked: ModelSpec, found: tuple[int, str, str]
) -> None:
    request = request_for(str(summary), asked)
    assert meant(request) == found and request.input_size == (3, 32, 32)


def test_a_name_means_plain_defaults_and_what_is_asked(summary: Path) -> None:
    """Whatever a summary file of that name says: it counts where it is named."""
    assert request_for("tiny", ModelSpec()) == ModelSpec("tiny")
    for batch_size in (2, 3, 4):  # 4 is only of a variant of the file, in bfloat16
        found = request_for("tiny", ModelSpec(batch_size=batch_size))
        assert found == ModelSpec("tiny", batch_size=batch_size)
    found = request_for("tiny", ModelSpec(dtype="bfloat16"))
    assert meant(found) == (1, "bfloat16", "contiguous")


def test_options_are_checked_and_short_names_understood() -> None:
    found = ModelSpec.parse(batch_size=4, input_size="3,8x8", dtype="bf16", phase="training")
    expected = ModelSpec(batch_size=4, input_size=(3, 8, 8), dtype="bfloat16", phase="training")
    assert found == expected
    shown = "--batch-size 4 --dtype bfloat16 --input-size 3x8x8 --phase training"
    assert found.as_arguments() == shown.split(" ")
    assert ModelSpec.parse(input_size=[3, 8, 8]).input_size == (3, 8, 8)
    for wrong, told in (
        ({"batchsize": 1}, "unknown option 'batchsize'; did you mean 'batch_size'?"),
        ({"dtype": "floot32"}, "unknown --dtype 'floot32'; did you mean 'float32'"),
        ({"batch_size": 0}, "--batch-size 0; allowed: a whole number of 1 or more"),
    ):
        with pytest.raises(InputError, match=re.escape(told)):
            ModelSpec.parse(**wrong)
    for size in ("", "3x", "x3", "0x3", "-1", "3 x 3", "9" * 99):
        with pytest.raises(InputError, match="--input-size"):
            parse_size(size)
    assert parse_mode("graph") == "graph"
    with pytest.raises(InputError, match="unknown --mode 'grpah'; did you mean 'graph'"):
        parse_mode("grpah")


@pytest.mark.parametrize(
    "sizes", [("-b", "4,8"), ("-b", 4, "-b", 8), ("-b", 4, 8), ("--batch-size", "4, 8,4")]
)
def test_batch_sizes_are_given_in_any_way(opdb: Opdb, sizes: tuple[object, ...]) -> None:
    found = [
        (each["model"], each["batch_size"]) for each in opdb.json("harvest", "mlp", "lstm", *sizes)
    ]
    assert found == [("mlp", 4), ("mlp", 8), ("lstm", 4), ("lstm", 8)]


GOOD = """\
# a comment
model:   'resnet50'   # quoted
weights: null
input_size: [3, 224, 224]

processed:  false   # flipped by opdb harvest
batch_sizes: [1, 32]
variants:
  - dtype: bfloat16
    memory_format: channels_last
    batch_sizes: [128]
"""


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "model.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_says_every_batch_size_of_every_variant(tmp_path: Path) -> None:
    found = load_summary(written(tmp_path, GOOD))
    size = (3, 224, 224)
    assert found == [
        ModelSpec("resnet50", batch_size=1, input_size=size),
        ModelSpec("resnet50", batch_size=32, input_size=size),
        ModelSpec(
            "resnet50",
            batch_size=128,
            input_size=size,
            dtype="bfloat16",
            memory_format="channels_last",
        ),
    ]


def test_a_variant_gives_one_kind_of_input(tmp_path: Path) -> None:
    text = (
        "model: x\ninput_size: [3, 8, 8]\n"
        "variants: [{inputs: {args: [1]}}, {input_size: [3, 9, 9]}]\n"
    )
    requests = load_summary(written(tmp_path, text))
    assert [(r.input_size, r.inputs) for r in requests] == [
        ((3, 8, 8), None),
        (None, {"args": [1]}),
        ((3, 9, 9), None),
    ]


@pytest.mark.parametrize(
    ("folder", "some"),
    [
        (".", {"resnet50", "resnet152"}),
        ("training", {"resnet50", "vgg16"}),
        ("compiled", {"bert-base-uncased", "resnet50"}),
        ("classification", set(torchvision.models.list_models(module=torchvision.models))),
    ],
)
def test_every_summary_file_of_the_project_is_valid(folder: str, some: set[str]) -> None:
    paths = summary_files(str(ROOT / "measurements" / folder))
    assert some <= {path.stem for path in paths}
    for path in paths:
        found = load_summary(path)
        assert all(request.name == path.stem and checked(request) for request in found)


BAD: list[tuple[str | bytes, str]] = [
    ("model: x\nbatch_size: [1]", "unknown key batch_size; did you mean 'batch_sizes'?"),
    ("weights: null", "key model is missing; give a model's name"),
    ("model: 7", "model: found 7; allowed: a model's name"),
    ("model: x\ninput_size: [3, -2, 224]", "input_size: found [3, -2, 224]; allowed: one input's"),
    ("model: x\nbatch_sizes: '32'", "batch_sizes: found '32'; allowed: a list of whole numbers"),
    ("model: x\ndtype: floot32", "dtype: found 'floot32'; allowed: one of float32"),
    ("model: x\nprocessed: maybe", "processed: found 'maybe'; allowed: true or false"),
    ("model: x\nvariants: [{dtyp: float32}]", "key variants[0].dtyp; did you mean 'dtype'?"),
    ("model: x\nmodel: y", "line 2, column 1: not valid YAML: key 'model' is there twice"),
    ("model: [x\nb: c", "line 2, column 2: not valid YAML"),
    ("model: !!python/object/apply:os.system [ls]", "python/object/apply:os.system"),
    ("", "is empty"),
    ("- model", "found ['model']; a summary file has keys"),
    ("a: &a [x]\nb: *a", "line 2, column 6: not valid YAML: an alias"),
    ("[" * 50_000, "not valid YAML: maximum recursion"),
    (b"\xff\xfe\x00\x01", "not a text file"),
    (os.urandom(10_000_000), "a summary file has at most 131072"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_bad_file_is_explained_in_one_message(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    path = written(tmp_path, text)
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        load_summary(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert said in message
    assert "\n" not in message and len(message) < 500
    assert path.read_bytes() == before
