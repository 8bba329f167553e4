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


def test_a_name_alone_is_one_run_as_the_driver_runs_it(write: Write) -> None:
    assert load_matrix(write("models: mlp")) == [Combination("mlp")]
    assert labels(write("models: mlp")) == ["mlp-b1-fp32-auto"]


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


def test_a_label_hangs_on_what_runs_and_not_on_how_it_is_said(write: Write) -> None:
    short = labels(write("models: mlp"))
    usual = "{iters: 50, warmup_iters: 10, stretches: 3, channels_last: false, images: null}"
    assert labels(write(f"models: [mlp]\nvariants: [{usual}]")) == short
    assert labels(write("models: mlp\nnote: another remark")) == short
    assert labels(write("models: mlp\niters: [50, 60]"))[:1] == short
    assert labels(write("models: mlp\ndtype: bfloat16")) == ["mlp-b1-bfloat16-auto"]


def test_sizes_may_be_one_or_several(write: Write) -> None:
    one = load_matrix(write("models: resnet18\ninput_size: [3, 64, 64]"))
    assert [each.input_size for each in one] == [(3, 64, 64)]
    several = load_matrix(write("models: resnet18\ninput_size: [null, [3, 64, 64]]"))
    assert [each.input_size for each in several] == [None, (3, 64, 64)]


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
        ("[1, 2]", "a matrix file has keys"),
        ("batch_sizes: 4", "key models is missing"),
        ("models: []", "models: found []"),
        ("models: [mlp, 3]", "models[1]: found 3; allowed: one or a list of model names"),
        ("models: resnet81", "models: unknown model 'resnet81'; did you mean"),
        ("models: [mlp, mpl]", "models[1]: unknown model 'mpl'; did you mean"),
        ("models: mlp\nbatch_size: 4", "unknown key batch_size; did you mean 'batch_sizes'?"),
        ("models: mlp\nbatch_sizes: [4, 0]", "batch_sizes[1]: found 0; allowed: one or a list"),
        ("models: mlp\nbatch_sizes: true", "batch_sizes: found True"),
        ("models: mlp\niters: 5.0", "iters: found 5.0"),
        ("models: mlp\nprecision: [fp32, ampp]", "precision[1]: found 'ampp'"),
        ("models: mlp\nprecision: [ampp]", "did you mean 'amp'?"),
        ("models: mlp\nbackend: gpu", "backend: found 'gpu'; allowed: one or a list of auto, cuda"),
        ("models: mlp\nrepeats: [1, 2]", "repeats: found [1, 2]; allowed: a whole number"),
        ("models: mlp\ndeterministic: 1", "deterministic: found 1; allowed: true, false"),
        ("models: mlp\nimages: nowhere", "images: found 'nowhere'; there is no such folder"),
        ("models: mlp\nworkers: 2", "workers is for images"),
        ("models: mlp\nimages: [null, .]\nworkers: 2", "workers is for images"),
        ("models: mlp\nimages: .\nworkers: [0, 2]\nprefetch_factor: 2", "prefetch_factor needs"),
        ("models: mlp\nprecision: amp\ndtype: float16", "amp is of a model in float32"),
        ("models: mlp\nvariants: {iters: 3}", "variants: found {'iters': 3}; allowed: a list"),
        ("models: mlp\nvariants: [{itres: 3}]", "unknown key variants[0].itres; did you mean"),
        ("models: mlp\nvariants: [{iters: x}]", "variants[0].iters: found 'x'"),
        ("models: mlp\nmodels: lstm", "key 'models' is there 2 times"),
        ("models: mlp\nrepeats: 20000", "20000 runs; a matrix has at most 10000"),
        ("models: &a [mlp]\nvariants: [{models: *a}]", "an alias"),
        ("models: [mlp", "not valid YAML"),
    ],
)
def test_what_cannot_be(write: Write, text: str, said: str) -> None:
    path = write(text)
    with pytest.raises(InputError) as caught:
        load_matrix(path)
    assert str(caught.value).startswith(str(path)) and said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    with pytest.raises(InputError) as caught:
        load_matrix(write("{models: [mpl], iters: 0, workrs: 3, variants: [{nvtx: x}]}"))
    said = str(caught.value)
    assert all(each in said for each in ("'mpl'", "iters: found 0", "workrs", "variants[0].nvtx"))
