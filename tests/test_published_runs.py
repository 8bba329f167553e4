"""Every published run is held against its prediction; means stay what they were."""

from __future__ import annotations

import json
import shutil
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.commands.predict import Conditions
from opdb.commands.show import show
from opdb.commands.validate import MEASURES
from opdb.predict.predictor import PLAIN_MODES, Answer, predictor_for
from opdb.records import Json
from opdb.store import open_store
from opdb.store.opening import import_published
from tests import published, shared
from tests.cli.conftest import Opdb
from tests.paths import ROOT

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


@pytest.fixture
def everything(opdb: Opdb) -> Json:
    """What validate says of all that was ever published of the device, the sets apart included."""

    def make(path: Path) -> None:
        ran = opdb("validate", "--json", "--db", str(published.with_apart()))
        assert ran.status == 0, ran.err
        path.write_text(ran.out)

    return json.loads(shared.made_once("validated_apart.json", make).read_text())


def test_means_of_one_board_a_workload_stay_bit_for_bit(opdb: Opdb) -> None:
    """In a database of the sets that were published then: a later board's transitions count."""
    path = published.database_of(*THEN)
    rows = opdb.read("validate", "--db", path)["rows"]
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


@pytest.mark.slow
def test_intervals_hold_where_no_anchor_tells_how_boards_differ(everything: Json) -> None:
    """Graphs of boards that ran whole models and measured no operator: 24 of 39 energies were
    inside while their intervals took no notice of it, with half widths of 5.6 % at the median."""
    with open_store(str(published.with_apart())) as store:
        has_anchors = {
            board.uuid: any(True for _ in store.visits(board.uuid, role="anchor"))
            for board in store.boards(published.DEVICE)
        }
    borrowed = [r for r in everything["rows"] if r["brought"] and r["mode"] == "graph"]
    for anchored, runs, times, energies, widest in (
        (True, 77, 73, 75, 0.08),
        (False, 39, 37, 36, 0.12),
    ):
        rows = [row for row in borrowed if has_anchors[row["board"]] is anchored]
        assert len(rows) == runs
        assert sum(row["inside_interval_time"] for row in rows) >= times
        assert sum(row["inside_interval_energy"] for row in rows) >= energies
        reach = [
            (energy["high"] - energy["low"]) / 2 / energy["value"]
            for energy in (row["predicted_energy_j"] for row in rows)
        ]
        assert statistics.median(reach) < widest


@pytest.mark.slow
def test_the_tables_of_documents_are_what_validate_says(everything: Json) -> None:
    root = published.SET.parents[1]
    readme, accuracy = (root / "README.md").read_text(), (root / "docs/accuracy.md").read_text()
    regimes = {
        (r["operators"], r["mode"], r["batch"]): (r["runs"], _cells(r["time"]), _cells(r["energy"]))
        for r in everything["regimes"]
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


@pytest.mark.slow
def test_documents_count_the_runs_whose_intervals_hold(found: Json, everything: Json) -> None:
    held = {
        operators: [
            sum(r[measure]["count"] * r[measure]["inside_interval"] for r in of_them)
            for measure in ("time", "energy")
        ]
        for operators in ("own", "borrowed")
        if (of_them := [r for r in everything["regimes"] if r["operators"] == operators])
    }
    count = Counter(r["operators"] for r in everything["regimes"] for _ in range(r["runs"]))
    times, energies = (f"{round(value)}" for value in held["own"])
    runs = count["own"]
    own = f"{runs} runs; the intervals hold {times} times and {energies} energies"
    in_measuring = f"held {times} of the {runs} times and {energies} of the energies"
    times, energies = (f"{round(value)}" for value in held["borrowed"])
    borrowed = (
        f"There are {count['borrowed']} such runs; the intervals hold {times} times and {energies}"
    )
    root = published.SET.parents[1]
    readme, accuracy, measuring = (
        " ".join((root / name).read_text().split())
        for name in ("README.md", "docs/accuracy.md", "docs/measuring.md")
    )
    assert own in readme and own in accuracy and borrowed in accuracy
    assert in_measuring in measuring
    assert f"[{count.total()} measured runs]" in readme
    boards = len({row["board"] for row in everything["rows"]})
    assert (
        f"{count.total()} runs (a run is one workload in one mode on one board) on {boards}"
        in readme
    )
    assert f"prediction: {len(everything['rows'])} runs" in readme
    assert f"{len(everything['rows'])} measured runs" in readme
    assert f"{everything['uneven']['runs']} runs are flagged" in accuracy
    assert f"[docs/accuracy.md](docs/accuracy.md) has the {count['borrowed']} runs" in readme
    shares = [f"{100 * everything['summary'][m]['inside_interval']:.1f} %" for m in MEASURES]
    assert f"the intervals hold {shares[0]} of the times and {shares[1]} of the energies" in readme
    for name, those in (
        ("all", everything["rows"]),
        ("without the three generations", [r for r in everything["rows"] if not _generates(r)]),
        ("the default database alone", found["rows"]),
    ):
        inside = [sum(row[f"inside_interval_{m}"] for row in those) for m in MEASURES]
        cells = [f"{n} ({100 * n / len(those):.1f} %)" for n in inside]
        assert f"| {name} | {len(those)} | {cells[0]} | {cells[1]} |" in accuracy


def _generates(row: Json) -> bool:
    return bool(row["phase"] == "generate")


def _cells(errors: Json) -> tuple[str, ...]:
    shown = [f"{100 * errors[name]:.1f} %" for name in ("median", "percentile_95", "largest")]
    held, width = errors["inside_interval"], errors["median_half_width"]
    return ", ".join(shown), f"{100 * held:.1f} %", f"± {100 * width:.1f} %"


@pytest.mark.slow
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
        found = show("measured", conditions=Conditions(device), db=str(path)).rows()
        counts = [each["measured_workloads"] for each in found if each["measured_workloads"]]
        assert f"{said} {sum(counts)} workloads of {len(counts)} models" in readme


FILE = Path(__file__).parent / "data" / "published_predictions.json"


def documents() -> Iterator[tuple[str, Json]]:
    """Yield the prediction of every workload in every mode, under a name of its own."""
    with open_store(str(published.database())) as store:
        predictor = predictor_for(store, published.DEVICE)
        for workload in store.workloads():
            for mode in PLAIN_MODES:
                name = f"{workload.name} {workload.key[:12]} {mode}"
                yield name, document(predictor.answer(workload, mode))


def document(answer: Answer) -> Json:
    """Return what of an answer must not change unnoticed."""
    found = answer.prediction
    return {
        "board": found.board,
        "time_s": found.time_s,
        "time_interval_s": list(found.time_interval_s or ()),
        "energy_j": found.energy_j,
        "energy_interval_j": list(found.energy_interval_j or ()),
        "coverage": [found.coverage_calls, found.coverage_time, found.coverage_energy],
        "missing": len(found.missing),
        "host_bound": found.host_bound,
        "attribution": [answer.attribution_time, answer.attribution_energy],
    }


def test_predictions_from_the_published_set_stay() -> None:
    """After a change that is meant to change them: `python -m tests.test_published_runs`."""
    expected, found = json.loads(FILE.read_text()), dict(documents())
    assert found.keys() == expected.keys()
    for name, was in expected.items():
        for key, value in was.items():
            now = found[name][key]
            pairs = zip(value, now, strict=True) if isinstance(value, list) else [(value, now)]
            for before, after in pairs:
                if isinstance(before, float):
                    assert after == pytest.approx(before, rel=1e-9), (name, key)
                else:
                    assert after == before, (name, key)


def write() -> None:
    FILE.write_text(json.dumps(dict(documents()), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
