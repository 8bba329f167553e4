"""In which state a real GPU starts kernels, and that a change is noticed."""

from __future__ import annotations

import torch

from opdb.bench.session import Launching
from opdb.processes import done_apart


def make_a_context() -> None:
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def test_another_process_changes_how_kernels_are_started_and_settling_brings_it_back() -> None:
    launching = Launching("cuda")
    for _ in range(2):
        launching.settle()
        assert launching.flags() == ()
        done_apart(make_a_context)
        [flag] = launching.flags()
        assert flag.startswith("kernels were started faster")
    launching.settle()
    assert launching.flags() == ()
    assert 0.5e-6 < launching.tiny_kernel_s < 3e-6
