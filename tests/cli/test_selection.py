from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.cli.options import ModelOptions, model_options, parse_mode, parse_size
from opdb.cli.selection import (
    IDENTITY,
    describe,
    find_workload,
    identity,
    request_for,
    requests_in,
    summary_files,
)
from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.records import Workload
from opdb.store import Store, open_store
from tests.cli.conftest import Opdb
from tests.store import samples

SUMMARY = """\
model: tiny
input_size: [3, 32, 32]
batch_sizes: [2, 8]
variants: [{dtype: bfloat16, memory_format: channels_last, batch_sizes: [4]}]
"""

PLAIN = ModelOptions()


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


def meant(request: ModelRequest) -> tuple[int, str, str]:
    return request.batch_size, request.dtype, request.memory_format


def test_a_name_means_the_first_request_that_agrees(summary: Path) -> None:
    for name in ("tiny", str(summary)):
        assert meant(request_for(name, ModelOptions())) == (2, "float32", "contiguous")
        assert meant(request_for(name, ModelOptions(batch_size=8))) == (8, "float32", "contiguous")
        found = request_for(name, ModelOptions(dtype="bfloat16"))
        assert meant(found) == (4, "bfloat16", "channels_last")
        found = request_for(name, ModelOptions(batch_size=3, dtype="float16"))
        assert meant(found) == (3, "float16", "contiguous")
        assert found.input_size == (3, 32, 32)


def test_a_name_without_a_summary_means_batch_1_in_float32(opdb: Opdb) -> None:
    assert request_for("nothing", ModelOptions()) == ModelRequest("nothing")


def test_options_change_every_request_of_a_file(summary: Path) -> None:
    found = requests_in(summary, ModelOptions(batch_size=5))
    assert [meant(request) for request in found] == [
        (5, "float32", "contiguous"),
        (5, "bfloat16", "channels_last"),
    ]


def test_what_an_argument_names(summary: Path) -> None:
    assert summary_files("measurements") == [summary]
    assert summary_files("measurements/tiny.yml") == [summary]
    assert summary_files("tiny") == []
    assert summary_files("package.module:callable") == []


def test_a_request_finds_its_workload(summary: Path, store: Store) -> None:
    assert find_workload(store, request_for("tiny", PLAIN), PLAIN) == samples.workload("tiny", 2)
    found = find_workload(store, ModelRequest("tiny", batch_size=8), PLAIN)
    assert found == samples.workload("tiny", 8)


def test_what_was_not_harvested_is_explained(summary: Path, store: Store) -> None:
    with pytest.raises(InputError, match=r"unknown model 'tini'; did you mean 'tiny'.*harvest"):
        find_workload(store, ModelRequest("tini"), PLAIN)
    with pytest.raises(InputError) as caught:
        find_workload(store, ModelRequest("tiny", batch_size=7, input_size=(3, 32, 32)), PLAIN)
    message = str(caught.value)
    assert (
        "tiny was not harvested for batch 7 float32 3x32x32, only for: batch 2 float32" in message
    )
    assert "opdb harvest tiny --batch-size 7 --dtype float32 --input-size 3x32x32" in message
    with pytest.raises(InputError, match="not harvested"):
        find_workload(store, ModelRequest("tiny", batch_size=8, input_size=(3, 64, 64)), PLAIN)


def test_workloads_of_one_model_are_told_apart_by_their_size(opdb: Opdb, store: Store) -> None:
    """An image of 224 pixels goes without saying."""
    small = samples.workload("tiny", 8)
    usual = {"args": [{"shape": [8, 3, 224, 224], "dtype": "float32"}], "kwargs": {}}
    store.save_workload(replace(small, inputs=usual))
    told = [describe(found) for found in store.workloads("tiny", batch_size=8)]
    assert sorted(told) == ["batch 8 float32", "batch 8 float32 3x32x32"]
    store.save_campaign(samples.campaign())
    shown = opdb("status", "--db", store.location, "--device", samples.DEVICE.slug).out
    for words in ("batch 8 float32  ", "batch 8 float32 3x32x32  "):
        assert shown.count(words) == 1


def test_a_model_harvested_once_is_meant_by_its_name(store: Store) -> None:
    """Without a summary file its own example inputs decide, unless an option contradicts them."""
    one = replace(samples.workload("tiny", 5), name="package.module:build")
    store.save_workload(one)
    name = ModelRequest(one.name)
    assert find_workload(store, name, PLAIN) == one
    assert find_workload(store, replace(name, batch_size=5), ModelOptions(batch_size=5)) == one
    with pytest.raises(InputError, match="not harvested for batch 6"):
        find_workload(store, replace(name, batch_size=6), ModelOptions(batch_size=6))


def test_a_model_of_one_batch_size_is_found_in_each_dtype(store: Store) -> None:
    """What takes no other batch than its own cannot be harvested with the batch size 1."""
    one = replace(samples.workload("tiny", 5), name="package.module:build")
    narrow = replace(one, dtype="bfloat16")
    store.save_workload(one)
    store.save_workload(narrow)
    name = ModelRequest(one.name)
    assert find_workload(store, name, PLAIN) == one
    said = ModelOptions(dtype="bfloat16")
    assert find_workload(store, replace(name, dtype="bfloat16"), said) == narrow
    with pytest.raises(InputError, match=f"to add it: opdb harvest {one.name} --dtype float16$"):
        find_workload(store, replace(name, dtype="float16"), ModelOptions(dtype="float16"))
    store.save_workload(replace(samples.workload("tiny", 6), name=one.name))
    with pytest.raises(InputError, match="only for: batch 5 bfloat16 3x32x32; batch 5 float32"):
        find_workload(store, name, PLAIN)


def test_options_are_checked_and_short_names_understood() -> None:
    found = model_options(4, "3,8x8", "bf16", "channels_last", "training")
    assert found == ModelOptions(4, (3, 8, 8), "bfloat16", "channels_last", "training")
    for wrong in ("", "3x", "x3", "0x3", "-1", "3 x 3", "9" * 99):
        with pytest.raises(InputError, match="--input-size"):
            parse_size(wrong)
    assert parse_mode("graph") == "graph"
    with pytest.raises(InputError, match="unknown --mode 'grpah'; did you mean 'graph'"):
        parse_mode("grpah")


def test_an_empty_name_is_no_folder(opdb: Opdb) -> None:
    Path("tiny.yml").write_text(SUMMARY)
    ran = opdb("harvest", "")
    assert (ran.status, ran.err) == (2, "opdb: the name of a model is empty\n")


def test_in_an_empty_database_no_name_is_valid(opdb: Opdb) -> None:
    with open_store():
        pass
    ran = opdb("predict", "resnet50")
    assert ran.status == 2
    assert ran.err.startswith("opdb: unknown model 'resnet50'; there are none (of those in ")


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
    assert [documents[0][name] for name in IDENTITY[-3:]] == [None, None, None]


def test_an_optimizer_is_of_training_steps_alone(summary: Path) -> None:
    for said in (ModelOptions(optimizer="adamw"), ModelOptions(accumulation=2)):
        for name in ("tiny", str(summary), "nothing"):
            with pytest.raises(InputError, match="is of a training step: add --phase training"):
                request_for(name, said)
        with pytest.raises(InputError, match="is of a training step: add --phase training"):
            requests_in(summary, said)
    step = ModelOptions(phase="training", optimizer="adamw", accumulation=2)
    assert request_for("tiny", step).training == {"optimizer": "adamw", "accumulation": 2}
    assert len(requests_in(summary, step)) == 3
