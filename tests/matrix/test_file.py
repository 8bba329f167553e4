"""Matrix files: what they ask for, and what is said of one that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.runs import DriverOptions, ImageOptions
from opdb.studies.train.rows import Combination, load_matrix

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "runs.yml"
        path.write_text(text)
        return path

    return written


def labels(path: Path) -> list[str]:
    return [each.label(each.backend) for each in load_matrix(path)]


def test_lists_are_axes_and_repeats_lie_far_apart(write: Write) -> None:
    path = write("{models: [mlp, lstm], batch_sizes: [2, 4], backend: cpu, repeats: 2}")
    once = ["mlp-b2-fp32-cpu", "mlp-b4-fp32-cpu", "lstm-b2-fp32-cpu", "lstm-b4-fp32-cpu"]
    assert labels(path) == [*once, *(f"{label}#2" for label in once)]


OPTIONS = """
models: resnet18
batch_sizes: 4
input_size: [3, 64, 64]
precision: amp
backend: cuda
channels_last: true
optimizer: adamw
grad_accum_steps: 2
deterministic: true
cudnn_benchmark: true
images: {folder}
augment: false
workers: [0, 8]
pin_memory: true
warmup_iters: 3
iters: 20
stretches: 5
nvtx: true
note: a remark
"""


def test_every_option_of_the_driver_may_be_an_axis(write: Write, tmp_path: Path) -> None:
    one, other = load_matrix(write(OPTIONS.format(folder=tmp_path)))
    assert replace(other, options=DriverOptions()) == Combination(
        *("resnet18", 4, "amp", "cuda"),
        input_size=(3, 64, 64),
        channels_last=True,
        optimizer="adamw",
        grad_accum_steps=2,
    )
    driven = DriverOptions(deterministic=True, cudnn_benchmark=True, nvtx=True, note="a remark")
    images = ImageOptions(tmp_path, augment=False, workers=8, pin_memory=True)
    driven = replace(driven, images=images, warmup_iters=3, iters=20, repeats=5)
    assert other.options == driven
    assert other.label("cuda") == (
        "resnet18-b4-amp-cuda+input_size=3x64x64+channels_last+optimizer=adamw+grad_accum_steps=2"
        f"+deterministic+cudnn_benchmark+images={tmp_path}+no_augment+workers=8+pin_memory"
        "+warmup_iters=3+iters=20+stretches=5+nvtx"
    )
    assert one.label("cuda") == other.label("cuda").replace("workers=8", "workers=0")
    assert other.images_per_step == 8


def test_a_variant_says_only_what_differs_and_repeats_nothing(write: Write, tmp_path: Path) -> None:
    text = "{models: mlp, iters: 5, variants: [{batch_sizes: [1, 2]}, {images: '%s', workers: 0}]}"
    found = load_matrix(write(text % tmp_path))
    assert [(each.batch_size, each.options.images is None) for each in found] == [
        (1, True),
        (2, True),
        (1, False),
    ]
    assert {each.options.iters for each in found} == {5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("batch_sizes: 4", "key models is missing"),
        ("models: [mlp, 3]", "models[1]: found 3; allowed: one or a list of model names"),
        ("models: mlp\nbatch_size: 4", "unknown key batch_size; did you mean 'batch_sizes'?"),
        ("models: mlp\nbatch_sizes: [4, 0]", "batch_sizes[1]: found 0; allowed: one or a list"),
        ("models: mlp\nprecision: [fp32, ampp]", "precision[1]: found 'ampp'"),
        ("models: mlp\nbackend: gpu", "backend: found 'gpu'; allowed: one or a list of auto, cuda"),
        ("models: mlp\nrepeats: [1, 2]", "repeats: found [1, 2]; allowed: a whole number"),
        ("models: mlp\nworkers: 2", "workers is for images"),
        ("models: mlp\nimages: .\nworkers: [0, 2]\nprefetch_factor: 2", "prefetch_factor needs"),
        ("models: mlp\nprecision: amp\ndtype: float16", "amp is of a model in float32"),
        ("models: mlp\nvariants: [{itres: 3}]", "unknown key variants[0].itres; did you mean"),
        ("models: mlp\nrepeats: 20000", "20000 runs; a matrix has at most 10000"),
    ],
)
def test_what_cannot_be(write: Write, text: str, said: str) -> None:
    path = write(text)
    with pytest.raises(InputError) as caught:
        load_matrix(path)
    assert str(caught.value).startswith(str(path)) and said in str(caught.value)
    assert "\n" not in str(caught.value)
