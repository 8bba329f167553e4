"""What the backend is told: read from torch, and which of it touches a kind."""

from __future__ import annotations

import torch

from opdb.records import Json


def current_settings() -> dict[str, Json]:
    """Return the backend settings in force in this process."""
    return {
        "tf32_convolution": torch.backends.cudnn.allow_tf32,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "mha_fastpath": torch.backends.mha.get_fastpath_enabled(),
    }
