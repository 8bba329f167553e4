"""Optimizer steps: from a model's parameters to a configuration, and back to a step that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from opdb.capturing import is_hidden
from opdb.errors import UnsupportedError
from opdb.kinds import KINDS
from opdb.operators.call import BuiltCall
from opdb.operators.encoding import Encoder, NoNotes
from opdb.operators.values import generator_on, materialize
from opdb.records import Configuration, Json

OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, Json]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {}),
}
"""Each optimizer by its kind, with what a training step says beyond PyTorch's own defaults."""

LEARNING_RATE = 1e-6
"""So small that parameters stay what they were over all the steps of a measurement."""

CAPTURE_CHECKS = ("_cuda_graph_capture_health_check", "_accelerator_graph_capture_health_check")
"""The check that optimizers make before a step, by torch's older and newer names; 2.11 has the
newer."""

STEPS_UNTIL_STEADY = 2
"""The first step makes the state, the second is like all that follow."""


def make_optimizer(kind: str, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return the optimizer of a training step.

    Some refuse to be captured in a CUDA graph, and ask the stream itself whether they are. Where
    that is hidden, for a graph that is listed and never replayed, they are not to know either.
    """
    made, options = OPTIMIZERS[kind]
    optimizer: Any = made(parameters, lr=LEARNING_RATE, **options)
    for name in CAPTURE_CHECKS:
        if (check := getattr(optimizer, name, None)) is not None:
            setattr(optimizer, name, partial(_unless_hidden, check))
    return optimizer  # type: ignore[no-any-return]


def _unless_hidden(check: Callable[[], None]) -> None:
    if not is_hidden():
        check()


def describe_update(kind: str, parameters: Iterable[Tensor]) -> Configuration:
    """Return the configuration of one step over parameters; their order does not matter.

    Raises:
        UnsupportedError: a parameter has no description.
    """
    encoder = Encoder(NoNotes())
    specs = [encoder.encode(nn.Parameter(p.detach())) for p in parameters]
    inputs: dict[str, Json] = {"params": specs}
    arguments = dict(OPTIMIZERS[kind][1])
    canonical = KINDS[kind].canonical
    assert canonical is not None
    canonical(arguments, inputs)
    return Configuration(kind, arguments, inputs, pass_name="update")


@dataclass
class BuiltUpdate(BuiltCall):
    """An optimizer step that can run, with parameters, gradients and state of its own.

    All of them count as weights: none was used just before.
    """

    seed: int = 0

    def with_fresh_weights(self) -> BuiltUpdate:
        """Return the same step over other parameters."""
        return build_update(self.configuration, self._device, self.seed + 1)


def build_update(configuration: Configuration, device: str, seed: int) -> BuiltUpdate:
    """Build the optimizer step that a configuration describes.

    Raises:
        UnsupportedError: no optimizer is of this kind, or it takes other arguments.
    """
    if configuration.kind not in OPTIMIZERS:
        raise UnsupportedError(f"no optimizer {configuration.kind!r}")
    try:
        return _built(configuration, device, seed)
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedError(f"cannot build {configuration.kind}: {error}") from error


def _built(configuration: Configuration, device: str, seed: int) -> BuiltUpdate:
    made, _ = OPTIMIZERS[configuration.kind]
    generator = generator_on(device, seed)
    parameters, gradients = [], []
    for spec in configuration.inputs["params"]:
        parameters.append(nn.Parameter(materialize(spec, device, generator)))
        gradients.append(materialize(spec, device, generator))
        parameters[-1].grad = gradients[-1]
    options: dict[str, Any] = dict(configuration.parameters)
    optimizer: Any = made(parameters, lr=LEARNING_RATE, **options)
    # Its computations on the host (powers of the rates) are constants of a captured graph.
    for check in CAPTURE_CHECKS:
        setattr(optimizer, check, lambda: None)
    for _ in range(STEPS_UNTIL_STEADY):
        optimizer.step()
    state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]
    weights = [*parameters, *gradients, *(t for t in state if t.dim())]
    return BuiltUpdate(
        configuration,
        "function",
        [],
        weights,
        (),
        None,
        optimizer.step,
        (),
        {},
        device,
        seed,
    )
