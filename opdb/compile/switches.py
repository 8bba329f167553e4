"""Environment variables that keep torch from compiling or tracing anything, and it does not say so.

No torch: the doctor looks at them, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from opdb.errors import CannotMeasureError

SWITCHES: Mapping[str, Sequence[str]] = {
    "torch.compile": ("TORCHDYNAMO_DISABLE=1", "TORCH_COMPILE_DISABLE=1"),
    "torch.jit": ("PYTORCH_JIT=0",),
}
"""With one of its switches a part of torch returns the model as it is."""


def switched_off(part: str) -> list[str]:
    """Return which switches of a part are set, as NAME=VALUE."""
    pairs = (switch.split("=") for switch in SWITCHES[part])
    return [f"{name}={value}" for name, value in pairs if os.environ.get(name) == value]


def check_works(part: str) -> None:
    """Check that a part of torch is not switched off.

    Raises:
        CannotMeasureError: the environment keeps it from doing anything.
    """
    for switch in switched_off(part):
        raise CannotMeasureError(
            f"{switch} in the environment keeps {part} from doing anything; unset it"
        )
