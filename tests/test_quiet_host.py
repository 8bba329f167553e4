"""Python around a pass's calls counts beside host times that are quiet times, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.derive.quiet import LEAST_BLOCKS
from opdb.predict.board_data import BoardData
from opdb.predict.predictor import predictor_for
from opdb.records import Cost, HostVisit, Workload
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import Store, open_store
from tests import published

QUIET, RANDOM = "GPU-29c25d41", "GPU-55f5ca43"
"""A board whose calls were timed in 50 blocks in the model's order, and one in random order."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(published.database_of("nvidia-h200-generation").read_bytes())
    with open_store(str(path)) as store:
        yield store


def timed_step(store: Store) -> Workload:
    """The static step of Llama-3.2-1B whose time around calls is published."""
    steps = store.workloads("llama-3.2-1b", phase="decode", batch_size=1)
    static = [each for each in steps if "cache_length" in each.inputs["generation"]]
    [found] = [each for each in static if each.around is not None]
    return found


@pytest.mark.parametrize(("board", "counts"), [(QUIET, True), (RANDOM, False)])
def test_a_step_is_predicted_so_for_published_boards(
    store: Store, board: str, counts: bool
) -> None:
    step = timed_step(store)
    around = step.around
    assert around is not None and around > 2 * step.containers

    def eager_s(workload: Workload) -> float:
        predictor = predictor_for(store)
        found = predictor.answer(workload, "eager", predictor.board(board)).prediction
        assert found.host_bound and found.time_s is not None
        return found.time_s

    predictor = predictor_for(store)
    calibration = predictor.calibration(predictor.board(board))
    assert calibration.container_time_s is not None
    more_s = (around - step.containers) * calibration.container_time_s
    longer_s = eager_s(step) - eager_s(replace(step, around=None))
    assert longer_s == pytest.approx(more_s if counts else 0.0)


def test_most_of_a_board_s_host_time_decides(store: Store) -> None:
    step = timed_step(store)
    predictor = predictor_for(store)
    board = predictor.board(RANDOM)
    [campaign, *_] = [c.id for c in store.campaigns() if c.board.uuid == board]

    def is_quiet(costs: Mapping[str, Cost], timed_on: str = board) -> bool:
        data = BoardData(store, predictor.device, DEFAULT_SETTINGS)
        calibration = data.calibration(board)
        return data.inputs_of(step, board, calibration, costs, timed_on=timed_on).quiet_host

    costs = predictor.costs_on(board, list(step.occurrences()))
    assert not is_quiet(costs) and not is_quiet({}), "the board's usual times are no others"
    assert is_quiet(costs, timed_on=predictor.board(QUIET))
    assert is_quiet({}, timed_on=predictor.board(QUIET))
    calls = list({(c.configuration.key, c.form): c for c in step.calls})
    blocks = (1e-6,) * LEAST_BLOCKS
    visits = [
        HostVisit(f"quiet-{n}", campaign, key, form, "2026-11-26T00:00:00Z", blocks)
        for n, (key, form) in enumerate(calls)
    ]
    store.save_host_visits(visits[:1])
    assert not is_quiet(costs), "one call of many"
    assert is_quiet({}), "the usual times are the latest"
    store.save_host_visits(visits[1:])
    assert is_quiet(costs)
