"""Callables that no kind names: torchvision's operators, and callables that are not operators.

The callables of a kind are in its declaration (`opdb.kinds.registry.Kind.functions`).
"""

from __future__ import annotations

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
