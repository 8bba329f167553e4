"""The aten operators that a fused group may be made of: reviewed names, and nothing else.

Each computes from its arguments alone: none reads files, runs code or changes its arguments. torch
checks that none reads beyond their memory, and `opdb.operators.bounds` where torch does not. A
group from a stranger can name no other.
"""

from __future__ import annotations

from typing import Any

import torch

from opdb.errors import UnsupportedError

_ATEN = """
abs acos acosh add addcdiv addcmul addmm alias all amax amin any arange argmax argmin asin asinh
atan atan2 atanh avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
adaptive_max_pool2d baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor bmm bucketize cat ceil clamp clamp_max clamp_min clone
constant_pad_nd convolution copy cos cosh cumprod cumsum _cdist_forward diagonal div elu embedding
eq erf erfc erfinv exp exp2 expand expm1 flip floor floor_divide fmax fmin fmod full full_like
gather ge gelu glu grid_sampler_2d gt hardsigmoid hardswish hardtanh index index_add index_copy
index_put index_select isinf isnan le leaky_relu lgamma lift_fresh_copy linspace log log10 log1p
log2 logaddexp logical_and logical_not logical_or logical_xor logsumexp __lshift__ lt max
max_pool2d_with_indices max_pool3d_with_indices maximum mean min minimum mish mm _int_mm mul
native_dropout native_group_norm native_layer_norm ne neg nonzero_static ones ones_like
pad permute _pdist_forward pixel_shuffle pixel_unshuffle pow prod reciprocal reflection_pad1d
reflection_pad2d relu remainder repeat replication_pad2d reshape roll round __rshift__ rsqrt rsub
scalar_tensor _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable
scatter scatter_add scatter_reduce select select_scatter selu
sigmoid sign silu sin sinh slice slice_scatter _softmax _log_softmax softplus sort split
split_with_sizes sqrt squeeze stack sub sum t tan tanh _to_copy topk transpose tril triu trunc
unbind unfold _unsafe_index _unsafe_view unsqueeze upsample_bicubic2d _upsample_bicubic2d_aa
upsample_bilinear2d _upsample_bilinear2d_aa upsample_nearest2d upsample_nearest3d var var_mean std
view where zeros zeros_like as_strided _transformer_encoder_layer_fwd _native_multi_head_attention
"""

_PRIMS = """
_low_memory_max_pool_with_offsets _low_memory_max_pool_offsets_to_indices
_low_memory_max_pool2d_with_offsets _low_memory_max_pool2d_offsets_to_indices
convert_element_type device_put fma inductor_force_stride_order iota
broadcast_in_dim prepare_softmax_online rev
"""

GETITEM = "getitem"
"""The one name that is not an operator: it takes an element of another node's result."""

ALLOWED = frozenset(
    {f"aten.{name}" for name in _ATEN.split()} | {f"prims.{name}" for name in _PRIMS.split()}
)
"""Every allowed name, without overloads."""


def is_allowed(name: str) -> bool:
    """Return whether a group may call an operator of this name: "aten.add.Tensor"."""
    library, _, rest = name.partition(".")
    return f"{library}.{rest.partition('.')[0]}" in ALLOWED


def operator(name: str) -> Any:
    """Return the operator of an allowed name.

    Raises:
        UnsupportedError: the name is not allowed, or this torch has no such operator.
    """
    parts = name.split(".")
    if len(parts) != 3 or not is_allowed(name):
        raise UnsupportedError(f"no group may call {name!r}")
    from torch._inductor import inductor_prims  # noqa: F401  (it registers operators of its own)

    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part, None)
    if not isinstance(found, torch._ops.OpOverload) or found._schema.is_mutable:
        raise UnsupportedError(f"torch {torch.__version__} has no operator {name!r}")
    return found
