"""One combination of a run matrix: a training of a model, and the label that says what it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from opdb.bench.options import DriverOptions, ImageOptions


@dataclass(frozen=True)
class Combination:
    """One training of a matrix; `number` counts its repeats from 1, each a run of its own."""

    model: str
    batch_size: int = 1
    precision: str = "fp32"
    backend: str = "auto"
    input_size: tuple[int, ...] | None = None
    dtype: str = "float32"
    channels_last: bool = False
    optimizer: str = "sgd"
    grad_accum_steps: int = 1
    options: DriverOptions = field(default_factory=DriverOptions)
    number: int = 1

    @property
    def images_per_step(self) -> int:
        """The number of images of one iteration."""
        return self.batch_size * self.grad_accum_steps

    def parts(self, backend: str) -> tuple[str, ...]:
        """Return its properties on a backend besides its model, batch size and number.

        They depend only on what runs, not on the file: defaults are left out, so that a label stays
        the same when an axis is added.
        """
        precision = self.precision if self.dtype == "float32" else self.dtype
        return (precision, backend, *self._unusual())

    def group(self, backend: str) -> str:
        """Return the identity that its repeats share on a backend."""
        precision, *others = self.parts(backend)
        return f"{self.model}-b{self.batch_size}-{precision}-" + "+".join(others)

    def label(self, backend: str) -> str:
        """Return what identifies it among all trainings on a backend."""
        number = f"#{self.number}" if self.number > 1 else ""
        return self.group(backend) + number

    def _unusual(self) -> list[str]:
        usual = Combination(self.model)
        names = ("input_size", "channels_last", "optimizer", "grad_accum_steps")
        said = _differing(self, usual, names)
        said += _differing(self.options, usual.options, ("deterministic", "cudnn_benchmark"))
        if self.options.images is not None:
            images = self.options.images
            said.append(f"images={images.folder}")
            said += [] if images.augment else ["no_augment"]
            how = [f.name for f in fields(images) if f.name not in ("folder", "augment")]
            said += _differing(images, ImageOptions(images.folder), how)
        said += _differing(self.options, usual.options, ("warmup_iters", "iters"))
        if self.options.repeats != usual.options.repeats:
            said.append(f"stretches={self.options.repeats}")
        return said + _differing(self.options, usual.options, ("nvtx",))


def _differing(one: Any, usual: Any, names: Iterable[str]) -> list[str]:
    """Return "name=value" of each option that is not at its default; its name alone if it is
    true."""
    found = []
    for name in names:
        value = getattr(one, name)
        if value != getattr(usual, name):
            text = "x".join(map(str, value)) if isinstance(value, tuple) else value
            found.append(name if value is True else f"{name}={text}")
    return found
