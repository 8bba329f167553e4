"""Each verb of the API says what its command says."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

import opdb as api
from opdb.errors import InputError
from opdb.tables import Report
from tests import published as sets
from tests.cli.conftest import Opdb


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database as a fresh clone makes it: of all published sets."""
    path = tmp_path_factory.mktemp("published") / "opdb.sqlite"
    return str(shutil.copy(sets.default_database(), path))


def said(opdb: Opdb, *arguments: object) -> object:
    ran = opdb(*arguments, "--json")
    assert ran.status == 0, ran.err
    return json.loads(ran.out)


def as_json(result: Report) -> object:
    return json.loads(json.dumps(result.to_dict()))


def test_predict_answers_as_the_command_does(opdb: Opdb, published: str) -> None:
    found = api.predict("resnet152", batch_size=32, db=published)
    assert as_json(found) == said(opdb, "predict", "resnet152", "-b", 32, "--db", published)
    assert found.time_s == found.prediction.time_s
    assert sum(row["count"] for row in found.operators()) == len(found.prediction.workload.calls)
    assert {row["status"] for row in found.operators()} == {"measured"}
    assert found.how_to_measure == ""
    with pytest.raises(FrozenInstanceError):
        found.answer = None  # type: ignore[misc, assignment]


def test_conditions_are_the_options_of_the_command(opdb: Opdb, published: str) -> None:
    conditions = api.Conditions(board="c1e7", estimates=False)
    found = api.predict("mlp", mode="graph", batch_size=9, conditions=conditions, db=published)
    command = ("predict", "mlp", "-b", 9, "--mode", "graph", "--board", "c1e7", "--no-estimates")
    assert as_json(found) == said(opdb, *command, "--db", published)
    assert {row["status"] for row in found.rows()} == {"missing"}
    assert found.how_to_measure.startswith("opdb bench --model mlp --batch-size 9 --db")


def test_compare_answers_as_the_command_does(opdb: Opdb, published: str) -> None:
    found = api.compare(
        "resnet50", "no_such_model", modes=("eager", "graph"), batch_sizes=(1, 32), db=published
    )
    asked = ("resnet50", "no_such_model", "--mode", "eager", "graph", "-b", "1", "32")
    ran = opdb("compare", *asked, "--db", published, "--json")
    assert ran.status == 2
    assert as_json(found) == json.loads(ran.out)
    predicted = opdb("predict", *asked, "--db", published, "--json")
    assert json.loads(ran.out)["rows"] == json.loads(predicted.out)["rows"]
    assert len(found.predicted) == len(found.failures) == 4
    with pytest.raises(InputError, match="4 of 8 predictions failed"):
        found.check()
    assert "resnet50" in repr(found)
    with pytest.raises(InputError, match="no model is named"):
        api.compare(db=published)


def test_harvest_answers_as_the_command_does(opdb: Opdb, tmp_path: Path) -> None:
    db = str(tmp_path / "opdb.sqlite")
    found = api.harvest("mlp", "lstm", batch_size=2, db=db)
    document = said(opdb, "harvest", "mlp", "lstm", "-b", 2, "--db", tmp_path / "other.sqlite")
    assert as_json(found) == document
    assert [each.name for each in found.workloads] == ["mlp", "lstm"]
    with pytest.raises(InputError, match="2 workloads were harvested"):
        _ = found.workload
    assert "linear" in repr(api.harvest("mlp", batch_size=2, db=db))
    with pytest.raises(InputError, match="unknown model 'no_such_model'"):
        api.harvest("no_such_model", db=db)


def test_export_and_load_answer_as_the_commands_do(
    opdb: Opdb, published: str, tmp_path: Path
) -> None:
    folder = sets.SET.with_name("nvidia-h200-held-out")
    loaded = api.load(folder, db=str(tmp_path / "a.sqlite"))
    document = said(opdb, "import", folder, "--db", tmp_path / "b.sqlite")
    assert isinstance(document, dict)
    assert as_json(loaded) == {**document, "database": loaded.location}
    assert "visits.csv" in repr(loaded)
    written = api.export(tmp_path / "set", db=str(tmp_path / "a.sqlite"))
    assert as_json(written) == said(opdb, "export", tmp_path / "set", "--db", tmp_path / "b.sqlite")
    with pytest.raises(InputError, match="no_such_set"):
        api.load("no_such_set", db=str(tmp_path / "a.sqlite"))


def test_a_result_is_a_table_in_a_notebook_and_a_frame_where_pandas_is(
    published: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = api.predict("resnet50", batch_size=32, db=published)
    html = found._repr_html_()
    assert html.startswith("<p>resnet50, batch 32 float32, eager, on NVIDIA H200")
    assert html.count("<tr>") == 7 and "<td>energy</td>" in html
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        found.to_frame()

    class Frames:
        """Stands in for pandas, which opdb's environment does not have."""

        @staticmethod
        def DataFrame(rows: list[dict[str, object]]) -> list[dict[str, object]]:  # noqa: N802
            return rows

    monkeypatch.setitem(sys.modules, "pandas", Frames)
    [row] = api.compare("resnet50", batch_sizes=(32,), db=published).to_frame()
    assert row["coverage.time"] == found.prediction.coverage_time
    assert "coverage" not in row


def test_bench_answers_as_the_command_does(
    opdb: Opdb, tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = api.BenchOptions(device="cpu", rounds=1)
    db = str(tmp_path / "opdb.sqlite")
    api.harvest("mlp", db=db)
    found = api.bench("relu", model="mlp", options=options, db=db)
    again = said(opdb, "bench", "relu", "--model", "mlp", "--device", "cpu", "--rounds", 1)
    assert isinstance(again, dict)
    document = as_json(found)
    assert isinstance(document, dict)
    assert document.keys() == again.keys()
    assert document["outcomes"]["ok"] >= 1 and again["campaign"] is None
    assert found.results[0].board in repr(found)
    with pytest.raises(InputError, match="unknown --cache-state 'steamed'"):
        api.bench(options=api.BenchOptions(cache_state="steamed"), db=db)
    with pytest.raises(InputError, match="add --model NAME"):
        api.bench(batch_size=2, db=db)


def test_validate_answers_as_the_command_does(opdb: Opdb, published: str) -> None:
    told: list[str] = []
    found = api.validate("resnet50", "vgg16", modes=["graph"], db=published, tell=told.append)
    command = ("validate", "resnet50", "vgg16", "--mode", "graph", "--db", published)
    assert as_json(found) == said(opdb, *command)
    assert {row["mode"] for row in found.rows()} == {"graph"}
    with pytest.raises(InputError, match="unknown model 'resnet51'"):
        api.validate("resnet51", db=published)


def test_plan_answers_as_the_command_does(opdb: Opdb, published: str) -> None:
    command = ("build", "mlp", "--plan", "--device", "nvidia-h200", "--db", published)
    document = said(opdb, *command)
    found = api.plan("mlp", options=api.BuildOptions(device="nvidia-h200"), db=published)
    assert as_json(found) == document
    assert [row["kind"] for row in found.rows()] == [s["kind"] for s in found.to_dict()["steps"]]
    assert repr(found).startswith("1 model, 1 workload, on nvidia-h200\n")
    with pytest.raises(InputError, match="no model is named"):
        api.plan(db=published)
    with pytest.raises(InputError, match="--gpu-seconds -1"):
        api.plan("mlp", options=api.BuildOptions(gpu_seconds=-1), db=published)


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
    command = ("build", "mlp", "-b", 2, "--plan", "--device", "cpu", "--db", db)
    document = said(opdb, *command)
    assert isinstance(document, dict) and document["configurations"] == 1
    assert db.read_bytes() == before


@pytest.mark.usefixtures("short")
def test_build_answers_as_the_command_does(opdb: Opdb, tmp_path: Path) -> None:
    Path("models").mkdir()
    file = Path("models/mlp.yml")
    file.write_text("model: mlp\ninput_size: [16]\n")
    options = api.BuildOptions(target=0.01, device="cpu")
    db = str(tmp_path / "own.sqlite")
    found = api.build("models", batch_sizes=(1, 4), options=options, db=db)
    assert found.built.runs == 2 and found.built.benched >= 1
    assert [row["batch_size"] for row in found.rows()] == [1, 4]
    assert "processed: true" in file.read_text() and Path("models/significant.yml").exists()
    arguments = ("models", "--device", "cpu", "--target", 0.01, "-b", 1, "-b", 4, "--db", db)
    ran = opdb("build", *arguments, "--json")
    document = json.loads(ran.out)
    assert document["runs"] == document["benched"] == 0, "what is built is not built again"
    again = as_json(api.build("models", batch_sizes=(1, 4), options=options, db=db))
    assert isinstance(again, dict)
    assert again | {"elapsed_s": 0} == document | {"elapsed_s": 0}
    with pytest.raises(InputError, match="no model is named"):
        api.build(db=db)
    with pytest.raises(InputError, match="--target 2: give a share"):
        api.build("models", options=api.BuildOptions(target=2), db=db)


@pytest.mark.usefixtures("short")
def test_measure_answers_as_the_command_does(opdb: Opdb, tmp_path: Path) -> None:
    own = str(tmp_path / "own.sqlite")
    found = api.measure("mlp", batch_size=2, device="cpu", repeats=1, db=own)
    [row] = found.rows()
    document = said(opdb, "measure", "mlp", "-b", 2, "--device", "cpu", "--repeats", 1)
    assert isinstance(document, list)
    assert row.keys() == document[0].keys()
    assert (row["model"], row["mode"], row["outcome"]) == ("mlp", "eager", "ok")
    assert "mlp    batch 2 float32 size 784  eager" in repr(found)
    once = api.TrainingOptions(iters=1, warmup_iters=1)
    trained = api.measure("mlp", phase="training", training=once, device="cpu", repeats=1, db=own)
    assert repr(trained).startswith("MEASURED_SEC=")


def test_show_answers_as_the_command_does(opdb: Opdb, published: str) -> None:
    found = api.show(db=published)
    assert as_json(found) == said(opdb, "show", "--db", published)
    assert f"database {published}, " in repr(found) and "resnet50" in repr(found)
    assert found.rows() == found.to_dict()["workloads"]
    with pytest.raises(InputError, match="unknown device 'nothing'"):
        api.show(conditions=api.Conditions(device="nothing"), db=published)


def test_lists_answer_as_the_command_does(opdb: Opdb, published: str) -> None:
    for asked in (("workloads",), ("devices",), ("models", "resnet1*"), ("algorithms",)):
        found = api.show(*asked, db=published)
        assert as_json(found) == said(opdb, "show", *asked, "--db", published)
    told: list[str] = []
    api.show("models", "resnet1*", db=published, tell=told.append)
    assert "3 from torchvision" in told[0]
    with pytest.raises(InputError, match="unknown model 'resnet5O'"):
        api.show("models", "resnet5O", db=published)
