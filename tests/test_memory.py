"""Weights, activations, gradients, optimizer: what fits on a device."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opdb.commands._predictions import memory_document, memory_line
from opdb.harvest.passes import harvest
from opdb.memory import (
    Memory,
    memory_of,
    touched_bytes,
)
from opdb.records import Call, Configuration, PassMemory
from opdb.spec import ModelSpec
from tests.store import samples

GIGA = 10**9
SEEN = PassMemory(60 * GIGA, 2 * GIGA, 38 * GIGA, 0, 38 * GIGA)


def stored(seen: PassMemory | None, device_bytes: int | None, *calls: Call) -> Memory:
    workload = samples.workload(batch_size=8)
    workload = replace(workload, memory=seen, calls=workload.calls + calls)
    return memory_of(workload, replace(samples.DEVICE, memory_bytes=device_bytes))


def update(kind: str, **parameters: float) -> Call:
    params = [{"shape": [10**9], "dtype": "float32"}, {"shape": [10**9], "dtype": "float32"}]
    return Call(Configuration(kind, parameters, {"params": params}, pass_name="update"), "function")


def test_what_fits_and_the_largest_batch() -> None:
    memory = stored(SEEN, 150 * GIGA)
    assert (memory.needed_bytes, memory.fits) == (100 * GIGA, True)
    assert memory.largest_batch == 18  # (150 - 60) / 40 * 8
    assert stored(SEEN, 100 * GIGA).largest_batch == 8
    line = memory_line(memory)
    assert line.startswith("memory: needs about 100 GB, the device has 150 GB (weights 60 GB, ")
    assert line.endswith("; largest batch about 18")


@pytest.mark.parametrize(
    ("call", "optimizer"),
    [
        (update("sgd"), (0, 0)),
        (update("sgd", momentum=0.9), (8 * GIGA, 0)),
        (update("adamw"), (16 * GIGA, 8 * GIGA)),
    ],
)
def test_an_optimizer_holds_its_state(call: Call, optimizer: tuple[int, int]) -> None:
    seen = PassMemory(8 * GIGA, GIGA, 39 * GIGA, 8 * GIGA, 40 * GIGA)
    memory = stored(seen, 150 * GIGA, call)
    held, made = optimizer
    assert (memory.optimizer_bytes, memory.step_bytes) == optimizer
    assert memory.needed_bytes == (49 * GIGA) + held
    small = PassMemory(8 * GIGA, 0, GIGA, 8 * GIGA, 9 * GIGA)
    stepping = stored(small, 150 * GIGA, call).needed_bytes
    expected = 8 * GIGA + held + max(9 * GIGA, 8 * GIGA + made)
    assert stepping == expected


def test_where_a_harvest_recorded_none_it_is_not_known() -> None:
    memory = stored(None, 150 * GIGA)
    assert memory.fits is None and memory.largest_batch is None
    assert memory_line(memory).startswith("memory: not known (harvested before memory")
    assert memory_document(memory)["reason"] == memory.reason


def test_what_has_the_batch_in_its_shape_grows_with_it() -> None:
    """Of 60 GB of weights and buffers, 20 hold what belongs to the 8 samples."""
    memory = stored(replace(SEEN, cache_bytes=20 * GIGA), 150 * GIGA)
    assert (memory.weight_bytes, memory.cache_bytes) == (40 * GIGA, 20 * GIGA)
    assert memory.needed_bytes == 100 * GIGA
    assert memory.largest_batch == 14  # (150 - 40) / (20 + 2 + 38) * 8
    document = memory_document(memory)
    assert (document["weight_bytes"], document["cache_bytes"]) == (40 * GIGA, 20 * GIGA)
    assert "(weights 40 GB, cache 20 GB, activations 38 GB)" in memory_line(memory)
    crowded = stored(replace(SEEN, cache_bytes=20 * GIGA), 50 * GIGA)
    assert crowded.fits is False and crowded.largest_batch == 1, "though all 60 GB do not fit"


MEASURED = json.loads((Path(__file__).parent / "data" / "h200_memory.json").read_text())
TOKENS = {"bert": 512, "gpt2-bare": 512, "distilbert": 128, "roberta": 256}
H200 = replace(samples.DEVICE, memory_bytes=MEASURED["device_total_bytes"])


def stated_share(row: dict[str, Any]) -> float:
    """Return the stated memory of a measured pass as a share of its peak."""
    tokens = TOKENS.get(row["model"])
    request = ModelSpec(
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


WIDE, LONG = 1024, 64


def linear(rows: int) -> Configuration:
    return Configuration(
        "linear",
        {},
        {
            "input": {"shape": [rows, WIDE], "dtype": "float32"},
            "weight": {"shape": [WIDE, WIDE], "dtype": "float32", "role": "weight"},
        },
    )


def test_weights_add_up_and_activations_are_used_again() -> None:
    calls = tuple(Call(linear(LONG), "module") for _ in range(5))
    found = touched_bytes(replace(samples.workload(), calls=calls))
    assert found == 5 * WIDE * WIDE * 4 + 2 * LONG * WIDE * 4
