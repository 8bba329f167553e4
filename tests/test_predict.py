"""Predictions from a real database: the published set, and copies of it that lack something."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from opdb.derive.boards import (
    BOARDS,
    UNKNOWN_BASE_POWER,
    UNKNOWN_DYNAMIC_ENERGY,
    UNKNOWN_TIME,
    Factors,
)
from opdb.errors import InputError, UnknownNameError
from opdb.predict.board_data import BoardData
from opdb.predict.compose import Prediction
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor, choose_device, predictor_for
from opdb.records import Board, Configuration, Mode, Workload
from opdb.settings import DEFAULT_SETTINGS
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
    """Change a database by a statement of SQL."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def changed(path: Path, statement: str) -> Path:
    """Return a copy of the published database that a statement of SQL changed."""
    published.copy_to(path)
    execute(path, statement)
    return path


def without_costs(path: Path, of: str) -> Path:
    """Return a copy of the published database without the costs of some configurations."""
    return changed(
        path,
        f"DELETE FROM cost WHERE configuration_id IN (SELECT id FROM configuration WHERE {of})",
    )


def test_conv2d_alone_covers_part(tmp_path: Path) -> None:
    with open_store(str(without_costs(tmp_path / "conv.sqlite", "kind != 'conv2d'"))) as store:
        answer = predictor(store).answer(model(store, "resnet152", 32), "eager")
        full = predictor_for(store, None, estimates=False)
        assert full.answer(model(store, "resnet50", 32), "graph").prediction.missing
    found = answer.prediction
    kinds = {share.configuration.kind for share in found.missing}
    assert {"batch_norm", "relu", "add"} <= kinds and "conv2d" not in kinds
    assert {share.configuration.kind for share in found.parts} == {"conv2d"}
    shares = (*found.parts, *found.missing)
    assert math.fsum(s.share_time for s in shares) == pytest.approx(1)
    assert math.fsum(s.share_energy for s in shares) == pytest.approx(1)
    assert found.coverage_calls == pytest.approx(155 / sum(s.count for s in shares))
    assert 0 < found.coverage_time < 0.9 and 0 < found.coverages["energy"] < 0.9
    assert not answer.meets(0.9) and not answer.meets(0.95)


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


def test_runs_of_models_of_which_a_part_is_not_described_say_nothing_of_intervals(
    tmp_path: Path,
) -> None:
    """What such a run takes beyond the sum is no error of the sum."""
    path = published.copy_to(tmp_path / "undescribed.sqlite")
    with open_store(str(path)) as store:
        wanted = model(store, "resnet152", 32)

    def after(statement: str) -> Prediction:
        execute(path, statement)
        with open_store(str(path)) as store:
            return predictor(store).answer(wanted, "graph").prediction

    others = "name != 'resnet152'"
    before = after("UPDATE learned SET ratios = NULL")  # what they show is computed, then
    undescribed = after(f"""UPDATE workload SET unsupported = '{{"a": 1}}' WHERE {others}""")
    alone = after(
        f"DELETE FROM model_run WHERE workload_id IN (SELECT id FROM workload WHERE {others})"
    )
    assert undescribed.time_interval_s == alone.time_interval_s != before.time_interval_s
    assert undescribed.energy_interval_j == alone.energy_interval_j != before.energy_interval_j


def test_a_run_of_an_empty_batch_is_like_no_other(tmp_path: Path) -> None:
    """A model may bring inputs without a single item."""
    with open_store(str(published.copy_to(tmp_path / "empty.sqlite"))) as store:
        wanted = model(store, "resnet50", 32)
        before = predictor(store).answer(wanted, "graph")
        [*_, run] = store.model_runs(wanted.key, board=before.prediction.board, mode="graph")
        empty = replace(wanted, name="tests.models:empty", batch_size=0)
        store.save_workload(empty)
        store.save_model_run(replace(run, id="empty", workload=empty.key))
        used = predictor(store)
        assert used.answer(wanted, "graph").prediction.time_s == before.prediction.time_s
        assert used.answer(empty, "graph").prediction.time_interval_s is not None


@pytest.mark.parametrize("kinds", [(), ("flatten",)], ids=["no call", "a view"])
def test_a_run_of_a_model_that_computes_nothing_can_be_learned(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    """Its sum takes no time, of which nothing can be a share."""
    with open_store(str(published.copy_to(tmp_path / "nothing.sqlite"))) as store:
        wanted = model(store, "resnet50", 32)
        calls = tuple(each for each in wanted.calls if each.configuration.kind in kinds)
        assert len(calls) == len(kinds)
        idle = replace(wanted, name="tests.models:idle", calls=calls)
        store.save_workload(idle)
        for mode in PLAIN_MODES:
            [*_, run] = store.model_runs(wanted.key, mode=mode)
            store.save_model_run(replace(run, id=f"idle {mode}", workload=idle.key))
        before = {mode: predictor(store).answer(wanted, mode).prediction for mode in PLAIN_MODES}
        [(board, document)] = store.learned(published.DEVICE).items()
        later, ratios = "2999-01-01T00:00:00+00:00", predictor(store).run_ratios()
        store.save_learned(Board(board, published.DEVICE), later, document, ratios)
        for mode, was in before.items():
            found = predictor(store).answer(wanted, mode).prediction
            assert found.time_interval_s == pytest.approx(was.time_interval_s, rel=1e-3)


def test_estimates_are_made_of_the_model_that_is_asked_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take longer than all else; of other models, incomplete ones say nothing anyway."""
    asked: list[str] = []

    def noted(self: BoardData, missing: Sequence[Configuration], board: str) -> None:
        asked.extend(configuration.kind for configuration in missing)

    monkeypatch.setattr(BoardData, "estimates", noted)
    path = without_costs(tmp_path / "without.sqlite", "kind = 'dropout'")
    with open_store(str(path)) as store:
        used = predictor_for(store, None, estimates=True)
        assert not used.answer(model(store, "resnet152", 32), "graph").prediction.missing
        assert not asked, "ResNets have no dropout"
        assert used.answer(model(store, "alexnet", 32), "graph").prediction.missing
    assert set(asked) == {"dropout"}


def test_estimates_that_another_board_learned_are_as_unsure_as_what_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = without_costs(tmp_path / "without.sqlite", "kind = 'conv2d'")

    def predicted() -> Prediction:
        with open_store(str(path)) as store:
            used = predictor_for(store, None, estimates=True)
            found = used.answer(model(store, "resnet152", 32), "graph", used.board("GPU-ea87"))
        assert found.prediction.estimated and found.prediction.energy_j
        return found.prediction

    usual, factors = predicted(), BoardData.factors

    def sure(boards: BoardData, board: str, origin: str) -> Factors:
        found = factors(boards, board, origin)
        assert min(found.time.half_width, found.dynamic_energy.half_width) > 0.01
        alone = (replace(factor, spread=0.0) for factor in (found.time, found.dynamic_energy))
        return Factors(found.base_power, *alone)

    monkeypatch.setattr(BoardData, "factors", sure)
    less = predicted()
    assert (usual.time_s, usual.energy_j) == (less.time_s, less.energy_j)
    assert usual.widths_time[1] > less.widths_time[1]
    assert usual.widths_energy[1] > less.widths_energy[1]


def test_a_predictor_is_of_the_device_named_or_given_else_of_the_chosen_one(store: Store) -> None:
    chosen = choose_device(store, None)
    for device in (None, chosen, chosen.slug):
        assert predictor_for(store, device).device == chosen
    with pytest.raises(UnknownNameError, match="no-such-device"):
        predictor_for(store, "no-such-device")


def test_costs_of_another_setting_do_not_count(store: Store) -> None:
    other = {**DEFAULT_SETTINGS, "tf32_convolution": False}
    chosen = predictor_for(store, None, other, estimates=False)
    found = chosen.answer(model(store, "resnet50", 32), "graph").prediction
    assert {share.configuration.kind for share in found.missing} == {"conv2d"}


def test_answers_hold_every_run_against_its_prediction(store: Store) -> None:
    found = predictor(store).answers([])
    runs = store.model_runs(device=published.DEVICE)
    board_of = {c.id: c.board.uuid for c in store.campaigns(published.DEVICE)}
    ran_on = {(r.mode, r.workload, board_of[r.campaign]) for r in runs if r.mode in PLAIN_MODES}
    assert len(found) == len(ran_on)
    assert all(a.brought == 0 for a in found if a.prediction.workload.name != "gpt2-bare")
    assert all(a.measured and a.attribution_time and a.attribution_energy for a in found)
    some = predictor(store).answers(["resnet50"])
    assert {a.prediction.workload.name for a in some} == {"resnet50"}
    assert predictor(store).answers(["never_measured"]) == []


@pytest.mark.parametrize(
    ("changes", "target", "met"),
    [
        ({}, 1.0, True),
        ({"coverage_time": 0.89}, 0.9, False),
        ({"coverage_energy": 0.89}, 0.9, False),
        ({"coverage_energy": None, "energy_j": None}, 0.9, True),
        ({"time_s": 1.1}, 0.9, True),
        ({"time_s": 1.11}, 0.9, False),
        ({"time_s": 0.89}, 0.9, False),
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
    assert Answer(changed, measured, {}).meets(target) is met


def test_the_device_is_the_one_named_else_the_most_measured(store: Store, tmp_path: Path) -> None:
    assert choose_device(store, published.DEVICE).slug == published.DEVICE
    with pytest.raises(UnknownNameError, match="unknown device 'nvidia-h20'; did you mean"):
        choose_device(store, "nvidia-h20")
    with open_store(str(published.copy_to(tmp_path / "two.sqlite"))) as both:
        both.save_campaign(samples.campaign("c", "a-board", samples.PROCESSOR))
        assert choose_device(both, None).slug == published.DEVICE
        assert choose_device(both, "a-cpu") == samples.PROCESSOR
        answer = predictor_for(both, samples.PROCESSOR).answer(model(both, "resnet50", 1), "eager")
    assert answer.prediction.coverage_calls == 0 and answer.measured is None


def test_an_empty_database_says_what_to_do(tmp_path: Path) -> None:
    with (
        open_store(str(tmp_path / "empty.sqlite")) as store,
        pytest.raises(InputError, match=r"empty\.sqlite holds no measurements; run opdb bench"),
    ):
        choose_device(store, None)


def test_a_mode_that_cannot_be_predicted_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="mode 'trace' cannot be predicted here; use eager, graph"):
        predictor(store).answer(model(store, "resnet50", 1), "trace")


def test_a_model_that_nobody_compiled_says_how(store: Store) -> None:
    with pytest.raises(InputError, match="in float32 are not known: run opdb harvest resnet50"):
        predictor(store).answer(model(store, "resnet50", 1), "compile")


def test_a_compiled_training_step_is_refused(store: Store) -> None:
    step = replace(model(store, "resnet50", 1), phase="training")
    with pytest.raises(InputError, match=r"calls of resnet50 are known only for inference .*; use"):
        predictor(store).answer(step, "compile")


def test_a_model_that_was_compiled_for_other_inputs_says_which(tmp_path: Path) -> None:
    with open_store(str(published.copy_to(tmp_path / "copy.sqlite"))) as store:
        other = model(store, "resnet50", 32)
        store.save_workload(replace(other, compiled_for=published.DEVICE))
        said = "calls of resnet50 on 'nvidia-h200' at batch 1 in float32 are not known, only .*32"
        with pytest.raises(InputError, match=said):
            predictor(store).answer(model(store, "resnet50", 1), "compile")


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
    assert found.widths_time[1] > by.time.half_width, "all calls err alike"
    dynamic_j = found.energy_j - here_w * found.time_s
    assert found.widths_energy[1] > by.dynamic_energy.half_width * dynamic_j / found.energy_j
    assert own.widths_time[1] < found.widths_time[1]


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
    assert none.widths_time[1] >= UNKNOWN_TIME.half_width > 0.017
    share = 1 - base_w * none.time_s / none.energy_j
    assert none.widths_energy[1] >= share * UNKNOWN_DYNAMIC_ENERGY.half_width > 0.09
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


def test_another_boards_host_is_not_taken_for_this_ones(store: Store) -> None:
    """What a call of a kind usually takes on a host is nearer than what this call took on another.

    Board GPU-f89dfe68 had a slow host.
    """
    used = predictor(store)
    board = used.board("GPU-cc8a")
    wanted = model(store, "googlenet", 1)
    found = used.answer(wanted, "eager", board).prediction
    assert found.host_bound and found.time_s is not None
    brought = [n for n in found.notes if "costs are scaled to this board" in n]
    assert any("GPU-f89dfe68" in note for note in brought)
    slow = used.answer(wanted, "eager", used.board("GPU-f89d")).prediction
    assert slow.host_bound and slow.time_s is not None and found.time_s < 0.75 * slow.time_s
    assert any("the usual of its kind taken" in note for note in found.notes)


LESS_POWER = "nvidia-h200-500w"


def limited_for_a_while(path: Path, prefix: str) -> Path:
    """Return a copy of the published database, a board's first campaign under another limit."""
    published.copy_to(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        [[board]] = connection.execute(
            "SELECT DISTINCT board FROM campaign WHERE board LIKE ?", [f"{prefix}%"]
        )
        connection.execute(
            "INSERT INTO device SELECT ?, name, type, 500, memory_bytes, l2_bytes, max_clock_hz "
            "FROM device",
            [LESS_POWER],
        )
        connection.execute("INSERT INTO board VALUES (?, ?)", [board, LESS_POWER])
        connection.execute(
            "UPDATE campaign SET device = ? WHERE id = "
            "(SELECT id FROM campaign WHERE board = ? ORDER BY started_at LIMIT 1)",
            [LESS_POWER, board],
        )
    return path


def test_anchors_under_another_power_limit_bring_nothing_over(tmp_path: Path) -> None:
    """A board of two limits is one of two devices, and a clock that a limit lowered tells of it."""
    path = limited_for_a_while(tmp_path / "limited.sqlite", "GPU-cc8a")
    with open_store(str(path)) as store:
        used = predictor_for(store, published.DEVICE)
        found = used.answer(model(store, "efficientnet_b0", 32), "graph", used.board("GPU-cc8a"))
        [note, *_] = [n for n in found.prediction.notes if "costs are scaled to this board" in n]
    without = changed(
        tmp_path / "without.sqlite",
        "DELETE FROM visit WHERE role = 'anchor' AND campaign = (SELECT id FROM campaign "
        "WHERE board LIKE 'GPU-cc8a%' ORDER BY started_at LIMIT 1)",
    )
    with open_store(str(without)) as store:
        used = predictor(store)
        same = used.answer(model(store, "efficientnet_b0", 32), "graph", used.board("GPU-cc8a"))
    said = note.partition(", base power")[0]
    assert any(each.startswith(said) for each in same.prediction.notes), said


def test_factors_do_not_make_transferred_predictions_worse_at_the_median(store: Store) -> None:
    found = predictor(store).transfers([])
    assert {t.raw.prediction.workload.name for t in found} >= {"resnet50", "vit_b_16"}
    assert len({t.origin for t in found}) > 1

    def median_error(how: str, name: str) -> float:
        ratios: list[float] = [getattr(getattr(t, how), f"attribution_{name}") for t in found]
        return statistics.median(abs(ratio - 1) for ratio in ratios)

    assert median_error("brought", "time") <= median_error("raw", "time") + 0.001
    assert median_error("brought", "energy") < 0.75 * median_error("raw", "energy")


def test_a_transition_of_no_time_was_measured_all_the_same(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "even.sqlite",
        "UPDATE campaign SET calibration = json_set(calibration, '$.transition_s', 0.0) "
        "WHERE json_extract(calibration, '$.transition_s') IS NOT NULL",
    )
    with open_store(str(path)) as store:
        found = predictor(store).answer(model(store, "resnet152", 32), "graph").prediction
    assert "transition times between operators were taken from other boards" in found.notes


def test_sweeps_leave_the_board_of_other_predictions_as_it_is() -> None:
    """Boards that ran whole models alone are none to predict for, whatever their UUIDs."""
    workload = replace(samples.workload(), name="nobody's", calls=())
    found = []
    for path in (published.default_database(), published.all_sets()):
        with open_store(str(path), create=False) as store:
            found.append(predictor_for(store).answer(workload, "eager").prediction.board)
    assert found[0] == found[1]


def test_a_boards_memory_rate_is_its_own_else_the_others_median(store: Store) -> None:
    rates = {
        each.board.uuid: rate
        for each in store.board_calibrations()
        if (rate := each.facts.get("copy_bytes_per_s")) is not None
    }
    snapshot = predictor(store)
    own, lacking = (
        [b for b in snapshot.boards if (b in rates) is known] for known in (True, False)
    )
    assert own and lacking
    assert [snapshot._memory_rate(board) for board in own] == [rates[board] for board in own]
    assert snapshot._memory_rate(lacking[0]) == statistics.median(rates[board] for board in own)
