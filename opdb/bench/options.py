"""The options of a training run beyond its model, as data: no torch is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opdb.errors import InputError
from opdb.records import Json

BACKENDS = ("auto", "cuda", "mps", "cpu")
"""Where a training may run; `auto` is a GPU where there is one."""

PRECISIONS = ("fp32", "amp")
"""In which precision: `amp` is under autocast."""


@dataclass(frozen=True)
class ImageOptions:
    """A folder with one folder of images a class, and how it is read.

    `augment` crops and mirrors at random. `workers` processes read ahead, `prefetch_factor` batches
    each (None: as PyTorch does).
    """

    folder: Path
    augment: bool = True
    workers: int = 4
    pin_memory: bool = False
    prefetch_factor: int | None = None

    def check_folder(self) -> None:
        if not self.folder.is_dir():
            raise InputError(
                f"{self.folder}: no such folder; give one with a folder of images a class"
            )


@dataclass(frozen=True)
class DriverOptions:
    """How to run a training: which backend settings, on which data, for how long.

    Without `images` it trains on the model's example inputs, which stay on the device. `iters`
    iterations are timed `repeats` times, after `warmup_iters` that are not.
    """

    deterministic: bool = False
    cudnn_benchmark: bool = False
    images: ImageOptions | None = None
    warmup_iters: int = 10
    iters: int = 50
    repeats: int = 3
    nvtx: bool = False
    label: str | None = None
    note: str | None = None

    @property
    def setting(self) -> dict[str, Json]:
        told: dict[str, Json] = {}
        if self.deterministic:
            told["deterministic"] = True
        if self.cudnn_benchmark:
            told["cudnn_benchmark"] = True
        if self.images is not None:
            told["data"] = {
                "augment": self.images.augment,
                "workers": self.images.workers,
                "pin_memory": self.images.pin_memory,
                "prefetch_factor": self.images.prefetch_factor,
            }
        return told
