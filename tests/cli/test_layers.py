"""`opdb predict --layers` on the published set."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from opdb.errors import InputError
from opdb.harvest.finding import located
from opdb.harvest.passes import harvest
from opdb.predict.figures import Status, layers
from opdb.predict.predictor import predictor_for
from opdb.records import Mode
from opdb.spec import ModelSpec
from opdb.store import open_store
from tests import published
from tests.cli.conftest import Opdb, read


def test_the_command_shows_layers_in_their_order_and_says_that_it_harvested(
    opdb: Opdb, h200: Path
) -> None:
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--top", 3)
    assert ran.status == 0
    assert "which modules make its calls is not stored, harvested now" in ran.err
    shown = ran.out.split("layer by layer:\n")[1].splitlines()
    assert shown[0].split("  ")[0] == "module" and "share of time" in shown[0]
    assert (
        shown[1].startswith("conv1 ")
        and "32x3x224x224" in shown[1]
        and " other layers " in shown[4]
    )
    assert shown[-1].startswith("sum ") and "100.0 %" in shown[-1]
    found = opdb.read("predict", "resnet18", "-b", 32, "--layers")
    assert found["layers"][0]["path"] == "conv1" and found["layers"][-1]["path"] == "fc"
    whole = math.fsum(each["time_s"] for each in (*found["layers"], *found["rest"]))
    assert whole == pytest.approx(found["time_s"], rel=1e-12)
    assert math.fsum(each["share_time"] for each in (*found["layers"], *found["rest"])) == (
        pytest.approx(1)
    )


def test_what_is_missing_has_its_rows_without_a_time(opdb: Opdb, h200: Path) -> None:
    published.keep_kinds(h200, "conv2d")
    ran = opdb("predict", "resnet18", "-b", 32, "--layers", "--no-estimates", "--json")
    rows = read(ran.out)["layers"]
    assert {row["status"] for row in rows if row["kind"] == "conv2d"} == {"measured"}
    assert {(row["status"], row["time_s"]) for row in rows if row["kind"] == "relu"} == {
        ("missing", None)
    }


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
    assert "from call 8 of " in ran.err
    assert "is not guessed" in ran.err and ran.err.count("\n") == 1


RESNET18 = ModelSpec("resnet18", source="torchvision", batch_size=32)


def test_a_function_is_of_the_module_whose_forward_calls_it() -> None:
    calls = harvest(RESNET18).calls
    assert [(c.configuration.kind, c.path) for c in calls[:10]] == [
        ("conv2d", "conv1"),
        ("batch_norm", "bn1"),
        ("relu", "relu"),
        ("max_pool2d", "maxpool"),
        ("conv2d", "layer1.0.conv1"),
        ("batch_norm", "layer1.0.bn1"),
        ("relu", "layer1.0.relu"),
        ("conv2d", "layer1.0.conv2"),
        ("batch_norm", "layer1.0.bn2"),
        ("add", "layer1.0"),
    ]
    assert [(c.configuration.kind, c.path) for c in calls[-2:]] == [
        ("flatten", ""),
        ("linear", "fc"),
    ]


def test_a_backward_pass_is_of_the_module_of_its_forward_pass() -> None:
    calls = harvest(ModelSpec("mlp", source="builtin", phase="training")).calls
    linear = [c for c in calls if c.configuration.kind == "linear"]
    paths = {p: [c.path for c in linear if c.configuration.pass_name == p] for p in
             ("forward", "backward")}  # fmt: skip
    assert paths == {"forward": ["0", "2", "4"], "backward": ["4", "2", "0"]}
    assert [c.path for c in calls if c.configuration.pass_name == "update"] == [""]
    assert all(c.path is not None for c in calls)


def test_paths_are_no_part_of_what_a_workload_is() -> None:
    found = harvest(RESNET18)
    bare = replace(found, calls=tuple(replace(c, path=None) for c in found.calls))
    assert bare == found and bare.key == found.key


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
        breakdown = predictor.breakdown(prediction)
        found = layers(prediction, breakdown, located(workload, request).calls)
    whole = found.together("sum", [*found.layers, *found.rest])
    assert whole.time_s == pytest.approx(prediction.time_s, rel=1e-12)
    assert whole.energy_j == pytest.approx(prediction.energy_j, rel=1e-12)
    device_s = found.together("layers", found.layers).time_s
    assert device_s is not None and whole.time_s is not None
    assert whole.time_s - device_s == pytest.approx(breakdown.transition_s + breakdown.waiting_s)
    assert sum(each.count for each in found.layers) == len(workload.calls)
    assert {each.status for each in found.layers} == {"measured"} < set(get_args(Status))


def test_at_the_power_limit_too(store_path: Path) -> None:
    with open_store(str(store_path)) as store:
        [workload] = [w for w in store.workloads("vit_b_16") if w.batch_size == 128]
        predictor = predictor_for(store, published.DEVICE)
        prediction = predictor.answer(workload, "graph").prediction
        assert prediction.power_w == pytest.approx(700, rel=0.02)
        calls = [replace(call, path="") for call in workload.calls]
        found = layers(prediction, predictor.breakdown(prediction), calls)
    whole = found.together("sum", [*found.layers, *found.rest])
    assert (whole.time_s, whole.energy_j) == pytest.approx(
        (prediction.time_s, prediction.energy_j), rel=1e-12
    )


def test_what_is_fused_has_no_layers(store_path: Path) -> None:
    with open_store(str(store_path)) as store:
        [workload] = [w for w in store.workloads("resnet18", dtype="float32") if w.batch_size == 32]
        predictor = predictor_for(store, published.DEVICE)
        prediction = predictor.answer(workload, "eager").prediction
        fused = replace(prediction, workload=replace(workload, compiled_for=published.DEVICE))
        with pytest.raises(InputError, match="fused have no layers"):
            layers(fused, predictor.breakdown(prediction), workload.calls)
