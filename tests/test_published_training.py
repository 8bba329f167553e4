"""The published training steps: how right their predictions are, and estimates from them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest

from opdb.harvest.passes import harvest
from opdb.predict.predictor import Predictor, predictor_for
from opdb.records import Workload
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from opdb.store.exchange import import_set
from tests import published

TRAINING = published.SET.with_name("nvidia-h200-training")
MODELS = {"resnet50", "vgg16", "mobilenet_v2"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database that holds the published operators and then the training steps."""
    path = published.copy_to(tmp_path_factory.mktemp("training") / "both.sqlite")
    with open_store(str(path)) as both:
        import_set(both, TRAINING)
        yield both


@pytest.fixture(scope="module")
def steps(store: Store) -> list[Workload]:
    return [workload for workload in store.workloads() if workload.phase == "training"]


def predictor(store: Store, *, estimates: bool = False) -> Predictor:
    return predictor_for(store, published.DEVICE, estimates=estimates)


def test_twelve_steps_of_three_models_are_predicted_as_the_docs_say(
    store: Store, steps: list[Workload]
) -> None:
    assert {step.name for step in steps} == MODELS and len(steps) == 12
    found = predictor(store)
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


def test_a_batch_size_between_those_measured_is_estimated_between_them(
    store: Store, steps: list[Workload]
) -> None:
    """Of MobileNetV2 in fp32, whose step takes nearly as long an image at batch 32 as at 128."""
    [small, large] = sorted(
        (step for step in steps if step.name == "mobilenet_v2" and step.autocast is None),
        key=lambda step: step.batch_size,
    )
    asked = harvest(ModelSpec("mobilenet_v2", phase="training", batch_size=64))
    found = predictor(store, estimates=True)
    below, above = (found.answer(each, "eager").measured for each in (small, large))
    assert below and above and below.energy_j and above.energy_j
    prediction = found.answer(asked, "eager").prediction
    assert not prediction.missing and prediction.time_s and prediction.energy_j
    between_s = below.time_s.mean + (above.time_s.mean - below.time_s.mean) / 3
    between_j = below.energy_j.mean + (above.energy_j.mean - below.energy_j.mean) / 3
    assert prediction.time_s == pytest.approx(between_s, rel=0.05)
    assert prediction.energy_j == pytest.approx(between_j, rel=0.05)
    # What was learned is of another board: it is brought to this one.
    [alone] = [b.uuid for b in store.boards() if b.uuid.startswith("GPU-cc8a7e62")]
    elsewhere = found.answer(asked, "eager", alone).prediction
    assert elsewhere.board == alone and not elsewhere.missing
    assert elsewhere.time_s == pytest.approx(prediction.time_s, rel=0.05)
