"""`opdb predict` and `opdb validate` on the published set, and what they say of bad input."""

from __future__ import annotations

import math
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from opdb.commands import _predictions
from opdb.harvest.finding import located
from opdb.harvest.passes import harvest
from opdb.predict.figures import Amount, Figures, Status, layers
from opdb.predict.predictor import predictor_for
from opdb.records import Json, Mode, Phase, Workload
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.tables import Table
from tests import published
from tests.cli.conftest import Opdb, read

RESNET152 = ("predict", "resnet152", "--batch-size", 32)
KEYS = {
    *("model", "device", "board", "mode", "time_s", "energy_j"),
    *("power_w", "coverage", "target", "target_met", "measured", "missing"),
    "estimated",
}


def drop(path: Path, statement: str, *values: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


def floats(document: Any) -> list[float]:
    if isinstance(document, dict):
        return [f for value in document.values() for f in floats(value)]
    if isinstance(document, list):
        return [f for value in document for f in floats(value)]
    return [document] if isinstance(document, float) else []


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_resnet152_reaches_its_target(opdb: Opdb, h200: Path, mode: str) -> None:
    ran = opdb(*RESNET152, "--mode", mode, "--target", 0.9, "--json")
    assert (ran.status, ran.err) == (0, "")
    found = read(ran.out)
    assert found.keys() >= KEYS
    assert (found["model"], found["device"], found["mode"]) == ("resnet152", "nvidia-h200", mode)
    assert found["complete"] is True
    assert found["coverage"] == {"calls": 1.0, "time": 1.0, "energy": 1.0}
    assert (found["target"], found["target_met"]) == (0.9, True)
    assert found["missing"] == found["estimated"] == []
    assert found["time_s_low"] < found["time_s"] < found["time_s_high"]
    assert found["energy_j_low"] < found["energy_j"] < found["energy_j_high"]
    assert found["power_w"] == pytest.approx(found["energy_j"] / found["time_s"])
    measured = found["measured"]
    assert 0.9 <= measured["attribution_time"] <= 1.1
    assert 0.9 <= measured["attribution_energy"] <= 1.1
    assert measured["attribution_time"] == pytest.approx(found["time_s"] / measured["time_s"])
    assert measured["attribution_energy"] == pytest.approx(found["energy_j"] / measured["energy_j"])
    assert floats(found) and all(map(math.isfinite, floats(found)))


def test_a_measured_value_outside_the_interval_is_said_to_be(opdb: Opdb, h200: Path) -> None:
    """In the tables of predict and validate, and in JSON; one inside is a number alone."""
    densenet = ("predict", "densenet121", "-b", 32, "--mode", "graph")
    found = opdb.read(*densenet)
    low, high = found["time_s_low"], found["time_s_high"]
    measured = found["measured"]
    assert not low <= measured["time_s"] <= high
    assert (measured["inside_interval_time"], measured["inside_interval_energy"]) == (False, True)
    time, energy = (measured[f"attribution_{name}"] for name in ("time", "energy"))
    lines = opdb(*densenet).out.splitlines()
    [of_time] = [line for line in lines if line.startswith("time ")]
    [of_energy] = [line for line in lines if line.startswith("energy ")]
    assert of_time.endswith(f"{time:.3f}, outside") and of_energy.endswith(f" {energy:.3f}")
    several = opdb("predict", "densenet121", "resnet152", "-b", 32, "--mode", "graph").out
    row, other = (
        next(line for line in several.splitlines() if line.startswith(name))
        for name in ("densenet121", "resnet152")
    )
    assert row.endswith(f"{time:.3f}, outside") and "outside" not in other
    [held] = [
        line
        for line in opdb("validate", "densenet121", "--mode", "graph").out.splitlines()
        if line.startswith("densenet121") and f"{time:.3f}" in line
    ]
    assert f"{time:.3f}, outside" in held and held.count("outside") == 1


def test_conv2d_alone_misses_the_target_and_names_what_is_missing(opdb: Opdb, h200: Path) -> None:
    kind = "(SELECT id FROM configuration WHERE kind = ?)"
    drop(h200, f"DELETE FROM cost WHERE configuration_id NOT IN {kind}", "conv2d")
    ran = opdb(*RESNET152, "--target", 0.9, "--no-estimates", "--json")
    assert ran.status == 1
    assert ran.err.startswith("opdb: target 0.9 missed: coverage of time is 0.")
    assert len(ran.err.splitlines()) == 1
    found = read(ran.out)
    assert found["target_met"] is False
    assert found["complete"] is False and found["time_s"] > 0 and found["energy_j"] > 0
    assert found["time_s_low"] is found["energy_j_low"] is found["power_w"] is None
    first = opdb(*RESNET152, "--no-estimates").out.splitlines()[0]
    said = r": at least [\d.]+ ms; of 515 calls \d+ without a cost \(an estimated [\d.]+ % of the"
    assert re.search(said, first), first
    assert {"batch_norm", "relu", "add"} <= {share["kind"] for share in found["missing"]}
    for quantity in ("time", "energy"):
        missing = math.fsum(share[f"share_{quantity}"] for share in found["missing"])
        assert 0 < found["coverage"][quantity] < 1
        assert found["coverage"][quantity] + missing == pytest.approx(1)
    assert 0 < found["coverage"]["calls"] < 1
    for share in found["missing"]:
        about = {"kind", "pass", "configuration", "count", "share_time", "share_energy"}
        assert share.keys() == about
    estimated = read(opdb(*RESNET152, "--target", 0.9, "--json").out)
    assert estimated["target_met"] is False, "estimates cover nothing"
    assert estimated["time_s"] > found["time_s"] and not estimated["missing"]
    ran = opdb(*RESNET152)
    assert ran.status == 0, "without a target nothing is missed"
    last = ran.out.splitlines()[-1]
    assert estimated["how_to_measure"] == "opdb bench --model resnet152 --batch-size 32"
    assert last == f"to measure what is missing, on the device: {estimated['how_to_measure']}"


def test_a_model_that_was_never_harvested_is_harvested_and_predicted(
    opdb: Opdb, h200: Path
) -> None:
    question = ("resnet18", "-b", 7, "--input-size", "3x96x96")
    ran = opdb("predict", *question, "--json")
    assert ran.status == 0, ran.err
    [told] = ran.err.splitlines()
    assert re.fullmatch(
        rf"{question[0]}, batch \d+ .*: not in the database, harvested now \(.* m?s\), "
        rf"stored in {h200}",
        told,
    )
    again = opdb("predict", *question, "--json", "--no-harvest")
    assert (again.status, again.err, again.out) == (0, "", ran.out)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("time_s_mean = 9e999", "time_s is not finite"),
        ("energy_j_median = -1.0", "energy_j is negative"),
        ("dynamic_energy_j_high = -9e999", "dynamic_energy_j is not finite"),
        ("""host_time_s = replace(host_time_s, '"mean":', '"mean":-')""", "is negative"),
    ],
)
def test_a_cost_that_no_visit_gives_is_refused(
    opdb: Opdb, h200: Path, change: str, why: str
) -> None:
    drop(h200, f"UPDATE cost SET {change}")
    ran = opdb(*RESNET152)
    assert (ran.status, ran.out) == (2, "") and ran.err.count("\n") == 1
    assert why in ran.err and ran.err.endswith("python -m opdb.derive restores it\n")


def test_the_command_shows_layers_in_their_order_and_says_that_it_harvested(
    opdb: Opdb, h200: Path
) -> None:
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--top", 3)
    assert ran.status == 0
    assert "which modules make its calls is not stored, harvested now" in ran.err
    shown = ran.out.split("the 3 layers that take longest:\n")[1].splitlines()
    assert shown[0].split("  ")[0] == "module" and "share of time" in shown[0]
    assert shown[1].startswith("conv1 ") and "32x3x224x224" in shown[1]
    assert shown[-1].startswith("sum ") and "100.0 %" in shown[-1]
    found = opdb.read("predict", "resnet18", "-b", 32, "--layers")
    assert found["layers"][0]["path"] == "conv1" and found["layers"][-1]["path"] == "fc"
    whole = math.fsum(each["time_s"] for each in (*found["layers"], *found["rest"]))
    assert whole == pytest.approx(found["time_s"], rel=1e-12)
    assert math.fsum(each["share_time"] for each in (*found["layers"], *found["rest"])) == (
        pytest.approx(1)
    )


def test_other_calls_than_those_stored_are_not_guessed_at(opdb: Opdb, h200: Path) -> None:
    with sqlite3.connect(h200) as connection:
        query = "SELECT id, sequence FROM workload WHERE name = 'resnet18'"
        for workload, sequence in connection.execute(query).fetchall():
            called = sequence.split(" ")
            without = " ".join(called[:7] + called[8:])
            connection.execute("UPDATE workload SET sequence = ? WHERE id = ?", (without, workload))
    connection.close()
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--quiet")
    assert (ran.status, ran.out) == (2, "")
    assert "calls something else here" in ran.err and ran.err.count("\n") == 1


RESNET18 = ModelSpec("resnet18", source="torchvision", batch_size=32)


def test_a_function_is_of_the_module_whose_forward_calls_it() -> None:
    calls = harvest(RESNET18).calls
    assert [(c.configuration.kind, c.path) for c in (*calls[7:10], *calls[-2:])] == [
        ("conv2d", "layer1.0.conv2"),
        ("batch_norm", "layer1.0.bn2"),
        ("add", "layer1.0"),
        ("flatten", ""),
        ("linear", "fc"),
    ]


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published.copy_to(tmp_path_factory.mktemp("layers") / "opdb.sqlite")


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("batch_size", [1, 32])
def test_layers_and_the_rest_add_up_to_the_prediction(
    mode: Mode, batch_size: int, store_path: Path
) -> None:
    request = replace(RESNET18, batch_size=batch_size)
    with open_store(str(store_path)) as store:
        [workload] = [
            w for w in store.workloads("resnet18", dtype="float32") if w.batch_size == batch_size
        ]
        predictor = predictor_for(store, published.DEVICE)
        prediction = predictor.answer(workload, mode).prediction
        found = layers(prediction, located(workload, request)[0])
    whole = found.together("sum", [*found.layers, *found.rest])
    assert whole.time_s == pytest.approx(prediction.time_s, rel=1e-12)
    assert whole.energy_j == pytest.approx(prediction.energy_j, rel=1e-12)
    device_s, total = found.together("layers", found.layers).time_s, prediction.total
    assert device_s is not None and whole.time_s is not None
    assert whole.time_s - device_s == pytest.approx(total.timed.transition_s + total.waiting_s)
    assert sum(each.count for each in found.layers) == len(workload.calls)
    assert {each.status for each in found.layers} == {"measured"} < set(get_args(Status))


def test_at_the_power_limit_too(store_path: Path) -> None:
    with open_store(str(store_path)) as store:
        [workload] = [w for w in store.workloads("vit_b_16") if w.batch_size == 128]
        predictor = predictor_for(store, published.DEVICE)
        prediction = predictor.answer(workload, "graph").prediction
        assert prediction.power_w == pytest.approx(700, rel=0.02)
        calls = [replace(call, path="") for call in workload.calls]
        found = layers(prediction, calls)
    whole = found.together("sum", [*found.layers, *found.rest])
    assert (whole.time_s, whole.energy_j) == pytest.approx(
        (prediction.time_s, prediction.energy_j), rel=1e-12
    )


def workload(batch_size: int, *args: Json) -> Workload:
    inputs = {"args": list(args), "kwargs": {}}
    return Workload("made", "builtin", "0", inputs, batch_size, "float32", "contiguous")


IMAGES = {"shape": [4, 3, 32, 32], "dtype": "float32"}
TOKENS = {"shape": [4, 128], "dtype": "int64", "values": {"range": [0, 30522]}}
FIGURES = Figures(
    workload(4, IMAGES), Amount(0.01, (0.008, 0.0125)), Amount(2.0, (1.8, 2.2)), 3.6, 0.5, 400.0
)
DOCUMENTS: Table[Figures] = Table(
    *(each.column(lambda figures: figures) for each in _predictions.FIGURES)
)


def test_throughput_and_its_interval_are_the_inverse_of_the_time() -> None:
    found = FIGURES.samples_per_s
    assert found is not None and found.value == 4 / 0.01
    assert found.interval == pytest.approx((4 / 0.0125, 4 / 0.008))
    assert FIGURES.tokens_per_s("input") is None


def test_money_and_co2_follow_the_time_and_the_energy() -> None:
    found = DOCUMENTS.flat(FIGURES)
    hours = 0.01 / 4 * 1e6 / 3600
    kwh = 0.5e6 / 3.6e6
    assert found["rent_per_million_samples"] == pytest.approx(3.6 * hours)
    assert found["rent_per_million_samples_low"] == pytest.approx(3.6 * hours * 0.8)
    assert found["rent_per_million_samples_high"] == pytest.approx(3.6 * hours * 1.25)
    assert found["electricity_per_million_samples"] == pytest.approx(0.5 * kwh)
    assert found["co2_per_million_samples_g"] == pytest.approx(400 * kwh)
    assert found["co2_per_million_samples_g_low"] == pytest.approx(400 * kwh * 0.9)
    assert found["co2_per_million_samples_g_high"] == pytest.approx(400 * kwh * 1.1)


@pytest.mark.parametrize(
    ("phase", "given", "tokens"),
    [
        ("prefill", 128, {"prompt": 512}),
        ("decode", 1, {"new": 4}),
        ("generate", 128, {"prompt": 512, "new": 128}),
    ],
)
def test_of_a_decoder_prompt_and_new_tokens_are_told_apart(
    phase: Phase, given: int, tokens: dict[str, int]
) -> None:
    """A generation of 32 new tokens is not as fast as it reads its prompt of 128."""
    of_pass = workload(4, {**TOKENS, "shape": [4, given]})
    inputs = {**of_pass.inputs, "generation": {"max_new_tokens": 32}}
    found = replace(FIGURES, workload=replace(of_pass, phase=phase, inputs=inputs))
    assert found.tokens == tokens
    document = DOCUMENTS.flat(found)
    for what in ("prompt", "new", "input"):
        count = tokens.get(what)
        rate = None if count is None else pytest.approx(count / 0.01)
        assert document[f"throughput_{what}_tokens_per_s"] == rate
