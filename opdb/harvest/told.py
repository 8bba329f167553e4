"""What a model is told of where its tensors are, when a pass on the CPU stands for one on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_GPU, _CPU = torch.device("cuda"), torch.device("cpu")

_ANSWERS: dict[Any, Any] = {
    Tensor.device.__get__: _GPU,
    Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
}


class ToldGpu(TorchFunctionMode):
    """Tells a model that its tensors are on a GPU; what it then makes or moves there stays here.

    A model may call something else on the CPU: torchvision's `batched_nms` goes class by class
    there from 1,000 boxes on, on a GPU from 25,000 on.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ANSWERS:
            return _ANSWERS[func]
        args, kwargs = pytree.tree_map_only(torch.device, _kept_here, (args, kwargs or {}))
        return func(*args, **kwargs)


def _kept_here(device: torch.device) -> torch.device:
    return _CPU if device.type == _GPU.type else device
