"""The memory that is live as a pass runs: operators make it, and it goes when nothing holds it.

A pass on meta, or on the CPU, makes and frees the same tensors as on a device, so the largest sum
of what is live at once is what a device's allocator must hold. Shapes suffice; nothing is measured.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from opdb.models import LoadedModel
from opdb.models.inputs import tensors
from opdb.operators.encoding import is_wrapped
from opdb.records import PassMemory


class LiveMemory:
    """Tracks the memory that a pass makes and frees.

    The model's own parameters and buffers, and the inputs, count apart.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        held = storages((*loaded.module.parameters(), *loaded.module.buffers()))
        self._weights = held
        self._inputs = {
            cdata: memory
            for cdata, memory in storages(tensors((loaded.args, loaded.kwargs))).items()
            if cdata not in held
        }
        self._live: dict[int, int] = {}
        self._changes: list[tuple[int, int]] = []
        self._made = 0
        self._is_aside = False
        self._gradients: set[int] = set()

    def saw(self, output: Any) -> None:
        """Take note of what an operator has returned."""
        if self._is_aside:
            return
        for cdata, memory in storages(_outputs(output)).items():
            if cdata in self._live or cdata in self._weights or cdata in self._inputs:
                continue
            self._made += 1
            self._live[cdata] = self._made
            self._changes.append((self._made, memory.nbytes()))
            weakref.finalize(memory, self._freed, cdata, self._made, memory.nbytes())

    def _freed(self, cdata: int, number: int, nbytes: int) -> None:
        if self._live.get(cdata) == number:
            del self._live[cdata]
        self._changes.append((number, -nbytes))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take no note of what a device does in one kernel, until the block ends."""
        before, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = before

    def saw_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Take note of which memory holds the parameters' gradients."""
        given = [p.grad for p in parameters if p.grad is not None]
        self._gradients |= {self._live[c] for c in storages(given) if c in self._live}

    def mark(self) -> int:
        """Return a mark of what has been made and freed until now."""
        return len(self._changes)

    def seen(self, begin: int = 0, end: int | None = None) -> PassMemory:
        """Return what the pass took; with marks, the most that was live between these."""
        live = peak = activations = most_activations = gradients = 0
        for place, (number, change) in enumerate(self._changes[:end]):
            live += change
            if number not in self._gradients:
                activations += change
            elif change > 0:
                gradients += change
            if place >= begin:
                peak = max(peak, live)
                most_activations = max(most_activations, activations)
        return PassMemory(
            weight_bytes=_bytes(self._weights),
            input_bytes=_bytes(self._inputs),
            activation_bytes=most_activations,
            gradient_bytes=gradients,
            peak_bytes=peak,
        )


def _outputs(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return tensors(output) if isinstance(output, list | tuple) else []


def storages(found: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """Return the memory of tensors by its address, each once; that of some kinds is unknown."""
    plain = (t for t in found if not nn.parameter.is_lazy(t) and not is_wrapped(t))
    memories = (t.untyped_storage() for t in plain if t.layout == torch.strided)
    return {memory._cdata: memory for memory in memories}


def _bytes(memories: dict[int, torch.UntypedStorage]) -> int:
    return sum(memory.nbytes() for memory in memories.values())
