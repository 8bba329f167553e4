"""The published runs, and the names of claims: processes of other versions share them."""

from __future__ import annotations

from collections import Counter

from opdb.algorithms.names import algorithm_named
from opdb.matrix.combination import Combination
from opdb.matrix.specs import BackendDevice, MatrixPolicy, TrainingSpec
from opdb.models import ModelRequest
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.table import RunTable
from opdb.store import open_store
from opdb.studies import modes
from opdb.sweep.specs import SweepPolicy, SweepSpec
from tests import published


def test_claims_have_the_names_that_they_always_had() -> None:
    sweep = SweepSpec(ModelRequest("m"), "key", 224, algorithm_named("fft tiling"), "graph")
    assert (SweepPolicy(()).scope("gpu"), sweep.key) == ("sweep gpu", "sweep graph fft_tiling key")
    training = TrainingSpec(Combination("mlp", 8), BackendDevice("cpu", "x86"))
    assert MatrixPolicy(()).scope("x86") == "matrix x86"
    assert training.key == "matrix mlp-b8-fp32-cpu"
    boards = ("GPU-2", "GPU-1")
    run = ModelSpec(ModelRequest("m"), "key", "eager", boards)
    assert run.key == ModelSpec(ModelRequest("m"), "key", "eager", boards[::-1]).key
    assert ModelPolicy((), ()).scope("gpu") == "runs gpu"


def test_each_question_finds_its_runs_among_the_published_ones() -> None:
    with open_store(str(published.default_database()), create=False) as store:
        counts: Counter[str] = Counter()
        for board in store.boards():
            campaigns = store.campaigns(board.device, board=board.uuid)
            policy = ModelPolicy((board.device,), (board.uuid,))
            table = RunTable(policy, policy.runs(store))
            runs = store.model_runs(device=board.device, board=board.uuid)
            for run in runs:
                spec = ModelSpec(ModelRequest("m"), run.workload, run.mode, policy.boards)
                counts[table.state(spec)] += 1
                assert table.pending([spec], retry=True) == (
                    [] if table.state(spec) == "done" else [spec]
                )
            for torch in {campaign.environment.get("torch") for campaign in campaigns}:
                ids = {c.id for c in campaigns if c.environment.get("torch") == torch}
                counted = modes.policy(board, torch).runs(store)
                assert {run.id for run in counted} == {r.id for r in runs if r.campaign in ids}
        assert set(counts) >= {"done", "unsupported"}
