"""The published sweeps: what they hold, and that all else is as it is without them."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opdb.algorithms.names import ALGORITHMS
from opdb.derive.runs import run_cost
from opdb.predict.predictor import predictor_for
from opdb.records import ALGORITHM_SETTING, Cost, Visit, Workload
from opdb.store import Store, open_store
from tests import published
from tests.cli.conftest import Opdb

SWEEPS = published.SET.with_name("nvidia-h200-sweeps")
ALGORITHMS_BOARDS = ("GPU-cd26d96a", "GPU-3db224f2")
CURVE = published.SET.parent / "apart" / "nvidia-h200-curve"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = published.copy_to(tmp_path_factory.mktemp("sweeps") / "both.sqlite")
    with open_store(str(path)) as store:
        published.import_set(store, SWEEPS)
    return path


def test_convolutions_by_algorithm_have_energies_or_are_refused_by_cudnn(both: Path) -> None:
    """Those of two models at two batch sizes, torch's own beside them on the same board."""
    costs: dict[tuple[str, str], Cost] = {}
    visits: list[Visit] = []
    with open_store(str(both)) as store:
        boards = [b.uuid for b in store.boards() if b.uuid.startswith(ALGORITHMS_BOARDS)]
        for board in boards:
            found = [cost for some in store.costs(board).values() for cost in some]
            costs |= {(cost.configuration, cost.setting): cost for cost in found}
            visits += store.visits(board, role="measurement")
    assert len(boards) == len(ALGORITHMS_BOARDS)
    under: defaultdict[str, set[str]] = defaultdict(set)
    refused = 0
    for visit in visits:
        name = json.loads(visit.setting).get(ALGORITHM_SETTING, "default")
        if visit.outcome == "unsupported":
            refused += 1
            assert "CUDNN_STATUS_NOT_SUPPORTED" in (visit.reason or "")
        else:
            assert costs[visit.configuration, visit.setting].energy_j is not None
        under[name].add(visit.configuration)
    every = set.union(*under.values())
    assert under == dict.fromkeys(ALGORITHMS, every)
    assert (len(every), refused) == (64, 122)


def test_the_curve_is_composed_of_its_operators(opdb: Opdb, tmp_path: Path) -> None:
    """ResNet-50 at five sizes under three algorithms, on one board: as docs/studies.md says."""
    database = str(tmp_path / "curve.sqlite")
    opdb("import", str(CURVE), "--db", database)
    sizes = ("--sizes", "224,296,368,440,512", "--output-dir", str(tmp_path))
    names = ("gemm", "implicit gemm", "implicit precomp gemm")
    asked = [word for name in names for word in ("--algorithm", name)]
    said = opdb("sweep", "resnet50", *sizes, *asked, "--files", "--json", "--db", database)
    document = json.loads(said.out)
    assert {row["state"] for row in document["rows"]} == {"full"}
    for quantity, median, largest in (("time", 0.002, 0.027), ("energy", 0.01, 0.02)):
        errors = document["composed"][quantity]
        assert errors["runs"] == 15
        assert errors["median"] < median and errors["largest"] < largest


def test_runs_by_an_algorithm_are_the_truth_of_predictions_by_it(opdb: Opdb, both: Path) -> None:
    """Unless some convolution ran otherwise, as one of ResNet-50's does by fft."""
    predict = ("predict", "resnet50", "--board", "GPU-0bbaa9b9", "--db", both, "--json")

    def predicted(algorithm: str) -> Any:
        return json.loads(opdb(*predict, "--algorithm", algorithm, "--mode", "graph").out)

    with open_store(str(both)) as store:
        size = [1, 3, 224, 224]
        found = store.workloads("resnet50", batch_size=1, dtype="float32")
        [key] = [w.key for w in found if w.inputs["args"][0]["shape"] == size]
        ran = run_cost(store.model_runs(key, setting={ALGORITHM_SETTING: "implicit gemm"}))
    measured = predicted("implicit gemm")["measured"]
    assert ran is not None and ran.energy_j is not None
    assert (measured["time_s"], measured["energy_j"]) == (ran.time_s.mean, ran.energy_j.mean)
    # The convolutions were benched on another board, and are brought to this one.
    assert measured["attribution_time"] == pytest.approx(1, abs=0.02)
    assert measured["attribution_energy"] == pytest.approx(1, abs=0.03)
    assert predicted("fft")["measured"] is None and predicted("default")["measured"] is None


TRAINING = published.SET.with_name("nvidia-h200-training")
TRAINED = {"resnet50", "vgg16", "mobilenet_v2"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = published.copy_to(tmp_path_factory.mktemp("training") / "both.sqlite")
    with open_store(str(path)) as both:
        published.import_set(both, TRAINING)
        yield both


@pytest.fixture(scope="module")
def steps(store: Store) -> list[Workload]:
    return [workload for workload in store.workloads() if workload.phase == "training"]


def test_twelve_steps_of_three_models_are_predicted_as_the_docs_say(
    store: Store, steps: list[Workload]
) -> None:
    assert {step.name for step in steps} == TRAINED and len(steps) == 12
    found = predictor_for(store, published.DEVICE, estimates=False)
    answers = [found.answer(step, "eager") for step in steps]
    times: list[float] = []
    energies: list[float] = []
    outside = 0
    for answer in answers:
        prediction, measured = answer.prediction, answer.measured
        assert not prediction.missing and measured is not None and measured.energy_j is not None
        for truth, interval, errors, ratio in (
            (measured.time_s, prediction.time_interval_s, times, answer.attribution_time),
            (measured.energy_j, prediction.energy_interval_j, energies, answer.attribution_energy),
        ):
            assert interval is not None
            outside += not interval[0] <= truth.mean <= interval[1]
            assert ratio is not None
            errors.append(abs(ratio - 1))
    assert outside == 1, "the time of one step that waits for its host, just so"
    assert statistics.median(times) < 0.006 and max(times) < 0.23
    assert statistics.median(energies) < 0.006 and max(energies) < 0.06
