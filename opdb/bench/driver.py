"""Training runs: a number of iterations of a model, data loading and compute timed apart."""

from __future__ import annotations

import os
import platform as python_platform
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from opdb.bench.model import RunReadings, TrainingStep, run_of
from opdb.bench.replay import Timing, launched_kernels, observe
from opdb.bench.session import Session
from opdb.bench.visit import session_flags
from opdb.errors import CannotMeasureError, InputError
from opdb.files import LARGEST_BYTES, check_input
from opdb.models import LoadedModel, load
from opdb.records import Json, ModelRun
from opdb.runs import DriverOptions, ImageOptions
from opdb.spec import MIXED, ModelSpec
from opdb.units import plural

AMP_DTYPE = "bfloat16"
"""What autocast casts to: it needs no scaling of the loss."""

_CUBLAS, _REPEATING = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"


def why_no_amp(device: str) -> str | None:
    """Say why a device ("cuda:0", "cpu") cannot train in mixed precision; None where it can."""
    if not device.startswith("cuda"):
        return f"mixed precision is for NVIDIA GPUs, not for {device!r}"
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return f"{torch.cuda.get_device_name(device)} does not compute in {AMP_DTYPE}"
    return None


NO_MPS = "opdb has neither a clock nor a meter for the backend 'mps' yet; use --backend cpu"


def train(session: Session, request: ModelSpec, workload: str, options: DriverOptions) -> ModelRun:
    if options.nvtx and not session.on_gpu:
        raise CannotMeasureError(f"NVTX ranges need a GPU; {session.platform.device.name} is none")

    def work(seen: RunReadings) -> None:
        try:
            with _backend(options):
                _train(session, request, options, seen)
        finally:
            seen.facts |= _facts(session, request, options)

    return run_of(session, workload, "eager", work, options.setting)


def _train(session: Session, request: ModelSpec, options: DriverOptions, seen: RunReadings) -> None:
    device = session.platform.torch_device
    loaded = load(request, device=device)
    iteration = _Iteration(session, loaded, request, options)
    for _ in range(max(options.warmup_iters, 1)):  # the first makes the optimizer's state
        loss = iteration()
    if not bool(torch.isfinite(loss)):
        seen.flags.append("the loss is not finite")
    if session.on_gpu:
        torch.cuda.reset_peak_memory_stats()
        if options.images is None:
            seen.kernels = launched_kernels(iteration.step)
    times_s = []
    timing = Timing(0.0, 0.0, lag_s=session.lag_s, least=options.iters)
    for _ in range(options.repeats):
        iteration.forget_times()
        found = observe(iteration, 1, session.clock, session.meter, timing)
        seen.repeats.append(found.stretch)
        seen.flags += session_flags(session, found)
        times_s.append(iteration.times_s(options.iters))
    if session.on_gpu:
        seen.peak_memory_bytes = torch.cuda.max_memory_allocated()
    measured_s = statistics.fmean(sum(r.replay_times_s) for r in seen.repeats)
    images = loaded.batch_size * request.accumulation * options.iters
    seen.facts |= {
        "measured_s": measured_s,
        "images_per_s": images / measured_s,
        "data_time_s": statistics.fmean(data_s for data_s, _ in times_s),
        "compute_time_s": statistics.fmean(compute_s for _, compute_s in times_s),
    }


class _Iteration:
    def __init__(
        self, session: Session, loaded: LoadedModel, request: ModelSpec, options: DriverOptions
    ) -> None:
        self.step = TrainingStep(loaded, request)
        self._clock, self._nvtx = session.clock, options.nvtx
        self._batches = request.accumulation
        self._device = session.platform.torch_device
        is_last = loaded.memory_format == "channels_last"
        self._format = torch.channels_last if is_last else torch.contiguous_format
        self._dtype = getattr(torch, loaded.dtype.split(MIXED)[0])
        self._images: Iterator[Any] | None = None
        if options.images is not None:
            size = _image_size(loaded)
            images = Images(options.images, size, loaded.batch_size)
            self.step.forward()
            if self.step.classes < images.classes:
                known = self.step.classes or "no"
                raise InputError(
                    f"{plural(images.classes, 'class', 'classes')} of images; "
                    f"{loaded.name!r} tells {known} apart"
                )
            self._images = iter(images)
        self.forget_times()

    def forget_times(self) -> None:
        self._data_s: list[float] = []
        self._marks: list[list[tuple[Any, Any]]] = []

    def times_s(self, iters: int) -> tuple[float, float]:
        """Return how much of an iteration went into waiting for data, and into compute.

        Of the iterations that a stretch has timed: its window begins when the first is done.
        """
        self._clock.wait(self._marks[-1][-1][1])
        timed = [pair for marks in self._marks[1 : 1 + iters] for pair in marks]
        compute_s = sum(self._clock.elapsed_s(first, last) for first, last in timed)
        return sum(self._data_s[1 : 1 + iters]) / iters, compute_s / iters

    def __call__(self) -> torch.Tensor:
        loss = torch.zeros(())
        self._data_s.append(0.0)
        self._marks.append([])
        for number in range(self._batches):
            with self._range("data"):
                self._load()
            first = self._clock.mark()
            with self._range("forward"):
                made = self.step.forward()
            with self._range("backward"):
                loss = self.step.backward(made)
            if number == self._batches - 1:
                with self._range("optimizer"):
                    self.step.update()
            self._marks[-1].append((first, self._clock.mark()))
        return loss

    def _load(self) -> None:
        if self._images is None:
            return
        began_s = time.perf_counter()
        images, classes = next(self._images)
        images = images.to(self._device, self._dtype, non_blocking=True)
        self.step.feed(
            images.contiguous(memory_format=self._format),
            classes.to(self._device, non_blocking=True),
        )
        self._data_s[-1] += time.perf_counter() - began_s

    def _range(self, name: str) -> AbstractContextManager[Any]:
        return torch.cuda.nvtx.range(name) if self._nvtx else nullcontext()


def _image_size(loaded: LoadedModel) -> tuple[int, int]:
    shapes = [a.shape for a in loaded.args if isinstance(a, torch.Tensor)]
    of_images = [shape for shape in shapes if len(shape) == 4 and shape[1] == 3]
    if len(loaded.args) != 1 or loaded.kwargs or not of_images:
        raise InputError(f"{loaded.name!r} does not take a batch of images alone: use --synthetic")
    height, width = shapes[0][2:]
    return int(height), int(width)


def tell_cublas(options: DriverOptions) -> None:
    """Tell cuBLAS whether results must repeat: it listens when a process first uses it alone."""
    if options.deterministic:
        os.environ.setdefault(_CUBLAS, _REPEATING)


@contextmanager
def _backend(options: DriverOptions) -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = (
        cudnn.benchmark,
        cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
        os.environ.get(_CUBLAS),
    )
    try:
        cudnn.benchmark = options.cudnn_benchmark or before[0]
        tell_cublas(options)
        if options.deterministic:
            cudnn.deterministic = True
            torch.use_deterministic_algorithms(True)
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before[:2]
        torch.use_deterministic_algorithms(before[2])
        if before[3] is None:
            os.environ.pop(_CUBLAS, None)


def _facts(session: Session, request: ModelSpec, options: DriverOptions) -> dict[str, Json]:
    return {
        "label": options.label,
        "note": options.note,
        "precision": request.dtype if request.autocast is None else "amp",
        "data": "synthetic" if options.images is None else "images",
        "warmup_iters": options.warmup_iters,
        "iters": options.iters,
        "os": python_platform.platform(),
        "host": session.platform.host.id,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


# Batches of images from a folder of classes, as a training run reads them.

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""ImageNet's, by which torchvision's own training scripts normalise."""

RESIZED = 256 / 224
"""How much larger than its crop an image is made without augmentation."""


class Images:
    """An endless sequence of batches (images, classes) on the host, shuffled anew each round."""

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
        while True:
            try:
                yield from self._loader
            except InputError as error:
                # out of a worker it comes below the worker's traceback
                said = str(error).strip().splitlines()[-1]
                raise InputError(said.rpartition("InputError: ")[2]) from error


def _dataset(options: ImageOptions, size: tuple[int, int]) -> Any:
    from torchvision import datasets
    from torchvision.transforms import v2

    folder = options.folder
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
        check_input(Path(path), "an image", LARGEST_BYTES)
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as an image: {error}") from error
