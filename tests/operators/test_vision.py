"""torchvision's own operators: seen by name, rebuilt without a name from a row being imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opdb.operators import build
from opdb.records import Configuration
from tests.operators.watching import watch

ops = pytest.importorskip("torchvision.ops")

BOXES = torch.tensor([[0.0, 1, 1, 5, 5], [1.0, 0, 0, 3, 4]])
CALLS: dict[str, Callable[[], Any]] = {
    "nms": lambda: ops.nms(BOXES[:, 1:], torch.rand(2), 0.5),
    "roi_align": lambda: ops.roi_align(torch.rand(2, 3, 8, 8), BOXES, 2),
    "deform_conv2d": lambda: ops.deform_conv2d(
        torch.rand(1, 2, 8, 8), torch.rand(1, 18, 6, 6), torch.rand(3, 2, 3, 3)
    ),
    "deform_conv2d with a mask": lambda: ops.deform_conv2d(
        torch.rand(1, 2, 8, 8),
        torch.rand(1, 18, 6, 6),
        torch.rand(3, 2, 3, 3),
        mask=torch.rand(1, 9, 6, 6),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_come_back(name: str) -> None:
    seen = next(c for c in watch(CALLS[name]) if c.kind == name.split()[0])
    built = build(Configuration.from_json(seen.json))
    assert watch(built)[-1] == seen
    assert built().dtype == CALLS[name]().dtype
    assert ("mask" in seen.inputs) == ("mask" in name)
