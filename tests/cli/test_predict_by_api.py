"""The same question by command and from Python has the same answer, whatever it rests on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import opdb as api
from opdb import ModelSpec, Predictor, choose_device, workload_of
from opdb.commands.predict import Predicted, Question
from opdb.records import Mode
from opdb.store import open_store
from tests.cli.conftest import Opdb
from tests.published import default_database


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as a fresh clone makes it: of all published sets."""
    path = tmp_path_factory.mktemp("published") / "opdb.sqlite"
    shutil.copy(default_database(), path)
    return path


@pytest.mark.parametrize(
    ("request_", "arguments", "mode", "board"),
    [
        (ModelSpec("resnet50", batch_size=32), ("-b", 32), "eager", None),
        (ModelSpec("resnet152", batch_size=32), ("-b", 32), "graph", None),
        (ModelSpec("lstm"), (), "eager", None),
        (ModelSpec("mlp", batch_size=9), ("-b", 9), "eager", None),
        (ModelSpec("mlp", batch_size=9), ("-b", 9), "graph", None),
        (
            ModelSpec("resnet18", batch_size=5, dtype="bfloat16"),
            ("-b", 5, "--dtype", "bf16"),
            "eager",
            None,
        ),
        (
            ModelSpec("resnet50", batch_size=32, dtype="bfloat16"),
            ("-b", 32, "--dtype", "bf16"),
            "compile",
            None,
        ),
        (
            ModelSpec("resnet50", batch_size=32, phase="training"),
            ("-b", 32, "--phase", "training"),
            "eager",
            None,
        ),
        (ModelSpec("vgg16"), (), "eager", "c1e7"),
        (ModelSpec("mlp", batch_size=9), ("-b", 9), "eager", "c1e7"),
    ],
    ids=lambda value: getattr(value, "name", None) or str(value),
)
def test_a_question_has_one_answer(
    opdb: Opdb,
    published: Path,
    request_: ModelSpec,
    arguments: tuple[object, ...],
    mode: Mode,
    board: str | None,
) -> None:
    with open_store(str(published)) as store:
        predictor = Predictor(store, choose_device(store, None))
        found = workload_of(store, request_)
        on = None if board is None else predictor.board(board)
        answer = predictor.answer(found.in_mode(mode), mode, on)
        assert answer.prediction.time_s is not None
    named = () if board is None else ("--board", board)
    ran = opdb(
        *("predict", request_.name, *arguments, "--mode", mode, *named),
        *("--db", published, "--json"),
    )
    assert ran.status == 0, ran.err
    said = json.loads(ran.out)
    found_here = Predicted(Question(request_.name, ModelSpec(), mode), answer)
    expected = json.loads(json.dumps(found_here.to_dict()))
    # These two are of the question as it was typed, and of this database's visits.
    lacking = bool(expected.pop("how_to_measure"))
    assert expected.pop("gpu_seconds_to_measure") is None
    assert bool(said["how_to_measure"]) == lacking == ((said["gpu_seconds_to_measure"] or 0) > 0)
    assert not lacking or f"--batch-size {request_.batch_size}" in said["how_to_measure"]
    assert {name: said[name] for name in expected} == expected
    if request_.name == "mlp":
        assert said["estimated"], "nothing of it was measured"


def test_a_module_at_hand_is_predicted_and_left_as_it_is(published: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, stride=2, padding=3), torch.nn.ReLU())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = api.predict(model, torch.zeros(32, 3, 224, 224), mode="graph", db=str(published))
    assert found.prediction.workload.name == "Sequential"
    assert [each["kind"] for each in found.operators()] == ["conv2d", "relu"]
    assert found.time_s and found.energy_j and found.how_to_measure == ""
    assert model.training and all(
        torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )
    again = api.predict(model, {"input": torch.zeros(1, 3, 8, 8)}, db=str(published))
    assert again.prediction.workload.batch_size == 1
    with open_store(str(published)) as store:
        assert not store.workloads("Sequential")
    for wrong, said in (
        ((model, torch.zeros(2)), "Sequential. fails"),
        ((model,), "without example inputs"),
        (("mlp", torch.zeros(2)), "only a module takes them"),
    ):
        with pytest.raises(api.OpdbError, match=said):
            api.predict(*wrong, db=str(published))
