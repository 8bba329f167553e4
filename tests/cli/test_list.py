"""`opdb show`: every name that can be asked for, without torch, and what stands in the database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.kinds import KINDS
from opdb.models import names
from opdb.models.catalogue import catalogue
from tests import published
from tests.cli.conftest import Opdb, snapshot
from tests.paths import python_path


@pytest.mark.parametrize("source", ["builtin", "torchvision", "transformers"])
def test_the_catalogue_has_the_names_that_the_source_itself_lists(source: str) -> None:
    """Read from source files; the source imports its package to know them."""
    assert {each.name for each in catalogue() if each.source == source} == set(names(source))


def test_models_and_kinds_need_neither_torch_nor_a_database(tmp_path: Path) -> None:
    program = (
        "import sys; from opdb.cli import main\n"
        "for what in ('models', 'kinds', 'algorithms'): assert main(['show', what]) == 0\n"
        "heavy = {'torch', 'torchvision', 'transformers', 'sqlalchemy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OPDB_DB": str(tmp_path / "none.sqlite"),
    }
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert snapshot(tmp_path) == {}


def test_workloads_and_devices_are_those_of_the_database(opdb: Opdb, tmp_path: Path) -> None:
    published.copy_to(tmp_path / "opdb.sqlite")
    before = snapshot(tmp_path / "here")
    workloads = json.loads(opdb("show", "workloads", "--json").out)
    assert {"resnet50", "bert_base"} <= {each["model"] for each in workloads}
    assert all(each["calls"] >= each["configurations"] > 0 for each in workloads)
    (device,) = {each["device"] for each in json.loads(opdb("show", "devices", "--json").out)}
    assert device == published.DEVICE
    shown = opdb("show", "workloads", "RESNET1").out.splitlines()
    assert {line.split()[0] for line in shown[1:]} == {"resnet152", "resnet18"}
    assert snapshot(tmp_path / "here") == before


def test_a_filter_is_a_part_of_a_name_or_a_pattern_for_all_of_it(opdb: Opdb) -> None:
    whole = json.loads(opdb("show", "models", "resnet1*", "--json").out)
    assert {each["model"] for each in whole} == {"resnet101", "resnet152", "resnet18"}
    part = json.loads(opdb("show", "models", "resnet1", "--json").out)
    assert {"resnet18", "deeplabv3_resnet101"} <= {each["model"] for each in part}
    kinds = json.loads(opdb("show", "kinds", "--json").out)
    assert {each["kind"] for each in kinds} == set(KINDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("models", "resnet5O"), "unknown model 'resnet5O'; did you mean"),
    ],
)
def test_what_matches_nothing_is_told_with_the_nearest(
    arguments: tuple[str, ...], said: str, opdb: Opdb
) -> None:
    ran = opdb("show", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"opdb: {said}")
