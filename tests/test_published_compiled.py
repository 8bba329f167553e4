"""The published compiled models: their predictions, as the docs tell them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Set
from pathlib import Path

import pytest

from opdb.bench.model import OUTRUN
from opdb.derive.runs import AGREEMENT, HOSTS_AGREEMENT, agreeing, repeat_spread
from opdb.predict.predictor import predictor_for
from opdb.records import Mode
from opdb.store import open_store
from opdb.studies.modes import MODES, ModeRow, stored_rows
from tests import published
from tests.cli.conftest import Opdb

KERNELS = {
    "bert-base-uncased": 207,
    "convnext_tiny": 129,
    "efficientnet_b0": 183,
    "mobilenet_v3_large": 142,
    "resnet18": 66,
    "resnet50": 131,
    "swin_t": 208,
    "vit_b_16": 178,
}
REPLAYED = KERNELS.keys() - {"efficientnet_b0", "resnet18", "swin_t"}


@pytest.fixture(scope="module")
def path() -> Path:
    return published.compiled_models()


@pytest.mark.parametrize(
    ("mode", "models", "time", "energy"),
    [
        ("compile", KERNELS.keys(), (0.017, 0.262), (0.046, 0.119)),
        ("compile:reduce-overhead", REPLAYED, (0.018, 0.032), (0.023, 0.062)),
    ],
)
def test_predictions_are_as_far_off_as_the_docs_say(
    opdb: Opdb,
    path: Path,
    mode: str,
    models: Set[str],
    time: tuple[float, float],
    energy: tuple[float, float],
) -> None:
    """Each by its median and its largest error."""
    found = opdb.json("validate", "--mode", mode, "--db", str(path))
    assert not found["incomplete"]
    assert {row["model"] for row in found["rows"]} == models
    assert sum(not row["inside_interval_time"] for row in found["rows"]) <= 1
    assert sum(not row["inside_interval_energy"] for row in found["rows"]) <= 1
    # What the other published sets tell of launches moves them by a tenth of a per cent.
    for quantity, expected in (("time", time), ("energy", energy)):
        summary = found["summary"][quantity]
        assert (summary["median"], summary["largest"]) == pytest.approx(expected, abs=1e-3)


def test_passes_launch_the_kernels_of_their_groups_exactly(opdb: Opdb, path: Path) -> None:
    """But for the one convolution of two models: groups were not told yet where it lies."""
    rows = opdb.json("validate", "--kernels", "--db", str(path))["kernels"]
    assert {row["model"]: row["launched"] for row in rows} == KERNELS
    assert len(rows) == 13
    assert {row["model"] for row in rows if not row["agree"]} == {"swin_t", "vit_b_16"}


GRAPHS = {
    "efficientnet_b0": (1.043, 1.001),
    "mobilenet_v3_large": (1.052, 1.013),
    "swin_t": (1.000, 0.992),
}
"""Predicted over measured time and energy."""


def test_graphs_are_predicted_as_the_docs_say(opdb: Opdb, tmp_path: Path) -> None:
    path = tmp_path / "reused.sqlite"
    with open_store(str(path)) as store:
        published.import_set(store, published.SET.parent / "apart" / "nvidia-h200-reused")
        seen = {v.outputs for board in store.boards() for v in store.visits(board.uuid)}
    assert seen == {"reused"}
    rows = {
        row["model"]: row
        for row in opdb.json("validate", "--mode", "graph", "--db", str(path))["rows"]
    }
    assert rows.keys() == GRAPHS.keys()
    for model, (time, energy) in GRAPHS.items():
        row = rows[model]
        time_s, energy_j = row["predicted_time_s"]["value"], row["predicted_energy_j"]["value"]
        assert time_s / row["measured_time_s"] == pytest.approx(time, abs=1e-3)
        assert energy_j / row["measured_energy_j"] == pytest.approx(energy, abs=1e-3)


TUNED: Mode = "compile:max-autotune"


@pytest.fixture(scope="module")
def modes_path() -> Path:
    return published.modes()


@pytest.fixture(scope="module")
def stored(modes_path: Path) -> list[ModeRow]:
    with open_store(str(modes_path)) as store:
        predictor = predictor_for(store, published.DEVICE)
        return stored_rows(store, predictor, [], [])


@pytest.fixture(scope="module")
def rows(stored: list[ModeRow]) -> list[ModeRow]:
    """What the boards hold that measured the operators, too, and not the mode that tunes."""
    tuned = {row.board for row in stored if row.mode == TUNED}
    return [row for row in stored if row.board not in tuned]


def test_the_operators_sum_is_close_to_a_cuda_graph(rows: list[ModeRow]) -> None:
    graphs = [row for row in rows if row.mode == "graph" and row.cost is not None]
    assert len(graphs) == 24 and all(row.coverage_time == 1 for row in graphs)
    found = MODES.documents(graphs)
    times = [abs(row["saving_time_of_operators"]) for row in found]
    energies = [abs(row["saving_energy_of_operators"]) for row in found]
    assert statistics.median(times) < 0.008 and max(times) < 0.09
    assert statistics.median(energies) < 0.0115 and max(energies) < 0.06


def test_runs_launch_exactly_the_kernels_of_their_operators(opdb: Opdb, modes_path: Path) -> None:
    ran = opdb("validate", "--kernels", "--db", str(modes_path))
    assert ran.status == 0, ran.err
    assert ran.out.endswith("exactly the kernels of their operators: 61 of 61\n")


def test_repeats_agree_as_the_docs_say_and_those_that_do_not_are_flagged(
    stored: list[ModeRow],
) -> None:
    agree: Counter[tuple[bool, bool]] = Counter()
    for row in stored:
        if row.cost is None:
            continue
        by_host = row.run.facts["outrun_share"] >= OUTRUN
        bound = HOSTS_AGREEMENT if by_host else AGREEMENT
        close = repeat_spread(agreeing(row.run.repeats)) <= bound
        assert close != any(flag.startswith("no three repeats agree") for flag in row.run.flags)
        agree[by_host, close] += 1
    assert agree == {(False, True): 83, (False, False): 1, (True, True): 78, (True, False): 15}


def test_kernels_of_inductor_in_cuda_graphs_save_most(rows: list[ModeRow]) -> None:
    good = [r for r in rows if r.mode == "compile:reduce-overhead" and r.cost is not None]
    saved = {(row["model"], row["batch_size"]): row for row in map(MODES.document, good)}
    for (model, size), (time, energy) in {
        ("resnet50", 1): (0.82, 0.71),
        ("resnet50", 32): (0.51, 0.41),
        ("bert-base-uncased", 1): (0.63, 0.42),
        ("bert-base-uncased", 32): (0.06, 0.14),
        ("vit", 1): (0.41, 0.22),
        ("vit", 32): (0.03, 0.02),
        ("align", 1): (0.64, 0.40),
        ("align", 32): (0.10, 0.19),
    }.items():
        assert saved[model, size]["saving_time"] == pytest.approx(time, abs=0.006)
        assert saved[model, size]["saving_energy"] == pytest.approx(energy, abs=0.006)
