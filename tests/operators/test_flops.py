"""FLOPs agree with torch's own counter wherever that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import (
    FlopCounterMode,
    conv_flop_count,
)

from opdb.kinds import get_kind
from opdb.operators import TensorNotes, describe_module
from tests.kinds.test_backward import without_input_gradients
from tests.operators.watching import watch

F = nn.functional


def counter_of_groups() -> FlopCounterMode:
    """Return a FlopCounterMode that knows the groups of a convolution's backward pass."""
    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward_of_groups}
    )


def _backward_of_groups(
    outgoing: torch.Size,
    image: torch.Size,
    weight: torch.Size,
    _bias: object,
    _stride: object,
    _padding: object,
    _dilation: object,
    transposed: bool,
    _output_padding: object,
    _groups: int,
    wanted: list[bool],
    **_: object,
) -> int:
    """Count each gradient as one product of the forward pass's size."""
    one: int = conv_flop_count(list(image), list(weight), list(outgoing), transposed=transposed)
    return one * sum(wanted[:2])


def meta(*shape: int) -> Tensor:
    return torch.empty(*shape, device="meta", requires_grad=True)


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: F.conv1d(meta(2, 4, 16), meta(8, 4, 3), meta(8)),
    "conv2d": lambda: F.conv2d(meta(2, 8, 17, 17), meta(16, 4, 3, 3), None, 2, 1, 1, 2),
    "conv2d same": lambda: F.conv2d(meta(2, 8, 17, 17), meta(16, 8, 3, 3), padding="same"),
    "depthwise": lambda: F.conv2d(meta(2, 8, 17, 17), meta(8, 1, 3, 3), groups=8),
    "conv3d": lambda: F.conv3d(meta(1, 2, 6, 6, 6), meta(4, 2, 3, 3, 3), dilation=2),
    "conv_transpose2d": lambda: F.conv_transpose2d(
        meta(2, 8, 7, 7), meta(8, 3, 4, 4), None, 2, 1, 0, 2
    ),
    "linear": lambda: F.linear(meta(2, 5, 7), meta(3, 7), meta(3)),
    "matmul": lambda: meta(2, 3, 4, 5) @ meta(2, 3, 5, 6),
    "matmul broadcast": lambda: meta(2, 1, 4, 5) @ meta(3, 5, 6),
    "matmul matrix": lambda: meta(2, 4, 5) @ meta(5, 6),
    "mm": lambda: torch.mm(meta(4, 5), meta(5, 6)),
    "bmm": lambda: torch.bmm(meta(2, 4, 5), meta(2, 5, 6)),
    "addmm": lambda: torch.addmm(meta(6), meta(4, 5), meta(5, 6)),
    "baddbmm": lambda: torch.baddbmm(meta(2, 4, 6), meta(2, 4, 5), meta(2, 5, 6)),
    "einsum": lambda: torch.einsum("bhid,bhjd->bhij", meta(2, 3, 4, 5), meta(2, 3, 6, 5)),
    "einsum of three": lambda: torch.einsum(
        "bhlm,bhmk,hkd->bld", meta(2, 3, 5, 6), meta(2, 3, 6, 4), meta(3, 4, 7)
    ),
    "attention": lambda: F.scaled_dot_product_attention(
        meta(2, 3, 4, 8), meta(2, 3, 6, 8), meta(2, 3, 6, 8)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    configuration = watch(FUNCTIONS[name])[-1]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        FUNCTIONS[name]()
    assert get_kind(configuration.kind).flops(configuration) == counter.get_total_flops()


class Dispatched(TorchDispatchMode):
    """Counts sums by their elements, products of matrices twice, and products of elements once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet is torch.ops.aten.sum:
            self.flops += args[0].numel()
        elif packet is torch.ops.aten.bmm:
            self.flops += 2 * output.numel() * args[0].shape[-1]
        elif packet is torch.ops.aten.mul:
            self.flops += output.numel()
        return output


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bii->b", [(3, 4, 4)]),
        ("bii,bjj->b", [(3, 4, 4), (3, 2, 2)]),
        ("ij,kl->il", [(40, 50), (60, 70)]),
        ("bijk,bkd->bd", [(2, 30, 40, 8), (2, 8, 16)]),
        ("bik,bkd->bd", [(2, 5, 1), (2, 8, 16)]),
        ("ij,jk,kl->", [(2, 3), (3, 4), (4, 5)]),
        ("ab,cd,be,fc->af", [(2, 3), (4, 5), (3, 6), (7, 4)]),
        ("...ij,jk,...k->...i", [(2, 1, 3, 4), (4, 6), (5, 6)]),
    ],
)
def test_an_einsum_counts_what_torch_computes(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [meta(*shape) for shape in shapes]
    configuration = watch(lambda: torch.einsum(equation, *operands))[-1]
    with torch.backends.opt_einsum.flags(enabled=False), Dispatched() as dispatched:
        torch.einsum(equation, *operands)
    assert get_kind("einsum").flops(configuration) == dispatched.flops > 0


MODULES: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "self-attention": (nn.MultiheadAttention(8, 2, batch_first=True), (torch.ones(2, 5, 8),) * 3),
    "attention to added keys": (
        nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
        (torch.ones(5, 2, 8),) * 3,
    ),
    "cross-attention": (
        nn.MultiheadAttention(8, 2),
        (torch.ones(5, 2, 8), torch.ones(7, 2, 8), torch.ones(7, 2, 8)),
    ),
    "encoder layer": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        (torch.ones(2, 5, 8),),
    ),
    "encoder layer, norms first": (
        nn.TransformerEncoderLayer(8, 2, 16, norm_first=True),
        (torch.ones(5, 2, 8),),
    ),
    "decoder layer": (
        nn.TransformerDecoderLayer(8, 2, 16),
        (torch.ones(5, 2, 8), torch.ones(7, 2, 8)),
    ),
    "lstm": (nn.LSTM(4, 6, 2, bidirectional=True), (torch.ones(3, 2, 4),)),
    "gru": (nn.GRU(4, 6), (torch.ones(3, 2, 4),)),
    "rnn cell": (nn.RNNCell(4, 6), (torch.ones(2, 4),)),
}

STATES: dict[str, Any] = {
    "lstm": (meta(4, 2, 6), meta(4, 2, 6)),
    "gru": meta(1, 2, 6),
    "rnn cell": meta(2, 6),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    # in training, where no fast path hides the products from the counter; on meta, where a
    # recurrent layer is spelled out in steps
    module, inputs = MODULES[name]
    module = module.to("meta").train()
    pairs = {id(t): t.to("meta") for t in inputs}
    args = tuple(pairs[id(t)] for t in inputs)
    configuration = describe_module(module, args, {}, TensorNotes())
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(*args)
    assert get_kind(configuration.kind).flops(configuration) == counter.get_total_flops()


LAYERS: dict[str, tuple[nn.Module, int]] = {
    "attention": (nn.MultiheadAttention(8, 2), 3),
    "attention without bias": (nn.MultiheadAttention(8, 2, bias=False), 3),
    "attention to added keys": (nn.MultiheadAttention(8, 2, add_bias_kv=True), 3),
    "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16), 1),
    "encoder layer without bias": (nn.TransformerEncoderLayer(8, 2, 16, bias=False), 1),
    "decoder layer": (nn.TransformerDecoderLayer(8, 2, 16), 2),
    "decoder layer without bias": (nn.TransformerDecoderLayer(8, 2, 16, bias=False), 2),
    "lstm": (nn.LSTM(8, 6, 2, bidirectional=True, proj_size=3), 1),
    "gru without bias": (nn.GRU(8, 6, 2, bias=False), 1),
}


def counted_backward(outputs: Any, wanted: Iterable[Tensor]) -> int:
    """Return what torch counts of the backward pass that gives these tensors their gradients."""
    differing = [t for t in torch.utils._pytree.tree_leaves(outputs) if t.requires_grad]
    with counter_of_groups() as counter:
        torch.autograd.grad(differing, list(wanted), [torch.empty_like(t) for t in differing])
    return counter.get_total_flops()


class Leaves(torch.overrides.TorchFunctionMode):
    """Keep the tensors that a call is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        self.given += [t for t in given if isinstance(t, Tensor)]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_backward(name: str) -> None:
    configuration = watch(FUNCTIONS[name])[-1]
    with Leaves() as leaves, sdpa_kernel(SDPBackend.MATH):
        output = FUNCTIONS[name]()
    assert get_kind(configuration.kind).backward_flops(configuration) == counted_backward(
        output, leaves.given
    )


@pytest.mark.parametrize("needed", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules_backward(name: str, needed: bool) -> None:
    module, inputs = MODULES[name]
    module = module.to("meta").train()
    pairs = {id(t): t.to("meta").requires_grad_(needed) for t in inputs}
    args: tuple[Any, ...] = tuple(pairs[id(t)] for t in inputs)
    leaves = [*module.parameters(), *(pairs.values() if needed else ())]
    if name in STATES:  # without a state the first step has no gradient to pass on
        args = (*args, STATES[name])
        leaves += torch.utils._pytree.tree_leaves(STATES[name])
    configuration = describe_module(module, args, {}, TensorNotes())
    counted = counted_backward(module(*args), leaves)
    if not needed:
        configuration = without_input_gradients(configuration)
    assert get_kind(configuration.kind).backward_flops(configuration) == counted
