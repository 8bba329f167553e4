"""Training runs on the processor: what is told apart, what is put back, what cannot be run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from opdb import models
from opdb.bench import driver
from opdb.bench.driver import Images, train
from opdb.bench.session import Session
from opdb.models import checked
from opdb.records import ModelRun
from opdb.runs import DriverOptions, ImageOptions
from opdb.spec import ModelSpec

NETWORK = "tests.bench.test_training:network"
SHORT = DriverOptions(warmup_iters=1, iters=4, repeats=2)


def request(**more: object) -> ModelSpec:
    asked = ModelSpec(NETWORK, phase="training")
    return checked(replace(asked, **more))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(12):
        path = tmp_path / "images" / f"class{number % 3}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (24, 20), (20 * number, 0, 99)).save(path)
    return tmp_path / "images"


def run(session: Session, options: DriverOptions, **more: object) -> ModelRun:
    return train(session, request(**more), "workload", options)


def test_iterations_are_counted_and_timed(session: Session) -> None:
    made = run(session, replace(SHORT, label="mine", note="first"))
    assert (made.outcome, made.reason, made.mode, made.setting) == ("ok", None, "eager", {})
    assert [len(r.replay_times_s) for r in made.repeats] == [4, 4]
    facts = made.facts
    assert (facts["label"], facts["note"], facts["data"]) == ("mine", "first", "synthetic")
    mean_s = sum(sum(r.replay_times_s) for r in made.repeats) / 2
    assert facts["measured_s"] == pytest.approx(mean_s)
    assert facts["images_per_s"] == pytest.approx(4 * 4 / mean_s)  # the model's own batch is 4
    assert facts["data_time_s"] < facts["compute_time_s"] <= mean_s / 4
    assert facts["peak_resident_bytes"] > 2**20
    assert facts["os"] and facts["host"] == session.platform.host.id


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_read_from_a_folder(session: Session, folder: Path, workers: int) -> None:
    images = ImageOptions(folder, workers=workers, augment=workers == 0)
    made = run(session, replace(SHORT, images=images), accumulation=2)
    assert (made.outcome, made.reason) == ("ok", None)
    assert made.setting["data"]["workers"] == workers
    assert made.facts["data_time_s"] > 0 and made.facts["data"] == "images"
    assert made.facts["images_per_s"] == pytest.approx(2 * 4 * 4 / made.facts["measured_s"])


def test_batches_are_shuffled_normal_and_of_the_models_size(folder: Path) -> None:
    images = Images(ImageOptions(folder, workers=0), (16, 12), 4)
    assert images.classes == 3
    batches = iter(images)
    seen = [next(batches) for _ in range(6)]
    assert all(batch.shape == (4, 3, 16, 12) and batch.dtype == torch.float32 for batch, _ in seen)
    assert len({tuple(classes.tolist()) for _, classes in seen}) > 1
    assert (
        sorted(torch.cat([classes for _, classes in seen[:3]]).tolist())
        == [0] * 4 + [1] * 4 + [2] * 4
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_is_named(session: Session, folder: Path, workers: int) -> None:
    broken = folder / "class1" / "1.png"
    broken.write_bytes(broken.read_bytes()[:40])
    options = replace(SHORT, images=ImageOptions(folder, workers=workers))
    made = run(session, options)
    assert made.outcome == "error" and made.reason is not None and "\n" not in made.reason
    assert made.reason.startswith(f"{broken}: cannot be read as an image")


def test_folders_that_hold_no_batch(session: Session, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one" / "without").mkdir(parents=True)
    for path, said in (
        (tmp_path / "none", "no images"),
        (tmp_path / "empty", "no images"),
        (tmp_path / "one", "classes without"),
    ):
        made = run(session, replace(SHORT, images=ImageOptions(path)))
        assert made.outcome == "error" and said in (made.reason or "")
    for path in list(folder.rglob("*.png"))[:9]:
        path.unlink()
    for each in list(folder.iterdir()):
        if not any(each.iterdir()):
            each.rmdir()
    made = run(session, replace(SHORT, images=ImageOptions(folder)))
    assert "3 images; a batch needs 4" in (made.reason or "")


def test_the_backend_is_told_and_put_back(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool, bool]] = []
    real = models.load

    def spied(*args: object, **kwargs: object) -> object:
        cudnn = torch.backends.cudnn
        deterministic = torch.are_deterministic_algorithms_enabled()
        seen.append((cudnn.benchmark, cudnn.deterministic, deterministic))
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "load", spied)
    made = run(session, replace(SHORT, deterministic=True, cudnn_benchmark=True))
    assert made.setting == {"deterministic": True, "cudnn_benchmark": True}
    assert seen == [(True, True, True)]
    cudnn = torch.backends.cudnn
    assert not (cudnn.benchmark or cudnn.deterministic)
    assert not torch.are_deterministic_algorithms_enabled()
