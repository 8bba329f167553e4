"""What is counted beside what counters saw; the profiles here are made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import InputError, NothingMeasuredError
from opdb.kinds import KINDS
from opdb.predict.predictor import predictor_for
from opdb.records import Board, Configuration, KernelCounts, Profile, Workload
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import Store, open_store
from opdb.studies.roofline.counted import (
    compare,
    known_profiles,
    lacking,
    launching,
    median_difference,
    take_csv,
)
from opdb.studies.roofline.points import study
from tests import published
from tests.store import samples

DEFINITION = {
    "memory_bytes": {"dram__bytes.sum": 1.0},
    "tf32_flops": {"sm__ops.sum": 1.0},
    "float32_flops": {"sm__inst.sum": 2.0},
}


def made_up(
    configuration: Configuration, board: Board, memory_bytes: float | None, tf32_flops: float = 0.0
) -> Profile:
    return Profile(
        id=f"{configuration.key}-{board.uuid}-{memory_bytes}",
        board=board,
        configuration=configuration.key,
        setting=relevant_setting(configuration.kind, DEFAULT_SETTINGS),
        measured_at="2026-11-21T13:00:00.000+00:00",
        environment={},
        definition=DEFINITION,
        kernels=(
            KernelCounts("one", {"dram__bytes.sum": memory_bytes, "sm__ops.sum": tf32_flops}),
            KernelCounts("two(int)", {"dram__bytes.sum": 0.0, "sm__ops.sum": 0.0}),
        ),
    )


def doubled(workloads: Sequence[Workload], board: Board) -> list[Profile]:
    """Return a profile of each call that works, of twice the bytes counted."""
    found = [
        made_up(c, board, 2.0 * KINDS[c.kind].bytes_moved(c), KINDS[c.kind].flops(c))
        for c in launching(workloads).values()
    ]
    return [
        replace(
            profile,
            kernels=tuple(
                replace(kernel, values={**kernel.values, "sm__inst.sum": 0.0})
                for kernel in profile.kernels
            ),
        )
        for profile in found
    ]


BOARD = Board("GPU-1", samples.DEVICE.slug)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        opened.save_board(samples.DEVICE, BOARD)
        opened.save_workload(samples.workload())
        yield opened


def test_what_a_board_did_not_count_by_these_metrics_is_lacking(store: Store) -> None:
    workloads = store.workloads()
    wanted = lacking(store, workloads, BOARD, DEFINITION)
    assert wanted and set(wanted) == set(launching(workloads).values())
    store.save_profiles([made_up(wanted[0], BOARD, 64.0)])
    assert lacking(store, workloads, BOARD, DEFINITION) == wanted[1:]
    assert lacking(store, workloads, BOARD, {"l2_bytes": {"a__b.sum": 1.0}}) == wanted
    assert lacking(store, workloads, Board("GPU-2", BOARD.device), DEFINITION) == wanted


def test_a_profile_under_other_settings_does_not_count(store: Store) -> None:
    workloads = store.workloads()
    (first, *rest) = lacking(store, workloads, BOARD, DEFINITION)
    other = replace(made_up(first, BOARD, 64.0), setting='{"tf32_convolution":false}')
    store.save_profiles([other])
    assert lacking(store, workloads, BOARD, DEFINITION) == [first, *rest]
    assert known_profiles(store, workloads, BOARD.device) == {}


def test_ones_own_board_goes_before_others(store: Store) -> None:
    other = Board("GPU-2", BOARD.device)
    store.save_board(samples.DEVICE, other)
    first = lacking(store, store.workloads(), BOARD, DEFINITION)[0]
    store.save_profiles([made_up(first, BOARD, 64.0), made_up(first, other, 128.0)])
    for board in (BOARD, other):
        known = known_profiles(store, store.workloads(), BOARD.device, board.uuid)
        assert known[first.key].board == board


def test_the_ratio_is_that_of_memory_to_what_must_move(store: Store) -> None:
    workloads = store.workloads()
    conv = next(c for c in launching(workloads).values() if c.kind == "conv2d")
    counted = KINDS["conv2d"].bytes_moved(conv)
    (found,) = compare(workloads, {conv.key: made_up(conv, BOARD, 0.5 * counted)})
    assert found.bytes_ratio == pytest.approx(0.5) and found.is_far
    assert found.flops_ratio is None  # of one unit a metric was missing
    assert found.kernels == ("one", "two")
    assert median_difference([found]) == pytest.approx(0.5)
    (near,) = compare(workloads, {conv.key: made_up(conv, BOARD, 1.1 * counted)})
    assert not near.is_far
    (unseen,) = compare(workloads, {conv.key: made_up(conv, BOARD, None)})
    assert unseen.bytes_ratio is None and not unseen.is_far
    assert median_difference([unseen]) is None


def test_a_csv_is_taken_in_once(store: Store, tmp_path: Path) -> None:
    from tests.counters.test_report import KEY, RAW

    conv = next(c for c in launching(store.workloads()).values() if c.kind == "conv2d")
    path = tmp_path / "a.csv"
    path.write_text(RAW.replace(KEY, conv.key))
    taken = take_csv(store, path)
    assert (taken.board, taken.profiles, taken.unknown) == (BOARD, 1, 0)
    assert take_csv(store, path).profiles == 0
    (profile,) = store.profiles(BOARD.device)
    assert profile.measured_at == "2026-11-21T13:00:00.000+00:00"
    assert profile.definition["memory_bytes"] == {"dram__bytes.sum": 1.0}
    path.write_text(RAW)
    assert take_csv(store, path).unknown == 1


def test_a_csv_without_a_board_is_refused(store: Store, tmp_path: Path) -> None:
    from tests.counters.test_report import RAW

    path = tmp_path / "a.csv"
    path.write_text(RAW.replace("opdb board", "another board"))
    with pytest.raises(InputError, match="no range in it names the board"):
        take_csv(store, path)


def test_points_take_the_unit_that_did_most() -> None:
    with open_store(str(published.database()), create=False) as store:
        workload = store.workloads("resnet50", batch_size=32, dtype="float32")[0]
        predictor = predictor_for(store, published.DEVICE)
        board = store.boards(published.DEVICE)[0]
        profiles = {p.configuration: p for p in doubled([workload], board)}
        counted = study(store, predictor, [workload], "graph")
        seen = study(store, predictor, [workload], "graph", profiles=profiles)
        none = study(store, predictor, [workload], "graph", profiles={})
    assert not any("hardware counters" in note for note in counted.notes)
    assert none.models[0].points == counted.models[0].points
    assert "operations and bytes of 0 of" in none.notes[0]
    linear = next(p for p in seen.models[0].points if p.configuration.kind == "linear")
    assert linear.unit == "tf32" and linear.metered  # where counting says float32
    assert seen.models[0].bytes_moved == pytest.approx(2 * counted.models[0].bytes_moved)
    assert seen.models[0].flops == pytest.approx(counted.models[0].flops)


def test_nothing_measured_is_an_error_of_its_own(store: Store) -> None:
    predictor = predictor_for(store, BOARD.device)
    with pytest.raises(NothingMeasuredError, match="nothing was measured on 'nvidia-h200'"):
        study(store, predictor, store.workloads(), "graph")
