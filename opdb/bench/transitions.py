"""The extra time of a kernel where different operators follow one another.

Operators are timed one at a time, among the same two neighbours. In a model each follows another
operator, and on an H200 that adds about 0.1 µs to every kernel: most of it is code that is no
longer held (`opdb.bench.code`). A small network of blocks that many models are made of is run as
one graph, and each of its operators by itself: what the sum lacks, for each different kernel of a
call, is added in predictions to calls whose code was not measured. No model is in it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from opdb.bench.kernels import launched_kernels
from opdb.bench.neighbours import among_neighbours
from opdb.bench.replay import CudaClock, Rotation, capture, mean_time_s, prepare, warm_up
from opdb.bench.session import Session
from opdb.derive.costs import times_among_neighbours_s
from opdb.harvest import record
from opdb.models import LoadedModel
from opdb.operators import build

IMAGE = (1, 256, 14, 14)
REPLAYS = 40
WARM_UP_REPLAYS = 10
CALL_S = 3e-6
"""About what one of the network's calls takes."""


class Blocks(nn.Module):
    """A bottleneck, an inverted residual and a transformer's feed-forward part, on one image."""

    def __init__(self, channels: int = 256, wide: int = 96) -> None:
        super().__init__()
        narrow = channels // 4
        self.bottleneck = nn.Sequential(
            nn.Conv2d(channels, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, 3, padding=1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.entry = nn.Conv2d(channels, wide, 1, bias=False)
        self.inverted = nn.Sequential(
            nn.Conv2d(wide, 4 * wide, 1, bias=False),
            nn.BatchNorm2d(4 * wide),
            nn.Hardswish(inplace=True),
            nn.Conv2d(4 * wide, 4 * wide, 5, padding=2, groups=4 * wide, bias=False),
            nn.BatchNorm2d(4 * wide),
            nn.Hardswish(inplace=True),
            nn.Conv2d(4 * wide, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.norm = nn.LayerNorm(wide)
        self.widen, self.gelu = nn.Linear(wide, 4 * wide), nn.GELU()
        self.narrow = nn.Linear(4 * wide, wide)

    def forward(self, image: Tensor) -> Tensor:
        """Take (1, channels, h, w) to (1, h·w, wide)."""
        x = torch.relu(self.bottleneck(image) + image)
        x = self.entry(x)
        x = self.inverted(x) + x
        tokens: Tensor = x.flatten(2).transpose(1, 2).contiguous()
        fed: Tensor = self.narrow(self.gelu(self.widen(self.norm(tokens))))
        return tokens + fed


def transition_time_s(session: Session) -> float | None:
    """Return what each kernel takes longer among other operators (seconds); None where unknown.

    That is on a processor, and where kernels cannot be listed.
    """
    if not session.on_gpu:
        return None
    device = session.platform.torch_device
    network = Blocks().to(device).eval()
    image = torch.randn(IMAGE, device=device)
    inputs = {"args": [{"shape": list(IMAGE), "dtype": "float32"}], "kwargs": {}}
    recorder = record(LoadedModel("blocks", "opdb", "", network, (image,), {}, inputs, 1))

    def step() -> Any:
        with torch.no_grad():
            return network(image)

    kernels = launched_kernels(step)
    if not kernels:
        return None
    warm_up(step)
    whole_s = _time_s(capture(step, 1).replay)
    l2_bytes = session.platform.device.l2_bytes or 0
    parts_s, different = 0.0, 0
    for call, count in Counter(recorder.calls).items():
        built = build(call.configuration, form=call.form, device=device)
        if launched := launched_kernels(built):
            parts_s += count * _call_time_s(built, l2_bytes)
            different += count * len(launched)
    return (whole_s - parts_s) / different


def _call_time_s(call: Any, l2_bytes: int) -> float:
    """Return the time of one call among its neighbours, its weights hot."""
    rotation = Rotation(call, l2_bytes=l2_bytes, cold=False)
    seen = among_neighbours(rotation, CALL_S, l2_bytes)
    if seen is not None:
        return statistics.median(times_among_neighbours_s(seen))
    replay = prepare(rotation, device_type="cuda")
    return _time_s(replay.issue) / replay.calls


def _time_s(issue: Callable[[], None]) -> float:
    """Return the time of one replay, many queued one behind the other."""
    for _ in range(WARM_UP_REPLAYS):
        issue()
    return mean_time_s(issue, CudaClock(), REPLAYS)
