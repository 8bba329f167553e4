"""The options of training runs, and what they mean together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.api.trainings import TrainOptions
from opdb.bench.options import BACKENDS, PRECISIONS, DriverOptions, ImageOptions
from opdb.errors import CannotMeasureError, InputError, UnknownNameError
from opdb.lookup.options import ModelOptions

if TYPE_CHECKING:
    from opdb.models import ModelRequest


_TRAINING = "Of training:"


@dataclass(frozen=True)
class TrainingArguments:
    """The options of a training run as they were given; None or False where they were not."""

    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="NAME",
            help=f"{_TRAINING} auto, cuda, mps or cpu.  [default: auto]",
        ),
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            metavar="NAME",
            help=f"{_TRAINING} fp32, or amp: autocast to bfloat16, fp32 where that cannot be.  "
            "[default: fp32]",
        ),
    ] = None
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="The same as --memory-format channels_last.")
    ] = False
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help=f"{_TRAINING} only algorithms that repeat their results."
        ),
    ] = False
    cudnn_benchmark: Annotated[
        bool,
        typer.Option("--cudnn-benchmark", help=f"{_TRAINING} let cuDNN try its algorithms first."),
    ] = False
    synthetic: Annotated[
        bool,
        typer.Option(
            "--synthetic", help=f"{_TRAINING} the model's example inputs, which stay on the device."
        ),
    ] = False
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="FOLDER",
            help=f"{_TRAINING} read images from here, one folder a class.  [default: --synthetic]",
        ),
    ] = None
    no_augment: Annotated[
        bool, typer.Option("--no-augment", help="Of --images: no random crops, no mirroring.")
    ] = False
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=0,
            help="Of --images: processes that read ahead.  [default: 4]",
        ),
    ] = None
    pin_memory: Annotated[
        bool, typer.Option("--pin-memory", help="Of --images: batches in page-locked memory.")
    ] = False
    prefetch_factor: Annotated[
        int | None,
        typer.Option(
            "--prefetch-factor",
            metavar="N",
            min=1,
            help="Of --images: batches a worker reads ahead.",
        ),
    ] = None
    warmup_iters: Annotated[
        int | None,
        typer.Option(
            "--warmup-iters",
            metavar="N",
            min=1,
            help=f"{_TRAINING} iterations before timing.  [default: 10]",
        ),
    ] = None
    iters: Annotated[
        int | None,
        typer.Option(
            "--iters", metavar="N", min=1, help=f"{_TRAINING} iterations timed.  [default: 50]"
        ),
    ] = None
    nvtx: Annotated[
        bool,
        typer.Option("--nvtx", help=f"{_TRAINING} mark its parts for NVIDIA's profilers."),
    ] = False
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help=f"{_TRAINING} a name of the run.")
    ] = None
    note: Annotated[
        str | None,
        typer.Option("--note", metavar="TEXT", help=f"{_TRAINING} a remark kept with it."),
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help=f"{_TRAINING} append a row for each run."),
    ] = None

    def given(self) -> list[str]:
        """Return the names of the options that were given and that only a training has."""
        return [
            "--" + name.replace("_", "-")
            for name, value in vars(self).items()
            if value is not None and value is not False and name != "channels_last"
        ]

    def check(self, requests: Sequence[ModelRequest]) -> None:
        """Check that options of training were given of trainings alone.

        Raises:
            InputError: one was, and a request is of inference.
        """
        given = self.given()
        if given and any(request.training is None for request in requests):
            raise InputError(f"{given[0]} is for training runs: add --phase training")

    def with_layout(self, said: ModelOptions) -> ModelOptions:
        """Return what is said of the model, its memory format by that name or --channels-last.

        Raises:
            InputError: both were said and differ.
        """
        if not self.channels_last:
            return said
        if said.memory_format not in (None, "channels_last"):
            raise InputError(
                f"give --memory-format {said.memory_format} or --channels-last, not both"
            )
        return replace(said, memory_format="channels_last")

    def _device(self, device: str | None) -> str | None:
        """Return the device that a training runs on; None for the best there is."""
        if self.backend is None:
            return device
        if self.backend not in BACKENDS:
            raise UnknownNameError("--backend", self.backend, BACKENDS)
        if device is not None:
            raise InputError(f"give --backend {self.backend} or --device {device}, not both")
        if self.backend == "mps":
            from opdb.bench.driver import why_no_mps

            raise CannotMeasureError(why_no_mps())
        return None if self.backend == "auto" else self.backend

    def options(self, repeats: int, device: str | None) -> TrainOptions:
        """Return what the options mean, on a device that may be named.

        Raises:
            InputError: one has no such value, two contradict each other, or the images' folder is
                not there.
            CannotMeasureError: this machine lacks the backend.
        """
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UnknownNameError("--precision", self.precision, PRECISIONS)
        usual = DriverOptions()
        driver = DriverOptions(
            deterministic=self.deterministic,
            cudnn_benchmark=self.cudnn_benchmark,
            images=self._image_options(),
            warmup_iters=self.warmup_iters or usual.warmup_iters,
            iters=self.iters or usual.iters,
            repeats=repeats,
            nvtx=self.nvtx,
            label=self.label,
            note=self.note,
        )
        return TrainOptions(driver, self._device(device), self.precision == "amp", self.csv)

    def _image_options(self) -> ImageOptions | None:
        of_images = {
            "--no-augment": self.no_augment,
            "--workers": self.workers is not None,
            "--pin-memory": self.pin_memory,
            "--prefetch-factor": self.prefetch_factor is not None,
        }
        if self.images is None:
            if first := next((name for name, given in of_images.items() if given), None):
                raise InputError(f"{first} is for images: give a folder with --images")
            return None
        if self.synthetic:
            raise InputError("give --synthetic or --images, not both")
        if self.workers == 0 and self.prefetch_factor is not None:
            raise InputError("--prefetch-factor needs workers; there are none (--workers 0)")
        usual = ImageOptions(self.images)
        usual.check_folder()
        return replace(
            usual,
            augment=not self.no_augment,
            workers=usual.workers if self.workers is None else self.workers,
            pin_memory=self.pin_memory,
            prefetch_factor=self.prefetch_factor,
        )
