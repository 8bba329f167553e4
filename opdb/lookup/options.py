"""What is said of a model, beyond its name: batch size, input size, dtype and so on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack, cast, get_args

from opdb.errors import InputError, UnknownNameError
from opdb.models import (
    AUTOCASTS,
    CACHES,
    DTYPES,
    EXPERTS,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PHASES,
    QUANTIZED,
)
from opdb.models.usual import times
from opdb.records import Mode

SHORT_DTYPES = {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16"}
"""Short names of dtypes, and the names that they stand for."""

_VALID = {
    "dtype": DTYPES,
    "memory_format": MEMORY_FORMATS,
    "phase": PHASES,
    "optimizer": OPTIMIZERS,
    "autocast": AUTOCASTS,
    "cache": CACHES,
    "experts": EXPERTS,
    "quantize": QUANTIZED,
}
"""The values that an option may have, where these can be listed."""

_ON_COMMAND_LINE = {"accumulation": "--grad-accum-steps"}
"""The options whose name on the command line is another than in `ModelOptions`."""


class ModelWords(TypedDict, total=False):
    """What is said of a model, as people write it: sizes as text or numbers, short dtypes."""

    batch_size: int | None
    input_size: str | Sequence[int] | None
    dtype: str | None
    memory_format: str | None
    phase: str | None
    optimizer: str | None
    accumulation: int | None
    autocast: str | None
    context: int | None
    max_new_tokens: int | None
    cache_length: int | None
    cache: str | None
    experts: str | None
    imbalance: float | None
    quantize: str | None
    allow_code: bool


@dataclass(frozen=True)
class ModelOptions:
    """What is said of a model; None where nothing is.

    `input_size` is one input's shape without the batch. `accumulation` is of how many batches a
    training step adds up gradients. `context`, `cache_length`, `cache`, `experts`, `imbalance` and
    `quantize` are of a prefill or a decoding step (see `ModelRequest`). `allow_code` says that code
    may be run which a file names.
    """

    batch_size: int | None = None
    input_size: tuple[int, ...] | None = None
    dtype: str | None = None
    memory_format: str | None = None
    phase: str | None = None
    optimizer: str | None = None
    accumulation: int | None = None
    autocast: str | None = None
    context: int | None = None
    max_new_tokens: int | None = None
    cache_length: int | None = None
    cache: str | None = None
    experts: str | None = None
    imbalance: float | None = None
    quantize: str | None = None
    allow_code: bool = False

    @classmethod
    def parse(cls, **words: Unpack[ModelWords]) -> ModelOptions:
        """Return checked options: sizes may be text ("3x224x224"), dtypes short names ("bf16").

        Error messages name an option as on the command line.

        Raises:
            InputError: an option has no such value; the message names the nearest.
        """
        said: dict[str, Any] = dict(words)
        for name in ("dtype", "autocast"):
            said[name] = SHORT_DTYPES.get(said.get(name) or "", said.get(name))
        for name, valid in _VALID.items():
            if (value := said.get(name)) is not None and value not in valid:
                raise UnknownNameError(_option(name), value, valid)
        if (size := said.get("input_size")) is not None:
            said["input_size"] = parse_size(size) if isinstance(size, str) else tuple(size)
        return cls(**said)

    def given(self) -> dict[str, Any]:
        """Return what is said of the model itself, by the names of `ModelRequest`."""
        said = {name: value for name, value in vars(self).items() if value is not None}
        del said["allow_code"]
        return said

    def at_sizes(self, batch_sizes: Sequence[int]) -> list[ModelOptions]:
        """Return the same at each batch size; as it stands where there is none."""
        return [replace(self, batch_size=size) for size in batch_sizes] or [self]

    def as_arguments(self) -> list[str]:
        """Return the options as they are given on a command line."""
        found = ["--allow-code"] if self.allow_code else []
        for name, value in self.given().items():
            found += [_option(name), times(value) if name == "input_size" else str(value)]
        return found


def _option(name: str) -> str:
    return _ON_COMMAND_LINE.get(name, "--" + name.replace("_", "-"))


def parse_size(text: str) -> tuple[int, ...]:
    """Read an input size such as 3x224x224 or 3,224,224.

    Raises:
        InputError: the text is none.
    """
    parts = re.split(r"[x,]", text)
    if not all(re.fullmatch(r"[1-9][0-9]{0,9}", part) for part in parts):
        raise InputError(
            f"--input-size {text!r}: give sizes of 1 or more, with 10 digits at most, as in "
            "3x224x224"
        )
    return tuple(int(part) for part in parts)


def parse_mode(name: str) -> Mode:
    """Check a mode's name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in get_args(Mode):
        hint = f"(modes: {', '.join(get_args(Mode))})"
        raise UnknownNameError("--mode", name, get_args(Mode), hint=hint)
    return cast(Mode, name)
