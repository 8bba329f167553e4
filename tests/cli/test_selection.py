from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.harvest.finding import find_workload
from opdb.records import Workload
from opdb.spec import IDENTITY, OF_GENERATION, ModelSpec, describe, identity, parse_mode, parse_size
from opdb.store import Store, open_store
from opdb.summary import checked_request, request_for, requests_in, summary_files
from tests.cli.conftest import Opdb
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


def test_a_file_means_its_first_request_that_agrees(summary: Path) -> None:
    name = str(summary)
    assert meant(request_for(name, ModelSpec())) == (2, "float32", "contiguous")
    assert meant(request_for(name, ModelSpec(batch_size=8))) == (8, "float32", "contiguous")
    found = request_for(name, ModelSpec(dtype="bfloat16"))
    assert meant(found) == (4, "bfloat16", "channels_last")
    found = request_for(name, ModelSpec(batch_size=3, dtype="float16"))
    assert meant(found) == (3, "float16", "contiguous")
    assert found.input_size == (3, 32, 32)


def test_a_name_means_plain_defaults_and_what_is_asked(summary: Path) -> None:
    """Whatever a summary file of that name says: it counts where it is named."""
    assert request_for("tiny", ModelSpec()) == ModelSpec("tiny")
    for batch_size in (2, 3, 4):  # 4 is only of a variant of the file, in bfloat16
        found = request_for("tiny", ModelSpec(batch_size=batch_size))
        assert found == ModelSpec("tiny", batch_size=batch_size)
    found = request_for("tiny", ModelSpec(dtype="bfloat16"))
    assert meant(found) == (1, "bfloat16", "contiguous")


@pytest.mark.parametrize("file", sorted(Path("measurements").glob("*.yml")), ids=lambda f: f.stem)
def test_a_name_of_the_checkout_means_the_same_at_every_batch_size(file: Path) -> None:
    if file.stem == "significant":
        pytest.skip("the list of significant operators")
    for batch_size in (1, 32, 96, 128):
        found = request_for(file.stem, ModelSpec(batch_size=batch_size))
        assert found == ModelSpec(file.stem, batch_size=batch_size)


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
    found = requests_in(summary, ModelSpec(batch_size=5))
    assert [meant(request) for request in found] == [
        (5, "float32", "contiguous"),
        (5, "bfloat16", "channels_last"),
    ]


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
    ran = opdb("harvest", "mlp", "lstm", *sizes, "--json")
    assert ran.status == 0, ran.err
    found = [(each["model"], each["batch_size"]) for each in json.loads(ran.out)]
    assert found == [("mlp", 4), ("mlp", 8), ("lstm", 4), ("lstm", 8)]


def test_other_batch_sizes_of_a_file_mark_it_as_well(opdb: Opdb) -> None:
    Path("mlp.yml").write_text("model: mlp\nbatch_sizes: [1]\n")
    ran = opdb("harvest", "mlp.yml", "-b", "2,3", "--json")
    assert [each["batch_size"] for each in json.loads(ran.out)] == [2, 3]
    assert "processed" in Path("mlp.yml").read_text()


SIZED = (
    ("harvest", "mlp"),
    ("measure", "mlp", "--device", "cpu"),
    ("build", "mlp", "--plan", "--device", "cpu"),
    ("predict", "mlp"),
    ("compare", "mlp"),
    ("complexity", "mlp"),
    ("modes", "mlp", "--device", "cpu"),
    ("generate", "gpt2", "--prompt", 4, "--tokens", 4),
)


@pytest.mark.parametrize("command", SIZED, ids=lambda command: command[0])
@pytest.mark.parametrize("size", ["0", "2.5", "-1", "many", "1,x"])
def test_one_message_tells_what_no_batch_size_is(
    opdb: Opdb, command: tuple[object, ...], size: str
) -> None:
    ran = opdb(*command, "-b", 1, "--batch-size", size)
    told = size.removeprefix("1,")
    assert ran.status == 2
    assert ran.err == (
        f"opdb: --batch-sizes {told!r}: give whole numbers of 1 or more, with 10 digits at most\n"
    )


def test_an_empty_name_is_no_folder(opdb: Opdb) -> None:
    Path("tiny.yml").write_text(SUMMARY)
    ran = opdb("harvest", "")
    assert (ran.status, ran.err) == (2, "opdb: the name of a model is empty\n")


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
