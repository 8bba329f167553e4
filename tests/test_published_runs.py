"""Every published run is held against its prediction; means stay what they were."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from opdb.api.model_status import model_status
from opdb.predict import PLAIN_MODES
from opdb.records import Json
from opdb.store import open_store
from opdb.store.opening import import_published
from tests import published, shared
from tests.cli.conftest import Opdb, opdb
from tests.paths import ROOT

__all__ = ["opdb"]

OTHER = "nvidia-h100-80gb-hbm3"
MEANS = Path(__file__).parent / "data" / "validated_means.json"
"""Predicted and measured means (time, energy) of one run a workload and mode, each by its name:
that of the board that measured most of its operators."""

NAMED_BY = (
    *("model", "source", "batch_size", "dtype", "memory_format", "input_size"),
    *("phase", "autocast", "optimizer", "accumulation", "mode", "board"),
)


THEN = ("nvidia-h200", "nvidia-h200-modes", "nvidia-h200-training")


@pytest.fixture
def found(opdb: Opdb) -> Json:
    """What validate says of the default database, which one test lets it say for all."""

    def make(path: Path) -> None:
        ran = opdb("validate", "--json", "--db", str(published.default_database()))
        assert ran.status == 0, ran.err
        path.write_text(ran.out)

    return json.loads(shared.made_once("validated.json", make).read_text())


def test_every_run_of_every_board_is_held_against_its_prediction(found: Json) -> None:
    with open_store(str(published.default_database())) as store:
        board_of = {c.id: c.board.uuid for c in store.campaigns(published.DEVICE)}
        ran_on = {
            (run.workload, run.mode, board_of[run.campaign])
            for run in store.model_runs(device=published.DEVICE, setting={})
            if run.outcome == "ok" and run.mode in PLAIN_MODES
        }
    rows = found["rows"] + found["incomplete"]
    assert len([row for row in rows if row["mode"] in PLAIN_MODES]) == len(ran_on)


def test_means_of_one_board_a_workload_stay_bit_for_bit(opdb: Opdb) -> None:
    """In a database of the sets that were published then: a later board's transitions count."""
    path = published.database_of(*THEN)
    ran = opdb("validate", "--json", "--db", str(path))
    assert ran.status == 0, ran.err
    rows = json.loads(ran.out)["rows"]
    means = {
        " ".join(str(row[name]) for name in NAMED_BY): [
            row[f"{how}_{what}"]
            for what in ("time_s", "energy_j")
            for how in ("predicted", "measured")
        ]
        for row in rows
    }
    before = json.loads(MEANS.read_text())
    assert len(before) == 170 and len(means) == len(rows) == 261
    assert {name: means[name] for name in before} == before


def test_intervals_hold_about_as_often_as_they_say_in_each_regime(found: Json) -> None:
    """Each rests on other models alone; neither too few are held nor are they absurdly wide."""
    own = [regime for regime in found["regimes"] if regime["operators"] == "own"]
    assert len(own) == 8
    for regime in own:
        for measure in ("time", "energy"):
            errors = regime[measure]
            missed = errors["count"] * (1 - errors["inside_interval"])
            assert missed <= 1 + 0.1 * errors["count"], (regime["mode"], regime["batch"], measure)
            assert errors["median_half_width"] < 0.3
    for measure in ("time", "energy"):
        held = sum(r[measure]["count"] * r[measure]["inside_interval"] for r in own)
        assert held / sum(r[measure]["count"] for r in own) > 0.95


def test_the_tables_of_documents_are_what_validate_says(found: Json) -> None:
    root = published.SET.parents[1]
    readme, accuracy = (root / "README.md").read_text(), (root / "docs/accuracy.md").read_text()
    regimes = {
        (r["operators"], r["mode"], r["batch"]): (r["runs"], _cells(r["time"]), _cells(r["energy"]))
        for r in found["regimes"]
    }
    told = {}
    for operators, text, heading in (
        ("own", readme, "**The board measured"),
        ("borrowed", accuracy, "**Other boards'"),
    ):
        table = text[text.index(heading) :].split("\n\n")[1]
        for line in table.splitlines()[2:]:
            mode, batch, runs, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            told[operators, mode, batch] = int(runs), tuple(cells[:3]), tuple(cells[3:])
    assert told == regimes


def test_documents_count_the_runs_whose_intervals_hold(found: Json) -> None:
    held = {
        operators: [
            sum(r[measure]["count"] * r[measure]["inside_interval"] for r in of_them)
            for measure in ("time", "energy")
        ]
        for operators in ("own", "borrowed")
        if (of_them := [r for r in found["regimes"] if r["operators"] == operators])
    }
    count = Counter(r["operators"] for r in found["regimes"] for _ in range(r["runs"]))
    times, energies = (f"{round(value)}" for value in held["own"])
    runs = count["own"]
    own = f"{runs} runs; the intervals hold {times} times and {energies} energies"
    in_faq = f"contained {times} of {runs} times and {energies} of {runs} energies"
    in_measuring = f"held {times} of the {runs} times and {energies} of the energies"
    times, energies = (f"{round(value)}" for value in held["borrowed"])
    borrowed = (
        f"There are {count['borrowed']} such runs; the intervals hold {times} times and {energies}"
    )
    root = published.SET.parents[1]
    readme, accuracy, faq, measuring = (
        " ".join((root / name).read_text().split())
        for name in ("README.md", "docs/accuracy.md", "docs/faq.md", "docs/measuring.md")
    )
    assert own in readme and own in accuracy and borrowed in accuracy
    assert in_faq in faq and in_measuring in measuring
    assert f"[{count.total()} measured runs]" in readme
    boards = len({row["board"] for row in found["rows"]})
    assert (
        f"{count.total()} runs (a run is one workload in one mode on one board) on {boards}"
        in readme
    )
    assert f"prediction: {len(found['rows'])} runs" in readme
    assert f"{len(found['rows'])} measured runs" in readme
    assert f"{found['uneven']['runs']} runs are flagged" in accuracy


def _cells(errors: Json) -> tuple[str, ...]:
    shown = [f"{100 * errors[name]:.1f} %" for name in ("median", "percentile_95", "largest")]
    held, width = errors["inside_interval"], errors["median_half_width"]
    return ", ".join(shown), f"{100 * held:.1f} %", f"± {100 * width:.1f} %"


def test_the_readme_says_how_much_is_measured(tmp_path: Path) -> None:
    """The sets of the second device name further workloads, of which the first has operators."""
    usual = published.default_database()
    both = Path(shutil.copy(usual, tmp_path / "both.sqlite"))
    with open_store(str(both)) as store:
        import_published(store, device=OTHER)
    readme = " ".join((ROOT / "README.md").read_text().split())
    for device, path, said in (
        (published.DEVICE, usual, "energy of"),
        (OTHER, both, "the H100 it holds"),
    ):
        models = model_status(device=device, db=str(path)).models
        workloads, known = sum(each.measured for each in models), [m for m in models if m.measured]
        assert f"{said} {workloads} workloads of {len(known)} models" in readme
