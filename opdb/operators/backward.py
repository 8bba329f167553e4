"""The backward pass of one call: its forward pass run once, its gradients taken again and again.

Nothing but the kernels of the backward pass runs when it is called: what the forward pass saved is
kept, and gradients are returned, not added up. On a GPU autograd runs a node on the stream of its
forward pass, so that one runs on the stream on which CUDA graphs are captured.

Attention with dropout keeps the seed of its random numbers on the host, or on the device where it
was captured in a CUDA graph, and its backward pass reads the seed from where its own case says: it
would read a wrong address otherwise. Such a call has two forward passes, one of them captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from opdb.capturing import capturing_into, is_capturing
from opdb.errors import UnsupportedError
from opdb.operators.call import BuiltCall
from opdb.operators.values import materialize
from opdb.records import Configuration


def capture_stream(device: str) -> torch.cuda.Stream | None:
    """Return the stream on which `torch.cuda.graph` captures; None where there are no streams."""
    if torch.device(device).type != "cuda":
        return None
    graph: Any = torch.cuda.graph
    if graph.default_capture_stream is None:
        graph.default_capture_stream = torch.cuda.Stream()
    stream: torch.cuda.Stream = graph.default_capture_stream
    return stream


@dataclass
class BuiltBackward(BuiltCall):
    """The backward pass of a call that can run.

    `inputs` are the gradients of its outputs, which the pass before has just written. All else,
    the call's weights and inputs and what it returned, was last used in the forward pass: it
    counts as weights. It is to be called on `stream`, where there is one.
    """

    forward: BuiltCall | None = None
    stream: torch.cuda.Stream | None = None
    graph: torch.cuda.CUDAGraph | None = field(default=None, repr=False)
    """The captured forward pass, where there is one: what it saved lives as long as it does."""

    def modes(self) -> AbstractContextManager[None]:
        """Enter nothing: a training step leaves autocast before its backward pass.

        On a GPU autocast would sum the gradients of biases in float32.
        """
        return nullcontext()

    def with_fresh_weights(self) -> BuiltBackward:
        """Return the same pass over a forward pass of its own, with the same gradients."""
        assert self.forward is not None
        forward = self.forward.with_fresh_tensors()
        return build_backward(self.configuration, forward, self._device, self.inputs)


def build_backward(
    configuration: Configuration,
    forward: BuiltCall,
    device: str,
    gradients: Sequence[Tensor] | None = None,
) -> BuiltBackward:
    """Build the backward pass of a call, by default with new gradients of its outputs.

    Raises:
        UnsupportedError: nothing of the call needs a gradient, or it has other outputs than said.
    """
    stream = capture_stream(device)
    with torch.cuda.stream(stream) if stream else nullcontext():
        if stream is not None:
            stream.wait_stream(torch.cuda.default_stream())
        outputs = forward.outputs()
        given = _gradients(configuration, outputs, device)
    flowing = _flowing(outputs, given)
    held = [*forward.inputs, *forward.weights]
    wanted = [t for t in held if t.requires_grad and t.is_leaf]
    if not flowing or not wanted:
        raise UnsupportedError(f"nothing of this {configuration.kind} needs a gradient")
    inputs = [g for g in given if g is not None] if gradients is None else list(gradients)
    memory = {t.untyped_storage().data_ptr() for t in held}
    made = [t for t in outputs if t.untyped_storage().data_ptr() not in memory]
    take: Callable[..., Any] = torch.autograd.grad
    graph = None
    if stream is not None and draws_in_attention(outputs):
        graph, captured = _captured(forward)
        take = _in_either(take, _flowing(captured, given))
    return BuiltBackward(
        configuration,
        "function",
        inputs,
        [*held, *made],
        (),
        None,
        take,
        (flowing, wanted, inputs),
        {"retain_graph": True, "allow_unused": True},
        device,
        forward,
        stream,
        graph,
    )


def draws_in_attention(outputs: Iterable[Tensor]) -> bool:
    """Whether an attention among the nodes behind these outputs drops at random."""
    nodes = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node: Any = nodes.pop()
        if getattr(node, "_saved_dropout_p", 0.0) > 0:
            return True
        behind = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= behind
        nodes += behind
    return False


def _captured(forward: BuiltCall) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    """Run a forward pass as a CUDA graph; return it with the outputs, which live in its memory."""
    graph = torch.cuda.CUDAGraph()
    with capturing_into(graph):
        outputs = forward.outputs()
    graph.replay()
    return graph, outputs


def _in_either(take: Callable[..., Any], captured: list[Tensor]) -> Callable[..., Any]:
    """Return `take` of the captured outputs where a graph is being captured, else as called."""

    def gradients(flowing: list[Tensor], *args: Any, **kwargs: Any) -> Any:
        return take(captured if is_capturing() else flowing, *args, **kwargs)

    return gradients


def _flowing(outputs: list[Tensor], given: list[Tensor | None]) -> list[Tensor]:
    """Return the outputs that a gradient flows back from."""
    return [o for o, g in zip(outputs, given, strict=True) if g is not None]


def _gradients(
    configuration: Configuration, outputs: list[Tensor], device: str
) -> list[Tensor | None]:
    """Make the gradient of each output: as its configuration says, else laid out as the output.

    Raises:
        UnsupportedError: the configuration describes other outputs, or no tensors.
    """
    try:
        specs = configuration.gradients
        if specs is None:
            return [torch.randn_like(t.detach()) for t in outputs]
        made = [None if spec is None else materialize(spec, device) for spec in specs]
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedError(f"{configuration.kind}: not gradients: {error}") from error
    if [t.shape for t in made if t is not None] != _shapes_of(outputs, made):
        raise UnsupportedError(
            f"the gradients are not those of this {configuration.kind}'s outputs"
        )
    return made


def _shapes_of(outputs: list[Tensor], made: list[Tensor | None]) -> list[torch.Size] | None:
    """Return the shapes of the outputs that have a gradient; None where there are others."""
    if len(outputs) != len(made):
        return None
    return [o.shape for o, g in zip(outputs, made, strict=True) if g is not None]
