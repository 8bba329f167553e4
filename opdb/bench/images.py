"""Batches of images from a folder of classes, as a training run reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from opdb.bench.options import ImageOptions
from opdb.errors import InputError
from opdb.units import plural

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""ImageNet's, by which torchvision's own training scripts normalise."""

RESIZED = 256 / 224
"""How much larger than its crop an image is made without augmentation."""

UNREADABLE = "cannot be read as an image"


class Images:
    """An endless sequence of batches (images, classes) on the host, shuffled anew each time round.

    Raises:
        InputError: the folder is not there, has too few images for one batch, or no classes.
    """

    def __init__(self, options: ImageOptions, size: tuple[int, int], batch_size: int) -> None:
        self._dataset = _dataset(options, size)
        count = len(self._dataset)
        if count < batch_size:
            raise InputError(
                f"{options.folder}: {plural(count, 'image')}; a batch needs {batch_size}: give a "
                "smaller --batch-size, or --synthetic"
            )
        self.classes = len(self._dataset.classes)
        more: dict[str, Any] = {}
        if options.workers:
            more = {"prefetch_factor": options.prefetch_factor, "persistent_workers": True}
        self._loader = DataLoader(
            self._dataset,
            batch_size=batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=options.workers,
            pin_memory=options.pin_memory,
            **more,
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches for ever.

        Raises:
            InputError: a file cannot be read as an image; the message names it.
        """
        while True:
            try:
                yield from self._loader
            except InputError as error:
                # out of a worker it comes with the worker's traceback around it
                lines = [line for line in str(error).splitlines() if UNREADABLE in line]
                said = lines[-1] if lines else str(error)
                raise InputError(said.rpartition("InputError: ")[2]) from error


def _dataset(options: ImageOptions, size: tuple[int, int]) -> Any:
    from torchvision import datasets
    from torchvision.transforms import v2

    folder = options.folder
    options.check_folder()
    if options.augment:
        steps = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
    else:
        larger = [round(side * RESIZED) for side in size]
        steps = [v2.Resize(larger, antialias=True), v2.CenterCrop(size)]
    transform = v2.Compose(
        [
            v2.PILToTensor(),
            *steps,
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )
    try:
        return datasets.ImageFolder(str(folder), transform=transform, loader=_read)
    except FileNotFoundError as error:
        # torchvision says whether there is no class at all, or which of them have no image.
        said = str(error).partition(". ")[0].removesuffix(".")
        raise InputError(
            f"{folder}: no images: {said}; it has one folder of images for each class"
        ) from error


def _read(path: str) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path}: {UNREADABLE}: {error}") from error
