from __future__ import annotations

import pytest
import torch

from benchmarks.graph_speeds import Speeds, main


def test_jumps_are_counted_between_stretches() -> None:
    found = Speeds("resnet152", "as it is", 700, [2.81e-3, 2.808e-3, 2.57e-3, 2.57e-3, 2.81e-3])
    assert found.jumps == 2
    assert "2.5700   2.8080   2.8100 ms,  343 ns a kernel apart, 2 jumps in 5" in str(found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resnet18"]) == 3
    assert "no CUDA device" in capsys.readouterr().err
