"""The device that is predicted for: named, this machine's, or the most measured."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import opdb
import opdb.meters.nvml
from opdb.bench.session import detect
from opdb.commands.bench import BenchOptions
from opdb.errors import InputError, UnknownNameError
from opdb.predict.predictor import choose_device
from opdb.store import database, open_store, published_devices, take_in
from opdb.store.opening import origins, sets_of, usual_sets
from opdb.store.sets import export_set
from tests.bench.calls import TANH, workload
from tests.store import samples
from tests.store.conftest import fill

OTHER = replace(samples.DEVICE, slug="nvidia-other", name="NVIDIA Other")


def publish(folder: Path, database: Path) -> None:
    """Publish a set of two devices' runs: the usual one's, with costs, and another's."""
    with open_store(str(database)) as store:
        fill(store)
        store.save_campaign(samples.campaign("of-other", "GPU-9", OTHER))
        store.save_visit(samples.visit("visit-9", campaign="of-other"))
        for device in (samples.DEVICE, OTHER):
            export_set(store, folder / device.slug, device=device.slug)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the sets of two devices and no database."""
    monkeypatch.delenv("OPDB_DB", raising=False)
    monkeypatch.setattr(database, "package_parent", lambda: tmp_path / "checkout")
    publish(tmp_path / "checkout" / "db", tmp_path / "source.sqlite")
    return tmp_path / "checkout"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NVIDIA driver, whatever this machine has."""
    monkeypatch.setattr(opdb.meters.nvml, "gpu_names", list)


def devices() -> list[str]:
    with open_store() as store:
        return [each.slug for each in store.devices()]


def test_another_devices_set_waits_until_it_is_named(checkout: Path) -> None:
    assert list(usual_sets()) == ["nvidia-h200"]
    assert list(sets_of("nvidia-other")) == ["nvidia-other"]
    assert published_devices() == {"nvidia-h200": "NVIDIA H200", "nvidia-other": "NVIDIA Other"}
    with open_store() as store:
        waiting = {each.name: each.devices for each in origins(store, waiting=True)}
        assert waiting == {"nvidia-h200": ("nvidia-h200",), "nvidia-other": ("nvidia-other",)}
        assert choose_device(store, None) == samples.DEVICE
    assert devices() == ["nvidia-h200"]
    with open_store() as store:
        assert choose_device(store, "nvidia-other") == OTHER
        assert len(store.visits("GPU-9")) == 1
        assert choose_device(store, None) == samples.DEVICE, "the one with costs"
    assert devices() == ["nvidia-h200", "nvidia-other"]


def test_a_device_that_no_set_has_is_unknown(checkout: Path) -> None:
    with open_store() as store, pytest.raises(UnknownNameError, match="mean 'nvidia-other'") as no:
        choose_device(store, "nvidia-othe")
    assert "unknown device" in str(no.value)
    assert devices() == ["nvidia-h200"]


def test_a_name_of_several_devices_is_answered_with_all(checkout: Path) -> None:
    with open_store() as store:
        with pytest.raises(InputError, match="could be any of nvidia-h200, nvidia-other; name one"):
            choose_device(store, "NVIDIA")
        limited = replace(samples.DEVICE, slug="nvidia-h200-500w", power_limit_w=500.0)
        store.save_campaign(samples.campaign("limited", "GPU-7", limited))
        with pytest.raises(InputError, match="could be any of nvidia-h200, nvidia-h200-500w;"):
            choose_device(store, "h200")
        assert choose_device(store, "NVIDIA H200") == samples.DEVICE, "its slug, in words"
        assert choose_device(store, "500W") == limited


@pytest.mark.parametrize("variable", [False, True])
def test_a_database_of_ones_own_takes_nothing_in(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    own = str(tmp_path / "own.sqlite")
    if variable:
        monkeypatch.setenv("OPDB_DB", own)
    with open_store(None if variable else own) as store:
        fill(store)
        said = r"nothing of device 'nvidia-other'; .* measurements: opdb import .*other"
        for name in ("nvidia-other", "OTHER"):
            with pytest.raises(InputError, match=said):
                choose_device(store, name)
        with pytest.raises(UnknownNameError, match="did you mean 'nvidia-other'"):
            choose_device(store, "nvidia-othe")
        take_in(store, "nvidia-other")
        assert [each.slug for each in store.devices()] == ["nvidia-h200"]


def test_unnamed_it_is_that_of_this_machines_gpu(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)  # as if there were a driver
    usual, other = "nvidia-h200", "nvidia-other"
    seen = {"": usual, "Some GPU": usual, "Some GPU, NVIDIA Other": other}
    for names, chosen in seen.items():
        here = names.split(", ")
        monkeypatch.setattr(opdb.meters.nvml, "gpu_names", lambda here=here: here)
        with open_store() as store:
            assert choose_device(store, None).slug == chosen
    assert devices() == ["nvidia-h200", "nvidia-other"]


@pytest.mark.usefixtures("short")
def test_what_others_published_of_the_device_is_not_measured_again(
    checkout: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkout / "db" / "nvidia-h200", checkout / "db" / "nvidia-h200-copy")
    here, on_cpu = detect("cpu").device.slug, BenchOptions(device="cpu")
    with open_store(str(tmp_path / "elsewhere.sqlite")) as store:
        store.save_workload(workload(TANH))
        [measured] = opdb.bench("tanh", options=on_cpu, db=store.url).results
        assert measured.outcomes["ok"] > 0
        export_set(store, checkout / "db" / "of-this-device", device=here)
    with open_store() as store:
        assert devices() == ["nvidia-h200"]
        store.save_workload(workload(TANH))
    [again] = opdb.bench("tanh", options=on_cpu).results
    assert again.campaign is None, again.outcomes
    assert devices() == sorted(["nvidia-h200", here])
