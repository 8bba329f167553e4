"""What a request means in a database, and that what is not there is harvested then and there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from opdb import ModelSpec, Predictor, choose_device, workload_of
from opdb.errors import InputError
from opdb.harvest.finding import HarvestPolicy, stored_workload
from opdb.models import checked
from opdb.models.catalogue import is_usual
from opdb.records import Json, Workload
from opdb.spec import size_of
from opdb.store import Store, open_store
from tests import published
from tests.paths import python_path
from tests.store import samples
from tests.users import nobody


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "opdb.sqlite"))


def of_size(size: int, batch_size: int = 1, name: str = "resnet18") -> Workload:
    shape = [batch_size, 3, size, size]
    inputs = {"args": [{"shape": shape, "dtype": "float32"}], "kwargs": {}}
    return replace(samples.workload(name, batch_size), inputs=inputs)


def test_a_name_means_the_size_that_its_model_takes_unless_told(store: Store) -> None:
    store.save_workload(of_size(64))
    assert stored_workload(store, ModelSpec("resnet18")) is None
    store.save_workload(of_size(224))
    assert stored_workload(store, ModelSpec("resnet18")) == of_size(224)
    assert stored_workload(store, ModelSpec("resnet18", input_size=(3, 64, 64))) == of_size(64)
    assert stored_workload(store, ModelSpec("resnet18", input_size=(3, 65, 65))) is None


def test_a_stored_step_is_taken_at_any_context_of_its_static_cache(store: Store) -> None:
    def stored(context: int, **cache: Json) -> Workload:
        generation = {"context": context, "cache": "static", **cache}
        inputs = {"args": [], "kwargs": {}, "generation": generation}
        found = replace(samples.workload("llama", 1), phase="decode", inputs=inputs)
        store.save_workload(found)
        return found

    def asked(context: int, length: int | None = 64, cache: str = "static") -> ModelSpec:
        return ModelSpec("llama", phase="decode", context=context, cache_length=length, cache=cache)

    at_63 = stored(63, cache_length=64)
    stored(63, cache_length=64, quantize="fp8")
    stored(50, cache="dynamic")
    assert stored_workload(store, asked(40)) == at_63
    assert stored_workload(store, asked(40, 65)) is None
    assert stored_workload(store, asked(51, None, "dynamic")) is None
    at_40 = stored(40, cache_length=64)
    assert stored_workload(store, asked(40)) == at_40, "its own context comes first"


def test_where_only_the_model_tells_its_size_it_is_asked(store: Store) -> None:
    for side in (96, 384, 224):
        found = replace(of_size(side, name="regnet"), source="transformers")
        store.save_workload(found)
    assert is_usual("transformers", found.name, (3, 224, 224)) is None
    assert stored_workload(store, ModelSpec(found.name)) == found


def test_what_is_not_stored_is_harvested_and_stays(store: Store) -> None:
    asked = ModelSpec("resnet18", batch_size=3, input_size=(3, 64, 64))
    found = workload_of(store, asked)
    assert found.harvest_s is not None and found.unsaved is None
    assert (found.workload.batch_size, size_of(found.workload)) == (3, (3, 64, 64))
    assert workload_of(store, asked, HarvestPolicy(harvest=False)).workload == found.workload
    assert workload_of(store, asked).harvest_s is None


def test_a_database_that_cannot_be_written_serves() -> None:
    folder = Path(tempfile.mkdtemp(prefix="opdb-tests-"))
    path = published.copy_to(folder / "h200.sqlite")
    asked = checked(ModelSpec("mlp", batch_size=9))
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        with nobody(), open_store(str(path)) as store:
            found = workload_of(store, asked)
            assert found.unsaved is not None and "cannot be written" in found.unsaved
            answer = Predictor(store, choose_device(store, None)).answer(found.workload, "eager")
            assert answer.prediction.workload.batch_size == 9
            assert stored_workload(store, asked) is None
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_name_that_only_the_database_knows_is_found(store: Store) -> None:
    ours = samples.workload("ours", 2)
    store.save_workload(ours)
    asked = ModelSpec("ours", batch_size=2, input_size=(3, 32, 32))
    assert workload_of(store, asked).workload == ours
    assert workload_of(store, ModelSpec("ours")).workload == ours
    with pytest.raises(InputError, match=r"ours was not harvested for batch 4.*unknown model"):
        workload_of(store, replace(asked, batch_size=4))
    with pytest.raises(InputError, match="unknown model 'our'; did you mean"):
        workload_of(store, ModelSpec("our"))


PROGRAM = """
import sys
from dataclasses import replace
from opdb import ModelSpec, open_store, workload_of
with open_store(sys.argv[1]) as store:
    [one] = store.workloads("vit_b_16", batch_size=32)
    store.save_workload(replace(one, name="vit", source="transformers"))
    for name in ("resnet50", "bert_base", "lstm", "gpt2-bare", "vit"):
        batch_size = 1 if name == "lstm" else 32
        found = workload_of(store, ModelSpec(name, batch_size=batch_size))
        assert found.harvest_s is None
assert "torch" not in sys.modules
"""


def test_what_is_stored_is_found_without_torch(tmp_path: Path) -> None:
    path = published.copy_to(tmp_path / "h200.sqlite")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], check=True, env={"PYTHONPATH": python_path()}
    )
