"""Which kernels a call launches, by name, as the profiler sees them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def launched_kernels(step: Callable[[], Any]) -> dict[str, int]:
    """Run `step` once under the profiler and count device kernels, copies and fills by name."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=False) as profiler:
        step()
        torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events() if profiler.profiler else []
    cuda = DeviceType.CUDA
    return dict(Counter(e.name() for e in events if e.device_type() == cuda))
