from __future__ import annotations

import ast
import json
import os
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torchvision
import yaml

from opdb.errors import InputError
from opdb.harvest.finding import find_workload
from opdb.models import checked
from opdb.records import Workload
from opdb.spec import (
    IDENTITY,
    OF_GENERATION,
    ModelSpec,
    describe,
    dtype_from,
    identity,
    parse_mode,
    parse_size,
    title,
)
from opdb.store import Store, open_store
from opdb.summary import (
    checked_request,
    load_summary,
    mark_processed,
    request_for,
    requests_in,
    summaries_in,
    summary_files,
    summary_of,
)
from tests.cli.conftest import Opdb
from tests.paths import ROOT
from tests.store import samples

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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "opdb.sqlite"))
    for batch_size in (2, 8):
        store.save_workload(samples.workload("tiny", batch_size))
    return store


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


def test_a_name_of_the_checkout_means_the_same_at_every_batch_size() -> None:
    for path in summaries_in(ROOT / "measurements"):
        for batch_size in (1, 96):
            found = request_for(path.stem, ModelSpec(batch_size=batch_size))
            assert found == ModelSpec(path.stem, batch_size=batch_size)


def test_a_name_that_only_a_summary_file_has_is_short_for_its_model(opdb: Opdb) -> None:
    Path("measurements").mkdir()
    text = "model: mlp\ninput_size: [64]\ndtype: bfloat16\nbatch_sizes: [32]\n"
    Path("measurements/our_small_one.yml").write_text(text)
    Path("measurements/lstm.yml").write_text(text)
    found = checked_request("our_small_one", ModelSpec(batch_size=4))
    assert found == ModelSpec("mlp", batch_size=4, input_size=(64,), source="builtin")
    assert checked_request("lstm", PLAIN) == ModelSpec("lstm", source="builtin")
    with pytest.raises(InputError, match="unknown model 'our_small_two'"):
        checked_request("our_small_two", PLAIN)


def test_options_change_every_request_of_a_file(summary: Path) -> None:
    expected = [(5, "float32", "contiguous"), (5, "bfloat16", "channels_last")]
    assert [meant(each) for each in requests_in(summary, ModelSpec(batch_size=5))] == expected


def test_what_an_argument_names(summary: Path) -> None:
    assert summary_files("measurements") == [summary]
    assert summary_files("measurements/tiny.yml") == [summary]
    assert summary_files("tiny") == []
    assert summary_files("package.module:callable") == []


def test_a_name_with_a_slash_is_a_model_unless_it_ends_as_a_file(summary: Path) -> None:
    assert summary_files("meta-llama/Llama-3.1-8B") == []
    assert summary_files("measurements/none.yml") == [Path("measurements/none.yml")]
    Path("plain").mkdir()
    Path("resnet50").mkdir()
    assert summary_files("resnet50") == []
    for folder in ("plain", "plain/", "resnet50/"):
        with pytest.raises(InputError, match="no summary file"):
            summary_files(folder)
    with pytest.raises(InputError, match="holds 2 summary files; name one of them"):
        summary.with_name("other.yml").write_text(SUMMARY)
        request_for("measurements/", PLAIN)


def test_the_hint_repeats_all_that_was_given_and_works(opdb: Opdb, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "another one.sqlite"))
    store.save_workload(samples.workload("mlp", 2))
    step = {"phase": "training", "optimizer": "adamw", "accumulation": 2}
    said = ModelSpec.parse(batch_size=3, input_size="64", dtype="bf16", **step)
    with pytest.raises(InputError, match="only for: batch 2 float32") as caught:
        find_workload(store, "mlp", said, "eager", harvest=False)
    hint = str(caught.value).partition("to add it: opdb ")[2]
    assert hint == (
        "harvest mlp --batch-size 3 --dtype bfloat16 --input-size 64 --phase training "
        f"--optimizer adamw --grad-accum-steps 2 --db '{store.location}'"
    )
    assert opdb(*shlex.split(hint)).status == 0
    found = find_workload(store, "mlp", said, "eager", harvest=False)
    assert describe(found.workload) == describe(request_for("mlp", said))


def test_workloads_of_one_model_are_told_apart_by_their_size(opdb: Opdb, store: Store) -> None:
    """An image of 224 pixels goes without saying."""
    small = samples.workload("tiny", 8)
    usual = {"args": [{"shape": [8, 3, 224, 224], "dtype": "float32"}], "kwargs": {}}
    store.save_workload(replace(small, inputs=usual))
    told = [describe(found) for found in store.workloads("tiny", batch_size=8)]
    assert sorted(told) == ["batch 8 float32", "batch 8 float32 3x32x32"]
    store.save_campaign(samples.campaign())
    shown = opdb("show", "--db", store.location, "--device", samples.DEVICE.slug).out
    for words in ("batch 8 float32  ", "batch 8 float32 3x32x32  "):
        assert shown.count(words) == 1


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


def test_other_batch_sizes_of_a_file_mark_it_as_well(opdb: Opdb) -> None:
    Path("mlp.yml").write_text("model: mlp\nbatch_sizes: [1]\n")
    ran = opdb("harvest", "mlp.yml", "-b", "2,3", "--json")
    assert [each["batch_size"] for each in json.loads(ran.out)] == [2, 3]
    assert "processed" in Path("mlp.yml").read_text()


def test_documents_tell_training_steps_apart() -> None:
    plain = samples.workload()

    def step(optimizer: str, accumulation: int, autocast: str | None = None) -> Workload:
        training = {"optimizer": optimizer, "accumulation": accumulation}
        inputs = {**plain.inputs, "training": training}
        return replace(plain, phase="training", inputs=inputs, autocast=autocast)

    every = [plain, step("sgd", 1), step("adamw", 1), step("sgd", 4), step("sgd", 1, "bfloat16")]
    documents = [identity(each) for each in every]
    assert all(tuple(document) == IDENTITY for document in documents)
    assert len({str(document) for document in documents}) == len(every)
    assert documents[3]["accumulation"] == 4
    assert [documents[0][name] for name in OF_GENERATION] == [None] * 7


def test_an_optimizer_is_of_training_steps_alone(summary: Path) -> None:
    for said in (ModelSpec(optimizer="adamw"), ModelSpec(accumulation=2)):
        for name in ("tiny", str(summary), "nothing"):
            with pytest.raises(InputError, match="is for a training step: add --phase training"):
                request_for(name, said)
        with pytest.raises(InputError, match="is for a training step: add --phase training"):
            requests_in(summary, said)
    step = ModelSpec(phase="training", optimizer="adamw", accumulation=2)
    assert request_for("tiny", step).training == {"optimizer": "adamw", "accumulation": 2}
    assert len(requests_in(summary, step)) == 3


def named(name: str, dtype: str) -> Workload:
    return replace(samples.workload(name, 2), dtype=dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "said"),
    [
        ("llama-3.1-8b", "bfloat16", "as published"),
        ("llama-3.1-8b", "float32", "published in bfloat16"),
        ("llama-2-7b", "float16", "as published"),
        ("gpt2-bare", "float32", "as published"),
        ("bert_base", "bfloat16", "published in float32"),
        ("package.module:build", "float16", "as built"),
        ("resnet50", "float32", None),
        ("llama", "bfloat16", None),
    ],
)
def test_a_dtype_is_said_with_what_it_is_to_the_model(
    name: str, dtype: str, said: str | None
) -> None:
    workload = named(name, dtype)
    assert dtype_from(workload) == identity(workload)["dtype_from"] == said
    brackets = f" ({said})" if said else ""
    assert title(workload) == f"{name}, batch 2 {dtype}{brackets} 3x32x32"
    assert describe(workload) == f"batch 2 {dtype} 3x32x32"


def test_a_cast_is_said_with_the_dtype_that_was_built() -> None:
    plain = named("package.module:build", "bfloat16")
    cast = replace(plain, inputs={**plain.inputs, "built": {"dtype": "float16+float32"}})
    assert title(cast).startswith(
        "package.module:build, batch 2 bfloat16 (cast from float16+float32)"
    )
    assert identity(cast)["dtype_from"] == "cast from float16+float32"
    assert cast.key != plain.key


def test_what_a_request_leaves_open_is_not_said() -> None:
    assert describe(ModelSpec("package.module:build")) == ""
    assert describe(ModelSpec("package.module:build", dtype="float16")) == "float16"
    assert describe(ModelSpec("gpt2")) == "batch 1 float32"


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
    paths = summaries_in(ROOT / "measurements" / folder)
    assert some <= {path.stem for path in paths}
    for path in paths:
        found = load_summary(path)
        assert all(request.name == path.stem and checked(request) for request in found)


def test_summary_files_of_own_models_name_functions_of_the_clone() -> None:
    paths = summaries_in(ROOT / "measurements" / "diffusion")
    assert {path.stem for path in paths} == {"stable_diffusion_1_5", "stable_diffusion_xl"}
    for path in paths:
        module, _, function = load_summary(path)[0].name.partition(":")
        code = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text())
        assert function in {each.name for each in code.body if isinstance(each, ast.FunctionDef)}
        for request in load_summary(path):
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
    path = written(tmp_path, before)
    path.chmod(0o640)
    mark_processed(path)
    assert path.read_bytes().decode() == after
    assert path.stat().st_mode & 0o777 == 0o640
    assert yaml.safe_load(path.read_text())["processed"] is True
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
    path = written(tmp_path, text)
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
    path = written(tmp_path, "model: 3\nbatch_sizes: [0]\n")
    with pytest.raises(InputError, match=r"model: found 3.*batch_sizes\[0\]: found 0"):
        load_summary(path)
    path = written(tmp_path, "batch_sizes: [0]\ndtyp: float32\nphase: train\nzzz: 1\n")
    with pytest.raises(InputError) as caught:
        load_summary(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "unknown key dtyp; did you mean 'dtype'?" in str(caught.value)
    for said in ("phase: found 'train'", "unknown key zzz", "batch_sizes[0]: found 0", "model is"):
        assert str(caught.value).count(said) == 1, said


def test_a_key_that_is_no_text_is_one_mistake(tmp_path: Path) -> None:
    for text, said in (("1: y", "key '1'"), ("variants: [{3: 4}]", "key variants.'3'")):
        with pytest.raises(InputError) as caught:
            load_summary(written(tmp_path, f"model: x\n{text}\n"))
        assert f"{said} is not text; put it in quotes" in str(caught.value)


def test_a_summary_file_of_the_checkout_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert summary_of("resnet50") == ROOT / "measurements" / "resnet50.yml"
