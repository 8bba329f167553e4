"""The published runs, and the names of claims: processes of other versions share them."""

from __future__ import annotations

from collections import Counter

from opdb.algorithms.names import algorithm_named
from opdb.matrix.combination import Combination
from opdb.matrix.specs import BackendDevice, MatrixPolicy, TrainingSpec
from opdb.models import ModelRequest
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.table import RunTable
from opdb.store import RunState, open_store
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


def test_the_last_good_run_counts_else_the_last() -> None:
    """Of runs made one after the other, of four models; a fifth was never run."""
    specs = {name: ModelSpec(ModelRequest("m"), name, "eager", ("GPU-1",)) for name in "abcde"}
    made = (
        ("a", "ok"),
        ("a", "error"),
        ("b", "unsupported"),
        ("b", "out_of_memory"),
        ("c", "error"),
        ("c", "unsupported"),
        ("d", "error"),
    )
    runs = [
        RunState(f"{n}", name, "eager", {}, outcome, None, 1.0, {}, "c", "gpu", "GPU-1")  # type: ignore[arg-type]
        for n, (name, outcome) in enumerate(made)
    ]
    table = RunTable(ModelPolicy(("gpu",), ("GPU-1",)), runs)
    states = {name: table.state(spec) for name, spec in specs.items()}
    assert states == {
        "a": "done",
        "b": "out of memory",
        "c": "unsupported",
        "d": "failed",
        "e": "left",
    }
    counted = table.run(specs["a"])
    assert counted is not None and counted.id == "0" and table.run(specs["e"]) is None
    every = list(specs.values())
    assert table.pending(every) == [specs["e"]]
    assert table.pending(every, retry=True) == [specs[name] for name in "bcde"]
    assert table.pending(every, again=True) == every
    claimed = RunTable(ModelPolicy(("gpu",), ("GPU-1",)), runs, {specs["a"].key, specs["e"].key})
    assert [claimed.state(specs[name]) for name in "ae"] == ["running", "running"]
    assert claimed.pending(every, retry=True, again=True) == [specs[name] for name in "bcd"]
    assert claimed.pending(every) == []


def test_what_this_machine_cannot_run_is_left_to_others() -> None:
    elsewhere = TrainingSpec(Combination("mlp", 8), BackendDevice("cuda", why_not="no GPU here"))
    table = RunTable(MatrixPolicy(()), [])
    assert table.state(elsewhere) == "not here"
    assert table.pending([elsewhere], retry=True, again=True) == []


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
