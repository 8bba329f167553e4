"""`opdb predict` and `opdb validate` on the published set, and what they say of bad input."""

from __future__ import annotations

import math
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from opdb.store import open_store
from tests.cli.conftest import Opdb, read
from tests.store import samples

RESNET152 = ("predict", "resnet152", "--batch-size", 32)
KEYS = {
    *("model", "device", "board", "setting", "mode", "time_s", "energy_j"),
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


def test_people_are_shown_the_truth_beside_the_prediction(opdb: Opdb, h200: Path) -> None:
    ran = opdb(*RESNET152, "--target", 0.9)
    assert ran.status == 0
    for said in (
        "resnet152, batch 32 float32, eager, on NVIDIA H200 (GPU-",
        "predicted / measured",
        "coverage: calls 100.0 %, time 100.0 %, energy 100.0 %",
        "target 0.9: met",
    ):
        assert said in ran.out
    assert "missing" not in ran.out


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


def test_a_measured_value_whose_repeats_disagree_carries_its_flag(opdb: Opdb, h200: Path) -> None:
    """A run of EfficientNet-B0 of which no three repeats agree, beside one of ResNet-152."""
    asked = ("efficientnet_b0", "-b", 32, "--mode", "eager", "--board", "GPU-7c54e2c6")
    found = opdb.read("predict", *asked)["measured"]
    assert found["repeat_spread"] > 0.03
    assert any("repeats" in flag for flag in found["flags"])
    said = opdb("predict", *asked).out
    apart = f"{100 * found['repeat_spread']:.1f} % apart"
    assert f"measured: no three repeats agree within 3 %, those that count are {apart}" in said
    [model, *rest] = asked
    several = opdb("predict", model, "resnet18", *rest).out.splitlines()
    [row] = [line for line in several if line.startswith("efficientnet_b0")]
    assert ", uneven " in row
    steady = opdb.read(*RESNET152)["measured"]
    assert steady["repeat_spread"] < 0.03 and "repeats agree" not in opdb(*RESNET152).out


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
    said = r": at least [\d.]+ ms; \d+ of 515 calls \(an estimated [\d.]+ % of the time\) are "
    assert re.search(said + "neither measured nor estimated$", first), first
    assert {"batch_norm", "relu", "add"} <= {share["kind"] for share in found["missing"]}
    for quantity in ("time", "energy"):
        missing = math.fsum(share[f"share_{quantity}"] for share in found["missing"])
        assert 0 < found["coverage"][quantity] < 1
        assert found["coverage"][quantity] + missing == pytest.approx(1)
    assert 0 < found["coverage"]["calls"] < 1
    for share in found["missing"]:
        about = {"kind", "pass", "configuration", "count", "share_time", "share_energy"}
        assert share.keys() == about
    estimated = opdb.read(*RESNET152, "--target", 0.9)
    assert estimated["target_met"] is False, "estimates cover nothing"
    assert estimated["time_s"] > found["time_s"] and not estimated["missing"]
    ran = opdb(*RESNET152)
    assert ran.status == 0, "without a target nothing is missed"
    last = ran.out.splitlines()[-1]
    assert re.fullmatch(
        r"time: [\d.]+ % measured, [\d.]+ % estimated; to measure what is missing, on the device "
        r"\(\d+ configurations, about \d+ GPU-seconds\): "
        "opdb bench --model resnet152 --batch-size 32",
        last,
    ), last
    lacking = [*estimated["estimated"], *estimated["missing"]]
    assert 0.2 < estimated["gpu_seconds_to_measure"] / len(lacking) < 5
    assert estimated["how_to_measure"] in last


def test_a_reader_changes_nothing(opdb: Opdb, h200: Path) -> None:
    before = h200.read_bytes()
    assert opdb(*RESNET152).status == 0
    assert opdb("validate").status == 0
    assert h200.read_bytes() == before


NEVER_HARVESTED = [
    ("resnet18", "-b", 7, "--input-size", "3x96x96"),
    ("mobilenet_v2", "-b", 96, "--dtype", "fp16", "--memory-format", "channels_last"),
    ("bert-base-uncased", "-b", 3, "--dtype", "bf16", "--input-size", 37, "--mode", "graph"),
    ("mlp", "--phase", "training", "--optimizer", "adamw", "--autocast", "bf16"),
]


@pytest.mark.parametrize("question", NEVER_HARVESTED, ids=lambda q: " ".join(map(str, q)))
def test_a_model_that_was_never_harvested_is_harvested_and_predicted(
    opdb: Opdb, h200: Path, question: tuple[object, ...]
) -> None:
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
    assert why in ran.err and ran.err.endswith("opdb derive restores it\n")
    assert re.search(r"the cost of \w+ [0-9a-f]{12} on GPU-", ran.err)


def test_a_device_that_measured_nothing_of_a_model_covers_nothing(opdb: Opdb, h200: Path) -> None:
    with open_store(str(h200)) as store:
        store.save_campaign(samples.campaign("c", "a-board", samples.PROCESSOR))
    ran = opdb("predict", "resnet50", "-b", 1, "--device", "a-cpu", "--target", 0.9, "--json")
    assert ran.status == 1
    found = read(ran.out)
    assert found["coverage"]["calls"] == 0 and found["measured"] is None
    assert len(found["missing"]) > 10
