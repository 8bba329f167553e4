"""Environment variables that keep torch from compiling or tracing anything, and it does not say so.

No torch: the doctor looks at them, too.
"""

from __future__ import annotations

import os

from opdb.errors import CannotMeasureError

COMPILING = ("TORCHDYNAMO_DISABLE=1", "TORCH_COMPILE_DISABLE=1")
"""With one of these torch.compile returns the model as it is."""

TRACING = ("PYTORCH_JIT=0",)
"""With this a trace is the model as it is."""


def switched_off(switches: tuple[str, ...] = COMPILING + TRACING) -> list[str]:
    """Return which of the switches are set, as NAME=VALUE."""
    return [each for each in switches if os.environ.get(each.split("=")[0]) == each.split("=")[1]]


def check_can_compile() -> None:
    """Check that torch.compile is not switched off.

    Raises:
        CannotMeasureError: the environment keeps it from compiling.
    """
    for switch in switched_off(COMPILING):
        raise CannotMeasureError(
            f"{switch} in the environment keeps torch.compile from compiling anything; unset it"
        )


def check_can_trace() -> None:
    """Check that torch.jit is not switched off.

    Raises:
        CannotMeasureError: the environment keeps it from tracing.
    """
    for switch in switched_off(TRACING):
        raise CannotMeasureError(
            f"{switch} in the environment keeps torch.jit from tracing anything; unset it"
        )
