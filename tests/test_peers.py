"""Other models: told apart by their operators, never by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.predict.peers import MOST_PEERS, Regime, is_same_model, regime_of, weighted_calls
from opdb.predict.predictor import predictor_for
from opdb.records import Board, Json, RunRatios, Workload
from opdb.settings import DEFAULT_SETTINGS
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
        (("lstm", 1), ("gpt2-bare", 1), False),
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


def test_what_published_runs_show_is_stored_as_it_is_computed(store: Store) -> None:
    """`python -m opdb learn` of all sets makes it anew."""
    _, stored = store.run_ratios(published.DEVICE)
    computed = predictor_for(store, published.DEVICE, estimates=False).run_ratios()
    assert sum(len(of) for by in computed.values() for of in by.values()) > 300
    assert flat(stored) == pytest.approx(flat(computed), rel=1e-6)


def flat(ratios: RunRatios) -> dict[tuple[str, ...], float]:
    """Return every number of them; -1 for one that is not there."""
    return {
        (mode, board, key, name): -1 if shown is None else vars(shown)[name] or -1
        for mode, by_board in ratios.items()
        for board, by_key in by_board.items()
        for key, shown in by_key.items()
        for name in ("time", "energy", "kernel_s", "waits")
    }


def test_what_is_stored_counts_until_the_board_measures_again(tmp_path: Path) -> None:
    def longest_s(settings: Mapping[str, Json] = DEFAULT_SETTINGS) -> float:
        predictor = predictor_for(opened, published.DEVICE, settings)
        found = predictor.answer(model(opened, "resnet50", 1), "graph").prediction
        assert found.time_interval_s is not None
        return found.time_interval_s[1]

    with open_store(str(published.copy_to(tmp_path / "opdb.sqlite"))) as opened:
        before_s = longest_s()
        learned_at, ratios = opened.run_ratios(published.DEVICE)
        twice = {
            board: {key: shown and replace(shown, time=2 * shown.time) for key, shown in of.items()}
            for board, of in ratios["graph"].items()
        }
        [(board, document)] = opened.learned(published.DEVICE).items()
        of = Board(board, published.DEVICE)
        long_ago = "2020-01-01T00:00:00+00:00"
        opened.save_learned(of, long_ago, document, ratios)
        anew_s = longest_s()  # by this set alone; what is stored was learned from all sets
        opened.save_learned(of, learned_at, document, {"graph": twice})
        assert longest_s() > 1.5 * before_s
        assert longest_s({**DEFAULT_SETTINGS, "tf32_matmul": True}) < 1.2 * before_s
        opened.save_learned(of, long_ago, document, {"graph": twice})
        assert longest_s() == anew_s == pytest.approx(before_s, rel=0.01)


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
