"""Weights, activations, gradients, optimizer: what fits on a device."""

from dataclasses import replace

import pytest

from opdb.api.documents import memory_document
from opdb.api.fitting import memory_line
from opdb.memory import Memory, Optimizer, memory_of
from opdb.records import Call, Configuration, PassMemory
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


def test_what_does_not_fit_is_told() -> None:
    memory = stored(SEEN, 70 * GIGA)
    assert memory.fits is False and memory.largest_batch == 2
    expected = "does not fit: needs about 100 GB, the device has 70 GB"
    assert memory_line(memory).startswith(expected)
    memory = stored(SEEN, 60 * GIGA - 1)
    assert memory.largest_batch == 0 and memory_line(memory).endswith("; no batch fits")


def test_where_nobody_knows_what_the_device_has_nothing_is_judged() -> None:
    memory = stored(SEEN, None)
    assert memory.fits is None and memory.largest_batch is None
    assert "memory is not known" in memory_line(memory)


@pytest.mark.parametrize(
    ("call", "optimizer"),
    [
        (update("sgd"), Optimizer()),
        (update("sgd", momentum=0.9), Optimizer(8 * GIGA)),
        (update("adamw"), Optimizer(16 * GIGA, 8 * GIGA)),
    ],
)
def test_an_optimizer_holds_its_state(call: Call, optimizer: Optimizer) -> None:
    seen = PassMemory(8 * GIGA, GIGA, 39 * GIGA, 8 * GIGA, 40 * GIGA)
    memory = stored(seen, 150 * GIGA, call)
    assert memory.optimizer == optimizer
    assert memory.needed_bytes == (49 * GIGA) + optimizer.state_bytes
    small = PassMemory(8 * GIGA, 0, GIGA, 8 * GIGA, 9 * GIGA)
    stepping = stored(small, 150 * GIGA, call).needed_bytes
    expected = 8 * GIGA + optimizer.state_bytes + max(9 * GIGA, 8 * GIGA + optimizer.step_bytes)
    assert stepping == expected


def test_of_a_harvest_without_memory_there_are_bounds_from_its_calls() -> None:
    memory = stored(None, 150 * GIGA)
    assert memory.reason is not None and memory.fits is True and memory.largest_batch is None
    assert 0 < memory.needed_bytes < memory.at_most_bytes
    between = (memory.needed_bytes + memory.at_most_bytes) // 2
    unsure = stored(None, between)
    assert unsure.fits is None and memory_line(unsure).startswith("may not fit: ")
    assert stored(None, memory.needed_bytes - 1).fits is False
    assert memory_document(unsure)["bounds"] == unsure.reason
