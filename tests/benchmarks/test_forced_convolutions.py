from __future__ import annotations

import pytest
import torch

from benchmarks.forced_convolutions import Compared, convolutions, main, summary


def test_errors_are_told_from_ratios() -> None:
    cells = [Compared("c", "gemm", 1e-5, r, 3e-5, 1e-5) for r in (1.002, 0.99, 1.0)]
    found = summary(cells)
    assert found is not None and found.cells == 3
    assert found.median == pytest.approx(0.002) and found.largest == pytest.approx(0.01)
    assert (found.host_s, found.own_host_s) == (3e-5, 1e-5)
    assert summary([]) is None


def test_the_convolutions_of_models_are_taken_once_each() -> None:
    found = convolutions(["resnet18"], [1, 2])
    assert {c.kind for c in found} == {"conv2d"}
    assert {c.inputs["input"]["shape"][0] for c in found} == {1, 2}
    assert len(found) == len(set(found)) == 22


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resnet18"]) == 3
    assert "no CUDA device" in capsys.readouterr().err
