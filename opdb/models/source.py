"""The interface of every source of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from opdb.models import ModelRequest
from opdb.records import Json


@dataclass(frozen=True)
class Blueprint:
    """A module as its source built it, and its inputs: as data, or as example objects.

    Exactly one of `inputs` (the form of `ModelRequest.inputs`) and `example` (args, kwargs) is
    given; neither where the source knows no inputs. `of_batch` says that the example is of the
    request's batch size, whichever of its sizes that is. `in_dtype` says that the module has the
    request's dtype already: some buffers, such as rotary frequencies, keep their own.
    """

    module: nn.Module
    inputs: Mapping[str, Json] | None = None
    example: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    of_batch: bool = False
    in_dtype: bool = False


class Source(Protocol):
    """A family of models that are found by name.

    `fixed` says that a name stands for the same model as long as the same packages are installed,
    `runs_code` that it says itself which code is run.
    """

    name: str
    fixed: bool
    runs_code: bool

    def names(self) -> Sequence[str]:
        """Return the valid names; empty where they cannot be listed."""

    def has(self, name: str) -> bool:
        """Return whether the name is one of this source's."""

    def hint(self) -> str:
        """Say in parentheses how else a name may be had; empty where there is no other way."""

    def version(self, name: str) -> str:
        """Return the version of what the name stands for, without build suffixes."""

    def build(self, request: ModelRequest) -> Blueprint:
        """Build the module on the current device, and say what inputs it takes.

        Raises:
            InputError: the request cannot be built.
        """


def sized_input(size: Sequence[int], dtype: str) -> dict[str, Json]:
    """Return inputs of one normal tensor: the batch, then the size."""
    return {"args": [{"shape": ["batch", *size], "dtype": dtype}]}
