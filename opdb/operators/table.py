"""The reviewed table: which torch callables compute which kind.

One line a kind. Names are looked up in `torch`, `Tensor`, `F` (torch.nn.functional), `linalg`,
`special`, `fft` and custom operators (`torchvision::nms`); a name that this torch lacks is left
out. After a name, `!` says that the first argument is changed in place, `~` that the first two
arguments are swapped, `@` that it is an attribute's getter, and a signature in parentheses, in the
kind's argument names, replaces the kind's own. The first name is what `build` calls.
"""

from __future__ import annotations

PLAIN = "torch.{0} Tensor.{0} Tensor.{0}_! torch.{0}_! special.{0}"
"""What a bare kind name stands for."""

PLAIN_KINDS = """
abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv ceil floor trunc frac sign sgn positive
lgamma digamma i0 logical_not bitwise_not angle conj_physical deg2rad rad2deg sinc isnan isinf
isfinite isposinf isneginf signbit eq ne lt le gt ge logical_and logical_or logical_xor isclose
floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot logaddexp xlogy copysign
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift float_power addcmul
addcdiv lerp nan_to_num logit masked_fill isin heaviside polar complex cross round addmm baddbmm
addbmm addmv mm bmm mv dot outer matmul bilinear einsum amax amin argmax argmin any all median mode
cumsum cumprod cummax cummin logcumsumexp logsumexp topk sort bucketize cdist bincount renorm roll
tile take_along_dim take masked_select masked_scatter triu tril rot90 diag diag_embed gather
index_select index_add index_copy index_fill index_put scatter_add scatter_reduce nansum nanmean
prod zeros_like ones_like empty_like rand_like randn_like full_like unbind chunk tensor_split
unsqueeze narrow select movedim diagonal as_strided view_as_real view_as_complex equal allclose
meshgrid zeros ones empty rand randn full linspace eye bernoulli multinomial channel_shuffle detach
"""

_DROPOUT = "(input, p=0.5, training=True, inplace=False)"
_STATISTICS = "(input, weight, bias, running_mean, running_var, training, momentum, eps, _cudnn)"
_MAX_POOL = "(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False)"
_MAX_POOL_INDICES = (
    "(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True)"
)
_SIZE = "(input, *size)"

TABLE: dict[str, str] = {
    # arithmetic
    "add": "torch.add Tensor.add Tensor.__add__ Tensor.__radd__~ Tensor.add_! Tensor.__iadd__!",
    "sub": "torch.sub Tensor.sub Tensor.__sub__ Tensor.sub_! Tensor.__isub__! torch.subtract "
    "Tensor.subtract Tensor.subtract_!",
    "rsub": "torch.rsub Tensor.__rsub__",
    "mul": "torch.mul Tensor.mul Tensor.__mul__ Tensor.__rmul__~ Tensor.mul_! Tensor.__imul__! "
    "torch.multiply Tensor.multiply Tensor.multiply_!",
    "div": "torch.div Tensor.div Tensor.__truediv__ Tensor.__div__ Tensor.div_! "
    "Tensor.__itruediv__! Tensor.__idiv__! torch.divide Tensor.divide Tensor.divide_! "
    "torch.true_divide Tensor.true_divide Tensor.true_divide_!",
    "rtruediv": "Tensor.__rtruediv__ Tensor.__rdiv__",
    "rfloordiv": "Tensor.__rfloordiv__",
    "pow": "torch.pow Tensor.pow Tensor.__pow__ Tensor.__rpow__~ Tensor.pow_! Tensor.__ipow__!",
    "clamp": "torch.clamp Tensor.clamp Tensor.clamp_! torch.clamp_! torch.clip Tensor.clip "
    "Tensor.clip_! torch.clamp_min(input, min) Tensor.clamp_min(input, min) "
    "Tensor.clamp_min_(input, min)! torch.clamp_max(input, max) Tensor.clamp_max(input, max) "
    "Tensor.clamp_max_(input, max)!",
    # activations
    "relu": "F.relu torch.relu Tensor.relu Tensor.relu_! torch.relu_! F.relu_!",
    "relu6": "F.relu6",
    "elu": "F.elu F.elu_!",
    "selu": "F.selu torch.selu torch.selu_! F.selu_!",
    "celu": "F.celu torch.celu torch.celu_! F.celu_!",
    "leaky_relu": "F.leaky_relu F.leaky_relu_!",
    "hardswish": "F.hardswish",
    "hardsigmoid": "F.hardsigmoid",
    "hardtanh": "F.hardtanh F.hardtanh_!",
    "silu": "F.silu",
    "mish": "F.mish",
    "threshold": "F.threshold torch.threshold torch.threshold_! F.threshold_!",
    "rrelu": "F.rrelu",
    "gelu": "F.gelu",
    "softplus": "F.softplus",
    "softsign": "F.softsign",
    "tanhshrink": "F.tanhshrink",
    "hardshrink": "F.hardshrink torch.hardshrink Tensor.hardshrink",
    "softshrink": "F.softshrink",
    "logsigmoid": "F.logsigmoid",
    "prelu": "F.prelu torch.prelu Tensor.prelu",
    "glu": "F.glu",
    "softmax": "F.softmax(input, dim=None, _stacklevel=3, dtype=None) torch.softmax Tensor.softmax "
    "special.softmax(input, dim, *, dtype=None)",
    "log_softmax": "F.log_softmax(input, dim=None, _stacklevel=3, dtype=None) torch.log_softmax "
    "Tensor.log_softmax special.log_softmax(input, dim, *, dtype=None)",
    "softmin": "F.softmin(input, dim=None, _stacklevel=3, dtype=None)",
    "gumbel_softmax": "F.gumbel_softmax",
    **{
        name: f"F.{name}{_DROPOUT}"
        for name in ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
    },
    "alpha_dropout": "F.alpha_dropout(input, p=0.5, training=False, inplace=False)",
    "dropout": f"F.dropout{_DROPOUT} torch.dropout(input, p, training) "
    "torch.dropout_(input, p, training)!",
    # products
    **{f"conv{n}d": f"F.conv{n}d torch.conv{n}d" for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": f"F.conv_transpose{n}d torch.conv_transpose{n}d" for n in (1, 2, 3)},
    "linear": "F.linear",
    "grouped_mm": "torch._grouped_mm",
    "histc": "torch.histc Tensor.histc",
    "einsum": "torch.einsum",
    "matmul": "torch.matmul Tensor.matmul Tensor.__matmul__ Tensor.__rmatmul__~ linalg.matmul",
    "outer": "torch.outer Tensor.outer torch.ger Tensor.ger",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention",
    "multi_head_attention_forward": "F.multi_head_attention_forward",
    # normalisations
    "batch_norm": "F.batch_norm(input, running_mean, running_var, weight=None, bias=None, "
    f"training=False, momentum=0.1, eps=1e-05) torch.batch_norm{_STATISTICS}",
    "layer_norm": "F.layer_norm "
    "torch.layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, _cudnn=True)",
    "rms_norm": "F.rms_norm torch.rms_norm",
    "group_norm": "F.group_norm "
    "torch.group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, _cudnn=True)",
    "instance_norm": "F.instance_norm",
    "local_response_norm": "F.local_response_norm",
    "weight_norm": "torch._weight_norm",
    "normalize": "F.normalize(input, p=2.0, dim=1, eps=1e-12)",
    # pools
    **{
        f"max_pool{n}d": f"F.max_pool{n}d torch.max_pool{n}d{_MAX_POOL} "
        f"F.max_pool{n}d_with_indices{_MAX_POOL_INDICES}"
        for n in (1, 2, 3)
    },
    **{f"avg_pool{n}d": f"F.avg_pool{n}d" for n in (1, 2, 3)},
    **{f"lp_pool{n}d": f"F.lp_pool{n}d" for n in (1, 2, 3)},
    **{
        f"adaptive_avg_pool{n}d": f"F.adaptive_avg_pool{n}d torch.adaptive_avg_pool{n}d"
        for n in (1, 2, 3)
    },
    **{
        f"adaptive_max_pool{n}d": f"F.adaptive_max_pool{n}d "
        f"F.adaptive_max_pool{n}d_with_indices(input, output_size, return_indices=True)"
        for n in (1, 2, 3)
    },
    # reductions; overloads that a signature cannot tell apart are in overloads.py
    "sum": "torch.sum Tensor.sum",
    "mean": "torch.mean Tensor.mean",
    "norm": "torch.norm(input, p='fro', dim=None, keepdim=False, out=None, dtype=None) "
    "Tensor.norm(input, p='fro', dim=None, keepdim=False, dtype=None)",
    "vector_norm": "linalg.vector_norm",
    **{name: f"torch.{name}" for name in ("std", "var", "std_mean", "var_mean")},
    **{name: f"torch.{name}" for name in ("arange", "randint")},
    "argsort": "torch.argsort Tensor.argsort",
    "searchsorted": "torch.searchsorted",
    "cosine_similarity": "F.cosine_similarity torch.cosine_similarity",
    "pairwise_distance": "F.pairwise_distance torch.pairwise_distance",
    # views
    "view": "Tensor.view",
    "reshape": "Tensor.reshape torch.reshape",
    "reshape_as": "Tensor.reshape_as",
    "view_as": "Tensor.view_as",
    "flatten": "torch.flatten Tensor.flatten torch.ravel(input) Tensor.ravel(input)",
    "unflatten": "Tensor.unflatten torch.unflatten",
    "permute": "Tensor.permute torch.permute",
    "transpose": "torch.transpose Tensor.transpose torch.swapaxes Tensor.swapaxes "
    "torch.swapdims Tensor.swapdims",
    "t": "torch.t Tensor.t Tensor.T@",
    "mT": "Tensor.mT@",
    "movedim": "torch.movedim Tensor.movedim torch.moveaxis Tensor.moveaxis",
    "squeeze": "torch.squeeze Tensor.squeeze",
    "expand": "Tensor.expand",
    "expand_as": "Tensor.expand_as",
    "broadcast_to": "Tensor.broadcast_to torch.broadcast_to",
    "split": "torch.split Tensor.split torch.split_with_sizes Tensor.split_with_sizes",
    "unbind": "torch.unbind Tensor.unbind Tensor.__iter__",
    "unfold_view": "Tensor.unfold",
    "detach": "Tensor.detach torch.detach Tensor.data@",
    "real": "torch.real Tensor.real@",
    "imag": "torch.imag Tensor.imag@",
    "meshgrid": "torch.meshgrid(*tensors, indexing=None)",
    "broadcast_tensors": "torch.broadcast_tensors",
    "identity": "",
    # movement
    "cat": "torch.cat torch.concat torch.concatenate",
    "stack": "torch.stack",
    "pad": "F.pad torch.constant_pad_nd(input, pad, value=None)",
    "contiguous": "Tensor.contiguous(input, *, memory_format=None)",
    "clone": "torch.clone Tensor.clone",
    "copy": "Tensor.copy_!",
    "flip": "Tensor.flip torch.flip",
    "repeat": "Tensor.repeat",
    "tile": "Tensor.tile torch.tile",
    "repeat_interleave": "torch.repeat_interleave Tensor.repeat_interleave",
    "scatter": "torch.scatter Tensor.scatter Tensor.scatter_!",
    "unique": "torch.unique Tensor.unique",
    "nonzero": "torch.nonzero Tensor.nonzero torch.argwhere Tensor.argwhere",
    "item": "Tensor.item Tensor.__bool__ Tensor.__int__ Tensor.__float__ Tensor.__index__ "
    "Tensor.is_nonzero torch.is_nonzero",
    "tolist": "Tensor.tolist",
    "zero": "Tensor.zero_! torch.zero_!",
    "fill": "torch.fill Tensor.fill_! torch.fill_!",
    "uniform": "Tensor.uniform_!",
    "normal": "Tensor.normal_!",
    # embeddings
    "embedding": "F.embedding "
    "torch.embedding(weight, input, padding_idx=None, scale_grad_by_freq=False, sparse=False)",
    "embedding_bag": "F.embedding_bag",
    "one_hot": "F.one_hot",
    # losses; arguments that torch deprecates have no description
    "cross_entropy": "F.cross_entropy(input, target, weight=None, size_average=None, "
    "ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0)",
    "nll_loss": "F.nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, "
    "reduce=None, reduction='mean')",
    **{
        name: f"F.{name}(input, target, size_average=None, reduce=None, reduction='mean', "
        "weight=None)"
        for name in ("mse_loss", "l1_loss")
    },
    "smooth_l1_loss": "F.smooth_l1_loss(input, target, size_average=None, reduce=None, "
    "reduction='mean', beta=1.0)",
    "binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(input, target, "
    "weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None)",
    # vision
    "interpolate": "F.interpolate "
    "F.upsample(input, size=None, scale_factor=None, mode='nearest', align_corners=None)",
    "grid_sample": "F.grid_sample(input, grid, mode='bilinear', padding_mode='zeros', "
    "align_corners=None)",
    "affine_grid": "F.affine_grid(theta, size, align_corners=None)",
    "pixel_shuffle": "F.pixel_shuffle torch.pixel_shuffle",
    "pixel_unshuffle": "F.pixel_unshuffle torch.pixel_unshuffle",
    "unfold": "F.unfold",
    "fold": "F.fold",
    "hann_window": "torch.hann_window",
    **{name: f"fft.{name}" for name in ("fft", "ifft", "rfft", "irfft", "fftn", "ifftn")},
    **{name: f"fft.{name}" for name in ("fft2", "ifft2", "rfft2", "irfft2")},
    # made after another
    **{
        f"new_{name}": f"Tensor.new_{name}(input, *size, dtype=None)"
        for name in ("zeros", "ones", "empty")
    },
    "new_full": "Tensor.new_full",
}
EXTRA: dict[str, str] = {
    "abs": "Tensor.__abs__ torch.absolute Tensor.absolute",
    "neg": "Tensor.__neg__ torch.negative Tensor.negative",
    "positive": "Tensor.__pos__",
    "sigmoid": "F.sigmoid special.expit",
    "tanh": "F.tanh",
    "floor_divide": "Tensor.__floordiv__ Tensor.__ifloordiv__!",
    "remainder": "Tensor.__mod__ Tensor.__imod__!",
    "logical_not": "",
    "bitwise_not": "Tensor.__invert__",
    "bitwise_and": "Tensor.__and__ Tensor.__rand__~ Tensor.__iand__!",
    "bitwise_or": "Tensor.__or__ Tensor.__ror__~ Tensor.__ior__!",
    "bitwise_xor": "Tensor.__xor__ Tensor.__rxor__~ Tensor.__ixor__!",
    "bitwise_left_shift": "Tensor.__lshift__ Tensor.__ilshift__!",
    "bitwise_right_shift": "Tensor.__rshift__ Tensor.__irshift__!",
    "eq": "Tensor.__eq__",
    "ne": "Tensor.__ne__ torch.not_equal",
    "contains": "Tensor.__contains__",
    "lt": "Tensor.__lt__ torch.less",
    "le": "Tensor.__le__ torch.less_equal",
    "gt": "Tensor.__gt__ torch.greater",
    "ge": "Tensor.__ge__ torch.greater_equal",
    "isin": "",
    "erf": "torch.erf",
    "trunc": "torch.fix",
    "bilinear": "F.bilinear",
    "logit": "special.logit",
    "acos": "torch.arccos",
    "asin": "torch.arcsin",
    "atan": "torch.arctan",
    "atan2": "torch.arctan2",
    "channel_shuffle": "F.channel_shuffle",
    "cross": "linalg.cross(input, other, *, dim=-1)",
}
CUSTOM: dict[str, tuple[str, str]] = {
    "torchvision::nms": ("nms", "boxes, scores, iou_threshold"),
    "torchvision::roi_align": (
        "roi_align",
        "input, boxes, spatial_scale, output_height, output_width, sampling_ratio, aligned",
    ),
    "torchvision::deform_conv2d": (
        "deform_conv2d",
        "input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, "
        "dilation_w, _groups, _offset_groups, use_mask",
    ),
}
METADATA = """
Tensor.size Tensor.dim Tensor.stride Tensor.numel Tensor.nelement Tensor.ndimension
Tensor.is_contiguous Tensor.is_floating_point Tensor.is_complex Tensor.is_signed Tensor.is_conj
Tensor.is_neg Tensor.is_inference Tensor.is_pinned Tensor.is_shared Tensor.is_same_size
Tensor.is_set_to Tensor.element_size Tensor.get_device Tensor.storage_offset Tensor.untyped_storage
Tensor.storage Tensor.data_ptr Tensor.__len__ Tensor.__repr__ Tensor.__format__ Tensor.__str__
Tensor.__hash__ Tensor.__dir__ Tensor.requires_grad_ Tensor.has_names Tensor.retain_grad
Tensor.is_coalesced Tensor.is_distributed Tensor.dim_order Tensor.dense_dim Tensor.sparse_dim
Tensor.register_hook Tensor.__deepcopy__ Tensor.rename_ Tensor.align_to Tensor.refine_names
torch.numel torch.is_floating_point torch.is_complex torch.is_conj torch.is_neg torch.is_signed
torch.is_inference torch.is_same_size torch.result_type torch.can_cast torch.promote_types
torch.is_tensor torch.is_storage torch.broadcast_shapes torch._assert torch.get_device
torch.is_distributed torch.get_default_dtype torch.set_default_dtype torch.is_grad_enabled
torch.set_grad_enabled torch.get_default_device torch._is_functional_tensor
torch.device C._set_grad_enabled C._set_deterministic amp._enter_autocast amp._exit_autocast
torch.is_autocast_enabled torch.get_autocast_gpu_dtype torch._has_compatible_shallow_copy_type
"""
METADATA_GETTERS = """
shape dtype device layout requires_grad grad grad_fn is_leaf ndim names itemsize nbytes is_cuda
is_cpu is_meta is_mps is_xpu is_xla is_ipu is_hpu is_mtia is_maia is_vulkan is_ort is_sparse
is_sparse_csr is_quantized is_nested is_mkldnn name output_nr retains_grad _version _base volatile
_grad _backward_hooks is_conj _grad_fn grad_dtype __cuda_array_interface__
"""
METADATA_SETTERS = "requires_grad grad names _grad grad_dtype _backward_hooks"
