"""A call that can run, with the tensors it is called with."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from opdb.errors import UnsupportedError
from opdb.operators.encoding import dtype_of
from opdb.records import Configuration, Form


@dataclass
class BuiltCall:
    """An operator call that can run: a callable with the tensors it is called with.

    `inputs` are the distinct tensors that are not weights, in the call's order; `weights` the
    distinct weights; `mutated` the indexes into `inputs` that a call changes in place.
    """

    configuration: Configuration
    form: Form
    inputs: list[Tensor]
    weights: list[Tensor]
    mutated: tuple[int, ...]
    module: nn.Module | None
    _function: Callable[..., Any]
    _args: tuple[Any, ...]
    _kwargs: dict[str, Any] = field(default_factory=dict)
    _device: str = "cpu"

    def __call__(self) -> Any:
        """Run the call once and return what it returns."""
        with self.modes():
            return self.bare()

    def outputs(self) -> list[Tensor]:
        """Run the call once and return the tensors that gradients flow back from, in order.

        A call that returns none, such as an assignment, has changed its argument.
        """
        with self.modes():
            args, kwargs, changed = self._arguments()
            output = self._function(*args, **kwargs)
        found = list(tensors_of(output)) or changed
        return [t for t in found if t.grad_fn is not None]

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any], list[Tensor]]:
        """Return the arguments, and among them those to be changed.

        Autograd lets nobody change a leaf: a tensor that needs a gradient and is to be changed is
        given as the output of a node, on the same memory.
        """
        changed = [self.inputs[i] for i in self.mutated]
        if not any(t.requires_grad for t in changed):
            return self._args, self._kwargs, changed
        view = torch.ops.aten._unsafe_view.default
        pairs = {id(t): view(t, t.shape) for t in changed if t.requires_grad}
        replaced = [pairs.get(id(t), t) for t in changed]
        return _replace(self._args, pairs), _replace(self._kwargs, pairs), replaced

    def modes(self) -> AbstractContextManager[None]:
        """Enter the gradient mode and autocast that the configuration asks for."""
        return self._modes()

    @contextmanager
    def _modes(self) -> Iterator[None]:
        c = self.configuration
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(c.gradient))
            if c.autocast is not None:
                kind = torch.device(self._device).type
                stack.enter_context(torch.autocast(kind, dtype=dtype_of(c.autocast)))
            yield

    @property
    def bare(self) -> functools.partial[Any]:
        """The call alone, to be run inside `modes`: entering them costs as much as a small call.

        Where autograd is to be kept from a leaf, it can be run once, and is to be asked for inside
        `modes`.
        """
        args, kwargs, _ = self._arguments()
        return functools.partial(self._function, *args, **kwargs)

    def with_fresh_weights(self) -> BuiltCall:
        """Return the same call on the same inputs with its own copy of the weights."""
        if self.module is not None:
            module = compact(copy.deepcopy(self.module))
            own = dict(named_tensors(self.module))
            other = dict(named_tensors(module))
            pairs = {id(tensor): other[name] for name, tensor in own.items()}
            # a weight that the module is called with, not its own
            pairs |= {id(w): _copy(w) for w in self.weights if id(w) not in pairs}
            function: Callable[..., Any] = module
        else:
            module, function = None, self._function
            pairs = {id(w): _copy(w) for w in self.weights}
        return BuiltCall(
            self.configuration,
            self.form,
            self.inputs,
            [pairs[id(w)] for w in self.weights],
            self.mutated,
            module,
            function,
            _replace(self._args, pairs),
            {n: _replace(v, pairs) for n, v in self._kwargs.items()},
            self._device,
        )

    def with_inputs(self, inputs: Sequence[Tensor]) -> BuiltCall:
        """Return the same call, weights included, on other tensors in the place of its `inputs`.

        Raises:
            UnsupportedError: an input is not among the call's arguments, so it cannot be exchanged.
        """
        pairs = {id(old): new for old, new in zip(self.inputs, inputs, strict=True)}
        args, kwargs = _replace(self._args, pairs), _replace(self._kwargs, pairs)
        found = {id(tensor) for tensor in tensors_of((args, kwargs))}
        if not all(id(new) in found for new in inputs):
            raise UnsupportedError(f"{self.configuration.kind}: its inputs cannot be exchanged")
        return replace(self, inputs=list(inputs), _args=args, _kwargs=kwargs)

    def with_fresh_tensors(self) -> BuiltCall:
        """Return the same call with its own copy of the inputs and the weights."""
        return self.with_fresh_weights().with_inputs([_copy(t) for t in self.inputs])

    def with_function(self, function: Callable[..., Any]) -> BuiltCall:
        """Return the same call of another function, which takes the same arguments."""
        return replace(self, module=None, form="function", _function=function)

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights."""
        return sum(_bytes(w) for w in self.weights)

    @property
    def input_bytes(self) -> int:
        """The bytes of the inputs."""
        return sum(_bytes(t) for t in self.inputs)


def _copy(tensor: Tensor) -> Tensor:
    """Return a copy with the same strides, whose gaps and overlaps are kept.

    A clone of an expanded or sliced tensor would be contiguous, and a call such as `reshape` then
    does something else with it: nothing, for instance.
    """
    kept = tensor.detach()
    reach = sum((n - 1) * s for n, s in zip(kept.shape, kept.stride(), strict=True))
    span = reach + 1 if kept.numel() else 0
    memory = kept.as_strided((span,), (1,)).clone()
    return memory.as_strided(kept.shape, kept.stride(), 0).requires_grad_(tensor.requires_grad)


def compact(module: nn.Module) -> nn.Module:
    """Lay the weights of recurrent modules out in one block, as their constructors do.

    Copies lose that, and every call on a GPU would then gather them anew.
    """
    for each in module.modules():
        if isinstance(each, nn.RNNBase):
            each.flatten_parameters()
    return module


def _bytes(tensor: Tensor) -> int:
    kept = [n for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s != 0]
    return int(torch.Size(kept).numel() * tensor.element_size())


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return a module's parameters and buffers with their names."""
    return [*module.named_parameters(), *module.named_buffers()]


def _replace(value: Any, pairs: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return pairs.get(id(value), value)
    if isinstance(value, (tuple, list)):
        items = [_replace(item, pairs) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {name: _replace(item, pairs) for name, item in value.items()}
    return value


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(item)
