"""Other models: told apart by their operators, never by their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from opdb.predict import predictor_for
from opdb.predict.peers import MOST_PEERS, is_same_model, weighted_calls
from opdb.predict.regimes import Regime, regime_of
from opdb.records import Workload
from opdb.store import Store, open_store
from tests import published


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with open_store(str(published.default_database())) as opened:
        yield opened


def model(store: Store, name: str, batch_size: int, phase: str = "inference") -> Workload:
    return next(w for w in store.workloads(name, batch_size=batch_size) if w.phase == phase)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("bert_base", 32), ("bert-base-uncased", 4), True),
        (("vit", 8), ("vit_b_16", 32), True),
        (("resnet50", 1), ("resnet152", 32), True),
        (("resnet50", 1), ("resnet50", 128), True),
        (("resnet50", 1), ("densenet121", 1), False),
        (("lstm", 1), ("gpt2", 1), False),
        (("vgg16", 1), ("alexnet", 1), False),
    ],
)
def test_a_model_is_known_by_its_weights(
    store: Store, one: tuple[str, int], other: tuple[str, int], same: bool
) -> None:
    calls = [weighted_calls(model(store, *each)) for each in (one, other)]
    assert is_same_model(*calls) is is_same_model(*reversed(calls)) is same


def test_a_training_step_is_its_models(store: Store) -> None:
    step, known = model(store, "vgg16", 32, "training"), model(store, "vgg16", 1)
    assert is_same_model(weighted_calls(step), weighted_calls(known))


def test_a_model_under_another_name_never_tells_of_its_own_error(store: Store) -> None:
    """All that is known of BERT is taken under a name that no run has."""
    predictor = predictor_for(store, published.DEVICE)
    renamed = replace(model(store, "bert-base-uncased", 32), name="mine.models:encoder")
    names = {peer.name for peer in predictor._peers.of(renamed, "graph")}
    assert len(names) >= MOST_PEERS // 2
    assert not names & {"bert-base-uncased", "bert_base", "vit", "vit_b_16"}


def test_peers_are_one_run_a_model_of_the_same_phase_and_batches_first(store: Store) -> None:
    predictor = predictor_for(store, published.DEVICE)
    step = model(store, "vgg16", 32, "training")
    peers = predictor._peers.of(step, "eager")
    assert len({peer.name for peer in peers}) == len(peers) <= MOST_PEERS
    assert [peer.phase for peer in peers[:2]] == ["training"] * 2
    small = predictor._peers.of(model(store, "resnet50", 4), "graph")
    assert 1 < small[0].batch_size <= 16


@pytest.mark.parametrize(
    ("name", "batch_size", "phase", "mode", "regime"),
    [
        ("resnet50", 1, "inference", "graph", Regime("graph", "1")),
        ("resnet50", 16, "inference", "eager", Regime("eager", "2–16")),
        ("resnet50", 128, "inference", "compile:reduce-overhead", Regime("compiled", "over 16")),
        ("vgg16", 32, "training", "eager", Regime("training", "over 16")),
    ],
)
def test_regimes(
    store: Store, name: str, batch_size: int, phase: str, mode: str, regime: Regime
) -> None:
    assert regime_of(model(store, name, batch_size, phase), mode) == regime  # type: ignore[arg-type]
