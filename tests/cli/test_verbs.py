"""Each verb of the API answers as its command does, and refuses what it does in the same words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import torch

import opdb as api
from opdb.errors import InputError
from opdb.tables import Report
from tests import published as sets
from tests.cli.conftest import Opdb


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("published") / "opdb.sqlite"
    return str(shutil.copy(sets.default_database(), path))


def said(opdb: Opdb, *arguments: object) -> object:
    return opdb.json(*arguments)


def as_json(result: Report) -> object:
    return json.loads(json.dumps(result.to_dict()))


Verb = Callable[[str], Report]
BOARD = api.Conditions(board="c1e7", estimates=False)
ALIKE: list[tuple[Verb, str]] = [
    (
        lambda db: api.predict("mlp", mode="graph", batch_size=9, conditions=BOARD, db=db),
        "predict mlp -b 9 --mode graph --board c1e7 --no-estimates",
    ),
    (
        lambda db: api.compare("resnet50", "resnet18", modes=("eager", "graph"), db=db),
        "compare resnet50 resnet18 --mode eager,graph",
    ),
    (
        lambda db: api.validate("resnet50", "vgg16", modes=["graph"], db=db),
        "validate resnet50 vgg16 --mode graph",
    ),
    (
        lambda db: api.plan("mlp", options=api.BuildOptions(device="nvidia-h200"), db=db),
        "build mlp --plan --device nvidia-h200",
    ),
    (
        lambda db: api.trace("resnet50", batch_size=32, mode="graph", db=db),
        "trace resnet50 -b 32 --mode graph",
    ),
    (lambda db: api.show("models", "resnet1*", db=db), "show models resnet1*"),
]


@pytest.mark.parametrize(("verb", "command"), ALIKE, ids=[command for _, command in ALIKE])
def test_a_verb_answers_as_its_command_does(
    verb: Verb, command: str, opdb: Opdb, published: str
) -> None:
    assert as_json(verb(published)) == said(opdb, *command.split(), "--db", published)


REFUSED: list[tuple[Verb, str]] = [
    (lambda db: api.compare(modes=("eager", "graph"), db=db), "give a model to compare"),
    (lambda db: api.harvest("no_such_model", db=db), "unknown model 'no_such_model'"),
    (lambda db: api.load("no_such_set", db=db), "no_such_set"),
    (lambda db: api.bench(batch_size=2, db=db), "add --model NAME"),
    (lambda db: api.build("mlp", options=api.BuildOptions(target=2), db=db), "--target 2: give a"),
]


@pytest.mark.parametrize(("verb", "message"), REFUSED, ids=[said for _, said in REFUSED])
def test_a_verb_refuses_as_its_command_does(verb: Verb, message: str, published: str) -> None:
    with pytest.raises(InputError, match=message):
        verb(published)


def test_what_a_prediction_holds(published: str) -> None:
    found = api.predict("resnet152", batch_size=32, db=published)
    assert found.time_s == found.prediction.time_s and found.how_to_measure == ""
    assert sum(row["count"] for row in found.operators()) == len(found.prediction.workload.calls)
    assert {row["status"] for row in found.operators()} == {"measured"}
    with pytest.raises(FrozenInstanceError):
        found.answer = None  # type: ignore[misc]
    found = api.predict("mlp", mode="graph", batch_size=9, conditions=BOARD, db=published)
    assert {row["status"] for row in found.rows()} == {"missing"}
    assert found.how_to_measure.startswith("opdb bench --model mlp --batch-size 9 --db")


def test_a_module_at_hand_is_predicted_and_left_as_it_is(published: str) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, stride=2, padding=3), torch.nn.ReLU())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = api.predict(model, torch.zeros(32, 3, 224, 224), mode="graph", db=published)
    assert found.prediction.workload.name == "Sequential"
    assert [each["kind"] for each in found.operators()] == ["conv2d", "relu"]
    assert found.time_s and found.energy_j and found.how_to_measure == ""
    assert model.training and all(
        torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )
    again = api.predict(model, {"input": torch.zeros(1, 3, 8, 8)}, db=published)
    assert again.prediction.workload.batch_size == 1
    with api.open_store(published) as store:
        assert not store.workloads("Sequential")
    for wrong, message in (
        ((model, torch.zeros(2)), "Sequential. fails"),
        ((model,), "no example inputs"),
        (("mlp", torch.zeros(2)), "only a module takes them"),
    ):
        with pytest.raises(InputError, match=message):
            api.predict(*wrong, db=published)


def test_harvest_export_and_load_answer_as_the_commands_do(opdb: Opdb, tmp_path: Path) -> None:
    db, other = str(tmp_path / "a.sqlite"), tmp_path / "b.sqlite"
    found = api.harvest("mlp", "lstm", batch_size=2, db=db)
    assert as_json(found) == said(opdb, "harvest", "mlp", "lstm", "-b", 2, "--db", other)
    assert [each.name for each in found.workloads] == ["mlp", "lstm"]
    assert "linear" in repr(api.harvest("mlp", batch_size=2, db=db))
    folder = sets.SET.with_name("nvidia-h200-held-out")
    loaded = api.load(folder, db=db)
    document = said(opdb, "import", folder, "--db", other)
    assert isinstance(document, dict)
    assert as_json(loaded) == {**document, "database": loaded.document["database"]}
    written = api.export(tmp_path / "set", db=db)
    assert as_json(written) == said(opdb, "export", tmp_path / "set", "--db", other)


def test_a_result_is_a_table_in_a_notebook_and_a_frame_where_pandas_is(
    published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = api.predict("resnet50", batch_size=32, db=published)
    html = found._repr_html_()
    assert html.startswith("<p>resnet50, batch 32 float32, eager, on NVIDIA H200")
    assert html.count("<tr>") == 7 and "<td>energy</td>" in html
    pytest.importorskip("pandas")
    frame = api.compare("resnet50", batch_sizes=(32, 1), db=published).to_frame()
    assert frame["coverage.time"][0] == found.prediction.coverage_time


def test_a_plan_takes_what_is_stored_and_stores_nothing(opdb: Opdb, tmp_path: Path) -> None:
    db = tmp_path / "own.sqlite"
    with api.open_store(str(db)) as store:
        found = api.workload_of(store, api.ModelSpec("mlp", batch_size=2)).workload
        fewer = replace(found, calls=found.calls[:1])  # as other code harvested it
        store.save_workload(fewer, fingerprint="of yesterday")
    before = db.read_bytes()
    of_cpu = api.BuildOptions(device="cpu")
    assert len(api.plan("mlp", batch_size=2, options=of_cpu, db=str(db)).rows()) == 1
    assert len(api.plan("mlp", batch_size=3, options=of_cpu, db=str(db)).rows()) > 1
    document = said(opdb, "build", "mlp", "-b", 2, "--plan", "--device", "cpu", "--db", db)
    assert isinstance(document, dict) and document["configurations"] == 1
    assert db.read_bytes() == before


@pytest.mark.usefixtures("short")
def test_bench_and_measure_answer_as_the_commands_do(opdb: Opdb, tmp_path: Path) -> None:
    db = str(tmp_path / "opdb.sqlite")
    options = api.BenchOptions(device="cpu", rounds=1)
    found = api.bench("relu", model="mlp", options=options, db=db)
    again = said(opdb, "bench", "relu", "--model", "mlp", "--device", "cpu", "--rounds", 1)
    document = as_json(found)
    assert isinstance(document, dict) and isinstance(again, dict)
    assert document.keys() == again.keys()
    assert document["outcomes"]["ok"] >= 1 and again["campaign"] is None
    assert found.results[0].board in repr(found)
    measured = api.measure("mlp", batch_size=2, device="cpu", repeats=1, db=db)
    [row] = measured.rows()
    rows = said(opdb, "measure", "mlp", "-b", 2, "--device", "cpu", "--repeats", 1)
    assert isinstance(rows, list) and row.keys() == rows[0].keys()
    assert (row["model"], row["mode"], row["outcome"]) == ("mlp", "eager", "ok")
    assert "mlp    batch 2 float32 size 784  eager" in repr(measured)
    once = api.TrainingOptions(iters=1, warmup_iters=1)
    trained = api.measure("mlp", phase="training", training=once, device="cpu", repeats=1, db=db)
    assert repr(trained).startswith("MEASURED_SEC=")
