from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from benchmarks import forced_convolutions
from benchmarks.forced_convolutions import (
    REPLAYS,
    SETS,
    Compared,
    compare,
    convolutions,
    main,
    summary,
)
from opdb.algorithms.names import Algorithm, algorithm_named
from opdb.operators import BuiltCall, build
from opdb.records import Configuration


def test_errors_are_told_from_ratios_beside_those_of_the_control() -> None:
    ratios = [(1.002, 1.001), (0.98, 1.0), (1.0, 0.997)]
    cells = [Compared("c", "gemm", 1e-5, *each, 3e-5, 1e-5) for each in ratios]
    found = summary(cells)
    assert found is not None and found.cells == 3
    assert found.forced.largest == pytest.approx(0.02) and found.forced.close == 2
    assert str(found.forced) == "a median of 0.20 %, at most 2.00 %, 2 within 1 %"
    assert str(found.control) == "a median of 0.10 %, at most 0.30 %, 3 within 1 %"
    assert (found.host_s, found.own_host_s) == (3e-5, 1e-5)
    assert summary([]) is None


class Device:
    """Stands in for a GPU and its clock: only replays take time, `takes_s` of a set's graphs.

    `captured` holds the calls of all graphs, `replayed` their numbers in the order of replays.
    """

    takes_s = (2.0, 3.0, 2.2)

    def __init__(self) -> None:
        self.time_s = 0.0
        self.forced: list[BuiltCall] = []
        self.captured: list[BuiltCall] = []
        self.replayed: list[int] = []

    def built(self, configuration: Configuration, algorithm: Algorithm, device: str) -> BuiltCall:
        self.forced.append(build(configuration, device=device))
        return self.forced[-1]

    def capture(self, call: BuiltCall, calls: int) -> SimpleNamespace:
        number = len(self.captured)
        self.captured.append(call)

        def replay() -> None:
            self.replayed.append(number)
            self.time_s += calls * self.takes_s[number % len(self.takes_s)]

        return SimpleNamespace(replay=replay)

    def mark(self) -> float:
        return self.time_s

    def wait(self, mark: float) -> None:
        """Do nothing: the work is done."""

    def elapsed_s(self, first: float, second: float) -> float:
        return second - first


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    for name, value in (
        ("built", made.built),
        ("capture", made.capture),
        ("CudaClock", lambda: made),
        ("warm_up", lambda call: call()),
        ("launched_kernels", lambda call: {"a kernel": 1}),
        ("host_time_s", lambda call: 1e-5),
    ):
        monkeypatch.setattr(forced_convolutions, name, value)
    return made


def test_torchs_own_call_takes_turns_with_the_forced_one_and_with_itself(device: Device) -> None:
    tensors = {
        "input": {"shape": [1, 2, 4, 4], "dtype": "float32"},
        "weight": {"shape": [2, 2, 1, 1], "dtype": "float32", "role": "weight"},
    }
    convolution = Configuration("conv2d", {}, tensors)
    [cell] = compare([convolution], [algorithm_named("gemm")], "cpu")
    assert (cell.own_s, cell.ratio, cell.control) == pytest.approx((2.0, 1.5, 1.1))
    forced = [id(call) for call in device.forced]
    assert [id(call) in forced for call in device.captured] == [False, True, False] * SETS
    held = {t.data_ptr() for call in device.captured for t in (*call.inputs, *call.weights)}
    assert len(held) == 2 * 3 * SETS, "each call has tensors of its own"
    of_a_set = 3 * (2 + REPLAYS)
    assert device.replayed[:of_a_set] == [0, 1, 2] * (2 + REPLAYS)
    assert len(device.replayed) == SETS * of_a_set


def test_the_convolutions_of_models_are_taken_once_each() -> None:
    found = convolutions(["resnet18"], [1, 2])
    assert {c.kind for c in found} == {"conv2d"}
    assert {c.inputs["input"]["shape"][0] for c in found} == {1, 2}
    assert len(found) == len(set(found)) == 22


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resnet18"]) == 3
    assert "no CUDA device" in capsys.readouterr().err
