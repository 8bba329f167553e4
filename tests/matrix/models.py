"""Models that tests of the matrix train."""

from __future__ import annotations

import multiprocessing
import os
import signal

import torch
from torch import nn


def fatal() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Kill the process, as the kernel does that of a training which takes all memory."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return nn.Linear(4, 2), (torch.randn(2, 4),)
