"""A name is one model in every command, in the dtype that it has or is asked for in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb

OWN = "tests.models.test_as_built"


pytestmark = pytest.mark.usefixtures("h200")


def test_a_decoder_has_the_same_weights_in_every_command(opdb: Opdb, tmp_path: Path) -> None:
    """1,235,814,400 parameters in bfloat16, the head being the embedding."""
    db = ("--db", shutil.copy(published.default_database(), tmp_path / "default.sqlite"))
    name = "llama-3.2-1b"
    [counted] = opdb.json("complexity", name)
    assert counted["parameter_bytes"] == 2 * counted["parameters"] == 2_471_628_800
    shown = opdb("complexity", name).out.splitlines()[0]
    assert shown.endswith("1,235,814,400 parameters, 2.472 GB")
    asked = ("generate", name, "--prompt", 1024, "--tokens", 256, "--mode", "graph", *db)
    generated = opdb.json(*asked)
    passed = opdb.json("predict", name, *db)
    for found in (counted, generated, passed):
        assert (found["dtype"], found["dtype_from"]) == ("bfloat16", "as published")
    assert passed["memory"]["weight_bytes"] == pytest.approx(2_471_628_800, rel=1e-3)
    for words in (asked, ("predict", name, *db)):
        assert "(weights 2.47 GB, " in opdb(*words).out


def test_a_model_is_named_by_its_file(opdb: Opdb, tmp_path: Path) -> None:
    text = "import torch\ndef build():\n    return torch.nn.Linear(8, 4), (torch.zeros(2, 8),)\n"
    (tmp_path / "net.py").write_text(text)
    name = f"{tmp_path / 'net.py'}:build"
    ran = opdb("predict", name)
    assert ran.status == 0 and ran.out.startswith(f"{name}, batch 2 float32 (as built) size 8")
    (tmp_path / "net.yml").write_text(f"model: {name}\n")
    refused = opdb("harvest", tmp_path / "net.yml")
    assert refused.status == 2 and "--allow-code" in refused.err
