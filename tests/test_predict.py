"""Predictions from a real database: the published set, and copies of it that lack something."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.left_out import of_transfers
from opdb.derive.boards import (
    BOARDS,
    UNKNOWN_BASE_POWER,
    UNKNOWN_DYNAMIC_ENERGY,
    UNKNOWN_TIME,
)
from opdb.errors import InputError, UnknownNameError
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.predict.compose import Prediction
from opdb.predict.predictor import (
    MOST_PEERS,
    PLAIN_MODES,
    Answer,
    Predictor,
    is_same_model,
    predictor_for,
    weighted_calls,
)
from opdb.records import Board, Json, Mode, RunRatios, Workload
from opdb.store import Store, open_store
from tests import published
from tests.store import samples


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(str(published.database())) as opened:
        yield opened


def model(store: Store, name: str, batch_size: int, dtype: str = "float32") -> Workload:
    [found] = store.workloads(name, batch_size=batch_size, dtype=dtype)
    return found


def predictor(store: Store) -> Predictor:
    return predictor_for(store, None, estimates=False)


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def changed(path: Path, statement: str) -> Path:
    """Return a copy of the published database that a statement of SQL changed."""
    published.copy_to(path)
    execute(path, statement)
    return path


def test_other_models_runs_make_the_interval_and_a_models_own_do_not(tmp_path: Path) -> None:
    path = published.copy_to(tmp_path / "own.sqlite")
    with open_store(str(path)) as store:
        wanted = model(store, "resnet152", 32)

    def after(removed: str) -> Answer:
        """Predict once the runs of these workloads are gone."""
        execute(
            path,
            f"DELETE FROM model_run WHERE workload_id IN (SELECT id FROM workload WHERE {removed})",
        )
        with open_store(str(path)) as store:
            return predictor(store).answer(wanted, "graph")

    before = after("FALSE")
    assert before.measured is not None
    assert after("name = 'resnet152' AND batch_size != 32") == before
    alone = after("name != 'resnet152'")
    assert alone.measured == before.measured
    assert alone.prediction.time_s == before.prediction.time_s
    assert alone.prediction.time_interval_s != before.prediction.time_interval_s
    assert any("rests on a prior" in note for note in alone.prediction.notes)
    assert not any("rests on a prior" in note for note in before.prediction.notes)
    unmeasured = after("TRUE")
    assert unmeasured.measured is None and unmeasured.attribution_time is None
    assert unmeasured.meets(0.9), "what was not measured cannot be held against it"


@pytest.mark.parametrize(
    ("changes", "target", "met"),
    [
        ({}, 1.0, True),
        ({"coverage_time": 0.89}, 0.9, False),
        ({"coverage_energy": None, "energy_j": None}, 0.9, True),
        ({"time_s": 1.1}, 0.9, True),
        ({"time_s": 1.11}, 0.9, False),
        ({"energy_j": 2.3}, 0.9, False),
        ({"workload": samples.workload()}, 0.1, False),
    ],
)
def test_a_target_holds_for_time_and_energy(
    store: Store, changes: dict[str, object], target: float, met: bool
) -> None:
    """Deviations from a measured run of 1 s and 2 J."""
    answer = predictor(store).answer(model(store, "resnet50", 32), "graph")
    assert answer.measured is not None and answer.measured.energy_j is not None
    measured = replace(
        answer.measured,
        time_s=replace(answer.measured.time_s, mean=1.0),
        energy_j=replace(answer.measured.energy_j, mean=2.0),
    )
    exact: Prediction = replace(answer.prediction, time_s=1.0, energy_j=2.0)
    changed = replace(exact, **changes)  # type: ignore[arg-type]
    assert Answer(changed, measured).meets(target) is met


def test_a_board_is_named_by_the_beginning_of_its_uuid(store: Store) -> None:
    used = predictor(store)
    boards = [board.uuid for board in store.boards(published.DEVICE)]
    for board in boards:
        assert used.board(board) == used.board(board[:8]) == used.board(board[4:9]) == board
        assert used.board(board[:12].lower()) == used.board(board[4:12].upper()) == board
        answer = used.answer(model(store, "resnet50", 32), "graph", board)
        assert answer.prediction.board == board
        ran = store.model_runs(answer.prediction.workload.key, board=board, mode="graph")
        assert (answer.measured is not None) == bool(ran)
    assert len(boards) > 2
    with pytest.raises(InputError, match="'GPU-' is the beginning of several: GPU-"):
        used.board("GPU-")
    for none in ("none", ""):
        with pytest.raises(UnknownNameError, match=rf"board '{none}'; .*opdb show --json lists"):
            used.board(none)


@pytest.mark.parametrize("mode", PLAIN_MODES)
def test_of_several_boards_the_one_counts_that_measured_the_operators(
    tmp_path: Path, mode: Mode
) -> None:
    """Even where another ran the model later: its run tells how boards differ, not how sums err."""
    path = published.copy_to(tmp_path / "boards.sqlite")
    with open_store(str(path)) as store:
        wanted = model(store, "resnet50", 32)
        before = predictor(store).answer(wanted, mode)
        board = before.prediction.board
        [*_, run] = store.model_runs(wanted.key, board=board, mode=mode)
        [its] = [c for c in store.campaigns(board=board) if c.id == run.campaign]
        calibration = replace(its.calibration, transition_s=None)  # boards may lend theirs
        another = replace(its.board, uuid="GPU-later")
        later = replace(its, id="later", board=another, calibration=calibration)
        store.save_campaign(later)
        anew = replace(run, id="later", campaign="later", started_at="2027-01-01T00:00:00Z")
        store.save_model_run(anew)
        used = predictor(store)
        assert used.answer(wanted, mode) == before
        assert (wanted, board) in used.measured_workloads(mode)
        named = used.answer(wanted, mode, another.uuid)
        assert named.prediction.board == another.uuid and named.measured is not None


def test_what_only_another_board_has_is_brought_over_and_said(store: Store) -> None:
    used = predictor(store)
    board, origin = used.board("GPU-c1e7"), used.board("GPU-ea87")
    found = used.answer(model(store, "vgg16", 32), "graph", board).prediction
    assert found.board == board and not found.missing
    [note] = [note for note in found.notes if "costs are scaled to this board" in note]
    assert note.startswith("measured only on board GPU-ea87fd5f")
    here_w, there_w = (
        statistics.median(
            campaign.calibration.base_power_w
            for campaign in store.campaigns(published.DEVICE)
            if campaign.board.uuid.startswith(prefix) and campaign.calibration.base_power_w
        )
        for prefix in ("GPU-c1e7", "GPU-ea87")
    )
    assert here_w > there_w, "a factor the wrong way round would show"
    assert f"base power × {here_w / there_w:.3f}" in note
    assert all(f"{name} × " in note for name in ("time", "dynamic energy"))
    assert not any("as they are" in note for note in found.notes)
    own = used.answer(model(store, "resnet50", 32), "graph", board).prediction
    assert not any("brought" in note for note in own.notes)
    by = used.factors(board, origin)
    assert found.time_s is not None and found.energy_j is not None and own.time_s is not None
    assert found.total.widths_time[1] > by.time.half_width, "all calls err alike"
    dynamic_j = found.energy_j - here_w * found.time_s
    assert found.total.widths_energy[1] > by.dynamic_energy.half_width * dynamic_j / found.energy_j
    assert own.total.widths_time[1] < found.total.widths_time[1]


def test_a_board_that_ran_a_model_alone_is_as_unsure_as_boards_differ(tmp_path: Path) -> None:
    """Without anchors, with one, with two: what is brought, how wide, and what the note says."""
    answers = []
    for anchors in (0, 1, 2):
        path = changed(
            tmp_path / f"{anchors}.sqlite",
            "DELETE FROM visit WHERE role = 'anchor' AND campaign IN "
            "(SELECT id FROM campaign WHERE board LIKE 'GPU-c1e7%') AND configuration_id NOT IN "
            "(SELECT configuration_id FROM visit WHERE role = 'anchor' AND campaign IN (SELECT id "
            "FROM campaign WHERE board LIKE 'GPU-c1e7%') GROUP BY configuration_id "
            f"ORDER BY configuration_id LIMIT {anchors})",
        )
        with open_store(str(path)) as store:
            used = predictor(store)
            board = used.board("GPU-c1e7")
            answers.append(used.answer(model(store, "vgg16", 32), "graph", board).prediction)
            base_w = used.base_power_w(board)
    none, one, two = answers
    assert (none.time_s, none.time_interval_s) == (one.time_s, one.time_interval_s)
    assert (none.energy_j, none.energy_interval_j) == (one.energy_j, one.energy_interval_j)
    assert two.time_s != none.time_s, "two anchors scale"
    assert none.time_s and none.energy_j and base_w
    assert none.total.widths_time[1] >= UNKNOWN_TIME.half_width > 0.017
    share = 1 - base_w * none.time_s / none.energy_j
    assert none.total.widths_energy[1] >= share * UNKNOWN_DYNAMIC_ENERGY.half_width > 0.09
    for found, said in ((none, "not scaled"), (one, "not scaled"), (two, "scaled")):
        [note] = [each for each in found.notes if "to this board (" in each]
        assert f"; costs are {said} to this board (" in note
        unscaled = "time unscaled ± 1.8 %, dynamic energy unscaled ± 11.8 %, base power × " in note
        assert unscaled == (found is not two) and ("from 2 anchors" in note) == (found is two)


def test_what_boards_differ_by_is_what_the_published_ones_do() -> None:
    """Root mean squares over any two boards with anchors, and over those that read base power."""
    with open_store(str(published.default_database())) as store:
        snapshot = predictor_for(store)
        anchors = [snapshot._read_anchors(board) for board in snapshot.boards]
    compared = [each.anchors for each in anchors if each.anchors]
    assert len(compared) == BOARDS

    def apart(ratios: Iterable[float]) -> float:
        return math.sqrt(statistics.fmean(math.log(ratio) ** 2 for ratio in ratios))

    shared = [(a[k], b[k]) for a, b in combinations(compared, 2) for k in a.keys() & b.keys()]
    times = apart(a.time_s / b.time_s for a, b in shared if a.time_s and b.time_s)
    energies = apart(
        a.dynamic_energy_j / b.dynamic_energy_j
        for a, b in shared
        if a.dynamic_energy_j and b.dynamic_energy_j
    )
    powers = [each.base_power_w for each in anchors if each.base_power_w]
    assert UNKNOWN_TIME.spread == pytest.approx(times, abs=0.00005)
    assert UNKNOWN_DYNAMIC_ENERGY.spread == pytest.approx(energies, abs=0.00005)
    between = apart(a / b for a, b in combinations(powers, 2))
    assert UNKNOWN_BASE_POWER.spread == pytest.approx(between, abs=0.00005)


def test_factors_do_not_make_transferred_predictions_worse_at_the_median(store: Store) -> None:
    found = of_transfers(predictor(store))
    rows, summary = found["transfers"], found["summary"]
    assert {row["model"] for row in rows} >= {"resnet50", "vit_b_16"}
    assert len({(row["board"], row["from"]) for row in rows}) > 2
    assert all(row["board"] != row["from"] for row in rows)
    for name in ("time", "energy"):
        for how in ("raw", "factored"):
            errors = [abs(row[how][name] - 1) for row in rows]
            assert summary[how][name]["median"] == pytest.approx(statistics.median(errors))
            assert summary[how][name]["largest"] == pytest.approx(max(errors))
    raw, factored = summary["raw"], summary["factored"]
    assert factored["time"]["median"] <= raw["time"]["median"] + 0.001
    assert factored["energy"]["median"] < 0.75 * raw["energy"]["median"]


@pytest.fixture(scope="module")
def default() -> Iterator[Store]:
    with open_store(str(published.default_database())) as opened:
        yield opened


def first(default: Store, name: str, batch_size: int, phase: str = "inference") -> Workload:
    return next(w for w in default.workloads(name, batch_size=batch_size) if w.phase == phase)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("bert_base", 32), ("bert-base-uncased", 4), True),
        (("resnet50", 1), ("resnet152", 32), True),
        (("resnet50", 1), ("resnet50", 128), True),
        (("resnet50", 1), ("densenet121", 1), False),
    ],
)
def test_a_model_is_known_by_its_weights(
    default: Store, one: tuple[str, int], other: tuple[str, int], same: bool
) -> None:
    calls = [weighted_calls(first(default, *each)) for each in (one, other)]
    assert is_same_model(*calls) is is_same_model(*reversed(calls)) is same


def test_a_model_under_another_name_never_tells_of_its_own_error(default: Store) -> None:
    """All that is known of BERT is taken under a name that no run has."""
    predictor = predictor_for(default, published.DEVICE)
    renamed = replace(first(default, "bert-base-uncased", 32), name="mine.models:encoder")
    names = {peer.name for peer in predictor._peers.of(renamed, "graph")}
    assert len(names) >= MOST_PEERS // 2
    assert not names & {"bert-base-uncased", "bert_base", "vit", "vit_b_16"}


def test_what_published_runs_show_is_stored_as_it_is_computed(default: Store) -> None:
    """`python -m python -m opdb.estimates` of all sets makes it anew."""
    _, stored = default.run_ratios(published.DEVICE)
    computed = predictor_for(default, published.DEVICE, estimates=False).run_ratios()
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
        found = predictor.answer(first(opened, "resnet50", 1), "graph").prediction
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


QUIET, RANDOM = "GPU-29c25d41", "GPU-55f5ca43"
"""A board whose calls were timed in 50 blocks in the model's order, and one in random order."""


@pytest.fixture
def generations(tmp_path: Path) -> Iterator[Store]:
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(published.database_of("nvidia-h200-generation").read_bytes())
    with open_store(str(path)) as opened:
        yield opened


def timed_step(generations: Store) -> Workload:
    """The static step of Llama-3.2-1B whose time around calls is published."""
    steps = generations.workloads("llama-3.2-1b", phase="decode", batch_size=1)
    static = [each for each in steps if "cache_length" in each.inputs["generation"]]
    [found] = [each for each in static if each.around is not None]
    return found


@pytest.mark.parametrize(("board", "counts"), [(QUIET, True), (RANDOM, False)])
def test_a_step_is_predicted_so_for_published_boards(
    generations: Store, board: str, counts: bool
) -> None:
    step = timed_step(generations)
    around = step.around
    assert around is not None and around > 2 * step.containers

    def eager_s(workload: Workload) -> float:
        predictor = predictor_for(generations)
        found = predictor.answer(workload, "eager", predictor.board(board)).prediction
        assert found.host_bound and found.time_s is not None
        return found.time_s

    predictor = predictor_for(generations)
    calibration = predictor.calibration(predictor.board(board))
    assert calibration.container_time_s is not None
    more_s = (around - step.containers) * calibration.container_time_s
    longer_s = eager_s(step) - eager_s(replace(step, around=None))
    assert longer_s == pytest.approx(more_s if counts else 0.0)
