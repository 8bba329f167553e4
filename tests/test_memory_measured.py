"""Stated memory held against the peaks that PyTorch's allocator saw on an H200."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from opdb.harvest import harvest
from opdb.memory import memory_of
from opdb.models import ModelRequest
from tests.store import samples

MEASURED = json.loads((Path(__file__).parent / "data" / "h200_memory.json").read_text())
TOKENS = {"bert": 512, "gpt2": 512, "distilbert": 128, "roberta": 256}
H200 = replace(samples.DEVICE, memory_bytes=MEASURED["device_total_bytes"])


def stated_share(row: dict[str, Any]) -> float:
    """Return the stated memory of a measured pass as a share of its peak."""
    tokens = TOKENS.get(row["model"])
    request = ModelRequest(
        row["model"],
        batch_size=row["batch_size"],
        dtype=row["dtype"],
        memory_format=row["memory_format"],
        phase=row["phase"],
        input_size=None if tokens is None else (tokens,),
    )
    memory = memory_of(harvest(request), H200)
    assert memory.reason is None and memory.seen.weight_bytes == row["weights_bytes"]
    peak_bytes: int = row["peak_bytes"][-1]
    return memory.needed_bytes / peak_bytes


def test_stated_memory_is_the_measured_peak_but_for_workspaces() -> None:
    shares = [stated_share(row) for row in MEASURED["rows"]]
    assert len(shares) == 24
    assert max(shares) < 1.001, "more than was ever allocated"
    assert statistics.median(shares) > 0.99
    assert sum(share > 0.975 for share in shares) >= 20, "the rest has workspaces of cuDNN"
    assert min(shares) > 0.6
