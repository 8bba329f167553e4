"""Calls that find other things in the caches than inside a model: a question about workloads.

A visit finds what a call finds inside a model. Which other, simpler workload would represent a
model as well is answered by measuring them too:

- `reused`: one set of inputs and one set of weights, all of it as hot as it can be;
- `streamed`: each call's inputs are the next slice of large random arrays, one array an input,
  together several times the L2 and walked from end to end, again and again; one set of weights;
- `chain`: each call's input is the output of the call before, and the weights are those of the
  next layer: enough layers to exceed the L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from opdb.bench.replay import L2_EXCESS, MAX_CALLS, MEMORY_SHARE, Rotation, write_anew
from opdb.capturing import is_capturing
from opdb.errors import UnsupportedError
from opdb.operators import BuiltCall
from opdb.records import Access

UNKNOWN_CACHE_BYTES = 2**25
"""What a stream exceeds on a device that does not say how large its cache is."""

ALIGNMENT_BYTES = 256
"""Slices begin at multiples of this, as tensors do: kernels load whole vectors."""

MOST_LAYERS = 16
"""Calls of a chain before it begins again with the input it was given."""

FEWEST_LAYERS = 2

HOT_WEIGHTS: frozenset[Access] = frozenset({"reused", "streamed"})
"""Where one set of weights is all there is."""

NO_CHAIN = "the output's {} differs from the input's: no chain"


class Steps(Protocol):
    """Calls that a replay is made of; calling it runs the next one.

    `copies` is after how many calls the same memory comes round again.
    """

    copies: int

    @property
    def restores(self) -> bool:
        """Whether calls change their inputs, which are restored beside every call."""

    def restore(self) -> None:
        """Do the restoring of one call."""

    def rewind(self) -> None:
        """Start over."""

    def __call__(self) -> None:
        """Run the next call."""


def steps_of(call: BuiltCall, access: Access, *, l2_bytes: int) -> Steps:
    """Return the calls of a workload other than a model's.

    Raises:
        UnsupportedError: the call's inputs cannot be exchanged, or it makes no chain.
    """
    if call.configuration.pass_name != "forward":
        raise UnsupportedError(f"access {access!r} is measured of forward calls alone")
    if access == "streamed":
        return Streamed(call, l2_bytes=l2_bytes)
    if access == "reused":
        return Rotation(call, l2_bytes=l2_bytes, cold=False)
    if access == "chain":
        # In place a call runs on its own output as it is; restored, so that it does not grow.
        if 0 in call.mutated:
            return Rotation(call, l2_bytes=l2_bytes, cold=True)
        return Chain(call, l2_bytes=l2_bytes)
    raise ValueError(f"the calls of access {access!r} are not made here")


def access_flags(steps: Steps, l2_bytes: int) -> tuple[str, ...]:
    """Say in words where a workload is not what its name promises."""
    if isinstance(steps, Streamed) and steps.bytes < l2_bytes:
        return (f"inputs stream through {steps.bytes / 1e6:.3g} MB, less than the L2",)
    return ()


class Streamed:
    """One call on the next slice of large arrays every time; `bytes` is what all slices take.

    Values are drawn from those of the input itself, so that classes and ranges are kept. An input
    that a call changes is restored half a round before its turn: the restoring would otherwise
    bring into the caches what the call is to find outside.
    """

    def __init__(self, call: BuiltCall, *, l2_bytes: int) -> None:
        slice_bytes = sum(_slice_items(t) * t.element_size() for t in call.inputs)
        self.copies = _slice_count(slice_bytes, l2_bytes, call.inputs)
        self.bytes = self.copies * slice_bytes
        slices = [_slices(tensor, self.copies) for tensor in call.inputs]
        self._calls = [call.with_inputs(each) for each in zip(*slices, strict=True)] or [call]
        self._pristine = [call.inputs[i].clone() for i in call.mutated]
        self._next, self._restored = 0, self.copies // 2
        self._output: Any = None

    @property
    def restores(self) -> bool:
        """Whether the call changes an input."""
        return bool(self._pristine)

    def restore(self) -> None:
        """Bring back what the call half a round away changed; the next time the one after it."""
        call = self._calls[self._restored]
        for index, pristine in zip(call.mutated, self._pristine, strict=True):
            write_anew(call.inputs[index], pristine)
        self._restored = (self._restored + 1) % self.copies

    def rewind(self) -> None:
        """Start over with the first slice and let go of the output."""
        self._next, self._restored = 0, self.copies // 2
        self._output = None

    def __call__(self) -> None:
        """Run the call on the next slice."""
        self.restore()
        self._output = self._calls[self._next]()
        self._next = (self._next + 1) % self.copies


def _slice_items(tensor: Tensor) -> int:
    """Return how many elements a slice for this tensor takes, its strides and alignment kept."""
    aligned = max(ALIGNMENT_BYTES // tensor.element_size(), 1)
    return math.ceil(_reach(tensor) / aligned) * aligned


def _reach(tensor: Tensor) -> int:
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def _slice_count(slice_bytes: int, l2_bytes: int, inputs: Sequence[Tensor]) -> int:
    if not slice_bytes:
        return 1
    count = min(math.ceil(L2_EXCESS * (l2_bytes or UNKNOWN_CACHE_BYTES) / slice_bytes), MAX_CALLS)
    if inputs[0].is_cuda:
        free, _ = torch.cuda.mem_get_info()
        count = min(count, int(MEMORY_SHARE * free / slice_bytes))
    return max(count, 1)


def _slices(tensor: Tensor, count: int) -> list[Tensor]:
    """Return the tensor and more like it, one behind the other in one array."""
    if count == 1 or not tensor.numel():
        return [tensor] * count
    items, reach = _slice_items(tensor), _reach(tensor)
    flat = torch.as_strided(tensor, (reach,), (1,))
    generator = torch.Generator(tensor.device).manual_seed(count)
    array = flat.new_zeros(count * items)
    for start in range(0, count * items, items):
        drawn = torch.randint(reach, (reach,), device=tensor.device, generator=generator)
        array[start : start + reach] = flat[drawn] if start else flat
    shape, strides = tensor.shape, tensor.stride()
    return [array.as_strided(shape, strides, start) for start in range(0, len(array), items)]


class Chain(Rotation):
    """Layers one after the other: every call runs on the output of the one before.

    After `layers` calls it begins again with the input it was given, and before values would stop
    being finite. Only the last output is kept, as in a chain of layers.
    """

    def __init__(self, call: BuiltCall, *, l2_bytes: int) -> None:
        self._check(call)
        super().__init__(call, l2_bytes=l2_bytes, cold=True)
        self._capturing = False
        self.rewind()
        self.layers = MOST_LAYERS
        self.layers = self._finite_layers()
        self.rewind()

    @staticmethod
    def _check(call: BuiltCall) -> None:
        if not call.inputs:
            raise UnsupportedError("the call has no input: no chain")
        given, made = call.inputs[0], _first_tensor(call())
        if made is None or made.shape != given.shape:
            raise UnsupportedError(NO_CHAIN.format("shape"))
        if made.dtype != given.dtype:
            raise UnsupportedError(NO_CHAIN.format("dtype"))
        if made.stride() != given.stride():
            raise UnsupportedError(NO_CHAIN.format("layout"))

    def _finite_layers(self) -> int:
        """Return how many calls the chain makes before a value is no longer finite."""
        for layer in range(MOST_LAYERS):
            self.turn()
            if not bool(torch.isfinite(self._last).all()):
                if layer < FEWEST_LAYERS:
                    raise UnsupportedError(f"values are not finite after {layer + 1} calls")
                return layer
        return MOST_LAYERS

    def rewind(self) -> None:
        """Start over with the first layer and the input that was given."""
        super().rewind()
        self._layer, self._last = 0, self.inputs[0]

    def turn(self) -> None:
        """Run the next layer on the output of the last one.

        A graph must not read what was made outside it, so a chain begins anew where one does.
        """
        capturing = self.inputs[0].is_cuda and is_capturing()
        if capturing != self._capturing:
            self.rewind()
            self._capturing = capturing
        if self._layer == self.layers:
            self._layer, self._last = 0, self.inputs[0]
        call = self._calls[self._next].with_inputs([self._last, *self.inputs[1:]])
        made = _first_tensor(call())
        assert made is not None  # as the first call was checked to give
        self._last = made
        self._layer += 1
        self._next = (self._next + 1) % self.copies


def _first_tensor(output: Any) -> Tensor | None:
    """Return an output, or the first of several, where it is a tensor; else None."""
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    return first if isinstance(first, Tensor) else None
