"""The runs of a matrix, and what is known of each from what is stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from opdb.errors import UnknownNameError
from opdb.runs import DriverOptions, RunTable
from opdb.store import RunState
from opdb.studies.train.file import Combination
from opdb.studies.train.rows import BackendDevice, MatrixPolicy, TrainingSpec, cells_of, labelled
from tests.matrix.made import HERE, cell, state

SLUG = HERE.device


def test_what_two_backends_mean_is_one_run() -> None:
    combinations = [Combination("mlp", backend=name) for name in ("auto", "cpu", "cuda")]
    gone = BackendDevice("cuda", why_not="no GPU")
    found = cells_of(combinations, {"auto": HERE, "cpu": HERE, "cuda": gone})
    assert [each.label for each in found] == ["mlp-b1-fp32-cpu", "mlp-b1-fp32-cuda"]
    assert [each.why_not for each in found] == [None, "no GPU"]


def table(runs: Sequence[RunState], claimed: Collection[str] = ()) -> RunTable[TrainingSpec]:
    return RunTable(MatrixPolicy((SLUG,)), runs, claimed)


def test_what_cannot_run_here_is_told_unless_it_has_run() -> None:
    amp = cell(precision="amp")
    assert amp.why_not == "no amp in this test"
    assert table([]).state(amp) == "not here"
    assert table([]).pending([amp, cell()]) == [cell()]


def test_a_run_that_only_borrows_the_label_is_not_taken_for_it() -> None:
    longer = state(facts={**state().facts, "iters": 500})
    otherwise = state(setting={"deterministic": True})
    assert table([longer, otherwise]).state(cell()) == "left"
    strict = cell(options=DriverOptions(deterministic=True))
    named = state(setting={"deterministic": True}, facts={**state().facts, "label": strict.label})
    assert table([named]).state(strict) == "done"
    assert table([state(device="another-device")]).state(cell()) == "left"


def test_labels_choose() -> None:
    cells = [cell(), cell(batch_size=8)]
    assert labelled(cells, []) == cells
    assert labelled(cells, ["mlp-b8-fp32-cpu"]) == cells[1:]
    with pytest.raises(UnknownNameError, match="did you mean 'mlp-b8-fp32-cpu'"):
        labelled(cells, ["mlp-b9-fp32-cpu"])
