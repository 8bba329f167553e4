"""Host times in blocks of rounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from opdb.bench import host as host_times
from opdb.bench.host import (
    GRAPHS,
    Timed,
    entry_s,
    host_visits,
    round_of,
)
from opdb.bench.session import Session
from opdb.operators import build
from opdb.records import Call, Configuration
from tests.store import samples


def test_calls_are_made_in_their_order_and_modes_entered_where_they_change() -> None:
    done: list[str] = []

    @contextmanager
    def entered(state: str) -> Iterator[None]:
        done.append(f"enter {state}")
        yield
        done.append(f"leave {state}")

    def timed(name: str, state: str) -> Timed:
        return Timed(lambda: lambda: done.append(name), lambda: entered(state), (state,))

    calls = [timed("a", "x"), timed("b", "x"), timed("c", "y"), timed("a", "x")]
    times_s = round_of(calls, on_gpu=False)()
    assert len(times_s) == 4 and min(times_s) > 0
    in_x = ["enter x", "a", "b", "leave x"]
    assert done == [*in_x, "enter y", "c", "leave y", "enter x", "a", "leave x"]


def test_entering_autograd_is_taken_off_every_time_of_a_backward_pass_and_no_other(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks of a forward pass, a backward pass, and a call that enters autograd alone."""
    blocks = [[10e-6, 30e-6, 11e-6], [12e-6, 34e-6, 13e-6]]
    monkeypatch.setattr(host_times, "blocks_of", lambda one_round: blocks)
    tensor = {"shape": [4], "dtype": "float32"}
    forward = Configuration("sigmoid", {}, {"input": tensor}, gradient=True)
    calls = [Call(each, "function") for each in (forward, replace(forward, pass_name="backward"))]
    first, second = host_visits(session, [calls])
    assert first.times_s == pytest.approx((10e-6, 12e-6)) and first.flags == ()
    assert second.times_s == pytest.approx((19e-6, 21e-6)), "less what entering took in each block"
    assert second.flags == ("less the 12 µs in which autograd begins and ends",)


def relus(*sizes: int) -> list[Call]:
    tensors = [{"shape": [size], "dtype": "float32"} for size in sizes]
    return [Call(Configuration("relu", {}, {"input": t}), "function") for t in tensors]


def test_a_workload_too_large_for_the_memory_is_measured_in_parts(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_times, "BLOCK_S", 1e-9)
    monkeypatch.setattr(host_times, "GROUP_BYTES", 3 * 4 * 1000)
    unknown = replace(relus(7)[0], configuration=replace(samples.RELU, kind="unknown"))
    calls = [*relus(1000), unknown, *relus(8, 1000, 9, 8)]
    visits = host_visits(session, [calls])
    moments = itertools.groupby(visits, key=lambda visit: visit.started_at)
    parts = [[visit.configuration for visit in moment] for _, moment in moments]
    keys = [[c.configuration.key for c in relus(*sizes)] for sizes in ((1000,), (8, 9))]
    assert parts == keys


def test_what_a_compiled_graph_takes_to_begin_is_told_from_one_kernel_and_two() -> None:
    assert entry_s([30e-6, 38e-6]) == pytest.approx(22e-6)
    assert entry_s([30e-6, 61e-6]) == 0, "never less than nothing"
    assert entry_s([7e-6]) == 7e-6
    made = [build(graph, device="cpu")() for graph in GRAPHS]
    assert [[tensor.shape for tensor in each] for each in made] == [[(64,)], [(64,), (128,)]]
