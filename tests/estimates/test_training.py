"""Learning from the published costs of a real GPU, and what is said of calls that it never saw."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace

import pytest

from opdb.errors import InputError
from opdb.estimates.estimator import Estimator, from_document, to_document
from opdb.estimates.features import features
from opdb.estimates.training import Example, train
from opdb.records import Configuration, Quantity
from opdb.records.cost import OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE
from opdb.store import Store, open_store
from tests.published import database

KINDS = ("relu", "add", "linear", "batch_norm", "flatten")


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    """What one board knows of some kinds; the models are those that ran there and use each."""
    with open_store(str(database())) as store:
        return _examples(store)


def _examples(store: Store) -> list[Example]:
    boards = (board.uuid for board in store.boards("nvidia-h200"))
    board = max(boards, key=lambda uuid: len(store.model_runs(board=uuid)))
    users: dict[str, set[str]] = {}
    for workload in store.workloads_by_key({r.workload for r in store.model_runs(board=board)}):
        for configuration in workload.occurrences():
            users.setdefault(configuration.key, set()).add(workload.name)
    costs = store.costs(board)
    return [
        Example(c, costs[c.key][0], frozenset(users.get(c.key, ())))
        for c in store.configurations(KINDS)
        if c.key in costs
    ]


def learned(examples: list[Example]) -> Estimator:
    return train(examples, device="nvidia-h200", board="some board", trained_at="2026-11-21")


@pytest.fixture(scope="module")
def estimator(examples: list[Example]) -> Estimator:
    return learned(examples)


def like(example: Example, **changes: int) -> Configuration:
    """Return an example's configuration with a first dimension of another size."""
    configuration = example.configuration
    spec = dict(configuration.inputs["input"])
    spec["shape"] = [changes["batch"], *spec["shape"][1:]]
    return replace(configuration, inputs={**configuration.inputs, "input": spec})


def test_what_was_measured_is_estimated_as_measured(
    estimator: Estimator, examples: list[Example]
) -> None:
    asked = [e for e in examples if e.configuration.kind != "flatten" and e.cost.kernels]
    found = estimator.estimate(e.configuration for e in asked)
    assert not found.refused
    apart, inside = [], 0
    for example in asked:
        time, truth = found.costs[example.configuration.key].time_s, example.cost.time_s
        assert time is not None and truth is not None
        assert time.low is not None and time.high is not None
        apart.append(abs(math.log(time.mean / truth.mean)))
        inside += time.low <= truth.mean <= time.high
    assert sorted(apart)[len(apart) // 2] < 0.05
    assert inside > 0.95 * len(asked)


@pytest.mark.slow
def test_a_model_that_was_left_out_is_estimated_within_its_intervals(
    examples: list[Example],
) -> None:
    left = {e.configuration: e for e in examples if e.models == {"bert_base"} and e.cost.kernels}
    rest = [e for e in examples if e.configuration not in left]
    found = learned(rest).estimate(left)
    assert len(found.costs) + len(found.refused) == len(left) > 20
    held = [(found.costs[c.key], e.cost) for c, e in left.items() if c.key in found.costs]
    assert len(held) > 0.7 * len(left)
    inside = [
        one.time_s.low <= other.time_s.mean <= one.time_s.high
        for one, other in held
        if one.time_s and other.time_s and one.time_s.low and one.time_s.high
    ]
    assert len(inside) == len(held) and sum(inside) >= 0.8 * len(inside)


def test_intervals_widen_with_the_distance_and_far_off_is_refused(
    estimator: Estimator, examples: list[Example]
) -> None:
    relus = [e for e in examples if e.configuration.kind == "relu"]
    last = max(relus, key=lambda e: e.configuration.inputs["input"]["shape"])
    widths = []
    for batch in (last.configuration.inputs["input"]["shape"][0], 700, 4000, 100_000_000):
        asked = like(last, batch=batch)
        found = estimator.estimate([asked], alike_only=True)
        if asked.key in found.refused:
            assert "like it" in found.refused[asked.key]
            widths.append(math.inf)
        else:
            time = found.costs[asked.key].time_s
            assert time is not None and time.low is not None and time.high is not None
            widths.append(time.high / time.low)
    assert widths == sorted(widths) and widths[0] < 2 < widths[-2] and widths[-1] == math.inf


def test_what_nothing_like_it_was_measured_is_refused(estimator: Estimator) -> None:
    spec = {"shape": [8, 8], "dtype": "float32"}
    wide = {"shape": [8, 8], "dtype": "float64"}
    weight = {**wide, "role": "weight"}
    asked = {
        Configuration("softmax", {"dim": 1}, {"input": spec}): "no softmax was measured",
        Configuration("linear", {}, {"input": wide, "weight": weight}): "measured in float64",
        Configuration("relu", {}, {"input": spec}, pass_name="backward"): "too few memory backward",
        Configuration("relu", {}, {"input": spec}, autocast="bfloat16"): "under autocast",
        Configuration("sgd", {}, {"params": []}, pass_name="update"): "forward and backward",
        Configuration("convolve", {}, {"input": spec}): "no kind 'convolve'",
    }
    found = estimator.estimate(asked, alike_only=True)
    assert not found.costs
    for configuration, said in asked.items():
        assert said in found.refused[configuration.key]


def test_a_view_costs_the_device_nothing_and_that_is_sure(estimator: Estimator) -> None:
    view = Configuration("flatten", {}, {"input": {"shape": [3, 5, 7], "dtype": "float32"}})
    cost = estimator.estimate([view]).costs[view.key]
    assert cost.time_s == cost.dynamic_energy_j == Quantity(0.0, 0.0, 0.0, 0.0, 0)
    assert cost.kernels == 0 and cost.host_time_s  # the host issues it all the same


def test_errors_of_like_calls_add_up_and_of_unlike_ones_less(
    estimator: Estimator, examples: list[Example]
) -> None:
    relu = max(
        (e for e in examples if e.configuration.kind == "relu"),
        key=lambda e: e.configuration.inputs["input"]["shape"],
    )
    linear = next(e for e in examples if e.configuration.kind == "linear")
    one, twin, other = like(relu, batch=48), like(relu, batch=50), like(linear, batch=24)
    found = estimator.estimate([one, twin, other])

    def width(*asked: Configuration) -> float:
        alike = {c.key: 1 / seconds(c) for c in asked}
        return math.sqrt(math.fsum(block.moments(alike)[1] for block in found.blocks))

    def seconds(c: Configuration) -> float:
        time = found.costs[c.key].time_s
        assert time is not None
        return time.mean

    assert width(one, twin) > 0.7 * (width(one) + width(twin))
    assert width(one, other) == pytest.approx(math.hypot(width(one), width(other)))
    time_width, energy_width = found.half_widths({one.key: 2.0}, 100.0)
    assert time_width == pytest.approx(2 * found.half_widths({one.key: 1.0}, 100.0)[0])
    assert energy_width is not None and energy_width > 100.0 * time_width / 2


def test_an_eager_call_is_estimated_longer_by_what_its_kind_usually_takes_longer(
    estimator: Estimator, examples: list[Example]
) -> None:
    relus = [e for e in examples if e.configuration.title == "relu"]
    longer_s = [
        e.cost.eager_time_s.mean - e.cost.time_s.mean
        for e in relus
        if e.cost.eager_time_s and e.cost.time_s
    ]
    assert len(longer_s) > 10 and statistics.median(longer_s) > 1e-7
    asked = like(relus[0], batch=48)
    cost = estimator.estimate([asked]).costs[asked.key]
    assert cost.time_s is not None and cost.eager_time_s is not None
    assert cost.eager_time_s.mean - cost.time_s.mean == pytest.approx(statistics.median(longer_s))


def test_an_energy_errs_as_its_time_and_its_power_do(
    estimator: Estimator, examples: list[Example]
) -> None:
    learned_of = estimator.families["memory"]
    asked = like(next(e for e in examples if e.configuration.title == "relu"), batch=48)
    found = estimator.estimate([asked])
    cost = found.costs[asked.key]
    place = [learned_of.scaled(features(asked))]
    assert learned_of.power is not None and learned_of.reach.energy is not None
    power_variance = float(learned_of.power.at(place)[1][0, 0])
    time_variance = float(learned_of.time.at(place)[1][0, 0])
    assert power_variance > 0.01 * time_variance > 0
    deviation = math.sqrt(time_variance + power_variance)
    assert log_half_width(cost.time_s) == pytest.approx(
        learned_of.reach.time * math.sqrt(time_variance)
    )
    assert log_half_width(cost.dynamic_energy_j) == pytest.approx(
        learned_of.reach.energy * deviation
    )
    assert cost.dynamic_energy_j is not None and estimator.sums.energy is not None
    _, energy_width = found.half_widths({asked.key: 3.0}, 0.0)
    assert energy_width == pytest.approx(
        estimator.sums.energy * time_variance**0.35 * 3 * cost.dynamic_energy_j.mean
    )


def log_half_width(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.low is not None and quantity.high is not None
    return math.log(quantity.high / quantity.low) / 2


def test_an_estimator_is_data_and_comes_back_the_same(
    estimator: Estimator, examples: list[Example]
) -> None:
    text = json.dumps(to_document(estimator))
    back = from_document(json.loads(text))
    asked = [like(e, batch=37) for e in examples if e.configuration.kind in ("relu", "linear")]
    ones, others = estimator.estimate(asked), back.estimate(asked)
    assert ones.costs == others.costs and ones.refused == others.refused
    counts = dict.fromkeys(ones.costs, 1.0)
    assert ones.half_widths(counts, 100.0) == others.half_widths(counts, 100.0)


@pytest.mark.parametrize("damage", ["format", "points", "kernel", "weights"])
def test_damaged_estimates_are_one_message(estimator: Estimator, damage: str) -> None:
    document = json.loads(json.dumps(to_document(estimator)))
    family = document["families"]["memory"]
    if damage == "format":
        document["format"] = 99
    elif damage == "points":
        family["points"] = family["points"][:-1]
    elif damage == "weights":
        family["time"]["weights"] = "many"
    else:
        del family["time"]["kernel"]["noise"]
    with pytest.raises(InputError, match="opdb learn"):
        from_document(document)


def test_too_few_examples_are_told(examples: list[Example]) -> None:
    with pytest.raises(InputError, match="too few to learn from"):
        learned(examples[:5])


@pytest.mark.parametrize("models", [frozenset(), frozenset({"the only one"})])
def test_one_model_is_enough_to_learn_from(examples: list[Example], models: frozenset[str]) -> None:
    few = [replace(e, models=models) for e in examples if e.configuration.kind == "relu"]
    reach = learned(few).families["memory"].reach
    assert 0.5 < reach.time < 10 and reach.energy is not None and 0.5 < reach.energy < 10


def test_without_power_times_are_learned_alone(examples: list[Example]) -> None:
    few = [
        replace(e, cost=replace(e.cost, dynamic_energy_j=None))
        for e in examples
        if e.configuration.kind == "relu"
    ]
    found = learned(few).estimate([few[0].configuration])
    [cost] = found.costs.values()
    assert cost.time_s is not None and cost.dynamic_energy_j is None
    assert found.half_widths({cost.configuration: 1.0}, 100.0)[1] is None
    again = from_document(json.loads(json.dumps(to_document(learned(few)))))
    assert again.estimate([few[0].configuration]).costs == found.costs


def test_training_twice_gives_the_same(estimator: Estimator, examples: list[Example]) -> None:
    few = [e for e in examples if e.configuration.kind == "relu"]
    assert to_document(learned(few)) == to_document(learned(list(reversed(few))))


def test_states_that_nothing_was_measured_in_are_refused_though_the_kind_was(
    estimator: Estimator, examples: list[Example]
) -> None:
    """A batch norm in training reads its input twice; what was learned of did so once."""
    [like_it, *_] = [e.configuration for e in examples if e.configuration.kind == "batch_norm"]
    trained = replace(like_it, parameters={**like_it.parameters, "training": True})
    cast = replace(like_it, autocast="bfloat16")
    found = estimator.estimate([like_it, trained, cast], alike_only=True)
    assert found.costs.keys() == {like_it.key}
    assert "in training mode" in found.refused[trained.key]
    assert "under autocast" in found.refused[cast.key]


def test_what_was_never_measured_has_a_wide_and_flagged_estimate(
    estimator: Estimator, examples: list[Example]
) -> None:
    [shape, *_] = [
        e.configuration.inputs["input"]["shape"] for e in examples if e.configuration.kind == "relu"
    ]

    def relu(dtype: str, kind: str = "relu", **more: str) -> Configuration:
        parameters = {"dim": 1} if kind == "softmax" else {}
        spec = {"shape": shape, "dtype": dtype}
        return Configuration(kind, parameters, {"input": spec}, **more)  # type: ignore[arg-type]

    flags = {
        relu("int32"): OTHER_DTYPE,
        relu("float64"): ROOFLINE_ALONE,
        relu("float32", kind="softmax"): OTHER_KINDS,
        relu("float32", pass_name="backward"): ROOFLINE_ALONE,
        relu("float32", autocast="bfloat16"): ROOFLINE_ALONE,
    }
    found = estimator.estimate([relu("float32"), *flags])
    assert not found.refused

    def width(of: Configuration) -> float:
        time = found.costs[of.key].time_s
        assert time is not None and time.low is not None and time.high is not None
        assert 0 < time.low < time.mean < time.high
        return time.high / time.low

    for configuration, flag in flags.items():
        assert flag in found.costs[configuration.key].flags
        assert width(configuration) > width(relu("float32"))
    assert found.costs[relu("float32").key].flags == ("estimated",)
    seconds, joules = found.half_widths(dict.fromkeys(found.costs, 1.0), 100.0)
    assert seconds > 0 and joules is not None and joules > 0
