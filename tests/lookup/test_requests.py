from __future__ import annotations

from pathlib import Path

import pytest

from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import requests_named, summary_of


def test_a_summary_file_of_the_checkout_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert summary_of("resnet50") == Path(__file__).parents[2] / "measurements" / "resnet50.yml"


def test_a_name_means_one_checked_request_and_a_file_all_of_its_own(tmp_path: Path) -> None:
    assert [each.source for each in requests_named("lstm", ModelOptions())] == ["builtin"]
    path = tmp_path / "small.yml"
    path.write_text("model: mlp\ninput_size: [64]\nbatch_sizes: [2, 8]\n")
    found = requests_named(str(path), ModelOptions(dtype="bfloat16"))
    assert [(each.batch_size, each.dtype, each.source) for each in found] == [
        (2, "bfloat16", "builtin"),
        (8, "bfloat16", "builtin"),
    ]


def test_options_are_as_on_the_command_line() -> None:
    said = ModelOptions.parse(input_size="64", batch_size=3, dtype="bf16", accumulation=2)
    assert said == ModelOptions.parse(
        input_size=[64], batch_size=3, dtype="bfloat16", accumulation=2
    )
    expected = "--batch-size 3 --input-size 64 --dtype bfloat16 --grad-accum-steps 2"
    assert said.as_arguments() == expected.split(" ")
