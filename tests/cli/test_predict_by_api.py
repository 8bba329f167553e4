"""The same question by command and from Python has the same answer, whatever it rests on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opdb import ModelRequest, Predictor, choose_device, workload_of
from opdb.api.predicted import Predicted, Question
from opdb.lookup.options import ModelOptions
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
        (ModelRequest("resnet50", batch_size=32), ("-b", 32), "eager", None),
        (ModelRequest("resnet152", batch_size=32), ("-b", 32), "graph", None),
        (ModelRequest("lstm"), (), "eager", None),
        (ModelRequest("mlp", batch_size=9), ("-b", 9), "eager", None),
        (ModelRequest("mlp", batch_size=9), ("-b", 9), "graph", None),
        (
            ModelRequest("resnet18", batch_size=5, dtype="bfloat16"),
            ("-b", 5, "--dtype", "bf16"),
            "eager",
            None,
        ),
        (
            ModelRequest("resnet50", batch_size=32, dtype="bfloat16"),
            ("-b", 32, "--dtype", "bf16"),
            "compile",
            None,
        ),
        (
            ModelRequest("resnet50", batch_size=32, phase="training"),
            ("-b", 32, "--phase", "training"),
            "eager",
            None,
        ),
        (ModelRequest("vgg16"), (), "eager", "c1e7"),
        (ModelRequest("mlp", batch_size=9), ("-b", 9), "eager", "c1e7"),
    ],
    ids=lambda value: getattr(value, "name", None) or str(value),
)
def test_a_question_has_one_answer(
    opdb: Opdb,
    published: Path,
    request_: ModelRequest,
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
    found_here = Predicted(Question(request_.name, ModelOptions(), mode), answer)
    expected = json.loads(json.dumps(found_here.document()))
    # These two are of the question as it was typed, and of this database's visits.
    lacking = bool(expected.pop("how_to_measure"))
    assert expected.pop("gpu_seconds_to_measure") is None
    assert bool(said["how_to_measure"]) == lacking == ((said["gpu_seconds_to_measure"] or 0) > 0)
    assert not lacking or f"--batch-size {request_.batch_size}" in said["how_to_measure"]
    assert {name: said[name] for name in expected} == expected
    if request_.name == "mlp":
        assert said["estimated"], "nothing of it was measured"
