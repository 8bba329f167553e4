"""One training in a process of its own: stored under its claim, gone with who started it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.errors import ClaimLostError
from opdb.harvest.passes import harvest
from opdb.models import checked
from opdb.processes import DiedError
from opdb.runs import DriverOptions
from opdb.spec import ModelSpec
from opdb.store import Claims, Store, open_store
from opdb.store.lease import Claim
from opdb.studies.train.running import Trained, Training, places, train_alone
from tests.matrix import short

OPTIONS = DriverOptions(warmup_iters=1, iters=2, repeats=1, label="one")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    short.start_quickly(monkeypatch)
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        yield opened


def training(store: Store, claim: Claim, name: str = "mlp") -> Training:
    request = checked(ModelSpec(name, phase="training", batch_size=2))
    store.save_workload(workload := harvest(request))
    return Training(request, workload.key, "cpu", OPTIONS, claim)


def test_a_training_is_stored_under_its_claim(store: Store) -> None:
    with Claims(store, "matrix", "board") as claims:
        assert claims.take("one")
        came = train_alone(training(store, claims.claim("one")), store.url, lambda: None)
    assert came == Trained("ok", None)
    [run] = store.model_runs()
    assert run.facts["label"] == "one"


def test_what_another_took_over_is_not_stored(store: Store) -> None:
    foreign = Claim("matrix", "one", "another:1:0.00")
    with pytest.raises(ClaimLostError, match="another worker took one over"):
        train_alone(training(store, foreign), store.url, lambda: None)
    assert store.model_runs() == []


def test_a_process_that_is_killed_is_told_and_leaves_nothing(store: Store) -> None:
    with Claims(store, "matrix", "board") as claims:
        assert claims.take("one")
        asked = training(store, claims.claim("one"), "tests.matrix.models:fatal")
        with pytest.raises(DiedError, match="its process was ended by SIGKILL"):
            train_alone(asked, store.url, lambda: None)
    assert store.model_runs() == []


def test_backends_are_places_or_say_why_not() -> None:
    found = places(["auto", "cpu", "mps"])
    assert found["cpu"].device and found["cpu"].board.startswith("CPU-")
    assert found["cpu"].why_not is None and "not for 'cpu'" in str(found["cpu"].why_no_amp)
    assert "mps" in str(found["mps"].why_not)
    assert found["auto"].why_not is None
