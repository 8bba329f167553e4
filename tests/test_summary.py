"""Summary files, and the requests that names and files mean."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torchvision

from opdb.errors import InputError
from opdb.models import checked
from opdb.spec import ModelSpec
from opdb.summary import load_summary, mark_processed, requests_named, summaries_in, summary_of
from tests.paths import ROOT

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


def summary(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "model.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_says_every_batch_size_of_every_variant(tmp_path: Path) -> None:
    found = load_summary(summary(tmp_path, GOOD))
    size = (3, 224, 224)
    assert found.requests == [
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
    assert not found.processed


def test_a_name_alone_is_enough(tmp_path: Path) -> None:
    assert load_summary(summary(tmp_path, "model: x")).requests == [ModelSpec("x")]


def test_a_variant_gives_one_kind_of_input(tmp_path: Path) -> None:
    text = (
        "model: x\ninput_size: [3, 8, 8]\n"
        "variants: [{inputs: {args: [1]}}, {input_size: [3, 9, 9]}]\n"
    )
    requests = load_summary(summary(tmp_path, text)).requests
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
    paths = summaries_in(ROOT / "measurements" / folder)
    assert some <= {path.stem for path in paths}
    for path in paths:
        found = load_summary(path)
        assert found.model == path.stem
        assert all(checked(request) for request in found.requests)


def test_summary_files_of_own_models_name_functions_of_the_clone() -> None:
    paths = summaries_in(ROOT / "measurements" / "diffusion")
    assert {path.stem for path in paths} == {"stable_diffusion_1_5", "stable_diffusion_xl"}
    for path in paths:
        module, _, function = load_summary(path).model.partition(":")
        code = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text())
        assert function in {each.name for each in code.body if isinstance(each, ast.FunctionDef)}
        for request in load_summary(path).requests:
            with pytest.raises(InputError, match=rf"{path.name}: model .* add --allow-code"):
                checked(request)
            assert checked(replace(request, named_in=None)).source == "python"


MARKED = [
    (GOOD, GOOD.replace("processed:  false   #", "processed:  true   #")),
    (
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("processed:  false", "processed:  true").replace("\n", "\r\n"),
    ),
    ("model: x\nprocessed: true\n", "model: x\nprocessed: true\n"),
    ("model: x", "model: x\nprocessed: true\n"),
    ("model: x\n# end\n", "model: x\n# end\nprocessed: true\n"),
    ("model: x\n...\n", "model: x\nprocessed: true\n...\n"),
    ("{model: x}\n", "{model: x, processed: true}\n"),
    ("{processed: no, model: x}", "{processed: true, model: x}"),
    ("\ufeffmodel: ü\nprocessed: false", "\ufeffmodel: ü\nprocessed: true"),
    ("processed: \"!!int ''\"\nmodel: x", "processed: true\nmodel: x"),
    ("processed: 'true'\nmodel: x", "processed: true\nmodel: x"),
    ("processed: '*a'\nmodel: x", "processed: true\nmodel: x"),
]


@pytest.mark.parametrize(("before", "after"), MARKED)
def test_marking_changes_nothing_else(tmp_path: Path, before: str, after: str) -> None:
    path = summary(tmp_path, before)
    path.chmod(0o640)
    mark_processed(path)
    assert path.read_bytes().decode() == after
    assert path.stat().st_mode & 0o777 == 0o640
    assert load_summary(path).processed
    assert list(tmp_path.iterdir()) == [path]


BAD: list[tuple[str | bytes, str]] = [
    ("model: x\nbatch_size: [1]", "unknown key batch_size; did you mean 'batch_sizes'?"),
    ("model: x\nzzz: 1", "unknown key zzz; allowed: "),
    ("weights: null", "key model is missing; give a model's name"),
    ("model: 7", "model: found 7; allowed: a model's name"),
    ("model: ''", "model: found ''"),
    ("model: x\ninput_size: [3, -224, 224]", "input_size[1]: found -224; allowed: one input's"),
    ("model: x\ninput_size: []", "input_size: found []"),
    ("model: x\nbatch_sizes: '32'", "batch_sizes: found '32'; allowed: a list of whole numbers"),
    ("model: x\nbatch_sizes: [true]", "batch_sizes[0]: found True"),
    ("model: x\nbatch_sizes: [1.5]", "batch_sizes[0]: found 1.5"),
    (
        "model: x\ndtype: floot32",
        "float64, float16, bfloat16, or null; did you mean 'float32'?",
    ),
    ("model: x\nsource: torchvison", "did you mean 'torchvision'?"),
    ("model: x\nprocessed: maybe", "processed: found 'maybe'; allowed: true or false"),
    (
        "model: x\nvariants: [{dtyp: float32}]",
        "unknown key variants[0].dtyp; did you mean 'dtype'?",
    ),
    ("model: x\nvariants: [{model: y}]", "unknown key variants[0].model"),
    ("model: x\nvariants: 3", "variants: found 3"),
    ("model: x\nmodel: y", "key 'model' is there 2 times"),
    ("model: [x\nb: c", "line 2, column 2: not valid YAML"),
    ("model: x\n\tb: c", "line 2, column 1: not valid YAML"),
    ("model: !!python/object/apply:os.system [ls]", "the tag !!python/object"),
    ("model: 2001-13-45", "not valid YAML: month"),
    ("", "is empty"),
    ("# only a comment\n", "is empty"),
    ("- model", "found ['model']; a summary file has keys"),
    ("a: &a [x]\nb: *a", "line 2: an alias"),
    ("a: 1\nb: !!timestamp x", "line 2: the tag !!timestamp; write plain values without"),
    ("[" * 50_000, "nested too deep"),
    (b"\xff\xfe\x00\x01", "not a text file"),
    (b"model: x\x00", "not valid YAML"),
    (os.urandom(10_000_000), "a summary file has at most 131072"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_a_bad_file_is_explained_in_one_message(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    path = summary(tmp_path, text)
    before = path.read_bytes()
    start = time.monotonic()
    with pytest.raises(InputError) as caught:
        load_summary(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert said in message
    assert "\n" not in message and len(message) < 500
    assert time.monotonic() - start < 5
    assert path.read_bytes() == before


def test_all_mistakes_are_said_at_once(tmp_path: Path) -> None:
    path = summary(tmp_path, "model: 3\nbatch_sizes: [0]\n")
    with pytest.raises(InputError, match=r"model: found 3.*batch_sizes\[0\]: found 0"):
        load_summary(path)
    path = summary(tmp_path, "batch_sizes: [0]\ndtyp: float32\nphase: train\nzzz: 1\n")
    with pytest.raises(InputError) as caught:
        load_summary(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "unknown key dtyp; did you mean 'dtype'?" in str(caught.value)
    for said in ("phase: found 'train'", "unknown key zzz", "batch_sizes[0]: found 0", "model is"):
        assert str(caught.value).count(said) == 1, said


def test_a_key_that_is_no_text_is_one_mistake(tmp_path: Path) -> None:
    for text, said in (("1: y", "key '1'"), ("variants: [{3: 4}]", "key variants.'3'")):
        with pytest.raises(InputError) as caught:
            load_summary(summary(tmp_path, f"model: x\n{text}\n"))
        assert f"{said} is not text; put it in quotes" in str(caught.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_summary(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_summary(tmp_path / "none.yml")


def test_reading_a_summary_imports_no_torch(tmp_path: Path) -> None:
    path = summary(tmp_path, GOOD)
    program = (
        "import sys; from pathlib import Path; from opdb.summary import load_summary\n"
        f"load_summary(Path({str(path)!r})).requests; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_summary_file_of_the_checkout_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert summary_of("resnet50") == ROOT / "measurements" / "resnet50.yml"


def test_a_name_means_one_checked_request_and_a_file_all_of_its_own(tmp_path: Path) -> None:
    assert [each.source for each in requests_named("lstm", ModelSpec())] == ["builtin"]
    path = tmp_path / "small.yml"
    path.write_text("model: mlp\ninput_size: [64]\nbatch_sizes: [2, 8]\n")
    found = requests_named(str(path), ModelSpec(dtype="bfloat16"))
    assert [(each.batch_size, each.dtype, each.source) for each in found] == [
        (2, "bfloat16", "builtin"),
        (8, "bfloat16", "builtin"),
    ]


def test_options_are_as_on_the_command_line() -> None:
    said = ModelSpec.parse(input_size="64", batch_size=3, dtype="bf16", accumulation=2)
    assert said == ModelSpec.parse(input_size=[64], batch_size=3, dtype="bfloat16", accumulation=2)
    expected = "--batch-size 3 --dtype bfloat16 --input-size 64 --grad-accum-steps 2"
    assert said.as_arguments() == expected.split(" ")
