"""Calls that can run, with the tensors that they are called with: forward, backward, update."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from opdb.capturing import capturing_into, is_capturing, is_hidden
from opdb.errors import UnsupportedError
from opdb.kinds import KINDS
from opdb.models.inputs import dtype_of, materialize, tensors
from opdb.operators.encoding import Encoder, TensorNotes, generator_on
from opdb.records import GRADIENTS, Configuration, Form, Json


@dataclass
class BuiltCall:
    """An operator call that can run: a callable with the tensors it is called with.

    `inputs` are the distinct tensors that are not weights, in the call's order; `weights` the
    distinct weights; `mutated` the indexes into `inputs` that a call changes in place.
    """

    configuration: Configuration
    _function: Callable[..., Any]
    _args: tuple[Any, ...] = ()
    _kwargs: dict[str, Any] = field(default_factory=dict)
    _device: str = "cpu"
    inputs: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    mutated: tuple[int, ...] = ()
    module: nn.Module | None = None

    @property
    def form(self) -> Form:
        return "function" if self.module is None else "module"

    def __call__(self) -> Any:
        with self.modes():
            return self.bare()

    def outputs(self) -> list[Tensor]:
        """Run the call once and return the tensors that gradients flow back from, in order.

        A call that returns none, such as an assignment, has changed its argument.
        """
        with self.modes():
            args, kwargs, changed = self._arguments()
            output = self._function(*args, **kwargs)
        found = tensors(output) or changed
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
        outputs = [pairs.get(id(t), t) for t in changed]
        return replaced(self._args, pairs), replaced(self._kwargs, pairs), outputs

    @contextmanager
    def modes(self) -> Iterator[None]:
        c = self.configuration
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(c.gradient))
            if c.autocast is not None:
                kind = torch.device(self._device).type
                stack.enter_context(torch.autocast(kind, dtype=dtype_of(c.autocast)))
            yield

    @property
    def bare(self) -> partial[Any]:
        """The call alone, to be run inside `modes`: entering them costs as much as a small call.

        Where autograd is to be kept from a leaf, it can be run once, and is to be asked for inside
        `modes`.
        """
        args, kwargs, _ = self._arguments()
        return partial(self._function, *args, **kwargs)

    def with_fresh_weights(self) -> BuiltCall:
        """Return the same call on the same inputs with its own copy of the weights."""
        module, function, pairs = None, self._function, {}
        if self.module is not None:
            module = function = compact(copy.deepcopy(self.module))
            other = dict(named_tensors(module))
            pairs = {id(tensor): other[name] for name, tensor in named_tensors(self.module)}
        # else a weight that a module is called with, not its own
        pairs |= {id(w): _copy(w) for w in self.weights if id(w) not in pairs}
        return replace(
            self,
            _function=function,
            _args=replaced(self._args, pairs),
            _kwargs=replaced(self._kwargs, pairs),
            weights=[pairs[id(w)] for w in self.weights],
            module=module,
        )

    def with_inputs(self, inputs: Sequence[Tensor]) -> BuiltCall:
        """Return the same call, weights included, on other tensors in the place of its `inputs`."""
        pairs = {id(old): new for old, new in zip(self.inputs, inputs, strict=True)}
        args, kwargs = replaced(self._args, pairs), replaced(self._kwargs, pairs)
        return replace(self, inputs=list(inputs), _args=args, _kwargs=kwargs)

    def with_fresh_tensors(self) -> BuiltCall:
        return self.with_fresh_weights().with_inputs([_copy(t) for t in self.inputs])

    def with_function(self, function: Callable[..., Any]) -> BuiltCall:
        return replace(self, module=None, _function=function)

    @property
    def weight_bytes(self) -> int:
        return sum(_bytes(w) for w in self.weights)

    @property
    def input_bytes(self) -> int:
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
    return [*module.named_parameters(), *module.named_buffers()]


def replaced(value: Any, pairs: Mapping[int, Any]) -> Any:
    """Return an argument with others in the place of tensors: of those with the `id`s given."""
    if isinstance(value, Tensor):
        return pairs.get(id(value), value)
    if isinstance(value, (tuple, list)):
        items = [replaced(item, pairs) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {name: replaced(item, pairs) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(*(replaced(n, pairs) for n in (value.start, value.stop, value.step)))
    return value


# the backward pass of one call: its forward pass run once, its gradients taken again and again
#
# Nothing but the kernels of the backward pass runs when it is called: what the forward pass saved
# is kept, and gradients are returned, not added up. On a GPU autograd runs a node on the stream of
# its forward pass, so that one runs on the stream on which CUDA graphs are captured.
#
# Attention with dropout keeps the seed of its random numbers on the host, or on the device where it
# was captured in a CUDA graph, and its backward pass reads the seed from where its own case says:
# it would read a wrong address otherwise. Such a call has two forward passes, one captured.


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

    @contextmanager
    def modes(self) -> Iterator[None]:
        """Enter nothing: a training step leaves autocast before its backward pass.

        On a GPU autocast would sum the gradients of biases in float32.
        """
        yield

    def with_fresh_weights(self) -> BuiltBackward:
        assert self.forward is not None
        forward = self.forward.with_fresh_tensors()
        return build_backward(self.configuration, forward, self._device, self.inputs)


def build_backward(
    configuration: Configuration,
    forward: BuiltCall,
    device: str,
    gradients: Sequence[Tensor] | None = None,
) -> BuiltBackward:
    """Build the backward pass of a call, by default with new gradients of its outputs."""
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
        recorded = _flowing(captured, given)

        def take_either(flowing: list[Tensor], *args: Any, **kwargs: Any) -> Any:
            outputs = recorded if is_capturing() else flowing
            return torch.autograd.grad(outputs, *args, **kwargs)

        take = take_either

    return BuiltBackward(
        configuration,
        take,
        (flowing, wanted, inputs),
        {"retain_graph": True, "allow_unused": True},
        device,
        inputs=inputs,
        weights=[*held, *made],
        forward=forward,
        stream=stream,
        graph=graph,
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


def _flowing(outputs: list[Tensor], given: list[Tensor | None]) -> list[Tensor]:
    return [o for o, g in zip(outputs, given, strict=True) if g is not None]


def _gradients(
    configuration: Configuration, outputs: list[Tensor], device: str
) -> list[Tensor | None]:
    """Make the gradient of each output: as its configuration says, else laid out as the output."""
    try:
        specs = configuration.inputs.get(GRADIENTS)
        if specs is None:
            return [torch.randn_like(t.detach()) for t in outputs]
        made = [None if spec is None else materialize(spec, device) for spec in specs]
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedError(f"{configuration.kind}: not gradients: {error}") from error
    shapes = [o.shape if g is None else g.shape for o, g in zip(outputs, made, strict=False)]
    if len(outputs) != len(made) or shapes != [o.shape for o in outputs]:
        raise UnsupportedError(
            f"the gradients are not those of this {configuration.kind}'s outputs"
        )
    return made


# optimizer steps: from a model's parameters to a configuration, and back to a step that runs


# Each optimizer by its kind, with what a training step says beyond PyTorch's own defaults.
OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, Json]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {}),
}

# So small that parameters stay what they were over all the steps of a measurement.
LEARNING_RATE = 1e-6

# The check that optimizers make before a step; older torch calls it the second.
CAPTURE_CHECK = (
    "_accelerator_graph_capture_health_check"
    if hasattr(torch.optim.Optimizer, "_accelerator_graph_capture_health_check")
    else "_cuda_graph_capture_health_check"
)

# The first step makes the state, the second is like all that follow.
STEPS_UNTIL_STEADY = 2


def make_optimizer(kind: str, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Return the optimizer of a training step.

    Some refuse to be captured in a CUDA graph, and ask the stream itself whether they are. Where
    that is hidden, for a graph that is listed and never replayed, they are not to know either.
    """
    made, options = OPTIMIZERS[kind]
    optimizer: Any = made(parameters, lr=LEARNING_RATE, **options)
    check = getattr(optimizer, CAPTURE_CHECK)
    setattr(optimizer, CAPTURE_CHECK, lambda: None if is_hidden() else check())
    return optimizer  # type: ignore[no-any-return]


def describe_update(kind: str, parameters: Iterable[Tensor]) -> Configuration:
    """Return the configuration of one step over parameters; their order does not matter."""
    encoder = Encoder(TensorNotes())
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
        return build_update(self.configuration, self._device, self.seed + 1)


def build_update(configuration: Configuration, device: str, seed: int) -> BuiltUpdate:
    if configuration.kind not in OPTIMIZERS:
        raise UnsupportedError(f"no optimizer {configuration.kind!r}")
    made, _ = OPTIMIZERS[configuration.kind]
    generator = generator_on(device, seed)
    parameters, gradients = [], []
    try:
        for spec in configuration.inputs["params"]:
            parameters.append(nn.Parameter(materialize(spec, device, generator)))
            gradients.append(materialize(spec, device, generator))
            parameters[-1].grad = gradients[-1]
        options: dict[str, Any] = dict(configuration.parameters)
        optimizer: Any = made(parameters, lr=LEARNING_RATE, **options)
    except (TypeError, ValueError, KeyError) as error:
        raise UnsupportedError(f"cannot build {configuration.kind}: {error}") from error
    # Its computations on the host (powers of the rates) are constants of a captured graph.
    setattr(optimizer, CAPTURE_CHECK, lambda: None)
    for _ in range(STEPS_UNTIL_STEADY):
        optimizer.step()
    state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]
    weights = [*parameters, *gradients, *(t for t in state if t.dim())]
    return BuiltUpdate(configuration, optimizer.step, _device=device, weights=weights, seed=seed)
