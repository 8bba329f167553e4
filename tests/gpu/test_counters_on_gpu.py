"""Hardware counters on a GPU with Nsight Compute: ncu on PATH and the right to read counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opdb.bench.session import Platform, detect
from opdb.cli import main
from opdb.errors import CannotMeasureError
from opdb.operators import TensorNotes, describe_module
from opdb.store import Store, open_store
from opdb.studies.roofline import counters as ncu
from opdb.studies.roofline.counters import counters_of, definition
from opdb.studies.roofline.profiling import profile_calls


@pytest.fixture(scope="module")
def tool() -> ncu.Ncu:
    """Nsight Compute, allowed to read counters here."""
    try:
        found = ncu.find()
        known = found.known_metrics()
    except CannotMeasureError as error:
        pytest.skip(str(error))
    assert {"dram__bytes", "lts__t_bytes", "gpu__time_duration"} <= known
    return found


@pytest.fixture
def platform() -> Platform:
    return detect("cuda")


def profiled(
    store: Store, tool: ncu.Ncu, platform: Platform, module: nn.Module, *shape: int
) -> Any:
    """Return what counters see of one call of a module."""
    dtype = next(module.parameters()).dtype
    call = describe_module(module, (torch.empty(*shape, dtype=dtype),), {}, TensorNotes())
    chosen = definition(tool.known_metrics())
    missing = profile_calls(store, platform, tool, chosen, [call])
    if missing and "ERR_NVGPUCTRPERM" in str(missing):
        pytest.skip("this user may not read counters")
    assert not missing
    return counters_of(store.profiles(platform.device.slug, [call.key])[-1])


@pytest.mark.parametrize(
    ("dtype", "unit", "tolerance"),
    [(torch.bfloat16, "bfloat16", 0.001), (torch.float32, "float32", 0.01)],
)
def test_a_product_counts_as_many_operations_as_it_has(
    tool: ncu.Ncu,
    platform: Platform,
    tmp_path: Path,
    dtype: torch.dtype,
    unit: str,
    tolerance: float,
) -> None:
    layer = nn.Linear(1024, 1024, bias=False).to(dtype)
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        seen = profiled(store, tool, platform, layer, 1024, 1024)
    assert seen.unit == unit
    assert seen.flops[unit] == pytest.approx(2 * 1024**3, rel=tolerance)


def test_every_call_of_a_training_step_is_seen(
    tool: ncu.Ncu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Autograd would launch from threads of its own, where no range of the main one reaches."""
    asked = ("mlp", "--phase", "training", "--db", str(tmp_path / "opdb.sqlite"))
    assert main(["harvest", *asked]) == 0
    capsys.readouterr()
    assert main(["roofline", *asked, "--ncu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["counters"]
    assert found["missing"] == []
    backward = [row for row in found["operators"] if row["pass"] == "backward"]
    assert backward and all(row["bytes"]["memory"] for row in backward)
