"""Timelines against a plain simulation of two queues."""

from __future__ import annotations

import random

import pytest

from opdb.compose.timeline import Step, eager_time_s, steady_pass


def test_a_pass_without_calls_takes_no_time() -> None:
    assert eager_time_s([]) == 0


def test_a_host_bound_pass_takes_the_sum_of_host_times() -> None:
    steps = [Step(1e-6, 2e-5), Step(0.0, 1e-5), Step(3e-6, 4e-5)]
    assert eager_time_s(steps) == pytest.approx(7e-5)


def test_a_device_bound_pass_takes_the_sum_of_device_times() -> None:
    steps = [Step(1e-3, 2e-5), Step(2e-3, 1e-5), Step(1e-6, 4e-5)]
    assert eager_time_s(steps) == pytest.approx(3.001e-3)


@pytest.mark.parametrize("seed", range(5))
def test_without_synchronising_the_slower_side_decides(seed: int) -> None:
    draw = random.Random(seed)
    steps = [Step(draw.uniform(1e-6, 9e-5), draw.uniform(1e-6, 9e-5)) for _ in range(60)]
    slower = max(sum(s.device_s for s in steps), sum(s.host_s for s in steps))
    assert eager_time_s(steps) == pytest.approx(slower, rel=0.02)


def test_a_call_that_synchronises_lets_both_sides_wait() -> None:
    """Device 4 ms, host 3 ms: overlapped 4 ms; the wait puts part of the host time on top."""
    apart = [Step(2e-3, 1e-3), Step(2e-3, 1e-3), Step(0.0, 1e-3)]
    waiting = [*apart[:2], Step(0.0, 1e-3, synchronises=True)]
    assert eager_time_s(apart) == pytest.approx(4e-3)
    # Host 0-1-2-3, device 1-3-5: the host waits to 5; the next pass begins there.
    assert eager_time_s(waiting) == pytest.approx(5e-3)


def test_synchronising_every_call_adds_host_and_device_times() -> None:
    steps = [Step(2e-3, 1e-3, synchronises=True)] * 3
    assert eager_time_s(steps) == pytest.approx(9e-3)


def drawn(seed: int, *, waits: bool) -> list[Step]:
    draw = random.Random(seed)
    slower = draw.choice([0.3, 1.0, 3.0])
    return [
        Step(
            draw.choice([0.0, draw.uniform(1e-6, 9e-5)]) * slower,
            draw.uniform(1e-6, 9e-5),
            waits and draw.random() < 0.1,
        )
        for _ in range(60)
    ]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_steady_pass_takes_the_eager_time_and_runs_nothing_before_it_is_issued(
    seed: int, waits: bool
) -> None:
    steps = drawn(seed, waits=waits)
    found = steady_pass(steps)
    if waits:
        assert found.end_s - found.start_s == pytest.approx(eager_time_s(steps), rel=1e-12)
    else:
        slower = max(sum(s.device_s for s in steps), sum(s.host_s for s in steps))
        assert found.end_s - found.start_s == pytest.approx(slower, rel=1e-12)
    host_s, device_s = 0.0, found.start_s
    for step, span in zip(steps, found.spans, strict=True):
        assert span.host_start_s >= host_s
        assert span.device_start_s >= max(span.host_end_s, device_s)
        assert span.host_end_s - span.host_start_s == pytest.approx(step.host_s)
        assert span.device_end_s - span.device_start_s == pytest.approx(step.device_s)
        host_s = span.host_end_s
        device_s = span.device_end_s if step.device_s else device_s
    assert device_s <= found.end_s * (1 + 1e-12)


def test_a_steady_pass_of_nothing_takes_no_time() -> None:
    found = steady_pass([])
    assert (found.spans, found.start_s, found.end_s) == ((), 0, 0)


def test_a_steady_pass_call_by_call() -> None:
    """The device lags 1 ms behind the host: it is busy with the pass before for as long."""
    found = steady_pass([Step(3e-3, 1e-3), Step(0.0, 1e-3), Step(1e-3, 2e-3)])
    assert (found.start_s, found.end_s) == pytest.approx((1e-3, 5e-3))
    assert [(s.host_start_s, s.host_end_s) for s in found.spans] == [
        pytest.approx(ends) for ends in ((0.0, 1e-3), (1e-3, 2e-3), (2e-3, 4e-3))
    ]
    assert [(s.device_start_s, s.device_end_s) for s in found.spans] == [
        pytest.approx(ends) for ends in ((1e-3, 4e-3), (4e-3, 4e-3), (4e-3, 5e-3))
    ]


def test_a_steady_pass_that_waits_ends_with_its_host() -> None:
    """The device's 2 ms of the pass before are waited for together with its 3 ms of this one."""
    steps = [Step(3e-3, 1e-3, synchronises=True), Step(2e-3, 1e-3)]
    found = steady_pass(steps)
    assert found.end_s - found.start_s == pytest.approx(eager_time_s(steps))
    assert found.end_s - found.start_s == pytest.approx(6e-3)
    assert found.spans[1].host_start_s == pytest.approx(found.spans[0].device_end_s)
