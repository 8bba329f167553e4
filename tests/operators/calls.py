"""Calls as models write them, broad enough to meet most of the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

F = nn.functional


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype)


class Tensors:
    def __init__(self) -> None:
        self.x = noise(2, 6, 8, 8)
        self.y = noise(2, 6, 8, 8)
        self.m = noise(4, 6)
        self.n = noise(6, 5)
        self.b = noise(3, 4, 6)
        self.c = noise(3, 6, 5)
        self.v = noise(6)
        self.i = torch.randint(0, 4, (5,))
        self.flag = torch.rand(2, 6, 8, 8) > 0.5
        self.z = torch.view_as_complex(noise(4, 3, 2))


def ends(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def on_x(space: Any, name: str) -> Callable[[Tensors], Any]:
    return lambda t: getattr(space, name)(t.x)


def plain(cls: type[nn.Module]) -> Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]:
    return lambda: (cls(), (noise(2, 6, 4, 4),))


ELEMENTWISE = """
exp sqrt rsqrt sin cos tanh sigmoid erf floor ceil round sign reciprocal square log1p expm1 isnan
isinf isfinite relu selu trunc frac atan sinh cosh logical_not
"""
ACTIVATIONS = """
relu relu6 elu celu leaky_relu hardswish hardsigmoid hardtanh silu mish gelu softplus softsign
tanhshrink hardshrink softshrink logsigmoid sigmoid tanh dropout2d
"""
MODULES_OF_ONE = """
ReLU ReLU6 ELU SELU CELU LeakyReLU Hardswish Hardsigmoid Hardtanh SiLU Mish GELU Softplus Softsign
Tanhshrink Hardshrink Softshrink LogSigmoid Sigmoid Tanh PReLU Dropout Dropout2d AlphaDropout
Identity Flatten RReLU
"""

CALLS: dict[str, Callable[[Tensors], Any]] = {
    # operators of Python
    "add": lambda t: t.x + t.y,
    "add number": lambda t: t.x + 1,
    "radd": lambda t: 1 + t.x,
    "iadd": lambda t: t.x.__iadd__(t.y),
    "add_": lambda t: t.x.add_(t.y, alpha=2),
    "add itself": lambda t: t.x + t.x,
    "sub": lambda t: t.x - t.y,
    "rsub": lambda t: 2 - t.x,
    "mul": lambda t: t.x * 0.5,
    "imul": lambda t: t.x.mul_(2.0),
    "div": lambda t: t.x / t.y,
    "div floor": lambda t: torch.div(t.x, 2, rounding_mode="floor"),
    "rdiv": lambda t: 1.0 / t.x,
    "floordiv": lambda t: t.x // 2,
    "rfloordiv": lambda t: 2 // t.y,
    "mod": lambda t: t.x % 2,
    "pow": lambda t: t.x**2,
    "rpow": lambda t: 2**t.x,
    "neg": lambda t: -t.x,
    "abs": lambda t: abs(t.x),
    "matmul": lambda t: t.m @ t.n,
    "and": lambda t: t.flag & t.flag,
    "or": lambda t: t.flag | ~t.flag,
    "lt": lambda t: t.x < 0,
    "eq": lambda t: t.x == t.y,
    "ne": lambda t: t.x != 0,
    "xor": lambda t: t.flag ^ t.flag,
    # element-wise functions
    **{name: on_x(torch, name) for name in ELEMENTWISE.split()},
    "clamp": lambda t: t.x.clamp(min=0),
    "clamp infinite": lambda t: t.x.clamp(-math.inf, 3.0),
    "clamp_min": lambda t: t.x.clamp_min(0.1),
    "clip_": lambda t: t.x.clip_(0, 1),
    "maximum": lambda t: torch.maximum(t.x, t.y),
    "max pairwise": lambda t: torch.max(t.x, t.y),
    "where": lambda t: torch.where(t.flag, t.x, t.y),
    "where number": lambda t: torch.where(t.flag, t.x, 0.0),
    "where method": lambda t: t.x.where(t.flag, t.y),
    "masked_fill": lambda t: t.x.masked_fill(t.flag, float("-inf")),
    "masked_fill_": lambda t: t.x.masked_fill_(t.flag, 0.0),
    "addcmul": lambda t: torch.addcmul(t.x, t.y, t.y, value=0.5),
    "lerp": lambda t: torch.lerp(t.x, t.y, 0.3),
    "atan2": lambda t: torch.atan2(t.x, t.y),
    "nan_to_num": lambda t: t.x.nan_to_num(0.0),
    "bitwise_not": lambda t: ~t.flag,
    # activations
    **{name: on_x(F, name) for name in ACTIVATIONS.split()},
    "relu inplace": lambda t: F.relu(t.x, inplace=True),
    "relu_": lambda t: t.x.relu_(),
    "gelu tanh": lambda t: F.gelu(t.x, approximate="tanh"),
    "glu": lambda t: F.glu(t.x, dim=1),
    "prelu": lambda t: F.prelu(t.x, t.v),
    "softmax": lambda t: F.softmax(t.x, dim=-1),
    "softmax method": lambda t: t.x.softmax(-1),
    "softmax dtype": lambda t: F.softmax(t.x, dim=-1, dtype=torch.float64),
    "log_softmax": lambda t: F.log_softmax(t.x, 1),
    "dropout": lambda t: F.dropout(t.x, 0.1, False),
    "dropout training": lambda t: F.dropout(t.x, 0.1),
    # products
    "linear": lambda t: F.linear(t.m, t.n.t().contiguous(), None),
    "bmm": lambda t: torch.bmm(t.b, t.c),
    "scaled_mm": lambda t: torch._scaled_mm(
        noise(4, 32).to(torch.float8_e4m3fn),
        noise(16, 32).to(torch.float8_e4m3fn).t(),
        scale_a=noise(1).abs(),  # a CPU has scales of rows since torch 2.12 or so
        scale_b=noise(1).abs(),
        out_dtype=torch.bfloat16,
    ),
    "grouped_mm rows": lambda t: torch._grouped_mm(
        noise(12, 8), noise(3, 8, 16), offs=ends(4, 8, 12)
    ),
    "grouped_mm features": lambda t: torch._grouped_mm(
        noise(4, 16), noise(16, 8), offs=ends(8, 16)
    ),
    "grouped_mm columns": lambda t: torch._grouped_mm(
        noise(3, 4, 8), noise(8, 12), offs=ends(4, 8, 12)
    ),
    "grouped_mm batches": lambda t: torch._grouped_mm(noise(3, 4, 8), noise(3, 8, 16)),
    "histc": lambda t: torch.histc(t.x, bins=7, min=-1, max=1),
    "batched matmul": lambda t: torch.matmul(t.b, t.n),
    "matmul vector": lambda t: t.m @ t.v,
    "mm": lambda t: t.m.mm(t.n),
    "addmm": lambda t: torch.addmm(noise(5), t.m, t.n),
    "baddbmm": lambda t: torch.baddbmm(noise(3, 4, 5), t.b, t.c, beta=0.5, alpha=2),
    "einsum": lambda t: torch.einsum("bij,bjk->bik", t.b, t.c),
    "einsum dots": lambda t: torch.einsum("...ij,jk", t.b, t.n),
    "outer": lambda t: torch.outer(t.v, t.v),
    "dot": lambda t: torch.dot(t.v, t.v),
    "conv1d": lambda t: F.conv1d(t.b, noise(2, 4, 3), padding="same"),
    "conv2d": lambda t: F.conv2d(t.x, noise(4, 3, 3, 3), noise(4), 2, (1, 1), groups=2),
    "conv3d": lambda t: F.conv3d(noise(1, 2, 4, 4, 4), noise(2, 2, 3, 3, 3)),
    "conv_transpose1d": lambda t: F.conv_transpose1d(t.b, noise(4, 2, 3), stride=2),
    "conv_transpose2d": lambda t: F.conv_transpose2d(t.x, noise(6, 2, 2, 2), stride=2),
    "attention": lambda t: F.scaled_dot_product_attention(t.x, t.x, t.x),
    "attention causal": lambda t: F.scaled_dot_product_attention(t.x, t.y, t.y, is_causal=True),
    "attention mask": lambda t: F.scaled_dot_product_attention(t.x, t.y, t.x, noise(8, 8)),
    # dtypes and shapes that are not the first tensor's
    "whole times float": lambda t: t.i * 0.5,
    "whole through whole": lambda t: t.i / 4,
    "truths summed": lambda t: t.flag.sum(1),
    "where of numbers": lambda t: torch.where(t.flag, 0.0, -1e9),
    "times i": lambda t: t.x * 1j,
    "irfft2": lambda t: torch.fft.irfft2(t.z, s=(4, 4)),
    "irfft": lambda t: torch.fft.irfft(t.z),
    "rfft cut": lambda t: torch.fft.rfft(t.m, n=4),
    "movedim of two": lambda t: torch.movedim(t.b, (0, 1), (-1, 0)),
    "as_strided": lambda t: t.m.as_strided((2, 3), (6, 2)),
    "diagonal of a matrix": lambda t: torch.diagonal(t.m, 1),
    "full of whole numbers": lambda t: torch.full((2, 3), 7),
    # losses
    "cross_entropy": lambda t: F.cross_entropy(t.m, t.i[:4]),
    "cross_entropy of each": lambda t: F.cross_entropy(t.m, t.i[:4], reduction="none"),
    "cross_entropy of one": lambda t: F.cross_entropy(t.v, t.i[0], reduction="none"),
    "cross_entropy of pixels": lambda t: F.cross_entropy(
        t.x, torch.zeros(2, 8, 8, dtype=torch.long), reduction="none"
    ),
    "cross_entropy of shares": lambda t: F.cross_entropy(t.m, t.m.softmax(1), reduction="none"),
    # normalisations
    "batch_norm": lambda t: F.batch_norm(t.x, noise(6), noise(6).abs(), noise(6), noise(6)),
    "batch_norm without statistics": lambda t: F.batch_norm(
        t.m, None, None, noise(6), training=True
    ),
    "layer_norm": lambda t: F.layer_norm(t.x, (8,), noise(8), noise(8), 1e-6),
    "group_norm": lambda t: F.group_norm(t.x, 3),
    "instance_norm": lambda t: F.instance_norm(t.x),
    "local_response_norm": lambda t: F.local_response_norm(t.x, 2),
    "normalize": lambda t: F.normalize(t.x, dim=-1),
    "rms_norm": lambda t: F.rms_norm(t.x, (8,)),
    # pools
    "max_pool2d": lambda t: F.max_pool2d(t.x, 3, 2, 1),
    "max_pool2d ceil": lambda t: F.max_pool2d(t.x, 3, stride=2, ceil_mode=True),
    "max_pool2d indices": lambda t: F.max_pool2d(t.x, 2, return_indices=True),
    "avg_pool2d": lambda t: F.avg_pool2d(t.x, 2),
    "avg_pool1d": lambda t: F.avg_pool1d(t.b, 2, 1),
    "max_pool1d": lambda t: F.max_pool1d(t.b, 3),
    "lp_pool1d": lambda t: F.lp_pool1d(t.b, 2.0, 2),
    "lp_pool1d stride": lambda t: F.lp_pool1d(t.b, 2.0, 3, stride=2),
    "lp_pool2d": lambda t: F.lp_pool2d(t.x, 2.0, 2),
    "adaptive_avg_pool2d": lambda t: F.adaptive_avg_pool2d(t.x, 1),
    "adaptive_avg_pool2d none": lambda t: F.adaptive_avg_pool2d(t.x, (None, 2)),
    "adaptive_max_pool2d": lambda t: F.adaptive_max_pool2d(t.x, (2, 3)),
    "adaptive_avg_pool1d": lambda t: F.adaptive_avg_pool1d(t.b, 3),
    "adaptive_avg_pool3d": lambda t: F.adaptive_avg_pool3d(noise(1, 2, 4, 4, 4), 2),
    # reductions
    "sum": lambda t: t.x.sum(),
    "sum dims": lambda t: t.x.sum((2, 3), keepdim=True),
    "sum keyword": lambda t: torch.sum(t.x, dim=-1),
    "mean": lambda t: t.x.mean([-2, -1]),
    "mean dtype": lambda t: t.x.mean(-1, dtype=torch.float64),
    "max": lambda t: t.x.max(),
    "max dim": lambda t: t.x.max(dim=1),
    "min dim": lambda t: torch.min(t.x, -1, keepdim=True),
    "amax": lambda t: t.x.amax(dim=(1, 2)),
    "std": lambda t: t.x.std(),
    "std dim": lambda t: t.x.std(1, keepdim=True),
    "var unbiased": lambda t: t.x.var(-1, unbiased=False),
    "var correction": lambda t: torch.var(t.x, dim=(2, 3), correction=0, keepdim=True),
    "var_mean": lambda t: torch.var_mean(t.x, dim=1),
    "argmax": lambda t: t.x.argmax(-1),
    "any": lambda t: t.flag.any(),
    "all dim": lambda t: t.flag.all(dim=1),
    "norm": lambda t: t.x.norm(dim=-1, keepdim=True),
    "weight_norm": lambda t: torch._weight_norm(noise(6, 4), noise(6, 1)),
    "vector_norm": lambda t: torch.linalg.vector_norm(t.x, ord=2, dim=1),
    "linalg norm": lambda t: torch.linalg.norm(t.x, dim=-1),
    "linalg norm ord": lambda t: torch.linalg.norm(t.x, 1, -1, keepdim=True),
    "linalg norm matrix": lambda t: torch.linalg.norm(t.m),
    "linalg norm frobenius": lambda t: torch.linalg.norm(t.x, "fro", dim=(1, 2)),
    "bernoulli": lambda t: torch.bernoulli(t.x.sigmoid()),
    "multinomial": lambda t: torch.multinomial(t.m.sigmoid(), 2),
    "logsumexp": lambda t: t.x.logsumexp(-1),
    "cumsum": lambda t: t.x.cumsum(-1),
    "prod": lambda t: t.v.prod(),
    "topk": lambda t: t.x.topk(3, dim=-1),
    "sort": lambda t: t.x.sort(dim=1, descending=True),
    "argsort": lambda t: torch.argsort(t.x, -1),
    "cdist": lambda t: torch.cdist(t.m, t.m),
    "cosine_similarity of pairs": lambda t: F.cosine_similarity(t.b[:, None], t.b[None], dim=-1),
    "pairwise_distance of pairs": lambda t: F.pairwise_distance(t.b[:, None], t.b[None]),
    "cosine_similarity": lambda t: F.cosine_similarity(t.x, t.y, dim=-1),
    # views
    "view": lambda t: t.x.view(2, -1),
    "view tuple": lambda t: t.x.view((2, 6, 64)),
    "view dtype": lambda t: t.x.view(torch.int32),
    "reshape": lambda t: torch.reshape(t.x, (2, -1)),
    "reshape copy": lambda t: t.x.transpose(1, 2).reshape(2, -1),
    "flatten": lambda t: t.x.flatten(1),
    "flatten torch": lambda t: torch.flatten(t.x, 1, 2),
    "unflatten": lambda t: t.x.unflatten(1, (2, -1)),
    "permute": lambda t: t.x.permute(0, 2, 3, 1),
    "permute torch": lambda t: torch.permute(t.x, [0, 2, 3, 1]),
    "transpose": lambda t: t.x.transpose(-1, -2),
    "T": lambda t: t.m.T,
    "mT": lambda t: t.b.mT,
    "t": lambda t: t.m.t(),
    "squeeze": lambda t: t.x[:, :1].squeeze(1),
    "squeeze all": lambda t: t.x[:1].squeeze(),
    "unsqueeze": lambda t: t.x.unsqueeze(-1),
    "expand": lambda t: t.v.expand(3, -1),
    "expand_as": lambda t: t.v.expand_as(t.m),
    "broadcast_to": lambda t: torch.broadcast_to(t.v, (2, 6)),
    "narrow": lambda t: t.x.narrow(1, 0, 3),
    "select": lambda t: t.x.select(1, 0),
    "split": lambda t: t.x.split(4, dim=1),
    "split sizes": lambda t: torch.split(t.x, [2, 4], 1),
    "tensor_split": lambda t: t.x.tensor_split((1, 4), dim=1),
    "tensor_split number": lambda t: torch.tensor_split(t.x, 4, dim=1),
    "chunk": lambda t: t.x.chunk(3, dim=1),
    "unbind": lambda t: t.x.unbind(0),
    "iter": lambda t: list(t.m),
    "detach": lambda t: t.x.detach(),
    "data": lambda t: t.x.data,
    "movedim": lambda t: t.x.movedim(1, -1),
    "swapaxes": lambda t: t.x.swapaxes(0, 1),
    "tensor unfold": lambda t: t.v.unfold(0, 3, 1),
    # data movement
    "cat": lambda t: torch.cat([t.x, t.y], dim=1),
    "cat negative": lambda t: torch.cat((t.x, t.x), -1),
    "stack": lambda t: torch.stack([t.v, t.v, t.v], dim=-1),
    "pad": lambda t: F.pad(t.x, (1, 1, 0, 2)),
    "pad reflect": lambda t: F.pad(t.x, (1, 1, 1, 1), mode="reflect"),
    "contiguous": lambda t: t.x.transpose(1, 2).contiguous(),
    "channels last": lambda t: t.x.contiguous(memory_format=torch.channels_last),
    "clone": lambda t: t.x.clone(),
    "to": lambda t: t.x.to(torch.float64),
    "to keyword": lambda t: t.x.to(dtype=torch.float16),
    "to device": lambda t: t.x.to("cpu"),
    "to other": lambda t: t.x.to(t.i),
    "to format": lambda t: t.x.to(memory_format=torch.channels_last),
    "float": lambda t: t.i.float(),
    "half": lambda t: t.x.half(),
    "type_as": lambda t: t.i.type_as(t.x),
    "type": lambda t: t.x.type(torch.int64),
    "roll": lambda t: torch.roll(t.x, shifts=(-1, -2), dims=(2, 3)),
    "flip": lambda t: t.x.flip(1),
    "flip torch": lambda t: torch.flip(t.x, dims=[2, 3]),
    "pack_padded_sequence": lambda t: torch._pack_padded_sequence(
        t.b, torch.tensor([4, 2, 1]), True
    ),
    "pad_packed_sequence": lambda t: torch._pad_packed_sequence(
        t.m, torch.tensor([2, 1, 1]), True, 0.5, 4
    ),
    "pad_sequence": lambda t: nn.utils.rnn.pad_sequence([t.m, t.m[:2]]),
    "is_all_true": lambda t: torch._is_all_true(t.flag),
    "repeat": lambda t: t.v.repeat(3, 1),
    "tile": lambda t: torch.tile(t.v, (2,)),
    "repeat_interleave": lambda t: t.x.repeat_interleave(2, dim=1),
    "copy_": lambda t: t.x.copy_(t.y),
    "zero_": lambda t: t.x.zero_(),
    "fill_": lambda t: t.x.fill_(1.0),
    "triu": lambda t: torch.triu(t.m, diagonal=1),
    "rot90": lambda t: torch.rot90(t.b, 3, (1, 2)),
    "rot90 twice": lambda t: torch.rot90(t.m, 2),
    "diag of a vector": lambda t: torch.diag(t.v, -1),
    "diag of a matrix": lambda t: torch.diag(t.m, 1),
    "diag_embed": lambda t: torch.diag_embed(t.m, 1, 0, 2),
    "tril": lambda t: t.m.tril(),
    "meshgrid": lambda t: torch.meshgrid(t.v, t.v, indexing="ij"),
    # indexing
    "getitem int": lambda t: t.x[0],
    "getitem slices": lambda t: t.x[:, 1:3, ::2],
    "getitem ellipsis": lambda t: t.x[..., 0],
    "getitem none": lambda t: t.x[:, None],
    "getitem tensor": lambda t: t.n[t.i],
    "getitem list": lambda t: t.x[:, [0, 2, 1]],
    "getitem only list": lambda t: t.n[[0, 2, 1]],
    "getitem two": lambda t: t.n[t.i, t.i],
    "setitem": lambda t: t.x.__setitem__((slice(None), 0), 0.0),
    "setitem tensor": lambda t: t.x.__setitem__(0, t.y[1]),
    "index_select": lambda t: torch.index_select(t.n, 0, t.i),
    "gather": lambda t: t.m.gather(0, torch.zeros(2, 6, dtype=torch.long)),
    "scatter": lambda t: t.m.scatter(0, torch.zeros(2, 6, dtype=torch.long), 1.0),
    "scatter_add": lambda t: t.m.scatter_add(0, torch.zeros(4, 6, dtype=torch.long), t.m),
    "index_add_": lambda t: t.n.index_add_(0, t.i, noise(5, 5)),
    "index_put_": lambda t: t.n.index_put_((t.i,), noise(5, 5), accumulate=True),
    "take_along_dim": lambda t: torch.take_along_dim(t.m, torch.zeros(4, 1, dtype=torch.long), 1),
    "embedding": lambda t: F.embedding(t.i, noise(10, 4), padding_idx=0),
    "one_hot": lambda t: F.one_hot(t.i, 4),
    "item": lambda t: t.v[0].item(),
    "contains": lambda t: 2.0 in t.v,
    "bool": lambda t: bool(t.flag.any()),
    # creation
    "zeros": lambda t: torch.zeros(2, 3),
    "zeros scalar": lambda t: torch.zeros(()),
    "zeros size": lambda t: torch.zeros((2, 3), dtype=torch.int64),
    "ones": lambda t: torch.ones(size=(2, 3)),
    "full": lambda t: torch.full((2, 3), 0.5),
    "arange": lambda t: torch.arange(5),
    "arange float": lambda t: torch.arange(0, 1, 0.25, dtype=torch.float32),
    "arange keyword": lambda t: torch.arange(start=2, end=9),
    "linspace": lambda t: torch.linspace(0, 1, 5),
    "eye": lambda t: torch.eye(4),
    "tensor": lambda t: torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "as_tensor": lambda t: torch.as_tensor([1, 2, 3]),
    "zeros_like": lambda t: torch.zeros_like(t.x),
    "ones_like": lambda t: torch.ones_like(t.x, dtype=torch.bool),
    "full_like": lambda t: torch.full_like(t.x, 2.0),
    "new_zeros": lambda t: t.x.new_zeros(2, 3),
    "new_ones dtype": lambda t: t.x.new_ones((), dtype=torch.bool),
    "new_full": lambda t: t.x.new_full((2, 2), 1.0),
    "rand": lambda t: torch.rand(2, 3),
    "randn_like": lambda t: torch.randn_like(t.x),
    "randint": lambda t: torch.randint(0, 5, (2,)),
    # vision and sound
    "interpolate": lambda t: F.interpolate(t.x, scale_factor=2),
    "interpolate size": lambda t: F.interpolate(t.x, (5, 7), mode="bilinear", align_corners=False),
    "interpolate bicubic": lambda t: F.interpolate(t.x, size=4, mode="bicubic"),
    "grid_sample": lambda t: F.grid_sample(t.x, noise(2, 4, 4, 2), align_corners=False),
    "affine_grid": lambda t: F.affine_grid(noise(2, 2, 3), [2, 3, 4, 4], align_corners=False),
    "pixel_shuffle": lambda t: F.pixel_shuffle(noise(1, 4, 3, 3), 2),
    "unfold": lambda t: F.unfold(t.x, 3, padding=1),
    "fold": lambda t: F.fold(noise(1, 8, 9), (4, 4), 2),
    "rfft": lambda t: torch.fft.rfft(t.x),
    "fft2": lambda t: torch.fft.fft2(t.x),
    "abs complex": lambda t: t.z.abs(),
    "view_as_real": lambda t: torch.view_as_real(t.z),
}

MODULES: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "Conv1d": lambda: (nn.Conv1d(4, 2, 3, padding="same"), (noise(2, 4, 9),)),
    "Conv2d": lambda: (nn.Conv2d(4, 6, 3, 2, 1, groups=2, bias=False), (noise(2, 4, 9, 9),)),
    "Conv2d circular": lambda: (
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        (noise(2, 4, 9, 9),),
    ),
    "Conv3d": lambda: (nn.Conv3d(2, 3, 3), (noise(1, 2, 5, 5, 5),)),
    "ConvTranspose2d": lambda: (
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
        (noise(2, 4, 5, 5),),
    ),
    "Linear": lambda: (nn.Linear(6, 3), (noise(2, 5, 6),)),
    "Bilinear": lambda: (nn.Bilinear(3, 4, 5), (noise(2, 3), noise(2, 4))),
    "BatchNorm1d": lambda: (nn.BatchNorm1d(6), (noise(4, 6),)),
    "BatchNorm2d": lambda: (nn.BatchNorm2d(6, affine=False), (noise(2, 6, 3, 3),)),
    "BatchNorm2d no statistics": lambda: (
        nn.BatchNorm2d(6, track_running_stats=False),
        (noise(2, 6, 3, 3),),
    ),
    "LayerNorm": lambda: (nn.LayerNorm([3, 4], bias=False), (noise(2, 3, 4),)),
    "RMSNorm": lambda: (nn.RMSNorm(4), (noise(2, 3, 4),)),
    "GroupNorm": lambda: (nn.GroupNorm(2, 6), (noise(2, 6, 3, 3),)),
    "InstanceNorm2d": lambda: (nn.InstanceNorm2d(6), (noise(2, 6, 3, 3),)),
    "LocalResponseNorm": lambda: (nn.LocalResponseNorm(2), (noise(2, 6, 3, 3),)),
    **{name: plain(getattr(nn, name)) for name in MODULES_OF_ONE.split()},
    "ReLU inplace": lambda: (nn.ReLU(inplace=True), (noise(2, 3),)),
    "Softmax": lambda: (nn.Softmax(dim=-1), (noise(2, 3),)),
    "LogSoftmax": lambda: (nn.LogSoftmax(1), (noise(2, 3),)),
    "GLU": lambda: (nn.GLU(1), (noise(2, 4),)),
    "Threshold": lambda: (nn.Threshold(0.1, 20.0), (noise(2, 4),)),
    "MaxPool2d": lambda: (nn.MaxPool2d(3, 2, 1), (noise(2, 3, 9, 9),)),
    "AvgPool2d": lambda: (nn.AvgPool2d(2, ceil_mode=True), (noise(2, 3, 9, 9),)),
    "AdaptiveAvgPool2d": lambda: (nn.AdaptiveAvgPool2d((1, None)), (noise(2, 3, 9, 9),)),
    "AdaptiveMaxPool1d": lambda: (nn.AdaptiveMaxPool1d(3), (noise(2, 3, 9),)),
    "AvgPool3d": lambda: (nn.AvgPool3d(2), (noise(1, 2, 4, 4, 4),)),
    "LPPool1d": lambda: (nn.LPPool1d(2, 3, stride=2), (noise(1, 2, 8),)),
    "LPPool2d": lambda: (nn.LPPool2d(2, 3, stride=2), (noise(1, 2, 8, 8),)),
    "ZeroPad2d": lambda: (nn.ZeroPad2d((1, 2, 0, 1)), (noise(1, 2, 4, 4),)),
    "ReflectionPad2d": lambda: (nn.ReflectionPad2d(1), (noise(1, 2, 4, 4),)),
    "ConstantPad1d": lambda: (nn.ConstantPad1d(1, 3.5), (noise(1, 2, 4),)),
    "Unflatten": lambda: (nn.Unflatten(1, (2, 3)), (noise(2, 6),)),
    "PixelShuffle": lambda: (nn.PixelShuffle(2), (noise(1, 4, 3, 3),)),
    "Unfold": lambda: (nn.Unfold(3, padding=1), (noise(1, 4, 5, 5),)),
    "Fold": lambda: (nn.Fold((4, 4), 2), (noise(1, 8, 9),)),
    "Upsample": lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), (noise(1, 2, 3, 3),)),
    "UpsamplingNearest2d": lambda: (nn.UpsamplingNearest2d((4, 4)), (noise(1, 2, 3, 3),)),
    "CosineSimilarity": lambda: (nn.CosineSimilarity(), (noise(2, 3), noise(2, 3))),
    "PairwiseDistance": lambda: (nn.PairwiseDistance(), (noise(2, 3), noise(2, 3))),
    "Embedding": lambda: (nn.Embedding(10, 4, padding_idx=0), (torch.randint(0, 10, (2, 3)),)),
    "EmbeddingBag": lambda: (nn.EmbeddingBag(10, 4), (torch.randint(0, 10, (2, 3)),)),
    "LSTM": lambda: (
        nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True),
        (noise(2, 3, 4),),
    ),
    "LSTM projected": lambda: (nn.LSTM(4, 5, proj_size=3), (noise(3, 2, 4),)),
    "GRU": lambda: (nn.GRU(4, 5), (noise(3, 2, 4), noise(1, 2, 5))),
    "RNN": lambda: (nn.RNN(4, 5, nonlinearity="relu"), (noise(3, 2, 4),)),
    "LSTMCell": lambda: (nn.LSTMCell(4, 5), (noise(2, 4),)),
    "GRUCell": lambda: (nn.GRUCell(4, 5, bias=False), (noise(2, 4),)),
    "RNNCell": lambda: (nn.RNNCell(4, 5), (noise(2, 4), noise(2, 5))),
    "TransformerEncoderLayer": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu"),
        (noise(2, 3, 8),),
    ),
    "TransformerDecoderLayer": lambda: (
        nn.TransformerDecoderLayer(8, 2, 16, norm_first=True),
        (noise(3, 2, 8), noise(4, 2, 8)),
    ),
}


def attention() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Self-attention: query, key and value are one tensor."""
    x = noise(2, 3, 8)
    return nn.MultiheadAttention(8, 2, batch_first=True), (x, x, x)


MODULES["MultiheadAttention self"] = attention
MODULES["MultiheadAttention"] = lambda: (
    nn.MultiheadAttention(8, 2, kdim=6, vdim=5),
    (noise(3, 2, 8), noise(4, 2, 6), noise(4, 2, 5)),
)
