"""Which devices workers measure on, one worker each."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass

from opdb.bench.platform import cuda_devices
from opdb.errors import CannotMeasureError, InputError
from opdb.units import plural


@dataclass(frozen=True)
class WorkerDevice:
    """A worker's device: its name here, and all of CUDA's devices that its process is to see.

    A GPU's worker sees its own GPU alone, so that it can leave nothing on another's board.
    """

    name: str
    visible: str | None

    @property
    def device(self) -> str:
        """What the worker itself calls its device."""
        return "cpu" if self.name == "cpu" else "cuda"


def places(text: str) -> list[WorkerDevice]:
    """Read "all", or devices such as "0,1,3"; the processor may be named, even twice, to try it.

    Raises:
        InputError: the text names no devices, or a GPU twice.
        CannotMeasureError: this machine has no such GPU.
    """
    if text == "all":
        names = [f"cuda:{index}" for index in range(cuda_devices())]
        if not names:
            raise CannotMeasureError(
                "--devices all: this machine has no CUDA device; run on a machine with NVIDIA GPUs"
            )
    else:
        names = [_named(part.strip(), text) for part in text.split(",")]
    twice = [name for name, count in Counter(names).items() if count > 1 and name != "cpu"]
    if twice:
        raise InputError(
            f"--devices {text}: {twice[0]} is named twice; two workers on one GPU would each "
            "measure the other"
        )
    return [_place(name, text) for name in names]


def _named(part: str, text: str) -> str:
    found = re.fullmatch(r"(?:cuda:)?(\d{1,4})", part)
    if part == "cpu":
        return part
    if not found:
        raise InputError(f"--devices {text}: {part!r} is no device; give all, or as in 0,1,3")
    return f"cuda:{int(found[1])}"


def _place(name: str, text: str) -> WorkerDevice:
    if name == "cpu":
        return WorkerDevice(name, None)
    index, count = int(name.removeprefix("cuda:")), cuda_devices()
    if index >= count:
        raise CannotMeasureError(
            f"--devices {text}: no device {name}; this machine has {plural(count, 'CUDA device')}"
        )
    # What is visible here already may be chosen and reordered; the index counts within that.
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return WorkerDevice(name, visible[index] if visible != [""] else str(index))
