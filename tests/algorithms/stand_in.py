"""What stands in opdb's operator's place where there is no GPU: torch's convolution.

It takes stride 1 alone, as an algorithm that cannot run everything does.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from opdb.algorithms import convolution
from opdb.algorithms.convolution import ForcedCall
from opdb.bench import run as campaigns
from opdb.bench import visit as forced
from opdb.errors import RefusedError

REFUSAL = "cudnnAny: CUDNN_STATUS_NOT_SUPPORTED (3000)"


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[ForcedCall]:
    """Put it there for a test; return the list that forced calls are written to."""
    made: list[ForcedCall] = []

    def run(call: ForcedCall) -> Tensor:
        if tuple(call.stride) != (1, 1):
            raise RefusedError(REFUSAL)
        made.append(call)
        return torch.nn.functional.conv2d(*call[:-1])

    monkeypatch.setattr(convolution, "run", run)
    monkeypatch.setattr(forced, "run", run)
    for module in (forced, campaigns):
        monkeypatch.setattr(module, "check_algorithms", lambda algorithms, platform: None)
    guessed = {"guess": "implicit gemm"}
    monkeypatch.setattr(ForcedCall, "ran", lambda call: guessed.get(call.algorithm, call.algorithm))
    return made
