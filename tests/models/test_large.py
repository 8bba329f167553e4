"""A model of any size is built without its memory."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from opdb.errors import InputError
from opdb.harvest.passes import harvest
from opdb.models import load
from opdb.models.meta import LARGE_BYTES
from opdb.spec import ModelSpec
from tests.own import Built, model

TERABYTE = 2**38
"""So many float32 are more than any machine that runs tests grants at once."""

LARGE = LARGE_BYTES // 4 + 1
"""So many float32 are large."""


@model(
    (1, 2**20),
    weight=lambda: nn.Parameter(torch.randn(2**20, 2**18) * 0.02),
    mask=lambda: torch.ones(2**20, 2**18, dtype=torch.bool).tril(),
    table=lambda: torch.cos(torch.arange(2**20)[:, None] / torch.arange(2**20)[None, :]),
)
def experts(m: Any, x: torch.Tensor) -> Any:
    """A parameter, a mask and a table that no memory holds."""
    return x @ m.weight


def test_no_memory_is_asked_for_what_is_large() -> None:
    workload = harvest(ModelSpec(f"{__name__}:experts"))
    (call,) = workload.calls
    assert call.configuration.kind == "matmul"
    module = load(ModelSpec(f"{__name__}:experts"), device="meta").module
    assert {name: t.shape for name, t in module.state_dict().items()} == {
        "weight": (2**20, 2**18),
        "mask": (2**20, 2**18),
        "table": (2**20, 2**20),
    }
    assert module.mask.dtype == torch.bool


def scaled() -> Built:
    """Ask for a value of what is large as the model is built."""
    return nn.Linear(int(torch.ones(LARGE)[:4].sum().item()), 2), (torch.randn(3, 4),)


def test_what_asks_for_values_of_what_is_large_runs_with_values() -> None:
    assert harvest(ModelSpec(f"{__name__}:scaled")).calls


def endless() -> Built:
    return nn.Linear(int(torch.ones(TERABYTE).sum().item()), 2), (torch.randn(1, 2),)


def test_what_asks_for_values_that_no_memory_holds_is_told() -> None:
    with pytest.raises(InputError, match=r"1100 GB\) are too large"):
        harvest(ModelSpec(f"{__name__}:endless"))


_PEAK = """
import re
from pathlib import Path
from opdb.harvest.passes import harvest
from opdb.models import ModelSpec
harvest(ModelSpec("deepseek_v3"))
# not getrusage, which starts with the peak of the process that started this one
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
"""


def test_a_model_of_terabytes_is_harvested_within_2_gb() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", _PEAK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 2e9
