"""What a fingerprint hangs on. It is asked for in processes of its own: tests are a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opdb.harvest.finding import fingerprint
from opdb.spec import ModelSpec
from tests.paths import python_path

PROGRAM = """
import json, os, sys
from opdb.harvest import finding as digest
from opdb.harvest.finding import fingerprint
from opdb.harvest.passes import harvest_in_both
from opdb.models import ModelSpec
here, found = sys.argv[1], {}

def told(**more):
    digest._code.cache_clear()
    return fingerprint(ModelSpec("mlp", **more))

found["request"], found["same"] = told(), told(batch_size=1)
found["of harvest"] = harvest_in_both(ModelSpec("mlp")).fingerprint
found["batch size"] = told(batch_size=2)
found["inputs"] = told(inputs={"args": [{"shape": ["batch", 8], "dtype": "float32"}]})
found["own code"] = fingerprint(ModelSpec("textwrap:wrap"))
os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] = "1"
found["variable"] = told()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = here
del os.environ["TRANSFORMERS_SDPA_FORCE_GQA"]
found["without it"] = told()
os.mkdir("some-1.0.dist-info")
open("some-1.0.dist-info/METADATA", "w").write("Name: some\\nVersion: 1.0")
sys.path.append(here)
found["installed"] = told()
os.mkdir("opdb")
digest._OWN = digest.Path(here, "opdb")
digest._is_installed = lambda: True  # opdb lies elsewhere now
open("opdb/one.py", "w").write("x = 1")
found["opdb"] = told()
print(json.dumps(found))
"""


def ran(program: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path()},
    ).stdout


def test_it_is_of_all_that_a_harvest_hangs_on(tmp_path: Path) -> None:
    found = json.loads(ran(PROGRAM, tmp_path))
    first = found.pop("request")
    assert found.pop("own code") is None
    assert [found.pop(same) for same in ("same", "of harvest", "without it")] == [first] * 3
    assert len({first, *found.values()}) == 1 + len(found) and None not in found.values()


@pytest.mark.parametrize("where", ["beside", "site-packages"])
def test_code_that_was_not_installed_leaves_it_open(tmp_path: Path, where: str) -> None:
    folder = tmp_path / where
    folder.mkdir()
    (folder / "some.py").write_text("")
    program = (
        "import sys; sys.path.append(sys.argv[1]); import some\n"
        "from opdb.harvest.finding import fingerprint\n"
        "from opdb.models import ModelSpec\n"
        "print(fingerprint(ModelSpec('mlp')) is None)"
    )
    assert ran(program, folder).strip() == str(where == "beside")


OWN = """
import torch

class Own(torch.nn.Module):
    def __init__(self, asks):
        super().__init__()
        self.asks = asks
    def forward(self, x):
        return x + 1 if self.asks(x) else x

def fails(x):
    if torch.cuda.is_current_stream_capturing():
        raise NotImplementedError("not in a graph")

def plain():
    return Own(lambda x: True), torch.ones(2)

def on_the_cpu():
    return Own(lambda x: x.sum() > 0), torch.ones(2)

def not_captured():
    return Own(fails), torch.ones(2)
"""


def test_what_the_cpu_finds_or_a_failure_hides_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "own.py").write_text(OWN)
    program = (
        "from opdb.harvest.passes import harvest_in_both\n"
        "from opdb.models import ModelSpec\n"
        "from opdb.harvest import finding as digest\n"
        "import sys; sys.path.append(sys.argv[1]); digest.is_import_path = lambda name: False\n"
        "for name in ('plain', 'on_the_cpu', 'not_captured'):\n"
        "    print(harvest_in_both(ModelSpec(f'own:{name}')).fingerprint is not None)"
    )
    assert ran(program, folder).split() == ["True", "False", "False"]


def test_a_checkout_that_was_imported_leaves_it_open_here() -> None:
    assert fingerprint(ModelSpec("mlp")) is None
